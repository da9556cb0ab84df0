from __future__ import annotations

import difflib
import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dragoman.config import edit
from dragoman.config.documents import Document, parse
from dragoman.config.edit import put_json, remove_json
from dragoman.errors import ConfigError

ENTRY = {"command": "npx", "args": ["-y", "x"]}


def document(text: str) -> Document:
    return parse(text, "mcp.json", "json")


# ── random texts with comments

_SPACES = st.sampled_from(["", " ", "  ", "\t"])
_BREAKS = st.sampled_from(
    ["\n", "\n\n", "\n  // a } comment\n", '\n  /* one, "two" */\n', "\n\t/* {\n*/\n", " // end\n"]
)
_SCALARS = st.sampled_from(['"text"', '"a // b"', '"{,}"', "1", "-2.5e3", "true", "null", '"\\"\\u00e9"'])


@st.composite
def texts(draw: st.DrawFn, depth: int = 3) -> str:
    """Draw an object as people write it: any layout, comments anywhere, with or without trailing commas."""
    keys = draw(st.lists(st.sampled_from(["a", "b", "c", "mcpServers", "x y"]), unique=True, max_size=3))
    gap = _BREAKS if draw(st.booleans()) else _SPACES

    def value() -> str:
        kind = draw(st.integers(0, 3 if depth else 1))
        if kind < 2:
            return draw(_SCALARS)
        if kind == 2:
            return draw(texts(depth=depth - 1))
        items = [draw(_SCALARS) for _ in range(draw(st.integers(0, 2)))]
        return "[" + ",".join(draw(gap) + item for item in items) + draw(gap) + "]"

    members = [
        f"{draw(gap)}{json.dumps(key)}{draw(_SPACES)}:{draw(_SPACES)}{value()}{draw(gap)}" for key in keys
    ]
    trailing = "," + draw(gap) if members and draw(st.booleans()) else ""
    return "{" + ",".join(members) + trailing + draw(gap) + "}"


