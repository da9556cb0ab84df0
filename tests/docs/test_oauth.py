"""The pages about logins: every block of code is run as it stands, against a real authorization server.

Only the addresses `https://law.example/mcp` and `https://login.example` are others. The browser of these tests is a program that goes where
it is sent.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from typing import TYPE_CHECKING

import pytest
from tests import warm
from tests.behaviour.test_cli_logins import on_a_terminal
from tests.docs.pages import ROOT, all_blocks, blocks
from tests.docs.running import checked, matches
from tests.servers.authorization import Authorization

from dragoman.server.oauth.credentials import DpopKey

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

URL = "https://law.example/mcp"
ISSUER = "https://login.example"
PAGE = (ROOT / "docs/oauth.md").read_text("utf-8")
SHELL = blocks("sh", (ROOT / "docs/oauth.md").read_text("utf-8"))
PROGRAMS = blocks("python", (ROOT / "docs/oauth.md").read_text("utf-8"))
TABLES = blocks("toml", (ROOT / "docs/oauth.md").read_text("utf-8"))

HEADLESS_PAGE = (ROOT / "docs/how-to/headless-oauth.md").read_text("utf-8")
HEADLESS_SHELL = blocks("sh", (ROOT / "docs/how-to/headless-oauth.md").read_text("utf-8"))
HEADLESS_PROGRAMS = blocks("python", (ROOT / "docs/how-to/headless-oauth.md").read_text("utf-8"))
HEADLESS_TABLES = blocks("toml", (ROOT / "docs/how-to/headless-oauth.md").read_text("utf-8"))
SCREENS = blocks("console", (ROOT / "docs/how-to/headless-oauth.md").read_text("utf-8"))

BROWSER = """#!{python}
import sys, urllib.request
urllib.request.urlopen(sys.argv[1]).read()
"""


@pytest.fixture(autouse=True)
def browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the machine a browser."""
    script = tmp_path / "browser"
    script.write_text(BROWSER.format(python=sys.executable), "utf-8")
    script.chmod(0o700)
    monkeypatch.setenv("BROWSER", str(script))


def write(place: Path, text: str, server: Authorization) -> None:
    """Write a configuration as a page has it, for the server of this test."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text.replace(URL, server.url).replace(ISSUER, server.base), "utf-8")


async def dragoman(line: str) -> str:
    """Do one line of a page; return what the program printed."""
    word, *arguments = shlex.split(line, comments=True)
    assert word == "dragoman"
    done = await asyncio.to_thread(warm.run, arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_login_call_and_logout_are_three_commands(home: Path) -> None:
    async with Authorization() as server:
        write(home / ".config/dragoman/dragoman.toml", HEADLESS_TABLES[0], server)
        printed = [await dragoman(line) for line in SHELL[0].splitlines()]
        assert printed == ["logged in to `law`\n", "done\n", "logged out of `law`\n"]


async def test_program_of_the_page_logs_in_twice_and_tells_its_handler_once() -> None:
    async with Authorization() as server:
        program = PROGRAMS[0].replace(URL, server.url)
        done = await asyncio.to_thread(warm.run, [], code=program)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "log in to law\ndone\nready\n"
        assert server.seen["/authorize"] == 2


async def test_address_is_pasted_as_the_page_shows_it(home: Path) -> None:
    (screen,) = SCREENS
    first, _, shown = screen.partition("\n")
    _, program, *arguments = shlex.split(first)
    assert program == "dragoman"
    async with Authorization() as server:
        write(home / ".config/dragoman/dragoman.toml", HEADLESS_TABLES[0], server)
        async with on_a_terminal(*arguments) as terminal:
            url = await terminal.until(r"http://\S+/authorize\?\S+")
            await terminal.until(r"\naddress:")
            terminal.press(f"{await server.where(url)}\r")
            await terminal.until("logged in to `law`")
        seen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", terminal.shown)
        # The line where it is pasted is drawn again with every key.
        seen = re.sub(r"(?m)^address:.*(?:\n(?!logged in).*)*", "address: x", seen)
        assert matches(shown, seen.strip()), seen


async def test_program_in_a_pipeline_logs_in_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAW_CLIENT_SECRET", "s3cret")
    async with Authorization(methods=["client_secret_basic"], pkce=None) as server:
        write(tmp_path / "ci.toml", HEADLESS_TABLES[1], server)
        printed = [await dragoman(line) for line in HEADLESS_SHELL[0].splitlines()]
        assert '"logged_in": true' in printed[0]
        assert printed[1] == "done\n"
        assert server.seen["/authorize"] == server.seen["/register"] == 0


async def test_program_in_a_pipeline_may_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / "key.pem"
    key.write_text(DpopKey.generate().to_pem(), "utf-8")
    monkeypatch.setenv("LAW_KEY_FILE", str(key))
    async with Authorization(methods=["private_key_jwt"], pkce=None) as server:
        write(tmp_path / "signed.toml", HEADLESS_TABLES[2], server)
        assert await dragoman(HEADLESS_SHELL[1].strip()) == "done\n"
        form = next(form for what, form in server.requests if what == "token")
        assert "client_assertion" in form


async def test_workload_uses_the_token_of_its_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text("e30.e30.signature", "utf-8")
    monkeypatch.setenv("LAW_TOKEN_FILE", str(token))
    async with Authorization(methods=["none"], assertions={"e30.e30.signature"}) as server:
        write(tmp_path / "workload.toml", HEADLESS_TABLES[3], server)
        assert await dragoman(HEADLESS_SHELL[2].strip()) == "done\n"


async def test_application_without_a_browser_asks_its_own_person() -> None:
    async with Authorization() as server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-c", HEADLESS_PROGRAMS[0].replace(URL, server.url)),
            env=dict(os.environ),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().strip()
        process.stdin.write(f"{await server.where(url)}\n".encode())
        await process.stdin.drain()
        assert (await process.communicate())[0] == b"ready\n"
        assert process.returncode == 0


def test_configurations_of_the_pages_have_no_problem(tmp_path: Path) -> None:
    for text in [*TABLES, *HEADLESS_TABLES]:
        checked(text, "toml", tmp_path)


def test_no_block_is_left_out() -> None:
    assert len(all_blocks(PAGE)) == len(SHELL) + len(PROGRAMS) + len(TABLES) == 3
    taken = len(HEADLESS_SHELL) + len(HEADLESS_PROGRAMS) + len(HEADLESS_TABLES) + len(SCREENS)
    assert len(all_blocks(HEADLESS_PAGE)) == taken == 9


def test_every_key_is_on_the_page() -> None:
    from dragoman.model import Auth
    from dragoman.struct import field_names

    keys = set(field_names(Auth)) - {"mode"}
    assert keys == set(re.findall(r"`(\w+)`", "\n".join(re.findall(r"(?m)^\| (`[^|]+)\|", PAGE)))) & keys
