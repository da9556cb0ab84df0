"""The links of the README, the documentation and the examples lead somewhere, anchors included."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import pytest
from tests.docs.pages import DOCS, PAGES, ROOT

if TYPE_CHECKING:
    from pathlib import Path

LINKING = [*sorted(ROOT.glob("*.md")), *PAGES, *sorted((ROOT / "examples").rglob("*.md"))]
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def links(page: Path) -> list[str]:
    """Return the targets of the links of a page, without those that only show how a link is written."""
    return _LINK.findall(_CODE.sub("code", page.read_text("utf-8")))


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")
        again = [slug, *(f"{slug}-{number}" for number in range(1, 1 + len(found)))]
        found.add(next(name for name in again if name not in found))
    return found


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    broken: list[str] = []
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or not target.is_relative_to(ROOT):
            broken.append(link)
        elif anchor and anchor not in anchors(target):
            broken.append(f"{link}: that page has no such heading")
    assert broken == []


def test_every_page_has_its_line_in_the_index() -> None:
    listed = {
        (DOCS / link).resolve() for index in ("README.md", "README.zh-CN.md") for link in links(DOCS / index)
    }
    assert [str(page.relative_to(DOCS)) for page in PAGES if page not in listed] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_summary_says_something_and_ends(page: Path) -> None:
    text = page.read_text("utf-8")
    if text.startswith("---\n"):
        head = text.split("---\n")[1]
        keys = dict(line.split(": ", 1) for line in head.splitlines())
        assert list(keys) == ["summary", "read_when"]
        assert all(value.endswith((".", "。")) for value in keys.values())
