"""Planted secrets and control characters: none of them comes out anywhere."""

from __future__ import annotations

import json
import logging
import random
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.behaviour.canaries import Garden, Seen, live
from tests.behaviour.turning import SERVER, Turncoat

from dragoman import McpManager, ServerSpec, Stdio
from dragoman.tools.export.apis import APIS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

NASTY = "a\x1b[31mb\x1b]0;t\x07c\x00d\re\x08f\x7fg\x9bh\u202ei\u200bj\U000e0041k\u2066l\nm"
"""Escape sequences, controls, bidi, zero-width and tag characters."""
RAW = {letter for letter in NASTY if not letter.isalnum() and letter not in "[];\n"}


async def test_no_planted_secret_is_seen_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    garden = Garden(random.Random(7))
    with anyio.fail_after(55):
        await live(garden, tmp_path, monkeypatch, "500 No")
    assert len(garden.secrets) >= 50
    assert len(garden.outputs) > 200
    assert garden.found()[:5] == []


def poisoned(value: Any, nasty: str) -> Any:
    """Put a text into every text of a value, but for names that are needed."""
    if isinstance(value, dict):
        return {key: value[key] if key in ("name", "type") else poisoned(value[key], nasty) for key in value}
    if isinstance(value, list):
        return [poisoned(item, nasty) for item in value]
    return f"{value}{nasty}" if isinstance(value, str) else value


async def nasty_logs(folder: Path, nasty: str) -> tuple[list[str], list[Any]]:
    """Let every text of a server be nasty; return what was logged, and what models get to read."""
    coat = Turncoat(folder)
    coat.offer = poisoned(coat.offer, nasty)
    named = {"name": f"t{nasty}", "description": nasty, "inputSchema": {"type": "object", "required": nasty}}
    twice = {"name": f"u{nasty}", "inputSchema": {"type": "object"}}
    coat.offer["tools"] += [named, twice, twice]
    coat.change(
        lambda offer: offer.update(leaks=nasty, info={"name": f"coat{nasty}", "version": f"1{nasty}"})
    )
    dead = Turncoat(folder, "dead")
    dead.change(lambda offer: offer.update(leaks=nasty, refuses=True))
    broken = Stdio(
        sys.executable, ["-c", f"import sys; sys.stderr.write({nasty!r}); print({nasty!r}); sys.exit(3)"]
    )
    seen = Seen()
    logger = logging.getLogger("dragoman")
    logger.addHandler(seen)
    before = logger.level
    logger.setLevel(logging.DEBUG)
    exports: list[Any] = []
    try:
        async with McpManager([coat.spec, dead.spec, ServerSpec("broken", broken, reconnect=False)]) as mcp:
            await mcp.wait_ready()
            for tool in [*mcp.tools()]:
                await mcp.call(tool.name, {"path": nasty})
                await mcp.call(f"{tool.name}{nasty}", {nasty: nasty})
            exports += [mcp.registry.export(api).tools for api in APIS]
            exports.append(mcp.instructions())
            exports += [(s.server_name, s.server_version) for s in mcp.status().values()]
            coat.change(lambda offer: offer["tools"][0].update(description=f"other {nasty}", title=nasty))
            await mcp.restart("coat")
            await mcp.prompts()
    finally:
        logger.removeHandler(seen)
        logger.setLevel(before)
    return seen.lines, exports


async def test_no_control_character_reaches_a_log_or_a_description(tmp_path: Path) -> None:
    with anyio.fail_after(40):
        lines, exports = await nasty_logs(tmp_path, NASTY)
    assert len(lines) > 10
    for line in lines:
        # A traceback has lines of its own.
        assert not RAW & set(line), ascii(line)
    for text in texts(exports):
        assert not RAW & set(text), ascii(text)
    assert SERVER.exists()


def texts(value: Any, key: str = "") -> list[str]:
    """Return the texts of an export that explain something; names and values are what they are."""
    if isinstance(value, dict):
        return [text for name, item in value.items() for text in texts(item, str(name))]
    if isinstance(value, list | tuple):
        return [text for item in value for text in texts(item, key)]
    return [value] if isinstance(value, str) and key not in ("enum", "required", "name") else []


def test_the_corpus_is_nasty() -> None:
    assert len(RAW) > 10
    assert json.loads(json.dumps(NASTY)) == NASTY
