from __future__ import annotations

import pytest

from dragoman.config import documents
from dragoman.config.documents import Document, dotted, environment, parse, without_comments
from dragoman.errors import ConfigSyntaxError

pytestmark = pytest.mark.requirement("excel-1.1", "excel-1.6")


def refused(text: str, format_: str) -> ConfigSyntaxError:
    with pytest.raises(ConfigSyntaxError) as caught:
        parse(text, "the file", format_)  # type: ignore[arg-type]
    assert caught.value.source == "the file"
    return caught.value


@pytest.mark.parametrize(
    ("format_", "text"),
    [
        ("json", '{"a": {"b": [1, 2.5, true, null, "é"]}}'),
        ("toml", 'a.b = [1, 2.5, true, "é"]'),
        ("yaml", "a: {b: [1, 2.5, true, é]}"),
    ],
)
def test_each_format_gives_plain_data(format_: str, text: str) -> None:
    data = parse(text, "f", format_).data  # type: ignore[arg-type]
    assert [item for item in data["a"]["b"] if item is not None] == [1, 2.5, True, "é"]


@pytest.mark.parametrize(
    ("format_", "text"), [("json", " \n"), ("toml", ""), ("yaml", "# nothing"), ("env", "")]
)
def test_an_empty_file_is_an_empty_object(format_: str, text: str) -> None:
    assert parse(text, "f", format_).data == {}  # type: ignore[arg-type]


def test_json_may_have_comments_and_trailing_commas() -> None:
    text = '{\n// one, ]\n"a": "//x, }", /* two\n } */ "b": [1, 2, ],\n}'
    document = parse(text, "f", "json")
    assert document.data == {"a": "//x, }", "b": [1, 2]}
    assert document.line(("b",)) == 4


def test_blanking_comments_moves_nothing() -> None:
    text = '{"a": 1, // x\n /* y */ "b": [2,],} /* open'
    plain = without_comments(text)
    assert len(plain) == len(text)
    assert plain.index('"b"') == text.index('"b"')


@pytest.mark.parametrize(
    ("format_", "text", "line", "message"),
    [
        ("json", '{\n"a": 1\n"b": 2}', 3, "not valid JSON: expecting ',' delimiter (column 1)"),
        ("json", '{"a": 1', 1, "not valid JSON: expecting ',' delimiter"),
        ("json", "{'a': 1}", 1, "not valid JSON: expecting property name"),
        ("toml", "a = 1\nb = = 2", 2, "not valid TOML: Invalid value (at line 2, column 5)"),
        ("toml", "a = 1\na = 2", 2, "not valid TOML: Cannot overwrite a value"),
        ("toml", "a = 1\nb = [", 2, "end of document"),
        ("yaml", "a: 1\nb: [", 2, "node content"),
        ("yaml", "a: 1\nb: *nowhere", 2, "not valid YAML: found undefined alias"),
        ("yaml", "a: 1\nb: !!python/object:os.system x", 2, "could not determine a constructor for the tag"),
        ("yaml", 'a: 1\nb: !!int "secret"', 2, "a value does not match its tag"),
        ("yaml", "a: 1\nb: 2024-99-99", 2, "a value does not match its tag"),
        ("yaml", "a: 1\nb: !!timestamp secret", 2, "a value does not match its tag"),
        ("yaml", "a: 1\n? [b]\n: c", 2, "found unhashable key"),
        ("yaml", "a: 1\nb: \x01", 2, "the character U+0001 is not allowed"),
        ("yaml", "a: 1 # \x85\nb: [", 2, "not valid YAML"),
        ("yaml", "--- 1\n--- 2", 2, "not valid YAML: but found another document"),
        ("yaml", "a: 1\nb: !!binary eA==", 2, "a value of type `bytes` is not allowed"),
    ],
)
def test_a_text_that_does_not_parse_is_an_error_with_its_line(
    format_: str, text: str, line: int, message: str
) -> None:
    error = refused(text, format_)
    assert error.line == line
    assert message in error.message
    assert "secret" not in str(error)


@pytest.mark.parametrize(("format_", "text"), [("json", '{"a": %s}'), ("toml", "a = %s")])
def test_a_number_with_thousands_of_digits_is_refused(format_: str, text: str) -> None:
    assert "a number has too many digits" in refused(text % ("9" * 5000), format_).message


@pytest.mark.parametrize(
    ("format_", "text"), [("json", '{"b": 1,\n"a": %d}'), ("toml", "b = 1\na = %d"), ("yaml", "b: 1\na: %d")]
)
def test_a_number_beyond_the_bounds_is_refused_with_its_place(format_: str, text: str) -> None:
    error = refused(text % 2**1024, format_)
    assert (error.line, error.pointer) == (2, "a")
    assert "1024 bits" in error.message
    assert parse(text % -(2**1023), "f", format_).data["a"] == -(2**1023)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("format_", "text"),
    [
        ("json", "[" * 70 + "]" * 70),
        ("json", "[" * 100_000 + "]" * 100_000),
        ("toml", "a = " + "[" * 70 + "]" * 70),
        ("toml", "a = " + "[" * 10_000),
        ("toml", "a." * 40_000 + "a = 1"),
        ("toml", "[" + "'a' . " * 40_000 + "a]"),
        ("toml", "x = {" + '"a" .\t' * 40_000 + "a = 1}"),
        ("yaml", "[" * 70 + "]" * 70),
        ("yaml", "[" * 10_000),
        ("yaml", "a: &x [*x]"),
    ],
)
def test_depth_is_bounded(format_: str, text: str) -> None:
    assert refused(text, format_).message.startswith("the file is nested too deeply: ")


