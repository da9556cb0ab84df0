"""A person at the dashboard: presses keys, looks at the screen, and waits until something is there."""

from __future__ import annotations

import os
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from dragoman.cli.dashboard.app import Dashboard
from dragoman.cli.dashboard.dialogs import ScreenAsker
from dragoman.manager.manager import McpManager
from dragoman.observe.call_history import CallHistory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
    from pathlib import Path

    from textual.pilot import Pilot

    from dragoman.cli.session.questions import Consent
    from dragoman.model import Handlers, ServerSpec, Settings

SMALL, LARGE = (80, 24), (200, 50)
PATIENCE = float(os.environ.get("PATIENCE", "30"))
"""Seconds, of the real kind; a test that waits longer waits for what never comes."""


class Seat:
    """Where the person sits."""

    def __init__(self, mcp: McpManager, app: Dashboard, pilot: Pilot[Any]) -> None:
        self.mcp = mcp
        self.app = app
        self.pilot = pilot

    @property
    def lines(self) -> list[str]:
        """What is on the screen, without its colours."""
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).rstrip() for strip in strips]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def words(self) -> str:
        """The same on one line: what is wrapped in a pane as wide as the screen is together again."""
        return " ".join(self.text.split())

    async def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        await self.pilot.press(*keys)

    async def type(self, text: str) -> None:
        """Type a text, letter by letter."""
        await self.pilot.press(*("space" if letter == " " else letter for letter in text))

    async def command(self, line: str) -> None:
        """Type a slash command and send it off."""
        await self.press("slash")
        await self.type(line.removeprefix("/"))
        await self.press("enter")

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for the drawing after which the condition holds; there is one a second at least."""
        until = time.perf_counter() + PATIENCE
        while time.perf_counter() < until:
            if condition():
                return
            await self.app.next_drawing()
            await self.pilot.pause()
        pytest.fail(f"this is not what was waited for:\n{self.text}")

    async def sees(self, *texts: str) -> None:
        """Wait until all of these are on the screen."""
        await self.until(lambda: all(text in self.text or text in self.words for text in texts))


@asynccontextmanager
async def seated(
    specs: Iterable[ServerSpec] | Settings,
    *,
    size: tuple[int, int] = SMALL,
    log: Path | None = None,
    history: Path | None = None,
    handlers: Callable[[ScreenAsker], Handlers] | None = None,
    consent: Callable[[ScreenAsker], Consent] | None = None,
    before: Callable[[McpManager], Awaitable[None]] | None = None,
    **rules: Any,
) -> AsyncIterator[Seat]:
    """Sit down before the dashboard of a real manager.

    Args:
        specs: Its servers, or all that the configuration says.
        size: Columns and lines of the screen.
        log: Where the manager writes its calls down; the dashboard reads it too.
        history: What the dashboard reads instead, the manager writing nothing.
        handlers: Makes the manager's handlers of who asks the person.
        consent: Makes what asks about changed tools of it.
        before: Done with the manager before the dashboard is there; its servers are waited for unless given.
        rules: Further ones for the manager.
    """
    asker = ScreenAsker()
    rules |= {"handlers": handlers(asker)} if handlers else {}
    async with McpManager(specs, cache=False, call_log=log or False, **rules) as mcp:
        await (before(mcp) if before else mcp.wait_ready())
        path = history or log
        calls = CallHistory(path) if path else None
        app = Dashboard(
            mcp,
            history=calls,
            asker=asker,
            consent=consent(asker) if consent else None,
            clock=lambda: 1_790_000_000.0,
            time_of=utc,
        )
        async with app.run_test(size=size) as pilot:
            yield Seat(mcp, app, pilot)


def utc(at: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(at))
