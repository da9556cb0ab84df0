"""The documentation site: its pages, their order, their links; `make docs` builds it from these."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from scripts.build_site import DOCS, ROOT, Page, broken, for_the_site, index_for_models, navigation, pages

from dragoman.cli.exits import Exit
from dragoman.cli.main import COMMANDS

if TYPE_CHECKING:
    from pathlib import Path

FOUND = pages()
GOALS = [
    "Connect my agent",
    "Use my editor's servers",
    "Serve many users",
    "Search thousands of tools",
    "Run it in CI",
]


def places(order: list[object]) -> list[str]:
    return [
        place
        for row in order
        for below in (row.values() if isinstance(row, dict) else [row])
        for place in (places(below) if isinstance(below, list) else [below])
    ]


def test_the_order_begins_with_what_a_reader_wants_and_the_five_applications_follow() -> None:
    order = navigation(FOUND, DOCS / "README.md")
    wants, applications = order[1]["I want to …"], order[2]["Five applications"]
    assert [title for row in wants[1:] for title in row] == GOALS
    assert [place for row in applications for place in row.values()][:5] == [
        f"how-to/{name}.md" for name in ("excelmanus", "legal", "otter", "kode", "rrclaw")
    ]


def test_every_page_of_a_language_is_in_its_order() -> None:
    english = set(places(navigation(FOUND, DOCS / "README.md")))
    chinese = {f"zh/{place}" for place in places(navigation(FOUND, DOCS / "README.zh-CN.md"))}
    missing = {
        page.place for page in FOUND.values() if not page.place.startswith(("examples/", "zh/examples"))
    }
    missing -= english | chinese
    assert missing <= {"code_of_conduct.md"}
    assert {"cli.md", "api.md", "mission.md", "overview.md"} <= english


def test_links_lead_to_pages_and_files_become_titles() -> None:
    page = for_the_site(FOUND[DOCS / "how-to/kode.md"], FOUND)
    assert '```python title="main.py"' in page
    assert "](../examples/kode/index.md)" in page
    assert "<!--" not in page
    overview = for_the_site(FOUND[ROOT / "README.md"], FOUND)
    assert {"](tutorial.md)", "](zh/overview.html)", "](images/console.png)"} <= set(
        re.findall(r"\]\([^)]+\)", overview)
    )
    assert "](../tests/" not in for_the_site(FOUND[DOCS / "mission.md"], FOUND)


def test_chinese_lines_are_joined_where_html_would_put_a_space() -> None:
    page = Page(
        DOCS / "x.zh-CN.md",
        "zh/x.md",
        "# 标题\n正文，\n继续 a\nb\n\n- 一项\n  继续\n\n```text\n一\n二\n```\n\n甲\n\n乙\n",
    )
    _, _, text = for_the_site(page, FOUND).partition("---\n# ")
    assert text == "标题\n正文，继续 a\nb\n\n- 一项继续\n\n```text\n一\n二\n```\n\n甲\n\n乙\n"


def test_a_models_index_names_every_page_that_the_order_has() -> None:
    said = index_for_models(FOUND)
    assert said.startswith("# dragoman\n\n> dragoman connects ")
    assert set(re.findall(r"\]\(([\w./-]+\.md)\)", said)) >= set(
        places(navigation(FOUND, DOCS / "README.md"))
    ) - {"index.md"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('<a href="b.html#here">b</a><img src="data:,"><a href="https://example.com/">far</a>', None),
        ('<a href="c.html">c</a>', "c.html leads nowhere"),
        ('<a href="b.html#gone">b</a>', "no such heading"),
        ('<a href="#gone">a</a>', "no such heading"),
        ('<script src="https://cdn.example/x.js"></script>', "loads https://cdn.example/x.js"),
        ('<link rel="stylesheet" href="//cdn.example/x.css">', "loads //cdn.example/x.css"),
    ],
)
def test_the_check_finds_what_leads_nowhere_or_elsewhere(
    text: str, problem: str | None, tmp_path: Path
) -> None:
    (tmp_path / "a.html").write_text(text, "utf-8")
    (tmp_path / "b.html").write_text('<h2 id="here">B</h2>', "utf-8")
    found = broken(tmp_path)
    assert (found == []) if problem is None else (len(found) == 1 and problem in found[0])


def test_the_check_reads_styles(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text("@import 'https://fonts.example/x'", "utf-8")
    assert len(broken(tmp_path)) == 1


def first_cells(page: str) -> list[set[str]]:
    """What is code in the first column, for each table of a page."""
    tables = re.findall(r"(?:^\|.*\n)+", (DOCS / page).read_text("utf-8"), re.MULTILINE)
    return [
        set(re.findall(r"`([^`]+)`", " ".join(re.findall(r"^\|([^|]*)\|", one, re.MULTILINE))))
        for one in tables
    ]


def test_the_chinese_configuration_has_every_key_of_the_english_one() -> None:
    english, chinese = (first_cells(f"configuration{end}.md") for end in ("", ".zh-CN"))
    assert chinese == english[:-1]  # the other hosts are in English alone


def test_the_chinese_index_has_every_command_and_every_exit_code() -> None:
    page = (DOCS / "commands.zh-CN.md").read_text("utf-8")
    assert set(re.findall(r"^\| `dragoman (\w+)` \|", page, re.MULTILINE)) == set(COMMANDS)
    assert set(re.findall(r"^\| (\d+) \|", page, re.MULTILINE)) == {str(code.value) for code in Exit}
