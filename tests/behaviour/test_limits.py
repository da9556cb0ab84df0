"""Every limit on what a server may send: it holds end to end, can be set, and what it stops names its setting."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import zlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.behaviour.canaries import Seen
from tests.behaviour.turning import Turncoat, read_tool

from dragoman import Http, McpManager, ServerSpec, Stdio
from dragoman.struct import field_names
from dragoman.trust.limits import Limits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    Make = Callable[..., ServerSpec]

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("otter-concurrency")]

DEEP: Any = {"type": "string"}
for _ in range(30):
    DEEP = {"type": "object", "properties": {"a": DEEP}}
WIDE = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(60)}}
LIMITS: dict[str, tuple[float, str]] = {
    "message_bytes": (5_000, "`max_message_bytes` is 5000"),
    "result_bytes": (100, "`limits.result_bytes`"),
    "tools": (3, "`limits.tools`"),
    "pages": (1, "`limits.pages`"),
    "listing_bytes": (100, "`limits.listing_bytes`"),
    "description_chars": (10, "`limits.description_chars`"),
    "instructions_chars": (10, "Read befo…"),
    "name_chars": (5, "`limits.name_chars`"),
    "schema_bytes": (100, "`limits.schema_bytes`"),
    "schema_depth": (20, "`limits.schema_depth`"),
    "schema_nodes": (30, "`limits.schema_nodes`"),
    "calls_per_second": (0.01, "`limits.calls_per_second`"),
    "burst": (1, "`limits.calls_per_second`"),
}
"""Each with a value that is too small, and what is said then; instructions are cut and say so by their end."""


def test_every_limit_is_tried_here() -> None:
    assert set(LIMITS) == set(field_names(Limits))


@pytest.mark.parametrize("setting", LIMITS)
async def test_a_limit_holds_and_what_it_stops_names_the_setting(
    tmp_path: Path, server: Make, setting: str
) -> None:
    amount, words = LIMITS[setting]
    limits: dict[str, Any] = {setting: amount}
    if setting == "burst":
        limits["calls_per_second"] = 0.01
    if setting == "calls_per_second":
        limits["burst"] = 1
    coat = Turncoat(tmp_path)
    if setting == "schema_depth":
        coat.change(lambda offer: read_tool(offer).update(inputSchema=DEEP))
    if setting == "schema_nodes":
        coat.change(lambda offer: read_tool(offer).update(inputSchema=WIDE))
    spec = server("coat", "paging.py", "endless") if setting == "pages" else coat.spec
    with anyio.fail_after(40):
        within = await everything_said(spec.replace(limits={"pages": 3} if setting == "pages" else {}))
        beyond = await everything_said(spec.replace(limits=limits))
    assert words in beyond
    if setting != "pages":
        # An endless listing is beyond any limit.
        assert words not in within


async def everything_said(spec: ServerSpec) -> str:
    """Use a server, and return all that is logged, answered and shown of it."""
    seen = Seen()
    logger = logging.getLogger("dragoman")
    logger.addHandler(seen)
    try:
        async with McpManager([spec], cache=False) as mcp:
            await mcp.wait_ready()
            arguments = {"path": "x" * 9_000}
            calls = [mcp.call(f"mcp_{spec.name}_read", arguments, timeout=10) for _ in range(3)]
            answers = [result.error for result in await asyncio.gather(*calls)]
            changes = [
                change.why for some in mcp.registry.export("anthropic").changes.values() for change in some
            ]
            shown = [mcp.status()[spec.name].last_error, *mcp.instructions().values()]
    finally:
        logger.removeHandler(seen)
    return "\n".join(str(text) for text in (*seen.lines, *answers, *changes, *shown))


async def test_the_pages_that_fit_into_a_listing_are_offered(server: Make) -> None:
    spec = server("coat", "paging.py", "endless").replace(limits={"listing_bytes": 1_000, "pages": 200})
    async with McpManager([spec], cache=False) as mcp:
        await mcp.wait_ready()
        names = [tool.original_name for tool in mcp.registry]
    assert 2 <= len(names) < 20
    assert names[:2] == ["t0", "t1"]


async def test_a_tool_that_fails_with_very_many_words_is_quoted_in_part(tmp_path: Path) -> None:
    secrets = {f"TOKEN_{number}": f"hunter2-{number}-abcdef" for number in range(40)}
    script = tmp_path / "wordy.py"
    script.write_text(WORDY, "utf-8")
    spec = ServerSpec("wordy", Stdio(sys.executable, [str(script)], env=secrets))
    async with McpManager([spec], cache=False) as mcp:
        await mcp.wait_ready()
        result = await mcp.call("mcp_wordy_fail", {})
    assert not result.success
    assert result.text.startswith("it broke")
    assert result.text.endswith("the end \ufffd]52;c;eA==\ufffd")
    assert len(result.text) < 40_000
    assert "hunter2" not in result.text + str(result.exception)
    # Programs get the original.
    assert len(result.parts[0].text) > 15_000_000
    assert result.parts[0].text.endswith("\x1b]52;c;eA==\x07")


WORDY = """
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer = {}
    if asked["method"] == "initialize":
        answer = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "w", "version": "1"}}
    elif asked["method"] == "tools/list":
        answer = {"tools": [{"name": "fail", "inputSchema": {"type": "object"}}]}
    elif asked["method"] == "tools/call":
        text = "it broke " + os.environ["TOKEN_7"] + " x" * 7_500_000 + "the end \\x1b]52;c;eA==\\x07"
        answer = {"isError": True, "content": [{"type": "text", "text": text}]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}), flush=True)
