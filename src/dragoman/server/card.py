"""Server cards (SEP-2127): what a server says about itself at `<its URL>/server-card`, before any connection.

A card is a hint for people: it names a server in `dragoman add`, and says what it needs in a diagnosis. It
decides nothing, and what a connection says wins. It is fetched without credentials, only from the server's
own origin, by the rules of `oauth/safe_fetch.py`; its texts are untrusted.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, cast

from dragoman.server.oauth.safe_fetch import Fetcher, FetchError, ForbiddenTargetError, parse, written_reach
from dragoman.struct import Struct
from dragoman.trust.sanitizing import for_log

if TYPE_CHECKING:
    from collections.abc import Iterator

MEDIA_TYPES = ("application/mcp-server-card+json", "application/json")
SECONDS = 3.0
MAX_BYTES = 64 * 1024
MAX_TEXT = 200
MAX_HEADERS = 5


class ServerCard(Struct):
    """What a server says about itself; every text is one safe line."""

    title: str = ""
    description: str = ""
    version: str = ""
    headers: tuple[str, ...] = ()
    """The names of the HTTP headers that it needs."""

    def __str__(self) -> str:
        named = " ".join(one for one in (self.title, self.version) if one)
        return ": ".join(one for one in (named, self.description) if one)

    @property
    def needs(self) -> str:
        """What it needs, in words; empty if nothing is known."""
        return (
            f"it needs the header {' and '.join(f'`{name}`' for name in self.headers)}"
            if self.headers
            else ""
        )


async def fetch_card(url: str, server: str) -> ServerCard | None:
    """Return the card of a server with a URL; `None` if there is none that can be used.

    Args:
        url: The server's URL; of its parts, only origin and path are used.
        server: Its name, for errors.
    """
    try:
        own = parse(url)
        at = own.with_path(f"{own.raw_path.rstrip('/')}/server-card", encoded=True).with_query(None)
        fetcher = Fetcher(server, own=written_reach(url))
        async with asyncio.timeout(SECONDS):
            found = await fetcher.fetch("GET", str(at), headers={"Accept": ", ".join(MEDIA_TYPES)})
    except (ForbiddenTargetError, FetchError, TimeoutError, ValueError):
        return None
    kind = found.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    # A redirect is not followed: the card is the server's own, or none.
    if found.status != 200 or kind not in MEDIA_TYPES or len(found.body) > MAX_BYTES:
        return None
    return read_card(found.body)


def read_card(body: bytes) -> ServerCard | None:
    """Return the card in a response; `None` if it is not one."""
    try:
        raw: object = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(raw, dict):
        return None
    fields = cast("dict[str, Any]", raw)
    card = ServerCard(
        title=_text(fields.get("title")) or _text(fields.get("name")),
        description=_text(fields.get("description")),
        version=_text(fields.get("version")),
        headers=tuple(dict.fromkeys(_needed_headers(fields)))[:MAX_HEADERS],
    )
    return card if card.title else None


def _needed_headers(fields: dict[str, Any]) -> Iterator[str]:
    for remote in _entries(fields.get("remotes")):
        for header in _entries(remote.get("headers")):
            if header.get("isRequired") is True and (name := _text(header.get("name"))):
                yield name


def _entries(value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        for entry in cast("list[object]", value):
            if isinstance(entry, dict):
                yield cast("dict[str, Any]", entry)


def _text(value: object) -> str:
    return for_log(value, MAX_TEXT).strip() if isinstance(value, str) else ""
