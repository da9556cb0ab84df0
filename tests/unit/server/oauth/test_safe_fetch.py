from __future__ import annotations

import asyncio
import gzip
import socket
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from dragoman.server.oauth.safe_fetch import (
    BODY_BYTES,
    Fetcher,
    FetchError,
    ForbiddenTargetError,
    reach_of,
    resolve,
    written_reach,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio

NAMES = {
    "localhost.evil.example": ["127.0.0.1"],
    "mapped.evil.example": ["::ffff:127.0.0.1"],
    "mixed.evil.example": ["93.184.216.34", "127.0.0.1"],
    "six.evil.example": ["::1"],
    "any.evil.example": ["0.0.0.0"],
    "private.evil.example": ["10.0.0.1"],
    "cloud.evil.example": ["169.254.169.254"],
    "link.evil.example": ["fe80::1%eth0"],
    "empty.evil.example": [],
}
"""Names that resolve to forbidden addresses."""

ADDRESSES = [
    # This machine, by every name it has
    "http://127.0.0.1:{port}/",
    "https://127.0.0.1:{port}/",
    "http://localhost:{port}/",
    "http://LOCALHOST:{port}/",
    "http://localhost.:{port}/",
    "http://127.0.0.1.:{port}/",
    "http://127.1:{port}/",
    "http://127.0.1:{port}/",
    "http://127.255.255.254:{port}/",
    "http://2130706433:{port}/",
    "http://0x7f000001:{port}/",
    "http://0x7f.0x0.0x0.0x1:{port}/",
    "http://0x7f.1:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://017700000001:{port}/",
    "http://0177.1:{port}/",
    "http://127.0.0.0x1:{port}/",
    "http://0:{port}/",
    "http://0.0.0.0:{port}/",
    "http://[::1]:{port}/",
    "http://[0:0:0:0:0:0:0:1]:{port}/",
    "http://[::]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://[::ffff:7f00:1]:{port}/",
    "http://[::127.0.0.1]:{port}/",
    "http://[64:ff9b::7f00:1]:{port}/",
    "http://[2002:7f00:1::]:{port}/",
    "http://[2001:0:7f00:1::80ff:fffe]:{port}/",
    "http://[::1%25lo]:{port}/",
    "http://①②⑦.0.0.1:{port}/",
    "http://127。0。0。1:{port}/",
    "http://%31%32%37.0.0.1:{port}/",
    # Private networks, the link, and what is neither
    "https://10.0.0.1/",
    "https://172.16.0.1/",
    "https://172.31.255.255/",
    "https://192.168.0.1/",
    "https://100.64.0.1/",
    "https://169.254.169.254/latest/meta-data/",
    "https://[fd00:ec2::254]/",
    "https://[fe80::1]/",
    "https://[fec0::1]/",
    "https://[::ffff:169.254.169.254]/",
    "https://[::ffff:a9fe:a9fe]/",
    "https://2852039166/",
    "https://0xa9fea9fe/",
    "https://224.0.0.1/",
    "https://240.0.0.1/",
    "https://255.255.255.255/",
    "https://[ff02::1]/",
    "http://93.184.216.34/",
    # Names that lead there
    *[f"http://{name}:{{port}}/" for name in NAMES],
    *[f"https://{name}:{{port}}/" for name in ("localhost.evil.example", "cloud.evil.example")],
    # Addresses that look like others
    "http://good.example@127.0.0.1:{port}/",
    "https://good.example:x@127.0.0.1:{port}/",
    "http://@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}\\@good.example/",
    "http://good.example#@127.0.0.1:{port}/",
    "http:127.0.0.1:{port}/",
    "http:/127.0.0.1:{port}/",
    "//127.0.0.1:{port}/",
    "http://127.0.0.1:{port}/ HTTP/1.1\r\nX: y",
    "http://127.0.0.1\t:{port}/",
    # Other ways to read something
    "file:///etc/passwd",
    "ftp://127.0.0.1:{port}/",
    "gopher://127.0.0.1:{port}/_x",
    "data:application/json,{{}}",
    "javascript:alert(1)",
    "unix:///var/run/docker.sock",
    "",
]


@asynccontextmanager
async def canary(host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[tuple[int, Counter[str]]]:
    hits: Counter[str] = Counter()

    async def hit(request: web.Request) -> web.Response:
        hits[request.path] += 1
        match request.path:
            case "/bomb":
                body = gzip.compress(b"0" * (BODY_BYTES * 8))
                return web.Response(body=body, headers={"Content-Encoding": "gzip"})
            case "/redirect":
                return web.Response(status=302, headers={"Location": "/other"})
            case _:
                return web.json_response({})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", hit)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    try:
        yield runner.addresses[0][1], hits
    finally:
        await runner.cleanup()


async def lookup(host: str, port: int) -> list[str]:
    """Resolve as the system does, but for the names above."""
    if host in NAMES:
        return NAMES[host]
    if host.endswith(".example"):
        raise socket.gaierror(socket.EAI_NONAME, "no such name")
    return await resolve(host, port)


def test_there_are_sixty_addresses() -> None:
    assert len(set(ADDRESSES)) >= 60


@pytest.mark.parametrize("address", ADDRESSES)
async def test_address_that_a_server_must_not_send_us_to_is_never_reached(address: str) -> None:
    async with canary() as (port, hits):
        fetcher = Fetcher("srv", resolve=lookup)
        with pytest.raises((ForbiddenTargetError, FetchError)) as caught:
            await fetcher.fetch("GET", address.format(port=port))
        assert isinstance(caught.value, ForbiddenTargetError) or "cannot be resolved" in str(caught.value)
        assert not hits


@pytest.mark.parametrize("address", [one for one in ADDRESSES if "169.254" in one or "a9fe" in one])
async def test_private_server_does_not_open_the_way_to_the_link(address: str) -> None:
    fetcher = Fetcher("srv", resolve=lookup)
    fetcher.learn("10.1.2.3")
    fetcher.learn("127.0.0.1")
    with pytest.raises(ForbiddenTargetError):
        await fetcher.fetch("GET", address.format(port=1))


async def test_server_on_this_machine_may_name_others_there() -> None:
    async with canary() as (port, hits):
        fetcher = Fetcher("srv")
        fetcher.learn("127.0.0.1")
        found = await fetcher.fetch("GET", f"http://localhost:{port}/ok")
        assert (found.status, found.body, found.peer) == (200, b"{}", "127.0.0.1")
        with pytest.raises(ForbiddenTargetError):
            await fetcher.fetch("GET", f"http://10.0.0.1:{port}/")
        assert hits == {"/ok": 1}


async def test_listed_host_may_be_private_but_is_still_spoken_to_over_tls() -> None:
    fetcher = Fetcher("srv", hosts=["private.evil.example"], resolve=lookup)
    with pytest.raises(ForbiddenTargetError, match="https"):
        await fetcher.fetch("GET", "http://private.evil.example/")
    assert await fetcher._resolve_and_check(_url("https://private.evil.example/"), proxied=False) == [
        "10.0.0.1"
    ]


async def test_server_that_was_seen_elsewhere_opens_no_way_there() -> None:
    async with canary() as (port, hits):
        fetcher = Fetcher("srv")
        fetcher.learn("127.0.0.1")
        # Its name leads to the public now, and what it says now is said from there.
        fetcher.learn("93.184.216.34")
        with pytest.raises(ForbiddenTargetError, match=r"auth\.hosts"):
            await fetcher.fetch("GET", f"http://127.0.0.1:{port}/")
        assert not hits
        written = Fetcher("srv", own=written_reach(f"http://127.0.0.1:{port}/mcp"))
        written.learn("93.184.216.34")
        assert (await written.fetch("GET", f"http://127.0.0.1:{port}/")).status == 200


async def test_name_is_resolved_once_and_what_was_checked_is_connected_to() -> None:
    answers = [["127.0.0.2"], ["127.0.0.1"]]

    async def rebind(host: str, port: int) -> list[str]:
        return answers.pop(0)

    async with canary("127.0.0.2") as (port, good), canary("127.0.0.1", port) as (_, bad):
        fetcher = Fetcher("srv", resolve=rebind)
        fetcher.learn("127.0.0.1")
        assert (await fetcher.fetch("GET", f"http://as.example:{port}/one")).peer == "127.0.0.2"
        assert len(answers) == 1
        assert (good, bad) == ({"/one": 1}, {})


async def test_name_that_turns_private_is_refused_then() -> None:
    answers = [["93.184.216.34"], ["127.0.0.1"]]

    async def rebind(host: str, port: int) -> list[str]:
        return answers.pop(0)

    async with canary() as (port, hits):
        fetcher = Fetcher("srv", resolve=rebind)
        url = _url(f"https://as.example:{port}/")
        assert await fetcher._resolve_and_check(url, proxied=False) == ["93.184.216.34"]
        with pytest.raises(ForbiddenTargetError):
            await fetcher.fetch("GET", str(url))
        assert not hits


async def test_redirect_is_not_followed_and_bombs_are_not_unpacked() -> None:
    async with canary() as (port, hits):
        fetcher = Fetcher("srv")
        fetcher.learn("127.0.0.1")
        assert (await fetcher.fetch("GET", f"http://127.0.0.1:{port}/redirect")).status == 302
        with pytest.raises(FetchError, match="more than"):
            await fetcher.fetch("GET", f"http://127.0.0.1:{port}/bomb")
        assert hits == {"/redirect": 1, "/bomb": 1}


async def test_behind_a_proxy_a_name_has_to_resolve_or_to_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    hits: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hits.append(await reader.readline())
        writer.write(b"HTTP/1.1 502 no\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
        fetcher = Fetcher("srv", resolve=lookup)
        for name in ("unknown.example", "private.evil.example"):
            with pytest.raises(ForbiddenTargetError):
                await fetcher.fetch("GET", f"https://{name}/")
        assert not hits
        fetcher.hosts = ["unknown.example"]
        with pytest.raises(FetchError):
            await fetcher.fetch("GET", "https://unknown.example/")
        assert hits == [b"CONNECT unknown.example:443 HTTP/1.1\r\n"]


@pytest.mark.parametrize(
    ("address", "reach"),
    [
        ("8.8.8.8", "public"),
        ("2606:4700::1111", "public"),
        ("64:ff9b::808:808", "public"),
        ("10.0.0.1", "private"),
        ("100.64.0.1", "private"),
        ("fd00::1", "private"),
        ("fec0::1", "private"),
        ("192.0.0.8", "private"),
        ("198.18.0.1", "private"),
        ("3fff::1", "private"),
        ("192.0.2.1", "private"),
        ("64:ff9b::a00:1", "private"),
        ("64:ff9b:1::a00:1", "special"),
        ("::ffff:0:7f00:1", "special"),
        ("1.1.1.1", "public"),
        ("127.9.9.9", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("169.254.0.1", "link"),
        ("fe80::1%eth0", "link"),
        ("0.0.0.0", "special"),
        ("255.255.255.255", "special"),
    ],
)
def test_addresses_have_classes(address: str, reach: str) -> None:
    assert reach_of(address) == reach


def test_an_address_in_numbers_shows_its_class_and_a_name_does_not() -> None:
    assert written_reach("http://localhost:1/x") == "loopback"
    assert written_reach("http://[::1]:1/x") == "loopback"
    assert written_reach("http://10.1.1.1/x") == "private"
    assert written_reach("https://example.com/x") is None


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "http://example.com/authorize",
        "https://u:p@example.com/authorize",
        "https://example.com/`id`",
        "https://10.0.0.1/authorize",
        "http://localhost/authorize",
        "https://example.com/a b",
        "https://example.com/\u202ea",
    ],
)
def test_person_is_sent_to_plain_addresses_only(url: str) -> None:
    with pytest.raises(ForbiddenTargetError):
        Fetcher("srv").check_shown(url)


def _url(text: str):  # type: ignore[no-untyped-def]
    from yarl import URL

    return URL(text)
