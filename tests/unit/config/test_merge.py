from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.config.building import in_effect

from dragoman.config.dialect import FileSettings, entries_at
from dragoman.config.dialects import dialect
from dragoman.config.documents import environment, parse
from dragoman.config.merge import Layer, Merged, merge
from dragoman.model import Input, Stdio

if TYPE_CHECKING:
    from dragoman.config.dialect import Scope

pytestmark = pytest.mark.requirement("kode-config.project", "legal-config.many", "excel-1.2")

NATIVE = dialect("dragoman")


def layer(source: str, servers: Any, scope: Scope = "user", patch: FileSettings | None = None) -> Layer:
    document = parse(json.dumps({"mcpServers": servers}, indent=1), source, "json")
    entries = entries_at(document, ("mcpServers",))
    return Layer(
        document=document, dialect=NATIVE, scope=scope, entries=entries, patch=patch or FileSettings()
    )


def places(merged: Merged) -> dict[str, list[str]]:
    return {spec.name: [origin.source for origin in (spec.origin, *spec.shadowed)] for spec in merged.servers}


def test_the_strongest_entry_is_taken_whole_and_knows_what_it_hides() -> None:
    merged = merge(
        [
            layer("strong", {"a": {"command": "s"}}, "project"),
            layer("middle", {"b": {"command": "m"}, "a": {"command": "m", "lazy": True}}),
            layer("weak", {"a": {"command": "w"}, "b": {"command": "w"}}, "system"),
        ],
        "replace",
    )
    assert places(merged) == {"a": ["strong", "middle", "weak"], "b": ["middle", "weak"]}
    assert [spec.transport for spec in merged.servers] == [Stdio("s"), Stdio("m")]
    assert not merged.servers[0].lazy
    assert [origin.scope for origin in merged.servers[0].shadowed] == ["user", "system"]
    assert merged.problems == []


def test_a_broken_entry_is_a_problem_and_a_weaker_one_serves() -> None:
    merged = merge(
        [layer("strong", {"a": {"command": 5}}), layer("weak", {"a": {"command": "w"}})], "replace"
    )
    assert places(merged) == {"a": ["weak"]}
    assert [problem.source for problem in merged.problems] == ["strong"]


@pytest.mark.parametrize("combine", ["replace", "fields"])
def test_a_name_that_stands_twice_in_one_file_is_a_problem(combine: Any) -> None:
    servers = [
        {"name": "a", "command": "x"},
        {"command": "y"},
        {"name": "a", "command": "z"},
        {"command": "y"},
    ]
    merged = merge([layer("f", servers)], combine)
    assert [spec.transport for spec in merged.servers] == [Stdio("x")]
    twice, *nameless = merged.problems
    assert "duplicate name, first used on line 3" in twice.message
    assert (twice.line, twice.pointer) == (10, "mcpServers.2")
    assert [problem.pointer for problem in nameless] == ["mcpServers.1.name", "mcpServers.3.name"]


def test_without_lines_the_first_entry_is_told_by_its_place() -> None:
    legal = dialect("legal")
    document = environment({"LEGAL_MCP_SERVER_URL": "https://x", "LEGAL_MCP_LEGAL_SERVER_URL": "https://y"})
    entries = list(legal.find(document, ""))
    merged = merge([Layer(document=document, dialect=legal, scope="user", entries=entries)], "replace")
    assert "first used at LEGAL_MCP_LEGAL_SERVER_URL" in merged.problems[0].message


def test_by_fields_missing_keys_come_from_the_weaker_entries() -> None:
    merged = merge(
        [
            layer("strong", {"a": {"lazy": True, "env": {"A": "s", "B": "s"}}}, "project"),
            layer(
                "weak",
                {"a": {"command": "w", "lazy": False, "env": {"B": "w", "C": "w"}}, "b": {"command": "x"}},
            ),
        ],
        "fields",
    )
    spec = merged.servers[0]
    assert spec.lazy
    assert spec.transport == Stdio("w", env={"A": "s", "B": "s", "C": "w"})
    assert places(merged) == {"a": ["strong", "weak"], "b": ["weak"]}
    assert (spec.origin.scope, spec.origin.line) == ("project", 3)


