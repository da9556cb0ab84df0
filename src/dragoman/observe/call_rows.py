"""One call as the log keeps it: what is taken down while it ends, and what of that may be written.

Taking down (`take_down`) runs in the event loop and is bounded: containers are copied, since their owner may
change them, texts are only referred to or cut. Masking and writing as JSON (`to_row`) is for another thread.

Arguments keep their shape: a value that is masked or cut is replaced where it stands, and its place, a JSON
pointer, is noted in `missing`. Arguments without such notes are those that were sent, and can be sent again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, cast

from dragoman.observe.excerpt import MARGIN, excerpt
from dragoman.trust.redact import MASK, MAX_DEPTH, is_telling, mask_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_TEXT_CHARS = 8192
"""Of one text among the arguments."""
MAX_ARGUMENT_CHARS = 32_768
"""Of all texts and keys of one call's arguments."""
MAX_RESULT_CHARS = 16_384
MAX_NODES = 1000
"""Values among the arguments of one call: copying them takes a millisecond of the event loop at most."""
MAX_NAME_CHARS = 256
MAX_MISSING = 100
LONG_NUMBER = 100_000
"""From here on a number may be somebody's account or key."""
CUT: Final = "…"
"""Stands where something was left out."""

_WINDOW = MAX_TEXT_CHARS + MARGIN

