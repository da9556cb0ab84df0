from __future__ import annotations

from typing import Any

import pytest

from dragoman.tools.schema.coerce import coerce
from dragoman.tools.schema.validate import compile_schema

pytestmark = pytest.mark.requirement("legal-error.schema")


def of(*required: str, **members: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": members,
        "additionalProperties": False,
        "required": list(required),
    }


def mended(schema: dict[str, Any], arguments: object, **options: Any) -> Any:
    found = coerce(compile_schema(schema), arguments, **options)
    return None if found is None else found.arguments


INTEGER = {"type": "integer"}
TEXTS = {"type": "array", "items": {"type": "string"}}
POINT = {"type": "object", "properties": {"x": INTEGER}, "required": ["x"]}
TAGGED = {
    "oneOf": [
        {"type": "object", "properties": {"kind": {"const": "a"}, "x": INTEGER}, "required": ["kind", "x"]},
        {"type": "object", "properties": {"kind": {"const": "b"}, "y": INTEGER}, "required": ["kind", "y"]},
    ]
}

MENDS: list[tuple[str, dict[str, Any], Any, Any]] = [
    ("integer", of(a=INTEGER), {"a": "3"}, {"a": 3}),
    ("number", of(a={"type": "number"}), {"a": "3.5"}, {"a": 3.5}),
    ("either number", of(a={"type": ["integer", "number"]}), {"a": "3.0"}, {"a": 3.0}),
    ("boolean", of(a={"type": "boolean"}), {"a": "True"}, {"a": True}),
    ("text", of(a={"type": "string"}), {"a": 3}, {"a": "3"}),
    ("nullable", of(a={"type": ["integer", "null"]}), {"a": "null"}, {"a": None}),
    ("object", of(a=POINT), {"a": '{"x": 1}'}, {"a": {"x": 1}}),
    ("repair inside a JSON text", of(a=POINT), {"a": '{"x": "1"}'}, {"a": {"x": 1}}),
    ("array", of(a=TEXTS), {"a": '["x"]'}, {"a": ["x"]}),
    ("items", of(a={"type": "array", "items": INTEGER}), {"a": [1, "2"]}, {"a": [1, 2]}),
    ("all arguments", of(a=INTEGER), '{"a": "3"}', {"a": 3}),
    ("one item", of(a=TEXTS), {"a": "x"}, {"a": ["x"]}),
    ("one number", of(a={"type": "array", "items": {"type": "number"}}), {"a": 3}, {"a": [3]}),
    ("one object", of(a={"type": "array", "items": POINT}), {"a": {"x": 1}}, {"a": [{"x": 1}]}),
    ("one of a list", of(a={"type": "array", "items": {"enum": ["x"]}}), {"a": "x"}, {"a": ["x"]}),
    (
        "one item behind a reference",
        {**of(a={"type": "array", "items": {"$ref": "#/$defs/t"}}), "$defs": {"t": {"type": "string"}}},
        {"a": "x"},
        {"a": ["x"]},
    ),
    ("case", of(a={"enum": ["read", "write"]}), {"a": "READ "}, {"a": "read"}),
    ("quotes", of(a={"enum": [1, 2]}), {"a": "2"}, {"a": 2}),
    ("const", of(a={"const": "main"}), {"a": "Main"}, {"a": "main"}),
    ("typed enum", of(a={"type": "integer", "enum": [1, 2]}), {"a": "2"}, {"a": 2}),
    ("spaces", of(a={"type": "string", "pattern": "^[a-z]+$"}), {"a": " abc\n"}, {"a": "abc"}),
    ("key", of("filePath", filePath={"type": "string"}), {"file_path": "x"}, {"filePath": "x"}),
    (
        "missing key",
        {"type": "object", "properties": {"filePath": {}}, "required": ["filePath"]},
        {"a": 1, "FILEPATH": "x", "b": 2},
        {"a": 1, "filePath": "x", "b": 2},
    ),
    ("null", of(a=INTEGER, b=INTEGER), {"a": 1, "b": None}, {"a": 1}),
    ("null inside", of(a=of(b=INTEGER)), {"a": {"b": None}}, {"a": {}}),
    ("null in words", of(a=INTEGER), {"a": "null"}, {}),
    ("null for an unknown key", of(a=INTEGER), {"b": None}, {}),
    ("null where no key is known", {"type": "object", "additionalProperties": False}, {"b": None}, {}),
    ("null for a form", of(a={"anyOf": [INTEGER, TEXTS]}), {"a": None}, {}),
    ("optional form", of(a={"anyOf": [INTEGER, {"type": "null"}]}), {"a": "3"}, {"a": 3}),
    ("optional null", of(a={"anyOf": [TEXTS, {"type": "null"}]}), {"a": "null"}, {"a": None}),
    ("form inside", of(a={"anyOf": [{"type": "array", "items": INTEGER}, {"type": "null"}]}), {"a": '["3"]'}, {"a": [3]}),
    ("tagged form", of(a=TAGGED), {"a": {"kind": "B", "y": "4"}}, {"a": {"kind": "b", "y": 4}}),
    (
        "form in a form",
        of(a={"anyOf": [{"anyOf": [INTEGER, {"type": "null"}]}, {"type": "boolean"}]}),
        {"a": "3"},
        {"a": 3},
    ),
    (
        "reference",
        {**of(a={"$ref": "#/$defs/n"}), "$defs": {"n": INTEGER}},
        {"a": "3"},
        {"a": 3},
    ),
    (
        "recursive",
        {"type": "object", "properties": {"v": INTEGER, "n": {"$ref": "#"}}},
        {"n": {"n": {"v": "3"}}},
        {"n": {"n": {"v": 3}}},
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "arguments", "wanted"), [row[1:] for row in MENDS], ids=[row[0] for row in MENDS]
)
def test_mend(schema: dict[str, Any], arguments: Any, wanted: Any) -> None:
    found = coerce(compile_schema(schema), arguments)
    assert found is not None
    assert found.arguments == wanted
    assert repr(found.arguments) == repr(wanted), "1 is not True, and 3 is not 3.0"
    assert found.changes


