"""A login that waits for a person: the queue of logins, the callback page, and the prompt itself.

The redirect of the authorization server arrives at a page on this machine, or a person pastes its address.
The prompt also ends when another process has logged in. Nothing here opens a browser: the address goes to the
`LoginUI` of a caller who asked for this login, or to the application's handler, one login at a time.

This module imports aiohttp's server, so it is loaded late, when the first person has to log in.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from http import HTTPStatus
from inspect import isawaitable
from typing import TYPE_CHECKING, Annotated, Any, Self
from urllib.parse import parse_qs
from weakref import WeakKeyDictionary, WeakValueDictionary

from aiohttp import web

from dragoman.struct import HIDDEN, MutableStruct, Struct, field
from dragoman.trust.addresses import split_url

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AsyncExitStack
    from types import TracebackType

    from dragoman.model import Auth, LoginUI
    from dragoman.server.oauth.token_store import Login, TokenStore

logger = logging.getLogger("dragoman")


class LoginQueue:
    """Logins in the order in which they are shown; only the first one is on show."""

    def __init__(self) -> None:
        self._queue: deque[tuple[object, Callable[[], object]]] = deque()

    def add(self, login: object, show: Callable[[], object]) -> None:
        """Call `show` when all logins before this one are over, which may be now."""
        self._queue.append((login, show))
        if len(self._queue) == 1:
            show()

    def remove(self, login: object) -> None:
        """Remove a login, shown or not, and show the next one if this was the first."""
        first = self._queue[0][0] if self._queue else None
        self._queue = deque(entry for entry in self._queue if entry[0] is not login)
        if first is login and self._queue:
            self._queue[0][1]()


_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[str, LoginQueue]] = (
    WeakKeyDictionary()
)


def login_queue(user: str = "") -> LoginQueue:
    """Return the queue of one person on the running event loop.

    All managers on that loop share it. The users of a program each have their own: one who takes long must
    not keep the others from logging in.
    """
    queues = _queues.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
    return queues.setdefault(user, LoginQueue())


MAX_PASTED = 8192


class CallbackError(Exception):
    """The redirect cannot be used; the message says why and holds no secret."""


class Redirect(Struct):
    """The parameters with which an authorization server sends the browser back."""

    code: Annotated[str, HIDDEN] = ""
    state: Annotated[str, HIDDEN] = ""
    issuer: str | None = None
    error: str = ""
    """The server's error code, if it gave no `code`."""


def read_redirect(address: str, *, state: str) -> Redirect:
    """Read a redirect: a whole address, or only the part after its `?`.

    Raises:
        CallbackError: It is not a redirect, or not the one of this login.
    """
    text = address.strip()[:MAX_PASTED]
    query = text.partition("?")[2].partition("#")[0] if "?" in text else text.lstrip("#?")
    found = parse_qs(query, keep_blank_values=True)
    if any(len(values) > 1 for values in found.values()):
        msg = "it has a parameter twice"
        raise CallbackError(msg)
    given = {name: values[0] for name, values in found.items()}
    if not given.keys() & {"code", "state", "error"}:
        msg = "it is not the address at the end of a login"
        raise CallbackError(msg)
    if not secrets.compare_digest(given.get("state", "").encode(), state.encode()):
        msg = "its `state` belongs to another login"
        raise CallbackError(msg)
    if not given.get("code") and not given.get("error"):
        msg = "it has no `code`"
        raise CallbackError(msg)
    return Redirect(
        code=given.get("code", ""),
        state=given["state"],
        issuer=given.get("iss"),
        error=given.get("error", ""),
    )


HOST = "127.0.0.1"
PATH = "/callback"
LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost"})
REQUEST_BYTES = 16 * 1024
"""A connection that sends more than this is closed."""
CONNECTION_SECONDS = 5.0
"""A connection is closed after this time, whether it has sent a request or not."""
SHUTDOWN_SECONDS = 1.0
"""How long closing the page waits until the browser has received it."""

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Server": "dragoman",
}
_DONE = "You are logged in. You can close this page."
_DENIED = "The login was refused. You can close this page."
_WRONG = "This request does not belong to a login in progress."


def _page(status: int, text: str) -> web.Response:
    """Return a page with one of the fixed texts: it never repeats anything from the request."""
    body = f"<!doctype html><title>dragoman</title><p>{text}</p>\n"
    response = web.Response(status=status, text=body, content_type="text/html", headers=_HEADERS)
    response.force_close()
    return response


class _Connection(web.RequestHandler):
    """One connection to the callback page, with limits on its time and on what it may send."""

    __slots__ = ("_deadline", "_received")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._received = 0
        self._deadline = asyncio.get_running_loop().call_later(CONNECTION_SECONDS, self.force_close)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # aiohttp limits each header; this limits the whole request, its body included.
        self._received += len(data)
        if self._received > REQUEST_BYTES:
            self.force_close()
        else:
            super().data_received(data)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is not HTTP; aiohttp's own page and log line would quote it."""
        del request, exc, message
        return _page(status, _WRONG)


