from __future__ import annotations

import difflib
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.config import edit
from dragoman.config.documents import Document, parse
from dragoman.config.edit import put_toml, remove_toml
from dragoman.errors import ConfigError

ENTRY = {"command": "npx", "args": ["-y", "x"], "env": {"A": "b"}}

TABLES = """\
# the whole file
model = "m"   # kept

[mcp]
enabled = true

# about a
[mcp.servers.a]
command = "a"
args = [
  "1",  # one
]

[mcp.servers.a.env]
K = "v"

# about b
[mcp.servers."b c"]
command = 'b'

[other]
x = { y = [1, 2] }
"""

ARRAYS = """\
[[mcp.servers]]
name = "a"
command = "a"
# inside a
[mcp.servers.env]
K = '''
[mcp.servers.no]
'''

# about b
[[mcp.servers]]
name = "b"
command = "b"
"""


def document(text: str) -> Document:
    return parse(text, "config.toml", "toml")


# ── random texts

_VALUES = st.sampled_from(
    [
        '"t # no comment"',
        "'[x]'",
        "1",
        "true",
        "[1, [2]]",
        "{ a = 1 }",
        '[\n  "[a]", # in\n]',
        '"""\n[b]\n"""',
        "1979-05-27",
    ]
)


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, list[str]]:
    names = draw(st.lists(st.sampled_from(["one", "two", '"th ree"', "'f.our'"]), unique=True, min_size=1))
    lines = [draw(st.sampled_from(["", "top = 1", "# top\n"]))]
    for name in names:
        lines.append(draw(st.sampled_from(["", "\n", "# between", "\n# between\n"])))
        lines.append(f"[mcp.servers.{name}]{draw(st.sampled_from(['', '  # header']))}")
        lines.append(f"command = {draw(_VALUES)}")
        lines += draw(st.sampled_from([[], ["", "# inside", f"args = {draw(_VALUES)}"]]))
        lines += draw(st.sampled_from([[], [f"[mcp.servers.{name}.env]", "K = 1"]]))
    lines += draw(st.sampled_from([[], ["[other]", "x = 1"]]))
    return "\n".join(lines) + draw(st.sampled_from(["", "\n"])), [name.strip("\"'") for name in names]


def lines_lost(old: str, new: str) -> list[str]:
    changes = difflib.ndiff(old.splitlines(), new.splitlines(), linejunk=None, charjunk=None)
    return [line[2:] for line in changes if line.startswith("- ")]


@given(texts(), st.sampled_from(["new", "n w", 'q"\\é']), st.sampled_from(["\n", "\r\n"]))
def test_adding_keeps_every_line(case: tuple[str, list[str]], name: str, end: str) -> None:
    text = case[0].replace("\n", end)
    after = edit.put(document(text), ("mcp", "servers", name), ENTRY)
    assert after.data["mcp"]["servers"][name] == ENTRY
    assert lines_lost(text, after.text) == []
    assert after.text.count("\n") == after.text.count(end)


@given(texts(), st.data())
def test_removing_leaves_the_other_entries_and_the_comments_around_it(
    case: tuple[str, list[str]], data: st.DataObject
) -> None:
    text, names = case
    name = data.draw(st.sampled_from(names))
    after = edit.remove(document(text), ("mcp", "servers", name))
    assert set(after.data.get("mcp", {}).get("servers", {})) == set(names) - {name}
    assert after.text.count("# between") == text.count("# between")
    assert after.text.count("# top") == text.count("# top")


@given(texts(), st.data())
def test_replacing_stays_in_its_place(case: tuple[str, list[str]], data: st.DataObject) -> None:
    text, names = case
    name = data.draw(st.sampled_from(names))
    after = edit.put(document(text), ("mcp", "servers", name), ENTRY)
    assert list(after.data["mcp"]["servers"]) == names
    assert after.text.count("# between") == text.count("# between")


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_written_as_it_is(key: str, value: str) -> None:
    text = put_toml("", ("t",), {key: value, "list": [value, 1, 2.5, True], "table": {key: value}})
    assert tomllib.loads(text) == {"t": {key: value, "list": [value, 1, 2.5, True], "table": {key: value}}}


# ── single cases


