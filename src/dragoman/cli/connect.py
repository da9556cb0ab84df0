"""Connect the servers of one command, within `--timeout`, and show progress on stderr."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Self

import click

from dragoman.cli.exits import Exit, code_of_status
from dragoman.cli.options import typed
from dragoman.cli.output import cut, note, safe, terminal_width, warn
from dragoman.cli.remote import GoAloneError, current_command
from dragoman.config.load import refused
from dragoman.errors import (
    AuthRequiredError,
    ConfigError,
    ConnectError,
    DragomanError,
    ServerNotReadyError,
)
from dragoman.storage.files import StoredFile, cache_folder

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from dragoman.cli.options import Options
    from dragoman.diagnosis.explain import Explanation
    from dragoman.gateway.daemon import Command
    from dragoman.manager.manager import McpManager
    from dragoman.model import Handlers, ServerSpec, ServerStatus, Settings
    from dragoman.trust.pins import Trust

TICK = 0.1
SOON = 0.2
"""Seconds before progress is shown in a terminal."""
PAUSE = 4.0
"""Seconds before and between lines outside a terminal."""

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PLAIN_FRAMES = "|/-\\"


class Progress:
    """Shows progress while the context is active."""

    def __init__(self, text: str = "") -> None:
        self.text = text
        """The text to show; may be changed at any time."""
        self._live = sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
        self._task: asyncio.Task[None] | None = None
        self._drawn = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._show(), name="dragoman progress")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        self.clear()

    def clear(self) -> None:
        """Clear the line, so that something else can be printed."""
        if self._drawn:
            self._write("\r\x1b[K")
            self._drawn = False

    def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Show the progress that a server reports for a call."""
        share = f"{progress:g}/{total:g}" if total else f"{progress:g}"
        self.text = " ".join(part for part in (share, safe(" ".join((message or "").split()))) if part)

    async def _show(self) -> None:
        began = last = since = time.monotonic()
        shown = seen = ""
        frame = 0
        while True:
            await asyncio.sleep(TICK)
            now = time.monotonic()
            if self.text != seen:
                seen, since = self.text, now
            if self._live and self.text and now - began >= SOON:
                frame += 1
                self._draw(frame)
            elif not self._live and self.text not in ("", shown) and self._is_due(now - last, now - since):
                shown, last = self.text, now
                self._write(f"{shown}\n")

    def _is_due(self, silent: float, same: float) -> bool:
        """Return whether to print a line: skip short steps, unless there was no line for long."""
        return silent >= PAUSE and (same >= PAUSE / 2 or silent >= 2 * PAUSE)

    def _draw(self, frame: int) -> None:
        frames = _FRAMES if "utf" in (sys.stderr.encoding or "").lower() else _PLAIN_FRAMES
        width = terminal_width() - 1
        # Overwrite the line, then clear the rest: clearing first would flicker.
        self._write(f"\r{cut(f'{frames[frame % len(frames)]} {self.text}', width)}\x1b[K")
        self._drawn = True

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()


BRIEFLY = 5.0
"""The most seconds to wait for a server that the command can do without."""
LATENCY_SECONDS = 2.0
SLOW_SECONDS = 1.0
"""The start of servers that makes a command slow; after the second one, the daemon is named."""
SOON_AGAIN = 600.0
ONCE_IN = 86_400.0
USABLE = frozenset({"ready", "degraded"})
"""States in which a server answers; a degraded one may still have prompts and resources."""


