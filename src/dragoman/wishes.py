"""What the application wants from its servers beside answers: news of resources, log messages, other roots.

A wish outlives the connection that it was told to: a server that is connected anew is told again, and as
nobody knows what happened meanwhile, every resource that is subscribed to is then taken to have changed. What
servers tell is passed on a little later, so that many changes of one thing are one event.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

from dragoman.errors import DragomanError
from dragoman.events import PromptsChanged, ResourceChanged, ResourcesChanged, StateChanged
from dragoman.model import Handlers, ServerState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence

    from dragoman.events import Event, OfferChanged
    from dragoman.server.session import Session

logger = logging.getLogger("dragoman")

PAUSE = 0.1
"""Changes of one thing within this time are one."""
MAX_PENDING = 1000
"""Changes that may wait to be told; beyond it the rest of them is dropped."""

LogLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
ChangeHandler: TypeAlias = "Callable[[ResourceChanged], Any]"
"""Told of a change of a resource; may be async."""

_CONNECTED = frozenset({ServerState.READY, ServerState.DEGRADED})

T = TypeVar("T")


class Ask(Protocol):
    """Does something with a server's session."""

    async def __call__(self, server: str, job: Callable[[Session], Awaitable[T]], what: str) -> T:
        """Connect if need be, and do it."""
        ...


