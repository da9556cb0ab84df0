"""Find a model server on this machine that speaks Chat Completions: Ollama, llama.cpp, LM Studio.

Only loopback addresses are asked, all at once and for a short time, for their list of models; no key is sent.
Nothing found is an answer too: a session without a model still works as a console for tools.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import aiohttp

LOCAL_SERVERS = {
    "ollama": "http://127.0.0.1:11434/v1",
    "llamacpp": "http://127.0.0.1:8080/v1",
    "lmstudio": "http://127.0.0.1:1234/v1",
}
"""Their usual places, in the order of preference."""
TIMEOUT = 1.0
"""Seconds; a server on the same machine lists its models in a few milliseconds."""
LARGEST_LIST = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalServer:
    """A server that answered."""

    base_url: str
    models: Sequence[str]
    """Those that can chat, as far as their names say; may be empty."""


async def find_local(
    base_urls: Iterable[str] = tuple(LOCAL_SERVERS.values()), *, timeout: float = TIMEOUT
) -> LocalServer | None:
    """Ask all addresses at once; return the first that has a model, in their order, else any that answers."""
    import aiohttp

    options: dict[str, Any] = {"timeout": aiohttp.ClientTimeout(total=timeout), "trust_env": False}
    async with aiohttp.ClientSession(**options) as session:
        answers = await asyncio.gather(*(_models(session, url.rstrip("/")) for url in base_urls))
    found = [server for server in answers if server is not None]
    return next((server for server in found if server.models), found[0] if found else None)


async def _models(session: aiohttp.ClientSession, base_url: str) -> LocalServer | None:
    import aiohttp

    try:
        async with session.get(f"{base_url}/models", allow_redirects=False) as response:
            if response.status != 200:
                return None
            listing: object = json.loads(await response.content.read(LARGEST_LIST))
    except (aiohttp.ClientError, TimeoutError, ValueError, RecursionError):
        return None  # Something else listens there, or nothing does.
    entries: object = cast("dict[str, object]", listing).get("data") if isinstance(listing, dict) else None
    if not isinstance(entries, list):
        return None
    names = [
        name
        for entry in cast("list[object]", entries)
        if isinstance(entry, dict) and isinstance(name := cast("dict[str, object]", entry).get("id"), str)
    ]
    return LocalServer(base_url=base_url, models=[name for name in names if "embed" not in name.lower()])