def test_by_fields_only_lines_of_the_entrys_own_file_are_kept() -> None:
    strong = layer("strong", {"a": {"env": {"A": "s"}}})
    weak = layer("weak", {"a": {"command": "w", "env": {"C": "w"}}})
    spec = merge([strong, weak], "fields").servers[0]
    assert spec.lines == {"env": 4, "env.A": 5}


@pytest.mark.parametrize(
    ("strong", "weak", "place", "message"),
    [
        ({"command": "s"}, {"timeout": "soon"}, "weak:4", "`timeout` (line 4)"),
        ({"command": "s", "env": {"A": "1"}}, {"env": {"B": []}}, "weak:5", "`env.B` (line 5)"),
        ({"timeout": "soon"}, {"command": "w"}, "strong:4", "`timeout` (line 4)"),
    ],
)
def test_by_fields_the_entry_with_the_wrong_key_is_absent(
    strong: Any, weak: Any, place: str, message: str
) -> None:
    merged = merge([layer("strong", {"a": strong}), layer("weak", {"a": weak})], "fields")
    assert len(merged.servers) == 1
    assert merged.servers[0].shadowed == ()
    (problem,) = merged.problems
    assert problem.location.startswith(place)
    assert message in problem.message


@pytest.mark.parametrize("strong", [5, {"command": "s"}])
@pytest.mark.parametrize("weak", [5, {"command": "w"}])
def test_by_fields_what_is_no_object_spoils_nothing(strong: Any, weak: Any) -> None:
    merged = merge([layer("strong", {"a": strong}), layer("weak", {"a": weak})], "fields")
    assert len(merged.servers) == (1 if isinstance(strong, dict) or isinstance(weak, dict) else 0)
    assert len(merged.problems) == [strong, weak].count(5)


def test_by_fields_a_stack_of_fragments_is_no_server() -> None:
    merged = merge([layer("strong", {"a": {"lazy": True}}), layer("weak", {"a": {"args": []}})], "fields")
    assert merged.servers == []
    assert [problem.source for problem in merged.problems] == ["strong", "weak"]


def test_merging_changes_no_entry() -> None:
    layers = [
        layer("strong", {"a": {"env": {"A": "1"}}}),
        layer("weak", {"a": {"command": "w", "env": {"B": "2"}}}),
    ]
    first = merge(layers, "fields")
    assert merge(layers, "fields") == first


def test_switches_of_the_files_are_applied_last() -> None:
    servers = {name: {"command": "x"} for name in "abcd"} | {"e": {"command": "x", "enabled": False}}
    strong = layer("strong", {}, patch=FileSettings(said={"without_servers": ["b", "e"]}))
    lists = {"only_servers": ["a", "b", "c", "e"], "without_servers": ["b", "c"]}
    weak = layer("weak", servers, patch=FileSettings(said=lists))
    merged = in_effect(merge([strong, weak], "replace"))
    assert [spec.name for spec in merged.servers if spec.enabled] == ["a"]
    reasons = {spec.name: [note.message for note in spec.notes] for spec in merged.servers}
    assert reasons == {
        "a": [],
        "b": ["off: on the list of excluded servers"],
        "c": ["off: on the list of excluded servers"],
        "d": ["off: not on the list of allowed servers"],
        "e": [],
    }


def test_the_strongest_file_decides_each_setting() -> None:
    strong = FileSettings(said={"enabled": False, "inputs": [Input(id="a", description="strong")]})
    weak = FileSettings(
        said={
            "enabled": True,
            "auto_reload": True,
            "health_check_interval": 5.0,
            "naming": "{tool}",
            "inputs": [Input(id="a"), Input(id="b")],
        }
    )
    patch = in_effect(merge([layer("s", {}, patch=strong), layer("w", {}, patch=weak)], "replace"))
    assert (patch.enabled, patch.auto_reload, patch.health_check_interval, patch.naming) == (
        False,
        True,
        5.0,
        "{tool}",
    )
    assert [(each.id, each.description) for each in patch.inputs] == [("a", "strong"), ("b", "")]


def test_problems_of_the_settings_have_a_place() -> None:
    broken = layer("f", {"a": {"command": "x"}}).replace(
        patch=FileSettings(problems=[(("mcpServers", "a"), "not so")])
    )
    (problem,) = merge([broken], "replace").problems
    assert str(problem) == "f:3: mcpServers.a: not so"
