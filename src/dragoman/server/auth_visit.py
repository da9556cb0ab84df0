"""One login that waits for a person: the address is shown, and what comes back is waited for.

It comes back through the page on this machine, as a pasted address, or not at all because another process has
logged in meanwhile. Nothing here opens a browser: whoever joined the visit is told the address, at once if
a person has asked for this very login, and in its turn if it is the application.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dragoman.server.auth_callback import LOOPBACK_NAMES, PATH, Callback, CallbackError, read_redirect
from dragoman.server.auth_turn import turns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AsyncExitStack

    from dragoman.model import Auth
    from dragoman.server.auth_callback import Redirect
    from dragoman.server.auth_store import Login, TokenStore

logger = logging.getLogger("dragoman")

LOGIN_SECONDS = 600.0
"""How long a person may take."""
WATCH_SECONDS = 0.5
"""How often it is looked whether another process has got a login meanwhile."""
MAX_PASTES = 3


class ElsewhereError(Exception):
    """Somebody else has logged in meanwhile."""


def _nothing(*_: object) -> None:
    """Stand in for a listener until there is one."""


@dataclass(slots=True)
class Visit:
    """One login that waits for a person."""

    server: str
    store: TokenStore
    url: str = field(default="", repr=False)
    state: str = field(default="", repr=False)
    callback: Callback | None = None
    blocks: bool = False
    """Whether the server is of no use until it is done."""
    wanted: bool = False
    """Whether a request was refused for the lack of it."""
    asked: int = 0
    """How many have asked for it by name and wait."""
    task: asyncio.Task[None] | None = None
    on_shown: Callable[[Visit], None] = _nothing
    handler: Callable[[str], Any] | None = None
    """The application's, told when it is this login's turn."""
    shown: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    _told: int = 0
    _pasted: asyncio.Queue[str | Exception] = field(default_factory=asyncio.Queue[str | Exception])
    _helpers: set[asyncio.Future[None]] = field(default_factory=set["asyncio.Future[None]"])

    @property
    def is_attended(self) -> bool:
        """Whether somebody was told, or is about to be."""
        return self._told > 0

    async def accompany(
        self,
        open_url: Callable[[str], Any] | None,
        paste: Callable[[], Awaitable[str]] | None,
        on_refused: Callable[[str], Any] | None = None,
    ) -> None:
        """Have somebody do this login, and wait until it is over, however it ends.

        Args:
            open_url: Given the address as soon as there is one; what it returns counts as pasted.
            paste: Asks for the address that the browser ended at.
            on_refused: Told why what was pasted is of no use, before it is asked for again.

        Raises:
            Exception: Whatever `paste` raised: the person has given up.
        """
        assert self.task is not None  # noqa: S101 -- it was started
        self.asked += 1
        helpers: list[asyncio.Future[None]] = []
        waits: set[asyncio.Future[None]] = {self.task}
        if open_url is not None:
            helpers.append(self._have_told(open_url))
        if paste is not None:
            helpers.append(self._start(self._let_paste(paste, on_refused or _nothing)))
            waits.add(helpers[-1])
        try:
            while not self.task.done():
                done, waits = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for one in done - {self.task}:
                    one.result()
        finally:
            for helper in helpers:
                helper.cancel()
            self.asked -= 1
            if not self.asked and not self.wanted:
                self.task.cancel()

    async def show(self, url: str, state: str) -> None:
        """Make the address known."""
        self.url, self.state = url, state
        if self.callback is not None:
            self.callback.expect(state)
        if self.handler is not None:
            turns().take(self, self._on_turn)
        if not self.shown.done():
            self.shown.set_result(None)
        self.on_shown(self)

    async def wait(self) -> Redirect:
        """Wait for the browser, for a pasted address, or for another process."""
        before = self.store.stamp()
        async with asyncio.timeout(LOGIN_SECONDS):
            while True:
                found = await self._next()
                if found is not None:
                    return found
                if self.store.stamp() != before:
                    before = self.store.stamp()
                    login = await self.store.load()
                    if login is not None and login.access_token:
                        raise ElsewhereError

    def close(self) -> None:
        """Ask nobody any more, and let the next login be shown."""
        turns().leave(self)
        for helper in self._helpers:
            helper.cancel()
        self.shown.cancel()

    async def _next(self) -> Redirect | None:
        waits: set[asyncio.Future[Any]] = {asyncio.ensure_future(self._pasted.get())}
        if self.callback is not None:
            waits.add(asyncio.ensure_future(self.callback.wait()))
        try:
            done, _ = await asyncio.wait(waits, timeout=WATCH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        for one in done:
            found = one.result()
            if isinstance(found, str):
                return read_redirect(found, state=self.state)
            if isinstance(found, Exception):
                raise found
            return found
        return None

    def _on_turn(self) -> None:
        assert self.handler is not None  # noqa: S101 -- it has a turn for that
        self._have_told(self.handler)

    def _have_told(self, open_url: Callable[[str], Any]) -> asyncio.Future[None]:
        self._told += 1
        return self._start(self._tell(open_url))

    async def _tell(self, open_url: Callable[[str], Any]) -> None:
        await asyncio.wait({self.shown})
        try:
            outcome = open_url(self.url)
            outcome = await outcome if isawaitable(outcome) else outcome
        except Exception as exc:  # noqa: BLE001 -- the application's own code; the address is in the status anyway
            logger.warning("%s: the `login` handler failed (%s)", self.server, type(exc).__name__)
            return
        if isinstance(outcome, str) and outcome:
            self._pasted.put_nowait(outcome)

    async def _let_paste(self, paste: Callable[[], Awaitable[str]], on_refused: Callable[[str], Any]) -> None:
        await asyncio.wait({self.shown})
        for left in range(MAX_PASTES - 1, -1, -1):
            try:
                text = await paste()
                read_redirect(text, state=self.state)
            except CallbackError as exc:
                logger.warning("%s: what was pasted cannot be used: %s", self.server, exc)
                if not left:
                    self._pasted.put_nowait(exc)
                else:
                    on_refused(str(exc))
            else:
                self._pasted.put_nowait(text)
                return

    def _start(self, work: Any) -> asyncio.Future[None]:
        task = asyncio.ensure_future(work)
        self._helpers.add(task)
        task.add_done_callback(self._on_helped)
        return task

    def _on_helped(self, task: asyncio.Future[None]) -> None:
        self._helpers.discard(task)
        if not task.cancelled():
            # Asking for it keeps Python quiet about an error that nobody waits for any more.
            task.exception()


async def listen(stack: AsyncExitStack, auth: Auth, stored: Login | None) -> Callback | None:
    """Open the page that a browser comes back to; none where the configured address is elsewhere."""
    if auth.redirect_uri is not None:
        parts = urlsplit(auth.redirect_uri)
        if parts.scheme != "http" or parts.hostname not in LOOPBACK_NAMES or not parts.port:
            return None
        wanted, path = [parts.port], parts.path or "/"
    elif auth.callback_port is not None:
        wanted, path = [auth.callback_port], PATH
    else:
        uris = ((stored.client if stored else None) or {}).get("redirect_uris") or [""]
        # The port that the client is registered with, if it is free: else it registers anew.
        earlier = urlsplit(str(uris[0]))
        wanted, path = [*([earlier.port] if earlier.port else []), 0], PATH
    for port in wanted:
        try:
            return await stack.enter_async_context(Callback(port=port, path=path))
        except OSError as exc:
            if port == wanted[-1]:
                msg = f"port {port}, where the login is to come back, cannot be used: {exc.strerror}"
                raise CallbackError(msg) from exc
    return None
