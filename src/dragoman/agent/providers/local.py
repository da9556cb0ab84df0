"""Model servers on this machine or its network: Ollama, llama.cpp, LM Studio, vLLM.

The first that answers is taken, unless one is named. Ollama is spoken to by its own API, the others by Chat
Completions. No key is sent to a server that was only found: any program could listen on that port.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from dragoman.agent.providers.http_endpoint import HttpEndpoint
from dragoman.agent.providers.ollama import OllamaProvider
from dragoman.agent.providers.openai_chat import COMPATIBLE, ChatProvider
from dragoman.agent.providers.request import ModelEndpoint, ProviderError, is_loopback, require_sdk
from dragoman.agent.providers.window import fetch
from dragoman.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import aiohttp

    from dragoman.agent.messages import Provider
    from dragoman.agent.providers.options import ProviderOptions

ANY = "local"
LOCAL_SERVERS = {
    "ollama": "http://127.0.0.1:11434/v1",
    "llamacpp": "http://127.0.0.1:8080/v1",
    "lmstudio": "http://127.0.0.1:1234/v1",
    "vllm": "http://127.0.0.1:8000/v1",
}
"""Their default addresses, in order of preference."""
KEYS = {
    "ollama": "OLLAMA_API_KEY",
    "llamacpp": "LLAMA_API_KEY",
    "lmstudio": "LM_API_TOKEN",
    "vllm": "VLLM_API_KEY",
}
"""The variables of their keys, for servers that ask for one."""
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
    base_urls: Iterable[str] = tuple(LOCAL_SERVERS.values()), *, timeout: float = TIMEOUT, key: str = ""
) -> LocalServer | None:
    """Query all addresses at once; return the first server with a model, or any server that answers."""
    import aiohttp

    options: dict[str, Any] = {"timeout": aiohttp.ClientTimeout(total=timeout), "trust_env": False}
    if key:
        options["headers"] = {"Authorization": f"Bearer {key}"}
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


async def open_model(options: ProviderOptions) -> Provider:
    """Open a model of the first server that answers, or of the named one.

    Raises:
        ProviderError: No server answers, or it has no model.
    """
    kind, wanted = options.name, list(LOCAL_SERVERS.values())
    base_url, key = options.base_url, None
    variable = options.key_variable or KEYS.get(kind, "")
    if kind != ANY:
        wanted = [LOCAL_SERVERS[kind]]
        host = options.env.get(f"{kind.upper()}_BASE_URL", "").strip()
        if not base_url and kind == "ollama" and (given := options.env.get("OLLAMA_HOST", "").strip()):
            host = _ollama_url(given)
        base_url = base_url or host
        if kind != "ollama" or not is_loopback(base_url or wanted[0]):
            key = await options.key(variable, is_required=False)
    found = await find_local([base_url] if base_url else wanted, key=key.reveal() if key else "")
    if found is None or not (options.model or found.models):
        msg = "no local model server answers" if found is None else f"`{found.base_url}` has no model"
        tried = ", ".join(f"`{url}`" for url in ([base_url] if base_url else wanted))
        raise ProviderError(msg, provider=kind, hint=f"tried {tried}; start one, or load a model")
    model = options.model or found.models[0]
    about: dict[str, Any] = {"key": key, "key_variable": variable, **options.how}
    if found.is_ollama:
        server = HttpEndpoint(provider="ollama", base_url=found.base_url.removesuffix("/v1"), **about)
        return OllamaProvider(
            model,
            endpoint=server,
            num_ctx=options.num_ctx,
            think=options.think,
            extra=options.extra,
        )
    require_sdk("openai")
    thinking: dict[str, Any] = {}
    if options.think is not None:
        thinking = {"chat_template_kwargs": {"enable_thinking": bool(options.think)}}
    if isinstance(options.think, str):
        thinking["reasoning_effort"] = options.think
    endpoint = ModelEndpoint(provider=kind, base_url=found.base_url, **about)
    return ChatProvider(model, endpoint=endpoint, extra={**thinking, **options.extra}, rules=COMPATIBLE)


def _ollama_url(host: str) -> str:
    """Return the address of `OLLAMA_HOST`, which may lack the scheme, the port, or be that of a server."""
    url = host if "://" in host else f"http://{host}"
    scheme, _, rest = url.rstrip("/").removesuffix("/v1").partition("://")
    name, colon, port = rest.rpartition(":")
    name, port = (name, port) if colon and port.isdigit() else (rest, "11434" if scheme == "http" else "443")
    return f"{scheme}://{'127.0.0.1' if name in {'0.0.0.0', ''} else name}:{port}/v1"  # noqa: S104 -- what a server listens on
