"""`dragoman call` in real runs: arguments in, text out, an exit code for each kind of failure."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from tests.unit.cli.program import SERVERS, configure, dragoman, entry, misfits
from tests.unit.cli.terminal import at_terminal

from dragoman.cli.commands.call import CallReport
from dragoman.cli.main import run
from dragoman.cli.output import FailureReport


@pytest.fixture(autouse=True)
def servers() -> None:
    configure(
        plain=entry("plain.py"),
        faulty=entry("faulty.py", "sound"),
        dying=entry("dying.py"),
        off=entry("plain.py", enabled=False),
        unset=entry("plain.py", env={"TOKEN": "${SURELY_NOT_SET}"}),
    )


def test_the_text_goes_to_output_and_only_that_server_is_started() -> None:
    done = dragoman("call", "plain", "echo", "text=律 and more")
    assert (done.returncode, done.stdout) == (0, "律 and more\n")
    assert not Path("sound.log").exists()


def test_the_exposed_name_is_enough_and_json_has_the_documented_shape() -> None:
    done = dragoman("call", "mcp_plain_add", "a=1", "b=2", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert misfits(report, CallReport) == []
    assert (report["server"], report["tool"], report["success"]) == ("plain", "mcp_plain_add", True)
    assert report["structured"] == {"sum": 3}


def test_arguments_come_from_words_a_json_object_files_or_standard_input() -> None:
    Path("words.txt").write_text("from a file", "utf-8")
    Path("all.json").write_text('{"text": "whole file"}', "utf-8")
    assert dragoman("call", "plain", "echo", "text=@words.txt").stdout == "from a file\n"
    assert dragoman("call", "plain", "echo", "text=@-", stdin="piped").stdout == "piped\n"
    assert dragoman("call", "plain", "echo", "-", stdin='{"text": "object"}').stdout == "object\n"
    assert dragoman("call", "plain", "echo", "--args", "@all.json").stdout == "whole file\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["plain", "echo"], 2, "missing arguments for `echo` of server `plain`: `text: str`"),
        (["plain", "echo", "text=a", "other=b"], 2, "unknown argument `other`"),
        (["plain", "echo", "txt=a"], 2, "did you mean `text`? (nothing was sent) (usage: echo(text: str))"),
        (["plain", "echo", '{"text": 1, "words": 2}'], 2, "unknown argument `words`"),
        (["plain", "fail"], 7, "the disk is full"),
        (["plain", "refuse"], 7, "no such thing"),
        (["plain", "wrong-output"], 7, "violates its output schema"),
        (["plain", "slow", "--timeout", "3"], 6, "did not answer within"),
        (["plain", "exit"], 4, "it may have run"),
        (["dying", "anything"], 4, "license file missing"),
        (["off", "echo"], 3, "`dragoman enable off`"),
        (["unset", "echo"], 3, "`SURELY_NOT_SET`"),
        (["plain", "eco"], 9, "did you mean `echo`?"),
        (["plan", "echo"], 9, "did you mean plain?"),
        (["nothing_like_it"], 9, "unknown server or tool"),
    ],
)
def test_a_failure_is_one_line_and_the_exit_code_of_its_kind(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # In this process, since each new one imports the SDK for a second.
    ended = run(["call", *arguments])
    errors = capsys.readouterr().err
    assert ended == code, errors
    last = errors.splitlines()[-1]
    assert last.startswith("error: ")
    assert said in last
    assert "Traceback" not in errors


def test_a_mistake_is_found_from_the_cached_tools_before_a_server_is_started(
    capsys: pytest.CaptureFixture[str],
) -> None:
    starts, script = Path("starts").absolute(), Path("counted.py").absolute()
    plain = str(SERVERS / "plain.py")
    script.write_text(
        f"import runpy, sys\nopen({str(starts)!r}, 'a').write('.')\nsys.path.insert(0, {str(SERVERS)!r})\n"
        f"runpy.run_path({plain!r}, run_name='__main__')\n",
        "utf-8",
    )
    path = configure(plain={"command": sys.executable, "args": [str(script)]})
    rules = Path(path.parent, "dragoman.toml")
    rules.write_text('[mcp.policy]\nrules = [\n  { action = "deny", tool = "fail" },\n]\n', "utf-8")
    assert run(["tools", "--refresh"]) == 0
    assert starts.read_text("utf-8") == "."
    capsys.readouterr()
    for words, status, said in (
        (["plain", "echo"], 2, "missing arguments for `echo` of server `plain`: `text: str`"),
        (["plain", "echo", "text=a", "other=b"], 2, "unknown argument `other`"),
        (["plain", "echo", "txt=a"], 2, "did you mean `text`? (nothing was sent) (usage: echo(text: str))"),
        (["plain", "echo", '{"text": 1, "words": 2}'], 2, "unknown argument `words`"),
        (["plain", "eco", "text=a"], 9, "did you mean `echo`?"),
        (["plain", "fail"], 8, "Blocked by rule `deny fail` in ~/.config/dragoman/dragoman.toml:3"),
        (["mcp_plain_echo"], 2, "missing arguments"),
    ):
        assert run(["call", *words]) == status
        assert said in capsys.readouterr().err
    assert starts.read_text("utf-8") == "."


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Missing SERVER and TOOL"),
        (["plain"], "Missing TOOL"),
        (["plain", "echo", "hello"], "Expected key=value, not `hello`"),
        (["plain", "echo", "text=a", "--args", "{}"], "Use only one of"),
        (["plain", "echo", "--args", "[1]"], "JSON object"),
        (["plain", "echo", "text=@missing.txt"], "Cannot read `missing.txt`"),
        (["plain", "echo", "--timeout", "soon"], "duration"),
    ],
)
def test_wrong_words_are_wrong_usage(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["call", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_failure_is_json_too() -> None:
    failed = dragoman("call", "plain", "fail", "--json")
    report = json.loads(failed.stdout)
    assert misfits(report, CallReport) == []
    assert (failed.returncode, report["success"], report["error"]["code"]) == (7, False, "tool.failed")
    missing = dragoman("call", "plain", "echo", "--json")
    report = json.loads(missing.stdout)
    assert misfits(report, FailureReport) == []
    assert report["error"]["code"] == "tool.invalid_arguments"
    assert report["error"]["problems"] == ['`text` is missing: {"type": "string"}']


def test_a_traceback_is_shown_only_if_asked_for() -> None:
    assert "Traceback" in dragoman("call", "plain", "echo", "--debug").stderr


def test_images_are_saved_and_nothing_is_written_over() -> None:
    for number in (1, 2):
        done = dragoman("call", "plain", "image", "--save", "pictures")
        assert done.returncode == 0
        assert f"Saved ./pictures/image-{number}.png" in done.stderr
        assert done.stdout.startswith("[image: image/png, 64x32")
    assert Path("pictures/image-1.png").read_bytes()[:4] == b"\x89PNG"
    part = json.loads(dragoman("call", "plain", "image", "--json").stdout)["parts"][0]
    assert (part["kind"], part["size"] > 0, "data" in part) == ("image", True, True)


def test_hostile_text_is_harmless_unless_it_is_asked_for_raw() -> None:
    hostile = "text=a\x1b[2J\u202eb"
    assert dragoman("call", "plain", "echo", hostile).stdout == "a�[2J�b\n"
    assert dragoman("call", "plain", "echo", hostile, "--raw").stdout == "a\x1b[2J\u202eb\n"
    shown = dragoman("call", "plain", "echo", hostile, "--json").stdout
    assert "\x1b" not in shown
    assert json.loads(shown)["text"] == "a\x1b[2J\u202eb"


def test_another_profile_and_another_file_are_called_the_same_way() -> None:
    Path("here.json").write_text(json.dumps({"mcpServers": {"mine": entry("plain.py")}}), "utf-8")
    done = dragoman("--config", "here.json", "call", "mine", "echo", "text=x")
    assert done.stdout == "x\n"
    Path(os.environ["HOME"], ".kode.json").write_text(
        json.dumps({"mcpServers": {"k": entry("plain.py", type="stdio")}}), "utf-8"
    )
    assert dragoman("--profile", "kode", "call", "k:echo", "text=y").stdout == "y\n"


def test_a_time_that_is_too_short_to_connect_is_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "import os, sys; os.path.exists('mute') and sys.stdin.read() or os.execv(sys.executable, sys.argv)"
    )
    script = entry("plain.py")["args"][0]
    configure(moody={"command": sys.executable, "args": ["-c", words, script]})
    assert run(["tools", "moody"]) == 0
    Path("mute").touch()
    capsys.readouterr()
    assert run(["call", "moody", "echo", "text=a", "--timeout", "0.5"]) == 6
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: server `moody` did not connect within 0.5 s (increase")


@pytest.mark.parametrize(
    "words",
    [
        ["plain", "add", '{"a": 1, "b": 2}'],
        ["plain.add", '{"a": 1, "b": 2}'],
        ["plain:add", '{"a":1,"b":2}'],
        ["mcp_plain_add", ' {"a": 1, "b": 2}'],
        ["add", '{"a": 1, "b": 2}'],
    ],
)
def test_a_json_object_and_every_form_of_a_name_are_taken(words: list[str]) -> None:
    done = dragoman("call", *words)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"sum": 3}), done.stderr


@pytest.mark.parametrize("is_cached", [True, False])
def test_missing_arguments_are_asked_for_at_a_terminal_and_the_result_is_indented(is_cached: bool) -> None:
    if is_cached:
        assert dragoman("tools", "plain").returncode == 0
    with at_terminal("call", "plain", "echo") as terminal:
        terminal.wait_until(lambda: terminal.current == "? text (str) ›")
        assert "echo(text: str)" in terminal.text
        terminal.type("\r")
        terminal.wait_until(lambda: "! `text` is required" in terminal.text)
        terminal.wait_until(lambda: terminal.current == "? text (str) ›")
        terminal.type('{"sum":42}\r')
        assert terminal.wait_for_end() == 0
        assert '{\n  "sum": 42\n}' in terminal.text
    with at_terminal("call", "plain", "echo") as terminal:
        terminal.wait_until(lambda: terminal.current == "? text (str) ›")
        terminal.type("\x04")
        assert terminal.wait_for_end() == 130


def test_list_and_ls_show_the_servers_as_status_does() -> None:
    shown = dragoman("status", "--no-connect").stdout
    assert "plain" in shown
    for name in ("list", "ls"):
        assert dragoman(name, "--no-connect").stdout == shown
        assert "Show servers" in dragoman("help", name).stdout
    wrong = dragoman("lst")
    assert wrong.returncode == 2
    assert "install" not in wrong.stderr
