"""The program's entry: what it imports, how it fails, how it is interrupted."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.cli import main as program
from dragoman.version import VERSION

HEAVY = {"mcp", "mcp_types", "pydantic", "rich", "aiohttp", "prompt_toolkit", "yaml", "tomlkit"}


def dragoman(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the program as people do."""
    command = [sys.executable, "-m", "dragoman", *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env=os.environ | environment,
    )


def write_server(name: str = "files") -> None:
    Path("mcp.json").write_text(json.dumps({"mcpServers": {name: {"command": "true"}}}), "utf-8")


@pytest.mark.parametrize(
    "arguments", [["--version"], ["config", "show"], ["--help"], ["config", "check", "--json"]]
)
def test_a_light_command_imports_nothing_heavy(arguments: list[str]) -> None:
    write_server()
    script = (
        f"import sys\nfrom dragoman.cli.main import run\ncode = run({arguments})\nprint(*sys.modules, code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    *modules, code = done.stdout.splitlines()[-1].split()
    assert code == "0"
    assert {name.partition(".")[0] for name in modules} & HEAVY == set()
    assert "dragoman.cli.main" in modules


def test_the_version_is_printed() -> None:
    done = dragoman("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"dragoman {VERSION}\n", "")


def test_the_installed_program_is_the_same_program() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("dragoman"), "--version"], capture_output=True, check=True
    )
    assert done.stdout.decode() == f"dragoman {VERSION}\n"


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_every_command_with_a_sentence(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run([flag]) == 0
    shown = capsys.readouterr().out
    rows = {row.split()[0]: row for row in shown.partition("Commands:")[2].splitlines() if row.strip()}
    assert list(rows) == list(program.COMMANDS)
    assert all(row.endswith(".") for row in rows.values())


def test_no_command_shows_the_help_and_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run([]) == 2
    assert "Commands:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "guess"),
    [
        ("confg", "Did you mean `config`?"),
        ("imprt", "Did you mean `import`?"),
        ("xyzzy", "Run `dragoman --help`"),
    ],
)
def test_an_unknown_command_gets_a_suggestion(
    word: str, guess: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.run([word]) == 2
    captured = capsys.readouterr()
    assert f"Unknown command `{word}`. {guess}" in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--json", "--config", "other.json", "config", "show"],
        ["config", "--json", "--config", "other.json", "show"],
        ["config", "show", "--json", "--config", "other.json"],
        ["--config", "missing.json", "config", "--json", "show", "--config", "other.json"],
    ],
)
def test_global_options_count_before_and_after_the_subcommand(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    write_server("project")
    Path("other.json").write_text('{"mcpServers": {"other": {"command": "true"}}}', "utf-8")
    assert program.run(arguments) == 0
    assert [server["name"] for server in json.loads(capsys.readouterr().out)["servers"]] == ["other"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["config", "show"], 0),
        (["config", "show", "nobody"], 9),
        (["config", "show", "--nonsense"], 2),
        (["config", "nonsense"], 2),
        (["config", "show", "--profile", "nonsense"], 3),
    ],
)
def test_the_exit_code_says_what_went_wrong(
    arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    write_server()
    assert program.run(arguments) == code
    captured = capsys.readouterr()
    assert bool(captured.err) == bool(code)
    assert bool(captured.out) != bool(code)


def test_an_error_is_one_line_that_says_what_to_do() -> None:
    write_server()
    done = dragoman("config", "show", "file\n\x1b[m")
    assert done.returncode == 9
    assert done.stderr.startswith("error: unknown server `file")
    assert "did you mean files?" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "\x1b" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "said", "page"),
    [
        (["tools", "--nope"], "No such option '--nope'", "dragoman tools"),
        (["config", "show", "--nope"], "No such option '--nope'", "dragoman config show"),
        (["read"], "Missing argument 'URI'", "dragoman read"),
        (["call", "a", "b", "--timeout", "x"], "Invalid value for '--timeout'", "dragoman call"),
    ],
)
def test_wrong_use_is_one_line_that_names_its_page(
    arguments: list[str], said: str, page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {said}")
    assert err.endswith(f"(see `{page} --help`)\n")
    assert err.count("\n") == 1


def test_wrong_use_is_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["--json", "read"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "usage"
    assert error["hint"] == "see `dragoman read --help`"


def test_debug_shows_where_an_error_comes_from() -> None:
    write_server()
    done = dragoman("--debug", "config", "show", "nobody")
    assert done.returncode == 9
    assert "Traceback (most recent call last)" in done.stderr
    assert "UnknownServerError" in done.stderr


def test_a_traceback_is_safe_to_print(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = (
        "\x1b]52;c;ZXZpbA==\x07\x1b]8;;http://evil.example\x1b\\link\x9b31m\u202e --token=ghp_" + "a1" * 20
    )

    def fail(*_arguments: object, **_more: object) -> None:
        error = RuntimeError(hostile)
        error.add_note(hostile)
        try:
            raise ExceptionGroup(hostile, [ValueError(hostile)])
        except ExceptionGroup as group:
            raise error from group

    monkeypatch.setattr("dragoman.config.load.load", fail)
    assert program.run(["config", "show", "--debug"]) == 1
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert not set(shown) & set("\x1b\x07\x9b\u202e")
    assert "ghp_" not in shown


def test_an_unforeseen_error_is_one_line_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_arguments: object, **_more: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("dragoman.config.load.load", fail)
    assert program.run(["config", "show"]) == 1
    assert capsys.readouterr().err == "error: RuntimeError: two lines (use --debug for a traceback)\n"


def test_a_command_leaves_the_logs_of_the_process_as_they_were() -> None:
    write_server()
    for arguments in (["config", "show"], ["config", "show", "nobody"], ["--debug", "config", "show"]):
        program.run(arguments)
        assert not logging.getLogger("dragoman").disabled, arguments


def test_log_lines_stay_off_the_screen_unless_asked_for() -> None:
    Path("mcp.json").write_text("{", "utf-8")
    assert "not valid JSON" not in dragoman("config", "show").stderr
    assert "not valid JSON" in dragoman("config", "show", "--debug").stderr


def test_a_reader_that_leaves_early_gets_no_traceback() -> None:
    servers = {f"server{number}": {"command": "x" * 200} for number in range(2000)}
    Path("mcp.json").write_text(json.dumps({"mcpServers": servers}), "utf-8")
    command = [sys.executable, "-m", "dragoman", "config", "show"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_output_that_cannot_show_a_character_still_gets_the_line() -> None:
    Path("mcp.json").write_text(
        '{"mcpServers": {"律": {"command": "true", "env": {"A": "hidden"}}}}', "utf-8"
    )
    done = dragoman("config", "show", PYTHONIOENCODING="latin-1")
    assert done.returncode == 0, done.stderr
    assert "\\u5f8b" in done.stdout
    assert "\\u2022\\u2022\\u2022" in done.stdout


def test_an_interrupt_ends_the_program_with_130() -> None:
    command = [sys.executable, "-m", "dragoman", "demo", "--no-session"]
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as process:
        assert process.stdout is not None
        # Its first line comes before the servers are up: it is inside the command by then.
        assert "dragoman" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate()
    assert process.returncode == 130
    assert stderr.split() == ["interrupted"]
