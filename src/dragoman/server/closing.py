"""Waits that no cancellation cuts short: for the end of a connection, for work that cannot stop half-way."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TypeVar

from dragoman.server.late_import import anyio_shield

logger = logging.getLogger("dragoman")

CLOSE_LIMIT = 15.0
"""Longer than a connection takes to close. After it the owner is cancelled; after it again, abandoned."""


T = TypeVar("T")


async def uninterrupted(work: asyncio.Future[T]) -> asyncio.CancelledError | None:
    """Wait for work that must not be interrupted; return a cancellation that arrived meanwhile."""
    cancelled: asyncio.CancelledError | None = None
    # The scope keeps out anyio's cancellations, the loop below asyncio's.
    with anyio_shield():
        while not work.done():
            try:
                await asyncio.wait({work})
            except asyncio.CancelledError as exc:
                cancelled = exc
    return cancelled


async def wait_closed(owner: asyncio.Task[None], name: str) -> None:
    """Wait in bounded time for the owner task to end; a cancellation is raised only after that."""
    cancelled: asyncio.CancelledError | None = None
    limit = time.monotonic() + CLOSE_LIMIT
    # A caller that is cancelled must not leave a process behind. The shielded scope holds back anyio's
    # cancellations; the loop catches asyncio's own and raises it at the end.
    with anyio_shield():
        while not owner.done():
            try:
                _, late = await asyncio.wait({owner}, timeout=max(0.0, limit - time.monotonic()))
            except asyncio.CancelledError as exc:
                cancelled = exc
                continue
            if late and owner.cancelling():
                logger.error("%s: the connection did not close and was abandoned", name)
                break
            if late:
                owner.cancel()
                limit += CLOSE_LIMIT
    if cancelled is not None:
        raise cancelled
