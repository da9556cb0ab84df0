"""`dragoman login` and `logout` against a real authorization server; the browser is ours."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import struct
import termios
import webbrowser
from contextlib import asynccontextmanager
from fcntl import ioctl
from typing import IO, TYPE_CHECKING

import pytest
from tests.servers.authorization import Authorization
from tests.unit.cli.program import configure, entry, misfits
from tests.warm import Warm

from dragoman.cli.commands.login import LoginReport, _has_browser, open_browser

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

pytestmark = pytest.mark.anyio


async def dragoman(*arguments: str, server: Authorization | None = None) -> tuple[int, str, str]:
    """Run the program; open the address that it prints, if there is a browser."""
    process, shown, saying = await asyncio.to_thread(started, arguments)
    said = ""
    with shown, saying:
        while line := await asyncio.to_thread(saying.readline):
            said += line
            if server is not None and (url := re.search(r"http://\S+/authorize\?\S+", line)):
                await server.open(url[0])
        text = await asyncio.to_thread(shown.read)
    return await asyncio.to_thread(process.wait), text, said


def started(arguments: Sequence[str]) -> tuple[Warm, IO[str], IO[str]]:
    """Start the program; return it with its output and its errors."""
    (shown, output), (saying, errors) = os.pipe(), os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    process = Warm(arguments, (nothing, output, errors), os.environ)
    for descriptor in (nothing, output, errors):
        os.close(descriptor)
    return process, os.fdopen(shown), os.fdopen(saying)


async def test_logging_in_makes_the_server_usable_and_logging_out_forgets_it() -> None:
    async with Authorization() as server:
        configure(law={"type": "http", "url": server.url})
        code, _, said = await dragoman("call", "law", "read")
        assert code == 5
        assert "`dragoman login law`" in said
        code, shown, said = await dragoman("login", "law", "--no-browser", "--json", server=server)
        assert code == 0, said
        assert misfits(json.loads(shown), LoginReport) == []
        assert (await dragoman("call", "law", "read"))[:2] == (0, "done\n")
        assert (await dragoman("logout", "law"))[:2] == (0, "logged out of `law`\n")
        code, shown, _ = await dragoman("status", "--json")
        assert (code, json.loads(shown)["servers"][0]["state"]) == (5, "needs_auth")
        assert (await dragoman("logout", "law"))[1] == "not logged in to `law`\n"


async def test_login_that_is_not_made_ends_in_time() -> None:
    async with Authorization() as server:
        configure(law={"type": "http", "url": server.url}, plain=entry("plain.py"))
        code, _, said = await dragoman("login", "law", "--no-browser", "--timeout", "1")
        assert code == 5
        assert "the login to `law` was not completed within 1 s" in said
        code, _, said = await dragoman("login", "plain")
        assert code == 3
        assert "does not use OAuth" in said
        assert (await dragoman("login", "law", "--paste"))[0] == 2


class Terminal:
    """The program on a terminal: what it shows, and keys for it."""

    def __init__(self, controller: int, process: Warm) -> None:
        self.shown = ""
        self.process = process
        self._controller = controller
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(controller, self._read)

    async def until(self, pattern: str) -> str:
        """Wait until something is on the screen; colours and moves are taken out, and broken lines joined."""
        while (found := re.search(pattern, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", self.shown))) is None:
            self._news.clear()
            await self._news.wait()
        return found[0]

    def press(self, keys: str) -> None:
        os.write(self._controller, keys.encode())

    def close(self) -> None:
        self._loop.remove_reader(self._controller)
        os.close(self._controller)

    def _read(self) -> None:
        try:
            data = os.read(self._controller, 65536)
        except OSError:  # on Linux the end of a terminal is an error
            self._loop.remove_reader(self._controller)
            return
        self.shown += data.decode("utf-8", "replace")
        self._news.set()


@asynccontextmanager
async def on_a_terminal(*arguments: str) -> AsyncIterator[Terminal]:
    controller, end = pty.openpty()
    ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    env = {**os.environ, "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1"}
    process = await asyncio.to_thread(Warm, arguments, (end, end, end), env, terminal=True)
    os.close(end)
    terminal = Terminal(controller, process)
    try:
        async with asyncio.timeout(50):
            yield terminal
            await asyncio.to_thread(process.wait)
    finally:
        process.kill()
        process.wait()
        terminal.close()


async def test_address_is_pasted_where_the_browser_runs_elsewhere() -> None:
    async with Authorization() as server:
        configure(law={"type": "http", "url": server.url})
        async with on_a_terminal("login", "law", "--paste") as terminal:
            url = await terminal.until(r"http://\S+/authorize\?\S+")
            await terminal.until(r"begins with\n`http://127\.0\.0\.1:\d+/callback`")
            await terminal.until(r"\naddress:")
            terminal.press("nonsense\r")
            await terminal.until("That address cannot be used: it is not the address at the end of a login")
            terminal.press(f"{await server.where(url)}\r")
            await terminal.until("logged in to `law`")
        assert terminal.process.returncode == 0


@pytest.mark.parametrize("key", ["\x03", "\x04"])
async def test_person_who_gives_up_at_the_paste_ends_it_at_once(key: str) -> None:
    async with Authorization() as server:
        configure(law={"type": "http", "url": server.url})
        async with on_a_terminal("login", "law", "--paste") as terminal:
            await terminal.until(r"\naddress:")
            terminal.press(key)
            await terminal.until("interrupted")
        assert terminal.process.returncode == 130
        assert "Traceback" not in terminal.shown


async def test_paste_that_never_comes_ends_in_time() -> None:
    async with Authorization() as server:
        configure(law={"type": "http", "url": server.url})
        async with on_a_terminal("login", "law", "--paste", "--timeout", "3") as terminal:
            await terminal.until("the login to `law` was not completed within 3 s")
        assert terminal.process.returncode == 5


async def test_interrupt_ends_the_wait_for_the_browser() -> None:
    async with Authorization() as server:
        configure(law={"type": "http", "url": server.url})
        async with on_a_terminal("login", "law", "--no-browser") as terminal:
            await terminal.until("Ctrl-C cancels")
            terminal.process.send_signal(signal.SIGINT)
            await terminal.until("interrupted")
        assert terminal.process.returncode == 130
        assert "Traceback" not in terminal.shown


async def test_server_of_a_project_is_told_nothing_before_it_is_approved(tmp_path: Path) -> None:
    async with Authorization() as server:
        (tmp_path / "mcp.json").write_text(
            json.dumps({"mcpServers": {"law": {"type": "http", "url": server.url}}}), "utf-8"
        )
        code, _, said = await dragoman("login", "law", "--no-browser")
        assert code == 8
        assert "dragoman trust approve law" in said
        assert not server.seen
        assert (await dragoman("trust", "approve", "law", "--yes"))[0] == 0
        assert (await dragoman("login", "law", "--no-browser", server=server))[0] == 0


async def test_browser_is_given_plain_addresses_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, opened = tmp_path / "browser", tmp_path / "opened"
    script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {opened}\n', "utf-8")
    script.chmod(0o700)
    monkeypatch.setenv("BROWSER", str(script))
    monkeypatch.setattr(webbrowser, "_tryorder", None)  # what it found in an earlier test
    for url in ("-new-window", "file:///etc/passwd", "https://a\\@github.com", "http://a.example/"):
        assert not await open_browser(url)
    assert await open_browser("https://github.com/x")
    assert opened.read_text("utf-8") == "https://github.com/x\n"


async def test_program_with_its_own_credentials_asks_no_user(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Authorization(methods=["client_secret_basic"], pkce=None) as server:
        login = {
            "grant": "client_credentials",
            "issuer": server.base,
            "client_id": "me",
            "client_secret": "${S}",
            "scopes": ["read"],
        }
        configure(law={"type": "http", "url": server.url, "auth": login})
        monkeypatch.setenv("S", "s3cret-canary")
        code, shown, said = await dragoman("login", "law", "--json")
        assert (code, json.loads(shown)["logged_in"], said) == (0, True, "")
        assert (await dragoman("call", "law", "read"))[:2] == (0, "done\n")
        server.token_status = 401
        code, _, said = await dragoman("login", "law")
        assert code == 5
        assert "`auth.client_id`" in said
        assert "s3cret-canary" not in said


async def test_address_that_cannot_be_used_is_an_error_and_no_traceback() -> None:
    for url in ("http://127.0.0.1:99999/mcp", "http://[::1/mcp", "http://127.0.0.1:1/mcp", "nonsense"):
        configure(law={"type": "http", "url": url})
        code, _, said = await dragoman("login", "law", "--no-browser")
        assert code in (3, 4, 9), (url, said)
        assert "error: " in said
        assert "Traceback" not in said
        assert "debug" not in said, said


def test_browser_is_opened_only_where_there_can_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    assert not _has_browser({"SSH_CONNECTION": "x"})
    assert not _has_browser({})
    assert _has_browser({"DISPLAY": ":0"})
    assert _has_browser({"WAYLAND_DISPLAY": "wayland-0"})
    assert _has_browser({"BROWSER": "my-browser"})
    monkeypatch.setattr("sys.platform", "darwin")
    assert _has_browser({})
    assert not _has_browser({"SSH_CONNECTION": "x"})
