"""Waiting for what a test is about: an event, never a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from dragoman.events import StateChanged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from dragoman.events import Event
    from dragoman.manager.manager import McpManager

E = TypeVar("E")
PATIENCE = 50
"""Seconds; a guard against hangs."""


async def until(events: AsyncIterator[Event], kind: type[E], *, times: int = 1, **fields: object) -> E:
    """Read events until one of a kind and with these fields came so many times, and return it."""
    async for event in events:
        if isinstance(event, kind) and all(getattr(event, name) == value for name, value in fields.items()):
            times -= 1
            if not times:
                return event
    raise AssertionError("the events ended")


async def until_state(mcp: McpManager, state: str, *, times: int = 1) -> Any:
    """Wait until a server comes into a state, so many times from now on."""
    return await until(mcp.events(), StateChanged, times=times, after=state)


async def until_status(mcp: McpManager, condition: Callable[[], bool]) -> None:
    """Wait until something holds of the states of the servers; it may already."""
    events = mcp.events()
    with anyio.fail_after(PATIENCE):
        while not condition():
            await until(events, StateChanged)
