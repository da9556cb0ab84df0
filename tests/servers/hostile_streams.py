"""More ways to misbehave for `FaultServer`: floods, packed streams, odd ids, odd addresses, absurd headers.

Importing it names the paths; their calls are answered with `ok` in the end, where they are answered at all.
"""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

from tests.servers.http_faults import (
    MODES,
    Exchange,
    event,
    fixed,
    last_call,
    legacy,
    mode,
    note,
    resumable,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

FLOOD = 3000
"""How many requests of the server's come at once."""
COMMENTS = 20_000
NOTES = 20_000

ABSURD_DATES = (
    "Fri, 31 Dec 99999999999999999999 23:59:59 GMT",
    "Fri, 31 Dec 2030 23:59:59 +" + "9" * 30,
    "31 Dec 2030 " + "9" * 30 + ":00:00 GMT",
)
"""Dates with numbers that no machine word holds."""

for number, date in enumerate(ABSURD_DATES):
    fixed(f"429-absurd-{number}", 429, b"slow down", "text/plain", Retry_After=date)
fixed("redirect-empty", 307, b"", "", Location="")
fixed("redirect-missing", 308, b"", "")
fixed("redirect-control", 307, b"", "", Location="/fine\x01")


def pings() -> Iterator[bytes]:
    for number in range(FLOOD):
        ping = json.dumps({"jsonrpc": "2.0", "id": f"p{number}", "method": "ping"})
        yield event(ping.encode(), kind="message")


@whole("ping-flood")
async def ping_flood(exchange: Exchange) -> bool:
    """Asks thousands of things on the stream of one call, and takes no answer."""
    if exchange.request.message and not exchange.request.rpc_method:
        await exchange.until_closed()
        return True
    if not exchange.is_call:
        return False
    await exchange.events(*pings(), event(exchange.result()))
    return True


legacy("legacy-flood", "/legacy-flood-post")


@whole("legacy-flood-post")
async def legacy_flood_post(exchange: Exchange) -> bool:
    """Does the same on the stream of the legacy transport."""
    if not exchange.request.rpc_method:
        await exchange.until_closed()
        return True
    if exchange.is_call:
        for stream in exchange.server.streams:
            stream.writelines(pings())
            await stream.drain()
    return await MODES["legacy-whole-post"](exchange) is not False


@mode("packed-notes")
async def packed_notes(exchange: Exchange) -> None:
    """Packs thousands of messages into a few kilobytes."""
    told = event(note("notifications/message", level="info", data="x")) * NOTES
    body = gzip.compress(told + event(exchange.result()))
    await exchange.answer(200, body, "text/event-stream", Content_Encoding="gzip")


@mode("comments")
async def comments(exchange: Exchange) -> None:
    """Says for long only that it is still there."""
    await exchange.events(b": still at work, please wait\n\n" * COMMENTS, event(exchange.result()))


async def finish(exchange: Exchange, _attempt: int) -> None:
    await exchange.events(event(exchange.result("ok", last_call(exchange))))


async def send_away(exchange: Exchange, _attempt: int) -> None:
    await exchange.answer(307, b"", "", Location=exchange.server.elsewhere)


resumable("resume-control", b"id: a\x01b\nretry: 0\ndata:\n\n", finish)
resumable("resume-long", b"id: " + b"x" * 100_000 + b"\nretry: 0\ndata:\n\n", finish)
resumable("resume-elsewhere", b"id: e1\nretry: 0\ndata:\n\n", send_away)


@whole("get-control")
async def get_control(exchange: Exchange) -> bool:
    """Drops its stream after each message, whose id no header can bear."""
    if exchange.request.method != "GET":
        return False
    await exchange.events(
        b"id: a\x01b\n" + event(note("notifications/message", level="info", data=1), retry=0)
    )
    return True


@whole("get-404")
async def get_404(exchange: Exchange) -> bool:
    """Has no stream, and says so as many frameworks do."""
    if exchange.request.method != "GET":
        return False
    await exchange.answer(404, b"Cannot GET /mcp", "text/plain")
    return True


@whole("legacy-eager")
async def legacy_eager(exchange: Exchange) -> bool:
    """Asks something before it has said where to answer, and right after."""
    if exchange.request.method != "GET":
        return False
    ping = event(b'{"jsonrpc": "2.0", "id": "early", "method": "ping"}', kind="message")
    await exchange.events(ping + event(b"/legacy-whole-post", kind="endpoint") + ping, ends=False)
    exchange.server.streams.add(exchange.writer)
    await exchange.until_closed()
    return True


legacy("legacy-control", "/legacy-whole-post\x01")
legacy("legacy-long", "/legacy-whole-post?" + "x" * 20_000)


def breaks_at_probe(name: str, status: int, then: str = "") -> None:
    """Name a path that meets a question which it has never heard of with a status."""

    async def run(exchange: Exchange) -> bool:
        if exchange.request.rpc_method == "server/discover":
            await exchange.answer(status, b"KeyError: 'server/discover'", "text/plain")
            return True
        return await MODES[then](exchange) is not False if then else False

    MODES[name] = run


breaks_at_probe("probe-500", 500)
breaks_at_probe("probe-501", 501)
for broken in (400, 500):
    legacy(f"legacy-probe-{broken}", f"/legacy-probe-{broken}-post")
    breaks_at_probe(f"legacy-probe-{broken}-post", broken, "legacy-whole-post")


@whole("probe-reset")
async def probe_reset(exchange: Exchange) -> bool:
    """Breaks the connection at a question that it has never heard of."""
    if exchange.request.rpc_method != "server/discover":
        return False
    exchange.reset()
    return True


@whole("probe-ends")
async def probe_ends(exchange: Exchange) -> bool:
    """Begins to answer that question, and stops."""
    if exchange.request.rpc_method != "server/discover":
        return False
    await exchange.events(b": hello\n\n")
    return True
