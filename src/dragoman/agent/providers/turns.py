"""A conversation as every API wants it: each call answered, directly after its turn, in the model's order.

What a transcript may lack is supplied, because the APIs refuse a conversation with a gap: a call without an
answer (the program was stopped in between) is answered in one line that says so, and a result whose call is
not there (an older part was cut off) becomes a user's message. Systems at the beginning are one text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dragoman.agent.messages import Message
from dragoman.agent.providers.fields import sendable

if TYPE_CHECKING:
    from collections.abc import Sequence

UNANSWERED = "[no result: the call was interrupted before it ended; it may have run]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message of a user, the system or the model, with the answers to its calls."""

    message: Message
    answers: Sequence[Message] = ()
    """One for each of `message.calls`, in their order."""


def to_turns(messages: Sequence[Message]) -> tuple[str, list[Turn]]:
    """Split a conversation into the system's opening text and the turns."""
    system: list[str] = []
    turns: list[Turn] = []
    index = 0
    while index < len(messages):
        message = messages[index]
        index += 1
        if message.role == "assistant":
            end = index
            while end < len(messages) and messages[end].role == "tool":
                end += 1
            turns += _answered(message, messages[index:end])
            index = end
        elif message.role == "tool":
            turns.append(_orphan(message))
        elif message.role == "system" and not turns:
            system.append(sendable(message.text))
        else:
            turns.append(Turn(message=message))
    return "\n\n".join(text for text in system if text), turns


def error_text(message: Message) -> str:
    """Return a result's text, marked as an error for the APIs that have no field for it."""
    text = sendable(message.text)
    if message.is_error and not text.lower().startswith("error"):
        return f"Error: {text}"
    return text


def _answered(message: Message, results: Sequence[Message]) -> list[Turn]:
    left = list(results)
    answers: list[Message] = []
    for call in message.calls:
        found = next((result for result in left if result.call_id == call.id), None)
        if found is None:
            found = Message(role="tool", call_id=call.id, name=call.name, text=UNANSWERED, is_error=True)
        else:
            left.remove(found)
        answers.append(found)
    return [Turn(message=message, answers=answers), *(_orphan(result) for result in left)]


def _orphan(result: Message) -> Turn:
    text = f"[result of an earlier call of `{result.name}`]\n{result.text}"
    return Turn(message=replace(result, role="user", text=text, call_id="", name="", is_error=False))