"""


# Bodies that grow when they are unpacked

UNPACKED = 256 * 1024 * 1024
LIMIT = 1024 * 1024


def bomb(kind: str) -> bytes:
    """Pack an answer of a quarter of a gigabyte into some hundred kilobytes."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31 if kind == "gzip" else 15)
    piece = b"0" * 1024 * 1024
    packed = [packer.compress(b'data: {"jsonrpc":"2.0","id":1,"result":{"x":"')]
    packed += [packer.compress(piece) for _ in range(UNPACKED // len(piece))]
    return b"".join([*packed, packer.flush()])


@asynccontextmanager
async def serving(kind: str, content_type: str, status: str) -> AsyncIterator[tuple[str, list[int]]]:
    """Answer every request with a bomb; gives the address, and how much of each was taken."""
    body, taken = bomb(kind), list[int]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Encoding: {kind}\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode())
        taken.append(0)
        try:
            for at in range(0, len(body), 4096):
                writer.write(body[at : at + 4096])
                await writer.drain()
                taken[-1] += 4096
        except ConnectionError:
            pass
        finally:
            writer.close()

    listener = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with listener:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/mcp", taken


@pytest.mark.parametrize("kind", ["gzip", "deflate"])
@pytest.mark.parametrize(
    ("content_type", "status", "words"),
    [
        ("application/json", "200 OK", "the limit `max_message_bytes` is 1048576"),
        ("text/event-stream", "200 OK", "the limit `max_message_bytes` is 1048576"),
        ("application/json", "500 No", "HTTP 500"),
    ],
)
async def test_a_bomb_is_not_unpacked_beyond_the_limit(
    kind: str, content_type: str, status: str, words: str
) -> None:
    with anyio.fail_after(40):
        async with serving(kind, content_type, status) as (url, taken):
            spec = ServerSpec(
                "far", Http(url), protocol="legacy", reconnect=False, limits={"message_bytes": LIMIT}
            )
            async with McpManager([spec], cache=False) as mcp:
                assert not await mcp.wait_ready()
                said = str(mcp.status()["far"].last_error)
    assert words in said
    assert len(said) < 3_000
    assert len(taken) == 1
    # What had been unpacked when it was given up: the limit, and a piece or two.
    for size in re.findall(r"has (\d+) bytes or more", said):
        assert LIMIT < int(size) < 4 * LIMIT