def test_a_new_table_stands_behind_its_siblings() -> None:
    assert edit.put(document(TABLES), ("mcp", "servers", "c"), {"command": "c"}).text == TABLES.replace(
        "command = 'b'\n", "command = 'b'\n\n[mcp.servers.c]\ncommand = \"c\"\n"
    )


def test_an_empty_text_becomes_a_fresh_file() -> None:
    assert put_toml("", ("mcp", "servers", "a"), ENTRY) == (
        '[mcp.servers.a]\ncommand = "npx"\nargs = ["-y", "x"]\nenv = { A = "b" }\n'
    )
    assert put_toml("", ("mcp", "servers", 0), {"name": "a"}) == '[[mcp.servers]]\nname = "a"\n'


def test_a_table_is_removed_with_its_own_tables_and_nothing_else() -> None:
    removed = edit.remove(document(TABLES), ("mcp", "servers", "a")).text
    assert removed == TABLES.replace(
        TABLES[TABLES.index("[mcp.servers.a]") : TABLES.index("\n# about b")], ""
    )


def test_an_item_of_an_array_is_added_replaced_and_removed() -> None:
    added = edit.put(document(ARRAYS), ("mcp", "servers", 2), {"name": "c"})
    assert added.text == ARRAYS + '\n[[mcp.servers]]\nname = "c"\n'
    removed = edit.remove(added, ("mcp", "servers", 0))
    assert [item["name"] for item in removed.data["mcp"]["servers"]] == ["b", "c"]
    assert removed.text.startswith("# about b\n[[mcp.servers]]")
    replaced = edit.put(document(ARRAYS), ("mcp", "servers", 0), {"name": "z"})
    assert [item["name"] for item in replaced.data["mcp"]["servers"]] == ["z", "b"]


def test_a_key_is_set_or_added_in_its_own_table() -> None:
    off = edit.put(document(TABLES), ("mcp", "servers", "a", "enabled"), False)
    assert lines_lost(TABLES, off.text) == []
    assert off.data["mcp"]["servers"]["a"]["enabled"] is False
    on = edit.put(off, ("mcp", "servers", "a", "enabled"), True)
    assert on.text == off.text.replace("enabled = false", "enabled = true")
    assert edit.put(document("[a]"), ("a", "b"), 1).text == "[a]\nb = 1\n"
    item = edit.put(document(ARRAYS), ("mcp", "servers", 1, "enabled"), False)
    assert item.data["mcp"]["servers"][1]["enabled"] is False


def test_a_key_keeps_its_comment_when_its_value_changes() -> None:
    assert "# kept" in edit.put(document(TABLES), ("model",), "n").text


def test_inline_tables_and_arrays_are_changed_inside() -> None:
    text = '[mcp]\nservers = { a = { command = "a" } } # all\n'
    added = edit.put(document(text), ("mcp", "servers", "b"), ENTRY)
    assert added.data["mcp"]["servers"] == {"a": {"command": "a"}, "b": ENTRY}
    assert "# all" in added.text
    assert edit.remove(added, ("mcp", "servers", "a")).data["mcp"]["servers"] == {"b": ENTRY}
    made = edit.put(document("[mcp]\nservers = {}\n"), ("mcp", "servers", "a", "b"), 1)
    assert made.data["mcp"]["servers"] == {"a": {"b": 1}}
    listed = edit.put(document('servers = [{ name = "a" }]\n'), ("servers", 1), {"name": "b"})
    assert listed.data["servers"] == [{"name": "a"}, {"name": "b"}]
    assert edit.remove(listed, ("servers", 0)).data["servers"] == [{"name": "b"}]


def test_dotted_keys_that_cannot_take_a_table_are_refused() -> None:
    with pytest.raises(ConfigError, match="left as it is"):
        edit.put(document('mcp.servers.a.command = "a"\nz = 1\n'), ("mcp", "servers", "b"), ENTRY)


def test_what_is_not_there_cannot_be_removed() -> None:
    with pytest.raises(ValueError, match=r"the table `a\.b` does not exist"):
        remove_toml("", ("a", "b"))
    with pytest.raises(ValueError, match="does not exist"):
        remove_toml("a = { c = 1 }", ("a", "b"))
    with pytest.raises(ValueError, match="the table `a` does not exist"):
        put_toml("", ("a", "b"), 1)


def test_a_null_is_refused() -> None:
    with pytest.raises(ConfigError, match="TOML has no null"):
        edit.put(document(""), ("a",), {"b": None})
