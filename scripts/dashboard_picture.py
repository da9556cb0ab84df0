"""Draw the pictures in docs/dashboard.md: the dashboard with the demo servers after real calls, as SVG.

The dashboard runs without a terminal, at a fixed size; its rendered screen becomes the picture.
"""

from __future__ import annotations

import asyncio
import io
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.style import Style
from rich.text import Text
from scripts.picture import ROOT, SVG

from dragoman.cli.commands.demo import CALLS
from dragoman.cli.dashboard.app import Dashboard
from dragoman.demo.launch import demo_servers
from dragoman.manager.manager import McpManager
from dragoman.observe.call_history import CallHistory

if TYPE_CHECKING:
    from textual.pilot import Pilot
    from textual.strip import Strip

SIZES = {"dashboard": (160, 36), "dashboard-light": (80, 24)}
STEP, STEPS = 0.5, 40
"""Seconds between two looks at the screen, and how many looks are taken at most."""


async def main() -> None:
    """Draw and write."""
    for path, svg in (await drawn()).items():
        path.write_text(svg, "utf-8")
        print(f"wrote {path.relative_to(ROOT)}")


async def drawn() -> dict[Path, str]:
    """Connect, call, and return each picture by its file."""
    pictures: dict[Path, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "calls.sqlite3"
        async with demo_servers() as specs, McpManager(specs, cache=False, call_log=log) as mcp:
            await mcp.wait_ready()
            for number, (name, size) in enumerate(SIZES.items(), 1):
                app = Dashboard(mcp, history=CallHistory(log), is_light=name.endswith("light"))
                async with app.run_test(size=size) as pilot:
                    await _settled(pilot, app, name, "2&#160;of&#160;2")
                    for _, tool, arguments in CALLS:
                        await mcp.call(tool, arguments)
                    await pilot.press("down", "2")
                    calls = f"{number * len(CALLS)}&#160;calls"
                    svg = await _settled(pilot, app, name, "dragoman-studio&#160;1.0", calls, "[SAMPLE]")
                    pictures[ROOT / "docs" / "images" / f"{name}.svg"] = svg
    return pictures


async def _settled(pilot: Pilot[None], app: Dashboard, name: str, *texts: str) -> str:
    """Return the picture once it has all texts and does not change any more."""
    before = ""
    for _ in range(STEPS):
        await pilot.pause(STEP)
        now = _drawn(app, name)
        if now == before and all(text in now for text in texts):
            break
        before = now
    return before


def _drawn(app: Dashboard, name: str) -> str:
    console = Console(width=app.size.width + 2, record=True, file=io.StringIO(), force_terminal=True)
    strips: list[Strip] = app.screen._compositor.render_strips()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] -- as Textual's own export does
    for strip in strips:
        text = Text(end="")
        for words, style, _ in strip:
            # Some viewers drop leading spaces of a text element, so write them as a separate element.
            own = style or Style()
            text.append(" " * (len(words) - len(words.lstrip())), own + Style(dim=not own.dim))
            text.append(words.lstrip(), own)
        console.print(text, no_wrap=True, overflow="crop")
    console.print()
    svg = console.export_svg(code_format=SVG, unique_id=name)
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


if __name__ == "__main__":
    asyncio.run(main())
