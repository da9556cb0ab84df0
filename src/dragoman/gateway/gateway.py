"""The gateway: serves one manager to clients, over any transport.

`Gateway` holds what all clients share: the questions of servers, the requests that wait for an answer, and
the announcements of changes. `View` is what one endpoint shows: all servers under prefixed names, or one
server under its own. `Connection` serves a client over a channel that goes both ways, `http.py` over HTTP.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dragoman.agent.code.sandbox import is_installed, not_installed
from dragoman.events import (
    ConfigReloaded,
    PromptsChanged,
    ResourceChanged,
    ResourcesChanged,
    StateChanged,
    ToolsChanged,
)
from dragoman.gateway import ids
from dragoman.gateway.announce import Announcer
from dragoman.gateway.connection import ClientConnection
from dragoman.gateway.for_model import ForModel
from dragoman.gateway.http import Sessions
from dragoman.gateway.observe import RequestObserver
from dragoman.gateway.questions import Questions
from dragoman.gateway.states import States
from dragoman.gateway.view import View
from dragoman.manager.manager import parts_of
from dragoman.manager.pool import find_server
from dragoman.model import ServerState
from dragoman.server.protocol.rounds import HeldRequests
from dragoman.trust.toolsets import find_toolset, toolsets

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from typing import Self

    from dragoman.events import Event
    from dragoman.gateway.outbox import ClientOutbox
    from dragoman.gateway.request import ClientRequest
    from dragoman.gateway.view import ToolsMode
    from dragoman.manager.forward import Forward
    from dragoman.manager.manager import McpManager
    from dragoman.trust.toolsets import Toolset

logger = logging.getLogger("dragoman")

_CONNECTED = (ServerState.READY, ServerState.DEGRADED)
OWN_CLIENT = "dragoman"
"""What dragoman's own clients call themselves: they add sources and notes to a text themselves."""


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
        observer: RequestObserver | None = None,
        raw: bool = False,
        for_model: bool = False,
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
            raw: Whether answers are passed on as they came, without the sources and notes of the library.
            for_model: Whether models read the answers: every answer has its sources, long ones are cut, and
                lost servers are named.

        Raises:
            AgentError: `tools` is `code`, and the extra `code` is not installed.
            ConfigError: A state key is too short.
        """
        if tools == "code" and not is_installed():
            raise not_installed()
        self.mcp = mcp
        self.questions = questions or Questions()
        self.questions.connect(parts_of(mcp).forward)
        self.asks_clients = questions is not None
        """Whether the questions of older servers, and for older clients, go to clients."""
        self.held = HeldRequests()
        self.states = States(state_keys)
        self.announcer = Announcer(mcp)
        self.sessions = Sessions(self)
        self.observer = observer or RequestObserver()
        self.tools_mode: ToolsMode = tools
        self.first_wait = first_wait
        self.task_keys = [ids.task_key(key, mcp.user) for key in self.states.secrets]
        """Mark the ids of tasks: the first marks, all check."""
        self.model = ForModel(mcp) if for_model else None
        self._raw = raw
        self._views: dict[str | None, View] = {}
        self._toolsets: dict[str, View] = {}
        self._shown_toolsets: dict[str, Toolset | None] = {}
        """What clients know them to be."""
        self._events = mcp.events()
        self._pump: asyncio.Task[None] | None = None
        self._jobs: set[asyncio.Task[None]] = set()
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
            state_keys=self.states.secrets,
            first_wait=self.first_wait,
            observer=self.observer,
            raw=self._raw,
            for_model=self.model is not None,
        )

    def start(self) -> None:
        """Begin to announce changes; safe to call twice."""
        if self._pump is None:
            self._started = time.monotonic()
            self._pump = asyncio.create_task(self._announce(), name="dragoman gateway")

    def start_job(self, job: Coroutine[Any, Any, None]) -> None:
        """Do something that no client waits for."""
        task = asyncio.create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    @property
    def patience(self) -> float:
        """For how many more seconds a client waits for servers that are starting."""
        return max(0.0, self._started + self.first_wait - time.monotonic())

    @property
    def forward(self) -> Forward:
        """Passes requests on, by the rules for models if models read the answers."""
        return parts_of(self.mcp).forward if self.model is None else self.model.forward

    def renders(self, request: ClientRequest) -> bool:
        """Return whether sources and notes are added to the answers of a request."""
        return not self._raw and request.client_name != OWN_CLIENT

    async def close(self) -> None:
        """End streams and requests that wait for an answer; the manager goes on."""
        self.announcer.close()
        self.held.close()
        self.sessions.close()
        self._end_logs()
        for view in [*self._views.values(), *self._toolsets.values()]:
            await asyncio.to_thread(view.close)
        pump, self._pump = self._pump, None
        tasks = [*self._jobs, *([pump] if pump is not None else [])]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError, Exception):
                await task

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
        return view

    def toolset(self, name: str) -> View:
        """Return what the endpoint of a toolset shows, by the configuration of now.

        Raises:
            ConfigError: No toolset has this name.
        """
        find_toolset(self.mcp.settings, name)
        view = self._toolsets.get(name)
        if view is None:
            view = self._toolsets[name] = View(self, among=self.mcp.toolset(name))
            self._shown_toolsets[name] = toolsets(self.mcp.settings).get(name)
        return view

    def connect(self, outbox: ClientOutbox, transport: str = "pipe") -> ClientConnection:
        """Return the connection of a client over a channel that goes both ways: a `pipe` or `unix` socket."""
        self.start()
        return ClientConnection(self.view(), outbox, place={"network.transport": transport})

    async def _announce(self) -> None:
        async for event in self._events:
            try:
                self._take(event)
            except Exception:
                logger.exception("the gateway could not announce a change")
        # The manager was shut down.
        self.announcer.close()
        self.held.close()

    def _take(self, event: Event) -> None:
        if self.model is not None:
            self.model.note(event)
        match event:
            case ConfigReloaded():
                for name, before in self._shown_toolsets.items():
                    if before != (now := toolsets(self.mcp.settings).get(name)):
                        self._shown_toolsets[name] = now
                        self.announcer.toolset_changed(self._toolsets[name])
            case ToolsChanged():
                self.announcer.list_changed(event.server, "tools")
            case ResourcesChanged():
                self._forget(event.server)
                self.announcer.list_changed(event.server, "resources")
            case PromptsChanged():
                self._forget(event.server)
                self.announcer.list_changed(event.server, "prompts")
            case ResourceChanged():
                self.announcer.resource_updated(event.server, event.uri)
            case StateChanged() if (event.before in _CONNECTED) != (event.after in _CONNECTED):
                self._forget(event.server)
                self.announcer.list_changed(event.server, "resources")
                self.announcer.list_changed(event.server, "prompts")
            case _:
                pass

    def _forget(self, server: str) -> None:
        for view in [*self._views.values(), *self._toolsets.values()]:
            view.forget(server)
