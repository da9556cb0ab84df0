from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.observe import call_log as module
from dragoman.observe.call_history import CallRecord, from_row
from dragoman.observe.call_log import (
    MAX_ARGUMENT_CHARS,
    MAX_MISSING,
    MAX_RESULT_CHARS,
    MAX_TEXT_CHARS,
    copy_call,
    to_row,
)
from dragoman.trust.masking import MASK
from dragoman.trust.redaction import Redactor

CANARY = "canary-7f3a9b2c51"
TOKEN = "sk-" + "Q7w8" * 8

scalars = st.none() | st.booleans() | st.integers(-1000, 1000) | st.text("abcdefg 名前\"\\'\n", max_size=20)
json_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("xyz/~", max_size=3), inner, max_size=4)
    ),
    max_leaves=20,
)


def logged(arguments: object, text: str = "", mask: Any = None, tool: str = "t") -> CallRecord:
    note = copy_call(
        at=1.0,
        server="s",
        tool=tool,
        call_id="c",
        duration=0.5,
        code="",
        arguments=arguments,
        text=text,
    )
    return from_row(7, to_row(note, mask) if mask else to_row(note))


@given(st.dictionaries(st.text("xyz/~", max_size=3), json_values, max_size=4))
def test_plain_arguments_come_back_as_they_were_sent(arguments: dict[str, Any]) -> None:
    record = logged(arguments)
    assert record.arguments == arguments
    assert record.missing == {}
    assert record.obstacle == ""


def test_record_has_everything() -> None:
    record = logged({"path": "/a"}, "fine")
    assert record == CallRecord(
        number=7,
        call_id="c",
        at=1.0,
        server="s",
        tool="t",
        duration=0.5,
        arguments={"path": "/a"},
        result="fine",
        result_chars=4,
        result_missing=[],
    )
    assert record.success


def test_values_of_telling_names_are_redacted_wherever_they_stand() -> None:
    record = logged({"a": [{"apiKey": CANARY}, {"password": {"deep": CANARY}}], "pin_token": 123456})
    assert record.arguments == {"a": [{"apiKey": MASK}, {"password": MASK}], "pin_token": MASK}
    assert record.missing == {
        "/a/0/apiKey": "redacted",
        "/a/1/password": "redacted",
        "/pin_token": "redacted",
    }
    assert record.obstacle == (
        "not all of its arguments were kept: `/a/0/apiKey` (redacted), `/a/1/password` (redacted), "
        "`/pin_token` (redacted)"
    )


def test_yes_no_and_nothing_under_a_telling_name_are_kept() -> None:
    arguments = {"use_token": True, "secret": None}
    assert logged(arguments).arguments == arguments


def test_tokens_known_values_and_passwords_in_texts_are_redacted() -> None:
    mask = Redactor([CANARY, "84736251"]).mask
    arguments = {
        "text": f"use {TOKEN} now",
        "url": f"https://me:{CANARY}@host/x",
        "plain": f"it is {CANARY}!",
        "number": 84736251,
        "longer": 1847362515,
        "beginning": 847362,
        "other": 84736,
        CANARY: 1,
    }
    record = logged(arguments, f"done with {CANARY} and {TOKEN}", mask, tool=f"t{CANARY}")
    shown = json.dumps([record.arguments, record.result, record.tool, dict(record.missing)])
    for secret in (CANARY, TOKEN, "84736251", "847362"):
        assert secret not in shown
    # Half of a secret is one; a few of its digits are a number like others.
    assert record.arguments["other"] == 84736
    numbers = {"/number", "/longer", "/beginning"}
    assert set(record.missing) == {"/text", "/url", "/plain", *numbers, f"/{MASK}"}
    assert record.result_missing == ["redacted"]


def test_secret_that_crosses_a_limit_leaves_no_half() -> None:
    for before in range(MAX_TEXT_CHARS - 40, MAX_TEXT_CHARS + 2, 3):
        text = "." * before + TOKEN + "." * 200_000
        record = logged({"a": text, "b": {"c": text}}, "." * (MAX_RESULT_CHARS - 20) + TOKEN + "." * 200_000)
        assert "sk-" not in json.dumps(record.arguments) + record.result
        assert set(record.missing) == {"/a", "/b/c"}
        assert record.result_chars == MAX_RESULT_CHARS - 20 + len(TOKEN) + 200_000


