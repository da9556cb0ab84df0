"""One call of a tool from a page: reports of progress, then the result, as lines of JSON.

The call takes the road of every other call. It is cancelled when the page ends the request.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, cast

from dragoman.console.desk import cleaned, json_text
from dragoman.errors import InvalidArgumentsError
from dragoman.server.protocol.context import with_claims
from dragoman.struct import Struct
from dragoman.tools.result.render import describe, image_type
from dragoman.trust.encoding import encoded
from dragoman.visible import shown

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from dragoman.console.desk import Desk
    from dragoman.model import Part, ToolResult

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What a page draws: no format that can hold a program or an address."""
MAX_IMAGE_BYTES = 4 * 2**20
MAX_TEXT = 500_000
"""Characters that a page gets of one text or of the structured data of a result."""
MOST_PARTS = 50
MOST_PROGRESS = 1000
"""Reports that wait for a page that reads slowly; the oldest are dropped."""


class Call(Struct, kw_only=True):
    """A call that a page asks for."""

    tool: str
    arguments: Mapping[str, Any]
    timeout: float | None = None
    claims: Mapping[str, Any] | None = None
    """What the token of the visitor says, as for a call over MCP."""


def read_arguments(text: str) -> tuple[str, dict[str, Any], float | None]:
    """Read the body of a request: the tool's name, its arguments, and the seconds that it may take.

    Raises:
        InvalidArgumentsError: The body is not such an object, or has a number that no float can hold.
    """
    try:
        body: Any = json.loads(text, parse_float=_float, parse_constant=_refuse)
    except (ValueError, RecursionError) as exc:
        raise InvalidArgumentsError(f"not JSON: {exc}"[:300]) from exc
    fields = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
    tool, arguments, timeout = fields.get("tool"), fields.get("arguments"), fields.get("timeout")
    if not isinstance(tool, str) or not isinstance(arguments, dict):
        msg = "the request needs `tool`, a text, and `arguments`, an object"
        raise InvalidArgumentsError(msg)
    if timeout is not None and not (type(timeout) in (int, float) and 0 < timeout <= 86_400):
        msg = "`timeout` is a number of seconds, at most 86400"
        raise InvalidArgumentsError(msg)
    return tool, cast("dict[str, Any]", arguments), timeout


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        msg = f"the number {text[:40]} is too large to be sent"
        raise ValueError(msg)
    return value


def _refuse(name: str) -> float:
    msg = f"{name} is not JSON"
    raise ValueError(msg)


async def stream_call(desk: Desk, asked: Call) -> AsyncGenerator[bytes]:
    """Yield `{"progress": …}` while a call runs, then `{"result": …}`."""
    news: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(MOST_PROGRESS)

    def report(progress: float, total: float | None, message: str | None) -> None:
        if not news.full():
            news.put_nowait({"done": progress, "total": total, "message": shown(message or "")[:1000]})

    name = desk.find_tool(asked.tool).name
    made = desk.mcp.call(name, asked.arguments, timeout=asked.timeout, on_progress=report)
    with nullcontext() if asked.claims is None else with_claims(asked.claims):
        call = asyncio.ensure_future(made)
    call.add_done_callback(lambda _: None if news.full() else news.put_nowait(None))
    try:
        while not call.done() or not news.empty():
            one = await news.get()
            if one is not None:
                yield _line({"progress": one})
        yield _line({"result": result_row(call.result())})
    finally:
        if not call.done():
            call.cancel()
            await asyncio.wait({call})


def result_row(result: ToolResult) -> dict[str, Any]:
    """Return a result as a page shows it."""
    text = shown(result.text[:MAX_TEXT]) if result.success else ""
    structured = None if result.structured is None else json_text(result.structured)
    provenance = result.provenance
    return {
        "success": result.success,
        "error": shown(result.error or "") if not result.success else "",
        "error_code": result.exception.code if result.exception is not None else "",
        "text": text,
        "text_chars": len(result.text),
        "structured_json": structured if structured is not None and len(structured) <= MAX_TEXT else None,
        "parts": [_part(part) for part in result.parts[:MOST_PARTS] if part.kind != "text"],
        "sources": [] if provenance is None else cleaned(encoded(list(provenance.sources))),
        "at": 0.0 if provenance is None else provenance.at,
        "server": "" if provenance is None else shown(provenance.server),
        "duration": result.duration,
        "call_id": result.call_id,
        "task": None if result.task is None else result.task.id,
    }


def _part(part: Part) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": part.kind, "about": shown(describe(part))[:2000], "data": ""}
    kind = image_type(part.data) if part.kind == "image" else ""
    if kind in IMAGES and len(part.data) <= MAX_IMAGE_BYTES:
        found["data"] = f"data:{kind};base64,{base64.b64encode(part.data).decode('ascii')}"
    return found


def _line(value: Mapping[str, Any]) -> bytes:
    return f"{json_text(value)}\n".encode("utf-8", "replace")
