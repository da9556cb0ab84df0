"""The commands and what is not to be trusted: a project's servers, and calls that a rule asks about."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from tests.unit.cli.program import dragoman, entry

from dragoman.cli.main import run


def write_project() -> None:
    Path("mcp.json").write_text(json.dumps({"mcpServers": {"sound": entry("faulty.py", "sound")}}), "utf-8")


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["tools"],
        ["call", "sound", "echo"],
        ["resources"],
        ["prompts"],
        ["prompt", "x"],
        ["doctor"],
    ],
)
def test_no_command_starts_a_projects_server_that_is_not_approved(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    write_project()
    assert run([*arguments, "--timeout", "20"]) == 8
    captured = capsys.readouterr()
    assert "dragoman trust approve sound" in captured.out + captured.err
    assert not Path("sound.log").exists()


@pytest.mark.requirement("otter-safety")
def test_an_approved_server_is_used_and_a_revoked_one_is_unknown_again() -> None:
    write_project()
    assert dragoman("trust", "approve", "sound", "--yes").returncode == 0
    assert dragoman("call", "sound", "echo").returncode == 0
    assert [one["source"] for one in json.loads(dragoman("tools", "--json").stdout)["servers"]] == ["cache"]
    assert dragoman("trust", "revoke", "sound").returncode == 0
    shown = dragoman("tools", "--json", "--no-connect")
    assert json.loads(shown.stdout)["servers"][0]["tools"] == []


@pytest.mark.requirement("kode-config.project")
def test_the_advice_for_a_server_that_is_not_approved_runs_as_it_is_printed() -> None:
    document = {"mcpServers": {"sound": {"type": "stdio", **entry("faulty.py", "sound")}}}
    Path(".kode.json").write_text(json.dumps(document), "utf-8")
    shown = dragoman("--profile", "kode", "trust", "show", "sound").stdout
    assert "`dragoman --profile kode trust approve sound`" in " ".join(shown.split())
    refused = dragoman("--profile", "kode", "call", "sound", "echo")
    assert refused.returncode == 8
    (advice,) = re.findall(r"`dragoman ([^`]*trust approve[^`]*)`", refused.stderr)
    assert dragoman(*advice.split(), "--yes").returncode == 0
    assert dragoman("--profile", "kode", "call", "sound", "echo").returncode == 0


@pytest.mark.requirement("rrclaw-policy")
def test_a_call_that_a_rule_asks_about_needs_a_yes(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(os.environ["XDG_CONFIG_HOME"], "dragoman", "mcp.json")
    path.parent.mkdir(parents=True)
    rules = [{"action": "deny", "tool": "fail"}, {"action": "ask", "tool": "echo", "reason": "it is loud"}]
    document = {"mcpServers": {"plain": entry("plain.py")}, "mcp": {"policy": {"rules": rules}}}
    path.write_text(json.dumps(document), "utf-8")
    assert run(["call", "plain", "fail"]) == 8
    assert run(["call", "plain", "echo", "text=x"]) == 8
    assert "error: " in capsys.readouterr().err
    assert run(["call", "plain", "echo", "text=x", "--yes"]) == 0
    assert capsys.readouterr().out == "x\n"
    assert run(["call", "plain", "pair"]) == 0