class Wishes:
    """The wishes of one manager."""

    def __init__(
        self,
        ask: Ask,
        publish: Callable[[Event], None],
        forbids: Callable[[str, str], bool] = lambda _server, _uri: False,
    ) -> None:
        """Begin without wishes.

        Args:
            ask: Does something with a server's session.
            publish: Told what servers tell.
            forbids: Given a server and a resource, returns whether the resource may not be read.
        """
        self._ask = ask
        self._forbids = forbids
        self._publish = publish
        self._handlers: dict[tuple[str, str], list[ChangeHandler]] = {}
        """By server and URI."""
        self._levels: dict[str, LogLevel] = {}
        self._level: LogLevel | None = None
        """For servers that have none of their own."""
        self._roots: dict[str, tuple[str, ...]] = {}
        self._given_roots: Callable[[str], Sequence[str] | None] = _no_roots
        self._seen: set[str] = set()
        """The servers that were connected before."""
        self._pending: dict[OfferChanged, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._telling: asyncio.Task[None] | None = None
        self._closed = False

    def answering(self, handlers: Handlers | None) -> Handlers:
        """Return the application's handlers, with roots that may change."""
        handlers = handlers or Handlers()
        given = handlers.roots
        if callable(given):
            self._given_roots = given
        elif given is not None:
            self._given_roots = lambda _: given
        return replace(handlers, roots=self.roots)

    def roots(self, server: str) -> Sequence[str] | None:
        """Return the roots of a server, as they are now."""
        own = self._roots.get(server, self._roots.get(""))
        return self._given_roots(server) if own is None else own

    async def set_roots(self, roots: Iterable[str], server: str | None, connected: Iterable[str]) -> None:
        """Give one server, or all, other roots, and tell those that are connected."""
        if server is None:
            self._roots.clear()
        self._roots[server or ""] = tuple(roots)
        await self._tell_all(connected, lambda session: session.tell_roots_changed(), "roots")

    async def set_log_level(self, level: LogLevel, server: str | None, connected: Iterable[str]) -> None:
        """Ask one server, or all, for log messages from a level on."""
        if server is None:
            self._levels.clear()
            self._level = level
        else:
            self._levels[server] = level
        await self._tell_all(connected, lambda session: session.set_log_level(level), "logging")

    async def subscribe(self, uri: str, server: str, on_change: ChangeHandler | None) -> None:
        """Have a server tell of changes of a resource.

        Raises:
            DragomanError: The server cannot, or does not want to.
        """
        key = (server, uri)
        is_new = key not in self._handlers
        handlers = self._handlers.setdefault(key, [])
        if on_change is not None:
            handlers.append(on_change)
        try:
            await self._ask(server, lambda session: session.subscribe(uri), uri)
        except BaseException:
            if on_change is not None and on_change in handlers:
                handlers.remove(on_change)
            if is_new and not handlers:
                self._handlers.pop(key, None)
            raise

    async def unsubscribe(self, uri: str, server: str | None, connected: Iterable[str]) -> None:
        """Have the servers that tell of a resource, or that one, tell of it no more."""
        keys = [key for key in self._handlers if key[1] == uri and server in (None, key[0])]
        for key in keys:
            del self._handlers[key]
        told = [name for name, _ in keys if name in set(connected)]
        await self._tell_all(told, lambda session: session.unsubscribe(uri), uri)

    def hear(self, event: Event) -> None:
        """Take an event on its way to whoever listens."""
        match event:
            case ResourceChanged() | ResourcesChanged() | PromptsChanged():
                if not isinstance(event, ResourceChanged) or self._handlers_of(event) is not None:
                    self._tell_later(event)
                return
            case StateChanged(after=ServerState.READY | ServerState.DEGRADED) if (
                event.before not in _CONNECTED
            ):
                self.greet(event.server)
            case _:
                pass
        self._publish(event)

    def greet(self, server: str) -> None:
        """Tell a server that has just been connected what is wanted of it."""
        if self._closed:
            return
        was_seen = server in self._seen
        self._seen.add(server)
        uris = [uri for name, uri in self._handlers if name == server]
        own = self._levels.get(server)
        level = self._level if own is None else own
        if uris or level is not None:
            self._start(self._renew(server, uris if was_seen else [], level))

    def close(self) -> set[asyncio.Task[None]]:
        """Tell nobody anything from here on; returns what is still about to end."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        return set(self._tasks)

    async def _renew(self, server: str, uris: list[str], level: LogLevel | None) -> None:
        if level is not None:
            await self._tell_all([server], lambda session: session.set_log_level(level), "logging")
        for uri in uris:
            if self._forbids(server, uri):
                logger.warning("%s: `%s` is not subscribed to again: the policy denies it", server, uri)
                continue
            try:
                await self._ask(server, lambda session, uri=uri: session.subscribe(uri), uri)
            except DragomanError as exc:
                logger.warning("%s: it does not tell of `%s` any more: %s", server, uri, exc)
            else:
                self._tell_later(ResourceChanged(server=server, uri=uri))

    async def _tell_all(
        self, servers: Iterable[str], job: Callable[[Session], Awaitable[None]], what: str
    ) -> None:
        """Do something with every server; one that does not want it is logged."""
        names = list(servers)
        outcomes = await asyncio.gather(
            *(self._ask(name, job, what) for name in names), return_exceptions=True
        )
        for name, outcome in zip(names, outcomes, strict=True):
            if isinstance(outcome, DragomanError):
                logger.warning("%s: it could not be told about `%s`: %s", name, what, outcome)
            elif outcome is not None:
                raise outcome

    def _tell_later(self, event: OfferChanged) -> None:
        if self._closed or len(self._pending) >= MAX_PENDING:
            return
        self._pending[event] = None
        if self._telling is None or self._telling.done():
            self._telling = self._start(self._tell())

    async def _tell(self) -> None:
        while self._pending:
            await asyncio.sleep(PAUSE)
            events, self._pending = self._pending, {}
            for event in events:
                self._publish(event)
                handlers = self._handlers_of(event) if isinstance(event, ResourceChanged) else None
                for handler in handlers or ():
                    self._start(_call(handler, event))

    def _handlers_of(self, event: ResourceChanged) -> list[ChangeHandler] | None:
        """Return whom to tell of a change; `None` if nobody subscribed to it, or to what it is below of."""
        found: list[ChangeHandler] | None = None
        for (server, uri), handlers in self._handlers.items():
            if server == event.server and (event.uri == uri or event.uri.startswith(f"{uri.rstrip('/')}/")):
                found = [*(found or ()), *handlers]
        return found

    def _start(self, job: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(job, name="dragoman wishes")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (exc := task.exception()) is not None:
            logger.error("a wish could not be told", exc_info=exc)


async def _call(handler: ChangeHandler, event: Any) -> None:
    try:
        outcome = handler(event)
        if inspect.isawaitable(outcome):
            await outcome
    except Exception:
        logger.exception("%s: the handler of a change failed", event.server)


def _no_roots(_: str) -> None:
    return None
