from collections.abc import Sequence

import pytest

from dragoman.demo.legal import SampleRecord, load_cases, load_statutes, load_templates


@pytest.mark.parametrize(
    ("records", "at_least"),
    [(load_statutes(), 20), (load_cases(), 12), (load_templates(), 5)],
    ids=["statutes", "cases", "templates"],
)
def test_records_are_unique_dated_and_labelled_as_samples(
    records: Sequence[SampleRecord], at_least: int
) -> None:
    assert len(records) >= at_least
    assert len({record.key for record in records}) == len(records)
    assert len({record.source.url for record in records}) == len(records)
    for record in records:
        assert "SAMPLE" in record.source.title
        assert record.source.locator
        assert record.source.url.startswith("sample://legal/")
        assert not record.title_zh.isascii()
        assert any(not keyword.isascii() for keyword in record.keywords)


def test_cases_cite_articles_that_exist() -> None:
    articles = {statute.key for statute in load_statutes()}
    assert {article for case in load_cases() for article in case.cites} <= articles


def test_filling_replaces_every_placeholder_and_expands_no_value() -> None:
    template = next(each for each in load_templates() if each.template_id == "deposit-return")
    assert template.placeholders == ["landlord", "address", "end_date", "amount", "tenant"]
    values = dict.fromkeys(template.placeholders, "x") | {"tenant": "{{amount}}", "amount": "1,200"}
    document = template.fill(values)
    assert "deposit of 1,200 within" in document
    assert document.endswith("{{amount}}")


def test_filling_without_a_value_names_the_placeholder() -> None:
    template = load_templates()[0]
    with pytest.raises(KeyError, match=template.placeholders[0]):
        template.fill({})
