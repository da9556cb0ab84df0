from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from dragoman.cli.main import run
from dragoman.config.load import load
from dragoman.model import Http, Stdio

if TYPE_CHECKING:
    from pathlib import Path

CURSOR = {
    "mcpServers": {
        "files": {
            "command": "npx",
            "args": ["-y", "fs", "--token", "s3cret"],
            "env": {"KEY": "s3cret", "PLACE": "${env:PLACE}"},
            "autoApprove": ["read"],
        },
        "far": {"url": "https://me:s3cret@h/mcp?key=s3cret", "headers": {"Authorization": "Bearer s3cret"}},
    }
}
CODEX = """\
model = "m"

[mcp_servers.gh]
url = "https://h/mcp"
bearer_token_env_var = "GH"
tool_timeout_sec = 12.5
default_tools_approval_mode = "auto"

[mcp_servers.files]
command = "other"
"""


@pytest.fixture
def user_file(home: Path) -> Path:
    return home / ".config" / "dragoman" / "mcp.json"


@pytest.fixture
def cursor(home: Path) -> Path:
    file = home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text(json.dumps(CURSOR))
    return file


@pytest.fixture
def codex(home: Path) -> Path:
    file = home / ".codex" / "config.toml"
    file.parent.mkdir()
    file.write_text(CODEX)
    return file


def test_nothing_is_written_unless_asked(
    cursor: Path, user_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = cursor.read_text()
    assert run(["import", "cursor"]) == 0
    out = capsys.readouterr().out
    assert "Would import 2 servers into ~/.config/dragoman/mcp.json. Use --write to import." in out
    assert not user_file.exists()
    assert cursor.read_text() == before


def test_servers_are_shown_with_secrets_masked_and_losses_by_key(
    cursor: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["import", "cursor"])
    out = capsys.readouterr().out
    assert "s3cret" not in out
    assert "npx -y fs --token •••" in out
    assert "KEY=•••, PLACE=${PLACE}" in out
    assert "https://•••@h/mcp?key=•••" in out
    assert "Authorization: Bearer •••" in out
    assert "autoApprove: dragoman has no such key" in out


def test_servers_are_taken_over_with_the_meaning_of_their_host(
    cursor: Path, codex: Path, user_file: Path
) -> None:
    assert run(["import", "cursor", "--write"]) == 0
    assert run(["import", "codex", "--write"]) == 0
    servers = {spec.name: spec for spec in load().servers}
    assert servers["files"].transport == Stdio(
        "npx", ["-y", "fs", "--token", "s3cret"], env={"KEY": "s3cret", "PLACE": "${PLACE}"}
    )
    headers = {"Authorization": "Bearer ${GH}"}
    assert servers["gh"].transport == Http("https://h/mcp", headers=headers)
    assert servers["gh"].timeouts == {"call": 12.5}
    assert user_file.stat().st_mode & 0o777 == 0o600


def test_all_hosts_are_looked_at_and_the_first_of_a_name_is_taken(
    cursor: Path, codex: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".vscode").mkdir()
    (tmp_path / ".vscode" / "mcp.json").write_text(
        '{ // ours\n "inputs": [{"id": "key", "type": "promptString", "description": "The key"}],\n'
        ' "servers": {"vs": {"type": "http", "url": "https://h/x", "headers": {"K": "${input:key}"}}}}'
    )
    assert run(["import", "--all", "--write", "--include-project"]) == 0
    out = capsys.readouterr().out
    assert [line.split("  ")[0] for line in out.splitlines() if not line.startswith(" ")][:3] == [
        "Cursor",
        "VS Code",
        "Codex",
    ]
    assert "Cursor has a server with the same name" in out
    assert "inputs.key: the description of this input is not imported" in out
    assert "default_tools_approval_mode: approval is decided by dragoman's own policy" in out
    assert "Imported 4 servers into ~/.config/dragoman/mcp.json, 1 skipped" in out
    assert {spec.name for spec in load().servers} == {"files", "far", "vs", "gh"}


def test_a_projects_server_is_not_taken_over_unseen(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".cursor").mkdir()
    servers = '{"mcpServers": {"evil": {"command": "evil"}, "files": {"command": "evil"}}}'
    (tmp_path / ".cursor/mcp.json").write_text(servers)
    (home / ".cursor").mkdir()
    (home / ".cursor/mcp.json").write_text('{"mcpServers": {"files": {"command": "mine"}}}')
    assert run(["import", "cursor", "--write"]) == 0
    out = capsys.readouterr().out
    assert "from     ./.cursor/mcp.json:1 (project, review it before importing)" in out
    assert "from     ~/.cursor/mcp.json:1 (user)" in out
    assert "skipped  it comes from a project file; use `--include-project` to import it" in out
    assert [(spec.name, spec.transport) for spec in load().servers] == [("files", Stdio("mine"))]
    assert run(["import", "cursor", "--write", "--include-project"]) == 0
    assert [spec.name for spec in load().servers] == ["files", "evil"]


def test_no_host_at_all_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", "--all"]) == 0
    assert capsys.readouterr().out == "No configuration of another app found.\n"


def test_a_name_that_is_configured_is_skipped_unless_it_is_to_be_replaced(
    cursor: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["add", "files", "--", "mine"])
    assert run(["import", "cursor", "--write"]) == 0
    assert "already configured in ~/.config/dragoman/mcp.json:3" in capsys.readouterr().out
    spec = load().server("files")
    assert spec is not None
    assert spec.transport == Stdio("mine")
    assert run(["import", "cursor", "--write", "--replace", "--only", "files"]) == 0
    spec = load().server("files")
    assert isinstance(spec.transport if spec else None, Stdio)
    assert spec is not None
    assert spec.transport != Stdio("mine")


def test_only_the_wanted_servers_are_taken(cursor: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", "cursor", "--only", "far", "--write"]) == 0
    assert [spec.name for spec in load().servers] == ["far"]
    assert run(["import", "cursor", "--only", "fah"]) == 9
    assert "unknown server `fah` (did you mean far?)" in capsys.readouterr().err


def test_a_file_of_unknown_origin_is_recognised_and_other_keys_and_comments_of_the_target_stay(
    tmp_path: Path,
) -> None:
    (tmp_path / "found.json").write_text('{"servers": {"v": {"type": "stdio", "command": "${env:BIN}"}}}')
    (tmp_path / "mine.toml").write_text("# mine\n[mcp]\nauto_reload = true # yes\n")
    assert run(["import", "found.json", "--to", "mine.toml", "--write"]) == 0
    assert (tmp_path / "mine.toml").read_text() == (
        '# mine\n[mcp]\nauto_reload = true # yes\n\n[mcp.servers.v]\ntransport = "stdio"\ncommand = "${BIN}"\n'
    )


def test_good_servers_of_a_file_with_problems_are_taken_and_the_problems_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "found.json").write_text('{"mcpServers": {"bad": {"args": []}, "good": {"command": "a"}}}')
    assert run(["import", "found.json", "--write"]) == 3
    captured = capsys.readouterr()
    assert "server `bad` is skipped" in captured.err
    assert captured.err.count("bad` is skipped") == 1
    assert [spec.name for spec in load().servers] == ["good"]


def test_a_file_that_does_not_parse_is_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "found.json").write_text("{ broken")
    assert run(["import", "found.json"]) == 3
    assert "not valid JSON" in capsys.readouterr().err