def test_long_values_are_cut_and_it_is_said_where() -> None:
    record = logged({"short": "x", "long": "y" * 1_000_000}, "z" * 1_000_000)
    assert record.arguments["short"] == "x"
    assert record.arguments["long"] == "y" * MAX_TEXT_CHARS + "…"
    assert record.missing == {"/long": "cut"}
    assert (len(record.result), record.result_chars, record.result_missing) == (
        MAX_RESULT_CHARS,
        1_000_000,
        ["cut"],
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {f"k{number}": "x" * 3000 for number in range(500)},
        [[["x" * 3000] * 100] * 100] * 100,
        {"x" * 100_000: {"y" * 100_000: "z"}},
        {str(number): number for number in range(100_000)},
        ["x"] * 1_000_000,
    ],
    ids=["wide", "repeated", "keys", "many", "list"],
)
def test_row_is_bounded_whatever_the_arguments_are(arguments: Any) -> None:
    record = logged(arguments)
    assert len(json.dumps(record.arguments)) < 2 * MAX_ARGUMENT_CHARS
    assert record.missing
    assert len(record.missing) <= MAX_MISSING + 1
    assert record.obstacle


def test_what_is_taken_down_weighs_about_what_it_keeps() -> None:
    for arguments in ({"a": "x" * 10_000_000}, [{"k": "y" * 1000}] * 1000):
        note = copy_call(
            at=0,
            server="",
            tool="",
            call_id="",
            duration=0,
            code="",
            arguments=arguments,
            text="z" * 10_000_000,
        )
        assert 20_000 < note.weight < 200_000


def test_depth_without_end_and_foreign_objects_are_left_out() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    loop: dict[str, Any] = {}
    loop["self"] = loop
    record = logged(
        {
            "deep": deep,
            "loop": loop,
            "data": b"abc",
            "thing": object(),
            "map": MappingProxyType({"a": (1, 2)}),
        }
    )
    assert record.arguments["data"] == record.arguments["thing"] == "…"
    assert record.arguments["map"] == {"a": [1, 2]}
    assert all(why == "cut" for why in record.missing.values())


def test_arguments_belong_to_the_log_once_they_are_taken_down() -> None:
    arguments: dict[str, Any] = {"list": [1, {"a": "b"}]}
    note = copy_call(at=0, server="", tool="", call_id="", duration=0, code="", arguments=arguments, text="")
    arguments["list"][1]["a"] = "changed"
    arguments["list"].append("more")
    arguments.clear()
    assert from_row(1, to_row(note)).arguments == {"list": [1, {"a": "b"}]}


def test_characters_that_a_database_refuses_are_kept_as_json_writes_them() -> None:
    record = logged({"a": "x\ud800y", "b": "\0"}, "lone \udc80 and \0")
    assert record.arguments == {"a": "x\ud800y", "b": "\0"}
    assert record.result == "lone \\udc80 and \\u0000"


@pytest.mark.parametrize("number", [float("inf"), -float("inf"), 1e300, 10**30, -(2**70), 0.1])
def test_numbers_of_any_size_come_back(number: float) -> None:
    assert logged({"n": number}).arguments == {"n": number}


def test_number_that_python_does_not_write_is_left_out() -> None:
    record = logged({"n": 10**5000, "nan": float("nan")})
    assert record.arguments["n"] == "…"
    assert record.missing == {"/n": "cut"}


def test_arguments_that_are_no_object_cannot_be_sent_again() -> None:
    assert logged(["a"]).obstacle == "its arguments are not an object"
    assert logged(None).obstacle == "its arguments are not an object"


def test_obstacle_names_only_the_first_few() -> None:
    record = logged({f"token_{number}": "x" for number in range(8)})
    assert record.obstacle.endswith("`/token_4` (redacted) and 3 more")


def test_key_with_a_slash_makes_an_unambiguous_pointer() -> None:
    assert set(logged({"a/b~c": {"token": "x"}}).missing) == {"/a~1b~0c/token"}


def test_every_bound_is_smaller_than_what_one_call_may_wait_with() -> None:
    assert module.MAX_TEXT_CHARS <= MAX_ARGUMENT_CHARS
