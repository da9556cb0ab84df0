"""A conversation on disk, as JSON Lines: one message a line, in order, to be read on from any point.

What belongs together (a model's turn and the answers to its calls) is appended in one write, so that a crash
leaves at most one torn line at the end, which is dropped. Calls that nobody answered are answered on reading,
since no API takes a conversation with a loose end.
"""

from __future__ import annotations

import base64
import json
import os
from typing import TYPE_CHECKING, Any, cast

from dragoman.agent.messages import Message, ToolCall
from dragoman.errors import AgentError
from dragoman.model import Part
from dragoman.private import private_folder, private_opener

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

VERSION = 1
INTERRUPTED = "interrupted: this call was not finished, and it is not known whether it ran"

_BLOCK = 65_536
_ROLES = ("system", "user", "assistant", "tool")


class Transcript:
    """A file that a conversation is appended to; private to its owner."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, messages: Iterable[Message]) -> None:
        """Write messages at the end, all in one go."""
        lines = "".join(f"{encode(message)}\n" for message in messages)
        if not lines:
            return
        private_folder(self.path.parent)
        # One write on a descriptor in append mode: two programs, or a crash, never mix two lines.
        descriptor = private_opener(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            _drop_torn_line(descriptor)
            data = lines.encode()
            while data:
                data = data[os.write(descriptor, data) :]
        finally:
            os.close(descriptor)

    def read(self) -> list[Message]:
        """Read the conversation, with every loose end tied.

        Raises:
            AgentError: A line in the middle cannot be read.
        """
        if not self.path.exists():
            return []
        lines = self.path.read_bytes().split(b"\n")
        lines.pop()  # nothing, or what a crash has torn
        messages: list[Message] = []
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                messages.append(decode(line.decode()))
            except (ValueError, KeyError, TypeError) as exc:
                if number < len(lines):
                    msg = f"{self.path.name}, line {number} is no message of a transcript: {exc}"
                    raise AgentError(msg, hint="take that line out, or begin a new transcript") from exc
        return answered(messages)


def answered(messages: Sequence[Message]) -> list[Message]:
    """Return the conversation with an answer to every call, in the order of the calls."""
    whole: list[Message] = []
    at = 0
    while at < len(messages):
        message = messages[at]
        whole.append(message)
        at += 1
        if not message.calls:
            continue
        given: dict[str, Message] = {}
        while at < len(messages) and messages[at].role == "tool":
            given[messages[at].call_id] = messages[at]
            at += 1
        whole += [given.get(call.id) or interrupted(call) for call in message.calls]
    return whole


def interrupted(call: ToolCall) -> Message:
    """Return the answer to a call that got none."""
    return Message(role="tool", text=INTERRUPTED, call_id=call.id, name=call.name, is_error=True)


def encode(message: Message) -> str:
    """Return one message as one line of JSON, without what is empty."""
    fields: dict[str, Any] = {
        "v": VERSION,
        "role": message.role,
        "text": message.text,
        "parts": [_part_fields(part) for part in message.parts],
        "calls": [_call_fields(call) for call in message.calls],
        "call_id": message.call_id,
        "name": message.name,
        "is_error": message.is_error,
        "native": dict(message.native),
    }
    kept = {key: value for key, value in fields.items() if value or key == "role"}
    # A lone surrogate from a server cannot be written as UTF-8: escaped, it can.
    return json.dumps(kept, ensure_ascii=_has_surrogates(kept), separators=(",", ":"))


def decode(line: str) -> Message:
    """Read one line.

    Raises:
        ValueError: It is no message.
    """
    fields = json.loads(line)
    if not isinstance(fields, dict):
        msg = "it is no object"
        raise ValueError(msg)  # noqa: TRY004 -- one kind of error for everything that is no message
    known = cast("dict[str, Any]", fields)
    if known.get("v", VERSION) > VERSION:
        msg = f"it was written by a newer version ({known['v']})"
        raise ValueError(msg)
    if known.get("role") not in _ROLES:
        msg = f"there is no role `{known.get('role')}`"
        raise ValueError(msg)
    return Message(
        role=known["role"],
        text=str(known.get("text", "")),
        parts=tuple(_part(part) for part in known.get("parts", ())),
        calls=tuple(ToolCall(**call) for call in known.get("calls", ())),
        call_id=str(known.get("call_id", "")),
        name=str(known.get("name", "")),
        is_error=bool(known.get("is_error", False)),
        native=dict(known.get("native", {})),
    )


def _drop_torn_line(descriptor: int) -> None:
    """Cut off what a crash left behind the last whole line."""
    end = os.fstat(descriptor).st_size
    while end:
        begin = max(0, end - _BLOCK)
        if (at := os.pread(descriptor, end - begin, begin).rfind(b"\n")) >= 0:
            end = begin + at + 1
            break
        end = begin
    os.ftruncate(descriptor, end)


def _call_fields(call: ToolCall) -> dict[str, Any]:
    fields = {"id": call.id, "name": call.name, "arguments": call.arguments, "raw": call.raw}
    return fields | ({"problem": call.problem} if call.problem else {})


def _part_fields(part: Part) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "kind": part.kind,
        "text": part.text,
        "data": base64.b64encode(part.data).decode(),
        "mime_type": part.mime_type,
        "uri": part.uri,
        "value": part.value,
        "meta": dict(part.meta),
    }
    return {key: value for key, value in fields.items() if value not in ("", {}, None)}


def _part(fields: Mapping[str, Any]) -> Part:
    known = dict(fields)
    known["data"] = base64.b64decode(fields.get("data", ""))
    return Part(**known)


def _has_surrogates(fields: Mapping[str, Any]) -> bool:
    try:
        json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False
