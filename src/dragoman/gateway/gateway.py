"""The gateway: serves one manager to clients, over any transport.

`Gateway` holds what all clients share: the questions of servers, the requests that wait for an answer, and
the announcements of changes. `View` is what one endpoint shows: all servers under prefixed names, or one
server under its own. `Gateway.serve` drives one connection over a pair of streams; `app.py` serves HTTP.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.runner import serve_dual_era_loop

from dragoman.agent.code.sandbox import is_installed, not_installed
from dragoman.events import PromptsChanged, ResourceChanged, ResourcesChanged, StateChanged, ToolsChanged
from dragoman.gateway import ids
from dragoman.gateway.announce import Announcer
from dragoman.gateway.observe import Observer
from dragoman.gateway.questions import Questions
from dragoman.gateway.rounds import HOLD_SECONDS, Rounds
from dragoman.gateway.view import View
from dragoman.manager.pool import find_server
from dragoman.model import ServerState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from mcp.shared._stream_protocols import ReadStream, WriteStream
    from mcp.shared.message import SessionMessage

    from dragoman.events import Event
    from dragoman.gateway.view import ToolsMode
    from dragoman.manager.manager import McpManager

logger = logging.getLogger("dragoman")

_CONNECTED = (ServerState.READY, ServerState.DEGRADED)
AUDIENCE = "dragoman"


class Gateway:
    """One manager, served to any number of clients."""

    def __init__(
        self,
        mcp: McpManager,
        *,
        questions: Questions | None = None,
        tools: ToolsMode = "all",
        state_keys: Sequence[str | bytes] = (),
        first_wait: float = 5.0,
        observer: Observer | None = None,
    ) -> None:
        """Serve a started manager.

        Args:
            mcp: The manager; stays the caller's to close.
            questions: The object whose `handlers()` the manager was made with. Without it, servers get their
                answers from the manager's own handlers.
            tools: `all` lists every tool; `search` lists two that find and call the others; `code` adds
                one that runs programs which call them.
            state_keys: Secrets of at least 32 bytes that seal what a client sends back between two rounds of
                one request: the first seals, all open. Replicas need the same; by default one is generated.
            first_wait: For how many seconds after the start the first handshake and the first listing
                wait for servers that are starting.
            observer: Counts and logs the requests; its own by default.

        Raises:
            AgentError: `tools` is `code`, and the extra `code` is not installed.
        """
        if tools == "code" and not is_installed():
            raise not_installed()
        self.mcp = mcp
        self.questions = questions or Questions()
        self.asks_clients = questions is not None
        """Whether the questions of older servers, and for older clients, go to clients."""
        self.rounds = Rounds()
        self.announcer = Announcer(mcp)
        self.observer = observer or Observer(mcp)
        self.tools_mode: ToolsMode = tools
        self.first_wait = first_wait
        self._keys = [key.encode() if isinstance(key, str) else key for key in state_keys] or [os.urandom(32)]
        self._security = RequestStateSecurity(keys=self._keys, ttl=HOLD_SECONDS)
        self.task_keys = [ids.task_key(key, mcp.user) for key in self._keys] if mcp.user else []
        """Bind the ids of tasks to the user: the first binds, all check. Empty if there are no users."""
        self._views: dict[str | None, View] = {}
        self._events = mcp.events()
        self._pump: asyncio.Task[None] | None = None
        self._started = 0.0
        self._end_logs = self.questions.listen(self.announcer.log)

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def for_user(self, manager: McpManager, questions: Questions | None) -> Gateway:
        """Return a gateway of the same kind for the manager of one user."""
        return Gateway(
            manager,
            questions=questions,
            tools=self.tools_mode,
            state_keys=self._keys,
            first_wait=self.first_wait,
            observer=self.observer,
        )

    def start(self) -> None:
        """Begin to announce changes; safe to call twice."""
        if self._pump is None:
            self._started = time.monotonic()
            self._pump = asyncio.create_task(self._announce(), name="dragoman gateway")

    @property
    def patience(self) -> float:
        """For how many more seconds a client waits for servers that are starting."""
        return max(0.0, self._started + self.first_wait - time.monotonic())

    async def close(self) -> None:
        """End streams and requests that wait for an answer; the manager goes on."""
        self.announcer.close()
        self.rounds.close()
        self._end_logs()
        for view in self._views.values():
            await asyncio.to_thread(view.close)
        pump, self._pump = self._pump, None
        if pump is not None:
            pump.cancel()
            with suppress(asyncio.CancelledError):
                await pump

    def view(self, server: str | None = None) -> View:
        """Return what one endpoint shows: all servers, or one under its own names.

        Raises:
            UnknownServerError: No server has this name.
        """
        if server is not None and server not in self.mcp.status():
            self._views.pop(server, None)
            find_server(dict[str, Any](self.mcp.status()), server)
        view = self._views.get(server)
        if view is None:
            view = self._views[server] = View(self, server)
            # The innermost middleware comes last; sealing sees the raw result.
            boundary = RequestStateBoundary(self._security, default_audience=AUDIENCE)
            view.server.middleware[1:1] = [self.observer, boundary]
        return view

    async def serve(
        self,
        read: ReadStream[SessionMessage | Exception],
        write: WriteStream[SessionMessage],
        *,
        server: str | None = None,
    ) -> None:
        """Serve one connection over a pair of streams until its end, in the protocol that the client speaks.

        Args:
            read: Gives the client's messages.
            write: Takes ours.
            server: The only server to show, under its own names.
        """
        self.start()
        shown = self.view(server).server
        async with shown.lifespan(shown) as state:
            await serve_dual_era_loop(shown, read, write, lifespan_state=state)

    async def _announce(self) -> None:
        async for event in self._events:
            try:
                await self._take(event)
            except Exception:
                logger.exception("the gateway could not announce a change")
        await self._on_closed()

    async def _take(self, event: Event) -> None:
        match event:
            case ToolsChanged():
                await self.announcer.tools_changed(event.server)
            case ResourcesChanged():
                self._forget(event.server)
                await self.announcer.resources_changed(event.server)
            case PromptsChanged():
                self._forget(event.server)
                await self.announcer.prompts_changed(event.server)
            case ResourceChanged():
                await self.announcer.resource_updated(event.server, event.uri)
            case StateChanged() if (event.before in _CONNECTED) != (event.after in _CONNECTED):
                self._forget(event.server)
                await self.announcer.resources_changed(event.server)
                await self.announcer.prompts_changed(event.server)
            case _:
                pass

    def _forget(self, server: str) -> None:
        for view in self._views.values():
            view.forget(server)

    async def _on_closed(self) -> None:
        """End the streams: the manager was shut down."""
        self.announcer.close()
        self.rounds.close()
