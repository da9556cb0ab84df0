"""Read JSON of a client: no number that is not finite, and not too deep. Pure, and without the SDK."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NoReturn, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_DEPTH = 200
"""How deep a message may be nested: the checks behind this module recurse."""


class StrictJsonError(ValueError):
    """A text is JSON that is not taken; says why."""


def read_json(body: bytes | str) -> Any:
    """Return the value of a text.

    Raises:
        ValueError: It is not JSON, has a number that is not finite, or is nested too deeply.
    """
    text = body if isinstance(body, str) else body.decode("utf-8")
    try:
        found = _DECODER.decode(text)
    except RecursionError as exc:
        raise _too_deep() from exc
    # Each level takes a bracket: most messages are too short of them to be deep.
    if text.count("[") + text.count("{") > MAX_DEPTH and _is_deep(found):
        raise _too_deep()
    return found


def _too_deep() -> StrictJsonError:
    return StrictJsonError(f"more than {MAX_DEPTH} levels")


def _refuse_constant(text: str) -> NoReturn:
    msg = f"{text} is not a number in JSON"
    raise StrictJsonError(msg)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        msg = f"{text[:40]} is too large for a number"
        raise StrictJsonError(msg)
    return number


def _is_deep(value: object) -> bool:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [child for one in level for child in _children(one)]
        if not level:
            return False
    return True


def _children(value: object) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).values()
    return cast("list[Any]", value) if isinstance(value, list) else ()


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
