"""Pieces of results: as JSON, and as files that never go astray."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from dragoman.cli.output import part_reports, save
from dragoman.errors import DragomanError
from dragoman.model import Part
from dragoman.trust.encoding import encoded

IMAGE = Part(kind="image", data=b"abc", mime_type="image/png", text="[image]")


def test_bytes_are_base64_unless_they_were_saved() -> None:
    (whole,) = encoded(part_reports([IMAGE], {}))
    assert base64.b64decode(whole["data"]) == b"abc"
    (saved,) = encoded(part_reports([IMAGE], {0: Path("x.png")}))
    assert (saved["file"], saved["size"], "data" in saved) == ("x.png", 3, False)
    data = Part(kind="structured", value=[1])
    assert encoded(part_reports([data], {})) == [{"kind": "structured", "value": [1]}]


@pytest.mark.parametrize(
    ("stem", "mime_type", "name"),
    [
        ("shot", "image/jpeg", "shot-1.jpg"),
        ("../../etc/passwd", "image/png", "etc_passwd-1.png"),
        ("", "what/ever", "content-1.bin"),
        ("a{b}c", "", "a_b_c-1.bin"),
    ],
)
def test_a_file_lands_in_its_folder_whatever_the_server_calls_it(
    stem: str, mime_type: str, name: str, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    saved = save(
        [Part(kind="text", text="x"), Part(kind="image", data=b"1", mime_type=mime_type)], folder, stem
    )
    assert saved == {1: folder / name}
    assert [path.name for path in folder.iterdir()] == [name]


def test_no_folder_saves_nothing_and_a_folder_that_is_none_is_an_error(tmp_path: Path) -> None:
    assert save([IMAGE], None, "x") == {}
    (tmp_path / "file").write_text("")
    with pytest.raises(DragomanError, match="cannot write to"):
        save([IMAGE], tmp_path / "file", "x")
