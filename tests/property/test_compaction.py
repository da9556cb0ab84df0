"""Whatever a conversation was: what is sent of it fits, and keeps what the model needs."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dragoman.agent.compaction import EARLIER, LEFT_OUT, SentMessages, tokens_of
from dragoman.agent.messages import Message, ToolCall
from dragoman.model import Part
from dragoman.tools.result.budget import tokens_at_most
from dragoman.tools.search.finders import CALL, SEARCH

WORDS = st.text('ab 中é😀\n{}":,1Z', max_size=30)
LONG = st.builds(lambda text, times: text * times, WORDS, st.integers(0, 60))


def turn(names: list[tuple[str, str]], number: int, *, image: bool) -> list[Message]:
    calls = [
        ToolCall(id=f"c{number}.{at}", name=name, arguments={"name": f"tool_{at}", "arguments": {}}, raw="{}")
        for at, (name, _) in enumerate(names)
    ]
    parts = (Part(kind="image", data=b"x", mime_type="image/png"),) if image else ()
    answers = [
        Message(role="tool", call_id=call.id, name=call.name, text=text, parts=parts)
        for call, (_, text) in zip(calls, names, strict=True)
    ]
    return [Message(role="assistant", calls=calls, text="so"), *answers]


@st.composite
def conversations(draw: Any) -> tuple[list[Message], Message]:
    messages: list[Message] = []
    questions: list[Message] = []
    for number in range(draw(st.integers(1, 12))):
        match draw(st.integers(0, 3)):
            case 0:
                question = Message(role="user", text=f"q{number} " + draw(WORDS))
                messages.append(question)
                questions.append(question)
            case 1:
                messages.append(Message(role="assistant", text=draw(LONG)))
            case _:
                names = st.tuples(st.sampled_from(["read", CALL]), LONG)
                called = draw(st.lists(names, min_size=1, max_size=3))
                messages += turn(called, number, image=draw(st.booleans()))
    last = Message(role="user", text="the question " + draw(WORDS))
    at = draw(st.integers(0, 1))
    tail = turn([("read", draw(LONG)), ("read", draw(LONG))], 99, image=False) if at else []
    return [*messages, last, *tail], last


def fitted(sent: SentMessages, question: Message, room: int) -> int:
    shorter = sent.shortened(question, room)
    before = list(sent.messages)
    assert sent.messages == before, "nothing is changed before it is taken"
    if shorter.changed:
        sent.take(shorter)
    return shorter.changed


@given(conversations(), st.integers(200, 4_000))
def test_what_is_sent_fits_and_every_call_has_its_answer(
    talk: tuple[list[Message], Message], room: int
) -> None:
    messages, question = talk
    sent = SentMessages()
    sent.add(messages)
    before = sent.tokens
    changed = fitted(sent, question, room)
    assert (changed == 0) == (before <= room)
    assert changed or sent.messages == messages
    assert question in sent.messages
    asked: list[str] = []
    for message in sent.messages:
        if message.role == "tool":
            assert asked.pop(0) == message.call_id
        else:
            assert not asked, "a call lost its answer"
            asked = [call.id for call in message.calls]
    assert not asked
    # What cannot be left out: the question, the calls of the newest turn, and that something is missing.
    newest = sent.messages[sent.messages.index(question) :]
    left_out = LEFT_OUT.format(size=1_000)
    bare = [one.replace(text=left_out, parts=()) if one.role == "tool" else one for one in newest]
    least = sum(map(tokens_of, bare)) + tokens_of(Message(role="user", text=EARLIER))
    assert sent.tokens <= max(room, least)
    assert fitted(sent, question, max(room, sent.tokens)) == 0, "what was left out stays out"


@given(st.lists(LONG, min_size=2, max_size=8), st.integers(1, 3))
def test_what_a_search_said_of_a_tool_in_use_is_kept(results: list[str], number: int) -> None:
    found = "\n".join(f'tool_{at}: does it\n  arguments: {{"at": {at}}}' for at in range(5))
    search = ToolCall(id="s", name=SEARCH, arguments={"queries": ["it"]}, raw="{}")
    question = Message(role="user", text="do it")
    sent = SentMessages()
    sent.add([question, Message(role="assistant", calls=[search])])
    sent.add([Message(role="tool", call_id="s", name=SEARCH, text=found)])
    for at, result in enumerate(results):
        given = {"name": f"tool_{number}", "arguments": {}}
        call = ToolCall(id=f"c{at}", name=CALL, arguments=given, raw="{}")
        sent.add([Message(role="assistant", calls=[call])])
        sent.add([Message(role="tool", call_id=call.id, name=CALL, text=result * 20)])
    for room in (1_000, 400, 250):
        fitted(sent, question, room)
    kept = "\n".join(message.text for message in sent.messages if message.name == SEARCH)
    assert f'tool_{number}: does it\n  arguments: {{"at": {number}}}' in kept


@given(st.text(max_size=200))
def test_the_estimate_is_at_least_a_word_a_token(text: str) -> None:
    assert tokens_at_most(text) >= len(text.split())
