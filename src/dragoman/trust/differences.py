"""Two values, and in a few harmless lines what is different between them."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING, Any, cast

from dragoman.trust.sanitize import for_log

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_LINES = 20
MAX_LINE_CHARS = 200
CONTEXT_CHARS = 30
_MAX_COMPARED = 300
"""Of lines: more are not matched one against the other, which takes quadratic time."""
_ABSENT = object()


def difference(before: object, after: object) -> list[str]:
    """Return lines with `-` and `+`: of texts what was cut and put in, of data the places that differ."""
    if isinstance(before, str) and isinstance(after, str):
        lines = text_difference(before, after)
    elif isinstance(before, dict | list) and isinstance(after, dict | list):
        places = _places(cast("object", before), cast("object", after), "")
        lines = [line for place, old, new in places for line in _place_lines(place, old, new)]
    else:
        sides = (("-", cast("object", before)), ("+", after))
        lines = [f"{sign} {_shown(value)}" for sign, value in sides if value is not None]
    more = len(lines) - MAX_LINES
    return lines if more <= 0 else [*lines[:MAX_LINES], f"… and {more} more lines"]


def text_difference(before: str, after: str) -> list[str]:
    """Return what is different between two texts, line by line, or within the line."""
    old, new = before.split("\n"), after.split("\n")
    if len(old) == len(new) == 1 or max(len(old), len(new)) > _MAX_COMPARED:
        return _within(before, after)
    # The first two lines name the files, which these are not.
    lines = list(difflib.unified_diff(old, new, lineterm="", n=0))[2:]
    return [f"{line[0]} {_shown(line[1:])}" for line in lines if not line.startswith("@@")]


def _within(before: str, after: str) -> list[str]:
    """Cut what both have at the beginning and at the end, but for a little around the change."""
    start = 0
    shorter = min(len(before), len(after))
    while start < shorter and before[start] == after[start]:
        start += 1
    end = 0
    while end < shorter - start and before[-1 - end] == after[-1 - end]:
        end += 1
    return [
        f"{sign} {_excerpt(text, start, len(text) - end)}" for sign, text in (("-", before), ("+", after))
    ]


def _excerpt(text: str, start: int, end: int) -> str:
    first, last = max(0, start - CONTEXT_CHARS), end + CONTEXT_CHARS
    middle = _shown(text[first:last])
    return f"{'…' if first else ''}{middle}{'…' if last < len(text) else ''}"


def _places(before: Any, after: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    """Find the JSON pointers at which two values differ, without recursion: a schema may be deep."""
    waiting = [(place, before, after)]
    while waiting:
        place, old, new = waiting.pop()
        if isinstance(old, dict) and isinstance(new, dict):
            ours, theirs = cast("dict[str, object]", old), cast("dict[str, object]", new)
            keys = sorted(ours.keys() | theirs.keys(), reverse=True)
            waiting += [(f"{place}/{key}", ours.get(key, _ABSENT), theirs.get(key, _ABSENT)) for key in keys]
        elif isinstance(old, list) and isinstance(new, list):
            mine, yours = cast("list[object]", old), cast("list[object]", new)
            if len(mine) != len(yours):
                yield place, mine, yours
            else:
                pairs = list(enumerate(zip(mine, yours, strict=True)))
                waiting += [(f"{place}/{index}", one, other) for index, (one, other) in reversed(pairs)]
        elif type(cast("object", old)) is not type(cast("object", new)) or old != new:
            yield place, old, new


def _place_lines(place: str, old: object, new: object) -> Iterator[str]:
    where = for_log(place, MAX_LINE_CHARS) or "/"
    if isinstance(old, str) and isinstance(new, str):
        yield from (f"{line[0]} {where}: {line[2:]}" for line in text_difference(old, new))
        return
    if old is not _ABSENT:
        yield f"- {where}: {_shown(old)}"
    if new is not _ABSENT:
        yield f"+ {where}: {_shown(new)}"


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return for_log(value, MAX_LINE_CHARS)
    try:
        text = json.dumps(value, ensure_ascii=False, default=repr)
    except RecursionError:
        text = "something very deep"
    return for_log(text, MAX_LINE_CHARS)
