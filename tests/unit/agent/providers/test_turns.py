from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dragoman.agent.messages import Message, ToolCall
from dragoman.agent.providers.parsing import UNANSWERED, error_text, to_turns

USER = Message(role="user", text="hi")


def asking(*ids: str) -> Message:
    return Message(role="assistant", calls=[ToolCall(id=name, name=f"tool_{name}") for name in ids])


def result(call_id: str, text: str = "") -> Message:
    return Message(role="tool", call_id=call_id, name=f"tool_{call_id}", text=text or f"of {call_id}")


def test_systems_at_the_beginning_are_one_text_and_later_ones_stay_where_they_are() -> None:
    later = Message(role="system", text="news")
    system, turns = to_turns(
        [
            Message(role="system", text="a"),
            Message(role="system"),
            Message(role="system", text="b"),
            USER,
            later,
        ]
    )
    assert system == "a\n\nb"
    assert [turn.message for turn in turns] == [USER, later]


def test_answers_take_the_order_of_the_calls() -> None:
    _, turns = to_turns([USER, asking("a", "b"), result("b"), result("a"), USER])
    assert [[answer.text for answer in turn.answers] for turn in turns] == [[], ["of a", "of b"], []]


def test_ids_that_come_again_in_a_later_turn_do_not_mix() -> None:
    _, turns = to_turns([USER, asking("a"), result("a", "1"), asking("a"), result("a", "2")])
    assert [[answer.text for answer in turn.answers] for turn in turns] == [[], ["1"], ["2"]]


def test_a_missing_answer_is_supplied_as_an_error() -> None:
    _, turns = to_turns([USER, asking("a", "b"), result("b"), USER])
    missing = turns[1].answers[0]
    assert (missing.call_id, missing.text, missing.is_error) == ("a", UNANSWERED, True)


def test_a_result_without_its_call_becomes_the_users_word() -> None:
    _, turns = to_turns([result("x"), USER, asking("a"), result("a"), result("a", "twice")])
    assert [turn.message.role for turn in turns] == ["user", "user", "assistant", "user"]
    assert turns[0].message.text == "[result of an earlier call of `tool_x`]\nof x"
    assert turns[3].message.text.endswith("twice")
    assert not turns[3].message.call_id


def test_an_error_is_marked_once() -> None:
    failed: dict[str, Any] = {"role": "tool", "is_error": True}
    assert error_text(Message(text="no", **failed)) == "Error: no"
    assert error_text(Message(text="error: no", **failed)) == "error: no"
    assert error_text(Message(role="tool", text="no")) == "no"
    assert error_text(Message(role="tool", text="\ud800")) == "\ufffd"


names = st.sampled_from("abc")
anything = st.lists(
    st.one_of(
        st.just(USER),
        st.just(Message(role="system", text="s")),
        st.lists(names, max_size=3, unique=True).map(lambda ids: asking(*ids)),
        names.map(result),
    ),
    max_size=12,
)


@given(anything)
def test_whatever_the_transcript_every_call_has_one_answer_and_no_text_is_lost(
    messages: list[Message],
) -> None:
    system, turns = to_turns(messages)
    for turn in turns:
        assert [answer.call_id for answer in turn.answers] == [call.id for call in turn.message.calls]
        assert turn.message.role != "tool"
    said = system + "".join(turn.message.text + "".join(a.text for a in turn.answers) for turn in turns)
    assert all(message.text in said for message in messages)
    kept = [answer for turn in turns for answer in turn.answers if answer.text != UNANSWERED]
    orphans = [turn for turn in turns if turn.message.text.startswith("[result")]
    assert len(kept) + len(orphans) == sum(message.role == "tool" for message in messages)
