from __future__ import annotations

import pytest
from tests.unit.tools.export.fitted import export, fitted, parameter, whys

from dragoman.tools.export.apis.openai import MAX_DESCRIPTION, reads

pytestmark = pytest.mark.requirement("excel-4.2")

STRING = {"type": "string"}


def test_shapes_of_both_apis() -> None:
    schema = parameter(STRING)
    [chat] = export("openai", schema).tools
    [response] = export("responses", schema).tools
    assert chat == {
        "type": "function",
        "function": {"name": "t", "description": "Does it.", "parameters": schema},
    }
    assert response == {
        "type": "function",
        "name": "t",
        "description": "Does it.",
        "parameters": schema,
        "strict": False,
    }


def test_strict_is_said_only_if_it_was_asked_for() -> None:
    assert "strict" not in export("openai", parameter(STRING)).tools[0]["function"]
    assert export("openai", parameter(STRING), strict=True).tools[0]["function"]["strict"] is True
    assert export("openai", parameter({}), strict=True).tools[0]["function"]["strict"] is False


@pytest.mark.parametrize(
    "bare", [{"type": "array"}, {"type": ["array", "null"]}, {"type": "array", "prefixItems": [STRING]}]
)
def test_array_that_does_not_name_its_items_has_any(bare: dict[str, object]) -> None:
    assert fitted("openai", parameter(bare)) == parameter({**bare, "items": {}})
    assert whys("openai", parameter(bare)) == [
        ("/inputSchema/properties/p", "`items` is added, for anything: the API requires it")
    ]


@pytest.mark.parametrize("pattern", ["^(?!x)a$", "(?<=a)b", r"\p{L}+", "[", "a" * 2000, "(" * 900])
def test_pattern_that_openai_refuses_is_told_in_words(pattern: str) -> None:
    schema = parameter({**STRING, "pattern": pattern, "description": "A word."})
    assert fitted("openai", schema) == parameter(
        {**STRING, "description": f"A word. Has to match the regular expression {pattern}"}
    )
    assert fitted("anthropic", schema) is schema


def test_other_patterns_stay() -> None:
    schema = parameter({**STRING, "pattern": r"^[\w-]+\.(a|b)$"})
    assert fitted("openai", schema) is schema


def test_names_by_pattern_stay_as_far_as_they_can_be_read() -> None:
    members = {
        "type": "object",
        "patternProperties": {"^a": STRING, "^(?=b)": STRING},
        "additionalProperties": False,
    }
    assert fitted("openai", parameter(members)) == parameter(
        {"type": "object", "patternProperties": {"^a": STRING}}
    )


def test_only_so_many_patterns_are_looked_at() -> None:
    schema = {"type": "object", "properties": {f"p{n}": {**STRING, "pattern": f"^{n}"} for n in range(100)}}
    kept = [one for one in fitted("openai", schema)["properties"].values() if "pattern" in one]
    assert len(kept) == 64


def test_reading_a_pattern_warns_of_nothing() -> None:
    assert reads("[[a]]")


def test_long_description_goes_on_in_that_of_the_parameters() -> None:
    text = "A sentence of some length. " * 80
    made = export("openai", {**parameter(STRING), "description": "Own."}, description=text)
    function = made.tools[0]["function"]
    assert len(function["description"]) <= MAX_DESCRIPTION
    head = function["description"].removesuffix(" … (continued in the description of the parameters)")
    rest = function["parameters"]["description"].removesuffix("\n\nOwn.")
    assert f"{head} {rest}" == text
    assert head.endswith(".")
    assert [change.where for change in made.changes["t"]] == ["/description"]


@pytest.mark.parametrize("text", ["x" * 3000, "词" * 1025, "a\n" * 600])
def test_no_character_of_a_description_without_sentences_is_lost(text: str) -> None:
    function = export("openai", parameter(STRING), description=text).tools[0]["function"]
    head = function["description"].removesuffix(" … (continued in the description of the parameters)")
    whole = head + function["parameters"]["description"]
    assert "".join(whole.split()) == "".join(text.split())


def test_description_of_the_limit_is_left_alone() -> None:
    text = "x" * MAX_DESCRIPTION
    assert export("openai", parameter(STRING), description=text).tools[0]["function"]["description"] == text
    assert export("responses", parameter(STRING), description=text * 7).tools[0]["description"] == text * 7
