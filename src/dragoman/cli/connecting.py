"""Connected servers for one command: only those that it needs, within its time, with progress shown."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from dragoman.cli.exits import Exit, code_of_status
from dragoman.cli.known import refused
from dragoman.cli.output import warn
from dragoman.cli.progress import Progress
from dragoman.errors import (
    AuthRequiredError,
    ConfigError,
    ConnectError,
    DragomanError,
    ServerNotReadyError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence

    from dragoman.cli.options import Options
    from dragoman.manager import McpManager
    from dragoman.model import Handlers, ServerSpec, ServerStatus, Settings
    from dragoman.trust.pins import Trust


LATENCY_SECONDS = 2.0
USABLE = frozenset({"ready", "degraded"})
"""States in which a server answers; without a listing it may still have prompts and resources."""


class Connected:
    """A manager whose servers are ready or have failed, and the time that is left."""

    def __init__(
        self,
        mcp: McpManager,
        names: Sequence[str],
        *,
        until: float | None,
        show: Progress,
        refused: Mapping[str, ConnectError],
    ) -> None:
        self.mcp = mcp
        self._refused = refused
        self.names = names
        self.show = show
        self._until = until

    @property
    def left(self) -> float | None:
        """Seconds that are left of `--timeout`; nothing if none was given."""
        return None if self._until is None else max(0.1, self._until - time.monotonic())

    def status(self) -> list[ServerStatus]:
        """Return a reading of each server."""
        found = self.mcp.status()
        return [found[name] for name in self.names]

    def code(self, status: ServerStatus) -> Exit:
        """Return what a server's state means for the exit code."""
        return Exit.DENIED if status.name in self._refused else code_of_status(status)

    async def latency(self, name: str) -> float | None:
        """Return how many seconds a small request to a ready server takes; nothing if it is not answered."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(min(LATENCY_SECONDS, self.left or LATENCY_SECONDS)):
                # Nearly every server has few prompts or none, and whoever has none says so at once.
                await self.mcp.prompts(name)
        except (DragomanError, TimeoutError):
            return None
        return time.monotonic() - began

    def raise_unless_ready(self, name: str, *, needs_listing: bool = False) -> None:
        """Raise the error of a server that cannot be used.

        Args:
            name: The server.
            needs_listing: Whether one that is connected but cannot list its tools is of no use either.

        Raises:
            DragomanError: It says why; its type is as telling as the status is.
        """
        status = self.mcp.status()[name]
        if status.state == "ready" or (status.state in USABLE and not needs_listing):
            return
        if name in self._refused:
            raise self._refused[name]
        code = code_of_status(status)
        text = trouble(status)
        if code is Exit.LOGIN:
            hint = f"`dragoman login {name}`"
            raise AuthRequiredError(text, server=name, url=status.login_url, hint=hint)
        if code is Exit.CONFIG:
            raise ConfigError(text)
        late = TimeoutError() if code is Exit.TIMEOUT else None
        raise ServerNotReadyError(text, server=name, state=status.state, retry_in=status.retry_in) from late

    def warn_of_failures(self) -> list[Exit]:
        """Say on standard error which servers are not ready; return what that means for the exit code."""
        codes: list[Exit] = []
        for status in self.status():
            if (code := self.code(status)) is not Exit.DONE:
                codes.append(code)
                self.show.clear()
                warn(f"{status.name}: {' '.join(trouble(status).split())}")
        return codes


def trouble(status: ServerStatus) -> str:
    """Say why a server is not ready."""
    return status.last_error or f"it is still {status.state.value}"


@asynccontextmanager
async def connected(
    options: Options,
    settings: Settings,
    specs: Sequence[ServerSpec],
    *,
    beside: Iterable[ServerSpec] = (),
    handlers: Handlers | None = None,
    default_trust: Trust = "warn",
) -> AsyncGenerator[Connected]:
    """Connect servers and wait until each is ready or has failed; leaving stops them.

    Args:
        options: Say how long, and whether logs are shown.
        settings: What the configuration says.
        specs: The servers, which are started also if they are lazy.
        beside: Servers that may be started when they are needed: fallbacks.
        handlers: What the command answers when a server, or a rule about calls, asks.
        default_trust: The trust of servers that say nothing about it: `ask` where the command asks.
    """
    from dragoman.manager import McpManager

    options.quiet_logs()
    until = None if options.timeout is None else time.monotonic() + options.timeout
    # What is asked for now is not lazy, and a failure is shown with the rest instead of raised.
    now = [replace(spec, lazy=False, required=False) for spec in specs]
    later = [replace(spec, lazy=True, required=False) for spec in beside]
    names = [spec.name for spec in now]
    chosen = replace(settings, servers=[*now, *later], auto_reload=False)
    manager = McpManager(chosen, handlers=handlers, default_trust=default_trust)
    async with Progress(_waiting(names)) as show, manager as mcp:
        waiting = asyncio.ensure_future(mcp.wait_ready(names, timeout=options.timeout))
        try:
            while not waiting.done():
                await asyncio.wait({waiting}, timeout=0.2)
                states = mcp.status()
                show.text = _waiting([name for name in names if states[name].state == "connecting"])
            waiting.result()
        finally:
            waiting.cancel()
        show.text = ""
        unapproved = await asyncio.to_thread(refused, settings, now)
        yield Connected(mcp, names, until=until, show=show, refused=unapproved)
        show.text = "closing"


def _waiting(names: Sequence[str]) -> str:
    return f"connecting to {', '.join(names)}" if names else ""
