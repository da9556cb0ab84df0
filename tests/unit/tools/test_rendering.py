from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.model import Part, SourceRef
from dragoman.tools.rendering import attribution, describe, image_size, is_carried, render

PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + struct.pack(">II", 64, 48)
GIF = b"GIF89a" + struct.pack("<HH", 10, 20)
JPEG = (
    b"\xff\xd8\xff\xe0"
    + struct.pack(">H", 4)
    + b"ab\xff\xff\xd0\xff\xc4"
    + struct.pack(">H", 2)
    + b"\xff\xc0"
    + struct.pack(">HBHH", 8, 8, 30, 40)
    + b"rest"
)


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (PNG, "64x48"),
        (GIF, "10x20"),
        (JPEG, "40x30"),
        (PNG[:20], ""),
        (GIF[:8], ""),
        (JPEG[:8], ""),
        (b"\xff\xd8plain", ""),
        (b"RIFFwebp", ""),
        (b"", ""),
    ],
)
def test_size_of_an_image_is_read_from_its_header(data: bytes, size: str) -> None:
    assert image_size(data) == size


@given(st.binary(), st.sampled_from([b"", PNG[:8], GIF[:6], JPEG[:2]]))
def test_any_bytes_have_a_size_or_none(data: bytes, head: bytes) -> None:
    assert isinstance(image_size(head + data), str)


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
    ],
)
def test_structured_content_that_the_text_carries_is_recognised(
    value: Any, texts: list[str], carried: bool
) -> None:
    assert is_carried(value, texts) is carried


def test_structured_content_is_shown_once() -> None:
    data = Part(kind="structured", value={"a": 1})
    assert render([Part(kind="text", text='{"a": 1}'), data]) == '{"a": 1}'
    assert render([Part(kind="text", text="see below"), data]) == 'see below\n{"a": 1}'


def test_sources_come_last() -> None:
    sources = [SourceRef(title="Act", locator="Art. 1", url="x:1", updated="2026"), SourceRef(title="Book")]
    assert render([Part(kind="text", text="a")], sources) == (
        "a\n\nSources:\n- Act, Art. 1 <x:1> (updated 2026)\n- Book"
    )
    assert attribution([]) == ""
