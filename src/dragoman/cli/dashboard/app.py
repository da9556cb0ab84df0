"""The dashboard itself: puts the pieces on the screen, hears the manager's events, does what keys ask for.

It is drawn when something happened, at most ten times a second, and once a second for what only time changes.
The manager is somebody else's: it is entered before the dashboard starts, and left after it has ended.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, ClassVar

from rich.style import Style
from rich.text import Text
from textual import on
from textual.app import App
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal
from textual.widgets import DataTable, Footer, RichLog, Static

from dragoman.cli import broken
from dragoman.cli.dashboard.asking import ScreenAsker
from dragoman.cli.dashboard.calls import CallsPane
from dragoman.cli.dashboard.dialogs import Help
from dragoman.cli.dashboard.entry import Abandoned, CommandLine, FilterLine
from dragoman.cli.dashboard.form import Form
from dragoman.cli.dashboard.jobs import Jobs, schema_of
from dragoman.cli.dashboard.logs import LogsPane
from dragoman.cli.dashboard.offers import OffersPane, offers_of
from dragoman.cli.dashboard.readings import clock_time, summary
from dragoman.cli.dashboard.servers import WIDE, ServerLine, ServersTable
from dragoman.cli.dashboard.stream import CallStream, Follower
from dragoman.cli.output import one_line, safe
from dragoman.errors import DragomanError
from dragoman.events import CallFinished, CallStarted, ConfigReloaded, DefinitionsChanged

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType
    from textual.app import ComposeResult
    from textual.timer import Timer
    from textual.widgets import Input

    from dragoman.cli.dashboard.offers import Offer
    from dragoman.cli.session.consent import Consent
    from dragoman.events import Event
    from dragoman.manager import McpManager
    from dragoman.observe.bus import Subscription
    from dragoman.observe.call_history import CallHistory

TICK = 1.0
SOON = 0.1
"""Seconds between an event and the drawing of it: a burst of events is drawn once."""
LOG_LINES = 500
OUTPUT_LINES = 2000
OUTPUT_EDGE = 3
"""Columns of the output that are no text: one at each side, and the scrollbar."""
VIEWS = ("offers", "calls", "logs", "output")
USABLE = frozenset({"ready", "degraded"})


class Dashboard(App[None]):
    """Everything about the servers of one manager, on one screen."""

    CSS_PATH = "dashboard.tcss"
    TITLE = "dragoman top"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012 -- Textual's own, typed there
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("slash", "command", "Command", key_display="/"),
        Binding("f", "filter", "Filter"),
        Binding("r", "restart", "Restart"),
        Binding("e", "switch", "On/off"),
        Binding("l", "login", "Login"),
        Binding("R", "reload", "Reload", key_display="R"),
        Binding("c", "compose_call", show=False),
        Binding("t", "shade", show=False),
        Binding("escape", "stop", show=False),
        *(Binding(str(number), f"view('{view}')", show=False) for number, view in enumerate(VIEWS, start=1)),
    ]

    def __init__(
        self,
        mcp: McpManager,
        *,
        history: CallHistory | None = None,
        asker: ScreenAsker | None = None,
        consent: Consent | None = None,
        is_light: bool = False,
        clock: Callable[[], float] = time.time,
        time_of: Callable[[float], str] = clock_time,
    ) -> None:
        """Show a manager that was entered.

        Args:
            mcp: The manager.
            history: The log in which the calls of other programs are; none are shown unless given.
            asker: What the manager's handlers ask through; it asks here from now on.
            consent: Asks through it about tools that are not as they were pinned; nothing does unless given.
            is_light: Whether the terminal has a light background.
            clock: Gives the seconds since the epoch.
            time_of: Writes a moment as a time of day.
        """
        super().__init__()
        self.theme = "textual-light" if is_light else "textual-dark"
        self._mcp = mcp
        self._clock = clock
        self._time_of = time_of
        self._stream = CallStream()
        self._follower = Follower(history) if history is not None else None
        asker = asker or ScreenAsker()
        asker.app = self
        self._consent = consent
        self._is_reading = False
        self._jobs = Jobs(self, mcp, self._stream, asker)
        self._subscription: Subscription | None = None
        self._view = self._left = "offers"
        self._server = ""
        self._offers: list[Offer] = []
        self._listings = 0
        """How often the offers were listed: only the latest listing counts."""
        self._words = ""
        self._soon: Timer | None = None
        self._head = Text("")
        self._drawn = asyncio.Event()

    # The screen

    def compose(self) -> ComposeResult:
        """Make the pieces."""
        yield Static(Text(""), id="head")
        yield ServersTable()
        yield ServerLine()
        yield Static(Text(""), id="bar")
        with Container(id="panes"):
            yield OffersPane()
            yield LogsPane()
            yield RichLog(id="output", classes="pane", wrap=True, max_lines=OUTPUT_LINES)
            yield CallsPane(time_of=self._time_of)
        with Horizontal(id="entry"):
            yield CommandLine(self._mcp)
            yield FilterLine()
            yield Static(Text(""), id="message")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to listen and to draw."""
        self._subscription = self._mcp.events()
        self.run_worker(self._listen(self._subscription), group="events")
        self.set_interval(TICK, self._tick)
        self.query_one(ServersTable).focus()
        self._show_view()
        self.draw()
        if self._mcp.settings.problems:
            self.say(f"{broken.many(self._mcp.settings)}: {broken.CHECK}", "yellow")
        self._poll()
        self._review()

    def on_resize(self) -> None:
        """Fit the tables to the new size."""
        self._draw_offers()
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        """Bring everything on the screen up to date; what has not changed is left alone."""
        self._soon = None
        if not self.is_running:
            # It is ending: its pieces go one by one, and whatever is under way may find some of them gone.
            return
        statuses, metrics = self._mcp.status(), self._mcp.metrics()
        width = self.size.width
        is_on = self._jobs.is_on
        self._draw_head(summary(statuses.values(), metrics))
        servers = self.query_one(ServersTable)
        servers.draw(statuses, metrics, is_on=is_on, width=width)
        self._choose(servers.current or "")
        status = statuses.get(self._server)
        problem = next((one_line(str(one)) for one in self._mcp.settings.problems), "")
        line = self.query_one(ServerLine)
        line.draw(status, is_on=is_on(self._server), width=width, problem=problem)
        self._draw_calls()
        self._draw_logs()
        self._drawn.set()

    async def next_drawing(self) -> None:
        """Wait until it was drawn once more."""
        self._drawn.clear()
        await self._drawn.wait()

    def draw_soon(self) -> None:
        """Draw in a moment, with whatever else happens until then."""
        if self._soon is None and self.is_running:
            self._soon = self.set_timer(SOON, self.draw)

    def say(self, text: str, style: str = "") -> None:
        """Put a message of one line beside the command line."""
        if self.is_running:
            self.query_one("#message", Static).update(Text(one_line(text), style))

    def complain(self, text: str) -> None:
        """Put what went wrong beside the command line, and the whole of it into the output."""
        self.say(text, "red")
        if self.is_running:
            self._write(Text(f"✗ {safe(text)}", "red"))

    def print(self, renderable: RenderableType) -> None:
        """Put something into the output, and the output on the screen."""
        if self.is_running:
            self.show("output")
            self._write(renderable)

    def _write(self, renderable: RenderableType) -> None:
        # The pane may not be on the screen yet, and a scrollbar comes later: its own width says little.
        width = max(1, self._pane_width - OUTPUT_EDGE)
        self.query_one("#output", RichLog).write(renderable, width=width)

    def show(self, view: str) -> None:
        """Show one of the panes, without going there."""
        if not self.is_running:
            return
        self._view = view
        if view != "calls":
            self._left = view
        self._show_view()
        self.call_after_refresh(self.draw)

    def show_call(self, call_id: str) -> None:
        """Put the calls on the screen, the cursor at one of them."""
        if self.is_running:
            self.show("calls")
            self.query_one(CallsPane).choose(call_id)

    def _draw_head(self, text: str) -> None:
        head = Text.assemble("dragoman  ", (text, "not bold"))
        if self._words:
            head.append(f"  filter: {one_line(self._words)}", "yellow")
        if head != self._head:
            self._head = head
            self.query_one("#head", Static).update(head)

    def _draw_calls(self) -> None:
        pane = self.query_one(CallsPane)
        if pane.display:
            pane.draw(self._stream.entries(self._words), width=self._pane_width)

    @property
    def _pane_width(self) -> int:
        return self.size.width // 2 if self.size.width >= WIDE else self.size.width

    def _draw_offers(self) -> None:
        self.query_one(OffersPane).draw(self._offers, words=self._words, width=self._pane_width)

    def _draw_logs(self) -> None:
        pane = self.query_one(LogsPane)
        if not pane.display or self._server not in self._mcp.status():
            return
        lines = self._mcp.logs(self._server, LOG_LINES)
        nothing = f"nothing with “{self._words}”" if lines and self._words else "it wrote nothing so far"
        pane.draw(self._server, lines, words=self._words, otherwise=nothing)

    def _show_view(self) -> None:
        for view in VIEWS:
            pane = self.query_one(f"#{view}")
            pane.set_class(view == self._view, "active")
            pane.set_class(self._view == "calls" and view == self._left, "beside")
        bar = Text()
        for number, view in enumerate(VIEWS, start=1):
            click = Style.from_meta({"@click": f"app.view('{view}')"})
            bar.append(
                f" {number} {view.capitalize()} ", Style(bold=True, reverse=view == self._view) + click
            )
            bar.append(" ")
        self.query_one("#bar", Static).update(bar)

    # What happens

    async def _listen(self, subscription: Subscription) -> None:
        async for event in subscription:
            self._hear(event)
            self.draw_soon()

    def _hear(self, event: Event) -> None:
        match event:
            case CallStarted():
                self._stream.begin(event, self._clock())
            case CallFinished():
                self._stream.end(event, self._clock())
                self.set_timer(SOON, self._poll)
            case ConfigReloaded():
                self._jobs.switched.clear()
                self._list_offers()
            case DefinitionsChanged():
                self._review()
            case _ if event.server == self._server:
                self._list_offers()
            case _:
                pass

    def _review(self) -> None:
        """Ask about what servers offer that is not as it was pinned."""
        if self._consent is not None:
            self.run_worker(self._ask_changes(self._consent), group="review")

    async def _ask_changes(self, consent: Consent) -> None:
        try:
            await consent.review(self._mcp)
        except DragomanError as error:
            self.complain(str(error))
        self._list_offers()

    def _tick(self) -> None:
        self._poll()
        self.draw()

    def _poll(self) -> None:
        if self._follower is not None and not self._is_reading:
            self._is_reading = True
            self.run_worker(self._read_log(self._follower), group="log")

    async def _read_log(self, follower: Follower) -> None:
        try:
            records = await asyncio.to_thread(follower.poll)
        except DragomanError as error:
            self.complain(str(error))
            return
        finally:
            self._is_reading = False
        if records:
            self._stream.take(records)
            self.draw_soon()

    def _choose(self, server: str) -> None:
        if server != self._server:
            self._server = server
            self._offers = []
            self._list_offers()

    def _list_offers(self) -> None:
        if not self.is_running:
            return
        self._offers = offers_of(one for one in self._mcp.tools() if one.server == self._server)
        self._draw_offers()
        status = self._mcp.status().get(self._server)
        # What was asked before this moment is not true any more.
        self._listings += 1
        if status is not None and status.state.value in USABLE:
            self.run_worker(self._list_others(self._server, self._listings), group="offers")

    async def _list_others(self, server: str, listing: int) -> None:
        try:
            resources, prompts = await self._mcp.resources(server), await self._mcp.prompts(server)
        except DragomanError as error:
            self.complain(f"{server}: {error}")
            return
        if listing == self._listings and self.is_running:
            tools = (one for one in self._mcp.tools() if one.server == server)
            self._offers = offers_of(tools, resources, prompts)
            self._draw_offers()
            self.draw_soon()

    @on(DataTable.RowHighlighted, "#servers")
    def choose_server(self) -> None:
        """Show everything about the server that the cursor is at now."""
        self.draw()

    @on(DataTable.RowSelected, "#servers")
    def enter_server(self) -> None:
        """Go from a server to what it offers."""
        self.action_view("offers")

    def on_offers_pane_chosen(self, event: OffersPane.Chosen) -> None:
        """Use what was chosen, after asking for its arguments."""
        offer = event.offer
        schema = schema_of(offer)
        if schema is None:
            self._jobs.use(offer, {})
            return

        def go_on(arguments: dict[str, Any] | None) -> None:
            if arguments is not None:
                self._jobs.use(offer, arguments)

        self.push_screen(Form(offer.name, schema, verb="call" if offer.kind == "tool" else "get"), go_on)

    # Keys

    def action_view(self, view: str) -> None:
        """Go to one of the panes."""
        self.show(view)
        self._focus_pane()

    def action_help(self) -> None:
        """Show the keys and commands."""
        self.push_screen(Help())

    def action_command(self) -> None:
        """Go to the command line."""
        line = self.query_one(CommandLine)
        if not line.value:
            line.put("/")
        self._enter_line("command")

    def action_filter(self) -> None:
        """Go to the filter."""
        self._enter_line("filter")

    def action_compose_call(self) -> None:
        """Put the tool that the cursor is at into the command line."""
        offer = self.query_one(OffersPane).current
        if offer is not None:
            word = {"tool": "/call", "resource": "/read", "prompt": "/prompt"}[offer.kind]
            self.query_one(CommandLine).put(f"{word} {offer.name} ")
            self._enter_line("command")

    def action_restart(self) -> None:
        """Restart the chosen server."""
        if self._server:
            self._jobs.restart(self._server)

    def action_switch(self) -> None:
        """Switch the chosen server off, or on again."""
        if self._server:
            self._jobs.switch(self._server)

    def action_login(self) -> None:
        """Log in to the chosen server."""
        if self._server:
            self._jobs.login(self._server)

    def action_reload(self) -> None:
        """Read the configuration again."""
        self._jobs.command("/mcp reload")

    def action_shade(self) -> None:
        """Go from dark to light, or back."""
        self.theme = "textual-dark" if self.theme == "textual-light" else "textual-light"

    def action_stop(self) -> None:
        """Stop what runs, if anything does."""
        self._jobs.stop()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Carry a command out; keep the filter."""
        if isinstance(event.input, CommandLine):
            line = event.value.strip()
            event.input.put("")
            if line:
                event.input.remember(line)
                self._jobs.command(line)
        self._leave_line()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while words are typed."""
        if isinstance(event.input, FilterLine):
            self._words = event.value.strip()
            self._draw_offers()
            self.draw()

    def on_abandoned(self, _event: Abandoned) -> None:
        """Leave the line that somebody typed into."""
        self._jobs.stop()
        self._leave_line()

    def _enter_line(self, line: str) -> None:
        self.query_one("#entry").set_class(line == "filter", "filtering")
        self.query_one(f"#{line}").focus()

    def _leave_line(self) -> None:
        self.query_one("#entry").remove_class("filtering")
        self._focus_pane()

    def _focus_pane(self) -> None:
        self.query_one(
            {"offers": "#offer-list", "calls": "#call-list"}.get(self._view, f"#{self._view}")
        ).focus()
