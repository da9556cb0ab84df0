from __future__ import annotations

import itertools
import json

import pytest
from tests.unit.tools.export.fitted import fitted, parameter, reason, whys

from dragoman.tools.export.schema import MAX_EXPANDED

GEMINI = ("gemini", "gemini-openapi")
STRING = {"type": "string"}


@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_references_within_the_schema_stay(api: str) -> None:
    schema = parameter({"$ref": "#/$defs/A"}, **{"$defs": {"A": STRING}})
    assert fitted(api, schema) is schema


@pytest.mark.parametrize("api", ["openai", "responses", "anthropic"])
@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("#/$defs/B", "`$ref` to `#/$defs/B` is left out: it leads nowhere"),
        ("http://127.0.0.1:9/x", "it leads out of the schema, and nothing is fetched"),
    ],
)
def test_reference_that_leads_nowhere_is_taken_out(api: str, reference: str, why: str) -> None:
    schema = parameter({"$ref": reference, "title": "P"})
    assert fitted(api, schema) == parameter({"title": "P"})
    [(where, told)] = whys(api, schema)
    assert where == "/inputSchema/properties/p"
    assert why in told


@pytest.mark.parametrize("api", GEMINI)
@pytest.mark.parametrize("store", ["$defs", "definitions"])
def test_references_are_written_out_with_what_stands_beside_them(api: str, store: str) -> None:
    schema = parameter(
        {"$ref": f"#/{store}/A", "description": "Mine."}, **{store: {"A": {**STRING, "description": "Its."}}}
    )
    assert fitted(api, schema) == parameter({**STRING, "description": "Mine."})


@pytest.mark.parametrize("api", GEMINI)
def test_schema_that_holds_itself_is_cut_where_it_starts_again(api: str) -> None:
    node = {"type": "object", "title": "Node", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    schema = parameter({"$ref": "#/$defs/Node"}, **{"$defs": {"Node": node}})
    inner = fitted(api, schema)["properties"]["p"]["properties"]["next"]
    assert inner == {"type": "object", "title": "Node", "description": "Of the same form as `Node`."}
    assert (
        "/inputSchema/properties/p/properties/next",
        "`#/$defs/Node` is cut here: it holds itself",
    ) in whys(api, schema)


def test_assertions_beside_a_reference_count_too() -> None:
    schema = parameter({"$ref": "#/$defs/A", "minLength": 2}, **{"$defs": {"A": {**STRING, "minLength": 1}}})
    assert fitted("gemini", schema) == parameter({"minLength": 2, "allOf": [{**STRING, "minLength": 1}]})


@pytest.mark.parametrize("api", GEMINI)
def test_bomb_of_references_is_cut_and_stays_small(api: str) -> None:
    names = [f"D{number}" for number in range(40)]
    store = {
        name: {
            "anyOf": [
                {"$ref": f"#/$defs/{after}"},
                {"type": "object", "properties": {"x": {"$ref": f"#/$defs/{after}"}}},
            ]
        }
        for name, after in itertools.pairwise(names)
    }
    schema = parameter({"$ref": "#/$defs/D0"}, **{"$defs": {**store, "D39": STRING}})
    assert len(json.dumps(fitted(api, schema))) < 100_000
    assert any("all of it would be too much" in why for _, why in whys(api, schema))


def test_schema_that_stays_too_large_is_left_out() -> None:
    schema = {
        "type": "object",
        "properties": {f"p{number}": {"$ref": "#/$defs/A"} for number in range(4000)},
        "$defs": {"A": {"anyOf": [STRING, {"type": "integer"}]}},
    }
    assert f"more than {MAX_EXPANDED} parts once references are written out" in reason("gemini", schema)


def test_reference_to_where_no_schema_stands_is_found_out() -> None:
    schema = parameter({"$ref": "#/components/A"}, components={"A": {"properties": 3}})
    assert "not a schema" in reason("gemini", schema)
