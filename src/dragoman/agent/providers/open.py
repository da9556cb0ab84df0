"""Open a provider by a name such as `anthropic:claude-…`: local servers, API keys, `open_provider`."""

from __future__ import annotations

import asyncio
import importlib
import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, cast

from dragoman.agent.providers import anthropic, openai_chat
from dragoman.agent.providers.anthropic import AnthropicProvider
from dragoman.agent.providers.ollama import OllamaEndpoint, OllamaProvider
from dragoman.agent.providers.openai_chat import ChatProvider
from dragoman.agent.providers.openai_responses import ResponsesProvider
from dragoman.agent.providers.request import (
    ModelEndpoint,
    ProviderAuthError,
    ProviderError,
    is_loopback,
    require_sdk,
)
from dragoman.agent.providers.window import LEAST_WINDOW, fetch
from dragoman.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import aiohttp

    from dragoman.agent.messages import Provider

LOCAL_SERVERS = {
    "ollama": "http://127.0.0.1:11434/v1",
    "llamacpp": "http://127.0.0.1:8080/v1",
    "lmstudio": "http://127.0.0.1:1234/v1",
}
"""Their default addresses, in order of preference."""
TIMEOUT = 1.0
"""Seconds; a server on the same machine lists its models in a few milliseconds."""


class LocalServer(Struct, kw_only=True):
    """A local server that answered."""

    base_url: str
    models: Sequence[str]
    """Chat models, judged by their names; may be empty."""
    is_ollama: bool = False
    """Whether it has Ollama's own API too."""


async def find_local(
    base_urls: Iterable[str] = tuple(LOCAL_SERVERS.values()), *, timeout: float = TIMEOUT
) -> LocalServer | None:
    """Query all addresses at once; return the first server with a model, or any server that answers."""
    import aiohttp

    options: dict[str, Any] = {"timeout": aiohttp.ClientTimeout(total=timeout), "trust_env": False}
    async with aiohttp.ClientSession(**options) as session:
        answers = await asyncio.gather(*(_models(session, url.rstrip("/")) for url in base_urls))
        servers = [server for server in answers if server is not None]
        found = next((server for server in servers if server.models), servers[0] if servers else None)
        if found is None:
            return None
        version = await fetch(session, f"{found.base_url.removesuffix('/v1')}/api/version")
    return found.replace(is_ollama="version" in version)


async def _models(session: aiohttp.ClientSession, base_url: str) -> LocalServer | None:
    entries: object = (await fetch(session, f"{base_url}/models")).get("data")
    if not isinstance(entries, list):
        return None
    names = [
        name
        for entry in cast("list[object]", entries)
        if isinstance(entry, dict) and isinstance(name := cast("dict[str, object]", entry).get("id"), str)
    ]
    return LocalServer(base_url=base_url, models=[name for name in names if "embed" not in name.lower()])


