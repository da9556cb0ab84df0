"""Sends OAuth requests to addresses that a server names, after checking them (against SSRF).

The rules: https, or http to this machine; no user name in an address; an IP address only in its usual form;
and a name must resolve to public addresses. Private, loopback and link-local addresses are allowed only if
the server's own address is in the same class, as seen on its connection, or if `auth.hosts` lists the host. A
name is resolved once, all its addresses are checked, and only those are connected to, so nothing can change
between check and use. Redirects are not followed here: a caller that follows one comes back with the new
address, which is checked too.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from dragoman.server.transports.http_client import endpoint, headers_for_proxy, lasting_socket, proxy_for
from dragoman.server.transports.http_response import detail, excerpt
from dragoman.struct import MutableStruct, field
from dragoman.trust.addresses import is_loopback, read_link
from dragoman.version import VERSION

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    Resolve: TypeAlias = Callable[[str, int], Awaitable[list[str]]]
    from dragoman.server.transports.http_client import HttpAnswer

Reach: TypeAlias = Literal["public", "private", "loopback", "link", "special"]
"""The classes of IP addresses; `link` is link-local (cloud metadata services are there)."""

REACHES: tuple[Reach, ...] = ("private", "loopback", "link", "special")
BODY_BYTES = 1024 * 1024
TOTAL_SECONDS = 30.0
CONNECT_SECONDS = 10.0
MAX_URL = 8192

_LISTING = "if that is right, list its host in `auth.hosts`"
_PRIVATE = tuple(map(ip_network, ("100.64.0.0/10", "192.0.0.0/24", "fec0::/10", "3fff::/20")))
"""Networks that `ipaddress` does not count as private."""
_NAT64 = ip_network("64:ff9b::/96")
_MAPPED_BITS = 0xFFFFFFFF


class ForbiddenTargetError(Exception):
    """An OAuth request must not be sent to this address; the message says why."""


class FetchError(Exception):
    """An OAuth request got no response; trying again later may help."""


class Fetched(NamedTuple):
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    peer: str = ""
    """The IP address of the server; empty behind a proxy."""

    def document(self) -> dict[str, Any]:
        """Return the JSON object in the body.

        Raises:
            ValueError: It is something else, or the status is not 200.
        """
        if self.status != HTTPStatus.OK:
            msg = f"HTTP status {self.status}"
            raise ValueError(msg)
        try:
            found: object = json.loads(self.body)
        except RecursionError as exc:
            msg = "not JSON"
            raise ValueError(msg) from exc
        if not isinstance(found, dict):
            msg = "not a JSON object"
            raise ValueError(msg)  # noqa: TRY004 -- the content is wrong, not a caller's type
        return cast("dict[str, Any]", found)


def reach_of(address: str) -> Reach:
    """Return the class of an IP address; IPv6 forms of an IPv4 address count as that.

    Raises:
        ValueError: It is not an IP address.
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
    """Return the IPv4 address to which packets for this address go, if there is one."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    compatible = int(address) >> 32 == 0 and int(address) > 1
    return IPv4Address(int(address) & _MAPPED_BITS) if address in _NAT64 or compatible else None


def written_reach(url: str) -> Reach | None:
    """Return the class of a URL whose host is an IP address or `localhost`; `None` for other names."""
    try:
        host = URL(url).host or ""
        return "loopback" if is_loopback(host) else reach_of(host.rstrip("."))
    except ValueError:
        return None


async def resolve(host: str, port: int) -> list[str]:
    """Resolve a name with the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Fetcher(MutableStruct):
    """Sends the OAuth requests of one server."""

    server: str
    """Its name, for errors."""
    own: Reach | None = None
    """The class of the server's address, if its URL shows it."""
    reaches: set[Reach] = field(default_factory=set[Reach])
    """Classes that are allowed besides `public`: those of the server itself."""
    hosts: Iterable[str] = ()
    """Hosts that are always allowed."""
    tls: ssl.SSLContext | bool = True
    resolve: Resolve = resolve

    def __post_init__(self) -> None:
        """Allow the class that the server's URL shows."""
        if self.own is not None:
            self.reaches.add(self.own)

    def learn(self, peer: str) -> None:
        """Allow the class of the IP address that the server responded from; only the latest one counts.

        Earlier ones do not: the owner of a name could point it to any network for a moment.
        """
        try:
            found = reach_of(peer)
        except ValueError:
            return
        self.reaches = {found, self.own or found}

    def recall(self, reaches: Iterable[str]) -> None:
        """Allow the classes that were stored with an earlier login."""
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
        """Send a request and read the whole response, within limits.

        Args:
            method: The HTTP method.
            url: The address.
            headers: More headers.
            body: The body.
            configured: Whether the address is from the configuration: then it is not checked.
            reads: Whether to read the body; an event stream has no end.

        Raises:
            ForbiddenTargetError: The address is not allowed.
            FetchError: There was no response, or it is too large.
        """
        target = endpoint(url, self.server) if configured else parse(url)
        proxy, proxy_headers = proxy_for(target, self.server)
        addresses = [] if configured else await self._resolve_and_check(target, proxied=proxy is not None)
        attempted: set[str] = set()
        connector = aiohttp.TCPConnector(
            socket_factory=_recording(attempted),
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
                # The peer is certain only if it is the only address that was tried.
                peer = attempted.pop() if proxy is None and len(attempted) == 1 else ""
                body = await _body(response) if reads else b""
                return Fetched(response.status, response.headers, body, peer)
        except (aiohttp.ClientError, OSError) as exc:
            msg = f"`{_shown(target)}` did not answer: {detail(exc)}"
            raise FetchError(msg) from exc

    def check_shown(self, url: str) -> str:
        """Return an address that a person may open, with shell characters encoded.

        Raises:
            ForbiddenTargetError: A browser must not open it.
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
            msg = f"`{_shown(found)}` has a {reach} address, but the server itself does not; {_LISTING}"
            raise ForbiddenTargetError(msg)
        return "".join(f"%{ord(letter):02X}" if letter in "$'();*!" else letter for letter in link.url)

    async def _resolve_and_check(self, url: URL, *, proxied: bool) -> list[str]:
        """Resolve and check a host, and return its IP addresses.

        Raises:
            ForbiddenTargetError: There is none, or one of them is not allowed.
            FetchError: The name cannot be resolved.
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
                msg = f"`{_shown(url)}` cannot be resolved, so it cannot be checked"
                raise (ForbiddenTargetError if proxied else FetchError)(msg) from exc
        reaches = {reach_of(address) for address in addresses}
        if url.scheme == "http" and reaches != {"loopback"}:
            msg = f"`{_shown(url)}` is not https"
            raise ForbiddenTargetError(msg)
        wrong = reaches - {"public"} - self.reaches
        if (wrong or not reaches) and not listed:
            kind = ", ".join(sorted(wrong)) or "no"
            msg = f"`{_shown(url)}` has a {kind} address, but the server itself does not; {_LISTING}"
            raise ForbiddenTargetError(msg)
        return addresses


class _Pinned(AbstractResolver):
    """Resolves every name to the addresses that were checked."""

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
        """Do nothing."""


def parse(url: str) -> URL:
    """Parse an address that a server named.

    Raises:
        ForbiddenTargetError: It is not valid, or has an ambiguous form.
    """
    why = ""
    found = URL()
    try:
        if len(url) > MAX_URL or not url.isascii() or not url.isprintable() or set(url) & set(' \\"<>^`{|}'):
            why = "has invalid characters"
        else:
            found = URL(url, encoded=True).with_fragment(None)
            why = _fault(found, url)
    except ValueError:
        why = "is not valid"
    if why:
        msg = f"the address `{excerpt(_shown(found).encode(), 80) or 'given'}` {why}"
        raise ForbiddenTargetError(msg)
    return found


def _fault(url: URL, text: str) -> str:
    host = url.raw_host or ""
    authority = text.partition("://")[2].partition("/")[0].partition("?")[0].partition("#")[0]
    if url.scheme not in ("http", "https") or not host:
        return "is not an http address"
    if url.raw_user is not None or url.raw_password is not None or "@" in authority:
        return "has a user name"
    if "%" in host:
        return "has a host that cannot be checked"
    last = host.rstrip(".").rpartition(".")[2]
    # A host that ends in a number is parsed as IPv4, also in obscure forms (`0x7f.1`, `2130706433`).
    if ":" not in host and (last.isdigit() or last.lower().startswith("0x") or not last):
        try:
            ip_address(host)
        except ValueError:
            return "has a host in an unusual form"
    return ""


def _shown(url: URL) -> str:
    """Return an address without user and query, for messages."""
    return excerpt(str(url.with_user(None).with_query(None) if url.host else url).encode(), 120)


def _recording(attempted: set[str]) -> Callable[[tuple[Any, ...]], socket.socket]:
    """Return a socket factory that records the addresses."""

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
            msg = f"`{_shown(response.url)}` sent more than {BODY_BYTES // 1024} KiB"
            raise FetchError(msg)
    return b"".join(chunks)


MAX_HEADERS = 32
MAX_CHARS = 16 * 1024
"""How much of all challenges together is parsed."""
MAX_VALUE = 4096

# Possessive quantifiers: no backtracking, so parsing takes linear time.
_GAP = re.compile(r"[\s,=]*+")
_WORD = re.compile(r'[^\s,="]++')
_SIGN = re.compile(r"\s*+=\s*+")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*+)"', re.DOTALL)
_BARE = re.compile(r'([^\s,"]++)')


