"""The parts of a URL, URLs that a person is asked to open, and which hosts are this machine.

Only `split_url` uses the parser of `urllib`, which raises for some texts at once, for others when a part is
read, and drops characters of others.

Every URL that a browser opens or that a person is asked to open (logins, URL elicitations) goes through
`read_link`. Browsers repair URLs (a backslash becomes a slash, tabs vanish, `0x7f.1` is an IPv4 address), so
a URL with two readings is refused. An accepted URL has one host, and the URL shown is the URL opened.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple
from urllib.parse import quote, urlsplit, urlunsplit

from dragoman.visible import is_visible

MAX_URL = 8192
MAX_HOST = 253
MAX_PORT = 65535

_ADDRESS = re.compile(r"(https?)://([^/?#]*)(.*)", re.IGNORECASE | re.DOTALL)
_AUTHORITY = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[^:\[\]]{1,253})(?::([0-9]{1,5}))?", re.IGNORECASE)
_NAME = re.compile(r"(?:(?!-)[a-z0-9_-]{1,63}(?<!-)\.){0,126}(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_FORBIDDEN = frozenset('\\"<>^`{|}')
_KEPT = "/?#[]@!$&'()*+,;=:%~-._"
_USUAL_PORTS = {"http": 80, "https": 443}
_DROPPED = re.compile(r"^\s|[\x00-\x1f\x7f-\x9f]")
_NETLOC = re.compile(
    r"(?:(?P<user>[^\\]*)@)?(?P<host>\[[^\[\]@]*\]|[^\s\\:\[\]@]*)(?::(?P<port>[0-9]{0,5}))?"
)


class SplitUrl(NamedTuple):
    """The parts of a URL; a part that it does not have is empty."""

    scheme: str
    """In lower case."""
    netloc: str
    """User, host and port as written."""
    path: str
    query: str
    username: str
    password: str
    host: str
    """In lower case, an IPv6 address without its brackets."""
    port: int | None

    def unsplit(self, query: str = "") -> str:
        """Return the URL with this query instead, and without its fragment."""
        return urlunsplit((self.scheme, self.netloc, self.path, query, ""))


def split_url(text: str) -> SplitUrl | None:
    """Split a URL into its parts; return `None` for a text that is none.

    A host (`//localhost:8000`) or a path alone is enough: callers check for the parts they need.
    """
    try:
        # `urlsplit` removes spaces at the start, line breaks and tabs: the parts would be of another text.
        parts = None if _DROPPED.search(text) else urlsplit(text)
        found = None if parts is None else _NETLOC.fullmatch(parts.netloc)
        if parts is None or found is None:
            return None
        host = found["host"].lower()
        if host.startswith("["):
            host = host[1:-1]
            IPv6Address(host)
    except ValueError:
        return None
    port = int(found["port"]) if found["port"] else None
    if port is not None and port > MAX_PORT:
        return None
    username, _, password = (found["user"] or "").partition(":")
    return SplitUrl(
        parts.scheme, parts.netloc, parts.path, parts.query, username, password, host=host, port=port
    )


class Link(NamedTuple):
    """A URL that has only one reading."""

    url: str
    """The URL in ASCII; exactly this is shown and opened."""
    host: str
    """The host as browsers see it (`xn--` for other scripts), with a non-default port."""


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine by its name: 127.0.0.0/8, `::1`, `localhost`, `*.localhost`.

    Other spellings of the same addresses (`127.1`, `0x7f000001`) do not count: resolvers may disagree.
    """
    name = host.lower().removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return "%" not in host and ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def read_link(text: str) -> Link:
    """Read a URL that a person is asked to open.

    Raises:
        ValueError: It is not https (or http on this machine), or programs could disagree on where it leads.
    """
    if len(text) > MAX_URL:
        msg = f"it is longer than {MAX_URL} characters"
        raise ValueError(msg)
    if not is_visible(text) or " " in text or set(text) & _FORBIDDEN:
        msg = "it has characters that are not allowed in a URL"
        raise ValueError(msg)
    found = _ADDRESS.fullmatch(text)
    if found is None:
        msg = "it does not start with https://"
        raise ValueError(msg)
    scheme, authority, rest = found[1].lower(), found[2], found[3]
    if "@" in authority:
        msg = "it has a user name, which hides the host"
        raise ValueError(msg)
    parts = _AUTHORITY.fullmatch(authority)
    port = int(parts[2] or _USUAL_PORTS[scheme]) if parts is not None else 0
    if parts is None or not 0 < port <= MAX_PORT:
        msg = "its host is invalid"
        raise ValueError(msg)
    host = _host(parts[1])
    if scheme == "http" and not is_loopback(host):
        msg = f"it is not https, and `{host}` is not this machine"
        raise ValueError(msg)
    place = host if port == _USUAL_PORTS[scheme] else f"{host}:{port}"
    path = rest if rest.startswith("/") or not rest else f"/{rest}"
    return Link(f"{scheme}://{place}{quote(path, safe=_KEPT)}", place)


def _host(text: str) -> str:
    """Return a host as a browser sees it.

    Raises:
        ValueError: It is neither a plain name nor an IP address in its usual form.
    """
    if text.startswith("["):
        return f"[{IPv6Address(text[1:-1])}]"
    name = text.lower()
    if not name.isascii():
        import idna

        try:
            name = idna.encode(text, uts46=True, std3_rules=True).decode()
        except UnicodeError:
            name = ""
    if len(name) > MAX_HOST or not _NAME.fullmatch(name):
        msg = "its host is not a plain name"
        raise ValueError(msg)
    # Browsers read a host whose last label is a number as an IPv4 address, in forms that hide which one.
    if _NUMBER.fullmatch(name.rpartition(".")[2]):
        try:
            return str(ip_address(name))
        except ValueError:
            msg = "its host is a number in an unusual form"
            raise ValueError(msg) from None
    return name