def test_the_number_of_values_is_bounded_so_that_aliases_cannot_explode() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 8)]
    error = refused("\n".join(lines), "yaml")
    assert error.message == "the file holds more than 200,000 values"
    assert error.line is not None


def test_mappings_that_merge_each_other_cannot_explode() -> None:
    lines = ["a0: &a0 {k0: 1, k1: 1, k2: 1, k3: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 12)]
    assert "merges more than" in refused("\n".join(lines), "yaml").message


def test_a_long_dotted_text_is_no_deep_key() -> None:
    text = "a." * 100
    assert parse(f'b = "{text}" # {text}', "f", "toml").data == {"b": text}


def test_the_length_of_a_key_is_bounded() -> None:
    error = refused('{"b": {"%s": 1}}' % ("a" * 5000), "json")
    assert error.message == "a key has more than 4,096 characters"
    assert error.pointer == "b"


def test_the_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_BYTES", 2**20)
    assert refused(" " * (2**20 + 1), "json").message == "the file is larger than 1 MiB"


def test_odd_values_become_texts() -> None:
    toml = parse("a = inf\nb = nan\nc = 1979-05-27\nd = 1979-05-27T07:32:00Z\ne = 07:32:00", "f", "toml")
    assert toml.data["a"] == "inf"
    assert toml.data["b"] == "nan"
    assert [toml.data[key] for key in "cde"] == ["1979-05-27", "1979-05-27T07:32:00+00:00", "07:32:00"]


def test_odd_keys_of_yaml_become_texts() -> None:
    assert parse("2: a\nyes: b\n~: c\n2024-01-31: d", "f", "yaml").data == {
        "2": "a",
        "true": "b",
        "null": "c",
        "2024-01-31": "d",
    }


def test_sets_and_pairs_of_yaml_become_lists() -> None:
    assert parse("a: !!set {x}\nb: !!pairs [c: 1]", "f", "yaml").data == {"a": ["x"], "b": [["c", 1]]}


def test_half_a_character_becomes_a_replacement() -> None:
    data = parse('{"\\ud83d": "a\\ude00b", "whole": "\\ud83d\\ude00"}', "f", "json").data
    assert data == {"\ufffd": "a\ufffdb", "whole": "\U0001f600"}


@pytest.mark.parametrize(
    ("format_", "text"),
    [
        ("json", '{"s": {"a": 1,\n"b": [\n{"c": 1},\n{"c": 2}]}}'),
        ("toml", "[s]\na = 1\n"),
        ("yaml", "s:\n  a: 1\n  b:\n    - c: 1\n"),
    ],
)
def test_a_key_has_a_line_and_an_unknown_one_that_of_what_is_around_it(format_: str, text: str) -> None:
    document = parse(text, "f", format_)  # type: ignore[arg-type]
    lines = text.splitlines()
    line = document.line(("s", "a"))
    assert line is not None
    assert "a" in lines[line - 1]
    assert document.line(("s", "a", "deeper", 3)) == line
    assert document.line(("nowhere",)) is None


def test_items_of_yaml_have_lines() -> None:
    document = parse("s:\n  - a: 1\n  - b:\n    - 2\n    - 3", "f", "yaml")
    assert document.line(("s", 1)) == 3
    assert document.line(("s", 1, "b", 1)) == 5
    assert document.line(("s", 1, "b")) == 3


@pytest.mark.parametrize("format_", ["json", "yaml"])
def test_a_key_that_stands_twice_is_told_with_its_last_line(format_: str) -> None:
    document = parse('{"a": 1,\n"b": [{"c": 1,\n"c": 2}],\n"a": 2}', "f", format_)  # type: ignore[arg-type]
    assert document.data == {"a": 2, "b": [{"c": 2}]}
    assert document.repeats == {("a",): 4, ("b", 0, "c"): 3}


def test_a_repetition_in_json_with_comments_is_told_too() -> None:
    assert parse('{"a": 1, // x\n"a": 2,}', "f", "json").repeats == {("a",): 2}


def test_what_yaml_merges_is_no_repetition() -> None:
    document = parse("x: &x {a: 1, b: 2}\ny:\n  <<: *x\n  a: 3\nz: *x", "f", "yaml")
    assert document.data["y"] == {"a": 3, "b": 2}
    assert not document.repeats


def test_an_env_file_is_a_document_with_lines() -> None:
    document = parse("\nA=1\n", "f", "env")
    assert document.data == {"A": "1"}
    assert document.line(("A",)) == 2


def test_the_environment_is_a_document_without_lines() -> None:
    document = environment({"A": "1"})
    assert (document.source, document.data, document.line(("A",))) == ("environment", {"A": "1"}, None)


def test_a_document_shows_nothing_of_what_it_holds() -> None:
    assert "secret" not in repr(parse('{"a": "secret"}', "f", "json"))
    assert "secret" not in repr(Document("f", "env", {"A": "secret"}, "A=secret"))


def test_a_pointer_is_written_with_dots_and_without_control_characters() -> None:
    assert dotted(("mcpServers", "a\x1b[2J\n", "args", 0)) == "mcpServers.a\\x1b[2J\\n.args.0"
    assert dotted(("naïve 服务器",)) == "naïve 服务器"
    assert dotted(("files\u3164",)) == "files\\u3164"


def test_the_whole_of_a_file_begins_in_its_first_line() -> None:
    assert parse('{\n  "url": null\n}', "x.json", "json").line(()) == 1
    assert parse("", "x.json", "json").line(()) is None
