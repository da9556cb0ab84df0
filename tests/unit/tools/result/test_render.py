from __future__ import annotations

import struct
from typing import Any

import pytest

from dragoman.model import Part, SourceRef
from dragoman.tools.result.budget import TextBudget
from dragoman.tools.result.render import ANNOTATIONS, DETAILS, FILE, attribution, describe, is_carried, render

pytestmark = pytest.mark.requirement(
    "legal-call.result",
    "excel-5.3",
    "rrclaw-result.text",
    "otter-p1.images",
)

GIF = b"GIF89a" + struct.pack("<HH", 10, 20)


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        (Part(kind="text", text="hi"), "hi"),
        (Part(kind="image", data=GIF, mime_type="image/gif"), "[image: image/gif, 10x20, 10 bytes]"),
        (Part(kind="image", data=b"x"), "[image: 1 byte]"),
        (Part(kind="audio", data=b"abc", mime_type="audio/wav"), "[audio: audio/wav, 3 bytes]"),
        (Part(kind="link", text="Report", uri="file:///r"), "[resource link: Report, file:///r]"),
        (Part(kind="link"), "[resource link]"),
        (Part(kind="resource", uri="a:b", data=b"abc"), "[resource: a:b, 3 bytes]"),
        (Part(kind="resource", uri="a:b", text="words"), "[resource: a:b, 5 characters]\nwords"),
        (Part(kind="structured", value={"a": "é"}), '{"a": "é"}'),
        (
            Part(kind="image", data=GIF, mime_type="image/gif", meta={"alt": "a\n cat"}),
            "[image: image/gif, 10x20, 10 bytes: a cat]",
        ),
        (
            Part(kind="image", data=GIF, meta={DETAILS: {"alt": "x"}, "altText": "y"}),
            "[image: 10x20, 10 bytes: x]",
        ),
        (Part(kind="image", data=GIF, meta={ANNOTATIONS: {"title": "z"}}), "[image: 10x20, 10 bytes: z]"),
        (Part(kind="image", data=GIF, meta={"alt": 3, ANNOTATIONS: None}), "[image: 10x20, 10 bytes]"),
        (
            Part(kind="audio", data=b"abc", meta={FILE: "/r/a.wav"}),
            "[audio: 3 bytes, saved as `/r/a.wav`]",
        ),
        (
            Part(
                kind="link",
                text="Report",
                uri="file:///r",
                mime_type="text/csv",
                meta={DETAILS: {"name": "r.csv", "size": 1200, "description": "All the\nfigures"}},
            ),
            "[resource link: Report (r.csv), file:///r, text/csv, 1200 bytes: All the figures]",
        ),
        (Part(kind="link", text="r", meta={DETAILS: {"name": "r", "size": True}}), "[resource link: r]"),
        (Part(kind="link", meta={DETAILS: {"name": "r"}}), "[resource link: r]"),
        (
            Part(kind="resource", uri="a:b", data=b"abc", text="[resource: a:b, 3 bytes]"),
            "[resource: a:b, 3 bytes]",
        ),
    ],
)
def test_every_kind_of_piece_has_words(part: Part, shown: str) -> None:
    assert describe(part) == shown


def test_pieces_are_joined_by_newlines_in_order() -> None:
    parts = [Part(kind="text", text="a"), Part(kind="audio", data=b"x"), Part(kind="text", text="b")]
    assert render(parts) == "a\n[audio: 1 byte]\nb"


@pytest.mark.parametrize(
    ("value", "texts", "carried"),
    [
        ({"a": 1}, ['{ "a": 1 }'], True),
        ({"result": "plain"}, ["plain"], True),
        ({"result": 3}, ["3"], True),
        ({"result": [1, "b"]}, ["1", "b"], True),
        ({"a": 1}, ["one"], False),
        ({"a": 1}, [], False),
        ({"result": []}, [], False),
        ([1, 2], ["[1, 2]"], True),
        ({"a": [1, "b c"]}, ['Here it is:\n```json\n{\n  "a": [1, "b c"]\n}\n```'], True),
        ({"a": [1, "b c"]}, ['Here it is: {"a": [1, "b"]}'], False),
        ({}, ["anything {} at all"], False),
        ({"a": 1}, ['{"a":1}' + " " * 200_000 + "x"], False),
    ],
)
def test_structured_content_that_the_text_carries_is_recognised(
    value: Any, texts: list[str], carried: bool
) -> None:
    assert is_carried(value, texts) is carried


def test_equal_texts_are_all_shown() -> None:
    assert render([Part(kind="text", text="a"), Part(kind="text", text="a")]) == "a\na"


def test_structured_content_is_shown_once() -> None:
    data = Part(kind="structured", value={"a": 1})
    assert render([Part(kind="text", text='{"a": 1}'), data]) == '{"a": 1}'
    assert render([Part(kind="text", text="see below"), data]) == 'see below\n{"a": 1}'


def test_sources_come_last() -> None:
    sources = [SourceRef(title="Act", locator="Art. 1", url="x:1", updated="2026"), SourceRef(title="Book")]
    assert render([Part(kind="text", text="a")], sources) == (
        "a\n\nSources:\n- Act, Art. 1 <x:1> (updated 2026)\n- Book (date unknown)"
    )
    assert attribution([]) == ""


def test_budget_cuts_the_text_and_leaves_the_sources() -> None:
    kept: list[str] = []

    def spill(text: str) -> str:
        kept.append(text)
        return "the file `/r/1`"

    parts = [Part(kind="text", text="x" * 5000), Part(kind="structured", value={"n": 1})]
    sources = [SourceRef(title="Act")]
    shown = render(parts, sources, budget=TextBudget(limit=500), spill=spill)
    assert len(shown) <= 500
    assert "full text: the file `/r/1`" in shown
    assert shown.endswith("\n\nSources:\n- Act (date unknown)")
    assert kept == [render(parts, sources)]
    assert render(parts[1:], sources, budget=TextBudget(limit=500), spill=spill) == render(parts[1:], sources)
    assert len(kept) == 1, "what fits is not kept"
    assert "is not stored" in render(parts, sources, budget=TextBudget(limit=500))


def test_long_list_of_sources_is_shortened() -> None:
    block = attribution(SourceRef(title=f"S{number}") for number in range(50))
    assert block.count("\n- S") == 20
    assert block.endswith("\n- … and 30 more")
    assert attribution([SourceRef(title="a:b", url="a:b")]) == "\nSources:\n- a:b (date unknown)"


def test_whatever_structured_content_is_it_has_words() -> None:
    loop: list[Any] = []
    loop.append(loop)
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    assert render([Part(kind="structured", value=loop)]).startswith("[structured content that is not JSON")
    assert describe(Part(kind="structured", value=deep)).startswith("[structured content that is not JSON")
    assert describe(Part(kind="structured", value={(1, 2): 3})).startswith(
        "[structured content that is not JSON"
    )
    assert describe(Part(kind="structured", value={1, 2})) == '"{1, 2}"'


def test_facts_about_a_piece_are_short() -> None:
    part = Part(kind="link", text="t" * 1000, uri="u" * 1000, meta={DETAILS: {"description": "d" * 1000}})
    assert len(describe(part)) < 1000


def test_text_that_is_one_of_several_values_does_not_stand_for_all_of_them() -> None:
    value = {"price": "42 EUR", "valid_until": "2026-01-01"}
    shown = render([Part(kind="text", text="42 EUR"), Part(kind="structured", value=value)])
    assert shown == '42 EUR\n{"price": "42 EUR", "valid_until": "2026-01-01"}'