def pointers(data: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [inner for key, value in items for inner in [(*prefix, key), *pointers(value, (*prefix, key))]]


def lines_lost(old: str, new: str) -> list[str]:
    """Return the lines of the old text that are not in the new one."""
    changes = difflib.ndiff(old.split("\n"), new.split("\n"), linejunk=None, charjunk=None)
    return [line[2:] for line in changes if line.startswith("- ")]


@given(texts(), st.data())
def test_a_change_gives_exactly_the_data_that_was_meant(text: str, data: st.DataObject) -> None:
    before = document(text)
    containers = [(), *(p for p in pointers(before.data) if isinstance(edit.value_at(before.data, p), dict))]
    pointer = (*data.draw(st.sampled_from(containers)), data.draw(st.sampled_from(["a", "new", 'q"\\é'])))
    assert edit.put(before, pointer, ENTRY).data == edit.placed(before.data, pointer, ENTRY)


@given(texts(), st.data())
def test_a_removal_gives_exactly_the_rest(text: str, data: st.DataObject) -> None:
    before = document(text)
    places = pointers(before.data)
    assume(places)
    pointer = data.draw(st.sampled_from(places))
    after = edit.remove(before, pointer)
    assert len(pointers(after.data)) < len(places)


@given(texts())
def test_what_was_added_can_be_removed_and_leaves_every_comment(text: str) -> None:
    before = document(text)
    added = edit.put(before, ("new",), ENTRY)
    removed = edit.remove(added, ("new",))
    assert removed.data == before.data
    for mark in ("// a } comment", '/* one, "two" */', "/* {\n*/", "// end"):
        assert removed.text.count(mark) == text.count(mark)


# ── texts in which each entry has lines of its own

_NAMES = st.lists(st.sampled_from(["one", "two", "three", "four"]), unique=True, min_size=1)


@st.composite
def tidy(draw: st.DrawFn) -> tuple[str, list[str]]:
    names = draw(_NAMES)
    indent = draw(st.sampled_from(["  ", "    ", "\t"]))
    blocks: list[str] = []
    for name in names:
        comment = draw(
            st.sampled_from(["", f"{indent * 2}// about {name}\n", f"{indent * 2}/* {name}, */\n"])
        )
        blocks.append(
            f'{comment}{indent * 2}"{name}": {{\n{indent * 3}"command": "{name}" // run\n{indent * 2}}}'
        )
    comma = draw(st.sampled_from(["", ","]))
    body = ",\n".join(blocks) + comma
    text = f'{{\n{indent}"mcpServers": {{\n{body}\n{indent}}},\n{indent}"other": [1, 2] // kept\n}}\n'
    return text, names


@given(tidy(), st.sampled_from(["\n", "\r\n"]))
def test_adding_keeps_every_line_but_for_the_comma_of_the_one_before(
    case: tuple[str, list[str]], end: str
) -> None:
    text = case[0].replace("\n", end)
    new = edit.put(document(text), ("mcpServers", "added"), ENTRY).text
    lost = lines_lost(text, new)
    assert all(f"{line.rstrip(chr(13))}," in new for line in lost)
    assert len(lost) <= 1
    assert new.count("\n") == new.count(end)


@given(tidy(), st.data())
def test_removing_takes_the_lines_of_that_entry_only(
    case: tuple[str, list[str]], data: st.DataObject
) -> None:
    text, names = case
    name = data.draw(st.sampled_from(names))
    new = edit.remove(document(text), ("mcpServers", name)).text
    assert f'"command": "{name}"' not in new
    for other in names:
        assert (f'"command": "{other}" // run' in new) is (other != name)
        assert new.count(f"// about {other}") == text.count(f"// about {other}")
    assert '"other": [1, 2] // kept' in new


@given(tidy(), st.data())
def test_replacing_keeps_every_line_outside_that_entry(
    case: tuple[str, list[str]], data: st.DataObject
) -> None:
    text, names = case
    name = data.draw(st.sampled_from(names))
    new = edit.put(document(text), ("mcpServers", name), ENTRY).text
    inside = [f'"command": "{name}" // run', f'"{name}": {{', "}"]
    assert all(line.strip().rstrip(",") in inside for line in lines_lost(text, new))


# ── single cases


def test_an_empty_text_becomes_a_fresh_indented_file() -> None:
    assert put_json("", ("mcpServers", "x"), {"command": "a", "args": ["b", "c"], "env": {}}) == (
        '{\n  "mcpServers": {\n    "x": {\n      "command": "a",\n      "args": ["b", "c"],\n      "env": {}\n'
        "    }\n  }\n}\n"
    )


def test_a_long_list_takes_several_lines() -> None:
    text = put_json("{}", ("a",), ["x" * 50, "y" * 50])
    assert text == '{\n  "a": [\n    "' + "x" * 50 + '",\n    "' + "y" * 50 + '"\n  ]\n}'


def test_the_indentation_of_the_file_is_used() -> None:
    assert put_json('{\n\t"s": {\n\t\t"a": {}\n\t}\n}', ("s", "b"), {"c": 1}) == (
        '{\n\t"s": {\n\t\t"a": {},\n\t\t"b": {\n\t\t\t"c": 1\n\t\t}\n\t}\n}'
    )


def test_a_file_on_one_line_stays_on_one_line() -> None:
    assert put_json('{"s": {"a": 1}}', ("s", "b"), {"c": [1]}) == '{"s": {"a": 1, "b": {"c": [1]}}}'
    assert put_json('{"s": {"a": 1,}}', ("s", "b"), 2) == '{"s": {"a": 1, "b": 2,}}'
    assert remove_json('{"s": {"a": 1, "b": 2}}', ("s", "b")) == '{"s": {"a": 1}}'
    assert remove_json('{"s": {"a": 1, "b": 2}}', ("s", "a")) == '{"s": {"b": 2}}'


def test_trailing_commas_stay_the_custom_of_the_file() -> None:
    text = '{\n  "s": {\n    "a": 1, // one\n  },\n}'
    added = put_json(text, ("s", "b"), 2)
    assert added == '{\n  "s": {\n    "a": 1, // one\n    "b": 2,\n  },\n}'
    assert remove_json(added, ("s", "b")) == text


def test_the_last_member_takes_the_comma_before_it_along() -> None:
    assert remove_json('{\n  "a": 1, // one\n  "b": 2\n}', ("b",)) == '{\n  "a": 1 // one\n}'


def test_the_only_member_leaves_an_empty_object_or_its_comments() -> None:
    assert remove_json('{\n  "a": 1\n}', ("a",)) == "{}"
    assert remove_json('{\n  // why\n  "a": 1\n}', ("a",)) == "{\n  // why\n}"
    assert put_json("{\n  // why\n}", ("a",), 1) == '{\n  // why\n  "a": 1\n}'


def test_a_closing_bracket_on_the_last_line_gets_a_line_of_its_own() -> None:
    assert put_json('{\n  "a": 1 }', ("b",), 2) == '{\n  "a": 1,\n  "b": 2\n}'


def test_an_item_of_a_list_is_appended_replaced_and_removed() -> None:
    text = '[\n  {"name": "a"}\n]'
    added = put_json(text, (1,), {"name": "b"})
    assert json.loads(added) == [{"name": "a"}, {"name": "b"}]
    assert remove_json(added, (1,)) == text
    assert json.loads(put_json(text, (0, "enabled"), False)) == [{"name": "a", "enabled": False}]


def test_a_key_that_stands_twice_is_changed_where_it_counts_and_removed_altogether() -> None:
    text = '{"a": 1, "b": 2, "a": 3}'
    assert put_json(text, ("a",), 4) == '{"a": 1, "b": 2, "a": 4}'
    assert remove_json(text, ("a",)) == '{"b": 2}'


def test_a_null_where_servers_belong_becomes_an_object() -> None:
    assert json.loads(put_json('{"mcpServers": null}', ("mcpServers", "x"), {})) == {"mcpServers": {"x": {}}}


@pytest.mark.parametrize("text", ['{"mcpServers": 5}', '{"mcpServers": []}', "[1]"])
def test_a_place_that_cannot_hold_the_entry_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="left as it is") as caught:
        edit.put(document(text), ("mcpServers", "x"), {})
    assert caught.value.source == "mcp.json"


