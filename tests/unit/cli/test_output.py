"""What goes to the screen: harmless, aligned, masked; the same facts as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import Http, ServerSpec, Sse, Stdio
from dragoman.cli import output
from dragoman.errors import DragomanError, InvalidSpecError
from dragoman.model import Note, Origin
from dragoman.trust.encoding import encoded
from dragoman.trust.masking import MASK


@given(st.text(st.characters()))
def test_safe_text_can_be_printed_and_moves_nothing(text: str) -> None:
    safe = output.safe(text)
    assert len(safe) == len(text)
    safe.encode("utf-8")
    assert not set(safe) & set("\x00\x07\x08\r\x1b\x7f\x9b\u200b\u200f\u202e\u2028\u2066\ufeff\U000e0041")


def test_safe_keeps_what_people_write() -> None:
    text = "tab\tline\n律师 – “quoted” é 🙂"
    assert output.safe(text) == text


def test_say_goes_to_output_and_warn_to_error(capsys: pytest.CaptureFixture[str]) -> None:
    output.say("one\x1b[2J", fg="red")
    output.warn("two")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("one�[2J\n", "two\n")


def test_json_keeps_every_character_but_escapes_what_steers_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    value = {"name": "律\x1b\x7f\x9b\u202e\U000e0041\ud800"}
    output.say_json(value)
    text = capsys.readouterr().out
    assert "律" in text
    assert not set(text) & set("\x1b\x7f\x9b\u202e\U000e0041\ud800")
    assert json.loads(text) == value


def test_a_path_is_written_from_here_or_from_home(home: Path) -> None:
    here = str(Path.cwd())
    assert output.shorten_path(f"{here}/mcp.json") == "./mcp.json"
    assert output.shorten_path(here) == "."
    assert output.shorten_path(f"{home}/.mcp.json") == "~/.mcp.json"
    assert output.shorten_path(f"{here}x/mcp.json") == f"{here}x/mcp.json"
    assert output.shorten_path("/etc/mcp.json") == "/etc/mcp.json"


def test_a_place_is_a_line_a_file_or_a_variable() -> None:
    assert output.place(Origin(source="/etc/mcp.json", line=7)) == "/etc/mcp.json:7"
    assert output.place(Origin(source="code")) == "code"
    variable = Origin(source="environment", pointer="LEGAL_MCP_SERVER_URL")
    assert output.place(variable) == "environment, LEGAL_MCP_SERVER_URL"


@pytest.mark.parametrize(
    ("transport", "shown"),
    [
        (Stdio("npx", ["-y", "@scope/server", "two words"]), "npx -y @scope/server 'two words'"),
        (Stdio("npx", ["--token", "hunter2", "${ROOT}"]), f"npx --token {MASK} ${{ROOT}}"),
        (Stdio("npx server --token hunter2"), f"'npx server --token {MASK}'"),
        (Stdio("npx", [""]), "npx ''"),
        (Http("https://ann:pw@example.com/mcp"), f"https://{MASK}@example.com/mcp"),
        (Sse("https://example.com/sse?key=hunter2"), f"https://example.com/sse?key={MASK}"),
    ],
)
def test_a_command_line_can_be_copied_and_holds_no_secret(transport: Stdio | Http | Sse, shown: str) -> None:
    assert output.command_line(transport) == shown


def test_a_spec_as_json_leaves_defaults_out() -> None:
    assert output.spec_json(ServerSpec("a", Stdio("x"))) == {
        "name": "a",
        "transport": "stdio",
        "enabled": True,
        "command": "x",
        "args": [],
        "origin": {"source": "code", "line": None, "pointer": "", "dialect": "dragoman", "scope": "code"},
        "shadowed": [],
        "extras": [],
        "notes": [],
    }


def test_a_spec_as_json_has_everything_that_was_said_and_no_secret() -> None:
    spec = ServerSpec(
        "a",
        Stdio("x", env={"A": "hunter2", "B": None}, cwd="sub", env_file=[".env"], inherit_env=["LANG"]),
        enabled=False,
        required=True,
        lazy=True,
        reconnect=False,
        timeouts={"call": 5.0},
        health_check_interval=9.0,
        allowed_tools=[],
        denied_tools=["b"],
        max_concurrency=2,
        naming="{server}:{tool}",
        fallback="c",
        trust_annotations=True,
        title="T",
        description="D",
        extras={"apiKey": "hunter2"},
        notes=[Note(code="unit", key="timeout", message="m")],
        shadowed=[Origin(source="/etc/x")],
    )
    by_tool = spec.replace(fallback={"read": "c", "*": ["d"]})
    assert output.spec_json(by_tool)["fallback"] == {"read": ["c"], "*": ["d"]}
    shown = output.spec_json(spec)
    assert "hunter2" not in json.dumps(shown)
    expected = {
        "enabled": False,
        "env": {"A": MASK, "B": None},
        "cwd": "sub",
        "env_file": [".env"],
        "inherit_env": ["LANG"],
        "required": True,
        "lazy": True,
        "trust_annotations": True,
        "max_concurrency": 2,
        "naming": "{server}:{tool}",
        "health_check_interval": 9.0,
        "title": "T",
        "description": "D",
        "reconnect": False,
        "timeouts": {"call": 5.0},
        "allowed_tools": [],
        "denied_tools": ["b"],
        "fallback": ["c"],
        "extras": ["apiKey"],
        "notes": [{"code": "unit", "key": "timeout", "message": "m"}],
    }
    assert {key: shown[key] for key in expected} == expected
    assert shown["shadowed"][0]["source"] == "/etc/x"


def test_a_remote_spec_as_json_masks_its_headers() -> None:
    shown = output.spec_json(ServerSpec("a", Sse("https://h/sse", headers={"X": "hunter2", "Y": "${Z}"})))
    assert (shown["transport"], shown["url"], shown["alternate"]) == ("sse", "https://h/sse", False)
    assert shown["headers"] == {"X": MASK, "Y": "${Z}"}


def test_a_problem_as_json_has_its_place_or_empty_fields() -> None:
    problem = InvalidSpecError("m", problems=["p"], source="f", pointer="k", line=3, hint="h")
    assert json.loads(json.dumps(encoded(output.ProblemReport.of(problem)))) == {
        "code": "config.invalid",
        "source": "f",
        "line": 3,
        "pointer": "k",
        "message": "m",
        "hint": "h",
        "problems": ["p"],
    }
    assert json.loads(json.dumps(encoded(output.ProblemReport.of(DragomanError("m"))))) == {
        "code": "error",
        "source": "",
        "line": None,
        "pointer": "",
        "message": "m",
        "hint": "",
        "problems": [],
    }


@given(st.text(st.characters(blacklist_categories=["Cs", "Cc", "Cf", "Mn", "Me"])), st.integers(2, 40))
def test_a_cut_text_is_never_wider_than_it_may_be(text: str, width: int) -> None:
    shown = output.cut(text, width)
    assert output.width_of(shown) <= width
    assert shown == text or shown.endswith("…")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("short", ["short"]),
        ("one two three", ["one two", "  three"]),
        ("  a bb ccc", ["  a bb", "  ccc"]),
        ("averylongword and", ["averylongword", "  and"]),
    ],
)
def test_a_line_is_broken_between_words(text: str, lines: list[str]) -> None:
    assert output.wrapped(text, 8, "  ") == lines


def test_one_line_is_the_first_that_says_anything() -> None:
    assert output.one_line("\n \n  two   words\nmore\x1b") == "two words"
    assert output.one_line("") == ""


def test_a_command_to_type_is_never_broken() -> None:
    text = "It needs a key. Enter it: `dragoman set acme env.ACME_API_KEY --profile claude-code`, then go on."
    assert output.wrapped(text, 40) == [
        "It needs a key. Enter it:",
        "`dragoman set acme env.ACME_API_KEY --profile claude-code`,",
        "then go on.",
    ]
