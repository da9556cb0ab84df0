"""Files that cannot be used: no command takes them for files without servers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.cli.program import configure, entry

from dragoman.cli.main import run
from dragoman.cli.output import NO_SERVERS

COMMANDS = (["status"], ["status", "--no-connect"], ["tools"], ["call", "a", "b"], ["logs", "a"])


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("bad.json", '{"mcpServers": {"a": {"command": "x",}', "bad.json:1: not valid JSON"),
        ("bad.toml", "[mcp.servers.a\n", "bad.toml:1: not valid TOML"),
        ("absent.json", None, "file not found"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line_with_its_place(
    command: list[str], name: str, text: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        Path(name).write_text(text, "utf-8")
    assert run(["--config", name, *command]) == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert line.startswith("error: ")
    assert said in line


def test_of_several_mistakes_the_first_is_told_and_the_number(capsys: pytest.CaptureFixture[str]) -> None:
    Path("wrong.json").write_text('{"mcpServers": {"a": {"args": []}, "b": {"command": 5}}}', "utf-8")
    assert run(["--config", "wrong.json", "tools"]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert "server `a` is skipped" in line
    assert line.endswith("(2 configuration problems: run `dragoman --config wrong.json config check`)")


def test_where_other_servers_are_left_a_remark_goes_beside_the_listing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure(good=entry("plain.py"), wrong={"command": 5})
    assert run(["tools", "--no-connect"]) == 0
    shown = capsys.readouterr()
    assert "good" in shown.out
    assert shown.err == "1 configuration problem: run `dragoman config check`\n"
    assert run(["status", "--no-connect"]) == 0
    shown = capsys.readouterr()
    assert "good" in shown.out
    assert "wrong   dragoman/mcp.json:1: " in shown.out
    assert shown.err == ""


@pytest.mark.parametrize("command", [["call", "files", "look"], ["doctor", "files"], ["logs", "files"]])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '{"mcpServers": {"files": {"comand": "x"}}}',
            "error: dragoman/mcp.json:1: unknown key `comand`; did you mean `command`?",
        ),
        (
            '{"mcpServers": {"files": {"command": "x"},,}}',
            "mcp.json:1: server `files` stands in a file that cannot be read",
        ),
    ],
)
def test_a_name_in_a_broken_entry_or_file_is_not_unknown(
    command: list[str], text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = configure()
    path.write_text(text, "utf-8")
    path.with_name("dragoman.toml").write_text('[mcp.servers.good]\ncommand = "true"\n', "utf-8")
    assert run(command) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert "unknown server" not in line


@pytest.mark.parametrize("command", [["call", "files", "look"], ["doctor", "files"], ["logs", "files"]])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = configure()
    path.unlink()
    os.mkfifo(path)
    path.with_name("dragoman.toml").write_text('[mcp.servers.good]\ncommand = "true"\n', "utf-8")
    assert run(command) == 9
    assert "unknown server `files`" in capsys.readouterr().err


def test_the_doctor_names_the_file_and_the_line_to_correct(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = home / ".cursor/mcp.json"
    path.parent.mkdir()
    path.write_text('{"mcpServers": {"far": {"uri": "https://h/mcp"}}}', "utf-8")
    assert run(["--profile", "cursor", "doctor"]) == 3
    shown = " ".join(capsys.readouterr().out.split())
    assert ".cursor/mcp.json:1: unknown key `uri`; did you mean `url`?" in shown
    assert "→ Correct line 1 of ~/.cursor/mcp.json." in shown


def test_no_files_at_all_is_no_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status"]) == 0
    assert capsys.readouterr().out == f"{NO_SERVERS}\n"


def test_a_named_file_that_stands_in_a_usual_place_keeps_its_problems(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("mcp.json").write_text('{"mcpServers": {"a": {"comand": "x"}, "b": {"command": "true"}}}', "utf-8")
    assert run(["--config", "mcp.json", "config", "check"]) == 3
    assert "did you mean `command`" in capsys.readouterr().out