def challenge_fields(answer: HttpAnswer) -> dict[str, str]:
    """Parse the parameters of a challenge (RFC 9110 §11.6.1); the first one of each name counts."""
    values = [value for name, value in answer.headers.items() if name.lower() == "www-authenticate"]
    text = ", ".join(value[:MAX_CHARS] for value in values[:MAX_HEADERS])[:MAX_CHARS]
    found: dict[str, str] = {}
    place = 0
    while (place := _end(_GAP, text, place)) < len(text):
        word = _WORD.match(text, place)
        if word is None:
            # A quoted string without a name. If it is not closed, the rest cannot be parsed.
            place = _end(_QUOTED, text, place, default=len(text))
            continue
        place = word.end()
        if (sign := _SIGN.match(text, place)) is None:
            continue
        place = sign.end()
        if (value := _QUOTED.match(text, place) or _BARE.match(text, place)) is not None:
            place = value.end()
            if "\\" not in value[1] and len(value[1]) <= MAX_VALUE:
                found.setdefault(word[0].lower(), value[1])
    return found


def _end(pattern: re.Pattern[str], text: str, place: int, *, default: int = 0) -> int:
    match = pattern.match(text, place)
    return default if match is None else match.end()


def header(headers: Mapping[str, str], wanted: str) -> str:
    """Return a header by its lowercase name; empty if it is missing."""
    return next((value for name, value in headers.items() if name.lower() == wanted), "")


def token_in(headers: Mapping[str, str]) -> str:
    """Return the token of a request."""
    return header(headers, "authorization").partition(" ")[2]


def version_in(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the protocol version header of a request, if it has one."""
    version = header(headers, "mcp-protocol-version")
    return {"mcp-protocol-version": version} if version else {}
