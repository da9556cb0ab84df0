from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from aiohttp import ClientSession
from tests.servers.http_peer import GUARD

from dragoman.server.oauth import login_prompt
from dragoman.server.oauth.login_prompt import (
    REQUEST_BYTES,
    CallbackError,
    CallbackPage,
    Redirect,
    read_redirect,
)

pytestmark = pytest.mark.anyio


async def get(callback: CallbackPage, path: str, **headers: str) -> tuple[int, str]:
    url = f"http://127.0.0.1:{callback.port}{path}"
    async with ClientSession() as browser, browser.get(url, headers=headers) as page:
        assert page.headers["Content-Security-Policy"] == "default-src 'none'"
        return page.status, await page.text()


async def test_one_answer_with_the_right_state_is_taken_and_no_second() -> None:
    async with CallbackPage() as callback:
        callback.expect("s1")
        assert callback.uri == f"http://127.0.0.1:{callback.port}/callback"
        status, text = await get(callback, "/callback?code=c1&state=s1&iss=https%3A%2F%2Fas.example")
        assert status == 200
        assert "logged in" in text
        assert (await get(callback, "/callback?code=c2&state=s1"))[0] == 410
        assert await callback.wait() == Redirect("c1", "s1", "https://as.example")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/callback?code=c&state=wrong", 400),
        ("/callback?code=c", 400),
        ("/callback?state=s1", 400),
        ("/callback?code=a&code=b&state=s1", 400),
        ("/callback", 400),
        ("/other?code=c&state=s1", 404),
        ("/callback/x?code=c&state=s1", 404),
    ],
)
async def test_what_is_not_the_answer_ends_nothing(path: str, status: int) -> None:
    async with CallbackPage() as callback:
        callback.expect("s1")
        assert (await get(callback, path))[0] == status
        assert (await get(callback, "/callback?code=good&state=s1"))[0] == 200
        assert (await callback.wait()).code == "good"


async def test_nothing_is_taken_before_a_login_is_expected() -> None:
    async with CallbackPage() as callback:
        assert (await get(callback, "/callback?code=c&state="))[0] == 400


async def test_other_names_for_this_machine_and_other_methods_are_refused() -> None:
    async with CallbackPage() as callback:
        callback.expect("s1")
        assert (await get(callback, "/callback?code=c&state=s1", Host="evil.example"))[0] == 421
        assert (await get(callback, "/callback?code=c&state=s1", Host="127.0.0.1"))[0] == 421
        url = f"{callback.uri}?code=c&state=s1"
        async with ClientSession() as browser, browser.post(url) as page:
            assert page.status == 405


async def test_refusal_comes_through_and_shows_nothing_of_it() -> None:
    async with CallbackPage() as callback:
        callback.expect("s1")
        _, text = await get(callback, "/callback?error=%3Cscript%3E&state=s1")
        assert "script" not in text
        assert (await callback.wait()).error == "<script>"


async def test_junk_and_silence_end_nothing() -> None:
    async with CallbackPage() as callback:
        callback.expect("s1")
        for junk in (b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"x" * 100_000):
            _, writer = await asyncio.open_connection("127.0.0.1", callback.port)
            writer.write(junk)
            writer.close()
        assert (await get(callback, "/callback?code=c&state=s1"))[0] == 200


async def test_answer_to_junk_repeats_nothing_of_it() -> None:
    async with CallbackPage() as callback:
        reader, writer = await asyncio.open_connection("127.0.0.1", callback.port)
        writer.write(b"GET /callback HTTP/1.1\r\nHo<b>marker</b>st: x\r\nAccept: text/html\r\n\r\n")
        async with asyncio.timeout(GUARD):
            page = (await reader.read()).decode()
        writer.close()
        assert page.startswith("HTTP/1.0 400 ")
        assert "Content-Security-Policy: default-src 'none'" in page
        assert "marker" not in page


@pytest.mark.parametrize(
    "sent", [b"GET /callback?code=", b"POST / HTTP/1.1\r\nContent-Length: 999999\r\n\r\n"]
)
async def test_connection_that_sends_too_much_is_closed(sent: bytes) -> None:
    async with CallbackPage() as callback, asyncio.timeout(GUARD):
        reader, writer = await asyncio.open_connection("127.0.0.1", callback.port)
        writer.write(sent + b"x" * (REQUEST_BYTES + 1))
        with suppress(ConnectionError):
            assert not await reader.read()
        writer.close()


async def test_silent_connection_is_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_prompt, "CONNECTION_SECONDS", 0.05)
    async with CallbackPage() as callback, asyncio.timeout(GUARD):
        reader, writer = await asyncio.open_connection("127.0.0.1", callback.port)
        assert not await reader.read()
        writer.close()


async def test_page_is_on_this_machine_only() -> None:
    async with CallbackPage() as callback:
        assert callback._server is not None
        assert {sock.getsockname()[0] for sock in callback._server.sockets} == {"127.0.0.1"}


@pytest.mark.parametrize(
    "text", ["http://127.0.0.1:1/callback?code=c&state=s", "?code=c&state=s", "  code=c&state=s\n"]
)
def test_pasted_address_is_read_in_every_form(text: str) -> None:
    assert read_redirect(text, state="s") == Redirect("c", "s")


@pytest.mark.parametrize("text", ["", "hello", "code=c", "code=c&state=other", "code=c&state=s&state=s"])
def test_pasted_text_that_is_no_answer_is_refused(text: str) -> None:
    with pytest.raises(CallbackError):
        read_redirect(text, state="s")


def test_answer_shows_no_secret() -> None:
    assert "c0de" not in repr(Redirect("c0de", "st4te"))
    assert "st4te" not in repr(Redirect("c0de", "st4te"))
