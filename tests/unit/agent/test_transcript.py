from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.agent.messages import INTERRUPTED, Message, ToolCall, Transcript, answered, decode, encode
from dragoman.errors import AgentError
from dragoman.model import Part

if TYPE_CHECKING:
    from pathlib import Path

CALL = ToolCall(id="1", name="read", arguments={"path": "a"}, raw='{"path":"a"}')
TURN = Message(
    role="assistant", text="let me look", calls=(CALL,), native={"anthropic": [{"type": "thinking"}]}
)
RESULT = Message(
    role="tool",
    text="[image]",
    parts=(Part(kind="image", data=b"\x00\xff", mime_type="image/png", meta={"alt": "a dot"}),),
    call_id="1",
    name="read",
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
CALLS = st.builds(ToolCall, id=st.text(), name=st.text(), arguments=JSON, raw=st.text(), problem=st.text())
MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    text=st.text(),
    parts=st.lists(
        st.builds(Part, kind=st.sampled_from(["image", "link"]), data=st.binary(), uri=st.text()), max_size=2
    ).map(tuple),
    calls=st.lists(CALLS, max_size=2).map(tuple),
    call_id=st.text(),
    is_error=st.booleans(),
)


@given(MESSAGES)
def test_any_message_comes_back_as_it_was(message: Message) -> None:
    line = encode(message)

    assert "\n" not in line
    assert decode(line) == message


def test_a_lone_surrogate_can_be_written_and_read(tmp_path: Path) -> None:
    transcript = Transcript(tmp_path / "t.jsonl")

    transcript.append([Message(role="user", text="\ud800")])

    assert transcript.read()[0].text == "\ud800"


def test_a_conversation_goes_on_over_several_writes(tmp_path: Path) -> None:
    transcript = Transcript(tmp_path / "deep" / "t.jsonl")

    transcript.append([Message(role="user", text="问题")])
    transcript.append([TURN, RESULT])

    assert transcript.read() == [Message(role="user", text="问题"), TURN, RESULT]
    assert stat.S_IMODE(transcript.path.stat().st_mode) == 0o600


def test_a_file_that_is_not_there_is_an_empty_conversation(tmp_path: Path) -> None:
    assert Transcript(tmp_path / "none.jsonl").read() == []


def test_a_line_torn_by_a_crash_is_dropped_and_written_past(tmp_path: Path) -> None:
    transcript = Transcript(tmp_path / "t.jsonl")
    transcript.append([Message(role="user", text="one")])
    with transcript.path.open("ab") as file:
        file.write(encode(Message(role="user", text="two")).encode()[:-7])

    assert [message.text for message in transcript.read()] == ["one"]
    transcript.append([Message(role="user", text="three")])
    assert [message.text for message in transcript.read()] == ["one", "three"]


def test_a_call_without_an_answer_is_answered_on_reading(tmp_path: Path) -> None:
    other = ToolCall(id="2", name="write")
    turn = Message(role="assistant", calls=(other, CALL))

    whole = answered([turn, RESULT, Message(role="user", text="go on")])

    assert [message.role for message in whole] == ["assistant", "tool", "tool", "user"]
    assert (whole[1].call_id, whole[1].text, whole[1].is_error) == ("2", INTERRUPTED, True)
    assert whole[2] == RESULT


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[]", "not an object"),
        ('{"role": "king"}', "unknown role `king`"),
        ('{"v": 9, "role": "user"}', "newer version"),
    ],
)
def test_a_line_that_is_no_message_is_named(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(f"{line}\n{encode(TURN)}\n", "utf-8")

    with pytest.raises(AgentError, match=reason) as caught:
        Transcript(path).read()

    assert "t.jsonl, line 1" in str(caught.value)


def test_a_line_holds_only_what_is_said() -> None:
    assert json.loads(encode(Message(role="user", text="hello"))) == {"v": 1, "role": "user", "text": "hello"}


WRONG = [None, 5, True, [], [[1]], {"a": 1}]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
@pytest.mark.parametrize("name", ["id", "name", "raw", "problem"])
def test_a_call_with_a_field_of_another_type_is_no_message(name: str, wrong: object) -> None:
    call = {"id": "a", "name": "n", "arguments": {}, "raw": "{}"}
    with pytest.raises(ValueError, match="must be a text"):
        decode(json.dumps({"role": "assistant", "calls": [{**call, name: wrong}]}))


@pytest.mark.parametrize("wrong", [5, True, [[1]], "x"], ids=repr)
def test_a_part_with_a_field_of_another_type_is_no_message(wrong: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        decode(json.dumps({"role": "user", "parts": [{"kind": "text", "meta": wrong}]}))
    with pytest.raises((ValueError, TypeError)):
        decode(json.dumps({"role": "user", "parts": [wrong]}))


def test_a_line_that_is_nested_too_deep_is_named(tmp_path: Path) -> None:
    depth = 200_000
    path = tmp_path / "t.jsonl"
    path.write_text('{"role":"user","native":{"a":' + "[" * depth + "]" * depth + '}}\n{"role":"user"}\n')
    with pytest.raises(AgentError, match="line 1 is not a transcript message"):
        Transcript(path).read()
