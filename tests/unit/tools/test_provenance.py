from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.model import SourceRef
from dragoman.tools.provenance import MAX_SOURCES, META_KEY, find_sources

ACT = {"title": "Act", "locator": "Art. 4", "url": "x:4"}


def test_source_object_with_a_date_beside_it() -> None:
    found = find_sources({"results": [{"text": "…", "source": ACT, "updated": "2026-01-30"}]})
    assert found == [SourceRef(title="Act", locator="Art. 4", url="x:4", updated="2026-01-30")]


def test_date_inside_the_source_wins() -> None:
    found = find_sources({"source": {**ACT, "updated_at": "2025"}, "updated": "2026"})
    assert [source.updated for source in found] == ["2025"]


def test_plain_name_takes_place_address_and_date_from_its_record() -> None:
    found = find_sources({"title": "A record", "source": "Gazette", "page": 12, "url": "x:g", "date": "2024"})
    assert found == [SourceRef(title="Gazette", locator="12", url="x:g", updated="2024")]


def test_declared_sources_win_over_what_is_found() -> None:
    declared = {META_KEY: [{"title": "Declared", "updated": "2026"}, {"url": "x:only"}, {"nothing": 1}, 3]}
    found = find_sources({"source": ACT}, declared)
    assert found == [SourceRef(title="Declared", updated="2026"), SourceRef(title="x:only", url="x:only")]


def test_order_is_kept_and_repetitions_are_dropped() -> None:
    rows = [{"source": "B"}, {"source": "A"}, {"source": "B"}, {"nested": [{"citation": "C"}]}]
    assert [source.title for source in find_sources(rows)] == ["B", "A", "C"]


@pytest.mark.parametrize(
    "structured",
    [
        None,
        3,
        "text",
        {},
        {"title": "no source here", "updated": "2026"},
        {"source": {"locator": "only"}},
        {"source": ""},
        {"source": 7},
    ],
)
def test_nothing_is_guessed(structured: Any) -> None:
    assert find_sources(structured) == []


def test_number_of_sources_is_bounded() -> None:
    assert len(find_sources([{"source": f"S{number}"} for number in range(1000)])) == MAX_SOURCES


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["source", "title", "url", "date", "x"]), inner)
    ),
)


@given(JSON, JSON)
def test_any_data_gives_sources_with_a_title(structured: Any, declared: Any) -> None:
    for source in [*find_sources(structured), *find_sources(None, {META_KEY: declared})]:
        assert source.title
