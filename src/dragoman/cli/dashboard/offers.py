"""What the chosen server offers: tools, resources and prompts in a list, beside it all about one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rich.text import Text
from textual.containers import Horizontal, VerticalScroll
from textual.message import Message
from textual.widgets import Static

from dragoman.cli.dashboard.lists import RowTable
from dragoman.cli.dashboard.readings import pretty
from dragoman.cli.output import one_line, safe
from dragoman.cli.signatures import pieces, properties_of, required_of, resolved, type_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from textual.app import ComposeResult
    from textual.widgets import DataTable

    from dragoman.model import Prompt, Resource, ToolDef


@dataclass(frozen=True, slots=True)
class Offer:
    """One thing that a server offers."""

    kind: Literal["tool", "resource", "prompt"]
    name: str
    """What it is asked for by: exposed name, address, or name."""
    label: str
    item: ToolDef | Resource | Prompt

    @property
    def key(self) -> str:
        """What tells it from the others."""
        return f"{self.kind} {self.name}"


def offers_of(
    tools: Iterable[ToolDef], resources: Iterable[Resource] = (), prompts: Iterable[Prompt] = ()
) -> list[Offer]:
    """Put everything that a server offers into one list."""
    return [
        *(Offer("tool", tool.name, one_line(tool.original_name or tool.name), tool) for tool in tools),
        *(Offer("resource", one.uri, one_line(one.uri), one) for one in resources),
        *(Offer("prompt", one.name, one_line(one.name), one) for one in prompts),
    ]


class OffersPane(Horizontal):
    """A list, and the details of what the cursor is at."""

    @dataclass
    class Chosen(Message):
        """Somebody pressed Enter on an offer."""

        offer: Offer

    def __init__(self) -> None:
        super().__init__(id="offers", classes="pane")
        self._offers: dict[str, Offer] = {}
        self._described: Offer | None = None

    def compose(self) -> ComposeResult:
        """Make the list and the details."""
        yield RowTable(_columns(80), id="offer-list")
        with VerticalScroll(id="offer-detail"):
            yield Static(Text(""), id="offer-text")

    @property
    def current(self) -> Offer | None:
        """The offer that the cursor is at."""
        return self._offers.get(self.query_one("#offer-list", RowTable).current or "")

    def draw(self, offers: Sequence[Offer], *, words: str = "", width: int) -> None:
        """Show the offers that the words stand in, in a pane of that width."""
        wanted = words.casefold()
        self._offers = {one.key: one for one in offers if wanted in f"{one.kind} {one.label}".casefold()}
        rows = {key: (Text(one.kind, "dim"), Text(one.label)) for key, one in self._offers.items()}
        table = self.query_one("#offer-list", RowTable)
        table.set_columns(_columns(width))
        table.show(rows)
        self._describe()

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Say more about what the cursor is at now."""
        event.stop()
        self._describe()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Tell that an offer was chosen."""
        event.stop()
        if (offer := self.current) is not None:
            self.post_message(self.Chosen(offer))

    def _describe(self) -> None:
        offer = self.current
        if offer is not None and offer == self._described:
            return
        self._described = offer
        text = Text("nothing is offered here", "dim") if offer is None else details(offer)
        self.query_one("#offer-text", Static).update(text)
        self.query_one("#offer-detail", VerticalScroll).scroll_home(animate=False)


def details(offer: Offer) -> Text:
    """Say everything about an offer: how it is used, what it is for, its arguments, its schema."""
    match offer.kind:
        case "tool":
            return _tool(offer.item)  # pyright: ignore[reportArgumentType] -- the kind says it
        case "resource":
            return _resource(offer.item)  # pyright: ignore[reportArgumentType] -- the kind says it
        case "prompt":
            return _prompt(offer.item)  # pyright: ignore[reportArgumentType] -- the kind says it


def _tool(tool: ToolDef) -> Text:
    styles = {"name": "bold cyan", "type": "dim"}
    text = Text.assemble(*((piece, styles.get(kind, "")) for piece, kind in pieces(tool, tool.name)))
    text.append(f"\n\n{safe(tool.description.strip())}\n")
    schema = tool.input_schema
    required = required_of(schema)
    properties = properties_of(schema)
    if properties:
        text.append("\narguments\n", "bold")
    for name in sorted(properties, key=lambda name: name not in required):
        text.append(f"  {one_line(name)}", "cyan")
        text.append(f": {type_name(properties[name], schema)}", "dim")
        text.append(" (required)" if name in required else "", "yellow")
        said = _described(resolved(properties[name], schema))
        text.append(f"  {said}\n" if said else "\n")
    hints = ", ".join(one_line(str(key)) for key, value in tool.annotations.items() if value is True)
    if hints:
        text.append("\nits server says\n", "bold")
        text.append(f"  {hints}\n", "dim")
    text.append("\ninput schema\n", "bold")
    text.append(pretty(schema), "dim")
    if tool.output_schema is not None:
        text.append("\n\noutput schema\n", "bold")
        text.append(pretty(tool.output_schema), "dim")
    return text


def _resource(resource: Resource) -> Text:
    kind = "template" if resource.is_template else "resource"
    facts = {"name": resource.title or resource.name, "type": resource.mime_type, "kind": kind}
    return _facts(resource.uri, resource.description, facts)


def _prompt(prompt: Prompt) -> Text:
    text = _facts(prompt.name, prompt.description, {"title": prompt.title, "kind": "prompt"})
    if prompt.arguments:
        text.append("\narguments\n", "bold")
    for argument in prompt.arguments:
        text.append(f"  {one_line(str(argument.get('name', '')))}", "cyan")
        text.append(" (required)" if argument.get("required") else "", "yellow")
        text.append(f"  {one_line(str(argument.get('description') or ''))}\n")
    return text


def _facts(name: str, description: str, facts: Mapping[str, str]) -> Text:
    text = Text(one_line(name), "bold cyan")
    text = Text.assemble(text, "\n")
    if description.strip():
        text.append(f"\n{safe(description.strip())}\n")
    text.append("\n")
    for key, value in facts.items():
        if value:
            text.append(f"  {key}: ", "dim")
            text.append(f"{one_line(value)}\n")
    return text


def _described(schema: Any) -> str:
    said = schema.get("description") if isinstance(schema, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] -- it comes from a server
    return one_line(said) if isinstance(said, str) else ""


def _columns(width: int) -> tuple[tuple[str, int], ...]:
    # The list has two fifths of the pane; the rest is for the details.
    return ("kind", 8), ("name", max(8, width * 2 // 5 - 13))
