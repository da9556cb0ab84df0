"""Changes of single tools in an entry: read, merged, written, and what is wrong in them."""

from __future__ import annotations

import json
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from dragoman.cli.output import spec_json
from dragoman.config.dialects import dialect
from dragoman.config.dialects.dragoman import DRAGOMAN
from dragoman.config.entries import read_entries
from dragoman.config.export import entry, read_back
from dragoman.config.json_schema import config_schema
from dragoman.manager.reload import diff
from dragoman.model import ArgumentTransform, ServerSpec, Settings, ToolTransform
from dragoman.struct import UNSET
from dragoman.tools.schema.validate import compile_schema
from dragoman.trust.approvals import fingerprint
from dragoman.trust.redaction import spec_values

if TYPE_CHECKING:
    from dragoman.config.dialect import Dialect

TOOLS: dict[str, Any] = {
    "search": {
        "name": "find",
        "title": "Find",
        "description": "Find issues.",
        "arguments": {
            "q": {"name": "query", "description": "What to look for."},
            "repo": {"value": "${REPO:-octo/one}"},
            "nothing": {"value": None},
            "limit": {"default": 5},
            "cursor": {"hidden": True},
            "sort": {"required": True},
        },
    },
    "delete": {"hidden": True},
}


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def read(tools: object, of: Dialect = DRAGOMAN) -> tuple[ServerSpec | None, str]:
    specs, problems = read_entries({"s": {"command": "x", "tools": tools}}, of)
    return (specs[0] if specs else None), " ".join(map(str, problems))


def good(tools: object, of: Dialect = DRAGOMAN) -> ServerSpec:
    spec, problems = read(tools, of)
    assert spec is not None, problems
    return spec


def test_every_key_is_read_and_written_back() -> None:
    spec = good(TOOLS)
    search = spec.tools["search"]
    assert (search.name, search.title, search.description) == ("find", "Find", "Find issues.")
    assert search.arguments["q"] == ArgumentTransform(name="query", description="What to look for.")
    assert search.arguments["repo"].value == "${REPO:-octo/one}"
    assert search.arguments["nothing"].value is None
    assert search.arguments["q"].value is UNSET
    assert spec.tools["delete"] == ToolTransform(hidden=True)
    written, losses = entry(spec, DRAGOMAN)
    assert (losses, written["tools"]) == ([], TOOLS)
    assert read_back("s", written, DRAGOMAN).tools == spec.tools
    document = {"mcpServers": {"s": {"command": "x", "tools": TOOLS}}}
    assert compile_schema(config_schema()).problems(document) == []


def test_a_null_is_lost_in_toml_and_said() -> None:
    written, losses = entry(good(TOOLS), DRAGOMAN, format="toml")
    assert "tools" not in written
    assert [str(loss) for loss in losses] == ["tools: TOML has no null, which is a value of an argument"]
    rest = {"search": {**TOOLS["search"], "arguments": {}}}
    assert entry(good(rest), DRAGOMAN, format="toml")[1] == []


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        (5, "an object"),
        ({"t": 5}, "is a table with name"),
        ({"t": {"nmae": "x"}}, "did you mean `name`?"),
        ({"t": {"name": 5}}, "`name` must be a text"),
        ({"t": {"name": ""}}, "must be a name"),
        ({"t": {"name": " x"}}, "must be a name"),
        ({"t": {"name": "a\u200bb"}}, "invisible characters"),
        ({"t": {"hidden": "yes"}}, "must be true or false"),
        ({"t": {"arguments": []}}, "`arguments` is a table"),
        ({"t": {"arguments": {"a": 5}}}, "`arguments.a` is a table"),
        ({"t": {"arguments": {"a": {"x": 5}}}}, "unknown key `arguments.a.x`"),
        ({"t": {"arguments": {"a": {"name": "\u202ex"}}}}, "invisible characters"),
        ({"t": {"arguments": {"a": {"value": 1, "default": 2}}}}, "remove `default`"),
        ({"t": {"arguments": {"a": {"value": 1, "name": "b"}}}}, "remove `name`"),
        ({"t": {"arguments": {"a": {"required": True, "default": 2}}}}, "`required` is for"),
        ({"t": {"arguments": {"a": {"value": "${input:x}"}}}}, "only variables and claims"),
        ({"t": {"arguments": {"a": {"value": ["${command:ls}"]}}}}, "only variables and claims"),
        ({"t": {"arguments": {"a": {"value": float("nan")}}}}, "not a number that JSON has"),
        ({"t": {"arguments": {"a": {"value": date(2026, 1, 1)}}}}, "expected a JSON value, not a date"),
        ({"t": {"arguments": {"a": {"value": nested(60)}}}}, "nested more than 50 levels deep"),
        ({"a": {"name": "c"}, "b": {"name": "c"}}, "two tools would be named `c`"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tools: object, said: str) -> None:
    spec, problems = read(tools)
    assert spec is None
    assert said in problems
    assert "tools" in problems


