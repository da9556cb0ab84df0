"""Subscriptions: subscribed resources, log levels and roots, kept across reconnections.

After a reconnection the server gets its log level and subscriptions again. Changes may have been missed in
between, so every subscribed resource counts as changed. Notifications of changes are held for a moment, so
that many changes of one resource become one event.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

from dragoman.errors import DragomanError
from dragoman.events import PromptsChanged, ResourceChanged, ResourcesChanged, StateChanged
from dragoman.model import Handlers, ServerState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence

    from dragoman.events import Event, OfferChanged
    from dragoman.server.protocol.session import Session

logger = logging.getLogger("dragoman")

PAUSE = 0.1
"""Seconds; changes of one resource within this time become one event."""
MAX_PENDING = 1000
"""How many changes are held at once; more are dropped."""

LogLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
ChangeHandler: TypeAlias = "Callable[[ResourceChanged], Any]"
"""Called when a resource has changed; may be async."""

_CONNECTED = frozenset({ServerState.READY, ServerState.DEGRADED})

T = TypeVar("T")


class Ask(Protocol):
    """Runs a job with a server's session."""

    async def __call__(self, server: str, job: Callable[[Session], Awaitable[T]], what: str) -> T:
        """Connect if necessary, and run the job."""
        ...


class Subscriptions:
    """The subscriptions, log levels and roots of one manager."""

    def __init__(
        self,
        ask: Ask,
        publish: Callable[[Event], None],
        forbids: Callable[[str, str], bool] = lambda _server, _uri: False,
    ) -> None:
        """Start without any.

        Args:
            ask: Runs a job with a server's session.
            publish: Called with the changes that were held, after `PAUSE`.
            forbids: Given a server and a resource, returns whether the policy denies reading the resource.
        """
        self._ask = ask
        self._forbids = forbids
        self._publish = publish
        self._handlers: dict[tuple[str, str], list[ChangeHandler]] = {}
        """By server and URI."""
        self._levels: dict[str, LogLevel] = {}
        self._level: LogLevel | None = None
        """For servers without a level of their own."""
        self._roots: dict[str, tuple[str, ...]] = {}
        """By server; those of all other servers under the empty name."""
        self._given_roots: Callable[[str], Sequence[str] | None] = _no_roots
        self._seen: set[str] = set()
        """Servers that have been connected at least once."""
        self._pending: dict[OfferChanged, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._publishing: asyncio.Task[None] | None = None
        self._closed = False

    def with_roots(self, handlers: Handlers | None) -> Handlers:
        """Return the application's handlers with `roots` answered from here, so that they can change."""
        handlers = handlers or Handlers()
        given = handlers.roots
        if callable(given):
            self._given_roots = given
        elif given is not None:
            self._given_roots = lambda _: given
        return handlers.replace(roots=self.roots)

    def roots(self, server: str) -> Sequence[str] | None:
        """Return the current roots of a server."""
        own = self._roots.get(server, self._roots.get(""))
        return self._given_roots(server) if own is None else own

    async def set_roots(self, roots: Iterable[str], server: str | None, connected: Iterable[str]) -> None:
        """Change the roots of one server, or of all, and notify those that are connected."""
        if server is None:
            self._roots.clear()
        self._roots[server or ""] = tuple(roots)
        await self._ask_all(connected, lambda session: session.tell_roots_changed(), "roots")

    async def set_log_level(self, level: LogLevel, server: str | None, connected: Iterable[str]) -> None:
        """Set the lowest level of the log messages that one server, or all, should send."""
        if server is None:
            self._levels.clear()
            self._level = level
        else:
            self._levels[server] = level
        await self._ask_all(connected, lambda session: session.set_log_level(level), "logging")

    async def subscribe(self, uri: str, server: str, on_change: ChangeHandler | None) -> None:
        """Subscribe to changes of a resource.

        Raises:
            DragomanError: The server does not support subscriptions, or refuses this one.
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
        """Cancel the subscriptions to a resource: at one server, or at all."""
        keys = [key for key in self._handlers if key[1] == uri and server in (None, key[0])]
        for key in keys:
            del self._handlers[key]
        names = [name for name, _ in keys if name in set(connected)]
        await self._ask_all(names, lambda session: session.unsubscribe(uri), uri)

    def holds(self, event: Event) -> bool:
        """Take note of an event; return whether it is published later, or not at all.

        Changes of resources and prompts are published after a pause, and those of a resource only if it is
        subscribed to.
        """
        match event:
            case ResourceChanged() | ResourcesChanged() | PromptsChanged():
                if not isinstance(event, ResourceChanged) or self._handlers_of(event) is not None:
                    self._publish_later(event)
                return True
            case StateChanged(after=ServerState.READY | ServerState.DEGRADED) if (
                event.before not in _CONNECTED
            ):
                self.on_connected(event.server)
            case _:
                pass
        return False

    def on_connected(self, server: str) -> None:
        """Renew the log level and, after a reconnection, the subscriptions of a server."""
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
        """Stop sending and publishing; return the tasks that are still being cancelled."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        return set(self._tasks)

    async def _renew(self, server: str, uris: list[str], level: LogLevel | None) -> None:
        if level is not None:
            await self._ask_all([server], lambda session: session.set_log_level(level), "logging")
        for uri in uris:
            if self._forbids(server, uri):
                logger.warning(
                    "%s: the subscription to `%s` is not renewed: the policy denies it", server, uri
                )
                continue
            try:
                await self._ask(server, lambda session, uri=uri: session.subscribe(uri), uri)
            except DragomanError as exc:
                logger.warning("%s: could not renew the subscription to `%s`: %s", server, uri, exc)
            else:
                self._publish_later(ResourceChanged(server=server, uri=uri))

    async def _ask_all(
        self, servers: Iterable[str], job: Callable[[Session], Awaitable[None]], what: str
    ) -> None:
        """Run a job with every server; a server that refuses it is logged."""
        names = list(servers)
        outcomes = await asyncio.gather(
            *(self._ask(name, job, what) for name in names), return_exceptions=True
        )
        for name, outcome in zip(names, outcomes, strict=True):
            if isinstance(outcome, DragomanError):
                logger.warning("%s: the request about `%s` failed: %s", name, what, outcome)
            elif outcome is not None:
                raise outcome

    def _publish_later(self, event: OfferChanged) -> None:
        if self._closed or len(self._pending) >= MAX_PENDING:
            return
        self._pending[event] = None
        if self._publishing is None or self._publishing.done():
            self._publishing = self._start(self._publish_pending())

    async def _publish_pending(self) -> None:
        while self._pending:
            await asyncio.sleep(PAUSE)
            events, self._pending = self._pending, {}
            for event in events:
                self._publish(event)
                handlers = self._handlers_of(event) if isinstance(event, ResourceChanged) else None
                for handler in handlers or ():
                    self._start(_call(handler, event))

    def _handlers_of(self, event: ResourceChanged) -> list[ChangeHandler] | None:
        """Return the handlers for a change; `None` if neither the resource nor a parent is subscribed to."""
        found: list[ChangeHandler] | None = None
        for (server, uri), handlers in self._handlers.items():
            if server == event.server and (event.uri == uri or event.uri.startswith(f"{uri.rstrip('/')}/")):
                found = [*(found or ()), *handlers]
        return found

    def _start(self, job: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(job, name="dragoman subscriptions")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (exc := task.exception()) is not None:
            logger.error("could not renew a subscription or log level", exc_info=exc)


async def _call(handler: ChangeHandler, event: Any) -> None:
    try:
        outcome = handler(event)
        if inspect.isawaitable(outcome):
            await outcome
    except Exception:
        logger.exception("%s: the `on_change` handler of a subscription failed", event.server)


def _no_roots(_: str) -> None:
    return None
