"""From a name such as `anthropic:claude-…` to a model that can be asked."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, cast

from dragoman.agent.local import LOCAL_SERVERS, find_local
from dragoman.agent.providers import anthropic, openai_chat
from dragoman.agent.providers.anthropic import AnthropicProvider
from dragoman.agent.providers.asking import Endpoint, require_sdk
from dragoman.agent.providers.failures import ProviderAuthError, ProviderError
from dragoman.agent.providers.keys import KEYRING_SERVICE, VARIABLES, find_key
from dragoman.agent.providers.openai_chat import ChatProvider
from dragoman.agent.providers.openai_responses import ResponsesProvider

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.agent.messages import Provider
    from dragoman.agent.providers.keys import Secret

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
    extra: Mapping[str, Any] | None = None,
    **how: Any,
) -> Provider:
    """Make a model that can be asked; nothing is sent yet, except to find a local server.

    Args:
        name: `openai:MODEL` (Chat Completions), `responses:MODEL`, `anthropic:MODEL`; `local` or
            `local:MODEL` for the first local server that answers; `ollama`, `llamacpp`, `lmstudio` for one.
        model: The model, in place of the name's second half.
        base_url: Another server of the same API. The key from the environment is sent there if there is one,
            that of the keyring is not; so it must not come from a project's files unasked.
        env: In place of this process's environment.
        key_variable: Which variable holds the key, in place of the API's usual one.
        extra: Fields for the body of every request, as the API names them.
        **how: Further fields of `Endpoint`: timeouts, retry policy.

    Raises:
        ProviderError: The name, the model, the package, the key or the local server is missing.
    """
    env = os.environ if env is None else env
    kind, _, named = name.partition(":")
    model = model or named
    if kind == "local" or kind in LOCAL_SERVERS:
        return await _open_local(kind, model=model, base_url=base_url, extra=extra, how=how)
    if kind not in _BASES:
        known = ", ".join(f"`{known}`" for known in NAMES)
        msg = f"there is no model API `{kind}`"
        raise ProviderError(msg, hint=f"write one of {known}, a colon, and the model")
    api = cast("Literal['openai', 'responses', 'anthropic']", kind)
    if not model:
        msg = f"`{name}` does not say which model"
        raise ProviderError(msg, provider=api, hint=f"write `{api}:` and the model's name")
    require_sdk("anthropic" if api == "anthropic" else "openai")
    variable = key_variable or VARIABLES[api]
    base_variable, own = _BASES[api]
    base_url = base_url or env.get(base_variable, "").strip() or own
    endpoint = Endpoint(
        provider=api,
        base_url=base_url,
        key=await _key(api, variable, env=env, own=base_url == own),
        key_variable=variable,
        **how,
    )
    return _provider(model, endpoint=endpoint, extra=extra)


def _provider(model: str, *, endpoint: Endpoint, extra: Mapping[str, Any] | None) -> Provider:
    match endpoint.provider:
        case "openai":
            return ChatProvider(model, endpoint=endpoint, extra=extra)
        case "responses":
            return ResponsesProvider(model, endpoint=endpoint, extra=extra)
        case "anthropic":
            return AnthropicProvider(model, endpoint=endpoint, extra=extra)


async def _key(api: str, variable: str, *, env: Mapping[str, str], own: bool) -> Secret | None:
    if not own:
        # Another server needs a key or does not; only what the user's environment says is sent there.
        return await find_key(variable, env, keyring=False)
    key = await find_key(variable, env)
    if key is None:
        msg = f"there is no key for `{api}`"
        hint = f"set `{variable}`, or run `keyring set {KEYRING_SERVICE} {variable}`"
        raise ProviderAuthError(msg, provider=api, hint=hint)
    return key


async def _open_local(
    kind: str,
    *,
    model: str,
    base_url: str | None,
    extra: Mapping[str, Any] | None,
    how: dict[str, Any],
) -> Provider:
    wanted = list(LOCAL_SERVERS.values()) if kind == "local" else [LOCAL_SERVERS[kind]]
    found = await find_local([base_url] if base_url else wanted)
    if found is None or not (model or found.models):
        msg = "no local model server answers" if found is None else f"`{found.base_url}` has no model"
        tried = ", ".join(f"`{url}`" for url in ([base_url] if base_url else wanted))
        raise ProviderError(msg, provider="openai", hint=f"tried {tried}; start one, or load a model")
    require_sdk("openai")
    # No key: whatever listens on a port of this machine has not earned one.
    endpoint = Endpoint(provider="openai", base_url=found.base_url, **how)
    return ChatProvider(model or found.models[0], endpoint=endpoint, extra=extra)
