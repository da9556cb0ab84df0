"""How a tool call looks while it is under way and after it: one line, and its result, folded."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from rich.console import Group
from rich.text import Text

from dragoman.cli.output import cut, safe, width_of
from dragoman.cli.tables import duration, shown_text
from dragoman.trust.redact import mask_arguments

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from dragoman.model import ToolResult

FOLDED = 3
"""Lines of a result that are shown; `/last` has the rest."""
BAR = 20
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
LONGEST = 400
"""Characters of arguments that are looked at."""
_MESSAGE = 30
_HINT = "  /last"


@dataclass(slots=True)
class Running:
    """A call, or other work, that is under way."""

    label: Text
    began: float
    progress: float | None = None
    total: float | None = None
    message: str = ""

    def told(self, progress: float, total: float | None, message: str | None) -> None:
        """Take in what the server says."""
        self.progress, self.total = progress, total
        self.message = safe(" ".join((message or "").split()))

    def view(self, now: float) -> RenderableType:
        """Draw it as it is now."""
        return _Line(
            lead=Text(f"{frame(now)} ", style="cyan"),
            body=self.label,
            tail=Text.assemble(*self._share(), (f"  {duration(max(0.0, now - self.began))}", "dim")),
        )

    def _share(self) -> list[tuple[str, str]]:
        if self.progress is None:
            return []
        message = f" {cut(self.message, _MESSAGE)}" if self.message else ""
        if not self.total or self.total <= 0:
            return [(f"  {self.progress:g}{message}", "dim")]
        done = round(BAR * min(1.0, max(0.0, self.progress / self.total)))
        return [
            ("  " + "━" * done, "cyan"),
            ("╌" * (BAR - done), "dim"),
            (f" {self.progress:g}/{self.total:g}{message}", "dim"),
        ]


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of which the middle gives way where there is no room."""

    lead: Text
    body: Text
    tail: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = max(8, options.max_width - self.lead.cell_len - self.tail.cell_len)
        body = self.body.copy()
        body.truncate(room, overflow="ellipsis")
        line = Text.assemble(self.lead, body, self.tail)
        line.no_wrap, line.overflow = True, "ellipsis"
        yield line


def frame(now: float) -> str:
    """Return the letter that turns."""
    return FRAMES[int(now * 10) % len(FRAMES)]


def called(tool: str, arguments: str) -> Text:
    """Draw a call's name and arguments."""
    return Text.assemble((safe(tool), "bold cyan"), f"({safe(arguments)})")


def short_arguments(value: Any, raw: str = "") -> str:
    """Return a call's arguments on one line, without what looks like a secret."""
    if not isinstance(value, dict):
        return " ".join(raw[:LONGEST].split())
    masked = cast("dict[str, Any]", mask_arguments(cast("dict[str, Any]", value), limit=80))
    words = [f"{name}={json.dumps(one, ensure_ascii=False, default=str)}" for name, one in masked.items()]
    return " ".join(", ".join(words)[:LONGEST].split())


def finished(tool: str, arguments: str, result: ToolResult) -> RenderableType:
    """Draw a call that has ended: how, how long, and the first lines of what came."""
    mark = ("✓ ", "green") if result.success else ("✗ ", "red")
    head = _Line(
        lead=Text.assemble(mark),
        body=called(tool, arguments),
        tail=Text(f"  {duration(result.duration)}", style="dim"),
    )
    text = shown_text(result) if result.success else result.error or "failed"
    lines = [" ".join(line.split()) for line in safe(text[:50_000]).splitlines() if line.strip()]
    return Group(head, _Folded(lines, style="dim" if result.success else "red"))


@dataclass(frozen=True, slots=True)
class _Folded:
    """The first lines of a result, each cut where the screen ends; the last one says where the rest is."""

    lines: list[str]
    style: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = max(8, options.max_width - 4)
        # One line more takes as much room as saying that there is one.
        shown = self.lines if len(self.lines) <= FOLDED + 1 else self.lines[:FOLDED]
        is_cut = any(width_of(line) > room for line in shown)
        for at, line in enumerate(shown):
            hint = _HINT if is_cut and at == len(shown) - 1 == len(self.lines) - 1 else ""
            text = cut(line, room - len(hint))
            yield Text.assemble(("  │ ", "dim"), (text, self.style), (hint, "dim"))
        if more := len(self.lines) - len(shown):
            yield Text(f"  │ … {more} more lines:{_HINT[1:]}", style="dim")
