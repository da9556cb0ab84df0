"""Small requests on the connections of aiohttp's pool.

aiohttp makes and keeps the connections and parses the responses. Its `ClientSession.request` also handles
redirects, cookies, uploads, traces and middlewares, none of which a call uses, and starts a task for the
body: together they cost more than all the rest of a call. So a small request is written to its connection at
once.

The names that this needs of aiohttp are not part of its documented interface. If a release has other ones,
`MovedError` is raised before anything is sent, and the request goes through `ClientSession.request`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

if TYPE_CHECKING:
    from aiohttp.connector import Connection
    from multidict import CIMultiDict, CIMultiDictProxy
    from yarl import URL

Response: TypeAlias = "HttpResponse | aiohttp.ClientResponse"
"""What both ways of sending a request return."""

_SWITCHING = 101
_FIRST_FINAL = 200


class MovedError(Exception):
    """This release of aiohttp has other internals; nothing was sent."""


class HttpResponse:
    """A response whose headers have arrived, with the attributes that we use of a `ClientResponse`."""

    __slots__ = ("connection", "content", "headers", "method", "status", "url")

    def __init__(
        self,
        method: str,
        url: URL,
        status: int,
        headers: CIMultiDictProxy[str],
        content: aiohttp.StreamReader,
        connection: Connection,
    ) -> None:
        self.method = method
        self.url = url
        self.status = status
        self.headers = headers
        self.content = content
        self.connection: Connection | None = connection
        """`None` after the end of the body."""
        content.on_eof(self.release)

    @property
    def content_length(self) -> int | None:
        """The announced size of the body."""
        size = self.headers.get("Content-Length", "")
        return int(size) if size.isascii() and size.isdecimal() else None

    def release(self) -> None:
        """Give the connection back; it is closed if the body was not read to its end."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.release()


class Exchange:
    """Sends small requests to one origin, without a proxy."""

    def __init__(self, session: aiohttp.ClientSession, connector: aiohttp.BaseConnector, url: URL) -> None:
        """Use the connections of a session.

        Args:
            session: Its timeouts apply.
            connector: Its pool.
            url: Any address of the origin.

        Raises:
            MovedError: aiohttp has other internals.
        """
        self._connector = connector
        self._timeout = session.timeout
        try:
            # It is never sent: it names the origin to the pool, and has the headers that aiohttp adds.
            self._origin = aiohttp.ClientRequest(
                "POST", url, session=session, loop=asyncio.get_running_loop()
            )
            self.added_headers = {name: self._origin.headers[name] for name in ("Host", "Accept-Encoding")}
        except (AttributeError, KeyError, TypeError) as exc:
            raise MovedError from exc
        """The headers that aiohttp would add to a request; the caller of `post` does."""

    async def post(self, url: URL, headers: CIMultiDict[str], body: bytes) -> HttpResponse:
        """Send a request and return the response when its headers have arrived; the caller releases it.

        Raises:
            ValueError: A header has invalid characters.
            MovedError: aiohttp has other internals.
            Exception: Any other error of aiohttp, as `ClientSession.request` raises it.
        """
        message = _encoded(url.raw_path_qs, headers, body)
        try:
            connection = await self._connector.connect(self._origin, traces=[], timeout=self._timeout)
        except TimeoutError as exc:
            msg = f"Connection timeout to host {url}"
            raise aiohttp.ConnectionTimeoutError(msg) from exc
        except (AttributeError, TypeError) as exc:
            raise MovedError from exc
        try:
            try:
                protocol = connection.protocol
                assert protocol is not None  # noqa: S101 -- a new connection has one
                protocol.set_response_params(read_until_eof=True)
                transport = protocol.transport
            except (AttributeError, TypeError) as exc:
                raise MovedError from exc
            if not hasattr(protocol, "read"):
                raise MovedError
            if transport is None or transport.is_closing():
                msg = "Cannot write to closing transport"
                raise aiohttp.ClientConnectionResetError(msg)
            transport.write(message)
            while True:
                answer, content = await protocol.read()
                if answer.code >= _FIRST_FINAL or answer.code == _SWITCHING:
                    return HttpResponse("POST", url, answer.code, answer.headers, content, connection)
        except HttpProcessingError as exc:
            connection.close()
            about = self._origin.request_info
            raise aiohttp.ClientResponseError(about, (), status=exc.code, message=exc.message) from exc
        except BaseException:
            connection.close()
            raise


def _encoded(target: str, headers: CIMultiDict[str], body: bytes) -> bytes:
    """Return a request as it is sent."""
    lines = [f"POST {target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines.append(f"Content-Length: {len(body)}")
    head = "\r\n".join(lines)
    if head.count("\r") != len(lines) - 1 or head.count("\n") != len(lines) - 1 or "\0" in head:
        msg = "a header has a line break"
        raise ValueError(msg)
    return head.encode() + b"\r\n\r\n" + body
