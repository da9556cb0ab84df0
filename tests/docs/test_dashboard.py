"""The page about the dashboard names the keys that the dashboard has, and shows pictures that exist."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from tests.docs.pages import DOCS

from dragoman.cli.dashboard.dialogs import KEYS

PAGE = (DOCS / "dashboard.md").read_text("utf-8")


def test_the_keys_are_those_of_the_dashboard() -> None:
    listed = PAGE.split("## Keys\n")[1]
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", listed, re.MULTILINE)
    assert tuple(rows[2:]) == KEYS


def test_the_pictures_are_drawings_of_the_dashboard() -> None:
    pictures = re.findall(r"\]\((images/[\w-]+\.svg)\)", PAGE)
    assert len(pictures) == 2
    for name in pictures:
        text = "".join(ET.parse(DOCS / name).getroot().itertext()).replace("\xa0", " ")
        assert "servers ready" in text, name
