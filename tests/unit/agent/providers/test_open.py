from __future__ import annotations

import pickle
import sys
from typing import TYPE_CHECKING

import keyring
import keyring.backend
import keyring.errors
import pytest
from tests.servers.model_api import ModelApi

from dragoman.agent.messages import Answered, Message, ModelRequest
from dragoman.agent.providers import ProviderAuthError, ProviderError, open_provider
from dragoman.agent.providers.keys import Secret, find_key
from dragoman.agent.providers.request import ModelEndpoint, is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dragoman.agent.messages import Provider

KEYS = {"OPENAI_API_KEY": "o-key-4711", "ANTHROPIC_API_KEY": "a-key-4711"}


class Ring(keyring.backend.KeyringBackend):
    """A keyring in memory."""

    priority = 1  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str]] = []
        self.held: dict[str, str] = {}
        self.locked = False

    def get_password(self, service: str, username: str) -> str | None:
        self.asked.append((service, username))
        if self.locked:
            raise keyring.errors.KeyringLocked
        return self.held.get(username)

    def set_password(self, service: str, username: str, password: str) -> None:
        self.held[username] = password


@pytest.fixture(autouse=True)
def ring() -> Iterator[Ring]:
    before, ring = keyring.get_keyring(), Ring()
    keyring.set_keyring(ring)
    yield ring
    keyring.set_keyring(before)


def endpoint_of(provider: Provider) -> ModelEndpoint:
    return provider._endpoint  # type: ignore[attr-defined]


def key_of(provider: Provider) -> str | None:
    key = endpoint_of(provider).key
    return key.reveal() if key else None


@pytest.mark.parametrize(
    ("name", "api", "base_url", "key"),
    [
        ("openai:gpt-5", "openai", "https://api.openai.com/v1", "o-key-4711"),
        ("responses:gpt-5", "responses", "https://api.openai.com/v1", "o-key-4711"),
        ("anthropic:claude-x", "anthropic", "https://api.anthropic.com", "a-key-4711"),
    ],
)
async def test_a_name_says_which_api_and_which_model(name: str, api: str, base_url: str, key: str) -> None:
    provider = await open_provider(name, env=KEYS)
    assert (provider.api, provider.model) == (api, name.partition(":")[2])
    assert endpoint_of(provider).base_url == base_url
    assert key_of(provider) == key
    assert "4711" not in repr(provider) + repr(vars(provider))
    await provider.aclose()


async def test_a_models_name_may_have_colons_and_be_given_apart() -> None:
    assert (await open_provider("openai:qwen3:8b", env=KEYS)).model == "qwen3:8b"
    assert (await open_provider("openai", model="qwen3:8b", env=KEYS)).model == "qwen3:8b"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gemni:x", "unknown model API `gemni`"),
        ("openai", "names no model"),
        ("openai:", "names no model"),
    ],
)
async def test_a_name_that_says_too_little_is_refused(name: str, says: str) -> None:
    with pytest.raises(ProviderError, match=says):
        await open_provider(name, env=KEYS)


async def test_the_environment_may_name_another_server_and_the_argument_wins() -> None:
    env = {**KEYS, "OPENAI_BASE_URL": "http://proxy.example/v1"}
    assert endpoint_of(await open_provider("openai:m", env=env)).base_url == "http://proxy.example/v1"
    given = await open_provider("openai:m", env=env, base_url="http://other.example/v1")
    assert endpoint_of(given).base_url == "http://other.example/v1"


async def test_without_a_key_the_error_names_where_it_is_looked_for(ring: Ring) -> None:
    with pytest.raises(
        ProviderAuthError, match=r"set `ANTHROPIC_API_KEY`, or run `keyring set dragoman"
    ) as caught:
        await open_provider("anthropic:m", env={"ANTHROPIC_API_KEY": "  "})
    assert caught.value.provider == "anthropic"
    assert ring.asked == [("dragoman", "ANTHROPIC_API_KEY")]


async def test_the_keyring_is_asked_after_the_environment_and_for_the_apis_own_host_only(ring: Ring) -> None:
    ring.held["OPENAI_API_KEY"] = "ring-4711\n"
    assert key_of(await open_provider("openai:m", env=KEYS)) == "o-key-4711"
    assert ring.asked == []
    assert key_of(await open_provider("openai:m", env={})) == "ring-4711"
    ring.asked.clear()
    assert key_of(await open_provider("openai:m", env={}, base_url="http://10.0.0.1/v1")) is None
    assert ring.asked == []


async def test_a_locked_keyring_is_as_good_as_none(ring: Ring) -> None:
    ring.locked = True
    assert await find_key("OPENAI_API_KEY", {}) is None
    assert ring.asked


