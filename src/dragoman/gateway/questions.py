"""Questions: what servers ask goes to the client whose request caused it, and the answer goes back.

A modern server asks inside the request that it answers, and a context variable says whose that is. An older
server asks at any time, and its protocol does not name the request: the question goes to the client that has
one in progress at that server, and is refused if requests of several clients are. The same holds for log
messages.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST

from dragoman.model import Handlers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping

    from dragoman.model import Handler

logger = logging.getLogger("dragoman")

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
ELICIT = "elicitation/create"
SAMPLE = "sampling/createMessage"
ROOTS = "roots/list"


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

    async def log(self, params: Mapping[str, Any]) -> None:
        """Send a log message to the client, if it wants it."""
        ...


current_exchange: ContextVar[Exchange | None] = ContextVar("current_exchange", default=None)
"""The request of a client that the current task works for."""


class Questions:
    """Finds the client that a server's question is for. Make the manager with `handlers()`."""

    def __init__(self) -> None:
        self._exchanges: dict[str, list[Exchange]] = {}
        """Requests in progress, by server, the newest last."""
        self._listeners: set[Callable[[str, Mapping[str, Any]], Awaitable[None]]] = set()

    def handlers(self, given: Handlers | None = None) -> Handlers:
        """Return handlers for the manager: they ask the clients, and the given ones if no client is meant."""
        given = given or Handlers()
        return replace(
            given,
            elicitation=self._handler(ELICIT, given.elicitation),
            sampling=self._handler(SAMPLE, given.sampling),
            list_roots=self._handler(ROOTS, given.list_roots),
            logging=self._log(given.logging),
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
                return await exchange.ask(method, params)
            if given is None:
                msg = f"`{server}` asks for {method}, but no client has a request in progress there"
                raise MCPError(code=INVALID_REQUEST, message=msg)
            outcome = given(server, params)
            return await outcome if asyncio.iscoroutine(outcome) else outcome

        return ask

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
