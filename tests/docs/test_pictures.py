"""The pictures of the documentation show what the program shows: each is drawn again, and its words are compared.

`make picture` writes them. Figures differ from run to run; words do not.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from scripts import dashboard_picture, picture


def words(svg: str) -> list[str]:
    """What is written in a picture, without figures, identifiers and the marks of a chart."""
    shown = "\n".join(
        "".join(one.itertext()) for one in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    )
    return sorted(word for word in re.findall(r"[^\s\u2580-\u259f]+", shown) if not re.search(r"\d", word))


async def test_the_pictures_of_the_dashboard_show_its_words() -> None:
    for path, svg in (await dashboard_picture.drawn()).items():
        assert words(path.read_text("utf-8")) == words(svg), f"{path.name}: run make picture"


def test_the_picture_of_a_first_contact_shows_what_its_commands_print() -> None:
    stored = picture.PICTURE.read_text("utf-8")
    assert words(stored) == words(picture.drawn()), "run make picture"
