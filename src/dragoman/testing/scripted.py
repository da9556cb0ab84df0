"""A server that does as it is told, in the process of the test that tells it.

Its tools are Python functions. What a function returns is the answer; what it raises is the failure; while it
sleeps, the caller waits; and it may bring its own server down. Everything that a manager asked is on record.
"""

from __future__ import annotations

import base64
import inspect
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast
from uuid import uuid4

from dragoman.errors import DragomanError, ProtocolError
from dragoman.model import Part, ServerSpec, Stdio, ToolDef, ToolResult
from dragoman.testing.memory import MemoryWire, Refusal, current_call, open_memory
from dragoman.tools.local import LocalTool, tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager

    from dragoman.model import JsonObject
    from dragoman.server.rpc import Rpc
    from dragoman.server.trail import Trail
    from dragoman.server.wire import Wire

P = ParamSpec("P")
R = TypeVar("R")

INTERNAL_ERROR = -32603
INVALID_PARAMS = -32602
METHOD_NOT_FOUND = -32601


@dataclass(slots=True, kw_only=True)
class ScriptedCall:
    """One call that a server was asked for."""

    tool: str
    arguments: Mapping[str, Any]
    cancelled: bool = False
    """Whether the caller gave it up, because it was cancelled or took too long."""
    _wire: MemoryWire = field(repr=False)
    _token: object = field(default=None, repr=False)

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to the caller, if it wants to hear of it."""
        if self._token is None:
            return
        facts = {"progressToken": self._token, "progress": progress, "total": total, "message": message}
        told = {key: value for key, value in facts.items() if value is not None}
        self._wire.notify("notifications/progress", told)

    async def ask(self, method: str, params: Mapping[str, Any] | None = None) -> JsonObject:
        """Ask the application something, as `elicitation/create`; return what its handler answers.

        Raises:
            ProtocolError: The application refuses.
        """
        return await self._wire.ask(method, params or {})


@dataclass(frozen=True, slots=True)
class InProcess(Stdio):
    """The way to a scripted server: in place of a child with pipes, an object with memory."""

    server: ScriptedServer | None = field(default=None, kw_only=True, repr=False)

    def open(
        self, *, name: str, trail: Trail, rpc: Rpc, on_end: Callable[[str], None]
    ) -> AbstractAsyncContextManager[Wire]:
        """Return the wire to the server."""
        del trail  # It tells of processes and addresses, and there are none.
        assert self.server is not None  # noqa: S101 -- `ScriptedServer.spec` makes no other
        return open_memory(self.server, name=name, rpc=rpc, on_end=on_end)


class ScriptedServer:
    """An MCP server for tests; `spec()` is what a manager is given."""

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
            name: Its name, in the spec and as it calls itself.
            tools: Functions, or definitions with a `func`.
            resources: What can be read, by address.
            prompts: The text of each prompt, by name; `{topic}` in it is an argument.
            instructions: What it says about its use.
            version: What it says of its version.
            on_connect: Called, and awaited if it is async, before each connection is answered; may sleep, or
                raise to refuse it.
        """
        self.name = name
        self.calls: list[ScriptedCall] = []
        """Every call so far, in order."""
        self.connections = 0
        """How often it was connected to."""
        self.resources = dict(resources or {})
        self.prompts = dict(prompts or {})
        self.instructions = instructions
        self.version = version
        self.refuses = False
        """Whether it is stopped: nobody can connect to it."""
        self.wires: set[MemoryWire] = set()
        """The open connections."""
        self._on_connect = on_connect
        # A program of its own: no listing that is kept on disk is another server's.
        self._command = f"in-process-{uuid4().hex}"
        self._tools = {made.name: made for made in map(_definition, tools)}

    def __repr__(self) -> str:
        return f"ScriptedServer({self.name!r})"

    def spec(self, **rules: Any) -> ServerSpec:
        """Return the server's spec; the rules are those of `ServerSpec`, as `timeouts={"call": 5}`."""
        return ServerSpec(self.name, InProcess(self._command, server=self), **rules)

    # What it offers

    def tool(self, function: Callable[P, R]) -> LocalTool[P, R]:
        """Add a function as a tool; a decorator."""
        made = cast("LocalTool[P, R]", function) if isinstance(function, LocalTool) else tool(function)
        self.add(made)
        return made

    def add(self, function: Callable[..., Any] | ToolDef) -> None:
        """Add a tool, or replace the one of its name; whoever is connected is told that the list changed."""
        made = _definition(function)
        self._tools[made.name] = made
        self._changed()

    def remove(self, name: str) -> None:
        """Take a tool away; whoever is connected is told that the list changed."""
        del self._tools[name]
        self._changed()

    def _changed(self) -> None:
        for wire in list(self.wires):
            wire.do(lambda wire=wire: wire.notify("notifications/tools/list_changed"))

    # What happens to it

    def crash(self, reason: str = "the scripted server crashed") -> None:
        """Lose every connection; the next one is taken."""
        for wire in list(self.wires):
            wire.do(lambda wire=wire: wire.end(reason))

    def stop(self, reason: str = "the scripted server was stopped") -> None:
        """Lose every connection, and take no other until `start`."""
        self.refuses = True
        self.crash(reason)

    def start(self) -> None:
        """Take connections again."""
        self.refuses = False

    @property
    def current(self) -> ScriptedCall:
        """The call that is being answered, inside of a tool's function."""
        call = current_call.get()
        if not isinstance(call, ScriptedCall):
            msg = "no call is being answered here"
            raise DragomanError(msg, hint="`current` is for the functions of a scripted server's tools")
        return call

    # What it answers

    async def answer(self, wire: MemoryWire, method: str, params: Mapping[str, Any]) -> JsonObject:
        """Answer a request, as a server does.

        Raises:
            Refusal: It is answered with an error.
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
                raise Refusal(INVALID_PARAMS, "there is no such thing")
            case _:
                raise Refusal(METHOD_NOT_FOUND, f"`{method}` is not known")

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
        name, arguments = params["name"], cast("JsonObject", params.get("arguments") or {})
        token = cast("JsonObject", params.get("_meta") or {}).get("progressToken")
        call = ScriptedCall(tool=name, arguments=arguments, _wire=wire, _token=token)
        self.calls.append(call)
        made = self._tools.get(name)
        if made is None:
            raise Refusal(INVALID_PARAMS, f"there is no tool `{name}`")
        assert made.func is not None  # noqa: S101 -- `_definition` lets no other in
        current_call.set(call)
        try:
            value = made.func(**arguments)
            return _result(await value if inspect.isawaitable(value) else value)
        except ProtocolError as exc:
            code = INTERNAL_ERROR if exc.rpc_code is None else exc.rpc_code
            raise Refusal(code, exc.message, exc.data) from exc
        except Exception as exc:  # noqa: BLE001 -- a tool that fails is what a test wants to see
            return {"content": [{"type": "text", "text": str(exc) or type(exc).__name__}], "isError": True}


def _definition(function: Callable[..., Any] | ToolDef) -> ToolDef:
    made = function if isinstance(function, ToolDef) else tool(function)
    if made.func is None:
        msg = f"the tool `{made.name}` of a scripted server needs its `func`"
        raise DragomanError(msg, hint="a function alone will do")
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
    """Put what a function returned as a server puts it."""
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
