"""The SDK's low-level server, taught to send results as they are.

The SDK validates every result against the models of the client's protocol version and drops what they do not
know. A gateway must not: `RawResults` is a middleware that lets the SDK check the request, and then answers
with the result that the handler has put aside.
"""

from __future__ import annotations

import inspect
from contextvars import ContextVar
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp_types import SERVER_INFO_META_KEY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mcp.server.connection import Connection
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from mcp.server.models import InitializationOptions
    from mcp.server.session import ServerSession

_CACHEABLE = ("/list", "/read")
_COMPARES_HEADERS = "get_tool_input_schema" in inspect.signature(Server.__init__).parameters
_MODERN_ONLY = frozenset({"resultType", "ttlMs", "cacheScope"})

_put_aside: ContextVar[list[Mapping[str, Any]] | None] = ContextVar("put_aside", default=None)
"""Where the handler of the current request leaves its result."""


def is_modern(version: str) -> bool:
    """Return whether a protocol version is stateless: 2026-07-28 or later."""
    return version in MODERN_PROTOCOL_VERSIONS


def put_aside(result: Mapping[str, Any]) -> None:
    """Answer the current request with this result, unchanged."""
    place = _put_aside.get()
    if place is not None:
        place[:] = [result]


class RawResults:
    """The innermost middleware: replaces the handler's result with the one that it has put aside."""

    def __init__(self, server: GatewayServer) -> None:
        self._server = server

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Handle one request."""
        place: list[Mapping[str, Any]] = []
        token = _put_aside.set(place)
        try:
            checked = await call_next(ctx)
        finally:
            _put_aside.reset(token)
        return shaped(ctx.method, ctx.protocol_version, place[0], self._server) if place else checked


def shaped(method: str, version: str, result: Mapping[str, Any], server: GatewayServer) -> dict[str, Any]:
    """Return a result with the fields that the client's protocol generation requires around it."""
    if not is_modern(version):
        kept = {key: value for key, value in result.items() if key not in _MODERN_ONLY}
        meta = kept.get("_meta")
        if isinstance(meta, dict) and SERVER_INFO_META_KEY in meta:
            rest = {
                key: value
                for key, value in cast("dict[str, Any]", meta).items()
                if key != SERVER_INFO_META_KEY
            }
            kept = {**kept, "_meta": rest} if rest else {k: v for k, v in kept.items() if k != "_meta"}
        return kept
    framed: dict[str, Any] = {"resultType": "complete"}
    if method.endswith(_CACHEABLE):
        framed |= {"ttlMs": 0, "cacheScope": "private"}
    framed |= result
    if framed["resultType"] == "input_required":
        framed.pop("ttlMs", None)
        framed.pop("cacheScope", None)
    meta = framed.get("_meta")
    known = cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}
    if SERVER_INFO_META_KEY not in known:
        framed["_meta"] = {**known, SERVER_INFO_META_KEY: server.stamp}
    return framed


class GatewayServer(Server[Any]):
    """A low-level server that announces changes of its lists in both protocol generations."""

    @cached_property
    def stamp(self) -> Any:
        """What every modern result says about the server; the SDK copies it each time."""
        return self.server_info_stamp

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Declare the announcements, which the SDK's HTTP entry leaves out."""
        every = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        return super().create_initialization_options(
            notification_options or every, experimental_capabilities, extensions
        )


def input_schemas(look_up: Callable[[str], Mapping[str, Any] | None]) -> dict[str, Any]:
    """Return the argument of `Server` that says which headers mirror arguments; SDK 2.0 does not check."""
    return {"get_tool_input_schema": look_up} if _COMPARES_HEADERS else {}


class RawRequest:
    """A request to a client, as it is; stands for the SDK's request models."""

    def __init__(self, method: str, params: Mapping[str, Any]) -> None:
        self.method = method
        self._params = params

    def model_dump(self, **_: object) -> dict[str, Any]:
        """Return the request as the session sends it."""
        return {"method": self.method, "params": dict(self._params)}


class RawNotification(RawRequest):
    """A notification to a client, as it is."""


class RawAnswer:
    """Stands for the SDK's result models, and returns the answer unchanged."""

    @staticmethod
    def model_validate(raw: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Return the answer."""
        return raw


def connection_of(session: ServerSession) -> Connection:
    """Return the connection behind a request, which lasts longer; the SDK has no public name for it."""
    return session._connection  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
