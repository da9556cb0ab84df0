"""What a value of the wrong type plainly means in another one; nothing where several things may be meant.

The rules, each as narrow as what models really get wrong:

- an integer: a text that is one in JSON (`"3"`, `"3.0"`, with spaces around); not `"007"`, `"+3"`, `"1,000"`;
- a number: a text that is one in JSON (`"3.5"`, `"1e3"`);
- true or false: those words as a text, in any case; not `"yes"`, `"1"` or 1;
- null: the text `"null"`;
- an object or an array: a text that is one in JSON;
- a text: an integer. Not `1.10`, which has lost its zero, and not true, which may have been any word;
- one of several values: the one that differs in case, in spaces around, or in the quotes only.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_JSON_CHARS = 1_000_000
"""A longer text is not read as JSON."""
MAX_NUMBER_CHARS = 40


class _Nothing:
    """The type of `NOTHING`."""

    def __repr__(self) -> str:
        return "NOTHING"


NOTHING: Final = _Nothing()
"""There is no such reading; `None` is a value."""

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"(-?(?:0|[1-9][0-9]*))(?:\.0+)?")
_WORDS = {"true": True, "false": False}


def read_as(value: object, kind: str) -> Any:
    """Return what a value means as another type of JSON Schema, or `NOTHING`."""
    if kind == "string":
        return str(value) if type(value) is int and abs(value) < 10**MAX_NUMBER_CHARS else NOTHING
    if not isinstance(value, str):
        return NOTHING
    if kind in ("object", "array"):
        return _container(value, dict if kind == "object" else list)
    text = value[: MAX_NUMBER_CHARS + 1].strip() if len(value) <= 2 * MAX_NUMBER_CHARS else ""
    if not text or len(text) > MAX_NUMBER_CHARS:
        return NOTHING
    match kind:
        case "integer":
            found = _INTEGER.fullmatch(text)
            return int(found[1]) if found else NOTHING
        case "number":
            return _number(text)
        case "boolean":
            return _WORDS.get(text.lower(), NOTHING)
        case "null":
            return None if text == "null" else NOTHING
        case _:
            return NOTHING


def option_meant(value: object, options: Sequence[object]) -> Any:
    """Return the one option that a value plainly means, or `NOTHING` if there is none, or more than one."""
    if isinstance(value, str):
        folded = value.strip().casefold()
        texts = [option for option in options if isinstance(option, str)]
        near = [option for option in texts if option.strip().casefold() == folded]
        trimmed = [option for option in near if option == value.strip()]
        # Of two options that differ in case only, the one that is written right is meant.
        near = trimmed or near
        near += [option for option in options if _is_meant(value, option)]
    else:
        near = [
            option for option in options if isinstance(option, str) and read_as(value, "string") == option
        ]
    return near[0] if len(near) == 1 else NOTHING


def _is_meant(text: str, option: object) -> bool:
    kinds: dict[type, str] = {bool: "boolean", int: "integer", float: "number", type(None): "null"}
    kind = kinds.get(type(option))
    if kind is None:
        return False
    meant = read_as(text, kind)
    return meant is not NOTHING and meant == option


def _number(text: str) -> Any:
    if not _NUMBER.fullmatch(text):
        return NOTHING
    whole = _INTEGER.fullmatch(text)
    if whole and "." not in text:
        return int(text)
    number = float(text)
    return number if math.isfinite(number) else NOTHING


def _container(text: str, wanted: type) -> Any:
    stripped = text.strip() if len(text) <= MAX_JSON_CHARS else ""
    if not stripped.startswith("{" if wanted is dict else "["):
        return NOTHING
    try:
        value = json.loads(stripped, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return NOTHING
    return value if isinstance(value, wanted) else NOTHING


def _refuse(word: str) -> None:
    msg = f"`{word}` is no JSON"
    raise ValueError(msg)
