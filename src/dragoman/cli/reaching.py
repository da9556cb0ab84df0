"""The way to a server behind a URL, tried by itself: its host, port and certificate, the proxy before it.

Nothing is sent but what opens a connection, and one request for a page without any header of the server's.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from dragoman.config.expand import Surroundings
    from dragoman.model import Http, ServerSpec, Sse

CONNECT_SECONDS = 10.0
PAGE_SECONDS = 5.0
CLOSE_SECONDS = 0.5


@dataclass(slots=True)
class Reached:
    """How far the way was open."""

    detail: str = ""
    """Where it leads, or why it ends."""
    how: str = ""
    trouble: Literal["", "no-host", "refused", "unreachable", "timeout", "certificate", "no-tls", "proxy"] = (
        ""
    )
    proxy: str = ""
    resolved: float = 0.0
    """Seconds that it took to find the host."""
    connected: float = 0.0
    """Seconds that it took to connect, TLS included."""


async def reach(transport: Http | Sse, name: str, seconds: float) -> Reached:
    """Open a connection to a server or to the proxy before it, and close it again.

    Raises:
        ConnectError: The address or the certificates cannot be used at all.
    """
    from dragoman.errors import ConnectError
    from dragoman.server.http_route import endpoint, proxy_for, tls_context

    url = endpoint(transport.url, name)
    reached = Reached()
    try:
        proxy, _ = proxy_for(url, name)
    except ConnectError as error:
        reached.trouble, reached.detail = "proxy", error.message
        return reached
    target = proxy or url
    host, port = target.host or "", target.port or 0
    reached.proxy = f"{proxy.scheme}://{host}:{port}" if proxy else ""
    secure: ssl.SSLContext | None = None
    if target.scheme == "https":
        # Our own certificate has no part in this: only whether theirs is in order.
        secure = (
            await asyncio.to_thread(tls_context, transport.tls, name)
            if transport.tls is not None and proxy is None
            else ssl.create_default_context()
        )
    try:
        async with asyncio.timeout(max(0.1, min(seconds, CONNECT_SECONDS))):
            await _open(reached, host, port, secure)
    except TimeoutError:
        if reached.how:
            reached.trouble = "no-tls"
            reached.detail = f"`{host}:{port}` took the connection, but does not speak TLS"
        else:
            reached.trouble, reached.detail = "timeout", f"`{host}:{port}` did not take a connection in time"
    except socket.gaierror as error:
        reached.trouble, reached.detail = "no-host", f"the host `{host}` is not known: {error.strerror}"
    except ConnectionRefusedError:
        reached.trouble, reached.detail = "refused", f"`{host}:{port}` refused the connection"
    except ssl.SSLCertVerificationError as error:
        reached.trouble = "certificate"
        reached.detail = f"the certificate of `{host}` is not accepted: {error.verify_message}"
    except ssl.SSLError as error:
        reached.trouble = "no-tls"
        reached.detail = (
            f"TLS with `{host}:{port}` failed: {(error.reason or 'no TLS').lower().replace('_', ' ')}"
        )
    except OSError as error:
        reached.trouble = "unreachable"
        reached.detail = f"`{host}:{port}` cannot be reached: {error.strerror or error}"
    return reached


async def _open(reached: Reached, host: str, port: int, secure: ssl.SSLContext | None) -> None:
    began = time.monotonic()
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    reached.resolved = time.monotonic() - began
    addresses = dict.fromkeys(str(entry[4][0]) for entry in found)
    reached.detail = f"{host} is {', '.join(list(addresses)[:2])}"
    began = time.monotonic()
    _, writer = await asyncio.open_connection(host, port)
    try:
        reached.how = f"port {port}"
        if secure is not None:
            await writer.start_tls(secure, server_hostname=host)
            reached.how += f", {writer.get_extra_info('ssl_object').version()}"
        reached.how += f", through the proxy {reached.proxy}" if reached.proxy else ""
        reached.connected = time.monotonic() - began
    finally:
        writer.transport.abort()
        # A transport whose TLS never came about does not say that it is closed.
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await writer.wait_closed()


async def kind_of_page(spec: ServerSpec, surroundings: Surroundings) -> str:
    """Return the content type of what a browser would get at a server's address; empty if that is unknown."""
    import aiohttp

    from dragoman.config.expand import expand_transport
    from dragoman.errors import DragomanError
    from dragoman.model import Stdio
    from dragoman.server.http_route import check_exposed, endpoint, headers_for_proxy, proxy_for

    try:
        transport = expand_transport(spec, surroundings)
        if isinstance(transport, Stdio):
            return ""
        url = endpoint(transport.url, spec.name).with_user(None)
        if not transport.allow_http:
            check_exposed(url, {}, spec.name)
        proxy, told = proxy_for(url, spec.name)
    except DragomanError:
        return ""
    timeout = aiohttp.ClientTimeout(total=PAGE_SECONDS)
    headers = {"Accept": "text/html, */*;q=0.1", **headers_for_proxy(url, told)}
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.get(
                url, headers=headers, allow_redirects=False, proxy=proxy, proxy_headers=told
            ) as response,
        ):
            return response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    except (aiohttp.ClientError, OSError, ValueError):
        return ""
