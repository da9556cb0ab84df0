from __future__ import annotations

from typing import Any

import pytest

from dragoman.config.dialect import Entry
from dragoman.config.dialects import dialect
from dragoman.config.documents import environment, parse
from dragoman.config.values import EntryReader, shown

TEXT = '{"a": {\n"command": "x",\n"args": [\n"one",\n2],\n"env": {\n"A": "1"},\n"headers": {\n"X": "y"}}}'


@pytest.fixture
def reader() -> EntryReader:
    document = parse(TEXT, "f.json", "json")
    return EntryReader(Entry("a", document.data["a"], document, ("a",)), dialect("dragoman"))


def test_a_text_is_a_text_or_a_problem(reader: EntryReader) -> None:
    assert reader.text("cwd", "x") == "x"
    assert reader.text("cwd", None) is None
    assert reader.problems == []
    assert reader.text("command", None, required="needed") is None
    assert reader.text("command", " ", required="needed") is None
    assert reader.text("command", "a\0b") is None
    assert reader.text("command", ["secret"]) is None
    assert reader.problems == [
        "needed",
        "needed",
        "`command` (line 2): it contains a NUL character",
        "`command` (line 2): expected a text, not a list",
    ]


def test_the_first_problem_has_the_place(reader: EntryReader) -> None:
    reader.problem("args", "wrong", 1)
    reader.problem("command", "wrong too")
    assert (reader.pointer, reader.line, reader.culprit.name) == (("a", "args", 1), 5, "a")
    assert reader.problems[0] == "`args.1` (line 5): wrong"


def test_a_problem_of_the_whole_entry_has_no_key(reader: EntryReader) -> None:
    reader.problem("", "wrong")
    assert (reader.problems, reader.pointer, reader.line) == (["wrong"], ("a",), 1)


def test_without_lines_a_problem_has_its_key_only() -> None:
    document = environment({"URL": "x"})
    reader = EntryReader(Entry("a", {}, document, ("URL",), flat=True), dialect("dragoman"))
    reader.problem("url", "wrong")
    reader.name("url", "url")
    assert (reader.problems, reader.line, reader.lines) == (["`url`: wrong"], None, {})


def test_simple_values_are_checked(reader: EntryReader) -> None:
    assert reader.boolean("lazy", True) is True
    assert reader.boolean("lazy", None) is None
    assert reader.count("max_concurrency", 3) == 3
    assert reader.count("max_concurrency", None) is None
    assert reader.choice("trust", "off", ["on", "off"]) == "off"
    assert reader.choice("trust", None, ["on", "off"]) is None
    assert reader.mapping("timeouts", {"call": 1}) == {"call": 1}
    assert reader.mapping("timeouts", None) == {}
    assert reader.problems == []
    assert reader.boolean("lazy", 0) is None
    assert reader.count("max_concurrency", 1.5) is None
    assert reader.choice("trust", "maybe", ["on", "off"]) is None
    assert reader.mapping("timeouts", []) == {}
    assert len(reader.problems) == 4


def test_lists_are_converted(reader: EntryReader) -> None:
    assert reader.strings("args", ["one", 2, 2.5, False]) == ["one", "2", "2.5", "false"]
    assert reader.strings("args", None) == []
    assert reader.one_or_many("fallback", "a") == ["a"]
    assert reader.one_or_many("fallback", None) == []
    assert reader.one_or_many("fallback", ["a", "b"]) == ["a", "b"]
    assert [(note.code, note.key) for note in reader.notes] == [("type", "args.3")]
    assert (reader.lines["args.0"], reader.lines["args.1"]) == (4, 5)


@pytest.mark.parametrize("value", ["secret", {"a": "secret"}, ["a", None], [["secret"]], ["a\0"]])
def test_a_list_of_anything_else_is_a_problem(reader: EntryReader, value: Any) -> None:
    assert reader.strings("args", value) is None
    assert len(reader.problems) == 1
    assert "secret" not in reader.problems[0]


def test_a_list_inside_a_table_belongs_to_its_key(reader: EntryReader) -> None:
    assert reader.strings("auth", ["a"], inner="scopes") == ["a"]
    assert "auth.0" not in reader.lines
    assert reader.strings("auth", [[]], inner="scopes") is None
    assert reader.pointer == ("a", "auth", "scopes")


def test_an_environment_may_take_variables_away(reader: EntryReader) -> None:
    assert reader.environment("env", {"A": "1", "B": None, "C": 2}) == {"A": "1", "B": None, "C": "2"}
    assert reader.environment("env", None) == {}
    assert reader.lines["env.A"] == 7


@pytest.mark.parametrize("value", [5, {"": "1"}, {"A\0": "1"}, {"A=b": "1"}, {"A": []}])
def test_an_environment_of_anything_else_is_a_problem(reader: EntryReader, value: Any) -> None:
    assert reader.environment("env", value) is None
    assert len(reader.problems) == 1


def test_headers_have_names_and_no_line_breaks(reader: EntryReader) -> None:
    assert reader.texts("headers", {"X": "y", "Z": None, "E=": "1"}, header=True) == {"X": "y", "E=": "1"}
    assert reader.texts("headers", 5) is None
    assert reader.texts("headers", {"X": "a\nb"}) == {"X": "a\nb"}
    assert reader.texts("headers", {"X": "a\nb"}, header=True) is None
    assert reader.texts("headers", {"a\rb": "x"}, header=True) is None
    assert len(reader.problems) == 3


def test_a_note_names_the_key_as_the_file_spells_it(reader: EntryReader) -> None:
    reader._entry.spellings["url"] = "httpUrl"
    reader.note("transport", "url", "m")
    assert reader.notes[0].key == "httpUrl"


@pytest.mark.parametrize(
    ("value", "openly", "privately"),
    [
        (None, "null", "null"),
        ({"a": "secret"}, "an object", "an object"),
        (["secret"], "a list", "a list"),
        (True, "true", "true"),
        (5, "the number 5", "a number"),
        (1.5, "the number 1.5", "a number"),
        ("text", "'text'", "a text"),
        ("x" * 99, "'" + "x" * 59, "a text"),
    ],
)
def test_a_value_is_shown_as_far_as_it_may_be(value: object, openly: str, privately: str) -> None:
    assert shown(value) == openly
    assert shown(value, private=True) == privately
