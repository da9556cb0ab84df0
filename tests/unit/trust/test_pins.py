"""Pins: a change in any field is reported and withheld where it has to be; what means nothing is no change."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest

from dragoman.trust.pins import (
    ANY,
    MAX_DEFINITION_CHARS,
    ServerPins,
    approved,
    compare,
    dump_lock,
    filled_in,
    fingerprint_of,
    judge,
    load_lock,
    pins_of,
)

TOOL: dict[str, Any] = {
    "name": "read",
    "title": "Read",
    "description": "Reads a file.",
    "inputSchema": {
        "type": "object",
        "properties": {"path": {"type": "string", "description": "where", "enum": ["a", "b"]}},
        "required": ["path", "mode"],
    },
    "outputSchema": {"type": "object", "properties": {"text": {"type": ["string", "null"]}}},
    "annotations": {"readOnlyHint": True, "title": "Read it"},
    "_meta": {"at": 1},
}
PROMPT = {
    "name": "sum",
    "title": "Sum",
    "description": "Sums.",
    "arguments": [{"name": "n", "required": True}],
}
PINS = pins_of([TOOL, {"name": "other"}], prompts=[PROMPT], instructions="Be kind.")


def with_tool(*path: str, value: object) -> dict[str, Any]:
    tool = deepcopy(TOOL)
    inner = tool
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return tool


def pins_with(tool: dict[str, Any]) -> ServerPins:
    return pins_of([tool, {"name": "other"}], prompts=[PROMPT], instructions="Be kind.")


PULLS = {
    "title": with_tool("title", value="Read!"),
    "description": with_tool("description", value="Reads a file. <IMPORTANT>"),
    "invisible": with_tool("description", value="Reads a\u200b file."),
    "inputSchema": with_tool("inputSchema", "properties", "path", "description", value="where; also ~/.ssh"),
    "new argument": with_tool("inputSchema", "properties", "sidenote", value={"type": "string"}),
    "enum": with_tool("inputSchema", "properties", "path", "enum", value=["a", "evil"]),
    "required": with_tool("inputSchema", "required", value=["path"]),
    "default": with_tool("inputSchema", "properties", "path", "default", value="~/.ssh/id_rsa"),
    "outputSchema": with_tool("outputSchema", "description", value="send it on"),
    "annotations": with_tool("annotations", "readOnlyHint", value=False),
    "annotation title": with_tool("annotations", "title", value="Format the disk"),
}
FIELDS = {"invisible": "description", "annotation title": "annotations"} | dict.fromkeys(
    ("new argument", "enum", "required", "default"), "inputSchema"
)
SAME = {
    "order of keys": json.loads(json.dumps(TOOL, sort_keys=True)),
    "reversed": dict(reversed(TOOL.items())),
    "meta": with_tool("_meta", value={"at": 2}),
    "icons": TOOL | {"icons": [{"src": "https://x/1.png"}]},
    "order of required": with_tool("inputSchema", "required", value=["mode", "path"]),
    "order of enum": with_tool("inputSchema", "properties", "path", "enum", value=["b", "a"]),
    "order of types": with_tool("outputSchema", "properties", "text", "type", value=["null", "string"]),
}


@pytest.mark.parametrize("pull", PULLS)
def test_a_rug_pull_in_any_field_is_reported_and_withheld_in_strict(pull: str) -> None:
    now = pins_with(PULLS[pull])
    (change,) = compare(PINS, now)
    assert (change.kind, change.name, change.what) == ("tool", "read", "changed")
    assert [one.field for one in change.fields] == [FIELDS.get(pull, pull)]
    assert any(line.startswith(("+", "-")) for one in change.fields for line in one.lines)
    assert judge(now, [PINS], "strict").standing("read") == "withheld"
    assert judge(now, [PINS], "strict").withheld == {"read"}
    assert judge(now, [PINS], "warn").standing("read") == "flagged"
    assert judge(now, [PINS], "warn").withheld == frozenset()
    assert judge(now, [PINS], "strict").standing("other") == "offered"
    assert judge(now, [PINS], "off").standing("read") == "offered"


@pytest.mark.parametrize("same", SAME.values(), ids=SAME)
def test_what_means_nothing_is_no_change(same: dict[str, Any]) -> None:
    assert compare(PINS, pins_with(same)) == []


def test_an_absent_field_is_an_empty_one_and_numbers_are_numbers() -> None:
    full = {
        "name": "x",
        "description": "",
        "annotations": {},
        "title": None,
        "inputSchema": {"type": "object", "properties": {}},
    }
    assert pins_of([full]) == pins_of([{"name": "x"}])
    assert pins_of([{"name": "x", "inputSchema": {"maximum": 1.0}}]) == pins_of(
        [{"name": "x", "inputSchema": {"maximum": 1}}]
    )
    assert pins_of([{"name": "x", "inputSchema": {"a": True}}]) != pins_of(
        [{"name": "x", "inputSchema": {"a": 1}}]
    )


def test_order_of_tools_is_no_change() -> None:
    assert compare(PINS, pins_of([{"name": "other"}, TOOL], prompts=[PROMPT], instructions="Be kind.")) == []


def test_tools_that_come_go_or_change_their_name_are_told_apart() -> None:
    now = pins_of(
        [TOOL | {"name": "read2"}, {"name": "new", "title": "N"}], prompts=[PROMPT], instructions="Be kind."
    )
    found = {(change.name, change.what, change.before) for change in compare(PINS, now)}
    assert found == {("read2", "renamed", "read"), ("new", "added", ""), ("other", "removed", "")}
    assert judge(now, [PINS], "strict").withheld == {"read2", "new"}
    assert "tool `read2`: renamed from `read`" in [str(change) for change in compare(PINS, now)]
    # An approval shows the whole new definition.
    assert "tool `new`: added\n  title:\n    + N" in [str(change) for change in compare(PINS, now)]


def test_instructions_and_prompts_are_pinned_too() -> None:
    now = pins_of(
        [TOOL, {"name": "other"}],
        prompts=[PROMPT | {"arguments": [{"name": "n", "required": False}]}],
        instructions="Be kind. Obey.",
    )
    verdict = judge(now, [PINS], "strict")
    assert [(change.kind, change.what) for change in verdict.changes] == [
        ("prompt", "changed"),
        ("instructions", "changed"),
    ]
    assert verdict.standing("sum", "prompt") == "withheld"
    assert verdict.standing("", "instructions") == "withheld"
    assert verdict.withheld == frozenset()


def test_what_was_not_looked_at_is_not_judged() -> None:
    now = pins_of([TOOL, {"name": "other"}])
    assert compare(PINS, now) == []
    assert filled_in(now, PINS) == PINS
    assert filled_in(PINS, pins_of([])) == PINS


def test_of_two_tools_with_one_name_the_order_counts() -> None:
    one, two = {"name": "x", "title": "1"}, {"name": "x", "title": "2"}
    (change,) = compare(pins_of([one, two]), pins_of([two, one]))
    assert change.what == "changed"


def test_first_use_is_trusted_and_both_locks_have_to_agree() -> None:
    assert judge(PINS, [None, None], "strict").first_use
    assert judge(PINS, [None, None], "strict").changes == []
    pulled = pins_with(PULLS["description"])
    assert not judge(pulled, [PINS, None], "strict").first_use
    assert judge(pulled, [pulled, PINS], "strict").withheld == {"read"}
    assert judge(pulled, [PINS, pulled], "strict").withheld == {"read"}
    assert judge(pulled, [pulled, pulled], "strict").withheld == frozenset()


def test_an_approval_covers_what_was_named() -> None:
    now = pins_of(
        [PULLS["description"], {"name": "other", "title": "!"}, {"name": "new"}],
        prompts=[],
        instructions="New.",
    )
    assert approved(PINS, now) == now
    assert approved(None, now, ["read"]) == ServerPins(tools={"read": now.tools["read"]})
    some = approved(PINS, now, ["read"])
    assert {change.name for change in compare(some, now) if change.kind == "tool"} == {"other", "new"}
    assert some.instructions == PINS.instructions
    unlisted = approved(PINS, pins_of([TOOL]))
    assert (unlisted.prompts, unlisted.instructions) == (PINS.prompts, PINS.instructions)


def test_a_lock_file_is_stable_sorted_and_read_back() -> None:
    text = dump_lock({"b": PINS, "a": pins_of([{"name": "z"}, {"name": "y"}])})
    assert load_lock(text) == {"b": PINS, "a": pins_of([{"name": "y"}, {"name": "z"}])}
    assert text == dump_lock(dict(sorted(load_lock(text).items())))
    assert text.index('"a"') < text.index('"b"')
    assert text.endswith("}\n")
    odd = pins_of([{"name": "x", "description": "\ud800 é \u202e", "inputSchema": {"m": 1e400, "n": 0.1}}])
    assert load_lock(dump_lock({"s": odd}))["s"].tools["x"].hash == odd.tools["x"].hash
    assert dump_lock({"s": odd}).isascii()


def test_a_definition_that_was_edited_by_hand_makes_no_false_difference() -> None:
    data = json.loads(dump_lock({"s": PINS}))
    data["servers"]["s"]["tools"]["read"]["definition"]["description"] = "Harmless."
    lock = load_lock(json.dumps(data))["s"]
    assert compare(lock, PINS) == []
    (change,) = compare(lock, pins_with(PULLS["title"]))
    assert change.fields[0].field == "definition"


@pytest.mark.parametrize(
    "data",
    [
        [],
        {"version": 2, "servers": {}},
        {"version": 1},
        {"version": 1, "servers": []},
        {"version": 1, "servers": {"s": 1}},
        {"version": 1, "servers": {"s": {"tools": []}}},
        {"version": 1, "servers": {"s": {"tools": {"x": {}}}}},
        {"version": 1, "servers": {"s": {"tools": {"x": {"sha256": "", "definition": 1}}}}},
        {"version": 1, "servers": {"s": {"prompts": None}}},
        {"version": 1, "servers": {str(number): {} for number in range(1001)}},
    ],
    ids=lambda data: str(data)[:60],
)
def test_a_damaged_lock_file_counts_as_a_whole(data: object) -> None:
    with pytest.raises(ValueError, match=r"lock file|servers|damaged"):
        load_lock(json.dumps(data))
    with pytest.raises(ValueError, match="lock file"):
        load_lock("[" * 100_000)


def test_secrets_and_monsters_are_pinned_by_their_hash_alone() -> None:
    secret = pins_of([{"name": "x", "description": 'token "abc"'}], secrets=['"abc"'])
    assert secret.tools["x"].definition is None
    assert "abc" not in dump_lock({"s": secret})
    assert secret.tools["x"].hash == pins_of([{"name": "x", "description": 'token "abc"'}]).tools["x"].hash
    long = pins_of([{"name": "x", "description": "a" * MAX_DEFINITION_CHARS}])
    assert long.tools["x"].definition is None
    (change,) = compare(long, pins_of([{"name": "x", "description": "b" * MAX_DEFINITION_CHARS}]))
    assert "only its hash" in change.fields[0].lines[0]


def test_deep_schemas_and_odd_entries_raise_nothing() -> None:
    deep: Any = {}
    for _ in range(800):
        deep = {"a": deep}
    assert pins_of([{"name": "x", "inputSchema": deep}]).tools["x"].hash
    assert pins_of([{"name": 5}, {}, {"name": "ok", "inputSchema": "text"}]).tools.keys() == {"ok"}


def test_a_difference_cannot_steer_a_terminal() -> None:
    now = pins_with(TOOL | {"description": "Reads a file.\x1b[2J\u202e\nevil"})
    text = "\n".join(map(str, compare(PINS, now)))
    assert "\x1b" not in text
    assert "\\x1b[2J\\u202e" in text


# Capabilities


def offer(capabilities: str = "", **tools: str) -> ServerPins:
    entries = [{"name": name, "description": text} for name, text in tools.items()]
    return pins_of(entries, prompts=[], instructions="x", capabilities=capabilities)


def names(pinned: ServerPins, now: ServerPins, **how: bool) -> list[tuple[str, str]]:
    return [(change.what, change.name) for change in compare(pinned, now, **how)]


def test_another_set_of_capabilities_is_a_first_use_of_what_no_set_knows() -> None:
    pinned = offer(a="A", b="B")
    more = offer("sampling", a="A", b="B", c="C")
    assert names(pinned, more) == []
    both = filled_in(pinned, more)
    assert names(both, more) == names(both, offer(a="A", b="B")) == []
    # From then on it is compared with its own set.
    assert names(both, offer("sampling", a="A", b="B")) == [("removed", "c")]
    assert names(both, offer("sampling", a="A", b="B", c="C", d="D")) == [("added", "d")]
    assert names(both, offer(a="A", b="B", d="D")) == [("added", "d")]
    # What another set knows is not new.
    assert names(both, offer(a="A", b="B", c="C")) == []
    assert names(both, offer(a="A", b="B", c="other")) == [("changed", "c")]


def test_a_tool_that_differs_from_every_set_is_changed_in_a_new_set_too() -> None:
    pinned = offer(a="A")
    turned = offer("roots", a="evil", c="C")
    assert names(pinned, turned) == [("changed", "a")]
    kept = filled_in(pinned, turned)
    assert names(kept, turned) == [("changed", "a")]
    agreed = approved(kept, turned)
    assert names(agreed, turned) == []
    # The other set has its own definition, which was not approved by another way.
    assert names(agreed, offer(a="A")) == []
    assert names(agreed, offer("roots", a="worse", c="C")) == [("changed", "a")]


def test_an_approval_holds_for_every_set_that_had_the_same_definition() -> None:
    pinned = filled_in(offer(a="A", b="B"), offer("sampling", a="A", b="B", c="C"))
    agreed = approved(pinned, offer(a="new", b="B"))
    assert names(agreed, offer("sampling", a="new", b="B", c="C")) == []
    assert names(agreed, offer("sampling", a="A", b="B", c="C")) == [("changed", "a")]
    some = approved(pinned, offer("sampling", a="new", b="newer", c="C"), ["a"])
    assert names(some, offer(a="new", b="B")) == []
    assert names(some, offer("sampling", a="new", b="newer", c="C")) == [("changed", "b")]


def test_what_is_approved_in_a_new_set_holds_for_the_set_that_was_used_before() -> None:
    pinned = offer("sampling", a="A", b="B")
    changed = pins_of([{"name": "a", "description": "new"}], prompts=[], instructions="y")
    agreed = approved(pinned, changed)
    again = changed.replace(capabilities="sampling")
    assert names(agreed, again) == [("removed", "b")]
    assert names(agreed, offer("sampling", a="A", b="B")) == []
    assert names(agreed, offer("sampling", a="other", b="B")) == [("changed", "a")]


def test_a_set_that_is_seen_first_is_pinned_as_what_it_is() -> None:
    pinned = offer("roots", a="A", c="C")
    assert names(pinned, offer(a="A")) == []
    both = filled_in(pinned, offer(a="A"))
    assert names(both, offer(a="A")) == names(both, offer("roots", a="A", c="C")) == []
    assert load_lock(dump_lock({"s": both})) == {"s": both}


def test_a_lock_that_takes_nothing_in_knows_no_new_set() -> None:
    pinned = offer(a="A")
    assert names(pinned, offer("roots", a="A", c="C"), takes_new=False) == [("added", "c")]
    assert names(ServerPins(), offer("roots", a="A"), takes_new=False) == [("added", "a")]


def test_a_remembered_listing_may_be_of_any_set() -> None:
    both = filled_in(offer(a="A"), offer("roots", a="A", c="C"))
    assert names(both, offer(ANY, a="A", c="C")) == []
    assert names(both, offer(ANY, a="A", c="other", d="D")) == [("changed", "c"), ("added", "d")]


def test_the_fingerprint_of_a_difference_is_that_of_what_it_would_pin() -> None:
    pinned = offer(a="A")
    one, same, other = offer(a="evil"), offer(a="evil"), offer(a="worse")

    def of(now: ServerPins) -> str:
        return fingerprint_of(compare(pinned, now), now)

    assert of(one) == of(same) != of(other)
    assert of(pinned) == fingerprint_of([], None) != of(one)
    long = [offer(a=letter * 70_000) for letter in "xy"]
    assert str(compare(pinned, long[0])[0]) == str(compare(pinned, long[1])[0])
    assert of(long[0]) != of(long[1])


@pytest.mark.parametrize(
    "entry", [{"capabilities": 1}, {"variants": []}, {"variants": {"a": {"variants": {"b": {}}}}}]
)
def test_damaged_sets_are_not_read(entry: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="damaged"):
        load_lock(json.dumps({"version": 1, "servers": {"s": entry}}))
