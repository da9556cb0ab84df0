"""Requests about logins go to addresses that a server names, so each is checked before a byte is sent.

The rules: https, or http to this machine; no user names in addresses; no address written as a number but in
its usual form; and what a name resolves to must be public. Addresses of a private network, of this machine or
of its link are reached only if the server's own address lies in that same class, as seen on the connection it
answered on, or if its configuration lists the host. A name is resolved once, all its addresses are checked,
and exactly those are connected to: nothing can change between check and use. Redirects are never followed
here; whoever follows one comes back with the new address, and it is checked like any other.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from dragoman.server.http_answer import detail, excerpt
from dragoman.server.http_route import endpoint, headers_for_proxy, lasting_socket, proxy_for
from dragoman.trust.addresses import is_loopback, read_link
from dragoman.version import VERSION

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    Resolve: TypeAlias = Callable[[str, int], Awaitable[list[str]]]

Reach: TypeAlias = Literal["public", "private", "loopback", "link", "special"]
"""The classes of addresses: `link` is the link's own (cloud machines keep their secrets there)."""

REACHES: tuple[Reach, ...] = ("private", "loopback", "link", "special")
BODY_BYTES = 1024 * 1024
TOTAL_SECONDS = 30.0
CONNECT_SECONDS = 10.0
MAX_URL = 8192

_LISTING = "if that is right, list its host in `auth.hosts`"
_PRIVATE = tuple(map(ip_network, ("100.64.0.0/10", "192.0.0.0/24", "fec0::/10", "3fff::/20")))
"""What Python takes for public, or for neither, and nobody else does."""
_NAT64 = ip_network("64:ff9b::/96")
_MAPPED_BITS = 0xFFFFFFFF


class ForbiddenTargetError(Exception):
    """A request about a login must not go there; the message says why."""


class FetchError(Exception):
    """A request about a login got no answer; trying again later may help."""


class Fetched(NamedTuple):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    peer: str = ""
    """The address that answered; empty where a proxy stands between."""


def reach_of(address: str) -> Reach:
    """Return the class of an address; what stands for an IPv4 address counts as that.

    Raises:
        ValueError: It is no address.
    """
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address):
        found = _embedded(found) or found
    if found.is_loopback:
        return "loopback"
    if found.is_link_local:
        return "link"
    if found.is_unspecified or found.is_multicast or found.is_reserved:
        return "special"
    if found.is_private or any(found in network for network in _PRIVATE):
        return "private"
    return "public" if found.is_global else "special"


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that a packet to this one ends up at."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    compatible = int(address) >> 32 == 0 and int(address) > 1
    return IPv4Address(int(address) & _MAPPED_BITS) if address in _NAT64 or compatible else None


def written_reach(url: str) -> Reach | None:
    """Return the class that an address shows by itself: one in numbers, or `localhost`."""
    try:
        host = URL(url).host or ""
        return "loopback" if is_loopback(host) else reach_of(host.rstrip("."))
    except ValueError:
        return None


