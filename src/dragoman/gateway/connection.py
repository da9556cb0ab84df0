"""ClientConnection: one client that stays: over stdio, a local socket or SSE, or a session over HTTP.

The client's first request decides which protocol it speaks: a handshake, or requests that each say it; only
`server/discover` decides nothing. Over a channel that carries messages both ways, each request runs in a task
of its own, so that a slow one holds up no other. Over HTTP, a request of a session has a response of its own,
and runs in the task of that.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from typing import TYPE_CHECKING, Any, Protocol, cast

from dragoman.gateway.ids import outer_uri
from dragoman.gateway.request import MAX_NAME_CHARS, SERVER_ERROR, ClientRequest
from dragoman.server.protocol.envelope import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LATEST_HANDSHAKE_VERSION,
    MODERN_PROTOCOL_VERSIONS,
    UNSUPPORTED_PROTOCOL_VERSION,
    MCPError,
    check_notification,
    check_params,
    encode,
    error_of,
    has_envelope,
    is_message,
    read_modern_request,
)
from dragoman.server.protocol.rounds import HOLD_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dragoman.gateway.outbox import ClientOutbox
    from dragoman.gateway.view import View

END_SECONDS = 5.0
MAX_RUNNING = 1_000
"""How many requests of one client may be in progress."""
MAX_CAPABILITIES_BYTES = 16 * 1024
MAX_ASKED = 100
"""How many questions may wait for one client."""
INITIALIZE = "initialize"
DISCOVER = "server/discover"
CANCELLED = "notifications/cancelled"
_NUMBERS = itertools.count(1)


class RequestInProgress(Protocol):
    """A request in progress."""

    def cancel(self) -> object:
        """End it without its result."""
        ...


class ClientConnection:
    """One client."""

    def __init__(
        self,
        view: View,
        outbox: ClientOutbox | None = None,
        *,
        principal: str = "",
        key: str = "",
        place: Mapping[str, Any] | None = None,
    ) -> None:
        """Know nothing of the client yet.

        Args:
            view: What it is shown.
            outbox: What goes to the client outside of a response; `None` while it reads nothing.
            principal: Who opened it, where that has been checked; the only one who may use it.
            key: The id of the session, if the transport has sessions.
            place: Where the client is, as attributes of a span.
        """
        self.view = view
        """What it is shown."""
        self.only = view.only
        self.outbox = outbox
        self.principal = principal
        self.key = key
        self.version = ""
        """The protocol version that was agreed on; empty before the handshake."""
        self.capabilities: Mapping[str, Any] = {}
        self.name = ""
        """What the client calls itself."""
        self.level = ""
        """The lowest level of log messages that it wants; empty for none."""
        self.subscribed: set[tuple[str, str]] = set()
        """Servers and their own URIs."""
        self.running: dict[int | str, RequestInProgress] = {}
        """Its requests in progress."""
        self.used = self.began = time.monotonic()
        self.place: Mapping[str, Any] = place or {}
        self.ended = asyncio.Event()
        self._asked: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._is_modern: bool | None = None
        """Which protocol the client speaks; `None` before a request has decided that."""

    @property
    def is_busy(self) -> bool:
        """Whether a request has no answer yet."""
        return bool(self.running)

    def put(self, message: Mapping[str, Any]) -> None:
        """Send a message to the client outside of a response, without waiting for that."""
        if self.outbox is not None:
            self.outbox.send(message)

    def announce(self, method: str, params: Mapping[str, Any]) -> None:
        """Tell the client of something that it did not ask for in that moment."""
        self.put({"method": method, "params": dict(params)})

    def wants(self, method: str) -> bool:  # noqa: ARG002 -- as a stream of announcements
        """Return whether changes of a list are announced to it: every one is."""
        return True

    def updated(self, server: str, uri: str, subscribed: list[str]) -> list[str]:  # noqa: ARG002 -- as above
        """Return the URIs that it is told for an updated resource: the resource itself."""
        return [uri if self.only == server else outer_uri(server, uri)]

    # Messages of the client

    def take(self, message: object) -> None:
        """Take a message; the answer to a request goes out by `put`."""
        if not is_message(message):
            number = cast("dict[str, Any]", message).get("id") if isinstance(message, dict) else None
            known = number if type(number) in (int, str) else None
            self._refuse(known, MCPError(code=INVALID_REQUEST, message="not a JSON-RPC message"))
            return
        given = cast("dict[str, Any]", message)
        method, params = given.get("method"), given.get("params")
        if method is None:
            self._take_answer(given)
        elif "id" in given:
            try:
                request = self.request(given, self.put)
            except MCPError as exc:
                self._refuse(given["id"], exc)
                return
            task = asyncio.create_task(self._answer(request), name=f"dragoman {request.method}")
            self.running[request.id] = task
        elif method == CANCELLED:
            cancelled: object = cast("dict[str, Any]", params or {}).get("requestId")
            if isinstance(cancelled, int | str) and (running := self.running.get(cancelled)) is not None:
                running.cancel()
        elif check_notification(method, self.version, params):
            self.view.take_notification(method, self)

    def request(self, message: dict[str, Any], put: Callable[[Mapping[str, Any]], None]) -> ClientRequest:
        """Return a request by the rules of the protocol that the client speaks.

        Args:
            message: The request.
            put: Sends a message to the client before the result, without waiting.

        Raises:
            MCPError: It breaks them, one with its id is in progress, or too many are.
        """
        if message["id"] in self.running:
            raise MCPError(code=INVALID_REQUEST, message="a request with this id is in progress")
        if len(self.running) >= MAX_RUNNING:
            raise MCPError(code=SERVER_ERROR, message="too many requests at once")
        method, params = message["method"], message.get("params")
        is_modern = self._is_modern
        if is_modern is None:
            is_modern = method != INITIALIZE and has_envelope(params)
            # A client that does not wait for the answer of a gateway that starts goes on with a handshake.
            self._is_modern = None if is_modern and method == DISCOVER else is_modern
        if is_modern:
            if method == INITIALIZE:
                msg = "this connection speaks the 2026-07-28 protocol, which has no handshake"
                data = {"supported": list(MODERN_PROTOCOL_VERSIONS)}
                raise MCPError(code=UNSUPPORTED_PROTOCOL_VERSION, message=msg, data=data)
            version, capabilities = read_modern_request(message, None)
        else:
            self._check_older(method, params)
            version, capabilities = self.version or LATEST_HANDSHAKE_VERSION, self.capabilities
        return ClientRequest(
            message,
            version=version,
            capabilities=capabilities,
            put=put,
            principal=self.principal,
            client=self,
        )

    def _check_older(self, method: str, params: Mapping[str, Any] | None) -> None:
        if method == INITIALIZE:
            self._greet(params)
        elif has_envelope(params):
            msg = "this connection began with a handshake: requests of the 2026-07-28 protocol are refused"
            raise MCPError(code=INVALID_REQUEST, message=msg)
        elif not self.version and method != "ping" and self.view.knows(method):
            raise MCPError(code=INVALID_PARAMS, message="Invalid request parameters", data="initialize first")

    def _greet(self, params: Mapping[str, Any] | None) -> None:
        """Take what the handshake says."""
        check_params(INITIALIZE, LATEST_HANDSHAKE_VERSION, params)
        given = dict(params or {})
        if len(encode(given["capabilities"])) > MAX_CAPABILITIES_BYTES:
            # They are kept for as long as the client stays.
            raise MCPError(code=INVALID_PARAMS, message="the capabilities of the client are too long")
        self.version = agreed_version(given["protocolVersion"])
        self.capabilities = given["capabilities"]
        self.name = str(given["clientInfo"]["name"])[:MAX_NAME_CHARS]

    async def _answer(self, request: ClientRequest) -> None:
        try:
            outcome = await self.view.respond(request)
        finally:
            self.running.pop(request.id, None)
        self.put({"id": request.id, **outcome})

    def _refuse(self, number: int | str | None, exc: MCPError) -> None:
        self.put({"id": number, "error": error_of(exc)})

    # Questions to the client

    async def ask(
        self, method: str, params: Mapping[str, Any], put: Callable[[Mapping[str, Any]], None]
    ) -> Mapping[str, Any]:
        """Ask the client, and wait for its answer.

        Raises:
            MCPError: It answered with an error or not in time, or has too many questions already.
        """
        if len(self._asked) >= MAX_ASKED:
            raise MCPError(code=SERVER_ERROR, message="too many questions wait for this client")
        number = f"dragoman-{next(_NUMBERS)}-{secrets.token_hex(8)}"
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            with self.view.observer.asking(method, self, number) as meta:
                given = dict(params)
                if meta:
                    given["_meta"] = {**(given.get("_meta") or {}), **meta}
                put({"id": number, "method": method, "params": given})
                # No deadline of the call runs meanwhile, and a client that has gone never answers.
                async with asyncio.timeout(HOLD_SECONDS):
                    return await answer
        except TimeoutError:
            raise MCPError(code=SERVER_ERROR, message="the client did not answer in time") from None
        except asyncio.CancelledError as exc:
            # Someone else has answered, or the request is over: the client can take its form away.
            put(_cancelled(number, str(exc)))
            raise
        finally:
            self._asked.pop(number, None)

    def _take_answer(self, message: Mapping[str, Any]) -> None:
        """Take the answer to a question; one that is not waited for is dropped."""
        waiting = self._asked.get(message["id"]) if isinstance(message["id"], str) else None
        if waiting is None or waiting.done():
            return
        error = message.get("error")
        if isinstance(error, dict):
            given = cast("dict[str, Any]", error)
            code = given.get("code")
            refusal = MCPError(
                code=code if isinstance(code, int) else 0, message=str(given.get("message", ""))
            )
            waiting.set_exception(refusal)
        else:
            waiting.set_result(message["result"])

    # The end

    async def finish(self, seconds: float) -> None:
        """Wait until no request is in progress, but not longer than this."""
        tasks: list[asyncio.Task[Any]] = [
            one for one in self.running.values() if isinstance(one, asyncio.Task)
        ]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    def end(self) -> None:
        """Cancel the requests of the client and the questions to it, and end its stream."""
        if not self.ended.is_set():
            self.view.observer.session_ended(self)
        self.ended.set()
        for running in list(self.running.values()):
            running.cancel()
        for answer in self._asked.values():
            answer.cancel()

    async def close(self) -> None:
        """End the connection, and forget what it was to be told of."""
        self.end()
        await self.finish(END_SECONDS)
        await self.view.announcer.remove(self)


def agreed_version(wanted: str) -> str:
    """Return the protocol version for a client of the older protocol that wants this one."""
    return wanted if wanted in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION


def _cancelled(number: str, reason: str) -> dict[str, Any]:
    params = {"requestId": number, **({"reason": reason} if reason else {})}
    return {"method": "notifications/cancelled", "params": params}
