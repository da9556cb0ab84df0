"""Announcer: changes of lists and resources, sent to the clients of both protocol generations.

A client of the older protocol gets notifications on its connection, a modern one on the stream that it opened
with `subscriptions/listen`. A resource is subscribed to at its server while at least one client wants it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, cast

from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)

from dragoman.errors import DragomanError
from dragoman.gateway.ids import outer_uri
from dragoman.gateway.principal import principal
from dragoman.gateway.questions import LEVELS
from dragoman.gateway.sdk_server import RawNotification

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.server.context import ServerRequestContext
    from mcp.server.session import ServerSession
    from mcp_types import ClientCapabilities, SubscriptionsListenRequestParams, SubscriptionsListenResult

    from dragoman.gateway.view import View
    from dragoman.manager.manager import McpManager

logger = logging.getLogger("dragoman")

TELL_SECONDS = 5.0
"""How long a client may take to read a notification."""


class Client:
    """One connection of the older protocol."""

    def __init__(self, session: ServerSession, server: str | None) -> None:
        self._session = session
        self.server = server
        """The only server that its endpoint shows."""
        self.level = ""
        """The lowest level of log messages that it wants; empty for none."""
        self.subscribed: set[tuple[str, str]] = set()
        """Servers and their own URIs."""
        self.principal = principal()
        """Who opened it; the only one who may use it."""
        self.used = time.monotonic()
        """When it was used last in a way that keeps its session from expiring."""

    @property
    def capabilities(self) -> ClientCapabilities | None:
        """What the client declares."""
        return self._session.client_capabilities

    async def tell(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification; a client that does not read loses it, and holds nothing up."""
        try:
            async with asyncio.timeout(TELL_SECONDS):
                await self._session.send_notification(cast("Any", RawNotification(method, params or {})))
        except TimeoutError:
            logger.warning("a client does not read: `%s` was dropped", method)
        except Exception as exc:  # noqa: BLE001 -- a connection that ends in this moment is no trouble
            logger.debug("could not send `%s`: %s", method, exc)

    def uri(self, server: str, uri: str) -> str:
        """Return the URI that this client knows a resource by."""
        return uri if self.server == server else outer_uri(server, uri)


class Announcer:
    """Everything that clients are told without having asked in that moment."""

    def __init__(self, mcp: McpManager) -> None:
        self._mcp = mcp
        self._clients: dict[int, Client] = {}
        """By the identity of their connections."""
        self._wanted: dict[tuple[str, str], int] = {}
        """How many clients subscribe to a resource, by server and URI."""
        self._buses: dict[str | None, InMemorySubscriptionBus] = {}
        self._listens: dict[str | None, ListenHandler] = {}

    # ── Clients of the older protocol

    def knows(self, key: int) -> bool:
        """Return whether a connection is remembered."""
        return key in self._clients

    def add(self, key: int, session: ServerSession, server: str | None) -> Client:
        """Remember a connection, and return its record."""
        client = self._clients.get(key)
        if client is None:
            client = self._clients[key] = Client(session, server)
        return client

    async def remove(self, key: int) -> None:
        """Forget a connection and its subscriptions."""
        client = self._clients.pop(key, None)
        if client is not None:
            for server, uri in client.subscribed:
                await self.unsubscribe(server, uri)

    async def log(self, server: str, params: Mapping[str, Any]) -> None:
        """Send a log message from outside requests to the connections that want its level."""
        level = params.get("level")
        for client in list(self._clients.values()):
            wanted = client.level and level in LEVELS and LEVELS.index(level) >= LEVELS.index(client.level)
            if wanted and client.server in (None, server):
                await client.tell("notifications/message", params)

    def lowest_level(self) -> str:
        """Return the lowest level that a connection wants; empty if none wants log messages."""
        levels = [client.level for client in self._clients.values() if client.level]
        return min(levels, key=LEVELS.index) if levels else ""

    # ── Subscriptions

    async def subscribe(self, server: str, uri: str) -> None:
        """Subscribe to a resource at its server, for one more client.

        Raises:
            DragomanError: The server does not announce its changes, or the policy denies it.
        """
        self._wanted[server, uri] = self._wanted.get((server, uri), 0) + 1
        try:
            await self._mcp.subscribe(uri, server)
        except BaseException:
            await self.unsubscribe(server, uri)
            raise

    async def unsubscribe(self, server: str, uri: str) -> None:
        """End the subscription of one client."""
        left = self._wanted.get((server, uri), 0) - 1
        if left > 0:
            self._wanted[server, uri] = left
            return
        if self._wanted.pop((server, uri), None) is not None:
            try:
                await self._mcp.unsubscribe(uri, server)
            except DragomanError as exc:
                logger.info("%s: could not unsubscribe from `%s`: %s", server, uri, exc)

    async def listen(
        self, view: View, ctx: ServerRequestContext[Any], params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Serve one stream of announcements to a modern client."""
        subscribed: list[tuple[str, str]] = []
        honored: list[str] = []
        for uri in params.notifications.resource_subscriptions or ():
            try:
                server, own = await view.owner(uri)
                await self.subscribe(server, own)
            except DragomanError as exc:
                # The acknowledgement says which subscriptions are served.
                logger.info("a client cannot subscribe to `%s`: %s", uri, exc)
            else:
                subscribed.append((server, own))
                honored.append(uri)
        kept = params.notifications.model_copy(update={"resource_subscriptions": honored or None})
        try:
            return await self._listen(view.only)(ctx, params.model_copy(update={"notifications": kept}))
        finally:
            for server, own in subscribed:
                await self.unsubscribe(server, own)

    # ── Events

    async def tools_changed(self, server: str) -> None:
        """Announce that a server's tools have changed."""
        await self._tell(server, "notifications/tools/list_changed")
        await self._publish(server, ToolsListChanged())

    async def resources_changed(self, server: str) -> None:
        """Announce that a server's resources or templates have changed."""
        await self._tell(server, "notifications/resources/list_changed")
        await self._publish(server, ResourcesListChanged())

    async def prompts_changed(self, server: str) -> None:
        """Announce that a server's prompts have changed."""
        await self._tell(server, "notifications/prompts/list_changed")
        await self._publish(server, PromptsListChanged())

    async def resource_updated(self, server: str, uri: str) -> None:
        """Announce that a subscribed resource, or one below it, has changed."""
        for client in list(self._clients.values()):
            if any(name == server and _is_at_or_below(uri, own) for name, own in client.subscribed):
                await client.tell("notifications/resources/updated", {"uri": client.uri(server, uri)})
        for own in {own for name, own in self._wanted if name == server and _is_at_or_below(uri, own)}:
            for only, bus in list(self._buses.items()):
                shown = own if only == server else outer_uri(server, own)
                await bus.publish(ResourceUpdated(uri=shown))

    def close(self) -> None:
        """End every stream; each gets its final result."""
        for listen in self._listens.values():
            listen.close()

    async def _tell(self, server: str, method: str) -> None:
        told = [client.tell(method) for client in self._clients.values() if client.server in (None, server)]
        await asyncio.gather(*told)

    async def _publish(self, server: str, event: Any) -> None:
        for only, bus in list(self._buses.items()):
            if only in (None, server):
                await bus.publish(event)

    def _listen(self, only: str | None) -> ListenHandler:
        if only not in self._listens:
            bus = self._buses[only] = InMemorySubscriptionBus()
            self._listens[only] = ListenHandler(bus)
        return self._listens[only]


def _is_at_or_below(uri: str, subscribed: str) -> bool:
    return uri == subscribed or uri.startswith(f"{subscribed.rstrip('/')}/")
