"""The wire to a server in this process: messages go over as they are, in order, in turns of the loop."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import deque
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, cast

from dragoman.errors import ConnectError, ConnectionLostError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from dragoman.model import JsonObject
    from dragoman.server.rpc import RequestId, Rpc
    from dragoman.server.wire import Envelope, Wire

current_call: ContextVar[object] = ContextVar("current_call", default=None)
"""The call that the current task answers."""


class Refusal(Exception):  # noqa: N818 -- it is an answer
    """A request is answered with an error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class Peer(Protocol):
    """The server at the other end."""

    name: str
    refuses: bool
    wires: set[MemoryWire]

    async def answer(self, wire: MemoryWire, method: str, params: Mapping[str, Any]) -> JsonObject:
        """Answer a request, or raise `Refusal`."""
        ...


@asynccontextmanager
async def open_memory(
    peer: Peer, *, name: str, rpc: Rpc, on_end: Callable[[str], None]
) -> AsyncGenerator[Wire]:
    """Connect to a server in this process; leaving waits until nothing of it runs any more."""
    if peer.refuses:
        msg = "the scripted server is stopped"
        raise ConnectError(msg, server=name, stage="connect")
    wire = MemoryWire(peer, name=name, rpc=rpc, on_end=on_end)
    peer.wires.add(wire)
    try:
        yield wire
    finally:
        peer.wires.discard(wire)
        await wire.close()


class MemoryWire:
    """Both ends of a connection to a server in this process."""

    def __init__(self, peer: Peer, *, name: str, rpc: Rpc, on_end: Callable[[str], None]) -> None:
        self._peer = peer
        self._name = name
        self._rpc = rpc
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[bytes, Envelope]] = deque()
        self._answering: dict[RequestId, asyncio.Task[None]] = {}
        self._given_up: set[RequestId] = set()
        self._asked: dict[str, asyncio.Future[JsonObject]] = {}
        self._numbers = itertools.count(1)
        self._ended = ""

    # The client's end

    def send(self, message: bytes, envelope: Envelope) -> None:
        """Hand a message over in the next turn of the loop."""
        if self._ended:
            self._refuse(envelope)
            return
        self._queue.append((message, envelope))
        self._loop.call_soon(self._hand_over)

    def abandon(self, message: bytes, envelope: Envelope, reason: str, *, tell: bool = True) -> bool:
        """Take a request back that was not handed over, or tell the server that nobody waits for it."""
        for index, (queued, _) in enumerate(self._queue):
            if queued is message:
                del self._queue[index]
                return True
        if tell and envelope.request_id is not None:
            self._given_up.add(envelope.request_id)
            self._loop.call_soon(self._give_up, envelope.request_id)
        del reason  # A function that is cancelled is not told why.
        return False

    # The server's end

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Tell the client something."""
        self._say({"method": method, **({"params": dict(params)} if params else {})})

    async def ask(self, method: str, params: Mapping[str, Any]) -> JsonObject:
        """Ask the client something, and wait for the answer.

        Raises:
            ProtocolError: The client refuses.
        """
        number = f"ask-{next(self._numbers)}"
        future = self._asked[number] = self._loop.create_future()
        self._say({"id": number, "method": method, "params": dict(params)})
        return await future

    def end(self, reason: str) -> None:
        """Break the connection: calls under way are lost, and whoever holds it is told why."""
        if self._ended:
            return
        self._ended = reason
        self._peer.wires.discard(self)
        for task in self._answering.values():
            task.cancel()
        while self._queue:
            self._refuse(self._queue.popleft()[1])
        # A loss is noticed a moment later, as with any server: what is sent meanwhile surely has not run.
        self._loop.call_soon(self._on_end, reason)

    async def close(self) -> None:
        """End it from our side, and wait for every function that was at work."""
        self._ended = self._ended or "the session was closed"
        tasks = list(self._answering.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def do(self, action: Callable[[], None]) -> None:
        """Do something to the connection where it lives, from any thread."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            action()
        else:
            self._loop.call_soon_threadsafe(action)

    # Inside

    def _hand_over(self) -> None:
        if not self._queue:
            return
        message = cast("JsonObject", json.loads(self._queue.popleft()[0]))
        method, number = message.get("method"), message.get("id")
        if method is None:
            self._take_answer(message)
        elif number is not None:
            task = asyncio.create_task(self._answer(number, method, message.get("params") or {}))
            self._answering[number] = task
            task.add_done_callback(lambda _: self._answering.pop(number, None))
        elif method == "notifications/cancelled":
            told = cast("JsonObject", message.get("params") or {})
            self._give_up(told.get("requestId"))

    async def _answer(self, number: RequestId, method: str, params: Mapping[str, Any]) -> None:
        try:
            outcome: JsonObject = {"result": await self._peer.answer(self, method, params)}
        except asyncio.CancelledError:
            call = current_call.get()
            if call is not None and number in self._given_up:
                cast("Any", call).cancelled = True
            raise
        except Refusal as refusal:
            error = {"code": refusal.code, "message": refusal.message, "data": refusal.data}
            outcome = {"error": {key: value for key, value in error.items() if value is not None}}
        self._say({"id": number, **outcome})

    def _say(self, message: JsonObject) -> None:
        if not self._ended:
            self._rpc.receive(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def _take_answer(self, message: JsonObject) -> None:
        future = self._asked.pop(str(message.get("id")), None)
        if future is None or future.done():
            return
        if (error := cast("JsonObject | None", message.get("error"))) is not None:
            refused = ProtocolError(
                str(error.get("message")), rpc_code=error.get("code"), data=error.get("data")
            )
            future.set_exception(refused)
        else:
            future.set_result(message.get("result") or {})

    def _give_up(self, number: Any) -> None:
        self._given_up.add(number)
        if (task := self._answering.get(number)) is not None:
            task.cancel()

    def _refuse(self, envelope: Envelope) -> None:
        if envelope.request_id is not None:
            msg = f"the connection to server `{self._name}` ended before the request went out: {self._ended}"
            lost = ConnectionLostError(msg, server=self._name, may_have_run=False)
            self._rpc.fail(envelope.request_id, lost)
