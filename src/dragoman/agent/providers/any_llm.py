"""Every other provider, through the package `any-llm-sdk`: `any-llm:mistral:mistral-large-latest`.

It speaks Chat Completions on our side and the provider's own API on the other, with that provider's key from
its usual variable. The package needs `anthropic<1`, and our own provider a later one: an environment has one
of the two.
"""

from __future__ import annotations

import inspect
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dragoman.agent.providers.openai_chat import COMPATIBLE, ChatProvider
from dragoman.agent.providers.request import ModelEndpoint, ProviderError, StreamBrokenError, shown
from dragoman.server.late_import import late_import_module
from dragoman.version import install_command

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from types import ModuleType

    from dragoman.agent.providers.options import ProviderOptions

EXTRA = "any-llm"


async def open_model(options: ProviderOptions) -> ChatProvider:
    """Open a model of a provider that any-llm knows.

    Raises:
        ProviderError: The package is not installed, or the name has no provider.
    """
    name, _, model = options.require_model().partition(":")
    if find_spec("any_llm") is None:
        msg = "the package `any-llm-sdk` is not installed"
        raise ProviderError(msg, provider=options.name, hint=f"install it: {install_command(EXTRA)}")
    if not model:
        msg = f"`{options.name}:{name}` names no model"
        hint = f"write `{options.name}:PROVIDER:MODEL`, as in `{options.name}:mistral:mistral-large-latest`"
        raise ProviderError(msg, provider=options.name, hint=hint)
    module = await late_import_module("any_llm")
    try:
        known = module.AnyLLM.get_provider_class(name)
    except (module.AnyLLMError, ImportError, AttributeError) as error:
        msg = f"any-llm has no provider `{name}`: {shown(str(error))}"
        raise ProviderError(msg, provider=options.name) from None
    usual = str(known.ENV_API_KEY_NAME or "").split("/")
    variable = options.key_variable or next((one for one in usual if options.env.get(one)), usual[0])
    key = await options.key(variable, is_required=False) if variable else None
    endpoint = AnyLlmEndpoint(
        provider=f"{options.name}:{name}",
        base_url=options.base_url or "",
        key=key,
        key_variable=variable,
        **options.how,
    )
    endpoint.counts_retries = known.MAX_RETRIES_SUPPORT != "unsupported"
    thinking = (
        {} if options.think is None else {"reasoning_effort": options.effort() if options.think else "none"}
    )
    return ChatProvider(model, endpoint=endpoint, extra={**thinking, **options.extra}, rules=COMPATIBLE)


class AnyLlmEndpoint(ModelEndpoint):
    """A provider behind any-llm."""

    counts_retries: bool = False
    """Whether its SDK can be told not to repeat a request."""

    async def events(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[Mapping[str, Any], None]:  # noqa: ARG002 -- any-llm knows the path
        """Send one request, and yield the chunks of its answer.

        Raises:
            ProviderError: The request failed.
        """
        failure: ProviderError | None = None
        module = await late_import_module("any_llm")
        try:
            client = await self._connect(module)
            stream = await client.acompletion(**{**body, "stream": True})
            async for chunk in stream:
                yield chunk.model_dump(exclude_none=True)
        except module.AnyLLMError as error:
            failure = self._refused(error)
        except (ImportError, ValueError, TypeError) as error:
            msg = f"`{self.provider}`: {shown(str(error))}"
            failure = StreamBrokenError(msg, provider=self.provider)
        if failure is not None:
            raise failure

    async def aclose(self) -> None:
        """Close all connections."""
        self._closed = True
        client, self._client = self._client, None
        inner = getattr(client, "client", None)
        close: Any = getattr(inner, "close", None)
        if inspect.iscoroutinefunction(close):
            await close()

    async def _connect(self, module: ModuleType) -> Any:
        async with self._opening:
            if self._client is None and not self._closed:
                self._client = module.AnyLLM.create(
                    self.provider.partition(":")[2],
                    api_key=self.key.reveal() if self.key else None,
                    api_base=self.base_url or None,
                    unified_exceptions=True,
                    # Ours are the only retries.
                    max_retries=0 if self.counts_retries else None,
                )
        if self._closed:
            msg = f"`{self.provider}`: the model is closed"
            raise ProviderError(msg, provider=self.provider)
        return self._client

    def _refused(self, error: Any) -> ProviderError:
        said = shown(str(error.message))
        kind = str(getattr(error, "code", None) or "")
        status: int | None = getattr(error, "status_code", None)
        if status is None:
            why = said or type(error).__name__
            msg = f"`{self.provider}` failed: {why}"
            return ProviderError(msg, provider=self.provider, kind=kind)
        after = getattr(error, "retry_after", None)
        headers = {"retry-after": str(after)} if after else {}
        return self.refusal(status, said=said, kind=kind, headers=headers)
