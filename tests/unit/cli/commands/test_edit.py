from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import dragoman
from dragoman.cli.main import run
from dragoman.config.load import load
from dragoman.model import Http, Sse, Stdio

SOURCE = Path(dragoman.__file__).parents[1]


@pytest.fixture
def user_file(home: Path) -> Path:
    return home / ".config" / "dragoman" / "mcp.json"


def written(path: Path) -> dict[str, object]:
    servers = json.loads(path.read_text("utf-8"))["mcpServers"]
    assert isinstance(servers, dict)
    return servers


# ── add


def test_a_command_is_added_and_is_in_effect(user_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(
            [
                "add",
                "x",
                "--env",
                "A=b=c",
                "--cwd",
                "/d",
                "--timeout",
                "1m",
                "--allow",
                "t",
                "--",
                "npx",
                "-y",
                "p",
            ]
        )
        == 0
    )
    assert capsys.readouterr().out == "Added `x` to ~/.config/dragoman/mcp.json\n"
    spec = load().server("x")
    assert spec is not None
    assert spec.transport == Stdio("npx", ["-y", "p"], env={"A": "b=c"}, cwd="/d")
    assert spec.timeouts == {"call": 60.0}
    assert spec.allowed_tools == ("t",)
    assert user_file.stat().st_mode & 0o777 == 0o600


def test_a_new_file_of_the_users_own_is_private_also_without_a_secret(user_file: Path) -> None:
    assert run(["add", "x", "--", "npx", "-y", "p", "--key", "k"]) == 0
    assert user_file.stat().st_mode & 0o777 == 0o600


def test_what_follows_the_dashes_is_the_command_whatever_it_looks_like() -> None:
    assert run(["add", "x", "--", "cmd", "--json", "--", "--url", "--help"]) == 0
    spec = load().server("x")
    assert spec is not None
    assert spec.transport == Stdio("cmd", ["--json", "--", "--url", "--help"])


def test_nothing_after_the_command_word_is_an_option_of_ours() -> None:
    assert (
        run(["add", "--env", "A=1", "x", "--timeout", "5s", "npx", "-y", "p", "--json", "--", "--env"]) == 0
    )
    spec = load().server("x")
    assert spec is not None
    assert spec.transport == Stdio("npx", ["-y", "p", "--json", "--", "--env"], env={"A": "1"})
    assert spec.timeouts == {"call": 5.0}
    # A name of the catalog is a name like any other where a command follows.
    assert run(["add", "time", "uvx", "-q", "mcp-server-time"]) == 0
    assert run(["add", "git", "uvx", "mcp-server-git"]) == 0
    servers = {name: load().server(name) for name in ("time", "git")}
    assert servers["time"] is not None
    assert servers["time"].transport == Stdio("uvx", ["-q", "mcp-server-time"])
    assert servers["git"] is not None
    assert servers["git"].transport == Stdio("uvx", ["mcp-server-git"])


def test_an_address_after_the_name_is_a_url_and_options_may_follow_it() -> None:
    assert run(["add", "x", "https://h/mcp", "--header", "A: b"]) == 0
    spec = load().server("x")
    assert spec is not None
    assert spec.transport == Http("https://h/mcp", headers={"A": "b"}, alternate=True)


@pytest.mark.parametrize(
    ("options", "transport"),
    [
        ([], Http("https://h/mcp", alternate=True)),
        (["--http"], Http("https://h/mcp")),
        (["--sse"], Sse("https://h/mcp")),
        (["--header", "X-Key: ${KEY}"], Http("https://h/mcp", headers={"X-Key": "${KEY}"}, alternate=True)),
    ],
)
def test_a_url_is_added_with_its_kind_and_headers(options: list[str], transport: Http | Sse) -> None:
    assert run(["add", "x", "--url", "https://h/mcp", *options]) == 0
    spec = load().server("x")
    assert spec is not None
    assert spec.transport == transport


def test_a_name_that_is_taken_is_an_error_unless_it_is_to_be_replaced(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["add", "x", "--", "old"]) == 0
    assert run(["add", "x", "--", "new"]) == 1
    assert "server `x` already exists in ~/.config/dragoman/mcp.json:3" in capsys.readouterr().err
    assert run(["add", "x", "--replace", "--", "new"]) == 0
    spec = load().server("x")
    assert spec is not None
    assert spec.transport == Stdio("new")


