"""The two tools that stand for many: `search_tools` finds tools, `call_tool` calls what was found. Pure.

The agent offers them to a model, the gateway to its clients. Each says in its own words what they are for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.model import JsonObject

SEARCH = "search_tools"
CALL = "call_tool"
RUN_CODE = "run_code"
"""The tool that runs programs."""
MAX_FOUND = 20
FOUND = 5
"""Tools that a search returns for each request, unless another number is asked for."""
VECTOR_WAIT = 2.0
"""Seconds that a search waits for vectors that are being computed; without them it goes by words."""
HOW = "Send two or three `queries` in the words of tools, which find more than one: `create calendar event`."
"""What a model has to know of searching."""
CALL_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "arguments": {"type": "object", "description": "The tool's own arguments."},
    },
    "required": ["name", "arguments"],
}
SEARCH_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "queries": {
            "type": "array",
            "items": {"type": "string"},
            "description": "What tools should do: two or three for each step, in the words of tools.",
        },
        "limit": {"type": "integer", "minimum": 1, "maximum": MAX_FOUND, "default": FOUND},
    },
}


def read_search(arguments: Mapping[str, Any]) -> tuple[list[str], int]:
    """Return the requests of a search, and how many tools it may find in all.

    A single `query` is taken as well, since models often send one.

    Raises:
        ValueError: `queries` is not a list, or `limit` is not a number.
    """
    given: Any = arguments.get("queries") or []
    limit = arguments.get("limit", FOUND)
    if not isinstance(given, list) or not isinstance(limit, int):
        msg = "`queries` must be a list of texts and `limit` a number"
        raise ValueError(msg)  # noqa: TRY004 -- the arguments are a model's
    texts = [arguments.get("query"), *cast("list[object]", given)]
    asked = [text for text in texts if isinstance(text, str) and text.strip()]
    return asked, max(1, min(limit * max(1, len(asked)), MAX_FOUND))
