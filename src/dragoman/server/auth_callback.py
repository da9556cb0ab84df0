"""How a person's login comes back to us: a page on this machine that answers once, or a pasted address.

The page listens on 127.0.0.1 only, takes one answer with the right `state`, and is gone; everything else is
refused and changes nothing, so that no other page or program can end a login. It shows fixed text.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Self
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from types import TracebackType

HOST = "127.0.0.1"
PATH = "/callback"
HEAD_BYTES = 16 * 1024
HEAD_SECONDS = 5.0
MAX_PASTED = 8192
LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost"})

_PAGE = """HTTP/1.1 {status} {phrase}\r
Content-Type: text/html; charset=utf-8\r
Content-Length: {length}\r
Content-Security-Policy: default-src 'none'\r
Referrer-Policy: no-referrer\r
X-Content-Type-Options: nosniff\r
Cache-Control: no-store\r
Connection: close\r
\r
"""
_DONE = "You are logged in. You can close this page."
_DENIED = "The login was refused. You can close this page."
_WRONG = "This is not the login that is being waited for."


class CallbackError(Exception):
    """What came back is no login; the message says why and holds no secret."""


@dataclass(frozen=True, slots=True)
class Redirect:
    """What an authorization server answered through the person's browser."""

    code: str = field(default="", repr=False)
    state: str = field(default="", repr=False)
    issuer: str | None = None
    error: str = ""
    """Why there is no code, in the server's word."""


def read_redirect(address: str, *, state: str) -> Redirect:
    """Read a redirect: a whole address, or the part behind its `?`, as a person pastes it.

    Raises:
        CallbackError: It is none, or not the one that is waited for.
    """
    text = address.strip()[:MAX_PASTED]
    query = urlsplit(text).query if "?" in text else text.lstrip("#?")
    found = parse_qs(query, keep_blank_values=True)
    if any(len(values) > 1 for values in found.values()):
        msg = "a parameter is there twice"
        raise CallbackError(msg)
    given = {name: values[0] for name, values in found.items()}
    if not given.keys() & {"code", "state", "error"}:
        msg = "it is no address that a login ends at"
        raise CallbackError(msg)
    if not secrets.compare_digest(given.get("state", "").encode(), state.encode()):
        msg = "its `state` is not the one of this login"
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


class Callback:
    """The page that a person's browser comes back to; open it before the address is shown."""

    def __init__(self, *, port: int = 0, path: str = PATH) -> None:
        self._wanted_port = port
        self._path = path
        self._server: asyncio.Server | None = None
        self._state = ""
        self._answer: asyncio.Future[Redirect] = asyncio.get_running_loop().create_future()
        self._handling: set[asyncio.Task[None]] = set()
        self.port = 0

    async def __aenter__(self) -> Self:
        """Listen.

        Raises:
            OSError: The port is taken.
        """
        self._server = await asyncio.start_server(self._on_connection, HOST, self._wanted_port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        self._answer.cancel()
        if self._handling:
            # Whoever has just logged in still gets to see the page.
            await asyncio.wait(self._handling, timeout=1.0)
        for task in self._handling:
            task.cancel()

    @property
    def uri(self) -> str:
        """The address that the authorization server sends the browser to."""
        return f"http://{HOST}:{self.port}{self._path}"

    def expect(self, state: str) -> None:
        """Name the login that is waited for; nothing is taken before that."""
        self._state = state

    async def wait(self) -> Redirect:
        """Wait for the answer; a cancelled wait leaves the page open."""
        return await asyncio.shield(self._answer)

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 -- asyncio runs a handler in a task of its own
        self._handling.add(task)
        try:
            with suppress(TimeoutError, ConnectionError, asyncio.IncompleteReadError, ValueError):
                async with asyncio.timeout(HEAD_SECONDS):
                    await self._answer_one(reader, writer)
        finally:
            self._handling.discard(task)
            writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            head = b""
        status, text = self._take(head.decode("latin-1") if len(head) <= HEAD_BYTES else "")
        body = f"<!doctype html><title>dragoman</title><p>{text}</p>\n".encode()
        page = _PAGE.format(status=status.value, phrase=status.phrase, length=len(body))
        writer.write(page.encode() + body)
        await writer.drain()

    def _take(self, head: str) -> tuple[HTTPStatus, str]:
        """Judge a request; the right one is the answer."""
        first, *lines = head.split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or words[0] != "GET":
            return HTTPStatus.METHOD_NOT_ALLOWED, _WRONG
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (one.partition(":") for one in lines)
        }
        # A name that was made to point to this machine must not reach us (DNS rebinding).
        if headers.get("host", "").lower() not in {f"{name}:{self.port}" for name in LOOPBACK_NAMES}:
            return HTTPStatus.MISDIRECTED_REQUEST, _WRONG
        if words[1].partition("?")[0] != self._path:
            return HTTPStatus.NOT_FOUND, _WRONG
        if self._answer.done():
            return HTTPStatus.GONE, _WRONG
        if not self._state:
            return HTTPStatus.BAD_REQUEST, _WRONG
        try:
            redirect = read_redirect(words[1], state=self._state)
        except CallbackError:
            return HTTPStatus.BAD_REQUEST, _WRONG
        self._answer.set_result(redirect)
        return HTTPStatus.OK, _DENIED if redirect.error else _DONE
