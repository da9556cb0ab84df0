"""Transforms of one tool: what is shown, what is sent, and what is refused."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from dragoman.errors import InvalidArgumentsError
from dragoman.model import ArgumentTransform, ServerSpec, Stdio, ToolDef, ToolTransform
from dragoman.tools.transforms import Refusal, sent_arguments, transformed

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "a": {"type": "string", "description": "Old."},
        "b": {"type": "integer"},
        "c": True,
        "d": {"$ref": "#/$defs/D"},
    },
    "required": ["a", "b"],
    "dependentRequired": {"c": ["d"]},
    "additionalProperties": False,
    "$defs": {"D": {"type": "array", "items": {"$ref": "#/$defs/D"}}},
}


def tool(schema: dict[str, Any] | None = None, **more: Any) -> ToolDef:
    return ToolDef(
        name="mcp_s_t",
        description="T.",
        input_schema=SCHEMA if schema is None else schema,
        server="s",
        original_name="t",
        **more,
    )


def change(
    of: ToolDef, *, rules: ToolTransform | None = None, **arguments: ArgumentTransform
) -> ToolDef | Refusal | None:
    refused: list[Refusal] = []
    wanted = rules or ToolTransform(arguments=arguments)
    spec = ServerSpec("s", Stdio("x"), tools={"t": wanted})
    found = transformed(of, spec, template="mcp_{server}_{tool}", on_refused=refused.append)
    return refused[0] if refused else found


def changed(of: ToolDef, **arguments: ArgumentTransform) -> ToolDef:
    found = change(of, **arguments)
    assert isinstance(found, ToolDef), found
    return found


def test_a_tool_without_a_transform_is_the_same_object() -> None:
    given = tool()
    spec = ServerSpec("s", Stdio("x"), tools={"other": ToolTransform(hidden=True)})
    assert transformed(given, spec, template="mcp_{server}_{tool}") is given


def test_names_and_texts_are_replaced_everywhere() -> None:
    given = tool(title="Old", annotations={"title": "Old", "readOnlyHint": True})
    found = change(given, rules=ToolTransform(name="n", title="New", description="D."))
    assert isinstance(found, ToolDef)
    assert (found.name, found.own_name, found.original_name) == ("mcp_s_n", "n", "t")
    assert (found.title, found.description) == ("New", "D.")
    assert found.annotations == {"title": "New", "readOnlyHint": True}
    assert found.input_schema is SCHEMA


def test_the_schema_says_the_same_about_other_names() -> None:
    before = copy.deepcopy(SCHEMA)
    found = changed(
        tool(),
        a=ArgumentTransform(name="x", description="New."),
        b=ArgumentTransform(default=3),
        c=ArgumentTransform(name="y"),
        d=ArgumentTransform(name="z", required=True),
    )
    assert found.input_schema == {
        "type": "object",
        "properties": {
            "x": {"type": "string", "description": "New."},
            "b": {"type": "integer", "default": 3},
            "y": True,
            "z": {"$ref": "#/$defs/D"},
        },
        "required": ["x", "z"],
        "dependentRequired": {"y": ["z"]},
        "additionalProperties": False,
        "$defs": SCHEMA["$defs"],
    }
    assert before == SCHEMA
    assert sent_arguments(found, {"x": "1", "z": [[]]}) == {"a": "1", "d": [[]], "b": 3}
    assert sent_arguments(found, {"x": "1", "b": 4}) == {"a": "1", "b": 4}


def test_a_fixed_argument_is_not_shown_and_comes_last() -> None:
    found = changed(tool(), a=ArgumentTransform(value=""), b=ArgumentTransform(hidden=True, default=0))
    assert list(found.input_schema["properties"]) == ["c", "d"]
    assert "required" not in found.input_schema
    assert sent_arguments(found, {"c": 1}) == {"c": 1, "a": "", "b": 0}
    for name in ("a", "b"):
        with pytest.raises(InvalidArgumentsError, match=f"unknown key `{name}`"):
            sent_arguments(found, {name: None})


def test_the_default_of_a_variable_is_not_shown() -> None:
    found = changed(tool(), a=ArgumentTransform(default="${TOKEN}"))
    assert "default" not in found.input_schema["properties"]["a"]
    assert "TOKEN" not in repr(found)
    assert found.transform is not None
    assert found.transform.references == {"a"}


def test_two_names_can_be_swapped() -> None:
    found = changed(tool(), a=ArgumentTransform(name="b"), b=ArgumentTransform(name="a"))
    assert found.input_schema["required"] == ["b", "a"]
    assert sent_arguments(found, {"a": 1, "b": "x"}) == {"b": 1, "a": "x"}


def test_a_changed_tool_survives_pickling_and_equals_only_the_same() -> None:
    found = changed(tool(), a=ArgumentTransform(value="x"))
    again = pickle.loads(pickle.dumps(found))
    assert again == found
    assert sent_arguments(again, {}) == {"a": "x"}
    assert changed(tool(), a=ArgumentTransform(value="y")) != found
    other = copy.deepcopy(SCHEMA)
    other["properties"]["a"]["maxLength"] = 9
    assert changed(tool(other), a=ArgumentTransform(value="x")) != found


BASE: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, "`oneOf` of its schema speaks of"),
        ({"anyOf": [{"properties": {"x": {}}}]}, "`anyOf` of its schema speaks of the argument `x`"),
        ({"if": {"properties": {"a": {"const": 1}}}, "then": {}}, "`if` of its schema"),
        ({"allOf": [{"$ref": "#/$defs/A"}], "$defs": {"A": {}}}, "`allOf` of its schema has `$ref`"),
        ({"not": {"additionalProperties": False}}, "`not` of its schema has `additionalProperties`"),
        ({"dependencies": {"a": ["b"]}}, "`dependencies` of its schema speaks of"),
        ({"dependentSchemas": {"a": {}}}, "`dependentSchemas` of its schema speaks of"),
        ({"patternProperties": {"^x": {}}}, "`patternProperties` of its schema"),
        ({"propertyNames": {"maxLength": 1}}, "`propertyNames` of its schema"),
        ({"minProperties": 1}, "`minProperties` of its schema"),
        ({"$ref": "#/$defs/A", "$defs": {"A": {}}}, "its schema is a reference"),
        ({"$defs": {"A": {"$ref": "#/properties/a"}}}, "(`#/properties/a`) leads to what is changed"),
        ({"$defs": {"A": {"$ref": "#"}}}, "(`#`) leads to what is changed"),
        ({"$defs": {"A": {"$dynamicRef": "#node"}}}, "(`#node`) leads to what is changed"),
    ],
)
def test_a_schema_that_speaks_of_the_argument_elsewhere_is_refused(more: dict[str, Any], said: str) -> None:
    given = tool({**copy.deepcopy(BASE), **more})
    renamed = change(given, a=ArgumentTransform(name="x"))
    assert isinstance(renamed, Refusal)
    assert said in renamed.reason
    assert not renamed.is_withheld
    assert isinstance(change(given, a=ArgumentTransform(description="D.")), ToolDef)
    fixed = change(given, a=ArgumentTransform(value="1"))
    if "the argument `x`" in said:
        assert isinstance(fixed, ToolDef)
    else:
        assert isinstance(fixed, Refusal)
        assert fixed.is_withheld


@pytest.mark.parametrize(
    ("arguments", "said", "is_withheld"),
    [
        ({"e": ArgumentTransform(name="x")}, "it has no argument `e`", False),
        ({"e": ArgumentTransform(value=1)}, "it has no argument `e`", True),
        ({"a": ArgumentTransform(name="b")}, "two arguments named `b`", False),
        ({"a": ArgumentTransform(name="b"), "c": ArgumentTransform(hidden=True)}, "two arguments", True),
        ({"a": ArgumentTransform(hidden=True)}, "`a` is required", True),
        ({"b": ArgumentTransform(value="x")}, "does not fit the argument `b`", True),
        ({"b": ArgumentTransform(default="x")}, "does not fit the argument `b`", False),
        ({"d": ArgumentTransform(value=[])}, "`dependentRequired` of its schema", True),
        ({"c": ArgumentTransform(default=1)}, "`dependentRequired` of its schema", False),
    ],
)
def test_what_cannot_be_is_refused(
    arguments: dict[str, ArgumentTransform], said: str, is_withheld: bool
) -> None:
    found = change(tool(), **arguments)
    assert isinstance(found, Refusal)
    assert said in found.reason
    assert found.is_withheld is is_withheld


@pytest.mark.parametrize(
    "more", [{"oneOf": [{"required": ["a"]}, {}]}, {"minProperties": 1}, {"not": {"required": ["a", "b"]}}]
)
def test_an_argument_that_is_always_there_is_refused_where_that_matters(more: dict[str, Any]) -> None:
    assert isinstance(
        change(tool({**copy.deepcopy(BASE), **more}), a=ArgumentTransform(default="1")), Refusal
    )


def test_a_name_that_is_required_elsewhere_is_not_given_to_another() -> None:
    found = change(tool({**copy.deepcopy(BASE), "required": ["x"]}), a=ArgumentTransform(name="x"))
    assert isinstance(found, Refusal)
    assert found.reason == "`x` is another argument of its schema"


def test_examples_with_the_old_names_are_left_out() -> None:
    given = tool({**copy.deepcopy(BASE), "examples": [{"a": "1"}]})
    assert "examples" not in changed(given, a=ArgumentTransform(name="x")).input_schema
    assert "examples" in changed(given, a=ArgumentTransform(description="D.")).input_schema


def test_a_refused_transform_leaves_the_tool_as_it_is() -> None:
    spec = ServerSpec(
        "s", Stdio("x"), tools={"t": ToolTransform(name="n", arguments={"e": ArgumentTransform(name="x")})}
    )
    found = transformed(tool(), spec, template="mcp_{server}_{tool}")
    assert found is not None
    assert (found.name, found.own_name, found.input_schema) == ("mcp_s_t", "t", SCHEMA)
    assert sent_arguments(found, {"a": 1}) == {"a": 1}


@pytest.mark.parametrize("name", ["Repo", "REPO", " repo", "re-po", "ｒepo", "re\u200bpo", "_repo_"])
def test_a_closed_argument_cannot_be_given_by_a_spelling_that_a_server_may_take_for_it(name: str) -> None:
    schema = {"properties": {"repo": {"type": "string"}, "repos": {"type": "string"}}}
    for rule in (ArgumentTransform(value="x"), ArgumentTransform(hidden=True), ArgumentTransform(name="n")):
        found = changed(tool(schema), repo=rule)
        with pytest.raises(InvalidArgumentsError, match="unknown key"):
            sent_arguments(found, {name: "theirs"})
        assert (
            sent_arguments(found, {"repos": "a", "other": "b"}).items()
            >= {"repos": "a", "other": "b"}.items()
        )


def test_an_argument_that_the_server_has_itself_is_no_other_spelling() -> None:
    schema = {"properties": {"repo": {"type": "string"}, "Repo": {"type": "string"}}}
    found = changed(tool(schema), repo=ArgumentTransform(value="x"))
    assert sent_arguments(found, {"Repo": "theirs"}) == {"Repo": "theirs", "repo": "x"}


@pytest.mark.parametrize("word", ["minProperties", "maxProperties"])
def test_a_number_of_arguments_inside_a_combination_speaks_of_all(word: str) -> None:
    schema = {"properties": {"a": {}, "b": {}}, "not": {"anyOf": [{word: 2}]}}
    refused = change(tool(schema), a=ArgumentTransform(value="x"))
    assert isinstance(refused, Refusal)
    assert word in refused.reason
