"""Questions: what servers ask goes to the client whose request caused it, and the answer goes back.

A modern server asks inside the request that it answers, and a context variable says whose that is. An older
server asks at any time, and its protocol does not name the request: the question goes to the client that has
one in progress at that server, and is refused if requests of several clients are. The same holds for log
messages.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST

from dragoman.model import Handlers
from dragoman.trust.masking import mask_arguments
from dragoman.trust.sanitizing import for_model

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping

    from dragoman.model import ApprovalHandler, CallRequest, Handler

logger = logging.getLogger("dragoman")

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
ELICIT = "elicitation/create"
SAMPLE = "sampling/createMessage"
ROOTS = "roots/list"
COMPLETE = "notifications/elicitation/complete"
MAX_OPENED = 1_000
"""How many addresses that clients were asked to open are remembered."""
SHOWN_CHARS = 2_000
"""How much of a call's arguments a person is shown."""


def approval_form(request: CallRequest) -> dict[str, Any]:
    """Return the parameters of an elicitation that asks whether a call may be made."""
    what = {"tool": "call the tool", "prompt": "use the prompt", "resource": "read"}.get(request.kind, "use")
    lines = [f"May this client {what} `{request.original_name}` of the server `{request.server}`?"]
    if request.arguments:
        text = json.dumps(mask_arguments(dict(request.arguments)), ensure_ascii=False, default=repr)
        rest = f" … ({len(text):,} characters)" if len(text) > SHOWN_CHARS else ""
        lines.append(f"Arguments: {text[:SHOWN_CHARS]}{rest}")
    if request.rule:
        lines.append(f"Asked because of the rule: {request.rule}")
    if request.reason:
        lines.append(request.reason)
    allow = {"type": "boolean", "title": "Allow", "default": False}
    return {
        "mode": "form",
        "message": for_model("\n".join(lines)),
        "requestedSchema": {"type": "object", "properties": {"allow": allow}, "required": ["allow"]},
    }


def says_yes(answer: object) -> bool:
    """Return whether the answer to an approval form is a clear yes."""
    if not isinstance(answer, dict):
        return False
    given = cast("dict[str, Any]", answer)
    content = given.get("content")
    return (
        given.get("action") == "accept"
        and isinstance(content, dict)
        and cast("dict[str, Any]", content).get("allow") is True
    )


class Exchange(Protocol):
    """One request of a client in progress."""

    @property
    def client(self) -> object:
        """Equal for requests of the same client."""
        ...

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask the client, and return its answer.

        Raises:
            MCPError: The client cannot be asked, or answered with an error.
        """
        ...

    async def approve(self, request: CallRequest) -> bool:
        """Ask the person at the client whether a call may be made; only a clear yes is true."""
        ...

    async def log(self, params: Mapping[str, Any]) -> None:
        """Send a log message to the client, if it wants it."""
        ...

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification, if the client's protocol has it."""
        ...


current_exchange: ContextVar[Exchange | None] = ContextVar("current_exchange", default=None)
"""The request of a client that the current task works for."""


class Questions:
    """Finds the client that a server's question is for. Make the manager with `handlers()`."""

    def __init__(self) -> None:
        self._exchanges: dict[str, list[Exchange]] = {}
        """Requests in progress, by server, the newest last."""
        self._opened: dict[tuple[str, str], Exchange] = {}
        """Who was asked to open an address, by server and the id of the question."""
        self._listeners: set[Callable[[str, Mapping[str, Any]], Awaitable[None]]] = set()

    def handlers(self, given: Handlers | None = None) -> Handlers:
        """Return handlers for the manager: they ask the clients, and the given ones if no client is meant."""
        given = given or Handlers()
        return replace(
            given,
            elicitation=self._handler(ELICIT, given.elicitation),
            sampling=self._handler(SAMPLE, given.sampling),
            list_roots=self._handler(ROOTS, given.list_roots),
            elicitation_complete=self._complete,
            logging=self._log(given.logging),
            approval=self._approval(given.approval),
        )

    def in_progress(self) -> int:
        """Return how many requests are in progress at servers."""
        return sum(map(len, self._exchanges.values()))

    @contextmanager
    def during(self, server: str, exchange: Exchange) -> Generator[None]:
        """Make an exchange the one that a server's questions are about."""
        self._exchanges.setdefault(server, []).append(exchange)
        token = current_exchange.set(exchange)
        try:
            yield
        finally:
            current_exchange.reset(token)
            exchanges = self._exchanges[server]
            exchanges.remove(exchange)
            if not exchanges:
                del self._exchanges[server]

    def listen(self, listener: Callable[[str, Mapping[str, Any]], Awaitable[None]]) -> Callable[[], None]:
        """Call a listener with log messages that come outside requests; return what ends that."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def _handler(self, method: str, given: Handler | None) -> Handler:
        async def ask(server: str, params: dict[str, Any]) -> Any:
            exchange = self._asked(server)
            if exchange is not None:
                self._remember(server, params, exchange)
                return await exchange.ask(method, params)
            if given is None:
                msg = f"`{server}` asks for {method}, but no client has a request in progress there"
                raise MCPError(code=INVALID_REQUEST, message=msg)
            outcome = given(server, params)
            return await outcome if asyncio.iscoroutine(outcome) else outcome

        return ask

    def _remember(self, server: str, params: Mapping[str, Any], exchange: Exchange) -> None:
        if isinstance(key := params.get("elicitationId"), str):
            self._opened[server, key] = exchange
            if len(self._opened) > MAX_OPENED:
                del self._opened[next(iter(self._opened))]

    async def _complete(self, server: str, params: dict[str, Any]) -> None:
        """Tell the client that was asked to open an address that this is done."""
        exchange = self._opened.pop((server, str(params.get("elicitationId"))), None)
        if exchange is not None:
            await exchange.tell(COMPLETE, params)

    def _approval(self, given: ApprovalHandler | None) -> ApprovalHandler:
        async def approve(request: CallRequest) -> bool:
            exchange = current_exchange.get()
            if exchange is not None:
                return await exchange.approve(request)
            answer = given(request) if given is not None else False
            return await answer if inspect.isawaitable(answer) else answer

        return approve

    def _log(self, given: Handler | None) -> Handler:
        async def log(server: str, params: dict[str, Any]) -> None:
            exchanges = self._exchanges.get(server, ())
            newest = {exchange.client: exchange for exchange in exchanges}
            for exchange in newest.values():
                await exchange.log(params)
            if not newest:
                for listener in list(self._listeners):
                    await listener(server, params)
            if given is not None and asyncio.iscoroutine(outcome := given(server, params)):
                await outcome

        return log

    def _asked(self, server: str) -> Exchange | None:
        """Return the exchange that a question is about; `None` if no client is meant.

        Raises:
            MCPError: Several clients have requests in progress at the server.
        """
        exchanges = self._exchanges.get(server)
        # The tasks of a connection inherit the request that opened it, which has ended since.
        if (own := current_exchange.get()) is not None and own in (exchanges or ()):
            return own
        if not exchanges:
            return None
        if len({exchange.client for exchange in exchanges}) > 1:
            logger.warning("%s: refused its question: several clients have requests there", server)
            msg = f"several clients have requests in progress at `{server}`, which does not say whose this is"
            raise MCPError(code=INVALID_REQUEST, message=msg)
        return exchanges[-1]
