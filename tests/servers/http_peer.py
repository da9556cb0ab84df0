"""The other end of an HTTP server under test: a bare conversation on one of our wires, without the SDK."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

from dragoman.server.attempt import ConnectAttempt, ConnectionEnd
from dragoman.server.protocol.rpc import Rpc
from dragoman.server.protocol.wire import HttpOptions, SendInfo

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from dragoman.errors import DragomanError
    from dragoman.server.protocol.wire import Wire

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
GUARD = 20.0
"""No outcome may take so long; a guard, not a measurement."""


class Peer:
    """One conversation; `async with Peer(open_http, Http(url))` opens its wire."""

    def __init__(
        self,
        opener: Callable[..., AbstractAsyncContextManager[Wire]],
        transport: object,
        *,
        version: str = LEGACY,
        **options: Any,
    ) -> None:
        self.rpc = Rpc(self)
        self.attempt = ConnectAttempt(kind="http")
        self.version = version
        self.notes: list[tuple[str, dict[str, Any] | None]] = []
        self.noted = asyncio.Event()
        self.asked: list[tuple[Any, str]] = []
        self.ends: list[str] = []
        self.ended = asyncio.Event()
        self.wire: Wire = None  # type: ignore[assignment]
        self._opener = opener
        self._transport = transport
        self._options = HttpOptions(**options)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        context = self._opener(
            self._transport,
            name="srv",
            attempt=self.attempt,
            rpc=self.rpc,
            on_end=self._on_end,
            options=self._options,
        )
        async with asyncio.timeout(GUARD):
            self.wire = await self._stack.enter_async_context(context)
        return self

    async def __aexit__(self, *_: object) -> None:
        async with asyncio.timeout(GUARD):
            await self._stack.aclose()

    def begin(self, method: str = "tools/call", **params: Any) -> tuple[asyncio.Future[Any], bytes, SendInfo]:
        """Send a request; gives what its outcome comes in, and what giving it up needs."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def resolve(outcome: dict[str, Any] | DragomanError) -> None:
            assert not future.done()
            future.set_result(outcome)

        request_id, message = self.rpc.request(method, {"name": "fault", **params}, resolve=resolve)
        headers = {} if method == "initialize" else {"mcp-protocol-version": self.version}
        envelope = SendInfo(method, request_id, headers)
        self.wire.send(message, envelope)
        return future, message, envelope

    async def ask(self, method: str = "tools/call", **params: Any) -> Any:
        """Send a request and give its outcome: a result or an error."""
        async with asyncio.timeout(GUARD):
            return await self.begin(method, **params)[0]

    async def text(self, method: str = "tools/call", **params: Any) -> str:
        """Send a request and give the text of its result."""
        outcome = await self.ask(method, **params)
        assert isinstance(outcome, dict), outcome
        return outcome["content"][0]["text"]

    def tell(self, method: str, **params: Any) -> None:
        """Send a notification."""
        headers = {"mcp-protocol-version": self.version}
        self.wire.send(self.rpc.notification(method, params), SendInfo(method, None, headers))

    async def shake_hands(self) -> None:
        """Open a session."""
        outcome = await self.ask("initialize")
        assert isinstance(outcome, dict), outcome
        self.tell("notifications/initialized")

    def _on_end(self, end: ConnectionEnd) -> None:
        self.ends.append(end.reason)
        self.ended.set()

    def on_request(self, request_id: Any, method: str, params: dict[str, Any] | None) -> None:
        self.asked.append((request_id, method))

    def on_notification(self, method: str, params: dict[str, Any] | None) -> None:
        self.notes.append((method, params))
        self.noted.set()

    def on_junk(self, reason: str, sample: bytes) -> None:
        pass
