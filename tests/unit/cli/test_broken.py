"""Files that cannot be used: no command takes them for files without servers."""

from __future__ import annotations

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
    assert line.endswith("(2 configuration problems: run `dragoman config check`)")


@pytest.mark.parametrize("command", ["status", "tools"])
def test_where_other_servers_are_left_a_remark_goes_beside_the_listing(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(good=entry("plain.py"), wrong={"command": 5})
    assert run([command, "--no-connect"]) == 0
    shown = capsys.readouterr()
    assert "good" in shown.out
    assert shown.err == "1 configuration problem: run `dragoman config check`\n"


def test_no_files_at_all_is_no_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status"]) == 0
    assert capsys.readouterr().out == f"{NO_SERVERS}\n"
