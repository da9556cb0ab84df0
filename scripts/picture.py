"""Draw the README's picture: run `dragoman demo` in a real terminal and save the screen as SVG.

The program runs in a pseudo-terminal; a terminal emulator renders its output with colours, and the final
screen becomes the picture.
"""

from __future__ import annotations

import io
import itertools
import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "demo.svg"
COLUMNS, LINES = 100, 60
GAP = Style(dim=True)
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
    """Run, record, write."""
    screen = pyte.Screen(COLUMNS, LINES)
    _play([str(Path(sys.executable).with_name("dragoman")), "demo", "--no-session"], screen)
    console = Console(width=COLUMNS + 2, record=True, file=io.StringIO(), force_terminal=True)
    last = max((row for row in range(LINES) if screen.display[row].strip()), default=0)
    for row in range(last + 1):
        console.print(_line(screen, row), no_wrap=True, overflow="crop")
    console.print()
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    svg = console.export_svg(code_format=SVG, unique_id="dragoman")
    PICTURE.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", "utf-8")
    print(f"wrote {PICTURE.relative_to(ROOT)}")


def _play(command: list[str], screen: pyte.Screen) -> None:
    stream = pyte.ByteStream(screen)
    controller, terminal = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(LINES)}
    process = subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment, close_fds=True
    )
    os.close(terminal)
    try:
        while True:
            readable, _, _ = select.select([controller], [], [], 60)
            data = os.read(controller, 65536) if readable else b""
            if not data:
                break
            stream.feed(data)
    except OSError:  # on Linux, reading fails when the program has closed the terminal
        pass
    finally:
        os.close(controller)
        if process.wait() != 0:
            sys.exit(f"{' '.join(command)} exited with {process.returncode}")


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
    return f"#{name}" if len(name) == 6 and all(digit in "0123456789abcdef" for digit in name) else name


if __name__ == "__main__":
    main()
