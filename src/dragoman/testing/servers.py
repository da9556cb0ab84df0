"""A scripted MCP server, in the process of the test.

Its tools are Python functions: a return value is the answer, an exception is a failed call, and a function
may sleep or crash its own server. The server records every call.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import itertools
import json
from collections import deque
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, Protocol, TypeVar, cast
from uuid import uuid4

from dragoman.errors import ConnectError, ConnectionLostError, DragomanError, ProtocolError
from dragoman.model import Part, ServerSpec, Stdio, ToolDef, ToolResult
from dragoman.server.attempt import ConnectionEnd
from dragoman.struct import HIDDEN, MutableStruct
from dragoman.tools.local import LocalTool, tool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager

    from dragoman.model import JsonObject
    from dragoman.server.attempt import ConnectAttempt
    from dragoman.server.protocol.rpc import RequestId, Rpc
    from dragoman.server.protocol.wire import SendInfo, Wire

current_call: ContextVar[object] = ContextVar("current_call", default=None)
"""The call that the current task handles."""


class Refusal(Exception):  # noqa: N818 -- it is a response
    """Answer a request with an error."""

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
    peer: Peer, *, name: str, rpc: Rpc, on_end: Callable[[ConnectionEnd], None]
) -> AsyncGenerator[Wire]:
    """Connect to a server in this process; on exit, wait until its functions have ended."""
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

    def __init__(self, peer: Peer, *, name: str, rpc: Rpc, on_end: Callable[[ConnectionEnd], None]) -> None:
        self._peer = peer
        self._name = name
        self._rpc = rpc
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[bytes, SendInfo]] = deque()
        self._answering: dict[RequestId, asyncio.Task[None]] = {}
        self._given_up: set[RequestId] = set()
        self._asked: dict[str, asyncio.Future[JsonObject]] = {}
        self._numbers = itertools.count(1)
        self._ended = ""

    # The client's side

    def send(self, message: bytes, envelope: SendInfo) -> None:
        """Deliver a message in the next iteration of the loop."""
        if self._ended:
            self._refuse(envelope)
            return
        self._queue.append((message, envelope))
        self._loop.call_soon(self._hand_over)

    def abandon(self, message: bytes, envelope: SendInfo, reason: str, *, tell: bool = True) -> bool:
        """Withdraw a request that was not delivered yet, or cancel it at the server."""
        for index, (queued, _) in enumerate(self._queue):
            if queued is message:
                del self._queue[index]
                return True
        if tell and envelope.request_id is not None:
            self._given_up.add(envelope.request_id)
            self._loop.call_soon(self._give_up, envelope.request_id)
        del reason  # A cancelled function does not get a reason.
        return False

    # The server's side

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification to the client."""
        self._say({"method": method, **({"params": dict(params)} if params else {})})

    async def ask(self, method: str, params: Mapping[str, Any]) -> JsonObject:
        """Send a request to the client, and wait for the answer.

        Raises:
            ProtocolError: The client refuses.
        """
        number = f"ask-{next(self._numbers)}"
        future = self._asked[number] = self._loop.create_future()
        self._say({"id": number, "method": method, "params": dict(params)})
        return await future

    def end(self, reason: str) -> None:
        """Break the connection: running calls are lost, and the client gets the reason."""
        if self._ended:
            return
        self._ended = reason
        self._peer.wires.discard(self)
        for task in self._answering.values():
            task.cancel()
        while self._queue:
            self._refuse(self._queue.popleft()[1])
        # Report the loss in the next iteration, as real transports do; requests sent meanwhile have not run.
        self._loop.call_soon(self._on_end, ConnectionEnd(reason=reason))

    async def close(self) -> None:
        """Close the connection, and wait for running functions."""
        self._ended = self._ended or "the session was closed"
        tasks = list(self._answering.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def do(self, action: Callable[[], None]) -> None:
        """Run an action in the connection's loop, from any thread."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            action()
        else:
            self._loop.call_soon_threadsafe(action)

    # Internal

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

    def _refuse(self, envelope: SendInfo) -> None:
        if envelope.request_id is not None:
            msg = f"the connection to server `{self._name}` ended before the request was sent: {self._ended}"
            lost = ConnectionLostError(msg, server=self._name, may_have_run=False)
            self._rpc.fail(envelope.request_id, lost)


P = ParamSpec("P")
R = TypeVar("R")

INTERNAL_ERROR = -32603
INVALID_PARAMS = -32602
METHOD_NOT_FOUND = -32601


class ScriptedCall(MutableStruct, kw_only=True):
    """One recorded call."""

    tool: str
    arguments: Mapping[str, Any]
    cancelled: bool = False
    """True if the caller cancelled it, or it timed out."""
    _wire: Annotated[MemoryWire, HIDDEN]
    _token: Annotated[object, HIDDEN] = None

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to the caller, if it asked for progress."""
        if self._token is None:
            return
        facts = {"progressToken": self._token, "progress": progress, "total": total, "message": message}
        told = {key: value for key, value in facts.items() if value is not None}
        self._wire.notify("notifications/progress", told)

    async def ask(self, method: str, params: Mapping[str, Any] | None = None) -> JsonObject:
        """Send a request such as `elicitation/create` to the application; return its handler's answer.

        Raises:
            ProtocolError: The application refuses.
        """
        return await self._wire.ask(method, params or {})


class InProcess(Stdio):
    """The transport to a scripted server: memory instead of a child process."""

    server: Annotated[ScriptedServer | None, HIDDEN] = None

    def open(
        self, *, name: str, attempt: ConnectAttempt, rpc: Rpc, on_end: Callable[[ConnectionEnd], None]
    ) -> AbstractAsyncContextManager[Wire]:
        """Return the connection to the server."""
        del attempt  # There is no process and no address to record.
        assert self.server is not None  # noqa: S101 -- `ScriptedServer.spec` makes no other
        return open_memory(self.server, name=name, rpc=rpc, on_end=on_end)


class ScriptedServer:
    """An MCP server for tests; pass `spec()` to a manager."""

    def __init__(
        self,
        name: str,
        *,
        tools: Iterable[Callable[..., Any] | ToolDef] = (),
        resources: Mapping[str, str | bytes] | None = None,
        prompts: Mapping[str, str] | None = None,
        instructions: str = "",
        version: str = "1.0",
        on_connect: Callable[[], Any] | None = None,
    ) -> None:
        """Make a server.

        Args:
            name: The name in the spec and in `serverInfo`.
            tools: Functions, or definitions with a `func`.
            resources: Contents by URI.
            prompts: Texts by name; `{topic}` in a text is an argument.
            instructions: The server's instructions.
            version: The version in `serverInfo`.
            on_connect: Called (and awaited if async) before each connection is answered; it may sleep, or
                raise to refuse the connection.
        """
        self.name = name
        self.calls: list[ScriptedCall] = []
        """Every call so far, in order."""
        self.connections = 0
        """The number of connections so far."""
        self.resources = dict(resources or {})
        self.prompts = dict(prompts or {})
        self.instructions = instructions
        self.version = version
        self.refuses = False
        """True while the server is stopped and refuses connections."""
        self.wires: set[MemoryWire] = set()
        """The open connections."""
        self._on_connect = on_connect
        # A unique command, so that no cached list of another server is used.
        self._command = f"in-process-{uuid4().hex}"
        self._tools = {made.name: made for made in map(_definition, tools)}

    def __repr__(self) -> str:
        return f"ScriptedServer({self.name!r})"

    def spec(self, **rules: Any) -> ServerSpec:
        """Return the server's spec; `rules` are fields of `ServerSpec`, such as `timeouts={"call": 5}`."""
        return ServerSpec(self.name, InProcess(self._command, server=self), **rules)

    # Tools

    def tool(self, function: Callable[P, R]) -> LocalTool[P, R]:
        """Add a function as a tool; a decorator."""
        made = cast("LocalTool[P, R]", function) if isinstance(function, LocalTool) else tool(function)
        self.add(made)
        return made

    def add(self, function: Callable[..., Any] | ToolDef) -> None:
        """Add or replace a tool; connected clients are notified."""
        made = _definition(function)
        self._tools[made.name] = made
        self._changed()

    def remove(self, name: str) -> None:
        """Remove a tool; connected clients are notified."""
        del self._tools[name]
        self._changed()

    def _changed(self) -> None:
        for wire in list(self.wires):
            wire.do(lambda wire=wire: wire.notify("notifications/tools/list_changed"))

    # Failures

    def crash(self, reason: str = "the scripted server crashed") -> None:
        """Break every connection; new ones are accepted."""
        for wire in list(self.wires):
            wire.do(lambda wire=wire: wire.end(reason))

    def stop(self, reason: str = "the scripted server was stopped") -> None:
        """Break every connection, and refuse new ones until `start`."""
        self.refuses = True
        self.crash(reason)

    def start(self) -> None:
        """Accept connections again."""
        self.refuses = False

    @property
    def current(self) -> ScriptedCall:
        """The current call, inside a tool's function."""
        call = current_call.get()
        if not isinstance(call, ScriptedCall):
            msg = "there is no current call here"
            raise DragomanError(msg, hint="use `current` only inside a tool function of a scripted server")
        return call

    # Requests

    async def answer(self, wire: MemoryWire, method: str, params: Mapping[str, Any]) -> JsonObject:
        """Answer a request.

        Raises:
            Refusal: The answer is an error.
        """
        match method:
            case "initialize":
                return await self._initialize(params)
            case "ping" | "logging/setLevel":
                return {}
            case "tools/list":
                return {"tools": [_listed(one) for one in self._tools.values()]}
            case "tools/call":
                return await self._call(wire, params)
            case "resources/list":
                return {"resources": [{"uri": uri, "name": uri} for uri in self.resources]}
            case "resources/templates/list":
                return {"resourceTemplates": []}
            case "resources/read" if (content := self.resources.get(params["uri"])) is not None:
                return {"contents": [_contents(params["uri"], content)]}
            case "prompts/list":
                return {"prompts": [_prompt(name, text) for name, text in self.prompts.items()]}
            case "prompts/get" if (text := self.prompts.get(params["name"])) is not None:
                said = text.format_map(params.get("arguments") or {})
                return {"messages": [{"role": "user", "content": {"type": "text", "text": said}}]}
            case "resources/read" | "prompts/get":
                raise Refusal(INVALID_PARAMS, "not found")
            case _:
                raise Refusal(METHOD_NOT_FOUND, f"unknown method `{method}`")

    async def _initialize(self, params: Mapping[str, Any]) -> JsonObject:
        self.connections += 1
        if self._on_connect is not None:
            try:
                outcome = self._on_connect()
                if inspect.isawaitable(outcome):
                    await outcome
            except Exception as exc:
                raise Refusal(INTERNAL_ERROR, str(exc)) from exc
        offers = {"tools": {"listChanged": True}, "logging": {}}
        offers |= {"resources": {}} if self.resources else {}
        offers |= {"prompts": {}} if self.prompts else {}
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": offers,
            "serverInfo": {"name": self.name, "version": self.version},
            **({"instructions": self.instructions} if self.instructions else {}),
        }

    async def _call(self, wire: MemoryWire, params: Mapping[str, Any]) -> JsonObject:
        name, arguments = params["name"], cast("JsonObject", params.get("arguments", {}))
        token = cast("JsonObject", params.get("_meta") or {}).get("progressToken")
        call = ScriptedCall(tool=name, arguments=arguments, _wire=wire, _token=token)
        self.calls.append(call)
        made = self._tools.get(name)
        if made is None:
            raise Refusal(INVALID_PARAMS, f"unknown tool `{name}`")
        assert made.func is not None  # noqa: S101 -- checked by `_definition`
        current_call.set(call)
        try:
            value = made.func(**arguments)
            return _result(await value if inspect.isawaitable(value) else value)
        except ProtocolError as exc:
            code = INTERNAL_ERROR if exc.rpc_code is None else exc.rpc_code
            raise Refusal(code, exc.message, exc.data) from exc
        except Exception as exc:  # noqa: BLE001 -- a failing tool is a result for the test
            return {"content": [{"type": "text", "text": str(exc) or type(exc).__name__}], "isError": True}


