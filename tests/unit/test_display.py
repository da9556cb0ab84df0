"""Results in notebooks, and the texts of their parts."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from dragoman import Provenance, ToolResult
from dragoman.display import MAX_CHARS, MAX_ROWS
from dragoman.errors import ToolFailedError
from dragoman.model import Part, SourceRef

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


def html(**fields: Any) -> str:
    return ToolResult(success=True, **fields)._repr_html_()


def test_the_text_of_a_part_never_has_its_bytes() -> None:
    image = Part(kind="image", data=PIXEL * 1000, mime_type="image/png")
    assert repr(image) == f"Part(kind='image', data=<{len(PIXEL) * 1000:,} bytes>, mime_type='image/png')"
    assert repr(Part(kind="text", text="hello")) == "Part(kind='text', text='hello')"
    assert repr(Part(kind="structured", value=0)) == "Part(kind='structured', value=0)"
    assert len(repr(ToolResult(success=True, parts=[image]))) < 500


def test_text_is_escaped() -> None:
    shown = html(text="<script>alert(1)</script>\x1b[31m & \u202e", parts=())
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_an_image_is_shown_and_its_description_is_not() -> None:
    parts = [
        Part(kind="text", text="a dot"),
        Part(kind="image", text="[image]", data=PIXEL, mime_type="image/png"),
    ]
    shown = html(text="a dot\n[image]", parts=parts)
    assert f"<img src='data:image/png;base64,{base64.b64encode(PIXEL).decode()}'" in shown
    assert "a dot" in shown
    assert "[image]" not in shown


@pytest.mark.parametrize("kind", ["image/svg+xml", "text/html", "image/png'onerror='x"])
def test_an_image_of_another_type_is_only_described(kind: str) -> None:
    shown = html(parts=[Part(kind="image", data=b"<svg onload=alert(1)>", mime_type=kind)])
    assert "<img" not in shown
    assert "21 bytes" in shown


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_list_of_objects_is_a_table(*, wrapped: bool) -> None:
    rows = [{"name": "Ann", "age": 3}, {"name": "<Bob>", "more": [1]}]
    shown = html(text="[…]", structured={"result": rows} if wrapped else rows)
    assert "<thead><tr><th>name</th><th>age</th><th>more</th></tr></thead>" in shown
    assert "<tr><td>Ann</td><td>3</td><td></td></tr>" in shown
    assert "<td>&lt;Bob&gt;</td><td></td><td>[1]</td>" in shown
    assert "[…]" not in shown


def test_what_is_long_is_cut_and_says_so() -> None:
    assert "7 more characters" in html(text="x" * (MAX_CHARS + 7), parts=())
    assert "3 more rows" in html(structured=[{"a": 1}] * (MAX_ROWS + 3))


def test_other_structured_data_is_shown_as_json_where_there_is_no_text() -> None:
    assert "&quot;a&quot;: 1" in html(structured={"a": 1, "b": [2]})


def test_a_failure_is_shown_as_its_error_alone() -> None:
    failed = ToolResult(
        success=False, text="no", error="the disk is <full>", exception=ToolFailedError("x", tool="t")
    )
    shown = failed._repr_html_()
    assert "the disk is &lt;full&gt;" in shown
    assert shown.count("<pre") == 1


def test_sources_stand_below() -> None:
    sources = [SourceRef(title="Civil <Code>", locator="Art. 4", updated="2026-01-30")]
    shown = html(text="Yes.", parts=(), provenance=Provenance(server="s", tool="t", sources=sources))
    assert "<li>Civil &lt;Code&gt;, Art. 4, updated 2026-01-30</li>" in shown
