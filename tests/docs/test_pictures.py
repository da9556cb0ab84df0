"""The pictures of the documentation show what the program shows: each is drawn again, and its words are compared.

`make picture` writes them. Figures differ from run to run; words do not, but for the last lines above the keys: a longer
duration may break a line, and push the last one out.
"""

from __future__ import annotations

import re
from itertools import groupby
from xml.etree import ElementTree as ET

from scripts import dashboard_picture, picture

TEXT = "{http://www.w3.org/2000/svg}text"
KEYS, LAST = 2, 3
"""How many lines the keys take, and how many above them may differ."""


def lines(svg: str) -> list[set[str]]:
    """What is written in each line of a picture, without figures, identifiers and the marks of a chart."""
    texts = sorted(
        (float(one.get("y", "0")), "".join(one.itertext())) for one in ET.fromstring(svg).iter(TEXT)
    )
    shown = [" ".join(text for _, text in row) for _, row in groupby(texts, lambda one: one[0])]
    found = [
        {word for word in re.findall(r"[^\s\u2580-\u259f]+", line) if not re.search(r"\d|^m?s$", word)}
        for line in shown
    ]
    return [words for words in found if words]


def missing(svg: str, other: str) -> set[str]:
    """The words of a picture that another one has not."""
    ours = lines(svg)
    return set().union(*ours[: -KEYS - LAST], *ours[-KEYS:]) - set().union(*lines(other))


async def test_the_pictures_of_the_dashboard_show_its_words() -> None:
    for path, svg in (await dashboard_picture.drawn()).items():
        stored = path.read_text("utf-8")
        assert (missing(stored, svg), missing(svg, stored)) == (set(), set()), (
            f"{path.name}: run make picture"
        )


def test_the_picture_of_a_first_contact_shows_what_its_commands_print() -> None:
    assert lines(picture.PICTURE.read_text("utf-8")) == lines(picture.drawn()), "run make picture"