def test_no_problem_shows_a_value() -> None:
    wrong = {"t": {"arguments": {"token": {"value": {"${keyring:a/b}": "hunter2", "x": "${input:hunter2}"}}}}}
    assert "hunter2" not in read(wrong)[1]


def test_a_list_of_another_host_is_no_problem() -> None:
    spec = good(["*"])
    assert spec.tools == {}
    assert any("allowed_tools" in note.message for note in spec.notes)


def test_a_value_of_another_type_is_a_change_and_needs_a_new_approval() -> None:
    specs = [
        good({"t": {"arguments": {"a": {"value": value}}}})
        for value in (1, 1.0, True, "1", [1], None, {"a": 1})
    ]
    assert len({fingerprint(spec) for spec in specs}) == len(specs)
    for one in specs:
        for other in specs:
            assert (one == other) is (one is other)
            plan = diff(Settings(servers=[one]), Settings(servers=[other]))
            assert list(plan.adjust) == ([] if one is other else ["s"])


def test_values_are_masked_and_known_as_secrets() -> None:
    rules = {"api_key": {"value": "sk-aGVsbG8gd29ybGQ"}, "deep": {"default": {"x": ["hunter2hunter2"]}}}
    spec = good({"t": {"arguments": {**rules, "org": {"value": "${ORG}"}}}})
    shown = json.dumps(spec_json(spec))
    assert "aGVsbG8" not in shown + repr(spec)
    assert "hunter2" not in shown + repr(spec)
    assert "${ORG}" in shown
    assert "sk-aGVsbG8gd29ybGQ" in spec_values(spec, on_disk=False)


def test_changes_of_fastmcp_are_read_and_written_back() -> None:
    fastmcp = dialect("fastmcp")
    theirs: dict[str, Any] = {
        "search": {
            "name": "find",
            "description": "Find.",
            "arguments": {
                "q": {"name": "query", "description": "What.", "required": True},
                "repo": {"hide": True, "default": "${REPO}"},
                "limit": {"default": 5},
            },
        },
        "drop": {"enabled": False},
    }
    spec = good({**theirs, "tagged": {"tags": ["x"], "description": "T."}}, fastmcp)
    search = spec.tools["search"]
    assert (search.name, search.arguments["q"].required) == ("find", True)
    # That library has no variables.
    assert search.arguments["repo"].constant == "$${REPO}"
    assert not search.arguments["repo"].is_shown
    assert spec.tools["drop"].hidden
    assert any("tags" in note.message for note in spec.notes)
    theirs["search"]["arguments"]["repo"]["default"] = "octo/one"
    plain = good(theirs, fastmcp)
    written, losses = entry(plain, fastmcp)
    assert (losses, written["tools"]) == ([], theirs)
    fixed = good({"t": {"arguments": {"a": {"value": 1}}}})
    again, _ = entry(fixed, fastmcp)
    assert again["tools"] == {"t": {"arguments": {"a": {"default": 1, "hide": True}}}}
    claimed = good({"t": {"arguments": {"a": {"value": "${claim:sub}"}}}})
    assert "tools" in {loss.key for loss in entry(claimed, fastmcp)[1]}
