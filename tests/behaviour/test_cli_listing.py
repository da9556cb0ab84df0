"""`status`, `tools`, `resources`, `read`, `prompts`, `prompt`, `logs` in real runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.program import configure, dragoman, entry, misfits

from dragoman.cli.commands.logs import LogsReport
from dragoman.cli.commands.resources import PromptReport, PromptsReport, ReadReport, ResourcesReport
from dragoman.cli.commands.status import StatusReport
from dragoman.cli.commands.tools import ExportReport, SearchReport, ToolsReport
from dragoman.server.process.stderr_log import kept_folder

OFFERS = {
    "resources": ["case://1"],
    "templates": ["case://{number}"],
    "prompts": ["summary"],
    "fields": ["case", "words"],
}


def report(shape: Any, *arguments: str, code: int = 0) -> Any:
    """Run a command with `--json`; check its exit code and its shape."""
    done = dragoman(*arguments, "--json")
    assert done.returncode == code, done.stderr
    found = json.loads(done.stdout)
    assert misfits(found, shape) == []
    return found


def started(name: str) -> bool:
    return Path(f"{name}.log").exists()


@pytest.mark.requirement("otter-later.visual")
def test_status_shows_every_server_and_one_failure_hides_no_other() -> None:
    configure(
        good=entry("plain.py"),
        modern=entry("official.py", "stdio"),
        dying=entry("dying.py"),
        off=entry("plain.py", enabled=False),
    )
    found = report(StatusReport, "status", code=4)
    rows = {row["name"]: row for row in found["servers"]}
    assert (rows["good"]["state"], rows["good"]["era"], rows["good"]["tools"]) == ("ready", "legacy", 16)
    assert (rows["modern"]["state"], rows["modern"]["era"]) == ("ready", "modern")
    assert rows["good"]["latency"] is not None
    assert "license file missing" in rows["dying"]["last_error"]
    assert rows["dying"]["cause"] == "exited with code 3: license file missing"
    assert rows["dying"]["state"] == "failed"
    assert (rows["off"]["state"], rows["off"]["enabled"]) == ("closed", False)
    shown = dragoman("status", "good")
    assert shown.returncode == 0
    assert shown.stdout.splitlines()[1].split()[:5] == ["good", "ready", "stdio", "2025-11-25", "16"]
    assert "\x1b" not in shown.stdout


def test_status_waits_no_longer_than_it_was_told() -> None:
    configure(mute=entry("mute.py"))
    found = report(StatusReport, "status", "--wait", "2", code=6)
    assert found["servers"][0]["state"] == "connecting"
    assert found["servers"][0]["cause"] == "waiting: no answer yet after 2 s"


def test_a_server_that_never_answers_has_its_cause_at_its_own_limit() -> None:
    configure(slow=entry("broken.py", "slow", timeouts={"connect": 1.5}))
    found = report(StatusReport, "status", code=4)
    assert found["servers"][0]["cause"] == "no answer within 1.5 s after the start"


def test_status_without_connecting_starts_nothing() -> None:
    configure(sound=entry("faulty.py", "sound"))
    found = report(StatusReport, "status", "--no-connect")
    assert [(row["state"], row["tools"]) for row in found["servers"]] == [("idle", None)]
    assert not started("sound")


def test_known_tools_are_listed_without_starting_a_server() -> None:
    configure(sound=entry("faulty.py", "sound"))
    first = report(ToolsReport, "tools")["servers"][0]
    assert (first["source"], started("sound")) == ("server", True)
    Path("sound.log").unlink()
    again = report(ToolsReport, "tools", "--schema", "--tokens")["servers"][0]
    assert (again["source"], started("sound")) == ("cache", False)
    assert [tool["tool"] for tool in again["tools"]] == [tool["tool"] for tool in first["tools"]]
    assert again["tokens"] == sum(tool["tokens"] for tool in again["tools"]) > 0
    assert again["tools"][0]["input_schema"]["type"] == "object"
    assert report(StatusReport, "status", "--no-connect")["servers"][0]["tools"] == 2
    report(ToolsReport, "tools", "--refresh")
    assert started("sound")


def test_tools_are_found_by_what_they_do_and_their_cost_is_known() -> None:
    configure(plain=entry("plain.py"))
    found = report(SearchReport, "tools", "--search", "repeat what I say")["found"]
    costs = report(ToolsReport, "tools", "--tokens")["apis"]

    assert any("echo" in tool["name"] for tool in found)
    assert {tool["server"] for tool in found} == {"plain"}
    assert [cost["api"] for cost in costs] == ["openai", "responses", "anthropic"]
    assert all(0 < cost["with_search"] < 1_500 for cost in costs)


def test_a_tool_is_a_signature_with_one_line_of_description() -> None:
    configure(official=entry("official.py", "stdio"))
    lines = dragoman("tools", "official").stdout.splitlines()
    assert lines[0].startswith("official  5 tools")
    assert lines[lines.index("  add(a: int, b: int)") + 1] == "      Add two numbers."


def test_every_model_api_gets_its_own_form_from_the_cache() -> None:
    configure(plain=entry("plain.py"))
    assert dragoman("tools").returncode == 0
    forms = {
        api: json.loads(dragoman("tools", "--format", api).stdout)
        for api in ("openai", "anthropic", "gemini")
    }
    assert forms["openai"][0]["function"]["name"] == forms["anthropic"][0]["name"] == "mcp_plain_add"
    assert "input_schema" in forms["anthropic"][0]
    assert forms["gemini"][0]["name"] == "mcp_plain_add"
    whole = report(ExportReport, "tools", "--format", "responses")
    assert whole["names"]["mcp_plain_echo"] == "mcp_plain_echo"
    sdk = json.loads(dragoman("tools", "--format", "ai-sdk").stdout)
    assert len(sdk) == 16


def test_a_server_that_cannot_list_is_named_and_the_others_are_listed() -> None:
    configure(good=entry("plain.py"), locked=entry("unlisted.py", "refuse"), dying=entry("dying.py"))
    done = dragoman("tools", "--json")
    assert done.returncode == 4
    found = {one["server"]: one for one in json.loads(done.stdout)["servers"]}
    assert (found["good"]["source"], found["good"]["error"]) == ("server", None)
    assert "the index is locked" in found["locked"]["error"]["message"]
    assert "dying: " in done.stderr


def test_resources_are_listed_and_read() -> None:
    configure(legal=entry("offering.py", json.dumps(OFFERS)), plain=entry("plain.py"))
    listed = report(ResourcesReport, "resources")["resources"]
    uri = next(one["uri"] for one in listed if not one["template"])
    assert any(one["template"] for one in listed)
    parts = report(ReadReport, "read", uri)["parts"]
    assert parts[0]["text"]
    assert dragoman("read", uri, "--server", "legal").stdout.strip()
    assert dragoman("read", "nothing://here").returncode == 9


def test_prompts_are_listed_and_filled_in() -> None:
    configure(legal=entry("offering.py", json.dumps(OFFERS)), plain=entry("plain.py"))
    prompts = report(PromptsReport, "prompts", "legal")["prompts"]
    name, fields = prompts[0]["name"], prompts[0]["arguments"]
    words = [f"{field['name']}=deposit" for field in fields]
    filled = report(PromptReport, "prompt", name, *words)
    assert filled["server"] == "legal"
    assert "deposit" in dragoman("prompt", name, *words, "--server", "legal").stdout
    assert dragoman("prompt", "refused", "--server", "legal").returncode == 7


def test_a_pipe_in_the_place_of_a_log_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    configure(plain=entry("plain.py", log_file=str(tmp_path / "log")))
    done = dragoman("logs", "plain")
    assert done.returncode == 3
    assert "it is not a regular file" in done.stderr


def test_a_log_is_read_without_starting_anything() -> None:
    log = Path(os.environ["HOME"], "server.log")
    configure(
        dying=entry("dying.py"),
        kept=entry("plain.py", log_file=str(log)),
        far={"type": "http", "url": "http://127.0.0.1:9/mcp"},
    )
    assert "No stderr output of `dying` is kept" in dragoman("logs", "dying").stderr
    dragoman("status", "dying")
    crash = report(LogsReport, "logs", "dying")
    assert crash["lines"][-1] == "license file missing"
    assert crash["file"].startswith(str(kept_folder()))
    log.write_text("".join(f"line {number}\n" for number in range(9)), "utf-8")
    log.with_name("server.log.1").write_text("older\n", "utf-8")
    assert dragoman("logs", "kept", "-n", "2").stdout == "line 7\nline 8\n"
    assert report(LogsReport, "logs", "kept", "--lines", "99")["lines"][0] == "older"
    assert dragoman("logs", "far").returncode == 1


def test_tools_come_in_one_order_from_the_server_and_from_what_is_known_of_it() -> None:
    configure(plain=entry("plain.py"))
    fresh, known = dragoman("tools", "plain"), dragoman("tools", "plain")
    assert fresh.returncode == known.returncode == 0
    assert "echo(" in fresh.stdout
    assert fresh.stdout == known.stdout
