from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from textual.widgets import Static

from dragoman.cli.dashboard import lists
from dragoman.demo.studio import solid_png
from dragoman.model import Part

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BytesIO


@pytest.fixture(autouse=True)
def nothing_looked_for() -> Iterator[None]:
    lists._kind.clear()
    yield
    lists._kind.clear()


def image(width: int = 640, height: int = 480) -> Part:
    return Part(kind="image", data=solid_png((0, 0, 0), width=width, height=height), mime_type="image/png")


@pytest.mark.parametrize(
    ("part", "line"),
    [
        (image(), "[image 640×480 png]"),
        (Part(kind="image", data=b"GIF89a\x05\x00\x07\x00", mime_type="image/png"), "[image 5×7 gif]"),
        (Part(kind="image", data=b"?", mime_type="image/\x1b[2Jtiff"), "[image \ufffd[2Jtiff]"),
        (Part(kind="image"), "[image]"),
    ],
)
def test_what_stands_for_an_image_says_its_size_and_its_real_kind(part: Part, line: str) -> None:
    assert lists.picture_line(part) == line


def test_without_the_library_there_is_no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual_image.widget", None)
    assert not lists.prepare()
    assert lists.picture(image()) is None


class FakeImage(Static):
    """Stands for the library's widget, which is an extra."""

    def __init__(self, data: BytesIO, classes: str) -> None:
        super().__init__(classes=classes)
        if data.read(4) != b"\x89PNG":
            raise OSError("broken")


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("textual_image.widget")
    module.Image = FakeImage
    monkeypatch.setitem(sys.modules, "textual_image", ModuleType("textual_image"))
    monkeypatch.setitem(sys.modules, "textual_image.widget", module)


@pytest.mark.usefixtures("library")
def test_with_the_library_an_image_is_its_widget() -> None:
    assert lists.prepare()
    assert isinstance(lists.picture(image()), FakeImage)


@pytest.mark.usefixtures("library")
def test_a_broken_or_huge_image_is_none() -> None:
    lists.prepare()
    assert lists.picture(Part(kind="image", data=b"GIF89a\x05\x00\x07\x00")) is None
    header = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + (60_000).to_bytes(4) * 2
    assert lists.picture(Part(kind="image", data=header)) is None
    assert lists.picture(Part(kind="image", data=b"nonsense")) is None