async def resolve(host: str, port: int) -> list[str]:
    """Ask the system for the addresses of a name."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@dataclass(slots=True)
class Fetcher:
    """Sends requests about one server's logins."""

    server: str
    """Its name, for errors."""
    own: Reach | None = None
    """The class that the server's address shows by itself."""
    reaches: set[Reach] = field(default_factory=set[Reach])
    """Classes besides `public` that may be reached: those of the server itself."""
    hosts: Iterable[str] = ()
    """Hosts that may be reached whatever their class."""
    tls: ssl.SSLContext | bool = True
    resolve: Resolve = resolve

    def __post_init__(self) -> None:
        """Begin with what is written."""
        if self.own is not None:
            self.reaches.add(self.own)

    def learn(self, peer: str) -> None:
        """Take in the address that the server itself answered from; the latest one counts.

        A name that led elsewhere once opens no way there: its owner may point it to any network for a moment.
        """
        try:
            found = reach_of(peer)
        except ValueError:
            return
        self.reaches = {found, self.own or found}

    def recall(self, reaches: Iterable[str]) -> None:
        """Take in what was learnt at an earlier login."""
        self.reaches.update(reach for reach in REACHES if reach in set(reaches))

    async def fetch(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        configured: bool = False,
        reads: bool = True,
    ) -> Fetched:
        """Send a request and read the whole answer, within limits.

        Args:
            method: The HTTP method.
            url: Where to.
            headers: What goes with it.
            body: What is sent.
            configured: Whether a person wrote this very address down: it is then not judged.
            reads: Whether the body is read; that of an event stream has no end.

        Raises:
            ForbiddenTargetError: It must not go there.
            FetchError: There was no answer, or too much of one.
        """
        target = endpoint(url, self.server) if configured else parse(url)
        proxy, proxy_headers = proxy_for(target, self.server)
        addresses = [] if configured else await self._judge(target, proxied=proxy is not None)
        attempted: set[str] = set()
        connector = aiohttp.TCPConnector(
            socket_factory=_noting(attempted),
            resolver=_Pinned(addresses) if addresses and proxy is None else None,
            use_dns_cache=False,
            force_close=True,
            ssl=self.tls,
        )
        timeout = aiohttp.ClientTimeout(total=TOTAL_SECONDS, sock_connect=CONNECT_SECONDS)
        sent = {"User-Agent": f"dragoman/{VERSION}", "Accept": "application/json", **(headers or {})}
        sent |= headers_for_proxy(target, proxy_headers)
        try:
            async with (
                aiohttp.ClientSession(
                    connector=connector, cookie_jar=aiohttp.DummyCookieJar(), timeout=timeout
                ) as session,
                session.request(
                    method,
                    target,
                    headers=sent,
                    data=body or None,
                    allow_redirects=False,
                    proxy=proxy,
                    proxy_headers=proxy_headers,
                ) as response,
            ):
                # Who answered is sure only if nobody else was tried.
                peer = attempted.pop() if proxy is None and len(attempted) == 1 else ""
                body = await _body(response) if reads else b""
                return Fetched(response.status, response.headers, body, peer)
        except (aiohttp.ClientError, OSError) as exc:
            msg = f"`{_shown(target)}` did not answer: {detail(exc)}"
            raise FetchError(msg) from exc

    def check_shown(self, url: str) -> str:
        """Return an address in a form that a person may be sent to; what shells read is encoded.

        Raises:
            ForbiddenTargetError: A browser must not go there.
        """
        found = parse(url)
        try:
            link = read_link(str(found))
        except ValueError as exc:
            msg = f"`{_shown(found)}` cannot be opened in a browser: {exc}"
            raise ForbiddenTargetError(msg) from None
        reach = written_reach(url) or "public"
        listed = (found.host or "").lower() in {one.lower() for one in self.hosts}
        if reach not in {"public", *self.reaches} and not listed:
            msg = f"`{_shown(found)}` lies at a {reach} address, which the server itself does not; {_LISTING}"
            raise ForbiddenTargetError(msg)
        return "".join(f"%{ord(letter):02X}" if letter in "$'();*!" else letter for letter in link.url)

    async def _judge(self, url: URL, *, proxied: bool) -> list[str]:
        """Return the addresses that may be connected to.

        Raises:
            ForbiddenTargetError: There is none, or one of them is not allowed.
        """
        host, port = url.host or "", url.port or 443
        listed = host.lower() in {one.lower() for one in self.hosts}
        try:
            addresses = [str(ip_address(host))]
        except ValueError:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    addresses = await self.resolve(host, port)
            except (OSError, UnicodeError) as exc:
                if proxied and listed:
                    return []
                msg = f"`{_shown(url)}` cannot be resolved, so that it cannot be checked"
                raise (ForbiddenTargetError if proxied else FetchError)(msg) from exc
        reaches = {reach_of(address) for address in addresses}
        if url.scheme == "http" and reaches != {"loopback"}:
            msg = f"`{_shown(url)}` is not https"
            raise ForbiddenTargetError(msg)
        wrong = reaches - {"public"} - self.reaches
        if (wrong or not reaches) and not listed:
            kind = ", ".join(sorted(wrong)) or "no"
            msg = f"`{_shown(url)}` lies at a {kind} address, which the server itself does not; {_LISTING}"
            raise ForbiddenTargetError(msg)
        return addresses


class _Pinned(AbstractResolver):
    """Gives the addresses that were checked, whatever the name would resolve to now."""

    def __init__(self, addresses: list[str]) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
            if family in (socket.AF_UNSPEC, socket.AF_INET6 if ":" in address else socket.AF_INET)
        ]

    async def close(self) -> None:
        """Hold nothing."""


def parse(url: str) -> URL:
    """Read an address that a server has named.

    Raises:
        ForbiddenTargetError: It is not one that is plain enough to be sure of.
    """
    why = ""
    found = URL()
    try:
        if len(url) > MAX_URL or not url.isascii() or not url.isprintable() or set(url) & set(' \\"<>^`{|}'):
            why = "has characters that none may have"
        else:
            found = URL(url, encoded=True).with_fragment(None)
            why = _fault(found, url)
    except ValueError:
        why = "cannot be read"
    if why:
        msg = f"the address `{excerpt(_shown(found).encode(), 80) or 'given'}` {why}"
        raise ForbiddenTargetError(msg)
    return found


def _fault(url: URL, text: str) -> str:
    host = url.raw_host or ""
    authority = text.partition("://")[2].partition("/")[0].partition("?")[0].partition("#")[0]
    if url.scheme not in ("http", "https") or not host:
        return "is no http address"
    if url.raw_user is not None or url.raw_password is not None or "@" in authority:
        return "holds a user's name"
    if "%" in host:
        return "has a host that cannot be checked"
    last = host.rstrip(".").rpartition(".")[2]
    # What ends in a number is read as an IPv4 address, in forms that hide which one (`0x7f.1`, `2130706433`).
    if ":" not in host and (last.isdigit() or last.lower().startswith("0x") or not last):
        try:
            ip_address(host)
        except ValueError:
            return "has a host in an unusual form"
    return ""


def _shown(url: URL) -> str:
    """Return what may be shown of an address: no user, no query."""
    return excerpt(str(url.with_user(None).with_query(None) if url.host else url).encode(), 120)


def _noting(attempted: set[str]) -> Callable[[tuple[Any, ...]], socket.socket]:
    """Return what makes sockets and notes where they are to lead."""

    def make(address: tuple[Any, ...]) -> socket.socket:
        attempted.add(str(address[4][0]))
        return lasting_socket(address)

    return make


async def _body(response: aiohttp.ClientResponse) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while chunk := await response.content.readany():
        chunks.append(chunk)
        size += len(chunk)
        if size > BODY_BYTES:
            msg = f"`{_shown(response.url)}` answered with more than {BODY_BYTES // 1024} KiB"
            raise FetchError(msg)
    return b"".join(chunks)