class Connected:
    """A manager whose servers are ready or failed, and the remaining time."""

    def __init__(
        self,
        mcp: McpManager,
        names: Sequence[str],
        *,
        until: float | None,
        limit: float | None,
        show: Progress,
        refused: Mapping[str, ConnectError],
    ) -> None:
        self.mcp = mcp
        self._limit = limit
        self._refused = refused
        self.names = names
        self.show = show
        self._until = until

    @property
    def left(self) -> float | None:
        """Remaining seconds of `--timeout`; None without that option."""
        return None if self._until is None else max(0.1, self._until - time.monotonic())

    def status(self) -> list[ServerStatus]:
        """Return the status of each server."""
        return list(self.mcp.status(self.names).values())

    def code(self, status: ServerStatus) -> Exit:
        """Return the exit code for a server's state."""
        return Exit.DENIED if status.name in self._refused else code_of_status(status)

    async def latency(self, name: str) -> float | None:
        """Measure a small request to a ready server, in seconds; None without an answer."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(min(LATENCY_SECONDS, self.left or LATENCY_SECONDS)):
                # Listing prompts is cheap: most servers have few prompts or none.
                await self.mcp.prompts(name)
        except (DragomanError, TimeoutError):
            return None
        return time.monotonic() - began

    def raise_unless_ready(self, name: str, *, needs_listing: bool = False) -> None:
        """Raise the error of a server that cannot be used.

        Args:
            name: The server.
            needs_listing: Also raise for a connected server that cannot list its tools.

        Raises:
            DragomanError: The reason; its type depends on the status.
        """
        status = self.mcp.status([name])[name]
        if status.state == "ready" or (status.state in USABLE and not needs_listing):
            return
        if name in self._refused:
            raise self._refused[name]
        code = code_of_status(status)
        found = self.explain(name)
        text, hint = found.cause, f"run `{found.next_step}`"
        if code is Exit.LOGIN:
            error = status.error
            reason = error.reason if isinstance(error, ConnectError) else ""
            raise AuthRequiredError(text, server=name, url=status.login_url, reason=reason, hint=hint)
        if code is Exit.CONFIG:
            raise ConfigError(text, hint=hint)
        late = TimeoutError() if code is Exit.TIMEOUT else None
        raise ServerNotReadyError(
            text, server=name, state=status.state, retry_in=status.retry_in, hint=hint
        ) from late

    def explain(self, name: str) -> Explanation:
        """Explain why a server is not ready."""
        from dragoman.diagnosis.explain import Explanation, explain_status

        status = self.mcp.status([name])[name]
        found = explain_status(status, self.mcp.settings.server(name))
        if found is not None and status.error is None and self._limit is not None:
            found = found.replace(cause=f"waiting: no answer yet after {self._limit:g} s")
        found = found or Explanation(cause="not started", next_step=f"dragoman doctor {shlex.quote(name)}")
        return found.replace(next_step=typed(found.next_step))

    def warn_of_failures(self) -> list[Exit]:
        """Warn about servers that are not ready, and return their exit codes."""
        codes: list[Exit] = []
        for status in self.status():
            if (code := self.code(status)) is not Exit.DONE:
                codes.append(code)
                self.show.clear()
                warn(f"{status.name}: {self.explain(status.name)}")
        return codes


def offer_daemon(took: float) -> None:
    """Name the daemon at a terminal, if this is the second slow command in a short time; once a day."""
    from dragoman.gateway.client import is_supported

    if os.environ.get("DRAGOMAN_DAEMON", "").strip() or not sys.stderr.isatty() or not is_supported():
        return
    now, told = time.time(), False

    def change(old: dict[str, float]) -> dict[str, float]:
        nonlocal told
        told = now - old.get("slow", 0.0) < SOON_AGAIN and now - old.get("told", 0.0) > ONCE_IN
        return {**old, "slow": now, **({"told": now} if told else {})}

    with suppress(ConfigError):
        StoredFile(cache_folder() / "slow.json", json.loads, json.dumps, dict[str, float]).change(change)
    if told:
        note(f"The servers took {took:.1f} s to start. To keep them running: dragoman daemon start")


@asynccontextmanager
async def connected(
    options: Options,
    settings: Settings,
    specs: Sequence[ServerSpec],
    *,
    beside: Iterable[ServerSpec] = (),
    handlers: Handlers | None = None,
    default_trust: Trust = "warn",
    once: bool = False,
    briefly: Sequence[str] = (),
    on_settled: Callable[[Connected, str], Awaitable[None]] | None = None,
) -> AsyncGenerator[Connected]:
    """Connect servers, wait until each is ready or failed, and stop them at the end.

    Args:
        options: The time limit, and whether logs are shown.
        settings: The configuration.
        specs: The servers to start, including lazy ones.
        beside: Servers that are started only if needed: fallbacks.
        handlers: Answers to questions of servers and of rules about calls.
        default_trust: For servers without `trust`: `ask` if the command can ask.
        once: Whether to connect each server only once, within its own time limit.
        briefly: The servers that the command can do without: it waits only a few seconds for them.
        on_settled: Called with each server as soon as it is ready or failed, or the time limit has passed.
    """
    if len(specs) == 1 and not options.json:
        await _ask_inputs(settings, specs)
    if (command := current_command.get()) is not None:
        async with _kept_by_daemon(command, options, settings, specs, handlers, default_trust) as live:
            await _wait(live, live.names, on_settled, briefly)
            yield live
        return
    from dragoman.manager.manager import McpManager

    options.quiet_logs()
    until = None if options.timeout is None else time.monotonic() + options.timeout
    # The command needs these servers now, and shows failures itself instead of raising.
    now = [spec.replace(lazy=False, required=False, reconnect=spec.reconnect and not once) for spec in specs]
    limit = options.timeout
    later = [spec.replace(lazy=True, required=False) for spec in beside]
    names = [spec.name for spec in now]
    chosen = settings.replace(servers=[*now, *later], auto_reload=False)
    manager = McpManager(
        chosen, handlers=handlers, default_trust=default_trust, call_log=settings.call_log is not False
    )
    began = time.monotonic()
    async with Progress(_waiting(names)) as show, manager as mcp:
        unapproved = await asyncio.to_thread(refused, settings, now)
        live = Connected(mcp, names, until=until, limit=limit, show=show, refused=unapproved)
        await _wait(live, names, on_settled, briefly)
        took = time.monotonic() - began
        is_ready = all(status.state in USABLE for status in live.status())
        yield live
        show.text = "closing"
    if is_ready and took > SLOW_SECONDS and not (options.server or options.no_daemon):
        offer_daemon(took)


async def _ask_inputs(settings: Settings, specs: Sequence[ServerSpec]) -> None:
    """Ask at the terminal for the inputs that a server needs and that were never answered."""
    from dragoman.config.templates import input_ids

    if not input_ids(specs[0]) or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return
    from dragoman.cli.session.line_editor import TerminalAsker
    from dragoman.cli.session.questions import AbandonedError, ask_inputs, unanswered
    from dragoman.cli.session.screen import Screen

    if not unanswered(settings, specs[0]):
        return
    if current_command.get() is not None:
        raise GoAloneError  # the question needs the client's own terminal
    try:
        await ask_inputs(TerminalAsker(Screen()), settings, specs)
    except AbandonedError:
        raise click.Abort from None


@asynccontextmanager
async def _kept_by_daemon(
    command: Command,
    options: Options,
    settings: Settings,
    specs: Sequence[ServerSpec],
    handlers: Handlers | None,
    default_trust: Trust,
) -> AsyncGenerator[Connected]:
    """Use the servers that the daemon keeps for the client's folder."""
    from dragoman.gateway.workspace import current_handlers

    until = None if options.timeout is None else time.monotonic() + options.timeout
    names = [spec.name for spec in specs]
    async with command.workspaces.use(command.place, settings, default_trust) as workspace:
        mcp = workspace.mcp
        current_handlers.set(handlers)
        unready = [name for name, status in mcp.status(names).items() if status.state != "ready"]
        await mcp.start(unready)
        unapproved = await asyncio.to_thread(refused, settings, specs) if unready else {}
        async with Progress() as show:
            yield Connected(mcp, names, until=until, limit=options.timeout, show=show, refused=unapproved)


