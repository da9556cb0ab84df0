"""The dashboard app: shows the panes, handles the events of the manager, and runs actions for keys.

The screen is updated after events, at most ten times a second, and once a second for durations. The caller
starts the manager before the dashboard and closes it afterwards.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, cast

from rich.style import Style
from rich.text import Text
from textual import on
from textual.app import App
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal
from textual.widgets import DataTable, Footer, RichLog, Static

from dragoman.cli import exits
from dragoman.cli.dashboard.calls import CallsPane
from dragoman.cli.dashboard.dialogs import (
    Abandoned,
    ArgumentsDialog,
    CommandLine,
    FilterLine,
    Help,
    LoginDialog,
    ScreenAsker,
)
from dragoman.cli.dashboard.lists import (
    WIDE,
    LogsPane,
    OffersPane,
    ServerLine,
    ServersTable,
    clock_time,
    note_of,
    offers_of,
    summary,
)
from dragoman.cli.output import one_line, safe
from dragoman.cli.session.questions import AbandonedError
from dragoman.cli.session.render_turn import PastCall, short_arguments
from dragoman.cli.slash import Context, Leave, UsageError, give_inputs, run, token_asker
from dragoman.cli.tables import in_session
from dragoman.diagnosis.explain import explain_status, state_word
from dragoman.diagnosis.fleet import broken_row
from dragoman.errors import DragomanError
from dragoman.events import CallFinished, CallStarted, ConfigReloaded, DefinitionsChanged
from dragoman.observe.call_stream import CallStream, Follower
from dragoman.tools.result.render import describe
from dragoman.tools.search import ToolIndex
from dragoman.trust.addresses import read_link
from dragoman.trust.masking import mask_text

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from rich.console import RenderableType
    from textual.app import ComposeResult
    from textual.timer import Timer
    from textual.widgets import Input
    from textual.worker import Worker

    from dragoman.cli.dashboard.lists import OfferRow
    from dragoman.cli.session.questions import Asker, Consent
    from dragoman.events import Event
    from dragoman.manager.manager import McpManager
    from dragoman.model import Prompt, Resource, ToolDef
    from dragoman.observe.bus import Subscription
    from dragoman.observe.call_history import CallHistory

MOST_FOUND = 20
"""Tools that the filter finds by what they do."""
MAX_SHOWN = 20_000
"""Characters shown of a resource or prompt."""


class Jobs:
    """Runs actions as workers and shows their outcome."""

    def __init__(self, app: Dashboard, mcp: McpManager, stream: CallStream, asker: Asker) -> None:
        self._app = app
        self._mcp = mcp
        self._stream = stream
        self._context = Context(mcp=mcp, asker=asker, say=app.print, on_progress=self._progress)
        self.switched: dict[str, bool] = {}
        """Servers that were enabled or disabled since the configuration was read."""
        self._running: set[Worker[None]] = set()

    def is_on(self, server: str) -> bool:
        """Return whether a server is enabled."""
        spec = self._mcp.settings.server(server)
        return self.switched.get(server, spec is None or (spec.enabled and self._mcp.settings.enabled))

    def restart(self, server: str) -> None:
        """Restart a server."""
        self._begin(f"restarting {server}", self._restart(server))

    def switch(self, server: str) -> None:
        """Disable a server, or enable it again."""
        turn_on = not self.is_on(server)
        self._begin(
            f"{'enabling' if turn_on else 'disabling'} {server}", self._switch(server, turn_on=turn_on)
        )

    def login(self, server: str) -> None:
        """Log in to a server."""
        self._begin(f"logging in to {server}", self._login(server))

    def command(self, line: str) -> None:
        """Run a slash command."""
        match line.split():
            case ["/mcp", "login", server, *_] if server in self._mcp.status():
                # Not the slash command: it may open a text browser, which would take over the screen.
                self.login(server)
            case _:
                self._begin(line, self._command(line))

    def use(self, offer: OfferRow, arguments: Mapping[str, Any]) -> None:
        """Call a tool, read a resource, or get a prompt."""
        match offer.kind:
            case "tool":
                self._begin(f"calling {offer.name}", self._call(cast("ToolDef", offer.item), arguments))
            case "resource":
                self._begin(f"reading {offer.name}", self._read(cast("Resource", offer.item)))
            case "prompt":
                self._begin(f"getting {offer.name}", self._prompt(cast("Prompt", offer.item), arguments))

    def stop(self) -> None:
        """Cancel all running actions."""
        running = [one for one in self._running if one.is_running]
        for worker in running:
            worker.cancel()
        if running:
            self._app.say("Stopped.", "yellow")

    def _begin(self, doing: str, job: Coroutine[Any, Any, str]) -> None:
        self._app.say(f"{doing} …", "yellow")
        worker = self._app.run_worker(self._carry_out(job), group="jobs")
        self._running = {one for one in self._running if one.is_running} | {worker}

    async def _carry_out(self, job: Coroutine[Any, Any, str]) -> None:
        try:
            message = await job
        except Leave:
            self._app.exit()
        except (UsageError, AbandonedError, DragomanError) as error:
            self._app.complain(in_session(str(error)))
        else:
            self._app.say(message, "green")
        self._app.draw_soon()

    async def _restart(self, server: str) -> str:
        await self._mcp.restart(server)
        return self._state(server)

    async def _switch(self, server: str, *, turn_on: bool) -> str:
        await (self._mcp.enable(server) if turn_on else self._mcp.disable(server))
        self.switched[server] = turn_on
        return self._state(server) if turn_on else f"{server} is disabled"

    def _state(self, server: str) -> str:
        status = self._mcp.status([server])[server]
        if status.state.value != "ready":
            found = explain_status(status, self._mcp.settings.server(server))
            msg = f"{server}: {found or state_word(status)}"
            raise DragomanError(msg)
        return f"{server} is ready"

    async def _login(self, server: str) -> str:
        if await give_inputs(self._context, server):
            return self._state(server)
        dialog = LoginDialog(server)
        await self._app.push_screen(dialog, lambda _: worker.cancel() if worker else None)
        worker = next((one for one in self._running if one.is_running), None)
        try:
            await self._mcp.auth.login(
                server,
                open_url=lambda url: _open(self._app, dialog, url),
                paste=dialog.paste,
                token=token_asker(self._context, server),
            )
        finally:
            worker = None
            dialog.leave()
        return f"logged in to {server}"

    async def _command(self, line: str) -> str:
        self._app.print(Text(f"› {safe(line)}", "bold"))
        before = list(self._context.calls)[-1:]
        outcome = await run(self._context, line)
        self._app.print(outcome)
        made = list(self._context.calls)[-1:]
        if made and made != before:
            self._stream.attach(made[0].result)
        match line.split():
            case ["/mcp", "enable" | "disable" as word, server]:
                self.switched[server] = word == "enable"
            case _:
                pass
        return ""

    async def _call(self, tool: ToolDef, arguments: Mapping[str, Any]) -> str:
        self._app.show("calls")
        result = await self._mcp.call(tool.name, arguments, on_progress=self._progress)
        self._stream.attach(result)
        given = short_arguments(dict(arguments))
        self._context.calls.append(PastCall(tool=tool.name, arguments=given, result=result))
        self._app.show_call(result.call_id)
        if not result.success:
            raise DragomanError(one_line(result.error or "the call failed"))
        return f"{tool.name}: ok"

    async def _read(self, resource: Resource) -> str:
        parts = await self._mcp.read(resource.uri, resource.server)
        self._print(resource.uri, "\n".join(describe(part) for part in parts))
        return ""

    async def _prompt(self, prompt: Prompt, arguments: Mapping[str, Any]) -> str:
        words = {key: str(value) for key, value in arguments.items()}
        messages = await self._mcp.prompt(prompt.name, words, server=prompt.server)
        self._print(prompt.name, "\n".join(_message(message) for message in messages))
        return ""

    def _progress(self, progress: float, total: float | None, message: str | None) -> None:
        share = f"{progress:g} of {total:g}" if total else f"{progress:g}"
        self._app.say(f"{share} {message or ''}", "yellow")

    def _print(self, title: str, text: str) -> None:
        self._app.print(Text(f"› {one_line(title)}", "bold"))
        self._app.print(Text(safe(mask_text(text[:MAX_SHOWN]))))


def schema_of(offer: OfferRow) -> Mapping[str, Any] | None:
    """Return the schema of the arguments; None without arguments."""
    match offer.kind:
        case "tool":
            return cast("ToolDef", offer.item).input_schema
        case "resource":
            return None
        case "prompt":
            listed = cast("Prompt", offer.item).arguments
            names = [str(one.get("name", "")) for one in listed]
            fields = {
                name: {"type": "string", "description": one.get("description")}
                for name, one in zip(names, listed, strict=True)
            }
            needed = [name for name, one in zip(names, listed, strict=True) if one.get("required")]
            return {"type": "object", "properties": fields, "required": needed} if fields else None


def _message(message: Mapping[str, Any]) -> str:
    content: Any = message.get("content")
    fields = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    text = fields.get("text")
    return f"{message.get('role', '')}: {text if isinstance(text, str) else fields.get('type', '')}"


def _open(app: Dashboard, dialog: LoginDialog, url: str) -> None:
    dialog.show_address(url)
    # A text browser would take over the screen, so open a browser only with a graphical desktop.
    if sys.platform in {"darwin", "win32"} or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        with suppress(ValueError):
            app.open_url(read_link(url).url)


TICK = 1.0
SOON = 0.1
"""Seconds between an event and the update of the screen; a burst of events is drawn once."""
LOG_LINES = 500
OUTPUT_LINES = 2000
OUTPUT_EDGE = 3
"""Columns of the output pane without text: one on each side, and the scrollbar."""
VIEWS = ("offers", "calls", "logs", "output")
USABLE = frozenset({"ready", "degraded"})


class Dashboard(App[None]):
    """The dashboard of one manager."""

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
        """Create a dashboard for a manager that was entered.

        Args:
            mcp: The manager.
            history: The call log with calls of other programs; None: they are not shown.
            asker: Used by the handlers of the manager; it asks in this dashboard.
            consent: Asks about changed tools; None: it does not ask.
            is_light: Whether the terminal has a light background.
            clock: Returns seconds since the epoch.
            time_of: Formats a time of day.
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
        self._offers: list[OfferRow] = []
        self._listings = 0
        """The number of listings; only the latest one is shown."""
        self._words = ""
        self._index: ToolIndex | None = None
        self._searching = threading.Lock()
        self._is_left = False
        self._found: list[str] = []
        """The tools that do what the filter says, if no tool of the server has that name."""
        self._soon: Timer | None = None
        self._head = Text("")
        self._drawn = asyncio.Event()

    # The screen

    def compose(self) -> ComposeResult:
        """Create the widgets."""
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
        """Start listening to events and drawing."""
        self._subscription = self._mcp.events()
        self.run_worker(self._listen(self._subscription), group="events")
        self.set_interval(TICK, self._tick)
        self.query_one(ServersTable).focus()
        self._show_view()
        self.draw()
        if self._mcp.settings.problems:
            self.say(f"{exits.problem_count(self._mcp.settings)}: {exits.CHECK}", "yellow")
        self._poll()
        self._review()

    def on_resize(self) -> None:
        """Fit the tables to the new size."""
        self._draw_offers()
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        """Update the screen; unchanged parts are not redrawn."""
        self._soon = None
        if not self.is_running:
            # During shutdown, widgets are removed one by one.
            return
        statuses, metrics = self._mcp.status(), self._mcp.metrics()
        width = self.size.width
        is_on = self._jobs.is_on
        self._draw_head(summary(statuses.values(), metrics))
        servers = self.query_one(ServersTable)
        settings = self._mcp.settings
        servers.draw(statuses, metrics, is_on=is_on, width=width, settings=settings)
        self._choose(servers.current or "")
        status = statuses.get(self._server)
        problem = next((one_line(str(one)) for one in settings.problems), "")
        if status is None and (row := broken_row(settings, self._server)) is not None:
            problem = f"{one_line(self._server)}  {note_of(row).plain}"
        line = self.query_one(ServerLine)
        spec = settings.server(self._server)
        line.draw(status, is_on=is_on(self._server), width=width, problem=problem, spec=spec)
        self._draw_calls()
        self._draw_logs()
        self._drawn.set()

    async def next_drawing(self) -> None:
        """Wait for the next update of the screen."""
        self._drawn.clear()
        await self._drawn.wait()

    def draw_soon(self) -> None:
        """Schedule an update of the screen."""
        if self._soon is None and self.is_running:
            self._soon = self.set_timer(SOON, self.draw)

    def say(self, text: str, style: str = "") -> None:
        """Show a one-line message next to the command line."""
        if self.is_running:
            self.query_one("#message", Static).update(Text(one_line(text), style))

    def complain(self, text: str) -> None:
        """Show an error next to the command line, and in full in the output pane."""
        self.say(text, "red")
        if self.is_running:
            self._write(Text(f"✗ {safe(text)}", "red"))

    def print(self, renderable: RenderableType) -> None:
        """Write to the output pane and show it."""
        if self.is_running:
            self.show("output")
            self._write(renderable)

    def _write(self, renderable: RenderableType) -> None:
        # Do not use the width of the pane: it may not be visible yet, and a scrollbar may appear later.
        width = max(1, self._pane_width - OUTPUT_EDGE)
        self.query_one("#output", RichLog).write(renderable, width=width)

    def show(self, view: str) -> None:
        """Show one of the panes, without focusing it."""
        if not self.is_running:
            return
        self._view = view
        if view != "calls":
            self._left = view
        self._show_view()
        self.call_after_refresh(self.draw)

    def show_call(self, call_id: str) -> None:
        """Show the calls, with the cursor at one of them."""
        if self.is_running:
            self.show("calls")
            self.query_one(CallsPane).choose(call_id)

    async def on_unmount(self) -> None:
        """Free the index of the filter."""
        await asyncio.to_thread(self._leave_search)

    def _leave_search(self) -> None:
        with self._searching:
            self._is_left = True
            if self._index is not None:
                self._index.close()

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
        self.query_one(OffersPane).draw(
            self._offers, words=self._words, found=self._found, width=self._pane_width
        )

    def _draw_logs(self) -> None:
        pane = self.query_one(LogsPane)
        if not pane.display or self._server not in self._mcp.status():
            return
        lines = self._mcp.logs(self._server, LOG_LINES)
        empty = f"no lines with “{self._words}”" if lines and self._words else "no stderr output yet"
        pane.draw(self._server, lines, words=self._words, empty=empty)

    def _show_view(self) -> None:
        for view in VIEWS:
            pane = self.query_one(f"#{view}")
            pane.set_class(view == self._view, "active")
            pane.set_class(self._view == "calls" and view == self._left, "beside")
        bar = Text()
        for number, view in enumerate(VIEWS, start=1):
            click = Style.from_meta({"@click": f"app.view('{view}')"})
            bar.append(
                f" {number} {'Tools' if view == 'offers' else view.capitalize()} ",
                Style(bold=True, reverse=view == self._view) + click,
            )
            bar.append(" ")
        self.query_one("#bar", Static).update(bar)

    # What happens

    async def _listen(self, subscription: Subscription) -> None:
        async for event in subscription:
            self._on_manager_event(event)
            self.draw_soon()

    def _on_manager_event(self, event: Event) -> None:
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
        """Ask about changed tools."""
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
        # Results of earlier listings are outdated now.
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
        """Show the server at the cursor."""
        self.draw()

    @on(DataTable.RowSelected, "#servers")
    def enter_server(self) -> None:
        """Show the tools, resources and prompts of the server."""
        self.action_view("offers")

    def on_offers_pane_chosen(self, event: OffersPane.Chosen) -> None:
        """Use the chosen item, after asking for its arguments."""
        offer = event.offer
        schema = schema_of(offer)
        if schema is None:
            self._jobs.use(offer, {})
            return

        def on_arguments(arguments: dict[str, Any] | None) -> None:
            if arguments is not None:
                self._jobs.use(offer, arguments)

        self.push_screen(
            ArgumentsDialog(offer.name, schema, verb="call" if offer.kind == "tool" else "get"), on_arguments
        )

    # Keys

    def action_view(self, view: str) -> None:
        """Show and focus one of the panes."""
        self.show(view)
        self._focus_pane()

    def action_help(self) -> None:
        """Show the keys and commands."""
        self.push_screen(Help())

    def action_command(self) -> None:
        """Focus the command line."""
        line = self.query_one(CommandLine)
        if not line.value:
            line.put("/")
        self._enter_line("command")

    def action_filter(self) -> None:
        """Focus the filter."""
        self._enter_line("filter")

    def action_compose_call(self) -> None:
        """Put the item at the cursor into the command line."""
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
        """Disable the chosen server, or enable it again."""
        if self._server:
            self._jobs.switch(self._server)

    def action_login(self) -> None:
        """Log in to the chosen server."""
        if self._server:
            self._jobs.login(self._server)

    def action_reload(self) -> None:
        """Reload the configuration."""
        self._jobs.command("/mcp reload")

    def action_shade(self) -> None:
        """Toggle between the dark and light theme."""
        self.theme = "textual-dark" if self.theme == "textual-light" else "textual-light"

    def action_stop(self) -> None:
        """Stop running actions."""
        self._jobs.stop()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Run a command, or keep the filter."""
        if isinstance(event.input, CommandLine):
            line = event.value.strip()
            event.input.put("")
            if line:
                event.input.remember(line)
                self._jobs.command(line)
        self._leave_line()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while typing."""
        if isinstance(event.input, FilterLine):
            self._words = event.value.strip()
            self._found = []
            self._draw_offers()
            self.draw()
            if self._words and not any(one.matches(self._words) for one in self._offers):
                self.run_worker(self._search(self._words), group="search", exclusive=True)

    async def _search(self, words: str) -> None:
        """Find the server's tools that do what the filter says."""
        tools = list(self._mcp.tools())
        own = {one.name for one in tools if one.server == self._server}
        found = await asyncio.to_thread(self._find, tools, own, words)
        if words == self._words and self.is_running:
            self._found = found
            self._draw_offers()
            self.draw_soon()

    def _find(self, tools: list[ToolDef], own: set[str], words: str) -> list[str]:
        with self._searching:
            if self._is_left:
                return []
            if self._index is None:
                # By words alone: the nearest meanings are not what narrows a list.
                self._index = ToolIndex(semantic=False)
            self._index.update(tools)
            hits = self._index.find(words, limit=MOST_FOUND, among=own.__contains__)
        return [hit.name for hit in hits]

    def on_abandoned(self, _event: Abandoned) -> None:
        """Leave the command line or filter."""
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