VARIABLES = {"openai": "OPENAI_API_KEY", "responses": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
KEYRING_SERVICE = "dragoman"


class Secret:
    """A text that is not shown by `repr`, logs or pickling; only `reveal` returns it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text, to send it."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __repr__(self) -> str:
        return "Secret(•••)"

    def __reduce__(self) -> str | tuple[Any, ...]:
        msg = "a secret cannot be pickled"
        raise TypeError(msg)


async def find_key(variable: str, env: Mapping[str, str], *, keyring: bool = True) -> Secret | None:
    """Look for a key in the environment, then in the keyring under `dragoman` and the variable's name."""
    value = env.get(variable, "").strip()
    if value:
        return Secret(value)
    if not keyring or find_spec("keyring") is None:
        return None
    # The keyring may block: it may ask the user to unlock it.
    found = await asyncio.to_thread(_from_keyring, variable)
    return Secret(found.strip()) if found and found.strip() else None


def _from_keyring(variable: str) -> str | None:
    keyring = importlib.import_module("keyring")
    errors = importlib.import_module("keyring.errors")
    try:
        return keyring.get_password(KEYRING_SERVICE, variable)
    except errors.KeyringError:
        # Locked or missing. The caller's error says where keys are looked for.
        return None


_BASES = {
    "openai": ("OPENAI_BASE_URL", openai_chat.BASE_URL),
    "responses": ("OPENAI_BASE_URL", openai_chat.BASE_URL),
    "anthropic": ("ANTHROPIC_BASE_URL", anthropic.BASE_URL),
}
NAMES = (*_BASES, "local", *LOCAL_SERVERS)


async def open_provider(
    name: str,
    *,
    model: str | None = None,
    # Where
    base_url: str | None = None,
    env: Mapping[str, str] | None = None,
    key_variable: str | None = None,
    # How
    num_ctx: int | None = None,
    think: bool | str | None = None,
    extra: Mapping[str, Any] | None = None,
    **how: Any,
) -> Provider:
    """Open a model by name; nothing is sent yet, except to find a local server.

    Args:
        name: `openai:MODEL` (Chat Completions), `responses:MODEL`, `anthropic:MODEL`; `local` or
            `local:MODEL` for the first local server that answers; `ollama`, `llamacpp`, `lmstudio` for one.
        model: The model, instead of the second half of the name.
        base_url: Another server with the same API. A key from the environment is sent there, a key from the
            keyring is not; so never take this address from a project's files without asking.
        env: The environment; that of this process unless given.
        key_variable: The variable with the key; the API's usual one unless given.
        num_ctx: The window that Ollama loads the model with; as large as each request needs unless given.
        think: Whether the model thinks before it answers, or how much: `low`, `medium` or `high`.
        extra: Extra fields for the body of every request.
        **how: More fields of `Endpoint`: timeouts, retry policy.

    Raises:
        ProviderError: The name, the model, the package, the key or the local server is missing.
    """
    env = os.environ if env is None else env
    if num_ctx is not None and num_ctx < LEAST_WINDOW:
        msg = f"a window of {num_ctx} tokens is too small"
        raise ProviderError(msg, hint=f"`num_ctx` is {LEAST_WINDOW} or more")
    kind, _, named = name.partition(":")
    model = model or named
    if kind == "local" or kind in LOCAL_SERVERS:
        options: dict[str, Any] = {"num_ctx": num_ctx, "think": think, "extra": extra}
        return await _open_local(kind, model=model, base_url=base_url, env=env, how=how, **options)
    if kind not in _BASES:
        known = ", ".join(f"`{known}`" for known in NAMES)
        msg = f"unknown model API `{kind}`"
        raise ProviderError(msg, hint=f"use one of {known}, followed by a colon and the model")
    api = cast("Literal['openai', 'responses', 'anthropic']", kind)
    if not model:
        msg = f"`{name}` names no model"
        raise ProviderError(msg, provider=api, hint=f"use `{api}:` followed by the model's name")
    require_sdk("anthropic" if api == "anthropic" else "openai")
    variable = key_variable or VARIABLES[api]
    base_variable, own = _BASES[api]
    base_url = base_url or env.get(base_variable, "").strip() or own
    endpoint = ModelEndpoint(
        provider=api,
        base_url=base_url,
        key=await _key(api, variable, env=env, own=base_url == own),
        key_variable=variable,
        **how,
    )
    return _provider(model, endpoint=endpoint, extra={**_thinking(api, think), **(extra or {})})


def _thinking(api: str, think: bool | str | None) -> dict[str, Any]:  # noqa: FBT001 -- one value of three kinds
    """Return the fields of a request that set how much a model thinks."""
    if think is None:
        return {}
    if isinstance(think, str) and api in {"openai", "responses"}:
        return {"reasoning_effort": think} if api == "openai" else {"reasoning": {"effort": think}}
    if api == "anthropic":
        return {"thinking": {"type": "adaptive" if think else "disabled"}} | (
            {"output_config": {"effort": think}} if isinstance(think, str) else {}
        )
    if api == "local":
        effort = {"reasoning_effort": think} if isinstance(think, str) else {}
        return {"chat_template_kwargs": {"enable_thinking": bool(think)}, **effort}
    msg = f"`{api}` takes no yes or no about thinking"
    raise ProviderError(msg, provider=api, hint="say how much: low, medium or high")


def _provider(model: str, *, endpoint: ModelEndpoint, extra: Mapping[str, Any] | None) -> Provider:
    match endpoint.provider:
        case "openai":
            return ChatProvider(model, endpoint=endpoint, extra=extra)
        case "responses":
            return ResponsesProvider(model, endpoint=endpoint, extra=extra)
        case _:
            return AnthropicProvider(model, endpoint=endpoint, extra=extra)


async def _key(api: str, variable: str, *, env: Mapping[str, str], own: bool) -> Secret | None:
    if not own:
        # Only a key that the user set in the environment is sent to another server.
        return await find_key(variable, env, keyring=False)
    key = await find_key(variable, env)
    if key is None:
        msg = f"no API key for `{api}`"
        hint = f"set `{variable}`, or run `keyring set {KEYRING_SERVICE} {variable}`"
        raise ProviderAuthError(msg, provider=api, hint=hint)
    return key


async def _open_local(
    kind: str,
    *,
    model: str,
    base_url: str | None,
    env: Mapping[str, str],
    num_ctx: int | None,
    think: bool | str | None,
    extra: Mapping[str, Any] | None,
    how: dict[str, Any],
) -> Provider:
    if kind == "ollama" and base_url is None and (host := env.get("OLLAMA_HOST", "").strip()):
        base_url = _ollama_url(host)
    wanted = list(LOCAL_SERVERS.values()) if kind == "local" else [LOCAL_SERVERS[kind]]
    found = await find_local([base_url] if base_url else wanted)
    if found is None or not (model or found.models):
        msg = "no local model server answers" if found is None else f"`{found.base_url}` has no model"
        tried = ", ".join(f"`{url}`" for url in ([base_url] if base_url else wanted))
        raise ProviderError(msg, provider="openai", hint=f"tried {tried}; start one, or load a model")
    model = model or found.models[0]
    # No key is sent to this machine: any program could listen on that port.
    if found.is_ollama:
        root = found.base_url.removesuffix("/v1")
        key = None if is_loopback(root) else await find_key("OLLAMA_API_KEY", env, keyring=False)
        server = OllamaEndpoint(
            provider="ollama", base_url=root, key=key, key_variable="OLLAMA_API_KEY", **how
        )
        return OllamaProvider(model, endpoint=server, num_ctx=num_ctx, think=think, extra=extra)
    require_sdk("openai")
    endpoint = ModelEndpoint(provider="openai", base_url=found.base_url, **how)
    return ChatProvider(model, endpoint=endpoint, extra={**_thinking("local", think), **(extra or {})})


def _ollama_url(host: str) -> str:
    """Return the address of `OLLAMA_HOST`, which may lack the scheme, the port, or be that of a server."""
    url = host if "://" in host else f"http://{host}"
    scheme, _, rest = url.rstrip("/").removesuffix("/v1").partition("://")
    name, colon, port = rest.rpartition(":")
    name, port = (name, port) if colon and port.isdigit() else (rest, "11434" if scheme == "http" else "443")
    return f"{scheme}://{'127.0.0.1' if name in {'0.0.0.0', ''} else name}:{port}/v1"  # noqa: S104 -- what a server listens on
