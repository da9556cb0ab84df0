"""`dragoman top`: the dashboard, for the configured servers or the demo servers."""

from __future__ import annotations

import logging
import os
import sys
from collections import deque
from contextlib import AsyncExitStack, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from dragoman.cli.connect import Progress
from dragoman.cli.exits import run
from dragoman.cli.options import Options, common_options
from dragoman.version import install_command

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from dragoman.manager.manager import McpManager
    from dragoman.model import Handlers

LIGHT = frozenset({"7", "15"})
"""Light background colors in `COLORFGBG`."""


@click.command()
@common_options
@click.option("--demo", is_flag=True, help="Use the bundled demo servers.")
@click.option(
    "--theme",
    type=click.Choice(["auto", "dark", "light"]),
    default="auto",
    show_default=True,
    help="Color theme; press `t` to change it.",
)
@click.pass_obj
def top(options: Options, demo: bool, theme: str) -> None:
    """Watch servers, calls and logs in a dashboard; call tools, restart servers, log in.

    Calls of other programs are shown too, if they record calls. Press `?` for the keys. The servers are
    stopped when you quit.
    """
    from dragoman.errors import DragomanError

    if options.json:
        msg = "`dragoman top` does not support --json"
        raise DragomanError(msg, hint="use `dragoman status --json`")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        msg = "`dragoman top` needs a terminal"
        raise DragomanError(msg, hint="use `dragoman status`")
    if find_spec("textual") is None:
        msg = "`dragoman top` needs Textual"
        raise DragomanError(msg, hint=f"install it: {install_command('tui')}")
    is_light = theme == "light" or (theme == "auto" and has_light_background(os.environ))
    run(_top(options, demo=demo, is_light=is_light))


def has_light_background(env: Mapping[str, str]) -> bool:
    """Return whether the terminal reports a light background."""
    return env.get("COLORFGBG", "").rpartition(";")[2] in LIGHT


async def _top(options: Options, *, demo: bool, is_light: bool) -> None:
    from dragoman.cli.dashboard import lists
    from dragoman.cli.dashboard.app import Dashboard
    from dragoman.cli.dashboard.dialogs import ScreenAsker
    from dragoman.cli.session.questions import Consent
    from dragoman.model import Handlers
    from dragoman.observe.call_history import CallHistory

    asker = ScreenAsker()
    lists.prepare()
    async with AsyncExitStack() as stack:
        show = await stack.enter_async_context(Progress("starting"))
        stack.enter_context(kept_logs())
        consent = Consent(asker)
        mcp = await watched_manager(stack, options, Handlers(approval=consent.approve_call), demo=demo)
        history = CallHistory(mcp.call_log.path) if mcp.call_log is not None else None
        show.text = ""
        show.clear()
        board = Dashboard(mcp, history=history, asker=asker, consent=consent, is_light=is_light)
        with _on_signals(board.exit):
            await board.run_async()
        show.text = "stopping the servers"


async def watched_manager(
    stack: AsyncExitStack, options: Options, handlers: Handlers, *, demo: bool
) -> McpManager:
    """Return a started manager for a person who watches it: it records calls and asks about changed tools."""
    from dragoman.manager.manager import McpManager

    if demo:
        from dragoman.demo.launch import demo_servers

        specs = await stack.enter_async_context(demo_servers())
        return await stack.enter_async_context(McpManager(specs, handlers=handlers, call_log=True))
    mcp = McpManager.from_config(
        options.with_hosts(),
        config=options.config,
        handlers=handlers,
        call_log=options.load().call_log is not False,
        default_trust="ask",
        approvals="inbox",
    )
    return await stack.enter_async_context(mcp)


@contextmanager
def _on_signals(action: Callable[[], None]) -> Generator[None]:
    """Quit as `q` does when the terminal is closed or a signal arrives."""
    import signal

    from dragoman.server.process.signals import on_signal

    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    undo = [on_signal(number, action) for number in numbers]
    try:
        yield
    finally:
        for one in undo:
            one()


KEPT = 500


class LogKeeper(logging.Handler):
    """Keeps the last log lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=KEPT)
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        try:
            self.lines.append(self.format(record))
        except Exception:  # noqa: BLE001 -- a log call with wrong arguments must not stop the dashboard
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 -- logging's name
        """Ignore the error: stderr is the screen."""


@contextmanager
def kept_logs() -> Generator[LogKeeper]:
    """Keep all log lines instead of writing them, however logging is set up."""
    keeper = LogKeeper()
    loggers = [logging.getLogger(), *_with_handlers()]
    before = [(logger, logger.handlers[:]) for logger in loggers]
    for logger in loggers:
        logger.handlers = []
    logging.getLogger().addHandler(keeper)
    try:
        yield keeper
    finally:
        for logger, handlers in before:
            logger.handlers = handlers


def _with_handlers() -> list[logging.Logger]:
    """Return the loggers below the root that have handlers."""
    known = logging.getLogger().manager.loggerDict.values()
    return [one for one in known if isinstance(one, logging.Logger) and one.handlers]
