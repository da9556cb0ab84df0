"""One live session with one server: open it, list its tools, call them, close it.

`serve` is the session's whole stay and belongs to one task, which enters and leaves the SDK's contexts;
`call_tool` and `close` are for any task. Every call runs in a task of its own and races three things:
the connection's loss, its deadline, and its caller's cancellation. So it always ends, and what befalls
the transport never reaches the caller as a cancellation.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Any

import anyio

from dragoman.errors import ConnectError, ConnectionLostError
from dragoman.model import Http, Sse, Stdio
from dragoman.server import sdk
from dragoman.server.trail import Trail

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dragoman.model import ServerSpec, Transport
    from dragoman.tools.content import Answer

logger = logging.getLogger("dragoman")

MAX_PAGES = 500
CLOSE_SECONDS = 5.0
CANCEL_SECONDS = 1.0


class Connection:
    """A session that is opened, stays, and ends; it is not used again."""

    def __init__(self, spec: ServerSpec, transport: Transport, *, env: Mapping[str, str]) -> None:
        self.spec = spec
        self.trail = _trail(transport)
        self.tools: list[dict[str, Any]] = []
        """The server's listing, raw."""
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection ended without our doing."""
        self._transport = transport
        self._env = env
        self._session: sdk.Session | None = None
        self._scope: anyio.CancelScope | None = None
        self._leave: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._calls: set[asyncio.Task[Answer]] = set()

    @property
    def session(self) -> sdk.Session | None:
        """The session while it can be used."""
        return self._session

    async def serve(self, ready: Callable[[], None]) -> None:
        """Open the session, list the tools, call `ready`, and stay until `close` or the end.

        Raises:
            ConnectError: It could not be opened, or its tools could not be listed.
            ConnectionLostError: It was open and ended without our doing.
        """
        attempts = _attempts(self._transport)
        failures: list[ConnectError] = []
        seconds = self.spec.connect_timeout
        for transport in attempts:
            last = transport is attempts[-1]
            self.trail = _trail(transport)
            try:
                await self._serve(transport, ready, seconds if last else seconds / 2)
            except ConnectError as exc:
                failures.append(exc)
                if last or not self.trail.refused:
                    raise _joined(failures) from exc
                seconds /= 2
            else:
                return

    def close(self) -> None:
        """Ask the session to end, in whatever phase it is; `serve` returns when it has."""
        if not self._leave.done():
            self._leave.set_result(None)
        if self._session is None and self._scope is not None:
            self._scope.cancel()

    async def call_tool(self, name: str, arguments: Mapping[str, Any], seconds: float) -> Answer:
        """Call a tool by the name that the server uses.

        Raises:
            TimeoutError: The deadline passed; the server was told.
            ConnectionLostError: The connection ended; the call may have run.
            ToolExecutionError: The server answered, but not with a result.
        """
        session = self._session
        if session is None:
            raise self._ended_under_call(may_have_run=False)
        task = asyncio.create_task(session.call_tool(name, dict(arguments)))
        self._calls.add(task)
        task.add_done_callback(self._forget)
        try:
            await asyncio.wait({task, self.lost}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # A cancelled call tells the server so, in its own time: nobody waits for that.
            task.cancel()
        if task.done() and not task.cancelled():
            exc = task.exception()
            if exc is None:
                return task.result()
            if not self.lost.done():
                raise sdk.call_error(exc, server=self.spec.name, tool=name) from exc
        if self.lost.done() or task.done():
            raise self._ended_under_call(may_have_run=True)
        raise TimeoutError

    def loss(self) -> ConnectionLostError:
        """Say that the connection ended, as far as that is known at once."""
        return sdk.lost_error(None, self.spec, self.trail)

    async def _serve(self, transport: Transport, ready: Callable[[], None], seconds: float) -> None:
        failure: Exception | None = None
        if self.lost.done():
            self.lost = asyncio.get_running_loop().create_future()
        scope = anyio.CancelScope(deadline=anyio.current_time() + seconds)
        is_open = False
        try:
            # The deadline is set on a scope around everything: a scope inside could not outlive the SDK's.
            with scope:
                self._scope = scope
                if self._leave.done():
                    return
                async with sdk.open_session(
                    self.spec, transport, env=self._env, trail=self.trail, ended=self._on_ended
                ) as session:
                    self.trail.stage = "listing"
                    self.tools = await self._list(session)
                    scope.deadline = math.inf
                    is_open = True
                    await self._stay(session, ready, scope)
        except asyncio.CancelledError:
            raise
        except BaseException as exc:  # noqa: BLE001 -- the SDK's groups may hold anything; they are opened here
            failure = sdk.telling(exc)
        finally:
            self._session = None
            self._scope = None
            self._cancel_calls()
        if self._leave.done():
            return
        if is_open:
            raise sdk.lost_error(failure, self.spec, self.trail) from failure
        if scope.cancel_called:
            failure = TimeoutError()
        if failure is not None:
            raise sdk.connect_error(failure, self.spec, self.trail) from failure

    async def _stay(self, session: sdk.Session, ready: Callable[[], None], scope: anyio.CancelScope) -> None:
        if not self.lost.done():
            self._session = session
            ready()
        try:
            await asyncio.wait({self._leave, self.lost}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._session = None
            scope.deadline = anyio.current_time() + CLOSE_SECONDS
        if calls := self._cancel_calls():
            # The server is told while there is still a way to tell it.
            await asyncio.wait(calls, timeout=CANCEL_SECONDS)

    async def _list(self, session: sdk.Session) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(MAX_PAGES):
            tools, cursor = await session.list_page(cursor)
            for tool in tools:
                if found.setdefault(str(tool.get("name")), tool) is not tool:
                    logger.warning("%s: tool `%s` is listed twice", self.spec.name, tool.get("name"))
            if cursor is None:
                return list(found.values())
            if cursor in seen:
                logger.warning("%s: the listing repeats itself and was cut short", self.spec.name)
                return list(found.values())
            seen.add(cursor)
        logger.warning("%s: the listing has more than %d pages and was cut short", self.spec.name, MAX_PAGES)
        return list(found.values())

    def _on_ended(self) -> None:
        if not self._leave.done() and not self.lost.done():
            self.lost.set_result(None)

    def _cancel_calls(self) -> set[asyncio.Task[Answer]]:
        calls = set(self._calls)
        for task in calls:
            task.cancel()
        return calls

    def _forget(self, task: asyncio.Task[Answer]) -> None:
        self._calls.discard(task)
        if not task.cancelled():
            # Asking for it keeps Python quiet about errors that nobody waits for any more.
            task.exception()

    def _ended_under_call(self, *, may_have_run: bool) -> ConnectionLostError:
        how = "was lost" if self.lost.done() else "was closed"
        msg = f"the connection to server `{self.spec.name}` {how}"
        return ConnectionLostError(msg, server=self.spec.name, may_have_run=may_have_run)


def _trail(transport: Transport) -> Trail:
    match transport:
        case Stdio():
            return Trail(kind="stdio")
        case Http():
            return Trail(kind="http")
        case Sse():
            return Trail(kind="sse")


def _attempts(transport: Transport) -> list[Transport]:
    """Return the transports to try, in order; an alternate is tried only if the first is refused."""
    match transport:
        case Http(alternate=True):
            return [transport, Sse(transport.url, headers=transport.headers)]
        case Sse(alternate=True):
            return [transport, Http(transport.url, headers=transport.headers)]
        case _:
            return [transport]


def _joined(failures: list[ConnectError]) -> ConnectError:
    """Return the last failure, with what the earlier ones said."""
    last = failures[-1]
    if len(failures) > 1:
        last.message += "".join(f"; before that: {earlier.message}" for earlier in failures[:-1])
    return last
