"""The MCP side of a daemon's connection: the gateway of the client's workspace serves it.

Most requests are plain calls: of a known tool, by a client that can be asked nothing and wants no progress.
They go to the manager directly, since the SDK's server costs more than the rest of the daemon together. Their
results are the same, and every other request goes through the gateway.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any, cast

from dragoman.gateway.client import PROTOCOL
from dragoman.server.late_import import late_import_module

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Self

    from dragoman.gateway.workspace import Place, Workspace, Workspaces
    from dragoman.model import CallRequest, ToolDef

logger = logging.getLogger("dragoman")

END_SECONDS = 5.0
_META = "io.modelcontextprotocol/"
_PLAIN_PARAMS = frozenset({"name", "arguments", "_meta"})
_PLAIN_META = frozenset({f"{_META}protocolVersion", f"{_META}clientInfo", f"{_META}clientCapabilities"})


class McpSession:
    """Serves the messages of one connection."""

    def __init__(
        self,
        write: Callable[[bytes], None],
        flush: Callable[[], Awaitable[None]],
        place: Place,
        workspaces: Workspaces,
    ) -> None:
        """Prepare a session; the workspace is opened with the first message.

        Args:
            write: Sends a line to the client.
            flush: Waits until the client has room for more.
            place: Where the client is.
            workspaces: All workspaces of the daemon.
        """
        self._write = write
        self._flush = flush
        self._place = place
        self._workspaces = workspaces
        self._workspace: Workspace | None = None
        self._inbox: Any = None
        self._in_progress: set[Any] = set()
        self._calls: dict[Any, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a request has no answer yet."""
        return bool(self._in_progress or self._calls)

    async def take(self, message: dict[str, Any]) -> None:
        """Take a message of the client."""
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        if self._workspace is None:
            self._workspace = await self._open()
        params = _mapping(message.get("params"))
        if message.get("method") == "notifications/cancelled" and params.get("requestId") in self._calls:
            self._calls[params["requestId"]].cancel()
            return
        tool = self._plain_call(message, params)
        if tool is not None:
            task = asyncio.create_task(self._call(message["id"], tool, params.get("arguments")))
            self._calls[message["id"]] = task
            return
        try:
            parsed = jsonrpc_message_adapter.validate_python(message, by_name=False)
        except ValueError:
            error = {"code": -32600, "message": "not a JSON-RPC message"}
            self._send({"id": message.get("id"), "error": error})
            return
        if "method" in message and message.get("id") is not None:
            self._in_progress.add(message["id"])
        await self._inbox.send(SessionMessage(parsed))

    async def close(self) -> None:
        """End the session; requests in progress are cancelled."""
        tasks = [*self._calls.values(), *([self._task] if self._task is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=END_SECONDS)

    # ── Plain calls

    def _plain_call(self, message: Mapping[str, Any], params: Mapping[str, Any]) -> ToolDef | None:
        """Return the tool of a plain call; `None` for every other message."""
        if message.get("method") != "tools/call" or not isinstance(message.get("id"), int | str):
            return None
        meta = _mapping(params.get("_meta"))
        is_plain = (
            params.keys() <= _PLAIN_PARAMS
            and meta.keys() == _PLAIN_META
            and meta[f"{_META}protocolVersion"] == PROTOCOL
            and meta[f"{_META}clientCapabilities"] == {}
            and isinstance(params.get("arguments", {}), dict)
            and message["id"] not in self._calls
        )
        if not is_plain or self._workspace is None:
            return None
        return self._workspace.mcp.registry.get(str(params.get("name")))

    async def _call(self, number: Any, tool: ToolDef, arguments: Mapping[str, Any] | None) -> None:
        from mcp.shared.exceptions import MCPError

        from dragoman.gateway.ids import outer_result
        from dragoman.gateway.sdk_server import shaped
        from dragoman.gateway.view import answer_of

        workspace = cast("Workspace", self._workspace)
        try:
            with workspace.questions.during(tool.server, _Silent(self)):
                result = await workspace.mcp.forward.call(tool.name, arguments)
            found = outer_result(answer_of(result), tool.server)
            framed = shaped("tools/call", PROTOCOL, found, workspace.gateway.view().server)
            self._send({"id": number, "result": framed})
        except MCPError as exc:
            self._send({"id": number, "error": exc.error.model_dump(exclude_none=True)})
        except Exception as exc:
            logger.exception("a call failed in the daemon")
            self._send({"id": number, "error": {"code": -32603, "message": type(exc).__name__}})
        finally:
            self._calls.pop(number, None)
        await self._flush()

    def _send(self, message: dict[str, Any]) -> None:
        self._write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    # ── Everything else

    async def _open(self) -> Workspace:
        import anyio

        await late_import_module("dragoman.gateway.gateway")
        self._inbox, received = anyio.create_memory_object_stream[Any](1_000)
        ready: asyncio.Future[Workspace] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._serve(received, ready), name="dragoman client's MCP")
        await asyncio.wait({self._task, ready}, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            self._task.result()
        return await ready

    async def _serve(self, received: Any, ready: asyncio.Future[Workspace]) -> None:
        settings = await asyncio.to_thread(self._workspaces.settings, self._place)
        async with self._workspaces.use(self._place, settings) as workspace:
            workspace.start_all()
            ready.set_result(workspace)
            outbox = _Outbox(self._write, self._flush, self._in_progress)
            await workspace.gateway.serve(received, cast("Any", outbox))


class _Silent:
    """A plain call in progress: its client can be asked nothing and gets no log messages."""

    def __init__(self, client: object) -> None:
        self.client = client

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Refuse a question."""
        from mcp.shared.exceptions import MCPError
        from mcp_types import INVALID_REQUEST

        del params
        raise MCPError(code=INVALID_REQUEST, message=f"the client does not support {method}")

    async def approve(self, request: CallRequest) -> bool:
        """Refuse a call that needs a person's yes."""
        del request
        return False

    async def log(self, params: Mapping[str, Any]) -> None:
        """Drop a log message."""

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Drop a notification."""


class _Outbox:
    """Where the gateway writes its messages: straight to the socket."""

    def __init__(
        self, write: Callable[[bytes], None], flush: Callable[[], Awaitable[None]], in_progress: set[Any]
    ) -> None:
        self._write = write
        self._flush = flush
        self._in_progress = in_progress

    async def send(self, item: Any) -> None:
        """Send a message."""
        message = item.message
        if not hasattr(message, "method"):
            self._in_progress.discard(getattr(message, "id", None))
        self._write(message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        await self._flush()

    async def aclose(self) -> None:
        """Leave the socket to its owner."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _mapping(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
