"""The way to an HTTP server: its address, the proxy before it, the certificates, the sockets."""

from __future__ import annotations

import socket
import ssl
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import getproxies, proxy_bypass

from yarl import URL

from dragoman.errors import ConnectError
from dragoman.trust.addresses import is_loopback
from dragoman.trust.redact import is_telling, mask_text
from dragoman.trust.redactor import is_secret

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.model import Tls

_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPALIVE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
_PLAIN_HEADERS = frozenset(
    "accept accept-charset accept-encoding accept-language cache-control connection content-encoding "
    "content-length content-type date dnt host if-none-match last-event-id mcp-method mcp-name "
    "mcp-protocol-version mcp-session-id origin pragma te traceparent tracestate user-agent "
    "x-correlation-id x-request-id".split()
)
"""Headers that hold no credential, unless their value has the shape of one."""


def endpoint(url: str, name: str) -> URL:
    """Read a server's address.

    Raises:
        ConnectError: It is none.
    """
    try:
        # A plain address goes out as it is written; anything else has to be encoded.
        found = URL(url, encoded=url.isascii() and url.isprintable() and " " not in url)
        if found.scheme in ("http", "https") and found.host and found.port is not None:
            return found.with_fragment(None)
    except ValueError:
        pass
    msg = f"the address of server `{name}` is no HTTP address"
    raise ConnectError(msg, server=name, stage="connect", hint="it has the form https://host/path")


def reference(url: URL, text: str) -> URL:
    """Read where a server sends us, seen from an address of its own.

    Raises:
        ValueError: It is no address, or has characters that no request may have.
    """
    if not text.isprintable():
        msg = "an address has no control characters"
        raise ValueError(msg)
    return url.join(URL(text, encoded=text.isascii() and " " not in text)).with_fragment(None)


def same_origin(url: URL, other: URL) -> bool:
    """Return whether two addresses have the same scheme, host and port; a difference is another server."""
    here, there = (url.raw_host or "").lower(), (other.raw_host or "").lower()
    return bool(here) and (url.scheme, here, url.port) == (other.scheme, there, other.port)


def is_exposed(url: URL) -> bool:
    """Return whether others on the network can read what is sent to an address."""
    return url.scheme != "https" and not is_loopback(url.raw_host or "")


def check_exposed(url: URL, headers: Mapping[str, str], name: str) -> None:
    """Make sure that an address which others can read along with is not sent a credential.

    Args:
        url: Where the request goes.
        headers: What goes with it.
        name: The server's name.

    Raises:
        ConnectError: There is a credential among the headers, or in the address; its value is not told.
    """
    if not is_exposed(url):
        return
    found = next((f"the header `{key}`" for key, value in headers.items() if _is_credential(key, value)), "")
    query = next((key for key, value in url.query.items() if is_telling(key) or _has_token(value)), None)
    if not found and query is not None:
        found = f"`{query}` in the query of the address"
    if not found and (url.user is not None or _has_token(url.path)):
        found = "a credential in the address"
    if found:
        msg = f"server `{name}`: {found} is not sent over plain http, where others can read it"
        hint = "use an https address, or set `allow_http = true` in the entry of the server"
        raise ConnectError(msg, server=name, stage="connect", hint=hint)


def _is_credential(name: str, value: str) -> bool:
    if name.lower() in _PLAIN_HEADERS:
        return _has_token(value)
    return is_telling(name) or is_secret(value, name) or _has_token(value)


def _has_token(value: str) -> bool:
    return mask_text(value) != value


def proxy_for(url: URL, name: str) -> tuple[URL | None, dict[str, str] | None]:
    """Find the proxy that the environment names for an address, and what it is told; none for this machine.

    What it is told goes with the CONNECT of a tunnel; a request without a tunnel carries it itself, as
    `headers_for_proxy` says. Nothing of it may be sent to the server.

    Raises:
        ConnectError: The environment names one that cannot be used.
    """
    host = url.host or ""
    if is_loopback(host) or proxy_bypass(host) or proxy_bypass(f"{host}:{url.port}"):
        return None, None
    proxies = getproxies()
    found = proxies.get(url.scheme) or proxies.get("all")
    if not found:
        return None, None
    try:
        proxy = URL(found if "://" in found else f"http://{found}")
        usable = proxy.scheme in ("http", "https") and bool(proxy.host)
    except ValueError:
        usable, proxy = False, URL()
    if not usable:
        msg = f"the proxy that the environment names for server `{name}` cannot be used"
        hint = "it has the form http://host:port; SOCKS is not supported"
        raise ConnectError(msg, server=name, stage="connect", hint=hint)
    if proxy.user is None:
        return proxy, None
    credentials = b64encode(f"{proxy.user}:{proxy.password or ''}".encode()).decode()
    return proxy.with_user(None), {"Proxy-Authorization": f"Basic {credentials}"}


def headers_for_proxy(url: URL, told: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return what a request itself carries for the proxy: only plain http passes through one in the open."""
    return told if told is not None and url.scheme == "http" else {}


def tls_context(tls: Tls, name: str) -> ssl.SSLContext:
    """Read the certificates that a server's settings name.

    Raises:
        ConnectError: A file cannot be used; the message says which.
    """
    key, path = "ca", tls.ca
    try:
        is_folder = path is not None and Path(path).is_dir()
        context = ssl.create_default_context(
            cafile=None if is_folder else path, capath=path if is_folder else None
        )
        if not tls.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if tls.cert is not None:
            key, path = ("key", tls.key) if tls.key is not None else ("cert", tls.cert)
            context.load_cert_chain(tls.cert, tls.key, _no_password)
    except (OSError, ValueError) as exc:
        # OpenSSL does not say which file of a pair is wrong, unless it is missing.
        if tls.cert is not None and path is not None and not Path(tls.cert).is_file():
            key, path = "cert", tls.cert
        reason = (
            exc.strerror if isinstance(exc, OSError) and exc.errno else ""
        ) or "it holds none, or an encrypted key"
        if isinstance(exc, ssl.SSLError):
            reason = (exc.reason or "it is not in PEM form").lower().replace("_", " ")
        msg = f"the certificates of server `{name}` cannot be used: `tls.{key}` ({path}): {reason}"
        raise ConnectError(msg, server=name, stage="connect", hint="check the paths in `tls`") from exc
    return context


def _no_password() -> str:
    """Keep OpenSSL from asking at the terminal.

    Raises:
        ValueError: Always.
    """
    msg = "the key is encrypted"
    raise ValueError(msg)


def lasting_socket(address: tuple[Any, ...]) -> socket.socket:
    """Make a socket that notices within minutes when its peer is gone without a word."""
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        if (number := getattr(socket, option, None)) is not None:
            made.setsockopt(socket.IPPROTO_TCP, number, value)
    return made