def test_a_server_is_added_to_the_project_on_request(tmp_path: Path) -> None:
    assert run(["add", "x", "--scope", "project", "--", "a"]) == 0
    assert written(tmp_path / "mcp.json") == {"x": {"type": "stdio", "command": "a"}}


@pytest.mark.parametrize(
    "arguments", [["--config", "mine.toml", "add", "x"], ["add", "x", "--config", "mine.toml"]]
)
def test_a_server_is_added_to_the_file_that_was_named(tmp_path: Path, arguments: list[str]) -> None:
    assert run([*arguments, "--", "a"]) == 0
    assert (tmp_path / "mine.toml").read_text() == '[mcp.servers.x]\ntransport = "stdio"\ncommand = "a"\n'
    assert run(["--config", "mine.toml", "add", "y", "--", "b"]) == 0
    assert [spec.name for spec in load(config="mine.toml").servers] == ["x", "y"]


def test_a_server_is_added_in_the_dialect_of_the_profile(home: Path) -> None:
    assert run(["--profile", "otter", "add", "x", "--timeout", "30s", "--", "a"]) == 0
    text = (home / ".config" / "otter" / "config.toml").read_text()
    assert text == '[[mcp.servers]]\nname = "x"\ntransport = "stdio"\ncommand = "a"\ntimeout = "30s"\n'
    assert run(["add", "y", "--profile", "excelmanus", "--url", "http://h/mcp", "--http"]) == 0
    assert written(home / ".excelmanus" / "mcp.json")["y"] == {
        "transport": "streamable_http",
        "url": "http://h/mcp",
    }


def test_comments_of_the_file_are_kept(user_file: Path) -> None:
    user_file.parent.mkdir(parents=True)
    user_file.write_text('{\n  // mine\n  "mcpServers": {\n    "a": {"command": "a"} // first\n  }\n}\n')
    assert run(["add", "x", "--", "b"]) == 0
    assert user_file.read_text() == (
        '{\n  // mine\n  "mcpServers": {\n    "a": {"command": "a"}, // first\n    "x": {\n'
        '      "transport": "stdio",\n      "command": "b"\n    }\n  }\n}\n'
    )


def test_a_server_that_another_file_hides_is_said_to_be_hidden(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"x": {"command": "project"}}}')
    assert run(["trust", "approve", "x", "--yes"]) == 0
    assert run(["add", "x", "--replace", "--", "mine"]) == 0
    assert "Not in effect here: `x` in ./mcp.json:1 overrides it" in capsys.readouterr().err


def test_a_projects_entry_that_is_not_approved_takes_no_name_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"x": {"command": "project"}}}')
    assert run(["add", "x", "--json", "--", "mine"]) == 0
    assert json.loads(capsys.readouterr().out)["in_effect"] is True


