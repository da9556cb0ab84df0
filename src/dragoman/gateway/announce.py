"""Announcer: changes of lists and resources, sent to the clients of both protocol generations.

A client of the older protocol gets notifications on its connection, a modern one on the stream that it opened
with `subscriptions/listen`. A resource is subscribed to at its server while at least one client wants it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, cast

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST

from dragoman.errors import DragomanError
from dragoman.gateway.ids import outer_uri
from dragoman.gateway.principal import principal
from dragoman.gateway.questions import LEVELS
from dragoman.gateway.sdk_server import RawNotification
from dragoman.gateway.stream import LISTS, Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mcp.server.context import ServerRequestContext
    from mcp.server.session import ServerSession
    from mcp_types import ClientCapabilities, SubscriptionsListenRequestParams, SubscriptionsListenResult

    from dragoman.gateway.view import View
    from dragoman.manager.manager import McpManager

logger = logging.getLogger("dragoman")

TELL_SECONDS = 5.0
"""How long a client may take to read a notification."""
MAX_STREAMS = 1_024
"""How many streams of announcements may be open."""
MAX_TASKS = 100
"""How many tasks one stream may follow."""
TASKS_CHANGED = "notifications/tasks"


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
        self._streams: dict[Stream, set[tuple[str, str]]] = {}
        """Open streams, with the servers and URIs that each is subscribed to."""
        self._followed: dict[tuple[str, str], dict[Stream, Callable[[dict[str, Any]], None]]] = {}
        """Who is told of the states of a task, by server and its own id."""
        self._following: dict[tuple[str, str], asyncio.Task[None]] = {}

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
        """Serve one stream of announcements to a modern client.

        Raises:
            MCPError: Too many streams are open.
        """
        if ctx.request_id is None:
            raise MCPError(code=INVALID_REQUEST, message="subscriptions/listen needs a request id")
        if len(self._streams) >= MAX_STREAMS:
            raise MCPError(code=INTERNAL_ERROR, message="too many streams are open")
        wanted = params.notifications.model_dump(by_alias=True)
        # What is granted is acknowledged: a resource that cannot be subscribed to, or the task of someone
        # else, is left out.
        granted: dict[str, Any] = {key: True for key in LISTS if wanted.get(key) is True}
        stream = Stream(view.only, granted)
        subscribed = self._streams[stream] = set()
        try:
            if uris := await self._subscribe_all(view, wanted.get("resourceSubscriptions"), subscribed):
                granted["resourceSubscriptions"] = uris
            if tasks := self._follow_all(view, wanted.get("taskIds"), stream):
                granted["taskIds"] = tasks
            return await stream.serve(ctx)
        finally:
            del self._streams[stream]
            self._unfollow(stream)
            for server, uri in subscribed:
                await self.unsubscribe(server, uri)

    async def _subscribe_all(self, view: View, uris: object, subscribed: set[tuple[str, str]]) -> list[str]:
        honored: list[str] = []
        for uri in cast("list[str]", uris or []):
            try:
                key = await view.owner(uri)
                if key not in subscribed:
                    await self.subscribe(*key)
            except DragomanError as exc:
                logger.info("a client cannot subscribe to `%s`: %s", uri, exc)
            else:
                subscribed.add(key)
                honored.append(uri)
        return honored

    # ── Tasks

    def _follow_all(self, view: View, wanted: object, stream: Stream) -> list[str]:
        """Announce the states of tasks on a stream; return those of the tasks that are this client's."""
        honored: list[str] = []
        for task in cast("list[object]", wanted)[:MAX_TASKS] if isinstance(wanted, list) else ():
            try:
                key = view.task_of(str(task))
            except MCPError as exc:
                logger.info("a client cannot follow a task: %s", exc)
                continue
            self._follow(key, stream, view)
            honored.append(str(task))
        return honored

    def _follow(self, key: tuple[str, str], stream: Stream, view: View) -> None:
        server, task = key

        def tell(state: dict[str, Any]) -> None:
            stream.put(TASKS_CHANGED, view.outer_task(state, server))

        told = self._followed.setdefault(key, {})
        told[stream] = tell
        if key not in self._following:
            # One request at the server, however many streams there are.
            job = self._mcp.forward.follow_task(
                task, server=server, on_state=lambda one: _tell_all(told, one)
            )
            self._following[key] = asyncio.create_task(job, name="dragoman task announcements")

    def _unfollow(self, stream: Stream) -> None:
        for key, told in list(self._followed.items()):
            if told.pop(stream, None) is not None and not told:
                del self._followed[key]
                self._following.pop(key).cancel()

    # ── Events

    async def tools_changed(self, server: str) -> None:
        """Announce that a server's tools have changed."""
        await self._tell(server, LISTS["toolsListChanged"])

    async def resources_changed(self, server: str) -> None:
        """Announce that a server's resources or templates have changed."""
        await self._tell(server, LISTS["resourcesListChanged"])

    async def prompts_changed(self, server: str) -> None:
        """Announce that a server's prompts have changed."""
        await self._tell(server, LISTS["promptsListChanged"])

    async def resource_updated(self, server: str, uri: str) -> None:
        """Announce that a subscribed resource, or one below it, has changed."""
        for stream, subscribed in self._streams.items():
            for name, own in subscribed:
                if name == server and _is_at_or_below(uri, own):
                    shown = own if stream.only == server else outer_uri(server, own)
                    stream.put("notifications/resources/updated", {"uri": shown})
        for client in list(self._clients.values()):
            if any(name == server and _is_at_or_below(uri, own) for name, own in client.subscribed):
                await client.tell("notifications/resources/updated", {"uri": client.uri(server, uri)})

    def close(self) -> None:
        """End every stream; each gets its final result."""
        for stream in self._streams:
            stream.close()

    async def _tell(self, server: str, method: str) -> None:
        for stream in self._streams:
            stream.announce_list(server, method)
        told = [client.tell(method) for client in self._clients.values() if client.server in (None, server)]
        await asyncio.gather(*told)


def _tell_all(told: Mapping[Stream, Callable[[dict[str, Any]], None]], state: dict[str, Any]) -> None:
    for tell in list(told.values()):
        tell(state)


def _is_at_or_below(uri: str, subscribed: str) -> bool:
    return uri == subscribed or uri.startswith(f"{subscribed.rstrip('/')}/")
