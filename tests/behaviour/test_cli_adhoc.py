"""A server that is not configured: by its command after `--` or by its URL, in every command, and kept on request."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit.cli.program import SERVERS, configure, dragoman
from tests.unit.cli.terminal import PROMPT, at_terminal

from dragoman.cli.adhoc import name_for
from dragoman.demo.launch import demo_servers
from dragoman.model import Http, Stdio

if TYPE_CHECKING:
    from dragoman.model import Transport

PLAIN = ["--", sys.executable, str(SERVERS / "plain.py")]


def test_a_command_after_the_dashes_is_the_server() -> None:
    listed = json.loads(dragoman("tools", "--json", *PLAIN).stdout)["servers"]
    assert [one["server"] for one in listed] == ["plain"]
    # Options that look like ours belong to the server.
    assert dragoman("call", "echo", "text=hi", *PLAIN, "--json", "--help").stdout == "hi\n"


def test_the_other_commands_take_it_too() -> None:
    told = json.loads(dragoman("status", "--json", *PLAIN).stdout)["servers"]
    assert [(one["name"], one["state"]) for one in told] == [("plain", "ready")]
    assert json.loads(dragoman("doctor", "--json", *PLAIN).stdout)["ok"] is True
    assert "yo" in dragoman("chat", *PLAIN, stdin="/call echo text=yo\n").stdout


async def test_a_url_in_the_place_of_a_name_is_the_server() -> None:
    async with demo_servers() as specs:
        (url,) = [spec.transport.url for spec in specs if isinstance(spec.transport, Http)]
        done = await asyncio.to_thread(dragoman, "call", url, "greet", "name=Ann")
        assert "Hello, Ann!" in done.stdout
        listed = await asyncio.to_thread(dragoman, "tools", url)
        assert "greet(" in listed.stdout
        refused = await asyncio.to_thread(dragoman, "call", url, *PLAIN)
        assert "not both" in refused.stderr


@pytest.mark.parametrize("url", ["http://[", "https://[::1]x/", "http://host:port/"])
def test_a_url_that_no_program_can_read_is_an_error_about_the_address(url: str) -> None:
    done = dragoman("call", url, "echo")
    assert done.returncode != 0
    assert "is not an HTTP address" in done.stderr


def test_configured_servers_do_not_matter_and_are_not_started() -> None:
    configure(broken={"command": "no-such-program"})
    done = dragoman("status", *PLAIN)
    assert done.returncode == 0
    assert "broken" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["tools", "--"], "Missing the command"),
        (["tools", "other", "--", "x"], "Unexpected `other`"),
        (["call", "--", "x"], "Missing TOOL"),
        (["chat", "hello"], "Expected a URL"),
    ],
)
def test_wrong_usage_says_what_is_right(arguments: list[str], complaint: str) -> None:
    done = dragoman(*arguments)
    assert done.returncode == 2
    assert complaint in done.stderr


def test_a_server_that_works_can_be_kept(tmp_path: Path) -> None:
    path = Path(os.environ["XDG_CONFIG_HOME"], "dragoman", "mcp.json")
    with at_terminal("call", "echo", "text=hi", *PLAIN) as person:
        person.wait_until(lambda: person.current == "Keep it as `plain`? [y/N]:")
        person.type("\r")
        assert person.wait_for_end() == 0
    assert not path.exists()

    # A relative path is kept with the folder in which it was typed.
    (tmp_path / "mine.py").symlink_to(SERVERS / "plain.py")
    with at_terminal("tools", "--", sys.executable, "mine.py") as person:
        person.wait_until(lambda: person.current == "Keep it as `mine`? [y/N]:")
        person.type("y\r")
        assert person.wait_for_end() == 0
        assert "Added `mine` to ~/.config/dragoman/mcp.json" in person.text
    kept = json.loads(path.read_text("utf-8"))["mcpServers"]["mine"]
    assert (kept["args"], kept["cwd"]) == (["mine.py"], str(tmp_path))

    configure(plain={"command": "another"})
    with at_terminal("chat", *PLAIN) as person:
        person.wait_until(lambda: person.current == PROMPT)
        person.type("exit\r")
        person.wait_until(lambda: person.current == "Keep it as `plain-2`? [y/N]:")
        person.type("y\r")
        assert person.wait_for_end() == 0
    assert dragoman("call", "plain-2", "echo", "text=hi").stdout == "hi\n"
    # What is configured already is not asked about, and neither is a server that does not work.
    for words, code in (PLAIN, 0), (["--", "no-such-program"], 4):
        with at_terminal("status", *words) as person:
            assert person.wait_for_end() == code
            assert "Keep it" not in person.text


@pytest.mark.parametrize(
    ("transport", "name"),
    [
        (Stdio("npx", ["-y", "@modelcontextprotocol/server-filesystem", "."]), "filesystem"),
        (Stdio("uvx", ["mcp-server-git"]), "git"),
        (Stdio("npx", ["-y", "@playwright/mcp@1.2"]), "mcp"),
        (Stdio("python", ["-m", "dragoman.demo.studio", "--stdio"]), "studio"),
        (Stdio("./bin/papers-mcp", []), "papers"),
        (Http("https://mcp.linear.app/mcp"), "linear"),
        (Http("http://localhost:3000/mcp"), "localhost"),
        (Http("http://127.0.0.1:3000/mcp"), "127-0-0-1"),
    ],
)
def test_a_name_is_made_from_the_package_the_script_or_the_host(transport: Transport, name: str) -> None:
    assert name_for(transport) == name
