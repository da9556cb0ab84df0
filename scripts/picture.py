"""Draw the README's picture: run the commands of a first contact in a real terminal, save the screen as SVG.

The home folder is new and holds the configuration of another host, with a misspelt command. The servers are
the real ones that the tests install. Each command runs in a pseudo-terminal; a terminal emulator renders its
output with colours, and the final screen becomes the picture.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import pty
import re
import select
import subprocess
import tempfile
from pathlib import Path

import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "first-contact.svg"
COLUMNS, LINES = 100, 80
GAP = Style(dim=True)
PROMPT = "\x1b[1;32m$\x1b[0m "
SERVERS = {
    "files": {"command": "npxx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "."]},
    "time": {"command": "uvx", "args": ["mcp-server-time"]},
}
"""What Claude Code has; the command of `files` is misspelt."""
COMMANDS = (
    "dragoman import --all --write",
    "dragoman doctor",
    "dragoman set files command=npx",
    "dragoman call files read_text_file path=meeting.md",
    "python agent.py",
)
NOTE = "The call with Shanghai begins at 09:00 their time.\n"
AGENT = """\
import asyncio

from dragoman import AgentEngine, McpManager
from dragoman.agent import Say, ScriptedProvider, ToolFinished

ZONES = {"source_timezone": "Asia/Shanghai", "target_timezone": "Africa/Nairobi"}
MODEL = ScriptedProvider(
    [
        Say(calls=[("mcp_files_read_text_file", {"path": "meeting.md"})]),
        Say(calls=[("mcp_time_convert_time", {"time": "09:00", **ZONES})]),
        "The call is at 04:00 in Nairobi.",
    ]
)


async def main() -> None:
    mcp = McpManager.from_config()
    async with AgentEngine(MODEL, mcp) as agent:
        await mcp.wait_ready(timeout=60)
        async for event in agent.stream("When is the call of meeting.md in Nairobi?"):
            if isinstance(event, ToolFinished):
                print("✓" if event.result.success else "✗", event.tool)
        print(agent.messages[-1].text)


asyncio.run(main())
"""
"""The agent; its model is a script, so that the picture needs no key."""
SVG = """<svg viewBox="0 0 {terminal_width} {terminal_height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
<rect width="{terminal_width}" height="{terminal_height}" rx="8" fill="#1b1d23"/>
<g transform="translate(10, 10)" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g></g></svg>
"""


def main() -> None:
    """Draw and write."""
    PICTURE.write_text(drawn(), "utf-8")
    print(f"wrote {PICTURE.relative_to(ROOT)}")


def drawn() -> str:
    """Run the commands, and return the picture of the screen."""
    screen = pyte.Screen(COLUMNS, LINES)
    with tempfile.TemporaryDirectory() as folder:
        _play(Path(folder), screen)
    console = Console(width=COLUMNS + 2, record=True, file=io.StringIO(), force_terminal=True)
    last = max((row for row in range(LINES) if screen.display[row].strip()), default=0)
    for row in range(last + 1):
        console.print(_line(screen, row), no_wrap=True, overflow="crop")
    console.print()
    svg = console.export_svg(code_format=SVG, unique_id="dragoman")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def _play(folder: Path, screen: pyte.Screen) -> None:
    """Run the commands, each after a prompt, in a folder with a new home."""
    from tests.docs.running import expansion  # The programs that a reader of the pages has.

    home, work = folder / "home", folder / "home" / "work"
    work.mkdir(parents=True)
    (work / "meeting.md").write_text(NOTE, "utf-8")
    (work / "agent.py").write_text(AGENT, "utf-8")
    (home / ".claude.json").write_text(json.dumps({"mcpServers": SERVERS}, indent=2), "utf-8")
    variables = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    variables |= expansion(work, home)
    variables |= {"HOME": str(home), "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": "24"}
    stream = pyte.Stream(screen)
    for number, command in enumerate(COMMANDS):
        gap = "\r\n" if number else ""
        stream.feed(f"{gap}{PROMPT}\x1b[1m{command}\x1b[0m\r\n")
        _run(command, stream, cwd=work, env=variables)


def _run(command: str, stream: pyte.Stream, *, cwd: Path, env: dict[str, str]) -> None:
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        command.split(), stdin=terminal, stdout=terminal, stderr=terminal, cwd=cwd, env=env, close_fds=True
    )
    os.close(terminal)
    try:
        while select.select([controller], [], [], 120)[0]:
            stream.feed(os.read(controller, 65536).decode("utf-8", "replace"))
    except OSError:  # on Linux, reading fails when the program has closed the terminal
        pass
    finally:
        os.close(controller)
        process.wait()


def _line(screen: pyte.Screen, row: int) -> Text:
    text = Text(end="")
    cells = [screen.buffer[row][column] for column in range(COLUMNS)]
    for style, run in itertools.groupby(cells, key=_style):
        words = "".join(cell.data for cell in run)
        # Some viewers drop leading spaces of a text element, so write them as a separate element.
        text.append(" " * (len(words) - len(words.lstrip())), GAP)
        text.append(words.lstrip(), style)
    text.rstrip()
    return text


def _style(cell: pyte.screens.Char) -> Style:
    return Style(color=_colour(cell.fg), bold=cell.bold, italic=cell.italics, dim=cell.fg == "brightblack")


def _colour(name: str) -> str | None:
    if name == "default":
        return None
    if name == "brown":  # pyte's name for yellow
        return "yellow"
    return f"#{name}" if re.fullmatch("[0-9a-f]{6}", name) else name


if __name__ == "__main__":
    main()
