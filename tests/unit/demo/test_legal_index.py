import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.demo.legal import (
    Case,
    LegalIndex,
    Statute,
    article_number,
    load_cases,
    load_statutes,
    loosen,
    split_terms,
)

SYNTAX = [
    '"',
    "'",
    "*",
    "^",
    "NEAR(",
    " OR ",
    "AND",
    "NOT",
    "title:",
    "{",
    "-",
    "%",
    "_",
    "\\",
    "\0",
    "劳动",
    "a",
]
queries = st.text(st.characters()) | st.lists(st.sampled_from(SYNTAX)).map("".join)


@pytest.fixture(scope="module", params=[True, False], ids=["trigrams", "like"])
def index(request: pytest.FixtureRequest) -> Iterator[LegalIndex]:
    built = LegalIndex(full_text=request.param)
    assert built.full_text is request.param
    yield built
    built.close()


@pytest.mark.parametrize("statute", load_statutes(), ids=lambda statute: statute.key)
def test_article_is_found_by_its_titles_and_its_keywords(index: LegalIndex, statute: Statute) -> None:
    for query in (statute.title, statute.title.upper(), statute.title_zh, *statute.keywords):
        assert statute in index.search_statutes(query, limit=20), query


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case.key)
def test_case_is_found_by_its_titles_and_its_holding(index: LegalIndex, case: Case) -> None:
    for query in (case.title, case.title_zh, case.holding, *case.keywords):
        assert case in index.search_cases(query, limit=20), query


@pytest.mark.parametrize("query", ["overtime hourly wage", "加班", "加班工资", "加班费 overtime"])
def test_article_that_holds_every_term_comes_alone(index: LegalIndex, query: str) -> None:
    assert [statute.key for statute in index.search_statutes(query)] == ["labour-standards/12"]


@pytest.mark.parametrize(
    "query", ["公司没有支付加班工资怎么办", "What must my employer pay for overtime on a holiday?"]
)
def test_question_finds_the_article_that_shares_most_with_it(index: LegalIndex, query: str) -> None:
    assert index.search_statutes(query, limit=1)[0].key == "labour-standards/12"


def test_title_weighs_more_than_text() -> None:
    index = LegalIndex()
    assert index.search_statutes("dismissal", limit=1)[0].title == "Notice of dismissal"
    assert index.search_statutes("written", limit=1)[0].title == "Written employment contract"
    index.close()


def test_limit_bounds_the_results(index: LegalIndex) -> None:
    assert len(index.search_statutes("employer", limit=20)) > 2
    assert len(index.search_statutes("employer", limit=2)) == 2
    assert index.search_statutes("employer", limit=0) == []


@pytest.mark.parametrize("court", ["Labour Tribunal", "labour", "仲裁"])
def test_court_narrows_the_cases(index: LegalIndex, court: str) -> None:
    everywhere = index.search_cases("dismissal")
    assert {case.court for case in everywhere} == {"Sample High Court", "Sample Labour Tribunal"}
    assert {case.court for case in index.search_cases("dismissal", court=court)} == {"Sample Labour Tribunal"}


@pytest.mark.parametrize("query", ["", "  \n", "\0", "xylophone", "%", "___", 'the "what" of which'])
def test_query_without_a_match_finds_nothing(index: LegalIndex, query: str) -> None:
    assert index.search_statutes(query) == []


@given(query=queries, court=queries)
def test_any_query_is_answered(index: LegalIndex, query: str, court: str) -> None:
    assert all(isinstance(statute, Statute) for statute in index.search_statutes(query))
    assert all(isinstance(case, Case) for case in index.search_cases(query, court=court))
    assert index.statute(query, court) is None


def test_of_a_very_long_query_the_start_counts(index: LegalIndex) -> None:
    query = " ".join(["押金", *(f"word{number}" for number in range(50_000))])
    assert [statute.key for statute in index.search_statutes(query)] == ["residential-tenancy/4"]


def test_index_in_a_file_is_rebuilt_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "legal.db"
    for _ in range(2):
        index = LegalIndex(path)
        assert index.statutes() == load_statutes()
        index.close()
    database = sqlite3.connect(path)
    assert database.execute("SELECT count(*) FROM records").fetchone() == (32,)
    database.close()


def test_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE records (mine TEXT)")
    database.close()
    before = path.read_bytes()
    with pytest.raises(ValueError, match="another program"):
        LegalIndex(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("12", "12"),
        (" Art. 12 ", "12"),
        ("Article 7", "7"),
        ("第12条", "12"),
        ("第１２条", "12"),
        ("第十二条", "12"),
        ("第三条", "3"),
        ("第十条", "10"),
        ("第二十条", "20"),
        ("第二十一条", "21"),
        (" none ", "none"),
    ],
)
def test_article_number_is_read_as_people_write_it(written: str, number: str) -> None:
    assert article_number(written) == number


@given(queries)
def test_any_article_is_read(written: str) -> None:
    assert isinstance(article_number(written), str)


def test_terms_are_unique_and_free_of_what_sqlite_cannot_take() -> None:
    assert split_terms("a\0b a \ud800 押金") == ["a", "b", "押金"]


def test_loosened_terms_are_content_words_and_character_pairs() -> None:
    assert loosen(["What", "deposit?", "of", "加班费", "押"]) == ["deposit", "加班", "班费", "押"]