def test_what_the_dialect_cannot_say_is_not_written(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--profile", "cursor", "add", "x", "--timeout", "3", "--", "a"]) == 3
    assert "timeouts.call: Cursor has no key for it" in capsys.readouterr().err
    assert not (home / ".cursor").exists()


def test_json_tells_programs_what_was_added(user_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["add", "x", "--env", "K=secret", "--json", "--", "a"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["added"], told["file"], told["in_effect"]) == ("x", str(user_file), True)
    assert "secret" not in json.dumps(told)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["add"], "Missing NAME"),
        (["add", "https://h/mcp"], "dragoman add NAME https://h/mcp"),
        (["add", "nothing-like-it"], "dragoman add nothing-like-it COMMAND …"),
        (["add", "x", "--"], "Missing command"),
        (["add", "x", "--url", "http://h", "--", "a"], "not both"),
        (["add", "x", "--header", "A: b", "--", "a"], "require `--url`"),
        (["add", "x", "--url", "http://h", "--env", "A=b"], "cannot be used with `--url`"),
        (["add", "x", "--env", "A", "--", "a"], "--env NAME=VALUE"),
        (["add", "x", "--url", "http://h", "--header", "A"], '--header "NAME: VALUE"'),
        (["add", "x", "--timeout", "soon", "--", "a"], "expected a duration"),
        (["add", "filesytem"], "Did you mean `filesystem`?"),
    ],
)
def test_wrong_usage_says_what_is_right(
    arguments: list[str], complaint: str, user_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert complaint in capsys.readouterr().err
    assert not user_file.exists()


def test_an_address_that_is_none_is_refused(user_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["add", "x", "--url", "example.com"]) == 3
    assert "http://" in capsys.readouterr().err
    assert not user_file.exists()


def test_a_profile_without_a_file_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--profile", "legal", "add", "x", "--", "a"]) == 3
    assert "LEGAL_MCP_*" in capsys.readouterr().err


# ── the catalog


@pytest.mark.requirement("otter-later.market")
def test_a_well_known_server_is_set_up_by_one_command() -> None:
    assert run(["add", "filesystem", "/papers", "--yes"]) == 0
    spec = load().server("filesystem")
    assert spec is not None
    assert spec.transport == Stdio("npx", ["-y", "@modelcontextprotocol/server-filesystem", "/papers"])
    assert run(["add", "github", "-y"]) == 0


def test_a_server_of_the_catalog_is_bound_to_the_folder_that_it_was_added_in(tmp_path: Path) -> None:
    Path("notes").mkdir()
    assert run(["add", "git", "--yes"]) == 0
    assert run(["add", "filesystem", "notes", "--yes"]) == 0
    git, files = load().server("git"), load().server("filesystem")
    assert git is not None
    assert files is not None
    assert git.transport == Stdio("uvx", ["mcp-server-git", "--repository", str(tmp_path)])
    assert isinstance(files.transport, Stdio)
    assert files.transport.args[-1] == str(tmp_path / "notes")
    # The file of a project moves with the project.
    assert run(["add", "git", "--yes", "--scope", "project", "--replace"]) == 0
    assert json.loads(Path("mcp.json").read_text("utf-8"))["mcpServers"]["git"]["args"][-1] == "."


def test_without_a_terminal_the_command_is_shown_and_nothing_is_written(
    user_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(os.devnull) as nothing:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdin", nothing)
        assert run(["--profile", "kode", "add", "filesystem", "a b"]) == 1
    error = capsys.readouterr().err
    assert "npx -y @modelcontextprotocol/server-filesystem 'a b'" in error
    assert "dragoman --profile kode add --yes filesystem 'a b'" in error
    assert not user_file.exists()


@pytest.mark.parametrize("answer", ["y", "n"])
def test_on_a_terminal_the_exact_command_is_shown_and_asked_for(answer: str, user_file: Path) -> None:
    controller, terminal = pty.openpty()
    try:
        os.write(controller, f"{answer}\n".encode())
        ended = subprocess.run(
            [sys.executable, "-m", "dragoman", "add", "brave-search"],
            stdin=terminal,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )
    finally:
        os.close(controller)
        os.close(terminal)
    assert "npx -y @brave/brave-search-mcp-server" in ended.stdout
    assert "BRAVE_API_KEY=${BRAVE_API_KEY}" in ended.stdout
    assert "BRAVE_API_KEY (set before using the server)" in ended.stdout
    assert user_file.exists() is (answer == "y")
    assert (ended.returncode == 0) is (answer == "y")


def test_the_catalog_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["add", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("github") and "GITHUB_TOKEN" in line for line in lines)
    assert run(["add", "--list", "--json"]) == 0
    items = {item["name"]: item for item in json.loads(capsys.readouterr().out)}
    assert items["excel"]["command"] == "uvx excel-mcp-server stdio"
    assert items["github"]["command"] == "https://api.githubcopilot.com/mcp/"


# ── remove, enable, disable


def test_a_server_is_removed_from_the_file_in_which_it_stands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dragoman.toml").write_text('# mine\n[mcp.servers.x]\ncommand = "a"\n\n[other]\n')
    assert run(["remove", "x"]) == 0
    assert (tmp_path / "dragoman.toml").read_text() == "# mine\n\n[other]\n"
    assert capsys.readouterr().out == "Removed `x` from ./dragoman.toml\n"


def test_a_definition_that_comes_to_light_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["add", "x", "--", "user"]) == 0
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"x": {"command": "project"}}}')
    assert run(["trust", "approve", "x", "--yes"]) == 0
    capsys.readouterr()
    assert run(["remove", "x", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["file"] == str(tmp_path / "mcp.json")
    assert told["still_defined"][0]["scope"] == "user"
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"x": {"command": "project"}}}')
    assert run(["remove", "x"]) == 0
    assert "also defined in ~/.config/dragoman/mcp.json:3" in capsys.readouterr().out


