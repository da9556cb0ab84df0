"""Dialogs and input lines of the dashboard: help, login, questions, forms, commands, filter."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen
from textual.suggester import Suggester
from textual.widgets import Input, Static

from dragoman.cli.arguments import missing, properties_of, required_of, resolved, type_name, typed
from dragoman.cli.output import one_line, safe
from dragoman.cli.session.questions import AbandonedError
from dragoman.cli.slash import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rich.console import RenderableType
    from textual import events
    from textual.app import App, ComposeResult

    from dragoman.manager.manager import McpManager

KEYS = (
    ("↑ ↓, j k", "move in a list; Tab: the next list"),
    ("1 2 3 4", "tools, calls, logs, output"),
    ("Enter", "show the tools of a server; call a tool"),
    ("c", "put the tool into the command line"),
    ("/", "slash command; ↑ ↓: history, →: complete"),
    ("f", "filter tools, calls and log lines"),
    ("r", "restart the server"),
    ("e", "enable or disable the server, for now"),
    ("l", "log in to the server"),
    ("R", "reload the configuration"),
    ("t", "light or dark theme"),
    ("Esc", "close a dialog or line; stop running calls"),
    ("q, Ctrl-C", "quit; all servers are stopped"),
)


class Help(ModalScreen[None]):
    """The keys and the slash commands."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,enter", "leave", "Back")]

    def compose(self) -> ComposeResult:
        """Create the text."""
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
            yield Static(Text("↑ ↓: scroll   Esc: close", "dim"))

    def action_leave(self) -> None:
        """Close the dialog."""
        self.dismiss(None)


class LoginDialog(ModalScreen[None]):
    """Shows the login URL, and accepts the final URL of the browser."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Back")]

    def __init__(self, server: str) -> None:
        super().__init__()
        self._server = server
        self._pasted: asyncio.Queue[str] = asyncio.Queue()
        self._url = ""

    def compose(self) -> ComposeResult:
        """Create the widgets."""
        with Vertical(classes="dialog"):
            yield Static(Text.assemble(("log in to ", "bold"), (one_line(self._server), "bold cyan")))
            with VerticalScroll(classes="dialog-body"):
                yield Static(self._text(), id="login-text")
            yield Input(placeholder="or paste the final URL of the browser", compact=True)
            yield Static(Text("Esc: cancel", "dim"))

    def show_address(self, url: str) -> None:
        """Show the login URL."""
        self._url = url
        if self.is_mounted:
            self.query_one("#login-text", Static).update(self._text())

    async def paste(self) -> str:
        """Wait for a pasted URL."""
        return await self._pasted.get()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Accept a pasted URL."""
        event.stop()
        if event.value.strip():
            self._pasted.put_nowait(event.value.strip())
            event.input.value = ""

    def action_leave(self) -> None:
        """Cancel the login."""
        self.leave()

    def leave(self) -> None:
        """Close the dialog, if it is open."""
        if self.is_current:
            self.dismiss(None)

    def _text(self) -> Text:
        if not self._url:
            return Text("waiting for the login URL …", "dim")
        return Text.assemble("Open this URL in a browser:\n\n", (safe(self._url), "cyan"), "\n")


class Question(ModalScreen["str | None"]):
    """Asks for a line or for a letter; returns None if the user cancels."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Back")]

    def __init__(
        self,
        label: str,
        about: Sequence[RenderableType],
        *,
        letters: Mapping[str, str] | None = None,
        default: str = "",
        secret: bool = False,
        check: Callable[[str], object] | None = None,
    ) -> None:
        super().__init__()
        self._label = label
        self._about = about
        self._letters = letters
        self._default = default
        self._secret = secret
        self._check = check

    def compose(self) -> ComposeResult:
        """Create the text and the question."""
        with Vertical(classes="dialog"):
            if self._about:
                with VerticalScroll(classes="dialog-body"):
                    yield Static(Group(*self._about), id="question-about")
            yield Static(Text(safe(self._label), "bold"), id="question")
            if self._letters is None:
                yield Input(safe(self._default), password=self._secret, compact=True)
                yield Static(Text(""), id="question-error")
                yield Static(Text("Enter: answer   Esc: cancel", "dim"))
            else:
                options = "   ".join(f"{letter}: {meaning}" for letter, meaning in self._letters.items())
                yield Static(Text(f"{options}   Esc: cancel", "dim"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Accept a valid answer."""
        event.stop()
        try:
            if self._check is not None:
                self._check(event.value)
        except ValueError as error:
            self.query_one("#question-error", Static).update(Text(safe(str(error)), "red"))
            return
        self.dismiss(event.value)

    def on_key(self, event: events.Key) -> None:
        """Accept a letter; Enter means the default."""
        if self._letters is None:
            return
        letter = self._default if event.key == "enter" else event.character
        if letter in self._letters:
            event.stop()
            self.dismiss(letter)

    def action_leave(self) -> None:
        """Cancel the question."""
        self.dismiss(None)

    def give_up(self) -> None:
        """Close the dialog after the caller was cancelled."""
        if self.is_current:
            self.dismiss(None)


