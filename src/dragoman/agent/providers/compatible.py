"""Hosted APIs that are compatible with OpenAI's Chat Completions: their addresses, keys and differences.

What differs is how thinking is set, whether thoughts go back, and which fields of OpenAI are refused; see
`ChatRules`. An address of `…-intl` belongs to accounts outside China, whose keys the other does not take.
"""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 -- msgspec resolves the fields' type hints
from typing import Any

from dragoman.agent.providers.openai_chat import ChatProvider, ChatRules
from dragoman.agent.providers.options import ProviderOptions  # noqa: TC001 -- as above
from dragoman.agent.providers.request import require_sdk
from dragoman.struct import Struct

QWEN_BUDGETS = {"low": 1_024, "medium": 8_192, "high": 32_768}
"""Tokens of thinking."""


class CompatibleApi(Struct, kw_only=True):
    """One hosted API."""

    base_url: str
    key: str
    """The variable of the key. That of the address ends with `_BASE_URL` instead of `_API_KEY`."""
    thinking: Callable[[ProviderOptions], dict[str, Any]]
    """Returns the fields of a request that set how much the model thinks."""
    rules: ChatRules = ChatRules()

    @property
    def base(self) -> str:
        """The variable of the address."""
        return self.key.replace("_API_KEY", "_BASE_URL")


async def open_model(options: ProviderOptions) -> ChatProvider:
    """Open a model of one of `COMPATIBLE_APIS`."""
    api = COMPATIBLE_APIS[options.name]
    model = options.require_model()
    require_sdk("openai")
    endpoint = await options.endpoint(api.base_url, variable=api.key, base_variable=api.base)
    thinking = {} if options.think is None else api.thinking(options)
    return ChatProvider(model, endpoint=endpoint, extra={**thinking, **options.extra}, rules=api.rules)


def _switched(options: ProviderOptions) -> dict[str, Any]:
    return {"thinking": {"type": "enabled" if options.think else "disabled"}}


def _switched_with_effort(options: ProviderOptions) -> dict[str, Any]:
    effort = {"reasoning_effort": options.think} if isinstance(options.think, str) else {}
    return {**_switched(options), **effort}


def _enabled_with_budget(options: ProviderOptions) -> dict[str, Any]:
    budget = QWEN_BUDGETS.get(str(options.think))
    return {"enable_thinking": bool(options.think)} | ({"thinking_budget": budget} if budget else {})


def _reasoning(options: ProviderOptions) -> dict[str, Any]:
    effort = options.think
    return {"reasoning": {"effort": effort} if isinstance(effort, str) else {"enabled": effort}}


def _effort_or_none(options: ProviderOptions) -> dict[str, Any]:
    return {"reasoning_effort": options.effort("default") if options.think else "none"}


# Without its thoughts, DeepSeek refuses a turn with calls; Kimi and GLM lose the thread.
_KEEPS = ChatRules(keeps_thoughts=True)
_GLM = ChatRules(keeps_thoughts=True, counts_tokens=False, chooses_tools=False)

COMPATIBLE_APIS = {
    "deepseek": CompatibleApi(
        base_url="https://api.deepseek.com",
        key="DEEPSEEK_API_KEY",
        thinking=_switched_with_effort,
        rules=_KEEPS,
    ),
    "qwen": CompatibleApi(
        base_url="https://dashscope.aliyuncs.com/compatible-mode/v1",
        key="DASHSCOPE_API_KEY",
        thinking=_enabled_with_budget,
    ),
    "qwen-intl": CompatibleApi(
        base_url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        key="DASHSCOPE_API_KEY",
        thinking=_enabled_with_budget,
    ),
    "kimi": CompatibleApi(
        base_url="https://api.moonshot.cn/v1", key="MOONSHOT_API_KEY", thinking=_switched, rules=_KEEPS
    ),
    "kimi-intl": CompatibleApi(
        base_url="https://api.moonshot.ai/v1", key="MOONSHOT_API_KEY", thinking=_switched, rules=_KEEPS
    ),
    "glm": CompatibleApi(
        base_url="https://open.bigmodel.cn/api/paas/v4",
        key="ZHIPUAI_API_KEY",
        thinking=_switched_with_effort,
        rules=_GLM,
    ),
    "glm-intl": CompatibleApi(
        base_url="https://api.z.ai/api/paas/v4",
        key="ZAI_API_KEY",
        thinking=_switched_with_effort,
        rules=_GLM,
    ),
    "openrouter": CompatibleApi(
        base_url="https://openrouter.ai/api/v1", key="OPENROUTER_API_KEY", thinking=_reasoning
    ),
    "groq": CompatibleApi(
        base_url="https://api.groq.com/openai/v1",
        key="GROQ_API_KEY",
        thinking=_effort_or_none,
        rules=ChatRules(max_tokens="max_completion_tokens"),
    ),
}
