"""The pages of the documentation and their blocks of code: what there is, and which test runs it.

Nothing is registered anywhere. Every block of every page in `docs/` is run by `test_pages.py`, in the order of the
page, unless the page is written by a script (which has its own check), its blocks are those of the English page, it
names the test that runs it (`<!-- Run by tests/docs/test_tutorial.py -->`), or a test says that it takes the blocks of one language, by this
very call: `blocks("python", (ROOT / "docs/agent.md").read_text("utf-8"))`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
_FENCE = re.compile(
    r"(?:^<!-- file: (?P<file>\S+) -->\n)?^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)
_CLAIM = re.compile(r'blocks\("(\w+)", \(ROOT / "docs/([\w/-]+\.md)"\)')
"""How a test takes the blocks of a page to run them itself."""
_GENERATED = "<!-- Written by scripts/"
_RUN_BY = re.compile(r"^<!-- Run by (tests/\S+\.py) -->$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """One block of code."""

    language: str
    text: str
    file: str
    """The file that a reader is told to write it to; empty: none."""
    line: int


def all_blocks(text: str) -> list[Block]:
    """Return every block of a page, in its order."""
    return [
        Block(
            language=found["language"],
            text=re.sub(rf"^{found['indent']}", "", found["text"], flags=re.MULTILINE),
            file=found["file"] or "",
            line=text.count("\n", 0, found.start("language")) + 1,
        )
        for found in _FENCE.finditer(text)
    ]


def blocks(language: str, text: str) -> list[str]:
    """Return the blocks of one language."""
    return [block.text for block in all_blocks(text) if block.language == language]


def unclaimed(page: Path) -> list[Block]:
    """Return the blocks of a page that no other test takes."""
    text = page.read_text("utf-8")
    if _GENERATED in text or _has_own_test(page, text) or _is_translated(page, text):
        return []
    taken = _claimed(page)
    return [block for block in all_blocks(text) if block.language not in taken]


def _has_own_test(page: Path, text: str) -> bool:
    own = _RUN_BY.search(text)
    return own is not None and f'"docs/{page.relative_to(DOCS)}"' in (ROOT / own[1]).read_text("utf-8")


def _is_translated(page: Path, text: str) -> bool:
    english = page.with_name(page.name.replace(".zh-CN", ""))
    if english in (page, DOCS / "README.md") or not english.exists():
        return False
    ours, theirs = (
        [(block.language, block.text, block.file) for block in all_blocks(one)]
        for one in (text, english.read_text("utf-8"))
    )
    return ours == theirs


def _claimed(page: Path) -> set[str]:
    tests = ROOT / "tests"
    files = [*tests.glob("docs/test_*.py"), *tests.glob("prove/test_*.py")]
    claims = [claim for file in files for claim in _CLAIM.findall(file.read_text("utf-8"))]
    return {language for language, name in claims if DOCS / name == page}