class ScreenAsker:
    """Asks the user of the dashboard; before it runs, questions fail."""

    def __init__(self) -> None:
        self.app: App[Any] | None = None
        self._about: list[RenderableType] = []
        self._turn = asyncio.Lock()

    async def line(
        self,
        label: str,
        *,
        default: str = "",
        choices: Sequence[str] = (),  # noqa: ARG002 -- the protocol's; the label names them
        secret: bool = False,
        check: Callable[[str], object] | None = None,
    ) -> str:
        """Ask for a line."""
        return await self._ask(Question(label, self._taken(), default=default, secret=secret, check=check))

    async def choose(self, label: str, choices: Mapping[str, str], *, default: str) -> str:
        """Ask for a letter."""
        return await self._ask(Question(label, self._taken(), letters=choices, default=default))

    def show(self, renderable: RenderableType) -> None:
        """Show text with the next question."""
        self._about.append(renderable)

    def _taken(self) -> list[RenderableType]:
        about, self._about = self._about, []
        return about

    async def _ask(self, question: Question) -> str:
        app = self.app
        if app is None or not app.is_running:
            msg = "the dashboard is not running"
            raise AbandonedError(msg)
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

        def take(given: str | None) -> None:
            if not answer.done():
                answer.set_result(given)

        async with self._turn:
            # The dialog must be pushed by the task of the dashboard, whichever task asks.
            app.call_later(app.push_screen, question, take)
            try:
                given = await answer
            except asyncio.CancelledError:
                app.call_later(question.give_up)
                raise
        if given is None:
            raise AbandonedError
        return given


class ArgumentsDialog(ModalScreen["dict[str, Any] | None"]):
    """Asks for arguments; returns None if the user cancels."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back"),
        Binding("up", "app.focus_previous", show=False),
        Binding("down", "app.focus_next", show=False),
    ]

    def __init__(self, name: str, schema: Mapping[str, Any], *, verb: str = "call") -> None:
        super().__init__()
        self._name = name
        self._schema = schema
        self._verb = verb
        required = required_of(schema)
        self._fields = sorted(properties_of(schema), key=lambda field: field not in required)
        self._required = set(required)

    def compose(self) -> ComposeResult:
        """Create an input for each argument."""
        properties = properties_of(self._schema)
        with Vertical(classes="dialog"):
            yield Static(Text.assemble((f"{self._verb} ", "bold"), (one_line(self._name), "bold cyan")))
            with VerticalScroll(classes="dialog-body"):
                for index, name in enumerate(self._fields):
                    yield Static(self._label(name, properties[name]))
                    default = _member(resolved(properties[name], self._schema), "default")
                    hint = "" if default is None else f"default: {one_line(str(default))}"
                    yield Input(placeholder=hint, id=f"field-{index}", compact=True)
                if not self._fields:
                    yield Static(Text("No arguments.", "dim"))
            yield Static(Text(""), id="form-error")
            yield Static(Text(f"Enter: {self._verb}   ↑ ↓: move   Esc: cancel", "dim"))

    def on_mount(self) -> None:
        """Focus the first argument."""
        if self._fields:
            self.query_one("#field-0", Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Submit the form."""
        event.stop()
        self._send()

    def key_enter(self) -> None:
        """Submit a form without arguments."""
        if not self._fields:
            self._send()

    def action_leave(self) -> None:
        """Cancel the form."""
        self.dismiss(None)

    def _send(self) -> None:
        properties = properties_of(self._schema)
        found: dict[str, Any] = {}
        for index, name in enumerate(self._fields):
            text = self.query_one(f"#field-{index}", Input).value
            if text:
                found[name] = typed(text, properties[name], self._schema)
        lacking = missing(found, self._schema)
        if lacking:
            first = next(iter(lacking))
            message = f"Missing: {', '.join(map(one_line, lacking))}"
            self.query_one("#form-error", Static).update(Text(message, "red"))
            if first in self._fields:
                self.query_one(f"#field-{self._fields.index(first)}", Input).focus()
            return
        self.dismiss(found)

    def _label(self, name: str, schema: object) -> Text:
        about = _member(resolved(schema, self._schema), "description")
        return Text.assemble(
            (one_line(name), "cyan"),
            (f": {type_name(schema, self._schema)}", "dim"),
            (" (required)" if name in self._required else "", "yellow"),
            (f"  {one_line(about)}" if isinstance(about, str) else "", ""),
        )


def _member(schema: object, key: str) -> object:
    return schema.get(key) if isinstance(schema, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] -- it comes from a server


REMEMBERED = 200


class Abandoned(Message):
    """The user pressed Escape in an input line."""


class CommandLine(Input):
    """The input for slash commands; up and down: history, right: accept the completion."""

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
        self._earlier: list[str] = []
        self._at = 0

    def remember(self, line: str) -> None:
        """Add a line to the history."""
        if self._earlier[-1:] != [line]:
            self._earlier = [*self._earlier, line][-REMEMBERED:]
        self._at = len(self._earlier)

    def put(self, text: str) -> None:
        """Set the text, with the cursor at its end."""
        self.value = text
        self.cursor_position = len(text)

    def action_older(self) -> None:
        """Show the previous line of the history."""
        if self._at > 0:
            self._at -= 1
            self.put(self._earlier[self._at])

    def action_newer(self) -> None:
        """Show the next line of the history."""
        self._at = min(self._at + 1, len(self._earlier))
        self.put(self._earlier[self._at] if self._at < len(self._earlier) else "")

    def action_abandon(self) -> None:
        """Clear and leave the line."""
        self.put("")
        self.post_message(Abandoned())


class FilterLine(Input):
    """The filter for lists; Escape clears it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "abandon", show=False)]

    def __init__(self) -> None:
        super().__init__(id="filter", placeholder="Filter; Esc shows all", compact=True)

    def action_abandon(self) -> None:
        """Show everything again."""
        self.value = ""
        self.post_message(Abandoned())


def proposals(mcp: McpManager, line: str) -> Iterable[str]:
    """Yield completions of a line, as whole lines."""
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
        """Return the first completion of a line."""
        lines = proposals(self._mcp, value)
        return next((line for line in lines if line.startswith(value) and line != value), None)
