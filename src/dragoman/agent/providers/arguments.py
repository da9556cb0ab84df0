"""The arguments of a tool call, from whatever the model wrote to a `ToolCall`; never an exception.

What cannot be read becomes `ToolCall.problem`, worded for the model that wrote it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NoReturn, cast

from dragoman.agent.messages import ToolCall
from dragoman.agent.providers.fields import sendable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.agent.messages import Message

_NEAR = 40
"""How many characters on each side of a mistake are shown."""
_KINDS: dict[type, str] = {
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
}


def read_call(id: str, name: str, written: object) -> ToolCall:  # noqa: A002 -- the field's own name
    """Make a call of what the model wrote, which some servers hand over already decoded."""
    raw = written if isinstance(written, str) else json.dumps(written, ensure_ascii=False)
    arguments, problem = read_arguments(raw)
    return ToolCall(id=id, name=name, arguments=arguments, raw=raw, problem=problem)


def read_arguments(raw: str) -> tuple[dict[str, Any] | None, str]:
    """Decode a call's arguments; returns them, or `None` and what is wrong with them."""
    if not raw.strip():
        return {}, ""  # A tool without parameters is often called without a word.
    try:
        value = _decoded(raw)
        if isinstance(value, str):
            # Some models encode their object twice.
            value = _twice(value)
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
    arguments = cast("dict[str, Any]", value)
    # Only an escape can bring half a surrogate pair in, which no request could carry back.
    return (_clean(arguments) if "\\u" in raw else arguments), ""


def is_object(raw: str) -> bool:
    """Tell whether a text is a whole JSON object."""
    try:
        return isinstance(_decoded(raw), dict)
    except (ValueError, RecursionError):
        return False


class Ids:
    """Ids for calls to which the API gave none, or gave the same one twice in a turn.

    They are counted, not drawn, so that the same conversation is the same bytes for a prompt cache.
    """

    def __init__(self, messages: Iterable[Message]) -> None:
        self._taken = {call.id for message in messages for call in message.calls}
        self._next = len(self._taken) + 1
        self._turn: set[str] = set()

    def settle(self, given: str) -> str:
        """Return the id that was given, or a new one."""
        if given and given not in self._turn:
            self._turn.add(given)
            return given
        while (made := f"call_{self._next}") in self._taken or made in self._turn:
            self._next += 1
        self._turn.add(made)
        return made


def sent_arguments(call: ToolCall) -> str:
    """Return a call's arguments as JSON that any server can read back.

    Those that could not be read are sent as an empty object: several servers decode them to fill their
    template, and answer 500 to what is not JSON. The model learns of its mistake by the tool's result.
    """
    if call.problem or call.arguments is None:
        return "{}"
    return sendable(call.raw) if is_object(call.raw) else json.dumps(call.arguments, ensure_ascii=False)


def _decoded(raw: str) -> object:
    return json.loads(raw, parse_constant=_refuse)


def _refuse(name: str) -> NoReturn:
    msg = f"`{name}` is no JSON value"
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
    if isinstance(value, list):
        return [_clean(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {sendable(key): _clean(item) for key, item in cast("dict[str, Any]", value).items()}
    return value
