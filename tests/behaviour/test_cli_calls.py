"""`dragoman calls` in real runs: calls are written down where that is wanted, listed, shown and run again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.unit.cli.program import dragoman, entry, misfits

from dragoman.cli.commands.calls import CallsReport
from dragoman.cli.commands.status import StatusReport
from dragoman.cli.main import run
from dragoman.observe.call_history import CallRecord
from dragoman.observe.call_log import CallLog, default_path
from dragoman.server.process.stderr_log import kept_folder

if TYPE_CHECKING:
    import pytest

SECRET = "canary-4f19ab77c3"


def configure(*, logs: bool | None) -> None:
    servers = {"plain": entry("plain.py", env={"API_TOKEN": SECRET})}
    path = Path(os.environ["XDG_CONFIG_HOME"], "dragoman", "mcp.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({"mcp": {"servers": servers} | ({} if logs is None else {"call_log": logs})}), "utf-8"
    )


def listed(*arguments: str) -> list[dict[str, Any]]:
    done = dragoman("calls", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert misfits(report, CallsReport) == []
    calls: list[dict[str, Any]] = report["calls"]
    return calls


def test_nothing_is_kept_if_it_is_not_wanted() -> None:
    configure(logs=False)
    assert dragoman("call", "plain", "echo", "text=hello").returncode == 0
    done = dragoman("calls")
    assert (done.returncode, "`call_log = false`" in done.stdout) == (0, True)
    assert not default_path().exists()
    assert not kept_folder().exists()


def test_calls_are_kept_by_default() -> None:
    configure(logs=None)
    assert dragoman("call", "plain", "echo", "text=hello").stdout == "hello\n"
    (kept,) = listed()
    assert (kept["tool"], kept["result"]) == ("mcp_plain_echo", "hello")


def test_calls_are_written_down_without_secrets() -> None:
    configure(logs=True)
    assert dragoman("call", "plain", "echo", "text=hello").stdout == "hello\n"
    assert dragoman("call", "plain", "fail").returncode == 7
    assert dragoman("call", "plain", "echo", f"text=say {SECRET}").returncode == 0
    secret, failed, plain = listed()
    assert (plain["server"], plain["tool"]) == ("plain", "mcp_plain_echo")
    assert (plain["arguments"], plain["result"], plain["error_code"]) == ({"text": "hello"}, "hello", "")
    assert failed["error_code"] == "tool.failed"
    assert secret["missing"] == {"/text": "redacted"}
    assert SECRET not in dragoman("calls").stdout + default_path().read_bytes().decode("latin-1")


def test_calls_are_found_by_server_tool_failure_age_and_words(capsys: pytest.CaptureFixture[str]) -> None:
    write("a", {"text": "hello"}, "done")
    write("b", {"text": "other"}, "no", code="tool.failed")

    def found(*arguments: str) -> list[str]:
        assert run(["calls", *arguments, "--json"]) == 0
        return [call["tool"] for call in json.loads(capsys.readouterr().out)["calls"]]

    assert found() == ["b", "a"]
    assert found("--limit", "1") == found("--errors") == ["b"]
    assert found("--tool", "[a]", "--server", "plai?", "--since", "7d") == ["a"]
    assert found("--text", "HELLO") == ["a"]
    assert found("--server", "other") == []


def test_one_call_is_shown_by_number_or_id(capsys: pytest.CaptureFixture[str]) -> None:
    write("mcp_plain_echo", {"text": "hello"}, "said")
    assert run(["calls", "show", "1", "--json"]) == 0
    shape = json.loads(capsys.readouterr().out)
    assert misfits(shape, CallRecord) == []
    assert run(["calls", "show", shape["call_id"]]) == 0
    text = capsys.readouterr().out
    assert "mcp_plain_echo of `plain`" in text
    assert '"text": "hello"' in text
    assert text.endswith("said\n")


def test_call_is_run_again_unless_something_of_it_was_not_kept() -> None:
    configure(logs=True)
    write("mcp_plain_echo", {"text": "hello"}, "hello")
    write("mcp_plain_echo", {"text": "sk-" + "Q7w8" * 8}, "?")
    again = dragoman("calls", "again", "1")
    assert (again.returncode, again.stdout) == (0, "hello\n"), again.stderr
    refused = dragoman("calls", "again", "2")
    assert refused.returncode == 1
    assert "not all of its arguments were kept: `/text` (redacted)" in refused.stderr


def write(tool: str, arguments: dict[str, str], text: str, code: str = "") -> None:
    log = CallLog()
    log.note(
        server="plain",
        tool=tool,
        call_id=f"id-{tool}",
        arguments=arguments,
        duration=0.1,
        text=text,
        code=code,
    )
    log.close()


def test_status_adds_the_logged_calls_up(capsys: pytest.CaptureFixture[str]) -> None:
    configure(logs=False)
    write("mcp_plain_echo", {}, "done")
    write("mcp_plain_fail", {}, "no", code="tool.failed")
    assert run(["status", "--no-connect", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert misfits(report, StatusReport) == []
    (server,) = report["servers"]
    assert (server["logged"]["calls"], server["logged"]["errors"]) == (2, {"tool.failed": 1})
    assert 0 < server["logged"]["p50"] <= server["logged"]["p95"]
    assert run(["status", "--no-connect"]) == 0
    assert "2 (1 failed)" in capsys.readouterr().out


def test_an_unknown_call_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["show", "7"], ["again", "no-such-id"]):
        assert run(["calls", *words]) == 1
        assert "no recorded call" in capsys.readouterr().err


def test_control_characters_of_a_result_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b[2J\x1b]0;owned\x07 \u202e evil"
    write(f"t{hostile}", {"a": hostile}, hostile)
    assert run(["calls"]) == run(["calls", "show", "1"]) == 0
    shown = capsys.readouterr().out
    assert "evil" in shown
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
