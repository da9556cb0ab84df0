"""`dragoman top`: the dashboard, on the servers of the configuration or on the bundled demo ones."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AsyncExitStack, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from dragoman.cli.options import Options, common_options
from dragoman.cli.running import run

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from dragoman.manager import McpManager
    from dragoman.model import Handlers

LIGHT = frozenset({"7", "15"})
"""Colours of a light background, as `COLORFGBG` counts them."""


@click.command()
@common_options
@click.option("--demo", is_flag=True, help="Show the bundled demo servers instead of the configured ones.")
@click.option(
    "--theme",
    type=click.Choice(["auto", "dark", "light"]),
    default="auto",
    show_default=True,
    help="Which colours; `t` changes them.",
)
@click.pass_obj
def top(options: Options, demo: bool, theme: str) -> None:
    """Watch the servers: states, latencies, calls, logs; call tools, restart, switch, log in by key.

    Calls of other programs show up too, if they write the call log. Leaving stops the servers. `?` shows the
    keys.
    """
    from dragoman.errors import DragomanError

    if options.json:
        msg = "`dragoman top` is for people"
        raise DragomanError(msg, hint="`dragoman status --json` is for programs")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        msg = "`dragoman top` needs a terminal"
        raise DragomanError(msg, hint="`dragoman status` prints the servers anywhere")
    if find_spec("textual") is None:
        msg = "`dragoman top` needs Textual"
        raise DragomanError(msg, hint="install `dragoman[tui]`, or use `dragoman status`")
    is_light = theme == "light" or (theme == "auto" and has_light_background(os.environ))
    run(_top(options, demo=demo, is_light=is_light))


def has_light_background(env: Mapping[str, str]) -> bool:
    """Tell whether the terminal says that its background is light."""
    return env.get("COLORFGBG", "").rpartition(";")[2] in LIGHT


async def _top(options: Options, *, demo: bool, is_light: bool) -> None:
    from dragoman.cli.dashboard import pictures
    from dragoman.cli.dashboard.app import Dashboard
    from dragoman.cli.dashboard.asking import ScreenAsker
    from dragoman.cli.dashboard.quiet import kept_logs
    from dragoman.cli.progress import Progress
    from dragoman.cli.session.consent import Consent
    from dragoman.model import Handlers
    from dragoman.observe.call_history import CallHistory

    asker = ScreenAsker()
    pictures.prepare()
    async with AsyncExitStack() as stack:
        show = await stack.enter_async_context(Progress("starting"))
        stack.enter_context(kept_logs())
        consent = Consent(asker)
        mcp = await _manager(stack, options, Handlers(approval=consent.approve_call), demo=demo)
        history = CallHistory(mcp.call_log.path) if mcp.call_log is not None else None
        show.text = ""
        show.clear()
        board = Dashboard(mcp, history=history, asker=asker, consent=consent, is_light=is_light)
        with _on_signals(board.exit):
            await board.run_async()
        show.text = "stopping the servers"


async def _manager(stack: AsyncExitStack, options: Options, handlers: Handlers, *, demo: bool) -> McpManager:
    from dragoman.manager import McpManager

    if demo:
        from dragoman.demo.launch import demo_servers

        specs = await stack.enter_async_context(demo_servers())
        return await stack.enter_async_context(McpManager(specs, handlers=handlers, call_log=True))
    mcp = McpManager.from_config(
        options.profile, config=options.config, handlers=handlers, call_log=True, default_trust="ask"
    )
    return await stack.enter_async_context(mcp)


@contextmanager
def _on_signals(action: Callable[[], None]) -> Generator[None]:
    """Leave as `q` does when the terminal is closed or the program is told to end."""
    import signal

    loop = asyncio.get_running_loop()
    wanted = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in wanted}
    try:
        for number in wanted:
            loop.add_signal_handler(number, action)
    except NotImplementedError:  # Windows: Ctrl-C is a key there too, while the dashboard runs
        yield
        return
    try:
        yield
    finally:
        for number in wanted:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])
