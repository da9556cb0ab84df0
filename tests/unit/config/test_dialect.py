from __future__ import annotations

import pytest

from dragoman.config.dialect import (
    EMPTY,
    LEFT,
    NOT_A_MAP,
    NOT_SERVERS,
    Dialect,
    Entry,
    Meaning,
    entries_at,
    key_table,
    under,
)
from dragoman.config.dialects import NAMES, dialect
from dragoman.config.documents import Document, parse
from dragoman.config.export import read_back
from dragoman.errors import InvalidSpecError
from dragoman.model import Note

TEXT = """{"s": {
  "a": {"url": "u", "env": {"A": 1,
        "B": 2}},
  "b": 5
}, "list": [{"name": "x"},
  {"name": 7}, "y"], "wrong": 5, "none": null}"""
DOCUMENT = parse(TEXT, "f.json", "json")


def entry(pointer: tuple[str | int, ...] = ("s", "a")) -> Entry:
    return Entry("a", {"url": "u", "env": {"A": 1, "B": 2}}, DOCUMENT, pointer)


def test_a_map_of_servers_has_named_entries() -> None:
    found = entries_at(DOCUMENT, ("s",))
    assert [(each.name, each.pointer, each.line()) for each in found] == [
        ("a", ("s", "a"), 2),
        ("b", ("s", "b"), 4),
    ]
    assert found[1].fields == {NOT_A_MAP: 5}


def test_a_list_of_servers_takes_names_from_the_entries() -> None:
    found = list(under("list")(DOCUMENT, "/project"))
    assert [(each.name, each.pointer, each.line()) for each in found] == [
        ("x", ("list", 0), 5),
        ("", ("list", 1), 6),
        ("", ("list", 2), 6),
    ]


def test_what_is_not_there_has_no_entries() -> None:
    assert entries_at(DOCUMENT, ("nothing",)) == []
    assert entries_at(DOCUMENT, ("none",)) == []
    assert entries_at(DOCUMENT, ("wrong", "deeper")) == []


def test_what_holds_no_servers_is_one_entry_that_says_so() -> None:
    (found,) = entries_at(DOCUMENT, ("wrong",))
    assert (found.name, found.fields, found.pointer) == ("", {NOT_SERVERS: 5}, ("wrong",))


def test_a_key_has_its_line_and_so_has_a_key_inside_it() -> None:
    found = entry()
    assert (found.line(), found.line("env"), found.line("env", "B"), found.line("gone")) == (2, 2, 3, 2)
    assert found.place("env", "B") == ("s", "a", "env", "B")


def test_a_moved_key_remembers_where_it_was() -> None:
    found = entry()
    found.move("env", "environment")
    found.move("url", "address", "other")
    assert found.fields == {"environment": {"A": 1, "B": 2}, "address": "other"}
    assert found.written("environment", "B") == ("env", "B")
    assert found.line("environment", "B") == 3


def test_a_key_inside_another_may_have_a_place_of_its_own() -> None:
    found = entry()
    found.spellings["headers.Authorization"] = "env.B"
    assert found.written("headers", "Authorization") == ("env", "B")
    assert found.line("headers", "Authorization") == 3


def test_a_key_that_is_left_is_kept_and_noted() -> None:
    found = entry()
    found.set_aside("url", Note(code="conflict", key="url", message="m"))
    found.set_aside("env")
    assert set(found.fields) == {f"{LEFT}url", f"{LEFT}env"}
    assert [note.key for note in found.notes] == ["url"]


def test_keys_may_stand_beside_the_entry() -> None:
    document = parse("URL=1\nTIMEOUT=2", "f.env", "env")
    found = Entry("a", {}, document, ("URL",), flat=True, spellings={"timeout": "TIMEOUT"})
    assert (found.place("timeout"), found.line("timeout"), found.line()) == (("TIMEOUT",), 2, 1)


def test_after_a_merge_each_key_belongs_to_its_own_entry() -> None:
    weaker = Entry("a", {}, parse('{\n\n"a": {"cwd": 1,\n"env": {"C": 1}}}', "weaker", "json"), ("a",))
    found = entry()
    found.layers = {"url": found, "env": found, "cwd": weaker, "env.C": weaker}
    assert [found.owner(*keys) for keys in [("url",), ("cwd",), ("env", "A"), ("env", "C"), ()]] == [
        found,
        weaker,
        found,
        weaker,
        found,
    ]
    assert (found.line("cwd"), found.line("env", "C"), found.place("cwd")) == (3, 4, ("a", "cwd"))


def test_an_entry_shows_no_value() -> None:
    assert "secret" not in repr(
        Entry("a", {"token": "secret"}, Document("f", "json", {"x": "secret"}), ("a",))
    )


def test_a_table_of_keys_gives_durations_the_dialects_unit() -> None:
    table = key_table("url", "idle", unit="ms", timeout="call", slow=Meaning(field="connect", unit="s"))
    assert {key: (value.field, value.unit) for key, value in table.items()} == {
        "url": ("url", None),
        "idle": ("idle", "ms"),
        "timeout": ("call", "ms"),
        "slow": ("connect", "s"),
    }


def test_a_dialect_says_nothing_beyond_its_servers_unless_it_has_more() -> None:
    dialect = Dialect(name="d", title="D", find=under("s"), keys={})
    assert dialect.patch(DOCUMENT, "/project") is EMPTY


@pytest.mark.parametrize("name", NAMES)
def test_every_dialect_knows_which_variables_a_command_inherits(name: str) -> None:
    fields = {key.field for key in dialect(name).keys.values()}
    assert "command" not in fields or "inherit_env" in fields


def test_fallback_of_a_tool_that_is_not_a_text_is_refused() -> None:
    entry = {"command": "serve", "fallback": {"read": 5, "write": ["b"]}}
    with pytest.raises(InvalidSpecError, match=r"`fallback\.read`.*expected a list of texts"):
        read_back("law", entry, dialect("dragoman"))