def test_a_server_that_the_target_cannot_say_is_refused_and_the_others_written(
    codex: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "claude_desktop_config.json"
    assert run(["import", "codex", "--to", str(target), "--write"]) == 0
    assert "refused  it has no servers of the type `http`" in capsys.readouterr().out
    assert list(json.loads(target.read_text())["mcpServers"]) == ["files"]


def test_servers_of_the_environment_are_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEGAL_MCP_SERVER_URL", "http://h/mcp")
    monkeypatch.setenv("LEGAL_MCP_TIMEOUT", "2500")
    assert run(["import", "legal", "--write"]) == 0
    assert load().servers[0].timeouts == {"call": 2.5}


def test_json_tells_programs_everything_and_no_secret(
    cursor: Path, user_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--json", "import", "cursor"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["target"], told["written"], told["problems"]) == (str(user_file), False, [])
    assert [(item["host"], item["status"], item["server"]["name"]) for item in told["servers"]] == [
        ("Cursor", "new", "files"),
        ("Cursor", "new", "far"),
    ]
    assert told["servers"][0]["losses"] == [{"key": "autoApprove", "why": "dragoman has no such key"}]
    assert "s3cret" not in json.dumps(told)


@pytest.mark.parametrize("arguments", [["import"], ["import", "cursor", "--all"]])
def test_one_source_has_to_be_named(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert "Specify an APP, a FILE, or `--all`" in capsys.readouterr().err


def test_a_source_that_is_nothing_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", "curser"]) == 3
    assert "`curser` is not a known app or an existing file (did you mean cursor" in capsys.readouterr().err
