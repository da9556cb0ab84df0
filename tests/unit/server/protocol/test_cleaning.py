from __future__ import annotations

from typing import Any

import pytest

from dragoman.server.protocol.dispatcher import clean_listing


def test_raw_entries_stay_as_they_are_and_the_session_gets_the_least() -> None:
    tool = {
        "name": "a",
        "description": "d",
        "inputSchema": {"type": "object", "properties": {"x": {"type": "string"}}},
        "outputSchema": {"type": "object", "pattern": "(a+)+$"},
        "annotations": {"readOnlyHint": "yes"},
    }
    raw, page = clean_listing({"tools": [tool], "nextCursor": "c", "ttlMs": 5})
    assert raw == [tool]
    assert page == {
        "tools": [{"name": "a", "inputSchema": tool["inputSchema"]}],
        "nextCursor": "c",
        "ttlMs": 5,
    }


@pytest.mark.parametrize("entry", [None, 7, "x", [], {}, {"name": None}, {"name": 5}, {"name": ["a"]}])
def test_entry_that_is_no_tool_costs_only_itself(entry: Any) -> None:
    raw, page = clean_listing({"tools": [entry, {"name": "good"}]})
    assert [tool["name"] for tool in page["tools"]] == ["good"]
    assert {"name": "good"} in raw
    assert raw == [tool for tool in [entry, {"name": "good"}] if isinstance(tool, dict)]


@pytest.mark.parametrize(
    ("schema", "cleaned"),
    [
        (None, {"type": "object"}),
        ("no", {"type": "object"}),
        ({"type": "string"}, {"type": "object"}),
        ({"properties": {}}, {"type": "object", "properties": {}}),
        ({"properties": []}, {"type": "object"}),
        ({"properties": None}, {"type": "object"}),
    ],
)
def test_input_schema_gets_the_object_that_the_protocol_demands(schema: Any, cleaned: Any) -> None:
    _, page = clean_listing({"tools": [{"name": "a", "inputSchema": schema}]})
    assert page["tools"] == [{"name": "a", "inputSchema": cleaned}]


@pytest.mark.parametrize("tools", [None, 5, "x", {}])
def test_listing_that_is_no_list_is_empty(tools: Any) -> None:
    assert clean_listing({"tools": tools}) == ([], {"tools": []})
    assert clean_listing({}) == ([], {"tools": []})


@pytest.mark.parametrize("cursor", [None, 5, {}, []])
def test_cursor_that_is_no_text_is_none(cursor: Any) -> None:
    _, page = clean_listing({"tools": [], "nextCursor": cursor})
    assert "nextCursor" not in page


def test_empty_cursor_is_one() -> None:
    assert clean_listing({"tools": [], "nextCursor": ""})[1]["nextCursor"] == ""