Why: TypeAlias = Literal["redacted", "cut"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One call as it was logged."""

    number: int
    """Counts the calls of the log; never given twice."""
    call_id: str
    at: float
    """Seconds since the epoch, when the call began."""
    server: str
    tool: str
    """The exposed name."""
    duration: float
    error_code: str = ""
    arguments: Any = None
    """As they were sent, but for what `missing` names."""
    missing: Mapping[str, Why] = field(default_factory=dict[str, Why])
    """What of the arguments was not kept, by JSON pointer, and why."""
    result: str = ""
    """What the caller was told, masked and cut."""
    result_chars: int = 0
    """How long the result really was."""
    result_missing: Sequence[Why] = ()

    @property
    def success(self) -> bool:
        """Whether the call went well."""
        return not self.error_code

    @property
    def obstacle(self) -> str:
        """Why the call cannot be run again as it was; empty if it can."""
        if self.missing:
            places = ", ".join(f"`{place}` ({why})" for place, why in list(self.missing.items())[:5])
            more = len(self.missing) - 5
            return f"not all of its arguments were kept: {places}{f' and {more} more' if more > 0 else ''}"
        return "" if isinstance(self.arguments, dict) else "its arguments are no object"


class Note(NamedTuple):
    """A call that waits to be written; nobody else holds what is in it."""

    at: float
    server: str
    tool: str
    call_id: str
    duration: float
    code: str
    arguments: object
    text: str
    chars: int
    """How long the text really is."""
    weight: int
    """About how many characters this keeps in memory."""


Row: TypeAlias = tuple[float, str, str, str, float, str, str, str, str, int, str]
"""What is written, in the order of `COLUMNS`."""
COLUMNS = (
    "at",
    "server",
    "tool",
    "call_id",
    "duration",
    "error_code",
    "arguments",
    "missing",
    "result",
    "result_chars",
    "result_missing",
)


class _Long(NamedTuple):
    """The beginning of a text that is too long."""

    text: str


class _Omitted:
    """Something that was not taken down."""


_OMITTED = _Omitted()


def take_down(
    *,
    at: float,
    server: str,
    tool: str,
    call_id: str,
    duration: float,
    code: str,
    arguments: object,
    text: str,
) -> Note:
    """Copy as much of a call as can ever be written, in bounded time."""
    copier = _Copier()
    copied = copier.copy(arguments, 0)
    kept = text[: MAX_RESULT_CHARS + MARGIN]
    return Note(
        at=at,
        server=server[: MAX_NAME_CHARS + MARGIN],
        tool=tool[: MAX_NAME_CHARS + MARGIN],
        call_id=call_id[:MAX_NAME_CHARS],
        duration=duration,
        code=code,
        arguments=copied,
        text=kept,
        chars=len(text),
        weight=len(kept) + copier.weight,
    )


class _Copier:
    """Copies JSON-like values until there is no more room."""

    def __init__(self) -> None:
        self._nodes = MAX_NODES
        self._room = MAX_ARGUMENT_CHARS + MARGIN
        self.weight = 0

    def copy(self, value: object, depth: int) -> object:
        """Return a value that nobody else can change."""
        self._nodes -= 1
        if isinstance(value, str):
            return self._text(value)
        if value is None or isinstance(value, bool | int | float):
            return value
        if depth >= MAX_DEPTH or self._nodes < 0:
            return _OMITTED
        # Most are plain; whether something else is a mapping takes longer to find out.
        if isinstance(value, dict | Mapping):
            return self._fields(cast("Mapping[object, object]", value), depth)
        if isinstance(value, list | tuple):
            return self._items(cast("Sequence[object]", value), depth)
        return _OMITTED

    def _fields(self, value: Mapping[object, object], depth: int) -> dict[str, object]:
        copied: dict[str, object] = {}
        for key, item in value.items():
            if self._nodes <= 0:
                copied[CUT] = _OMITTED
                break
            name = self._text(str(key))
            copied[name if isinstance(name, str) else f"{name.text}{CUT}"] = self.copy(item, depth + 1)
        return copied

    def _items(self, value: Sequence[object], depth: int) -> list[object]:
        copied: list[object] = []
        for item in value:
            if self._nodes <= 0:
                copied.append(_OMITTED)
                break
            copied.append(self.copy(item, depth + 1))
        return copied

    def _text(self, text: str) -> str | _Long:
        size = len(text)
        self.weight += 50
        if size <= _WINDOW and size <= self._room:
            self._room -= size
            self.weight += size
            return text
        room = min(self._room, _WINDOW)
        self._room -= room
        self.weight += room
        return _Long(text[:room])


def to_row(note: Note, mask: Callable[[str], str] = mask_text) -> Row:
    """Return what may be written of a call."""
    redaction = _Redaction(mask)
    arguments = redaction.clean(note.arguments, "", 0)
    result = excerpt(note.text, MAX_RESULT_CHARS, mask, whole=len(note.text) == note.chars)
    why = [name for name, is_so in (("redacted", result.is_masked), ("cut", result.is_cut)) if is_so]
    return (
        note.at,
        _storable(excerpt(note.server, MAX_NAME_CHARS, mask).text),
        _storable(excerpt(note.tool, MAX_NAME_CHARS, mask).text),
        _storable(note.call_id),
        note.duration,
        note.code,
        _storable(json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))),
        _storable(json.dumps(redaction.missing, ensure_ascii=False) if redaction.missing else ""),
        _storable(result.text),
        note.chars,
        " ".join(why),
    )


def from_row(number: int, row: Row) -> CallRecord:
    """Return what was written as a noun."""
    at, server, tool, call_id, duration, code, arguments, missing, result, chars, why = row
    return CallRecord(
        number=number,
        call_id=call_id,
        at=at,
        server=server,
        tool=tool,
        duration=duration,
        error_code=code,
        arguments=json.loads(arguments),
        missing=json.loads(missing) if missing else {},
        result=result,
        result_chars=chars,
        result_missing=cast("list[Why]", why.split()),
    )


class _Redaction:
    """Masks and cuts arguments, and notes where."""

    def __init__(self, mask: Callable[[str], str]) -> None:
        self._mask = mask
        self._room = MAX_ARGUMENT_CHARS
        self.missing: dict[str, Why] = {}

    def clean(self, value: object, place: str, depth: int) -> Any:
        """Return a copied value as it may be written."""
        if isinstance(value, str):
            return self._text(value, place)
        if isinstance(value, _Long):
            return self._text(value.text, place, whole=False)
        if isinstance(value, dict):
            items = cast("dict[str, object]", value).items()
            return dict(self._field(key, item, place, depth) for key, item in items)
        if isinstance(value, list):
            return [
                self.clean(item, f"{place}/{index}", depth + 1)
                for index, item in enumerate(cast("list[object]", value))
            ]
        if isinstance(value, int | float) and not isinstance(value, bool):
            return self._number(value, place)
        if isinstance(value, _Omitted):
            self._note(place, "cut")
            return CUT
        return value

    def _field(self, key: str, item: object, place: str, depth: int) -> tuple[str, Any]:
        name = excerpt(key, MAX_NAME_CHARS, self._mask)
        self._room -= len(name.text)
        inner = f"{place}/{name.text.replace('~', '~0').replace('/', '~1')}"
        if name.is_masked or name.is_cut:
            self._note(inner, "redacted" if name.is_masked else "cut")
        # Yes, no and nothing tell nobody's secret.
        if is_telling(key) and item is not None and not isinstance(item, bool):
            self._note(inner, "redacted")
            return name.text, MASK
        return name.text, self.clean(item, inner, depth + 1)

    def _text(self, text: str, place: str, *, whole: bool = True) -> str:
        found = excerpt(text, max(0, min(MAX_TEXT_CHARS, self._room)), self._mask, whole=whole)
        self._room -= len(found.text)
        if found.is_masked or found.is_cut:
            self._note(place, "redacted" if found.is_masked else "cut")
        return f"{found.text}{CUT}" if found.is_cut else found.text

    def _number(self, value: float, place: str) -> Any:
        if not abs(value) >= LONG_NUMBER:
            return value
        try:
            text = repr(value)
        except ValueError:
            # Python writes no number of more than 4300 digits.
            self._note(place, "cut")
            return CUT
        if self._mask(text) == text:
            return value
        self._note(place, "redacted")
        return MASK

    def _note(self, place: str, why: Why) -> None:
        if len(self.missing) < MAX_MISSING or place in self.missing:
            self.missing[place] = why
        else:
            self.missing[CUT] = "cut"


def _storable(text: str) -> str:
    """Return a text that SQLite takes: half of a surrogate pair becomes what JSON writes for it."""
    return text.replace("\0", "\\u0000").encode("utf-8", "backslashreplace").decode()