async def test_without_the_keyring_package_only_the_environment_counts(
    monkeypatch: pytest.MonkeyPatch, ring: Ring
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert await find_key("OPENAI_API_KEY", {}) is None
    assert ring.asked == []


async def test_another_variable_may_hold_the_key() -> None:
    env = {"LITELLM_KEY": "lite-4711", **KEYS}
    provider = await open_provider("openai:m", env=env, key_variable="LITELLM_KEY")
    assert key_of(provider) == "lite-4711"
    assert endpoint_of(provider).key_variable == "LITELLM_KEY"


@pytest.mark.parametrize(
    ("name", "package"), [("openai:m", "openai"), ("responses:m", "openai"), ("anthropic:m", "anthropic")]
)
@pytest.mark.parametrize("env", [KEYS, {}])
async def test_a_missing_package_is_named_with_its_extra_before_a_missing_key(
    name: str, package: str, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        ProviderError, match=rf"`{package}` is not installed \(install it: .* 'dragoman\[{package}\]'\)"
    ):
        await open_provider(name, env=env)


async def test_a_local_server_is_asked_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not-for-you-4711")
    async with ModelApi([{"text": "ok"}], models=["some-embedder", "qwen"]) as server:
        provider = await open_provider("local", base_url=server.base_url("openai"))
        events = [
            event async for event in provider.stream(ModelRequest(messages=[Message(role="user", text="x")]))
        ]
        await provider.aclose()
    assert isinstance(events[-1], Answered)
    assert (provider.model, provider.api) == ("qwen", "openai")
    assert "4711" not in str(server.requests[0].headers)


async def test_a_local_model_may_be_named_and_a_server_without_any_is_refused() -> None:
    async with ModelApi(models=["qwen"]) as server:
        assert (await open_provider("local:other", base_url=server.base_url("openai"))).model == "other"
    async with ModelApi(models=[]) as server:
        with pytest.raises(ProviderError, match="has no model"):
            await open_provider("ollama", base_url=server.base_url("openai"))


async def test_no_local_server_is_an_error_that_says_where_it_was_looked_for() -> None:
    with pytest.raises(ProviderError, match=r"no local model server answers \(tried `http://127.0.0.1:1/v1`"):
        await open_provider("local", base_url="http://127.0.0.1:1/v1")


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("http://127.0.0.1:11434/v1", True),
        ("http://127.9.9.9", True),
        ("http://localhost:1", True),
        ("http://[::1]:8080", True),
        ("http://10.0.0.1", False),
        ("https://localhost.example", False),
        ("http://[bad", False),
        ("", False),
    ],
)
def test_loopback_is_told_by_the_text(url: str, *, loopback: bool) -> None:
    assert is_loopback(url) is loopback


def test_a_secret_is_never_shown() -> None:
    secret = Secret("4711")
    assert secret.reveal() == "4711"
    assert "4711" not in f"{secret} {secret!r} {[secret]}"
    assert not Secret("")
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(secret)


@pytest.mark.parametrize("key", ["sk-a\nX-Other: b", "sk-\x01a", "sk-\u79d8", "sk-\udc80a"])
@pytest.mark.parametrize("name", ["openai", "responses", "anthropic", "gemini", "deepseek"])
async def test_a_key_that_no_header_takes_is_refused_before_it_is_sent(name: str, key: str) -> None:
    with pytest.raises(ProviderAuthError, match="characters") as caught:
        await open_provider(f"{name}:m", key_variable="MY_KEY", env={"MY_KEY": key})
    assert key not in str(caught.value)
    assert "MY_KEY" in str(caught.value)


@pytest.mark.parametrize(
    ("url", "key", "warns"),
    [
        ("http://api.example.com/v1", "o-key-4711", True),
        ("http://8.8.8.8/v1", "o-key-4711", True),
        ("http://[2606:4700::1111]/v1", "o-key-4711", True),
        ("http://api.example.com/v1", "", False),
        ("https://api.example.com/v1", "o-key-4711", False),
        ("http://10.0.0.7:8000/v1", "o-key-4711", False),
        ("http://[::1]:8000/v1", "o-key-4711", False),
        ("http://box:8000/v1", "o-key-4711", False),
    ],
)
async def test_a_key_over_plain_http_is_warned_of(
    url: str, key: str, caplog: pytest.LogCaptureFixture, *, warns: bool
) -> None:
    for name in ("openai", "anthropic", "gemini"):
        caplog.clear()
        await open_provider(f"{name}:m", base_url=url, key_variable="MY_KEY", env={"MY_KEY": key})
        assert ("over plain http" in caplog.text) is warns
        assert "o-key-4711" not in caplog.text
