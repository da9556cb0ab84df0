"""The SDK's session over its public pair of streams, for a release whose session takes no dispatcher of ours.

Only what the session says itself passes here: the handshake, its subscriptions, and the answers of the
application's handlers. Every other request goes to the dispatcher, as always.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ClientMessageMetadata, SessionMessage

from dragoman.errors import DragomanError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.shared.dispatcher import CallOptions

    from dragoman.server.protocol.dispatcher import WireDispatcher
    from dragoman.server.protocol.rpc import RequestId


@asynccontextmanager
async def session_streams(dispatcher: WireDispatcher) -> AsyncGenerator[tuple[Any, Any]]:
    """Open the read and the write stream of a session."""
    to_session, reads = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)
    writes, from_session = anyio.create_memory_object_stream[SessionMessage](math.inf)
    carrier = _Carrier(dispatcher, to_session)
    with to_session, reads, writes, from_session:
        tasks = [
            asyncio.create_task(carrier.take(from_session)),
            asyncio.create_task(dispatcher.serve(carrier.on_request, carrier.on_notify, started=_started)),
        ]
        try:
            yield reads, writes
        finally:
            tasks += carrier.tasks
            for task in tasks:
                task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait(tasks)


class _Carrier:
    """Carries messages between the session's streams and a dispatcher."""

    def __init__(
        self, dispatcher: WireDispatcher, to_session: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        """The requests of the session that are in progress."""
        self._dispatcher = dispatcher
        self._to_session = to_session
        self._sent: dict[RequestId, asyncio.Task[None]] = {}
        self._asked: dict[RequestId, asyncio.Future[dict[str, Any]]] = {}
        """The requests of the server that the session has not answered yet."""

    async def take(self, from_session: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Take what the session writes, until it ends."""
        async for item in from_session:
            message, metadata = item.message, item.metadata
            opts: CallOptions = {}
            if isinstance(metadata, ClientMessageMetadata) and metadata.headers:
                opts["headers"] = metadata.headers
            match message:
                case types.JSONRPCRequest():
                    if isinstance(message.id, str):
                        # The id of a subscription comes back in its notifications.
                        opts["request_id"] = message.id
                    task = asyncio.create_task(self._request(message, opts))
                    self._sent[message.id] = task
                    self.tasks.add(task)
                    task.add_done_callback(self.tasks.discard)
                case types.JSONRPCNotification(method="notifications/cancelled", params=params):
                    if (sent := self._sent.get((params or {}).get("requestId", ""))) is not None:
                        sent.cancel()
                case types.JSONRPCNotification():
                    await self._dispatcher.notify(message.method, message.params, opts)
                case types.JSONRPCResponse():
                    self._answer(message.id, message.result)
                case types.JSONRPCError():
                    error = message.error
                    refusal = MCPError(code=error.code, message=error.message, data=error.data)
                    self._answer(message.id, refusal)

    async def on_request(self, context: Any, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Have the session answer a request of the server."""
        request_id = cast("RequestId", context.request_id)
        asked = self._asked[request_id] = asyncio.get_running_loop().create_future()
        fields = None if params is None else dict(params)
        self._write(types.JSONRPCRequest(jsonrpc="2.0", id=request_id, method=method, params=fields))
        try:
            return await asked
        finally:
            self._asked.pop(request_id, None)

    async def on_notify(self, _context: object, method: str, params: Mapping[str, Any] | None) -> None:
        """Hand the session a notification of the server."""
        fields = None if params is None else dict(params)
        self._write(types.JSONRPCNotification(jsonrpc="2.0", method=method, params=fields))

    async def _request(self, message: types.JSONRPCRequest, opts: CallOptions) -> None:
        answer: types.JSONRPCResponse | types.JSONRPCError
        try:
            result = await self._dispatcher.send_raw_request(message.method, message.params, opts)
            answer = types.JSONRPCResponse(jsonrpc="2.0", id=message.id, result=result)
        except MCPError as exc:
            answer = types.JSONRPCError(jsonrpc="2.0", id=message.id, error=exc.error)
        except DragomanError as exc:
            # The end of the connection is no answer: the session fails all that it waits for.
            error = types.ErrorData(code=types.CONNECTION_CLOSED, message=exc.message)
            answer = types.JSONRPCError(jsonrpc="2.0", id=message.id, error=error)
        finally:
            self._sent.pop(message.id, None)
        self._write(answer)

    def _answer(self, request_id: RequestId | None, outcome: dict[str, Any] | MCPError) -> None:
        asked = None if request_id is None else self._asked.get(request_id)
        if asked is None or asked.done():
            return
        if isinstance(outcome, MCPError):
            asked.set_exception(outcome)
        else:
            asked.set_result(outcome)

    def _write(self, message: types.JSONRPCMessage) -> None:
        try:
            self._to_session.send_nowait(SessionMessage(message))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # The session has ended.


def _started() -> None:
    """Do nothing: the session does not wait for its streams."""
