from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.model import Part, SourceRef
from dragoman.tools.result.provenance import MAX_CHARS, MAX_NODES, MAX_SOURCES, META_KEY, find_sources
from dragoman.tools.result.render import ANNOTATIONS, DETAILS

pytestmark = pytest.mark.requirement("legal-law.attribution")

ACT = {"title": "Act", "locator": "Art. 4", "url": "x:4"}


def test_source_object_with_a_date_beside_it() -> None:
    found = find_sources({"results": [{"text": "…", "source": ACT, "updated": "2026-01-30"}]})
    assert found == [SourceRef(title="Act", locator="Art. 4", url="x:4", updated="2026-01-30")]


def test_date_inside_the_source_wins() -> None:
    found = find_sources({"source": {**ACT, "updated_at": "2025"}, "updated": "2026"})
    assert [source.updated for source in found] == ["2025"]


def test_the_configured_date_is_for_the_sources_without_one() -> None:
    mixed = {"results": [{"source": {**ACT, "updated": "2024"}}, {"source": {**ACT, "locator": "Art. 5"}}]}
    found = find_sources(mixed, attribution={"updated": "2026-01-30"})
    assert [source.updated for source in found] == ["2024", "2026-01-30"]


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
        {"source": "  "},
        {"source": 7},
    ],
)
def test_nothing_is_guessed(structured: Any) -> None:
    assert find_sources(structured) == []


def test_number_of_sources_is_bounded() -> None:
    assert len(find_sources([{"source": f"S{number}"} for number in range(1000)])) == MAX_SOURCES


LAWS = {
    "results": [
        {"law": "Civil Code", "article": "12", "effective_date": "2021-01-01"},
        {"law": "Penal Code", "effective_date": 2020},
        {"law": None, "effective_date": "2019"},
    ],
    "updated": "2026",
}
POINTERS = {"source": "/results/*/law", "updated": "/results/*/effective_date"}


def test_pointers_find_sources_and_what_belongs_to_each() -> None:
    wanted = [
        SourceRef(title="Civil Code", locator="12", updated="2021-01-01"),
        SourceRef(title="Penal Code", updated="2020"),
    ]
    assert find_sources(LAWS, attribution={**POINTERS, "locator": "/results/*/article"}) == wanted


def test_pointer_with_fewer_stars_holds_for_all() -> None:
    found = find_sources(LAWS, attribution={"title": "/results/*/law", "updated": "/updated"})
    assert [(source.title, source.updated) for source in found] == [
        ("Civil Code", "2026"),
        ("Penal Code", "2026"),
    ]
    nested = {"books": [{"date": "1", "laws": [{"n": "a"}, {"n": "b"}]}, {"date": "2", "laws": [{"n": "c"}]}]}
    found = find_sources(nested, attribution={"source": "/books/*/laws/*/n", "updated": "/books/*/date"})
    assert [(source.title, source.updated) for source in found] == [("a", "1"), ("b", "1"), ("c", "2")]


def test_star_goes_over_objects_and_a_source_may_be_an_object() -> None:
    data = {"hits": {"x": {"source": ACT}, "y": {"source": {"title": "Book"}}, "z": 3}}
    found = find_sources(data, attribution={"source": "/hits/*/source", "locator": "/hits/*/page"})
    assert found == [SourceRef(title="Act", locator="Art. 4", url="x:4"), SourceRef(title="Book")]


def test_pointer_names_an_item_and_odd_keys() -> None:
    data = {"a/b": [{"~": "first"}, {"~": "second"}]}
    assert find_sources(data, attribution={"title": "/a~1b/1/~0"}) == [SourceRef(title="second")]
    assert find_sources(data, attribution={"title": "/a~1b/7/~0"}) == []
    assert find_sources(data, attribution={"title": "/a~1b/x/~0"}) == []


def test_address_alone_is_a_source() -> None:
    assert find_sources({"u": "x:1"}, attribution={"url": "/u"}) == [SourceRef(title="x:1", url="x:1")]
    assert find_sources({"d": "2026"}, attribution={"updated": "/d"}) == []


