"""Announcer: changes of lists and resources, sent to the clients of both protocol generations.

A client of the older protocol gets notifications on its connection, a modern one in the response to its
`subscriptions/listen`. A resource is subscribed to at its server while at least one client wants it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, cast

from dragoman.errors import DragomanError
from dragoman.gateway.ids import outer_uri
from dragoman.gateway.request import wants_level
from dragoman.manager.manager import parts_of
from dragoman.server.protocol.envelope import INTERNAL_ERROR, LEVELS, MCPError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.gateway.connection import ClientConnection
    from dragoman.gateway.request import ClientRequest
    from dragoman.gateway.view import View
    from dragoman.manager.manager import McpManager

logger = logging.getLogger("dragoman")

MAX_STREAMS = 1_024
"""How many streams of announcements may be open."""
MAX_WANTED = 1_000
"""How many resources one stream may subscribe to."""
MAX_TASKS = 100
"""How many tasks one stream may follow."""
TASKS_CHANGED = "notifications/tasks"
UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
LISTS = {
    "toolsListChanged": "notifications/tools/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
}
"""The announcements of changed lists, by the key that asks for them."""


class Stream:
    """What a modern client gets in the response to its `subscriptions/listen`."""

    def __init__(self, view: View, request: ClientRequest, wanted: Mapping[str, Any]) -> None:
        self.view = view
        self.only = view.only
        self._request = request
        self._methods = {method for key, method in LISTS.items() if wanted.get(key) is True}
        self.subscribed: set[tuple[str, str]] = set()
        """Servers and their own URIs."""
        self.ended = asyncio.Event()

    def announce(self, method: str, params: Mapping[str, Any]) -> None:
        """Announce something; a change of a list is said once, until it is sent."""
        meta = {SUBSCRIPTION_ID: self._request.id}
        self._request.put({"method": method, "params": {**params, "_meta": meta}})

    def wants(self, method: str) -> bool:
        """Return whether the client has asked for the changes of a list."""
        return method in self._methods

    def updated(self, server: str, uri: str, subscribed: list[str]) -> list[str]:  # noqa: ARG002 -- as a connection
        """Return the URIs that it is told for an updated resource: those that it has subscribed to."""
        return [own if self.only == server else outer_uri(server, own) for own in subscribed]


class Announcer:
    """Everything that clients are told without having asked in that moment."""

    def __init__(self, mcp: McpManager) -> None:
        self._mcp = mcp
        self._connections: dict[ClientConnection, None] = {}
        self._wanted: dict[tuple[str, str], int] = {}
        """How many clients subscribe to a resource, by server and URI."""
        self._streams: dict[Stream, None] = {}
        self._followed: dict[tuple[str, str], set[Stream]] = {}
        """Who is told of the states of a task, by server and its own id."""
        self._following: dict[tuple[str, str], asyncio.Task[None]] = {}

    # Clients of the older protocol

    def add(self, connection: ClientConnection) -> None:
        """Tell a client of changes from now on."""
        self._connections[connection] = None

    async def remove(self, connection: ClientConnection) -> None:
        """Forget a client and its subscriptions."""
        self._connections.pop(connection, None)
        while connection.subscribed:
            await self.unsubscribe(*connection.subscribed.pop())

    def log(self, server: str, params: Mapping[str, Any]) -> None:
        """Send a log message from outside requests to the connections that want its level."""
        for one in self._connections:
            if one.only in (None, server) and wants_level(one.level, params):
                one.announce("notifications/message", params)

    def lowest_level(self) -> str:
        """Return the lowest level that a connection wants; empty if none wants log messages."""
        levels = [one.level for one in self._connections if one.level]
        return min(levels, key=LEVELS.index) if levels else ""

    # Subscriptions

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

    async def listen(self, view: View, request: ClientRequest) -> Mapping[str, Any]:
        """Serve one stream of announcements to a modern client.

        Raises:
            MCPError: Too many streams are open.
        """
        if len(self._streams) >= MAX_STREAMS:
            raise MCPError(code=INTERNAL_ERROR, message="too many streams are open")
        wanted = cast("dict[str, Any]", request.params["notifications"])
        stream = Stream(view, request, wanted)
        self._streams[stream] = None
        # What is granted is acknowledged: a resource that cannot be subscribed to, or the task of someone
        # else, is left out.
        granted: dict[str, Any] = {key: True for key in LISTS if wanted.get(key) is True}
        try:
            if uris := await self._subscribe_all(
                view, wanted.get("resourceSubscriptions"), stream.subscribed
            ):
                granted["resourceSubscriptions"] = uris
            if tasks := self._follow_all(view, wanted.get("taskIds"), stream):
                granted["taskIds"] = tasks
            stream.announce(ACKNOWLEDGED, {"notifications": granted})
            await stream.ended.wait()
            return {"_meta": {SUBSCRIPTION_ID: request.id}}
        finally:
            del self._streams[stream]
            self._unfollow(stream)
            for server, uri in stream.subscribed:
                await self.unsubscribe(server, uri)

    async def _subscribe_all(self, view: View, uris: object, subscribed: set[tuple[str, str]]) -> list[str]:
        honored: list[str] = []
        for uri in cast("list[str]", uris or [])[:MAX_WANTED]:
            try:
                key = await view.owner(uri)
                if key not in subscribed:
                    await self.subscribe(*key)
            except (DragomanError, MCPError) as exc:
                logger.info("a client cannot subscribe to `%s`: %s", uri, exc)
            else:
                subscribed.add(key)
                honored.append(uri)
        return honored

    # Tasks

    def _follow_all(self, view: View, wanted: object, stream: Stream) -> list[str]:
        """Announce the states of tasks on a stream; return those of the tasks that are this client's."""
        honored: list[str] = []
        for task in cast("list[object]", wanted)[:MAX_TASKS] if isinstance(wanted, list) else ():
            try:
                key = view.extensions.task_of(str(task))
            except MCPError as exc:
                logger.info("a client cannot follow a task: %s", exc)
                continue
            self._follow(key, stream)
            honored.append(str(task))
        return honored

    def _follow(self, key: tuple[str, str], stream: Stream) -> None:
        server, task = key
        streams = self._followed.setdefault(key, set())
        streams.add(stream)
        if key not in self._following:

            def tell(state: dict[str, Any]) -> None:
                for one in list(streams):
                    one.announce(TASKS_CHANGED, one.view.extensions.outer_task(state, server))

            # One request at the server, however many streams there are.
            job = parts_of(self._mcp).forward.follow_task(task, server=server, on_state=tell)
            self._following[key] = asyncio.create_task(job, name="dragoman task announcements")

    def _unfollow(self, stream: Stream) -> None:
        for key, streams in list(self._followed.items()):
            streams.discard(stream)
            if not streams:
                del self._followed[key]
                self._following.pop(key).cancel()

    # Events

    def list_changed(self, server: str, kind: str) -> None:
        """Announce that a list of a server has changed.

        Args:
            server: The server.
            kind: `tools`, `resources` or `prompts`.
        """
        method = f"notifications/{kind}/list_changed"
        for one in (*self._streams, *self._connections):
            if one.only in (None, server) and one.wants(method) and one.view.knows(f"{kind}/list"):
                one.announce(method, {})

    def toolset_changed(self, view: View) -> None:
        """Announce that a toolset has other tools now."""
        method = LISTS["toolsListChanged"]
        for one in (*self._streams, *self._connections):
            if one.view is view and one.wants(method):
                one.announce(method, {})

    def resource_updated(self, server: str, uri: str) -> None:
        """Announce that a subscribed resource, or one below it, has changed."""
        for one in (*self._streams, *self._connections):
            at = [own for name, own in one.subscribed if name == server and _is_at_or_below(uri, own)]
            for shown in one.updated(server, uri, at) if at else ():
                one.announce(UPDATED, {"uri": shown})

    def close(self) -> None:
        """End every stream; each gets its final result."""
        for stream in self._streams:
            stream.ended.set()


def _is_at_or_below(uri: str, subscribed: str) -> bool:
    return uri == subscribed or uri.startswith(f"{subscribed.rstrip('/')}/")
