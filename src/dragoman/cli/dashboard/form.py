"""A form for the arguments of a tool, made from its schema: a line for each, typed as the schema wants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from dragoman.cli.arguments import missing, typed
from dragoman.cli.output import one_line
from dragoman.cli.signatures import properties_of, required_of, resolved, type_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from textual.app import ComposeResult


class Form(ModalScreen["dict[str, Any] | None"]):
    """Asks for arguments; gives them back, or nothing if somebody changed their mind."""

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
        """Make a line for each argument."""
        properties = properties_of(self._schema)
        with Vertical(classes="dialog"):
            yield Static(Text.assemble((f"{self._verb} ", "bold"), (one_line(self._name), "bold cyan")))
            with VerticalScroll(classes="dialog-body"):
                for index, name in enumerate(self._fields):
                    yield Static(self._label(name, properties[name]))
                    default = _member(resolved(properties[name], self._schema), "default")
                    hint = "" if default is None else f"{one_line(str(default))} unless given"
                    yield Input(placeholder=hint, id=f"field-{index}", compact=True)
                if not self._fields:
                    yield Static(Text("it takes no arguments", "dim"))
            yield Static(Text(""), id="form-error")
            yield Static(Text(f"Enter: {self._verb}   ↑ ↓: other lines   Esc: back", "dim"))

    def on_mount(self) -> None:
        """Begin at the first argument."""
        if self._fields:
            self.query_one("#field-0", Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go on with what was typed."""
        event.stop()
        self._send()

    def key_enter(self) -> None:
        """Go on where there is no line to type into."""
        if not self._fields:
            self._send()

    def action_leave(self) -> None:
        """Go back without doing anything."""
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
            said = f"needed: {', '.join(map(one_line, lacking))}"
            self.query_one("#form-error", Static).update(Text(said, "red"))
            if first in self._fields:
                self.query_one(f"#field-{self._fields.index(first)}", Input).focus()
            return
        self.dismiss(found)

    def _label(self, name: str, schema: object) -> Text:
        said = _member(resolved(schema, self._schema), "description")
        return Text.assemble(
            (one_line(name), "cyan"),
            (f": {type_name(schema, self._schema)}", "dim"),
            (" (required)" if name in self._required else "", "yellow"),
            (f"  {one_line(said)}" if isinstance(said, str) else "", ""),
        )


def _member(schema: object, key: str) -> object:
    return schema.get(key) if isinstance(schema, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] -- it comes from a server
