"""`dragoman set` and `unset`: one value changes, in the file and the words of its owner; the rest stays."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dragoman.cli.main import run
from dragoman.config.load import load
from dragoman.model import Http, ServerSpec, Stdio

TEXT = """\
// mine
{
  "mcpServers": {
    "a": { "command": "x", "args": ["1"], "timeout": 5, "environment": {"OLD": "1"} }, // stays
    "b": {"url": "https://h/mcp"}
  }
}
"""


@pytest.fixture
def user_file(home: Path) -> Path:
    path = home / ".config" / "dragoman" / "mcp.json"
    path.parent.mkdir(parents=True)
    path.write_text(TEXT, "utf-8")
    return path


def spec_of(name: str) -> ServerSpec:
    spec = load().server(name)
    assert spec is not None
    return spec


def test_values_change_and_the_rest_of_the_file_stays(
    user_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["set", "a", "env.TOKEN=${TOKEN}", "env.COUNT=1", "timeouts.call=2m", "lazy=true"]) == 0
    assert capsys.readouterr().out == (
        "Set env.TOKEN, env.COUNT, timeouts.call, lazy of `a` in ~/.config/dragoman/mcp.json\n"
    )
    spec = spec_of("a")
    assert spec.transport == Stdio("x", ["1"], env={"OLD": "1", "TOKEN": "${TOKEN}", "COUNT": "1"})
    assert (spec.timeouts, spec.lazy) == ({"call": 120.0}, True)
    text = user_file.read_text("utf-8")
    assert text.startswith("// mine\n")
    assert "// stays" in text
    assert '"b": {"url": "https://h/mcp"}' in text
    # The entry keeps its own spelling, and never has one value twice.
    assert '"environment"' in text
    assert '"timeout"' not in text

    assert run(["unset", "a", "env.TOKEN", "env.COUNT", "timeouts.call", "lazy"]) == 0
    spec = spec_of("a")
    assert spec.transport == Stdio("x", ["1"], env={"OLD": "1"})
    assert (spec.timeouts, spec.lazy) == ({}, False)


def test_lists_are_json_and_the_kind_of_a_server_may_change(user_file: Path) -> None:
    assert run(["set", "a", 'args=["-y", "p"]']) == 0
    assert spec_of("a").transport == Stdio("x", ["-y", "p"], env={"OLD": "1"})
    assert run(["set", "b", "headers.Authorization=Bearer ${T}", "transport=http"]) == 0
    assert spec_of("b").transport == Http("https://h/mcp", headers={"Authorization": "Bearer ${T}"})
    assert run(["set", "a", "url=https://other/mcp"]) == 0
    assert spec_of("a").transport == Http("https://other/mcp", alternate=True)
    assert "environment" not in user_file.read_text("utf-8")


def test_another_apps_file_is_changed_in_its_own_words(home: Path) -> None:
    path = home / ".codex" / "config.toml"
    path.parent.mkdir()
    path.write_text('model = "o"  # mine\n\n[mcp_servers.a]\ncommand = "x"\n', "utf-8")
    assert run(["--profile", "codex", "set", "a", "timeouts.connect=20", "env.A=b"]) == 0
    text = path.read_text("utf-8")
    assert 'model = "o"  # mine' in text
    assert "startup_timeout_sec = 20" in text
    spec = load("codex").server("a")
    assert spec is not None
    assert (spec.transport, spec.timeouts) == (Stdio("x", [], env={"A": "b"}), {"connect": 20.0})


def test_a_dry_run_shows_a_diff_without_secrets_and_writes_nothing(
    user_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run(["set", "b", "lazy=true", "headers.Authorization=Bearer sk-abcdefghijklmnop1234", "--dry-run"])
        == 0
    )
    shown = capsys.readouterr().out
    assert re.search(r'^\+ .*"lazy": true', shown, re.MULTILINE)
    assert "sk-abcdefghijklmnop1234" not in shown
    assert user_file.read_text("utf-8") == TEXT
    assert run(["set", "b", "lazy=true", "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["set"], told["changed"]) == (["lazy"], False)
    assert "lazy" in told["diff"]


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["set", "a", "lazy"], 2, "Expected KEY=VALUE"),
        (["set", "a", "tmeouts.call=3"], 3, "did you mean `timeouts`?"),
        (["set", "a", "timeouts.cal=3"], 3, "expected connect, call or idle"),
        (["set", "a", "lazy=maybe"], 3, "expected true or false"),
        (["set", "a", "command.x=1"], 3, "`command` has no keys of its own"),
        (["unset", "a", "command"], 3, "would be invalid"),
        (["set", "a", "headers.Authorization=tok"], 3, "`a` is a local command, which has no `headers.Aut"),
        (["set", "b", "env.A=1"], 3, "`b` is behind a URL, which has no `env.A`"),
        (["set", "aa", "lazy=true"], 9, "did you mean a?"),
    ],
)
def test_what_cannot_be_set_is_refused_and_nothing_is_written(
    words: list[str], code: int, complaint: str, user_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == code
    assert complaint in capsys.readouterr().err
    assert user_file.read_text("utf-8") == TEXT


def test_a_projects_server_needs_approval_again(capsys: pytest.CaptureFixture[str]) -> None:
    Path(".mcp.json").write_text('{"mcpServers": {"p": {"command": "x"}}}', "utf-8")
    assert run(["set", "p", "lazy=true"]) == 0
    assert "dragoman trust approve p" in capsys.readouterr().out
    assert json.loads(Path(".mcp.json").read_text("utf-8"))["mcpServers"]["p"]["lazy"] is True