async def _wait(
    live: Connected,
    names: Sequence[str],
    report: Callable[[Connected, str], Awaitable[None]] | None,
    briefly: Sequence[str],
) -> None:
    """Wait until servers are ready or failed, show for which, and report each."""
    states = live.mcp.status(names).values()
    if report is None and all(status.state == "ready" for status in states):
        return
    limits = dict.fromkeys(briefly, min(BRIEFLY, live.left or BRIEFLY))
    waiting = {
        asyncio.ensure_future(_settled(live, name, report, limits.get(name, live.left))): name
        for name in names
    }
    try:
        while waiting:
            live.show.text = _waiting(list(waiting.values()), live.mcp.status())
            done, _ = await asyncio.wait(waiting, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                waiting.pop(task)
                task.result()
    finally:
        for task in waiting:
            task.cancel()
    live.show.text = ""


async def _settled(
    live: Connected,
    name: str,
    report: Callable[[Connected, str], Awaitable[None]] | None,
    limit: float | None,
) -> None:
    await live.mcp.wait_ready([name], timeout=limit)
    if report is not None:
        await report(live, name)


def _waiting(names: Sequence[str], states: Mapping[str, ServerStatus] | None = None) -> str:
    slow = [name for name in names if states is not None and states[name].downloading]
    fast = [name for name in names if name not in slow]
    pieces = (("downloading", slow), ("connecting to", fast))
    return "; ".join(f"{verb} {', '.join(listed)}" for verb, listed in pieces if listed)
