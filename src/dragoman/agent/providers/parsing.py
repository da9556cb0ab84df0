"""Read what models and their APIs send: fields, tool arguments, conversations.

Invalid arguments do not raise: they become `ToolCall.problem`, a message for the model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn, cast

from dragoman.agent.messages import Message, ToolCall
from dragoman.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_NONE: Mapping[str, Any] = {}
LARGEST_NUMBER = 1 << 53
"""The largest number that every JSON reader takes; one that an API sends beyond it says nothing."""


def as_object(value: object) -> Mapping[str, Any]:
    """Return a value that is an object, or an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else _NONE


def object_in(fields: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return an object field."""
    return as_object(fields.get(key))


def objects_in(fields: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the objects of a list field; other items are dropped."""
    value: object = fields.get(key)
    if not isinstance(value, list):
        return []
    items = cast("list[object]", value)
    return [cast("Mapping[str, Any]", item) for item in items if isinstance(item, Mapping)]


def text_in(fields: Mapping[str, Any], key: str) -> str:
    """Return a text field."""
    value = fields.get(key)
    return value if isinstance(value, str) else ""


def number_in(fields: Mapping[str, Any], key: str) -> int:
    """Return an integer field that is not negative; 0 for a number that can be none."""
    value = fields.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value if 0 < value <= LARGEST_NUMBER else 0


def sendable(text: str) -> str:
    """Replace lone surrogates, which JSON can express and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def sound(native: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an API wants back as it can be sent and stored; nothing if it is nested too deep."""
    try:
        return _clean(dict(native))
    except RecursionError:
        return {}


def written_text(written: object) -> str:
    """Return a call's arguments as text; some servers send them already decoded."""
    if isinstance(written, str):
        return written
    try:
        return json.dumps(written, ensure_ascii=False)
    except RecursionError:
        # No reader takes it: it becomes the problem of the call.
        return "[" * 100_000


_NEAR = 40
"""Characters that are shown on each side of a mistake."""
_KINDS: dict[type, str] = {
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
}


def read_call(id: str, name: str, written: object) -> ToolCall:  # noqa: A002 -- the field's own name
    """Build a call from the model's arguments; some servers send them already decoded."""
    raw = sendable(written_text(written))
    arguments, problem = read_arguments(raw)
    return ToolCall(id=id, name=sendable(name), arguments=arguments, raw=raw, problem=problem)


def read_arguments(raw: str) -> tuple[dict[str, Any] | None, str]:
    """Decode a call's arguments; return them, or `None` and the problem."""
    if not raw.strip():
        return {}, ""  # Models often send nothing for a tool without parameters.
    try:
        value: object = _decoded(raw)
        if isinstance(value, str):
            # Some models encode their object twice.
            value = _twice(value)
        if "\\u" in raw:
            # Only an escape can contain a lone surrogate, which could not be sent back.
            value = _clean(value)
    except json.JSONDecodeError as error:
        near = raw[max(error.pos - _NEAR, 0) : error.pos + _NEAR]
        return None, f"the arguments are not valid JSON: {error.msg} at character {error.pos}, near `{near}`"
    except ValueError as error:
        return None, f"the arguments are not valid JSON: {error}"
    except RecursionError:
        return None, "the arguments are nested too deep"
    if value is None:
        return {}, ""
    if not isinstance(value, dict):
        kind = _KINDS.get(type(value), "something else")
        return None, f"the arguments have to be a JSON object, not {kind}"
    return cast("dict[str, Any]", value), ""


def is_object(raw: str) -> bool:
    """Return whether a text is a whole JSON object."""
    try:
        return isinstance(_decoded(raw), dict)
    except (ValueError, RecursionError):
        return False


class Ids:
    """Ids for calls without one, or with the same id twice in a turn.

    They are counted, not random, so that the same conversation has the same bytes for a prompt cache.
    """

    def __init__(self, messages: Iterable[Message]) -> None:
        self._taken = {call.id for message in messages for call in message.calls}
        self._next = len(self._taken) + 1
        self._turn: set[str] = set()

    def settle(self, given: str) -> str:
        """Return the given id, or a new one."""
        given = sendable(given)
        if given and given not in self._turn:
            self._turn.add(given)
            return given
        while (made := f"call_{self._next}") in self._taken or made in self._turn:
            self._next += 1
        self._turn.add(made)
        return made


def sent_arguments(call: ToolCall) -> str:
    """Return a call's arguments as JSON that any server can read back.

    Invalid arguments are sent as an empty object: several servers decode them for their template, and answer
    500 if they are not JSON. The tool result tells the model about its mistake.
    """
    if call.problem or call.arguments is None:
        return "{}"
    return sendable(call.raw) if is_object(call.raw) else json.dumps(call.arguments, ensure_ascii=False)


def _decoded(raw: str) -> object:
    return json.loads(raw, parse_constant=_refuse)


def _refuse(name: str) -> NoReturn:
    msg = f"`{name}` is not a JSON value"
    raise ValueError(msg)


def _twice(value: str) -> object:
    try:
        inner = _decoded(value)
    except ValueError:
        return value
    return cast("object", inner) if isinstance(inner, dict) else value


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return sendable(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [_clean(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {sendable(key): _clean(item) for key, item in cast("dict[str, Any]", value).items()}
    return value


UNANSWERED = "[no result: the call was interrupted before it ended; it may have run]"


class Turn(Struct, kw_only=True):
    """A message, with the answers to its calls."""

    message: Message
    answers: Sequence[Message] = ()
    """One for each of `message.calls`, in their order."""


def to_turns(messages: Sequence[Message]) -> tuple[str, list[Turn]]:
    """Split a conversation into the system prompt and the turns."""
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
    """Return a result's text, marked as an error for APIs without a field for that."""
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
    return Turn(message=result.replace(role="user", text=text, call_id="", name="", is_error=False))