@pytest.mark.parametrize(
    "text", ["{", '{"a" 1}', '{"a": 1 "b": 2}', "{} x", '{"a": }', '{"a": "x', "[" * 300]
)
def test_a_text_that_does_not_scan_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="line 1"):
        put_json(text, ("x",), 1)


def test_what_is_not_there_cannot_be_removed() -> None:
    with pytest.raises(ConfigError, match="nothing to remove"):
        edit.remove(document("{}"), ("a", "b"))
    with pytest.raises(ValueError, match=r"nothing at `a\.b`"):
        remove_json("{}", ("a", "b"))


def test_other_formats_are_not_changed() -> None:
    with pytest.raises(ConfigError, match="YAML files are read but not changed"):
        edit.put(parse("a: 1", "x.yaml", "yaml"), ("b",), 1)


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(
    "text",
    ['{"rules": [{"a": 1}, {"b": 2}]}', '{\n  "rules": [\n    {"a": 1}, // one\n    {"b": 2}\n  ]\n}\n'],
    ids=["one line", "lines"],
)
def test_an_item_is_put_before_another(text: str, at: int) -> None:
    document = parse(text, "f.json", "json")
    changed = edit.insert(document, ("rules", at), {"new": [1, 2]})
    expected = [{"a": 1}, {"b": 2}]
    expected.insert(at, {"new": [1, 2]})  # type: ignore[dict-item]
    assert changed.data == {"rules": expected}
    assert ("// one" in changed.text) == ("// one" in text)
    assert changed.text.count("\n") == (text.count("\n") and 9)
    with pytest.raises(ConfigError, match="the file is left as it is"):
        edit.insert(document, ("rules", 7), {})
