"""One contract for every provider: the same streams, each as its API sends it, over real HTTP.

The server refuses what that API refuses (`tests/servers/model_api_rules.py`). `tests/prove/test_providers.py`
runs the providers that differ from these in their table only.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.behaviour.models import ASK, CALLS, KEYS, answer, events, failing, kinds, opened, results
from tests.servers.model_api import ModelApi

from dragoman import AgentEngine, ToolRegistry, tool
from dragoman.agent.messages import (
    Answered,
    CallDelta,
    Message,
    ModelRequest,
    TextDelta,
    ThoughtDelta,
    ToolCall,
)
from dragoman.agent.providers import ProviderAuthError, ProviderError, StreamBrokenError, open_provider
from dragoman.agent.providers.compatible import COMPATIBLE_APIS
from dragoman.agent.providers.open import PROVIDERS

CLASSES = ("openai", "responses", "anthropic", "gemini", "azure", "ollama", "vllm", "deepseek", "glm", "groq")
"""One provider for each way in which they differ in code."""
KEY = "an-odd-key-4711"
TOOLS = {
    "anthropic": [{"name": "add", "input_schema": {"type": "object"}}],
    "gemini": [{"name": "add", "parameters_json_schema": {"type": "object"}}],
    "responses": [{"type": "function", "name": "add", "parameters": {"type": "object"}}],
}
TOOL = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
CONVERSATIONS = {"responses": "input", "gemini": "contents"}


@tool
def echo(text: str) -> str:
    """Say it again."""
    return text


@pytest.fixture(params=CLASSES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def opened_with_key(name: str, server: ModelApi, **how: Any) -> Any:
    return opened(name, server, key=KEY, **how)


def said_in(server: ModelApi, name: str, at: int) -> list[dict[str, Any]]:
    return server.requests[at].body[CONVERSATIONS.get(name, "messages")]


async def test_text_streams_in_pieces_and_the_usage_is_counted(name: str) -> None:
    async with (
        ModelApi([{"text": "Grüße, world; 你好"}]) as server,
        opened_with_key(name, server) as provider,
    ):
        got = await events(provider, Message(role="system", text="be brief"), ASK)
    last = got[-1]
    assert isinstance(last, Answered)
    texts = [event.text for event in got if isinstance(event, TextDelta)]
    assert len(texts) > 1
    assert "".join(texts) == last.message.text == "Grüße, world; 你好"
    assert (last.finish, last.model) == ("stop", "m")
    assert last.usage.output_tokens == 20
    assert last.usage.input_tokens >= 100
    assert json.dumps(server.requests[0].body).count("be brief") == 1


async def test_parallel_calls_and_their_results(name: str) -> None:
    script = [{"text": "let me see", "calls": CALLS}, {"text": "ok"}]
    async with ModelApi(script) as server, opened_with_key(name, server) as provider:
        got = await events(provider, ASK, tools=TOOLS.get(name, TOOL))
        turn = got[-1].message
        first, second = results(turn, "3", "noon")
        failed = second.replace(text="no clock", is_error=True)
        assert (await answer(provider, ASK, turn, failed, first, ASK)).message.text == "ok"
    assert kinds(got) == ["TextDelta", "CallDelta", "Answered"]
    assert got[-1].finish == "tool_calls"
    assert [(call.name, call.arguments, call.problem) for call in turn.calls] == [
        ("add", {"a": 1, "b": "zwei"}, ""),
        ("now", {}, ""),
    ]
    ids = [call.id for call in turn.calls]
    assert list(dict.fromkeys(event.id for event in got if isinstance(event, CallDelta))) == ids
    assert server.complaints == []
    assert "no clock" in json.dumps(said_in(server, name, 1))


async def test_thoughts_are_shown_and_go_back_before_a_call(name: str) -> None:
    script = [
        {"thought": "two and two", "sealed": "SEAL", "calls": CALLS[:1]},
        {"text": "4"},
        {"text": "yes"},
    ]
    async with ModelApi(script) as server, opened_with_key(name, server) as provider:
        got = await events(provider, ASK)
        turn = got[-1].message
        # Through JSON, as a transcript keeps it.
        turn = turn.replace(native=json.loads(json.dumps(turn.native)))
        last = (await answer(provider, ASK, turn, *results(turn, "4"))).message
        await answer(provider, ASK, turn, *results(turn, "4"), last, ASK)
    assert "".join(event.text for event in got if isinstance(event, ThoughtDelta)) == "two and two"
    assert server.complaints == []
    returned = "SEAL" if name in {"responses", "anthropic", "gemini"} else "two and two"
    assert returned in json.dumps(said_in(server, name, 1))
    # These want it for good, the others until the user speaks again.
    keeps = name.removesuffix("-intl") in {"responses", "anthropic", "gemini", "deepseek", "kimi", "glm"}
    assert (returned in json.dumps(said_in(server, name, 2))) is keeps


async def test_calls_of_another_model_are_taken(name: str) -> None:
    call = ToolCall(id="c1", name="add", arguments={"a": 1}, raw='{"a": 1}')
    turn = Message(role="assistant", calls=[call], native={"other": {"model": "x"}})
    model = "gemini-3-pro" if name == "gemini" else "m"
    async with (
        ModelApi([{"text": "ok"}]) as server,
        opened_with_key(name, server, model=model) as provider,
    ):
        assert (await answer(provider, ASK, turn, *results(turn, "3"))).message.text == "ok"
    assert server.complaints == []


async def test_a_refusal_is_no_error(name: str) -> None:
    turn = {"refusal": "I cannot help with that", "finish": "refused"}
    async with ModelApi([turn]) as server, opened_with_key(name, server) as provider:
        last = await answer(provider)
    assert last.message.text == "I cannot help with that"
    # Ollama has no word for it: a refusal is a text.
    assert last.finish == ("other" if name == "ollama" else "refused")


@pytest.mark.parametrize("place", ["status", "stream"])
@pytest.mark.parametrize("name", [name for name in CLASSES if name != "ollama"])
async def test_an_error_that_quotes_the_key_is_masked(name: str, place: str) -> None:
    # In the clear, and as a header would have it in base64.
    words = f"Incorrect API key provided: {KEY} (YW4tb2RkLWtleS00NzEx)"
    broken = {"text": "some text to begin with", "broken": "error", "error": words}
    script = [{"status": 401, "error": words} if place == "status" else broken]
    async with ModelApi(script) as server, opened_with_key(name, server) as provider:
        with pytest.raises(ProviderError) as caught:
            await events(provider)
    error = caught.value
    assert "Incorrect API key provided" in str(error)
    assert KEY not in str(error) + repr(error) + str(error.args)
    assert "YW4tb2RkLWtleS00NzEx" not in str(error)
    assert error.provider == name
    if place == "status":
        assert isinstance(error, ProviderAuthError)
        assert f"check `{KEYS[name]}`" in str(error)


async def test_a_stream_that_is_cut_has_what_came(name: str) -> None:
    script = [{"text": "the beginning of something", "calls": CALLS, "broken": "cut"}]
    async with ModelApi(script) as server, opened_with_key(name, server) as provider:
        got, error = await failing(provider)
    assert "TextDelta" in kinds(got)
    assert len(server.requests) == 1
    assert error.partial is not None
    assert error.partial.text == "the beginning of something"
    assert error.provider == name


async def test_a_stream_without_an_end_is_broken(name: str) -> None:
    script = [{"text": "the beginning", "broken": "no finish"}]
    async with ModelApi(script) as server, opened_with_key(name, server) as provider:
        with pytest.raises(StreamBrokenError, match=f"`{name}`: the stream ended without a finish reason"):
            await events(provider)


async def test_the_key_goes_into_its_header_alone(name: str) -> None:
    async with ModelApi([{"text": "ok"}]) as server, opened_with_key(name, server) as provider:
        await answer(provider, max_tokens=50)
        assert provider.secrets == ([] if name == "ollama" else [KEY])
    asked = server.requests[0]
    holding = [header for header, value in asked.headers.items() if KEY in value]
    expected = {"gemini": ["x-goog-api-key"], "azure": ["api-key"], "ollama": []}
    assert holding == expected.get(name, ["authorization"])
    assert KEY not in asked.path + asked.raw.decode()
    assert server.complaints == []


EFFORTS: dict[str, tuple[str, Any]] = {
    "openai": ("reasoning_effort", "low"),
    "azure": ("reasoning_effort", "low"),
    "vllm": ("reasoning_effort", "low"),
    "deepseek": ("reasoning_effort", "low"),
    "glm": ("reasoning_effort", "low"),
    "groq": ("reasoning_effort", "low"),
    "responses": ("reasoning", {"effort": "low"}),
    "anthropic": ("output_config", {"effort": "low"}),
    "gemini": ("generationConfig", {"thinkingConfig": {"includeThoughts": True, "thinkingLevel": "low"}}),
    "ollama": ("think", "low"),
    "qwen": ("thinking_budget", 1024),
    "qwen-intl": ("thinking_budget", 1024),
    "kimi": ("thinking", {"type": "enabled"}),
    "kimi-intl": ("thinking", {"type": "enabled"}),
    "glm-intl": ("reasoning_effort", "low"),
    "openrouter": ("reasoning", {"effort": "low"}),
    "llamacpp": ("reasoning_effort", "low"),
    "lmstudio": ("reasoning_effort", "low"),
}
OFF: dict[str, tuple[str, Any]] = {
    "anthropic": ("thinking", {"type": "disabled"}),
    "gemini": (
        "generationConfig",
        {"thinkingConfig": {"includeThoughts": False, "thinkingLevel": "minimal"}},
    ),
    "ollama": ("think", False),
    "vllm": ("chat_template_kwargs", {"enable_thinking": False}),
    "deepseek": ("thinking", {"type": "disabled"}),
    "glm": ("thinking", {"type": "disabled"}),
    "groq": ("reasoning_effort", "none"),
    "qwen": ("enable_thinking", False),
    "openrouter": ("reasoning", {"enabled": False}),
}


async def test_how_much_it_thinks_is_set_as_the_api_wants(name: str) -> None:
    model = "gemini-3-pro" if name == "gemini" else "m"
    async with ModelApi([{"text": "ok"}], repeat=True) as server:
        async with opened_with_key(name, server, model=model, think="low") as provider:
            await answer(provider)
        field, value = EFFORTS[name]
        assert server.requests[0].body[field] == value
        if name not in OFF:
            return
        async with opened_with_key(name, server, model=model, think=False) as provider:
            await answer(provider)
        field, value = OFF[name]
        assert server.requests[1].body[field] == value


@pytest.mark.parametrize("name", ["openai", "responses", "azure"])
async def test_a_yes_or_no_where_only_an_effort_is_taken_is_refused(name: str) -> None:
    async with ModelApi() as server:
        with pytest.raises(ProviderError, match="say how much: low, medium or high"):
            async with opened_with_key(name, server, think=True):
                pass


@pytest.mark.parametrize("name", ["gemini", "azure", *COMPATIBLE_APIS])
async def test_without_a_key_the_variable_is_named(name: str) -> None:
    env = {"AZURE_OPENAI_ENDPOINT": "https://acme.openai.azure.com"}
    with pytest.raises(ProviderAuthError, match=f"set `{KEYS[name]}`"):
        await open_provider(f"{name}:m", env=env)


async def test_an_unknown_provider_is_answered_with_all() -> None:
    with pytest.raises(ProviderError, match="unknown model API `deepsek`") as caught:
        await open_provider("deepsek:x", env={})
    assert "did you mean `deepseek`?" in str(caught.value)
    assert all(f"`{name}`" in str(caught.value) for name in PROVIDERS)


async def test_the_address_of_an_api_is_that_of_its_variable() -> None:
    async with ModelApi([{"text": "ok"}], repeat=True) as server:
        places = {"DEEPSEEK_BASE_URL": server.base_url("deepseek"), "DEEPSEEK_API_KEY": KEY}
        provider = await open_provider("deepseek:m", env=places)
        await answer(provider)
        await provider.aclose()
    assert server.requests[0].path == "/deepseek/chat/completions"


async def test_azure_with_a_version_asks_for_the_deployment() -> None:
    async with ModelApi([{"text": "ok"}]) as server:
        env = {
            "AZURE_OPENAI_ENDPOINT": f"{server.url}/azure/",
            "AZURE_OPENAI_API_KEY": KEY,
            "OPENAI_API_VERSION": "2024-10-21",
        }
        provider = await open_provider("azure:my-deployment", env=env)
        await answer(provider)
        await provider.aclose()
    path = "/azure/openai/deployments/my-deployment/chat/completions?api-version=2024-10-21"
    assert server.requests[0].path == path


async def test_azure_without_a_resource_says_what_to_set() -> None:
    with pytest.raises(ProviderError, match="set `AZURE_OPENAI_ENDPOINT`"):
        await open_provider("azure:m", env={"AZURE_OPENAI_API_KEY": KEY})


async def test_a_busy_gemini_is_asked_again_when_it_says() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7.5s"}]
    script = [{"status": 429, "error": "quota", "details": details}, {"text": "ok"}]
    async with ModelApi(script) as server, opened_with_key("gemini", server, sleep=sleep) as provider:
        assert (await answer(provider)).message.text == "ok"
    assert slept == [7.5]


async def test_a_prompt_that_gemini_blocks_is_a_refusal() -> None:
    from dragoman.agent.providers.gemini import GeminiReader
    from dragoman.agent.providers.parsing import Ids

    reader = GeminiReader(model="m", ids=Ids(()))
    assert list(reader.feed({"promptFeedback": {"blockReason": "SAFETY"}})) == []
    assert reader.finish().finish == "refused"


async def test_a_forced_choice_is_not_sent_where_it_is_refused() -> None:
    async with ModelApi([{"text": "ok"}], repeat=True) as server, opened_with_key("glm", server) as provider:
        for choice in ("required", "none"):
            request = ModelRequest(messages=[ASK], tools=TOOL, tool_choice=choice)
            assert [event async for event in provider.stream(request)]
    assert server.complaints == []
    assert ["tools" in asked.body for asked in server.requests] == [True, False]


async def test_an_agent_of_gemini_calls_tools_and_knows_its_window() -> None:
    script = [{"calls": [{"name": "echo", "arguments": {"text": "hi"}}]}, {"text": "It says hi."}]
    registry = ToolRegistry()
    registry.register(echo)
    async with ModelApi(script) as server:
        env = {"GOOGLE_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": server.url}
        provider = await open_provider("gemini:gemini-3-flash", env=env)
        async with AgentEngine(provider, registry) as agent:
            assert agent.window is not None
            assert (agent.window.tokens, agent.window.cuts) == (1_048_576, False)
            assert (await agent.run("Say hi.")).text == "It says hi."
    (declared,) = server.requests[0].body["tools"]
    assert [tool["name"] for tool in declared["functionDeclarations"]] == ["echo"]
    assert server.complaints == []
    answered = server.requests[1].body["contents"][-1]["parts"][0]["functionResponse"]
    assert (answered["name"], answered["response"]) == ("echo", {"output": "hi"})
