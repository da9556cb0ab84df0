"""Whole screens, as text, in a small and in a large terminal: compared with what is kept beside this file.

Time is that of an `InstantClock`, so that durations are exact. `DRAW_SCREENS=1` writes the screens again.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit.cli.dashboard.driving import LARGE, SMALL, seated

from dragoman.observe.call_log import CallLog
from dragoman.testing import InstantClock, ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.unit.cli.dashboard.driving import Seat

    from dragoman.manager.manager import McpManager

KEPT = Path(__file__).with_name("screens")
DRAW = os.environ.get("DRAW_SCREENS") == "1"
BEGAN = 1_790_000_000.0


def law() -> ScriptedServer:
    server = ScriptedServer(
        "law",
        resources={"law://deposit": "A deposit is two months' rent."},
        prompts={"explain": "Explain {topic}."},
    )

    @server.tool
    async def search(text: str, limit: int = 10) -> str:
        """Search the law.

        Args:
            text: What to look for.
            limit: How many articles at most.
        """
        await asyncio.sleep(0.02 * limit)
        if text == "nothing":
            raise LookupError("no article says nothing")
        return f"3 articles about {text}"

    return server


def broken() -> ScriptedServer:
    def refuse() -> None:
        raise RuntimeError("the licence has run out")

    return ScriptedServer("archive", on_connect=refuse)


def write_log(path: Path) -> None:
    """Write calls of another program, with durations of their own."""
    failed = "no article says nothing"
    for number, arguments, duration, text, code in (
        (1, {"text": "two months' rent", "limit": 3}, 0.25, "3 articles", ""),
        (2, {"text": "nothing", "api_key": "sk-1234567890abcdef1234"}, 1.5, failed, "tool.failed"),
        (3, {"text": "土地"}, 0.0123, "1 article\n土地管理法", ""),
    ):
        log = CallLog(path, clock=lambda at=BEGAN + 61 * number: at)
        log.note(
            server="law",
            tool="mcp_law_search",
            call_id=f"a-{number}",
            arguments=arguments,
            duration=duration,
            text=text,
            code=code,
        )
        log.close()


async def make_calls(mcp: McpManager) -> None:
    # No duration lies on the border of two bars of the sparkline: there, the last bit of a sum would decide.
    await mcp.wait_ready()
    for limit in (4, 1, 12, 5, 10):
        await mcp.call("mcp_law_search", {"text": "rent", "limit": limit})
    await mcp.call("mcp_law_search", {"text": "nothing", "limit": 2})


async def offers(seat: Seat) -> None:
    await seat.sees("explain")


async def calls(seat: Seat) -> None:
    await seat.press("2")
    await seat.sees("土地管理法")
    await seat.press("up")
    await seat.sees("no article says nothing")


async def form(seat: Seat) -> None:
    await seat.press("enter", "enter")
    await seat.sees("call mcp_law_search")


async def trouble(seat: Seat) -> None:
    await seat.press("down")
    await seat.sees("the licence has run out")


SCREENS: dict[str, Callable[[Seat], Awaitable[None]]] = {
    "offers": offers,
    "calls": calls,
    "form": form,
    "trouble": trouble,
}


@pytest.mark.parametrize(
    ("name", "size"),
    [(name, size) for name in SCREENS for size in (SMALL, LARGE)],
    ids=lambda value: value if isinstance(value, str) else "x".join(map(str, value)),
)
def test_the_screen_is_the_kept_one(name: str, size: tuple[int, int], tmp_path: Path) -> None:
    log = tmp_path / "calls.sqlite3"
    write_log(log)

    async def show() -> str:
        specs = [law().spec(), broken().spec(reconnect=False)]
        async with seated(specs, size=size, history=log, before=make_calls) as seat:
            await SCREENS[name](seat)
            await seat.app.next_drawing()
            await seat.pilot.pause()
            while "q Quit" not in seat.text:
                # Textual draws a dialog before the screen under it; the footer is drawn last.
                await seat.app.next_drawing()
                await seat.pilot.pause()
            return "\n".join(seat.lines) + "\n"

    shown = InstantClock().run(show())
    file = KEPT / f"{name}-{size[0]}x{size[1]}.txt"
    if DRAW:
        file.parent.mkdir(exist_ok=True)
        file.write_text(shown, "utf-8")
    assert shown == file.read_text("utf-8")
