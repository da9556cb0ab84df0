"""`dragoman install`: the gateway takes the place of a host's servers, and can be taken out again."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dragoman.cli.main import run
from dragoman.config.hosts import add_hosts, find_hosts
from dragoman.config.load import load
from dragoman.manager.manager import McpManager
from dragoman.model import ServerSpec, ServerState, Stdio
from dragoman.trust.own_gateway import is_own_gateway

SERVERS: Any = {"time": {"command": "uvx", "args": ["mcp-server-time"]}, "fs": {"command": "fs-server"}}
FILES = {
    "claude-code": ".claude.json",
    "cursor": ".cursor/mcp.json",
    "gemini": ".gemini/settings.json",
}


@pytest.mark.parametrize("host", FILES)
def test_servers_move_to_dragoman_and_come_back(
    host: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = home / FILES[host]
    file.parent.mkdir(parents=True, exist_ok=True)
    before = json.dumps({"theme": "dark", "mcpServers": SERVERS}, indent=2)
    file.write_text(before)
    assert run(["install", host]) == 0
    assert file.read_text() == before
    assert "time: goes to dragoman" in capsys.readouterr().out

    assert run(["install", host, "--write"]) == 0
    backup = file.with_name(f"{file.name}.bak")
    assert not backup.exists() or backup.read_text() == before
    after = json.loads(file.read_text())
    assert after["theme"] == "dark"
    assert list(after["mcpServers"]) == ["dragoman"]
    assert after["mcpServers"]["dragoman"]["args"][-1] == "serve"
    own = load(root=home / "elsewhere")
    assert {spec.name for spec in own.servers if not is_own_gateway(spec.transport)} == {"time", "fs"}

    assert run(["install", host, "--write"]) == 0
    assert "already" in capsys.readouterr().out
    assert run(["install", host, "--undo"]) == 0
    assert file.read_text() == before
    assert run(["install", host, "--undo"]) != 0


@pytest.mark.parametrize("host", FILES)
def test_the_gateway_in_a_host_is_no_server_of_that_host(
    host: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = home / FILES[host]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"mcpServers": SERVERS}))
    assert run(["install", host, "--write"]) == 0
    assert find_hosts() == []
    assert {spec.name for spec in load(add_hosts("dragoman", [host])).servers} == {"time", "fs"}
    capsys.readouterr()
    assert run(["import", host, "--write", "--to", "all.json"]) == 0
    assert "refused  it is dragoman's own gateway" in capsys.readouterr().out
    assert not Path("all.json").exists()


@pytest.mark.parametrize("has_script", [True, False])
def test_an_app_gets_this_program_and_never_one_of_the_project(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_script: bool
) -> None:
    planted = tmp_path / "node_modules" / ".bin" / "dragoman"
    planted.parent.mkdir(parents=True)
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", f"./node_modules/.bin:{planted.parent}:/usr/bin:/bin")
    if not has_script:
        monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    file = home / ".cursor/mcp.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"mcpServers": SERVERS}))
    assert run(["install", "cursor", "--write"]) == 0
    written = json.loads(file.read_text())["mcpServers"]["dragoman"]
    if has_script:
        assert (written["command"], written["args"]) == (
            str(Path(sys.executable).with_name("dragoman")),
            ["serve"],
        )
    else:
        assert (written["command"], written["args"]) == (sys.executable, ["-P", "-m", "dragoman", "serve"])
    assert run(["install", "cursor", "--undo"]) == 0


def test_a_file_that_changed_since_is_not_overwritten(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = home / ".cursor/mcp.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"mcpServers": SERVERS}))
    assert run(["install", "cursor", "--write"]) == 0
    changed = json.dumps({"mcpServers": {"new": {"command": "x"}}})
    file.write_text(changed)
    assert run(["install", "cursor", "--undo"]) != 0
    assert file.read_text() == changed
    assert "has changed since" in capsys.readouterr().err


def test_another_server_with_the_same_name_stays_in_the_host(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = home / ".cursor/mcp.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"mcpServers": SERVERS}))
    own = home / ".config/dragoman/dragoman.toml"
    own.parent.mkdir(parents=True)
    own.write_text('[mcp.servers.fs]\ncommand = "another"\n')
    assert run(["install", "cursor", "--write"]) == 0
    assert set(json.loads(file.read_text())["mcpServers"]) == {"fs", "dragoman"}
    assert "fs: stays" in capsys.readouterr().out
    assert load(root=home / "elsewhere").server("time") is not None


@pytest.mark.parametrize(
    ("transport", "expected"),
    [
        (Stdio("dragoman", ["serve"]), True),
        (Stdio("/opt/bin/dragoman", ["--profile", "x", "serve", "--only", "a"]), True),
        (Stdio("python3", ["-m", "dragoman", "serve"]), True),
        (Stdio("python3", ["-P", "-m", "dragoman", "serve"]), True),
        (Stdio("uvx", ["dragoman", "serve"]), True),
        (Stdio("dragoman", ["demo"]), False),
        (Stdio("python3", ["server.py", "serve"]), False),
    ],
)
def test_the_gateway_is_recognised(transport: Stdio, *, expected: bool) -> None:
    assert is_own_gateway(transport) is expected


async def test_the_gateway_is_never_started_by_dragoman() -> None:
    async with McpManager([ServerSpec("gate", Stdio("dragoman", ["serve"]))], cache=False) as mcp:
        assert await mcp.wait_ready(timeout=5)
        assert mcp.status()["gate"].state is ServerState.CLOSED
