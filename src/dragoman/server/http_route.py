"""The way to an HTTP server: its address, the proxy before it, the certificates, the sockets."""

from __future__ import annotations

import socket
import ssl
from base64 import b64encode
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.request import getproxies, proxy_bypass

from yarl import URL

from dragoman.errors import ConnectError

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPALIVE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


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


def within_origin(url: URL, other: URL) -> bool:
    """Tell whether another address belongs to the same server; turning to TLS on the usual ports does."""
    here, there = (url.raw_host or "").lower(), (other.raw_host or "").lower()
    if here != there or not here:
        return False
    if (url.scheme, url.port) == (other.scheme, other.port):
        return True
    return (url.scheme, url.port, other.scheme, other.port) == ("http", 80, "https", 443)


def proxy_for(url: URL, name: str) -> tuple[URL | None, dict[str, str] | None]:
    """Find the proxy that the environment names for an address, and what it is told; none for this machine.

    Raises:
        ConnectError: The environment names one that cannot be used.
    """
    host = url.host or ""
    if host == "localhost" or _is_loopback(host) or proxy_bypass(host):
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


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def tls_context(tls: Mapping[str, Any] | None, name: str) -> ssl.SSLContext | bool:
    """Make what aiohttp wants from `ca`, `cert`, `key` (paths), `password` and `verify`.

    Raises:
        ConnectError: A file cannot be used.
    """
    if not tls:
        return True
    try:
        context = ssl.create_default_context(cafile=tls.get("ca"))
        if tls.get("cert"):
            context.load_cert_chain(tls["cert"], tls.get("key"), tls.get("password"))
    except OSError as exc:
        msg = f"the certificates of server `{name}` cannot be used: {exc.strerror}"
        raise ConnectError(msg, server=name, stage="connect", hint="check the paths in `tls`") from exc
    if tls.get("verify") is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def lasting_socket(address: tuple[Any, ...]) -> socket.socket:
    """Make a socket that notices within minutes when its peer is gone without a word."""
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        if (number := getattr(socket, option, None)) is not None:
            made.setsockopt(socket.IPPROTO_TCP, number, value)
    return made
