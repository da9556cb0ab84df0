"""How markdown and code look on a terminal, light or dark: the terminal's own colours, no backgrounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pygments.token import (
    Comment,
    Error,
    Generic,
    Keyword,
    Name,
    Number,
    Operator,
    String,
    Token,
)
from rich import markdown as rich_markdown
from rich.segment import Segment
from rich.style import Style
from rich.syntax import ANSISyntaxTheme, Syntax
from rich.text import Text
from rich.theme import Theme

from dragoman.cli.output import safe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult

THEME = Theme(
    {
        "markdown.code": "cyan",
        "markdown.code_block": "none",
        "markdown.h1": "bold underline",
        "markdown.h2": "bold",
        "markdown.h3": "bold",
        "markdown.h4": "bold dim",
        "markdown.block_quote": "dim",
        "markdown.hr": "dim",
        "markdown.item.bullet": "cyan",
        "markdown.item.number": "cyan",
        "markdown.link": "none",
        "markdown.link_url": "blue underline",
        "markdown.table.border": "dim",
        "markdown.table.header": "bold",
        "bar.back": "dim",
        "bar.complete": "cyan",
        "bar.finished": "green",
    }
)
"""Laid over rich's own styles, some of which have a black background."""

CODE = ANSISyntaxTheme(
    {
        Token: Style(),
        Comment: Style(dim=True),
        Keyword: Style(color="magenta"),
        Operator.Word: Style(color="magenta"),
        Name.Builtin: Style(color="cyan"),
        Name.Class: Style(bold=True),
        Name.Decorator: Style(color="cyan"),
        Name.Function: Style(bold=True),
        Name.Tag: Style(color="magenta"),
        Number: Style(color="cyan"),
        String: Style(color="green"),
        Generic.Deleted: Style(color="red"),
        Generic.Inserted: Style(color="green"),
        Error: Style(),
    }
)
"""Only colours that can be read on a white and on a black ground."""
CONTEXT = 100
"""Lines of code before the newest one that its colours are worked out with."""


class _Heading(rich_markdown.Heading):
    """A heading at the left: in the middle of 200 columns nobody looks for it."""

    LEVEL_ALIGN: ClassVar[dict[str, JustifyMethod]] = {}


class _Markdown(rich_markdown.Markdown):
    elements: ClassVar[dict[str, Any]] = {**rich_markdown.Markdown.elements, "heading_open": _Heading}


class Markdown:
    """Markdown from a model or a server: harmless, links say where they lead, no empty lines around it."""

    def __init__(self, source: str) -> None:
        self._whole = _Markdown(safe(source), code_theme="ansi_light", hyperlinks=False)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._whole, options, pad=False)
        filled = [at for at, line in enumerate(lines) if any(piece.text.strip() for piece in line)]
        for line in lines[filled[0] : filled[-1] + 1] if filled else ():
            yield from line
            yield Segment.line()


def code_tail(above: Sequence[str], line: str, language: str) -> Text:
    """Draw the newest line of code, coloured as what stands above it demands."""
    lexer = Syntax("", language or "text", theme=CODE)
    drawn = lexer.highlight(safe("\n".join([*above, line])))
    newest = drawn.split("\n", allow_blank=True)[len(above)]
    return Text.assemble("  ", newest)
