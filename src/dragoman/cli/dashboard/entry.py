"""The two lines that a person types into: slash commands with completion and history, and the filter."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.suggester import Suggester
from textual.widgets import Input

from dragoman.cli.signatures import properties_of
from dragoman.cli.slash.table import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.manager import McpManager

REMEMBERED = 200


class Abandoned(Message):
    """Somebody pressed Escape in a line."""


class CommandLine(Input):
    """Takes a slash command; the arrow keys bring earlier ones back, the right one takes what is proposed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "older", show=False),
        Binding("down", "newer", show=False),
        Binding("escape", "abandon", show=False),
    ]

    def __init__(self, mcp: McpManager) -> None:
        super().__init__(
            id="command",
            placeholder="/ for a command",
            suggester=_Proposals(mcp),
            select_on_focus=False,
            compact=True,
        )
        self._said: list[str] = []
        self._at = 0

    def remember(self, line: str) -> None:
        """Keep a line that was carried out."""
        if self._said[-1:] != [line]:
            self._said = [*self._said, line][-REMEMBERED:]
        self._at = len(self._said)

    def put(self, text: str) -> None:
        """Have a text in the line, the cursor behind it."""
        self.value = text
        self.cursor_position = len(text)

    def action_older(self) -> None:
        """Bring the line before back."""
        if self._at > 0:
            self._at -= 1
            self.put(self._said[self._at])

    def action_newer(self) -> None:
        """Go on to the line after."""
        self._at = min(self._at + 1, len(self._said))
        self.put(self._said[self._at] if self._at < len(self._said) else "")

    def action_abandon(self) -> None:
        """Leave the line."""
        self.put("")
        self.post_message(Abandoned())


class FilterLine(Input):
    """Takes words that what is listed has to hold; Escape takes them away."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "abandon", show=False)]

    def __init__(self) -> None:
        super().__init__(id="filter", placeholder="words to look for; Esc shows all", compact=True)

    def action_abandon(self) -> None:
        """Show everything again."""
        self.value = ""
        self.post_message(Abandoned())


def proposals(mcp: McpManager, line: str) -> Iterable[str]:
    """Return whole lines that a line may become."""
    if not line.startswith("/"):
        return
    command = max((name for name in COMMANDS if line.startswith(f"{name} ")), key=len, default="")
    rest = line[len(command) :].lstrip() if command else ""
    before = line[: len(line) - len(rest.rpartition(" ")[2])]
    if command == "/call" and " " in rest:
        tool = next((one for one in mcp.tools() if one.name == rest.partition(" ")[0]), None)
        yield from (f"{before}{name}=" for name in (properties_of(tool.input_schema) if tool else ()))
    elif command == "/call":
        yield from (f"{before}{tool.name} " for tool in mcp.tools())
    elif command and "SERVER" in COMMANDS[command].arguments.partition(" ")[0] and " " not in rest:
        yield from (f"{before}{name}" for name in mcp.status())
    yield from COMMANDS


class _Proposals(Suggester):
    def __init__(self, mcp: McpManager) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._mcp = mcp

    async def get_suggestion(self, value: str) -> str | None:
        """Return the first whole line that begins like this one."""
        lines = proposals(self._mcp, value)
        return next((line for line in lines if line.startswith(value) and line != value), None)
