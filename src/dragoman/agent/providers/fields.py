"""Read what an API sent without believing its shape: a field of another kind counts as missing.

Servers that imitate an API differ from it in every way, and none of that may end in a `KeyError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

_NONE: Mapping[str, Any] = {}


def as_object(value: object) -> Mapping[str, Any]:
    """Take a value as an object, which is empty if it is none."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else _NONE


def object_in(fields: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Read an object."""
    return as_object(fields.get(key))


def objects_in(fields: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Read a list's objects; whatever else is in it is left out."""
    value: object = fields.get(key)
    if not isinstance(value, list):
        return []
    items = cast("list[object]", value)
    return [cast("Mapping[str, Any]", item) for item in items if isinstance(item, Mapping)]


def text_in(fields: Mapping[str, Any], key: str) -> str:
    """Read a text."""
    value = fields.get(key)
    return value if isinstance(value, str) else ""


def number_in(fields: Mapping[str, Any], key: str) -> int:
    """Read a whole number that is not below zero."""
    value = fields.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def sendable(text: str) -> str:
    """Replace halves of surrogate pairs, which JSON can spell and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
