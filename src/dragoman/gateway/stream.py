"""Stream: the announcements that a modern client gets in the response to its `subscriptions/listen`."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import SubscriptionsListenResult

from dragoman.gateway.sdk_server import RawNotification

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.server.context import ServerRequestContext

logger = logging.getLogger("dragoman")

MAX_WAITING = 1_024
"""How many announcements may wait for a client that does not read; its stream ends then."""
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
LISTS = {
    "toolsListChanged": "notifications/tools/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
}
"""The announcements of changed lists, by the key that asks for them."""


class Stream:
    """One stream; it begins with what of the wish is granted."""

    def __init__(self, only: str | None, granted: Mapping[str, Any]) -> None:
        """Prepare a stream.

        Args:
            only: The only server that its endpoint shows.
            granted: What the client wants and gets, as it asked for it.
        """
        self.only = only
        self._granted = granted
        self._methods = {method for key, method in LISTS.items() if granted.get(key) is True}
        self._waiting: deque[tuple[str, Mapping[str, Any]]] = deque()
        self._changed = asyncio.Event()
        self._closed = False

    def announce_list(self, server: str, method: str) -> None:
        """Announce that a list of a server has changed, if that is wanted; once, until it is sent."""
        if self.only in (None, server) and method in self._methods and (method, {}) not in self._waiting:
            self.put(method, {})

    def put(self, method: str, params: Mapping[str, Any]) -> None:
        """Announce something."""
        if len(self._waiting) >= MAX_WAITING:
            logger.warning("a client does not read its announcements: its stream is ended")
            self._waiting.clear()
            self.close()
        elif not self._closed:
            self._waiting.append((method, params))
            self._changed.set()

    def close(self) -> None:
        """End the stream after what waits; the client gets the final result."""
        self._closed = True
        self._changed.set()

    async def serve(self, ctx: ServerRequestContext[Any]) -> SubscriptionsListenResult:
        """Send announcements until the client hangs up or the stream is closed."""
        meta: Any = {SUBSCRIPTION_ID_META_KEY: ctx.request_id}

        async def send(method: str, params: Mapping[str, Any]) -> None:
            message = cast("Any", RawNotification(method, {**params, "_meta": meta}))
            await ctx.session.send_notification(message, related_request_id=ctx.request_id)

        await send(ACKNOWLEDGED, {"notifications": self._granted})
        while self._waiting or not self._closed:
            while self._waiting:
                await send(*self._waiting.popleft())
            self._changed.clear()
            if not self._closed:
                await self._changed.wait()
        return SubscriptionsListenResult(_meta=meta)