def _definition(function: Callable[..., Any] | ToolDef) -> ToolDef:
    made = function if isinstance(function, ToolDef) else tool(function)
    if made.func is None:
        msg = f"the tool `{made.name}` of a scripted server needs its `func`"
        raise DragomanError(msg, hint="pass a function, or a definition with `func`")
    return made


def _listed(made: ToolDef) -> JsonObject:
    return {
        "name": made.name,
        "description": made.description,
        "inputSchema": made.input_schema,
        **({"title": made.title} if made.title else {}),
        **({"outputSchema": made.output_schema} if made.output_schema is not None else {}),
        **({"annotations": dict(made.annotations)} if made.annotations else {}),
    }


def _result(value: Any) -> JsonObject:
    """Convert a function's return value into a result."""
    match value:
        case ToolResult():
            parts = value.parts or ([Part(kind="text", text=value.text)] if value.text else [])
            return {
                "content": [_block(part) for part in parts if part.kind != "structured"],
                **({"structuredContent": value.structured} if value.structured is not None else {}),
                **({} if value.success else {"isError": True}),
                **({"_meta": dict(value.meta)} if value.meta else {}),
            }
        case Part():
            return {"content": [_block(value)]}
        case str():
            return {"content": [{"type": "text", "text": value}]}
        case None:
            return {"content": []}
        case dict():
            text = json.dumps(value, ensure_ascii=False)
            return {"content": [{"type": "text", "text": text}], "structuredContent": value}
        case _:
            return {"content": [{"type": "text", "text": json.dumps(value, ensure_ascii=False)}]}


def _block(part: Part) -> JsonObject:
    meta = {"_meta": dict(part.meta)} if part.meta else {}
    match part.kind:
        case "image" | "audio":
            data = base64.b64encode(part.data).decode()
            return {"type": part.kind, "data": data, "mimeType": part.mime_type, **meta}
        case "link":
            return {"type": "resource_link", "uri": part.uri, "name": part.text or part.uri, **meta}
        case "resource":
            return {"type": "resource", "resource": _contents(part.uri, part.data or part.text), **meta}
        case _:
            return {"type": "text", "text": part.text, **meta}


def _contents(uri: str, content: str | bytes) -> JsonObject:
    if isinstance(content, str):
        return {"uri": uri, "mimeType": "text/plain", "text": content}
    blob = base64.b64encode(content).decode()
    return {"uri": uri, "mimeType": "application/octet-stream", "blob": blob}


def _prompt(name: str, text: str) -> JsonObject:
    from string import Formatter

    fields = dict.fromkeys(field for _, field, _, _ in Formatter().parse(text) if field)
    return {"name": name, "arguments": [{"name": field, "required": True} for field in fields]}
