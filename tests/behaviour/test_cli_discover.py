"""A user without a configuration: the servers of other apps are found, offered once, and never just started."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.program import configure, dragoman, entry
from tests.unit.cli.terminal import PROMPT, at_terminal

from dragoman.config.load import load
from dragoman.config.profiles import Profile

MARK = "import pathlib, sys; pathlib.Path('started').touch(); sys.exit(1)"


def write(path: Path, **servers: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": servers}), "utf-8")


@pytest.fixture(autouse=True)
def apps(home: Path) -> None:
    write(home / ".cursor" / "mcp.json", plain=entry("plain.py"))
    write(home / ".claude.json", official=entry("official.py", "stdio"))


@pytest.mark.parametrize("command", [["status"], ["tools"], ["doctor"], ["call", "plain", "echo", "text=hi"]])
def test_without_a_terminal_they_are_listed_and_nothing_is_started(command: list[str], home: Path) -> None:
    write(home / ".cursor" / "mcp.json", mark={"command": "python3", "args": ["-c", MARK]})
    done = dragoman(*command)
    assert done.returncode == 3
    assert "Cursor\n  mark  python3" in done.stdout
    assert "Claude Code (~/.claude.json) and Cursor (~/.cursor/mcp.json)" in done.stderr
    assert "`dragoman config hosts --use`" in done.stderr
    assert not Path("started").exists()
    told = json.loads(dragoman(*command, "--json").stdout)["error"]
    assert told["code"] == "config"
    assert "dragoman import --all --write" in told["hint"]


def test_one_question_at_a_terminal_and_the_answer_is_remembered(home: Path) -> None:
    with at_terminal("call", "plain", "echo", "text=hi", columns=120) as person:
        person.wait_until(lambda: person.current.endswith("Use them? [Y/n]:"))
        found = "Found 2 servers of Claude Code (~/.claude.json) and Cursor (~/.cursor/mcp.json)."
        assert found in person.text
        person.type("\r")
        assert person.wait_for_end() == 0
        assert person.text.rstrip().endswith("hi")
    done = dragoman("call", "official", "add", "a=1", "b=2")
    assert (done.returncode, "Found" in done.stderr) == (0, False)
    # What the user adds comes first; the rest stays.
    configure(plain=entry("noisy.py"))
    shown = {one["name"]: one for one in json.loads(dragoman("config", "show", "--json").stdout)["servers"]}
    assert shown["plain"]["args"][0].endswith("noisy.py")
    assert shown["official"]["origin"]["dialect"] == "claude-code"
    # Another app's file is never changed by accident.
    before = (home / ".claude.json").read_bytes()
    for command in (["remove", "official"], ["set", "official", "lazy=true"], ["disable", "official"]):
        refused = dragoman(*command)
        assert refused.returncode == 3
        assert "dragoman import claude-code --only official --write" in refused.stderr
    assert (home / ".claude.json").read_bytes() == before


def test_a_no_is_remembered_too_and_can_be_taken_back() -> None:
    with at_terminal("tools") as person:
        person.wait_until(lambda: person.current.endswith("[Y/n]:"))
        person.type("n\r")
        assert person.wait_for_end() == 0
        assert "No servers. Import them: dragoman import --all. Add one: dragoman add NAME" in " ".join(
            person.text.split()
        )
    done = dragoman("status")
    assert done.returncode == 0
    assert "dragoman config hosts --use" in done.stdout
    assert dragoman("config", "hosts", "--use", "cursor").returncode == 0
    told = json.loads(dragoman("config", "hosts", "--json").stdout)["hosts"]
    assert {one["app"]: one["use"] for one in told} == {"claude-code": False, "cursor": True}
    assert dragoman("call", "plain", "echo", "text=hi").stdout == "hi\n"


def test_the_session_asks_before_it_starts() -> None:
    with at_terminal() as person:
        person.wait_until(lambda: person.current.endswith("[Y/n]:"))
        person.type("y\r")
        person.wait_until(lambda: person.current == PROMPT)
        person.wait_until(lambda: "2/2 servers" in person.text)
        assert "hi" in person.enter("/call mcp_plain_echo text=hi")
        person.type("exit\r")
        assert person.wait_for_end() == 0


def test_yes_answers_the_question_and_a_projects_server_still_needs_its_approval() -> None:
    write(Path(".cursor", "mcp.json"), theirs={"command": "python3", "args": ["-c", MARK]})
    done = dragoman("status", "--yes", "--json")
    states = {one["name"]: one["state"] for one in json.loads(done.stdout)["servers"]}
    assert (states["plain"], states["official"]) == ("ready", "ready")
    assert states["theirs"] != "ready"
    assert done.returncode == 8
    assert not Path("started").exists()


def test_a_named_file_or_profile_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mine.json").write_text("{}", "utf-8")
    assert dragoman("tools", "--config", "mine.json").stdout.startswith("No servers.")
    monkeypatch.setenv("DRAGOMAN_PROFILE", "cursor")
    assert dragoman("call", "plain", "echo", "text=hi").stdout == "hi\n"
    assert "unknown server `plain`" in dragoman("--profile", "claude-code", "call", "plain", "echo").stderr


def test_a_hosts_lists_are_about_its_own_servers(home: Path) -> None:
    gemini = {
        "mcp": {"allowed": ["kept"]},
        "mcpServers": {"kept": {"command": "a"}, "left": {"command": "b"}},
    }
    path = home / ".gemini" / "settings.json"
    path.parent.mkdir()
    path.write_text(json.dumps(gemini), "utf-8")
    settings = load(Profile(app="dragoman", hosts=("gemini", "cursor")))
    assert {spec.name: spec.enabled for spec in settings.servers} == {
        "kept": True,
        "left": False,
        "plain": True,
    }


def test_the_answers_are_private() -> None:
    assert dragoman("config", "hosts", "--use").returncode == 0
    files = list(Path(os.environ["XDG_DATA_HOME"]).rglob("hosts.json"))
    assert [path.stat().st_mode & 0o777 for path in files] == [0o600]
