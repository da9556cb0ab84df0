"""Open a model by a name such as `anthropic:claude-…`: the providers that there are, and `open_provider`.

A provider is one module here with `open_model`, or an installed package with an entry point in the group
`dragoman.providers`: its name is the provider's, its object takes `ProviderOptions` and returns a `Provider`.
"""

from __future__ import annotations

import importlib
import inspect
import os
from typing import TYPE_CHECKING, Any, cast

from dragoman.agent.providers import gemini, openai_chat
from dragoman.agent.providers.azure import KEY as AZURE_KEY
from dragoman.agent.providers.compatible import COMPATIBLE_APIS
from dragoman.agent.providers.local import ANY, LOCAL_SERVERS
from dragoman.agent.providers.options import ProviderOptions
from dragoman.agent.providers.request import ProviderError, shown
from dragoman.agent.providers.window import LEAST_WINDOW
from dragoman.suggest import suggest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from importlib.metadata import EntryPoint
    from typing import TypeAlias

    from dragoman.agent.messages import Provider

    Opener: TypeAlias = Callable[[ProviderOptions], Awaitable[Provider] | Provider]

GROUP = "dragoman.providers"
"""The group of entry points for providers of other packages."""
PROVIDERS = {
    "openai": "openai_chat",
    "responses": "openai_responses",
    "anthropic": "anthropic",
    "gemini": "gemini",
    "azure": "azure",
    **dict.fromkeys(COMPATIBLE_APIS, "compatible"),
    **dict.fromkeys((ANY, *LOCAL_SERVERS), "local"),
    "any-llm": "any_llm",
}
"""The module of each; those of other packages cannot take their names."""
VARIABLES = {
    "openai": openai_chat.KEY,
    "responses": openai_chat.KEY,
    "anthropic": "ANTHROPIC_API_KEY",
    "gemini": gemini.KEYS[0],
    "azure": AZURE_KEY,
    **{name: api.key for name, api in COMPATIBLE_APIS.items()},
}
"""The variables of their keys."""


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
        name: The provider and its model, as `openai:MODEL`, `anthropic:MODEL`, `deepseek:MODEL`;
            `local` or `local:MODEL` for the first local server that answers. docs/agent.md has all.
        model: The model, instead of the second half of the name.
        base_url: Another server with the same API. A key from the environment is sent there, a key from the
            keyring is not; so never take this address from a project's files without asking.
        env: The environment; that of this process unless given.
        key_variable: The variable with the key; the API's usual one unless given.
        num_ctx: The window that Ollama loads the model with; as large as each request needs unless given.
        think: Whether the model thinks before it answers, or how much: `low`, `medium` or `high`.
        extra: Extra fields for the body of every request.
        **how: More fields of the endpoint: timeouts, retry policy.

    Raises:
        ProviderError: The name, the model, the package, the key or the local server is missing.
    """
    if num_ctx is not None and num_ctx < LEAST_WINDOW:
        msg = f"a window of {num_ctx} tokens is too small"
        raise ProviderError(msg, hint=f"`num_ctx` is {LEAST_WINDOW} or more")
    kind, _, named = name.partition(":")
    options = ProviderOptions(
        name=kind,
        model=model or named,
        env=os.environ if env is None else env,
        base_url=base_url,
        key_variable=key_variable,
        num_ctx=num_ctx,
        think=think,
        extra=extra or {},
        how=how,
    )
    opening = _find(kind)(options)
    return await opening if inspect.isawaitable(opening) else opening


def _find(name: str) -> Opener:
    """Return what opens the models of a provider.

    Raises:
        ProviderError: There is no provider of this name, or its package cannot be imported.
    """
    if name in PROVIDERS:
        return importlib.import_module(f"dragoman.agent.providers.{PROVIDERS[name]}").open_model
    others = installed_providers()
    if name not in others:
        known = [*PROVIDERS, *others]
        similar = suggest(name, known, count=1)
        guess = f"did you mean `{similar[0]}`? " if similar else ""
        msg = f"unknown model API `{name}`"
        listed = ", ".join(f"`{one}`" for one in known)
        raise ProviderError(msg, hint=f"{guess}use one of {listed}, followed by a colon and the model")
    entry = others[name]
    try:
        found: object = entry.load()
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- the code of another package
        # It may quote what it has read, such as the environment.
        why = shown(f"{type(error).__name__}: {error}")
        msg = f"the provider `{name}` of `{entry.value}` cannot be imported: {why}"
    else:
        if callable(found):
            return cast("Opener", found)
        msg = f"the provider `{name}` of `{entry.value}` cannot be called"
    raise ProviderError(msg, provider=name, hint="update its package, or use another provider")


def installed_providers() -> dict[str, EntryPoint]:
    """Return the providers of other packages, by name."""
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in PROVIDERS}