def test_pointers_are_followed_in_text_that_is_json() -> None:
    text = Part(kind="text", text='{"results": [{"law": "Civil Code"}]}')
    wanted = [SourceRef(title="Civil Code")]
    assert find_sources(None, parts=[Part(kind="text", text="plain"), text], attribution=POINTERS) == wanted
    wrapped = {"result": text.text}
    assert find_sources(wrapped, parts=[text], attribution=POINTERS) == wanted
    rows = [Part(kind="text", text=f'{{"law": "{name}"}}') for name in "ab"]
    found = find_sources(None, parts=rows, attribution={"source": "/*/law"})
    assert [source.title for source in found] == ["a", "b"]
    assert find_sources(None, parts=[Part(kind="text", text="{broken")], attribution=POINTERS) == []
    assert find_sources(None, parts=[text]) == [], "without pointers a text is only a text"


def test_pointers_win_over_what_is_found_but_not_over_what_is_declared() -> None:
    data = {**LAWS, "source": "elsewhere"}
    assert [source.title for source in find_sources(data, attribution=POINTERS)] == [
        "Civil Code",
        "Penal Code",
    ]
    declared = find_sources(data, {META_KEY: [{"title": "Declared"}]}, attribution=POINTERS)
    assert [source.title for source in declared] == ["Declared"]
    assert [source.title for source in find_sources(data, attribution={"source": "/no/*"})] == ["elsewhere"]


def test_pointer_over_too_much_finds_nothing() -> None:
    data = {"rows": [{"law": "x"}] * (MAX_NODES + 1)}
    assert find_sources(data, attribution={"source": "/rows/*/law"}) == []


def test_block_declares_sources_too() -> None:
    part = Part(kind="text", text="a", meta={META_KEY: [{"title": "Of the block"}]})
    assert find_sources({"source": "Found"}, parts=[part]) == [SourceRef(title="Of the block")]


def test_resource_in_the_result_and_dated_link_are_sources() -> None:
    dated = {ANNOTATIONS: {"lastModified": "2026-01-30"}}
    parts = [
        Part(kind="resource", uri="x:1", text="content", meta={**dated, DETAILS: {"title": "One"}}),
        Part(kind="resource", uri="x:2", data=b"abc"),
        Part(kind="resource", text="without an address"),
        Part(kind="link", uri="x:3", text="Three", meta=dated),
        Part(kind="link", uri="x:4", text="only an offer"),
        Part(kind="image", uri="x:5", meta=dated),
    ]
    assert find_sources({"source": "First"}, parts=parts) == [
        SourceRef(title="First"),
        SourceRef(title="One", url="x:1", updated="2026-01-30"),
        SourceRef(title="x:2", url="x:2"),
        SourceRef(title="Three", url="x:3", updated="2026-01-30"),
    ]


def test_what_is_said_about_a_source_is_short_and_on_one_line() -> None:
    (source,) = find_sources({"source": "a\nb" + "c" * 10_000})
    assert source.title.startswith("a bcc")
    assert len(source.title) == MAX_CHARS


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["source", "title", "url", "date", "x"]), inner)
    ),
)


@given(JSON, JSON)
def test_any_data_gives_sources_with_a_title(structured: Any, declared: Any) -> None:
    found = [*find_sources(structured), *find_sources(None, {META_KEY: declared})]
    found += find_sources(
        structured, attribution={"source": "/*/source", "url": "/*/x/*", "updated": "/date"}
    )
    for source in found:
        assert source.title


def test_a_law_with_an_article_is_a_citation_in_data_and_in_texts_that_are_json() -> None:
    record = {"law": "民法典", "article_no": "第五百六十三条", "effective_date": "2021-01-01", "text": "…"}
    cited = [SourceRef(title="民法典", locator="第五百六十三条", updated="2021-01-01")]

    assert find_sources({"result": [record, record]}) == cited
    assert find_sources(None, parts=[Part(kind="text", text=json.dumps(record))]) == cited
    assert find_sources({"law": "gravity"}) == []
    assert find_sources(None, parts=[Part(kind="text", text='{"source": "a guess"}')]) == []


def test_a_declared_source_wins_over_a_citation() -> None:
    data = {"law": "民法典", "article_no": "1", "source": "Gazette"}

    assert [source.title for source in find_sources(data)] == ["Gazette"]
