"""Schemas as Python-like types."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman import ToolDef
from dragoman.cli.arguments import resolved, signature_text, type_name

ROOT = {
    "$defs": {
        "Colour": {"enum": ["red", "blue"]},
        "Loop": {"$ref": "#/$defs/Loop"},
        "a/b": {"type": "integer"},
    }
}


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ({"type": "string"}, "str"),
        ({"type": "array", "items": {"type": "integer"}}, "list[int]"),
        ({"type": "array", "items": {}}, "list"),
        ({"type": ["string", "null"]}, "str | null"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "str | null"),
        ({"anyOf": [{"type": "string"}, {}]}, "any"),
        ({"enum": ["a", "b"]}, '"a" | "b"'),
        ({"type": "string", "enum": list("abcdefgh")}, "str"),
        ({"const": 3}, "3"),
        ({"$ref": "#/$defs/Colour"}, '"red" | "blue"'),
        ({"$ref": "#/$defs/a~1b"}, "int"),
        ({"$ref": "#/$defs/Loop"}, "any"),
        ({"$ref": "#/nowhere/at/all"}, "any"),
        ({"$ref": "https://example.com"}, "any"),
        ({"type": "strange\x1b"}, "any"),
        ({"type": ["strange\x1b"]}, "strange�"),
        (True, "any"),
    ],
)
def test_a_type_is_short_and_harmless(schema: Any, name: str) -> None:
    assert type_name(schema, ROOT) == name


def test_a_reference_that_goes_in_circles_ends() -> None:
    assert resolved({"$ref": "#/$defs/Loop"}, ROOT) == {"$ref": "#/$defs/Loop"}


@pytest.mark.parametrize("schema", [{}, {"properties": []}, {"properties": None, "required": {"a": 1}}])
def test_a_tool_with_an_odd_schema_still_has_a_signature(schema: Any) -> None:
    assert signature_text(ToolDef(name="x", description="", input_schema=schema)) == "x()"
