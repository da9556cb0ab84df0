"""Waiting for the task that owns a server to end: in bounded time, whoever is cancelled meanwhile."""

from __future__ import annotations

import asyncio
import logging
import time

logger = logging.getLogger("dragoman")

CLOSE_LIMIT = 15.0
"""More than a connection ever takes to close; past it the owner is cancelled, then given up."""


async def see_off(owner: asyncio.Task[None], name: str) -> None:
    """Wait for the owner of a server to end, in bounded time; a cancellation is raised only after that."""
    import anyio

    cancelled: asyncio.CancelledError | None = None
    limit = time.monotonic() + CLOSE_LIMIT
    # The scope keeps anyio's cancellations out, the loop below asyncio's own.
    with anyio.CancelScope(shield=True):
        while not owner.done():
            try:
                _, late = await asyncio.wait({owner}, timeout=max(0.0, limit - time.monotonic()))
            except asyncio.CancelledError as exc:
                cancelled = exc
                continue
            if late and owner.cancelling():
                logger.error("%s: its connection does not close and was abandoned", name)
                break
            if late:
                owner.cancel()
                limit += CLOSE_LIMIT
    if cancelled is not None:
        raise cancelled