def test_an_entry_that_cannot_be_used_can_be_removed(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"x": {"args": []}, "y": {"command": "y"}}}')
    assert run(["remove", "x"]) == 0
    assert list(written(tmp_path / "mcp.json")) == ["y"]


@pytest.mark.parametrize("command", ["remove", "disable"])
@pytest.mark.parametrize("entry", [{"command": "a"}, {"args": []}])
def test_a_projects_file_that_is_a_link_out_of_it_is_not_written_through(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str], command: str, entry: dict[str, object]
) -> None:
    theirs = home / "other.json"
    theirs.write_text(json.dumps({"mcpServers": {"x": entry}}))
    (tmp_path / "mcp.json").symlink_to(theirs)
    before = theirs.read_bytes()
    assert run([command, "x"]) != 0
    assert theirs.read_bytes() == before
    assert command == "disable" or "is a link to a file elsewhere" in capsys.readouterr().err
    # A link within the project is the project's own matter.
    (tmp_path / "real.json").write_bytes(before)
    (tmp_path / "mcp.json").unlink()
    (tmp_path / "mcp.json").symlink_to("real.json")
    if command == "remove":
        assert run([command, "x"]) == 0
        assert written(tmp_path / "real.json") == {}


@pytest.mark.parametrize("command", ["remove", "enable", "disable"])
def test_an_unknown_name_brings_suggestions(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(["add", "files", "--", "a"])
    assert run([command, "fles"]) == 9
    assert "unknown server `fles` (did you mean files?)" in capsys.readouterr().err


def test_a_server_is_switched_off_and_on(user_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["add", "x", "--", "a"])
    assert run(["disable", "x"]) == 0
    assert load().servers[0].enabled is False
    assert run(["disable", "x"]) == 0
    assert "is already disabled" in capsys.readouterr().out
    assert run(["enable", "x", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "server": "x",
        "enabled": True,
        "changed": True,
        "file": str(user_file),
    }
    assert load().servers[0].enabled is True


def test_a_server_of_a_list_is_switched_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "otter.toml"
    file.write_text(
        '[[mcp.servers]]\nname = "a"\ncommand = "a"\n\n[[mcp.servers]]\nname = "b"\ncommand = "b"\n'
    )
    assert run(["--profile", "otter", "disable", "b"]) == 0
    assert [(spec.name, spec.enabled) for spec in load("otter").servers] == [("a", True), ("b", False)]


@pytest.mark.parametrize("command", ["remove", "enable", "disable"])
def test_a_server_of_the_environment_names_its_variable(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEGAL_MCP_SERVER_URL", "http://h/mcp")
    assert run(["--profile", "legal", command, "legal"]) == 3
    assert "`LEGAL_MCP_SERVER_URL`" in capsys.readouterr().err


def test_a_host_without_a_switch_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor" / "mcp.json").write_text('{"mcpServers": {"x": {"command": "a"}}}')
    assert run(["--profile", "cursor", "disable", "x"]) == 3
    assert "Cursor has no key that switches a server off" in capsys.readouterr().err


def test_a_server_that_a_list_switches_off_is_not_switched_on_in_vain(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / ".gemini").mkdir()
    text = '{"mcp": {"excluded": ["x"]}, "mcpServers": {"x": {"command": "a"}}}'
    (home / ".gemini" / "settings.json").write_text(text)
    assert run(["--profile", "gemini", "enable", "x"]) == 3
    assert "on the list of excluded servers" in capsys.readouterr().err


def test_another_hosts_file_is_changed_only_when_that_host_is_named_and_kept_as_it_was(home: Path) -> None:
    file = home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    text = '{"mcpServers": {"x": {"command": "a"}}}'
    file.write_text(text)
    assert run(["remove", "x"]) == 9
    assert file.read_text() == text
    assert run(["--profile", "cursor", "remove", "x"]) == 0
    assert written(file) == {}
    assert file.with_name("mcp.json.bak").read_text() == text
