"""What stands over the dashboard for a moment: the help, a login."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from dragoman.cli.output import one_line, safe
from dragoman.cli.slash.table import COMMANDS

if TYPE_CHECKING:
    from textual.app import ComposeResult

KEYS = (
    ("↑ ↓, j k", "move in a list; Tab: the next list"),
    ("1 2 3 4", "offers, calls, logs, output"),
    ("Enter", "a server: its offers; an offer: use it"),
    ("c", "put the offer into the command line"),
    ("/", "slash command; ↑ ↓: earlier ones, →: complete"),
    ("f", "filter offers, calls and log lines"),
    ("r", "restart the server"),
    ("e", "switch the server off or on, for now"),
    ("l", "log in to the server"),
    ("R", "read the configuration again"),
    ("t", "light or dark"),
    ("Esc", "leave a dialog or a line; stop what runs"),
    ("q, Ctrl-C", "leave; every server is stopped"),
)


class Help(ModalScreen[None]):
    """The keys, and the slash commands."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,enter", "leave", "Back")]

    def compose(self) -> ComposeResult:
        """List them."""
        keys = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        for key, does in KEYS:
            keys.add_row(Text(key, "cyan"), Text(does))
        commands = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        for command in COMMANDS.values():
            usage = Text.assemble((command.name, "cyan"), (f" {command.arguments}", "dim"))
            commands.add_row(usage, Text(command.help))
        with Vertical(classes="dialog"):
            with VerticalScroll(classes="dialog-body"):
                yield Static(
                    Group(Text("keys", "bold"), keys, Text("\ncommands", "bold"), commands), id="help-text"
                )
            yield Static(Text("↑ ↓: more   Esc: back", "dim"))

    def action_leave(self) -> None:
        """Go back."""
        self.dismiss(None)


class Login(ModalScreen[None]):
    """Shows the address at which a person logs in, and takes the one that the browser ended at."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Back")]

    def __init__(self, server: str) -> None:
        super().__init__()
        self._server = server
        self._pasted: asyncio.Queue[str] = asyncio.Queue()
        self._url = ""

    def compose(self) -> ComposeResult:
        """Make room for the address."""
        with Vertical(classes="dialog"):
            yield Static(Text.assemble(("log in to ", "bold"), (one_line(self._server), "bold cyan")))
            with VerticalScroll(classes="dialog-body"):
                yield Static(self._text(), id="login-text")
            yield Input(placeholder="or paste the address that the browser ended at", compact=True)
            yield Static(Text("Esc: give up", "dim"))

    def show_address(self, url: str) -> None:
        """Show where to log in."""
        self._url = url
        if self.is_mounted:
            self.query_one("#login-text", Static).update(self._text())

    async def paste(self) -> str:
        """Wait for an address that somebody pastes."""
        return await self._pasted.get()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Hand a pasted address over."""
        event.stop()
        if event.value.strip():
            self._pasted.put_nowait(event.value.strip())
            event.input.value = ""

    def action_leave(self) -> None:
        """Give up."""
        self.leave()

    def leave(self) -> None:
        """Go away, if it is there."""
        if self.is_current:
            self.dismiss(None)

    def _text(self) -> Text:
        if not self._url:
            return Text("asking the server where …", "dim")
        return Text.assemble("Open this address in a browser:\n\n", (safe(self._url), "cyan"), "\n")
