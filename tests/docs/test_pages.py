"""Every page in `docs/`: its blocks are run in their order, and its links lead somewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.docs.pages import DOCS, PAGES, all_blocks, unclaimed
from tests.docs.running import Reader

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.usefixtures("warm_python")
@pytest.mark.timeout(180)  # a page may start real servers, one after the other
@pytest.mark.parametrize(
    "page", [page for page in PAGES if unclaimed(page)], ids=lambda page: str(page.relative_to(DOCS))
)
def test_a_reader_who_does_what_the_page_says_sees_what_it_shows(
    page: Path, tmp_path: Path, home: Path
) -> None:
    Reader(tmp_path, home).follow(unclaimed(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_block_of_a_page_is_seen_and_has_a_language(page: Path) -> None:
    text = page.read_text("utf-8")
    assert text.count("```") == 2 * len(all_blocks(text))
    assert [block.line for block in all_blocks(text) if not block.language] == []