UNMENDED: list[tuple[str, dict[str, Any], Any]] = [
    ("no number", of(a=INTEGER), {"a": "three"}),
    ("several values", of(a=TEXTS), {"a": "x, y"}),
    ("several lines", of(a=TEXTS), {"a": "x\ny"}),
    ("another item", of(a={"type": "array", "items": INTEGER}), {"a": "3"}),
    ("items of any kind", of(a={"type": "array"}), {"a": "x"}),
    ("null as an item", of(a={"type": "array", "items": {"type": "string"}}), {"a": [None]}),
    ("two forms", of(a={"anyOf": [INTEGER, TEXTS]}), {"a": "3"}),
    ("two forms of a number", of(a={"oneOf": [INTEGER, {"const": "3 "}]}), {"a": " 3"}),
    ("two keys", of(filePath={"type": "string"}), {"file_path": "x", "filepath": "y"}),
    ("key that is there", of(filePath={"type": "string"}), {"filePath": "x", "file_path": "y"}),
    ("null for what has to be there", of("a", a=INTEGER), {"a": None}),
    ("bounds", of(a={"type": "integer", "minimum": 5}), {"a": "3"}),
    ("float for a text", of(a={"type": "string"}), {"a": 1.5}),
    ("one of two slips", of(a=INTEGER, b=INTEGER), {"a": "3", "b": "x"}),
    ("no object", of(a=INTEGER), [1]),
    ("no JSON", of(a=INTEGER), "a=3"),
    ("an array as a text", of(a=INTEGER), "[1]"),
    ("both forms at once", of(a={"oneOf": [INTEGER, {"type": "number"}]}), {"a": 3}),
    ("more forms than are tried inside one another", of(a={"anyOf": [{"anyOf": [{"anyOf": [{"anyOf": [INTEGER]}]}]}]}), {"a": "3"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "arguments"), [row[1:] for row in UNMENDED], ids=[row[0] for row in UNMENDED]
)
def test_what_is_not_plain_is_not_mended(schema: dict[str, Any], arguments: Any) -> None:
    assert coerce(compile_schema(schema), arguments) is None


def test_what_fits_comes_back_without_changes() -> None:
    given = {"a": "3"}
    found = coerce(compile_schema(of(a={"type": "string"})), given)
    assert found is not None
    assert (found.arguments, found.changes) == (given, ())


def test_what_was_given_is_left_as_it_is() -> None:
    given = {"a": {"x": "1"}, "b": [1]}
    assert mended(of(a=POINT, b={}), given) == {"a": {"x": 1}, "b": [1]}
    assert given == {"a": {"x": "1"}, "b": [1]}


def test_only_nulls_are_left_out_where_nothing_else_is_wanted() -> None:
    schema = of(a=INTEGER, b=INTEGER, c=of(d=INTEGER))
    assert mended(schema, {"a": 1, "b": None, "c": {"d": None}}, only_nulls=True) == {"a": 1, "c": {}}
    for slip in ({"a": "3"}, {"A": 3}, '{"a": 3}', {"a": "null"}, {"a": "3", "b": None}):
        assert mended(schema, slip, only_nulls=True) is None
    assert mended({"type": "object", "required": ["a"]}, {"A": 1}, only_nulls=True) is None


def test_each_mend_is_recorded() -> None:
    schema = of(a=POINT, filePath={"type": "string"}, c=INTEGER)
    found = coerce(compile_schema(schema), {"a": '{"x": "1"}', "file-path": "p", "c": None})
    assert found is not None
    assert [change.as_dict() for change in found.changes] == [
        {
            "path": "a",
            "from": "a JSON string of 10 characters",
            "to": "an object with `x`",
            "why": "the schema requires an object",
        },
        {
            "path": "c",
            "from": "null",
            "to": "left out",
            "why": "null means that the key is left out",
        },
        {
            "path": "file-path",
            "from": "the key `file-path`",
            "to": "the key `filePath`",
            "why": "the schema spells the key this way",
        },
        {"path": "a.x", "from": '"1"', "to": "1", "why": "the schema requires an integer"},
    ]


def test_record_shows_no_secret() -> None:
    schema = of(api_key={"type": "string"}, a=of(token={"type": "string"}))
    found = coerce(compile_schema(schema), {"api_key": 271828, "a": '{"token": 314159}'})
    assert found is not None
    assert found.arguments == {"api_key": "271828", "a": {"token": "314159"}}
    assert not any(secret in str(found.changes) for secret in ("271828", "314159"))


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    schema, slip = of(a={"anyOf": [INTEGER, {"type": "boolean"}]}), {"a": "3"}
    assert mended(schema, slip) == {"a": 3}
    monkeypatch.setattr("dragoman.tools.schema.coerce.MAX_WORK", 5)
    assert mended(schema, slip) is None


def test_values_too_many_to_be_named_are_not_mended() -> None:
    many = {"type": "array", "items": INTEGER}
    assert mended(of(a=many), {"a": ["3"] * 10_000}) is None
    assert mended({"enum": [f"value-{number}" for number in range(100_000)]}, {"a": 1}) is None


def test_number_of_mends_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.tools.schema.coerce.MAX_CHANGES", 2)
    assert mended(of(a={"type": "array", "items": INTEGER}), {"a": ["1", "2"]}) == {"a": [1, 2]}
    assert mended(of(a={"type": "array", "items": INTEGER}), {"a": ["1", "2", "3"]}) is None


def test_schema_that_cannot_be_checked_mends_nothing() -> None:
    found = coerce(compile_schema({"type": 7}), {"a": "3"})
    assert found is not None
    assert (found.arguments, found.changes) == ({"a": "3"}, ())