class CallbackPage:
    """The page that the authorization server sends the browser back to; open it before the login."""

    def __init__(self, *, port: int = 0, path: str = PATH) -> None:
        self._wanted_port = port
        self._path = path
        self._http = web.Server(self._respond)
        self._server: asyncio.Server | None = None
        self._state = ""
        self._redirect: asyncio.Future[Redirect] = asyncio.get_running_loop().create_future()
        self.port = 0

    async def __aenter__(self) -> Self:
        """Listen on this machine only.

        Raises:
            OSError: The port is taken.
        """
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {"access_log": None, "lingering_time": 0}
        options |= {"max_line_size": REQUEST_BYTES, "max_field_size": REQUEST_BYTES}
        self._server = await loop.create_server(
            lambda: _Connection(self._http, loop=loop, **options), HOST, self._wanted_port
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        self._redirect.cancel()
        self._http.pre_shutdown()  # ends idle connections at once
        await self._http.shutdown(SHUTDOWN_SECONDS)

    @property
    def uri(self) -> str:
        """The address of the page, for the authorization server."""
        return f"http://{HOST}:{self.port}{self._path}"

    def expect(self, state: str) -> None:
        """Accept the redirect with this `state`; the page accepts none before."""
        self._state = state

    async def wait(self) -> Redirect:
        """Wait for the redirect; cancelling this leaves the page open."""
        return await asyncio.shield(self._redirect)

    async def _respond(self, request: web.BaseRequest) -> web.Response:
        if request.method != "GET":
            return _page(HTTPStatus.METHOD_NOT_ALLOWED, _WRONG)
        # DNS rebinding: another name that was made to point to this machine must not reach the page.
        if request.headers.get("Host", "").lower() not in {f"{name}:{self.port}" for name in LOOPBACK_NAMES}:
            return _page(HTTPStatus.MISDIRECTED_REQUEST, _WRONG)
        if request.raw_path.partition("?")[0] != self._path:
            return _page(HTTPStatus.NOT_FOUND, _WRONG)
        if self._redirect.done():
            return _page(HTTPStatus.GONE, _WRONG)
        if not self._state:
            return _page(HTTPStatus.BAD_REQUEST, _WRONG)
        try:
            redirect = read_redirect(request.raw_path, state=self._state)
        except CallbackError:
            return _page(HTTPStatus.BAD_REQUEST, _WRONG)
        self._redirect.set_result(redirect)
        return _page(HTTPStatus.OK, _DENIED if redirect.error else _DONE)


async def open_callback_page(stack: AsyncExitStack, auth: Auth, stored: Login | None) -> CallbackPage | None:
    """Open the callback page; return nothing if the configured redirect address is not on this machine.

    Raises:
        CallbackError: The port cannot be used.
    """
    if auth.redirect_uri is not None:
        parts = split_url(auth.redirect_uri)
        if parts is None or parts.scheme != "http" or parts.host not in LOOPBACK_NAMES or not parts.port:
            return None
        ports, path = [parts.port], parts.path or "/"
    elif auth.callback_port is not None:
        ports, path = [auth.callback_port], PATH
    else:
        uris = ((stored.client if stored else None) or {}).get("redirect_uris") or [""]
        # Prefer the port that the client is registered with: on another port it has to register again.
        registered = split_url(str(uris[0]))
        ports, path = [*([registered.port] if registered and registered.port else []), 0], PATH
    for port in ports:
        try:
            return await stack.enter_async_context(CallbackPage(port=port, path=path))
        except OSError as exc:
            if port == ports[-1]:
                msg = f"port {port} for the callback page cannot be used: {exc.strerror}"
                raise CallbackError(msg) from exc
    return None


LOGIN_SECONDS = 600.0
"""How long a person may take."""
POLL_SECONDS = 0.5
"""How often the prompt checks whether another process has logged in."""
MAX_PASTES = 3


class LoggedInElsewhereError(Exception):
    """Another process has logged in to the same server."""


def _nothing(*_: object) -> None:
    """Do nothing: the default of optional callbacks."""


class LoginPrompt(MutableStruct):
    """One login that waits for a person."""

    server: str
    store: TokenStore
    user: str = ""
    """Who logs in, in a program with many users."""
    handler: Callable[[str], Any] | None = None
    """The application's handler; it gets the address when this login is the first in the queue."""
    on_shown: Callable[[LoginPrompt], None] = _nothing
    url: Annotated[str, HIDDEN] = ""
    state: Annotated[str, HIDDEN] = ""
    callback: CallbackPage | None = None
    blocks_server: bool = False
    """Whether the server cannot be used until this login is done."""
    has_request: bool = False
    """Whether a request failed because this login is missing."""
    task: asyncio.Task[None] | None = None
    shown: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    is_announced: bool = False
    """Whether the address was or will be given to a `LoginUI` or to the handler."""
    _callers: int = 0
    _pasted: asyncio.Queue[str | Exception] = field(default_factory=asyncio.Queue[str | Exception])
    _helpers: set[asyncio.Future[None]] = field(default_factory=set["asyncio.Future[None]"])
    _queue: LoginQueue = field(default_factory=LoginQueue)

    def __post_init__(self) -> None:
        self._queue = login_queue(self.user)

    async def join(self, ui: LoginUI) -> None:
        """Have a person do this login, and wait until it is over, however it ends.

        Cancelling this stops the questions; the login goes on only if a request or another caller waits.

        Raises:
            Exception: The error that `ui.paste` raised: the person has given up.
        """
        assert self.task is not None  # noqa: S101 -- it was started
        self._callers += 1
        helpers: list[asyncio.Future[None]] = []
        waits: set[asyncio.Future[None]] = {self.task}
        if ui.open_url is not None:
            helpers.append(self._announce(ui.open_url))
        if ui.paste is not None:
            helpers.append(self._start(self._ask_for_paste(ui.paste, ui.on_refused or _nothing)))
            waits.add(helpers[-1])
        try:
            while not self.task.done():
                done, waits = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for one in done - {self.task}:
                    if not one.cancelled():  # as by the end of the login, which is not the caller's
                        one.result()
        finally:
            for helper in helpers:
                helper.cancel()
            self._callers -= 1
            if not self._callers and not self.has_request:
                self.task.cancel()

    async def show(self, url: str, state: str) -> None:
        """Make the address known."""
        self.url, self.state = url, state
        if self.callback is not None:
            self.callback.expect(state)
        if (handler := self.handler) is not None:
            self._queue.add(self, lambda: self._announce(handler))
        if not self.shown.done():
            self.shown.set_result(None)
        self.on_shown(self)

    def accept(self, address: str) -> bool:
        """Go on with the address that the browser ended at; return False if it is not of this login."""
        if not self.state:
            return False
        try:
            read_redirect(address, state=self.state)
        except CallbackError:
            return False
        self._pasted.put_nowait(address)
        return True

    async def wait(self) -> Redirect:
        """Wait for the redirect, from the browser or pasted.

        Raises:
            LoggedInElsewhereError: Another process has logged in.
            CallbackError: The last pasted address cannot be used.
            TimeoutError: The person took too long.
        """
        before = self.store.stamp()
        async with asyncio.timeout(LOGIN_SECONDS):
            while True:
                found = await self._poll()
                if found is not None:
                    return found
                if self.store.stamp() != before:
                    before = self.store.stamp()
                    login = await self.store.load()
                    if login is not None and login.access_token:
                        raise LoggedInElsewhereError

    def close(self) -> None:
        """Stop all questions, and let the next login in the queue be shown."""
        self._queue.remove(self)
        for helper in self._helpers:
            helper.cancel()
        self.shown.cancel()

    async def _poll(self) -> Redirect | None:
        """Wait for the redirect until it is time to check for other processes."""
        waits: set[asyncio.Future[Any]] = {asyncio.ensure_future(self._pasted.get())}
        if self.callback is not None:
            waits.add(asyncio.ensure_future(self.callback.wait()))
        try:
            done, _ = await asyncio.wait(waits, timeout=POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
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

    def _announce(self, open_url: Callable[[str], Any]) -> asyncio.Future[None]:
        self.is_announced = True
        return self._start(self._call_open_url(open_url))

    async def _call_open_url(self, open_url: Callable[[str], Any]) -> None:
        await asyncio.wait({self.shown})
        try:
            outcome = open_url(self.url)
            outcome = await outcome if isawaitable(outcome) else outcome
        except Exception as exc:  # noqa: BLE001 -- the application's own code; the address is in the status anyway
            logger.warning("%s: the `login` handler failed (%s)", self.server, type(exc).__name__)
            return
        if isinstance(outcome, str) and outcome:
            self._pasted.put_nowait(outcome)

    async def _ask_for_paste(
        self, paste: Callable[[], Awaitable[str]], on_refused: Callable[[str], Any]
    ) -> None:
        await asyncio.wait({self.shown})
        for left in range(MAX_PASTES - 1, -1, -1):
            try:
                text = await paste()
                read_redirect(text, state=self.state)
            except CallbackError as exc:
                logger.warning("%s: the pasted address cannot be used: %s", self.server, exc)
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
        task.add_done_callback(self._on_helper_done)
        return task

    def _on_helper_done(self, task: asyncio.Future[None]) -> None:
        self._helpers.discard(task)
        if not task.cancelled():
            # Reading the exception keeps asyncio from logging it as never retrieved.
            task.exception()
