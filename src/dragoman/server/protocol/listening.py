"""The stream on which a modern server announces changes of listings and subscribed resources."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError

from dragoman.errors import ConnectionLostError, DragomanError, ServerError
from dragoman.server.protocol.context import current_deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mcp.client.session import ClientSession

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
_REFUSALS = (MCPError, SubscriptionLost, DragomanError, TimeoutError)


class Listening:
    """The change stream of one session, and its subscriptions."""

    def __init__(self, session: ClientSession, server: str) -> None:
        self._session = session
        self._server = server
        self._asked: dict[str, asyncio.Future[None]] = {}
        """The subscriptions by URI; a future is done when the server has agreed."""
        self._altered = asyncio.Event()
        self._pause = FIRST_PAUSE
        self._is_over = False
        self._streams: set[asyncio.Task[None]] = set()

    async def subscribe(self, uri: str) -> None:
        """Subscribe to the changes of a resource.

        Raises:
            ServerError: The server does not announce its changes.
            MCPError: The server refused.
            TimeoutError: The deadline of the current call passed.
        """
        if self._is_over:
            raise self._lost()
        if uri not in self._asked:
            self._asked[uri] = asyncio.get_running_loop().create_future()
            self._altered.set()
        end = current_deadline.get()
        async with asyncio.timeout_at(None if end is None else end.at):
            await asyncio.shield(self._asked[uri])

    def unsubscribe(self, uri: str) -> None:
        """End the subscription to a resource."""
        if (asked := self._asked.get(uri)) is not None:
            self._drop(uri, asked, None)

    async def run(self, changed: Callable[[str], None]) -> None:
        """Listen until cancelled.

        Args:
            changed: Called with what may have changed while the stream was broken, as in
                `Session.watch_changes`.
        """
        stream: asyncio.Task[None] | None = None
        unheard = False
        try:
            while True:
                self._altered.clear()
                kinds, uris = self._kinds(), tuple(self._asked)
                if kinds or uris:
                    newer = await self._open(kinds, uris)
                    if newer is not None and unheard:
                        for what in (*kinds, *uris):
                            changed(what)
                    unheard = unheard and newer is None
                else:
                    newer = None
                if newer is not None or not uris:
                    former, stream = stream, newer
                    await _end(former)
                if await self._wait_for_news(stream, is_wanted=bool(kinds or uris)):
                    stream, unheard = None, True
        finally:
            self._is_over = True
            for uri, asked in list(self._asked.items()):
                self._drop(uri, asked, self._lost())
            await _end(*self._streams)

    async def _open(self, kinds: Iterable[str], uris: tuple[str, ...]) -> asyncio.Task[None] | None:
        """Open a stream; `None` if the server refuses it."""
        opened: asyncio.Future[frozenset[str]] = asyncio.get_running_loop().create_future()
        stream = asyncio.create_task(self._listen(frozenset(kinds), uris, opened))
        self._streams.add(stream)
        stream.add_done_callback(self._forget)
        await asyncio.wait({stream, opened}, return_when=asyncio.FIRST_COMPLETED)
        if opened.done():
            self._pause = FIRST_PAUSE
            self._settle(uris, opened.result())
            return stream
        error = _error_of(stream)
        for uri in uris:
            if (asked := self._asked.get(uri)) is not None and not asked.done():
                # The new subscription may be the reason for the refusal: drop it to keep the others.
                self._drop(uri, asked, error)
        return None

    async def _listen(
        self, kinds: frozenset[str], uris: tuple[str, ...], opened: asyncio.Future[frozenset[str]]
    ) -> None:
        async with listen(
            self._session,
            tools_list_changed="tools" in kinds,
            resources_list_changed="resources" in kinds,
            prompts_list_changed="prompts" in kinds,
            resource_subscriptions=uris,
        ) as events:
            opened.set_result(frozenset(events.honored.resource_subscriptions or ()))
            async for _ in events:
                pass

    def _forget(self, stream: asyncio.Task[None]) -> None:
        self._streams.discard(stream)
        # Retrieve the exception: asyncio logs one that is never retrieved.
        _error_of(stream)

    def _settle(self, uris: tuple[str, ...], honored: frozenset[str]) -> None:
        for uri in uris:
            asked = self._asked.get(uri)
            if asked is None or asked.done():
                continue
            if uri in honored:
                asked.set_result(None)
            else:
                self._drop(uri, asked, None)

    def _drop(self, uri: str, asked: asyncio.Future[None], error: BaseException | None) -> None:
        """Remove a subscription, and fail the call that still waits for it."""
        del self._asked[uri]
        self._altered.set()
        if asked.done():
            return
        if not isinstance(error, _REFUSALS):
            msg = f"server `{self._server}` does not announce changes of `{uri}`"
            error = ServerError(msg, server=self._server)
        asked.set_exception(error)
        asked.exception()  # The caller may have been cancelled: asyncio logs an exception never retrieved.

    def _lost(self) -> ConnectionLostError:
        msg = f"the connection to server `{self._server}` was closed"
        return ConnectionLostError(msg, server=self._server, may_have_run=False)

    async def _wait_for_news(self, stream: asyncio.Task[None] | None, *, is_wanted: bool) -> bool:
        """Wait until the subscriptions change or the stream breaks; return whether it broke."""
        altered = asyncio.create_task(self._altered.wait())
        try:
            if stream is not None:
                await asyncio.wait({stream, altered}, return_when=asyncio.FIRST_COMPLETED)
                if not stream.done():
                    return False
            if is_wanted:
                pause, self._pause = self._pause, min(LONGEST_PAUSE, self._pause * 2)
                await asyncio.wait({altered}, timeout=pause)
            else:
                await asyncio.wait({altered})
            return stream is not None
        finally:
            altered.cancel()

    def _kinds(self) -> tuple[str, ...]:
        offers = self._session.server_capabilities
        if offers is None:
            return ()
        kinds = (("tools", offers.tools), ("resources", offers.resources), ("prompts", offers.prompts))
        return tuple(name for name, offer in kinds if offer is not None and offer.list_changed)


async def _end(*streams: asyncio.Task[None] | None) -> None:
    """Cancel streams and wait for their end."""
    ending = [stream for stream in streams if stream is not None]
    for stream in ending:
        stream.cancel()
    if ending:
        await asyncio.wait(ending)


def _error_of(stream: asyncio.Task[None]) -> BaseException | None:
    """Return the exception of a stream; retrieving it keeps asyncio from logging it."""
    return None if stream.cancelled() else stream.exception()
