"""A result as it stands on the wire becomes an `Answer` of `Part`s.

A block that is broken or of an unknown kind becomes a text that says so: nothing is dropped silently.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from dragoman.model import Part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a tool gave, in our nouns but not yet rendered."""

    parts: Sequence[Part]
    structured: Any = None
    is_error: bool = False
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])


def to_answer(result: Mapping[str, Any]) -> Answer:
    """Turn the result of `tools/call` into an answer."""
    parts = [to_part(block) for block in result.get("content") or ()]
    structured = result.get("structuredContent")
    if structured is not None:
        parts.append(Part(kind="structured", value=structured))
    return Answer(
        parts=parts,
        structured=structured,
        is_error=result.get("isError") is True,
        meta=result.get("_meta") or {},
    )


def to_part(block: Mapping[str, Any]) -> Part:
    """Turn a content block into a piece of a result."""
    kind = block.get("type")
    meta = cast("Mapping[str, Any]", block.get("_meta") or {})
    match kind:
        case "text":
            return Part(kind="text", text=_text(block, "text"), meta=meta)
        case "image" | "audio":
            data = _decoded(_text(block, "data"))
            if data is None:
                return Part(kind="text", text=f"[{kind}: unreadable, it is not base64]", meta=meta)
            return Part(kind=kind, data=data, mime_type=_text(block, "mimeType"), meta=meta)
        case "resource_link":
            return Part(
                kind="link",
                text=_text(block, "title") or _text(block, "name"),
                uri=_text(block, "uri"),
                mime_type=_text(block, "mimeType"),
                meta=meta,
            )
        case "resource":
            resource = cast("Mapping[str, Any]", block.get("resource") or {})
            return Part(
                kind="resource",
                text=_text(resource, "text"),
                data=_decoded(_text(resource, "blob")) or b"",
                uri=_text(resource, "uri"),
                mime_type=_text(resource, "mimeType"),
                meta=meta,
            )
        case _:
            return Part(kind="text", text=f"[content of an unknown kind: {kind}]", meta=meta)


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    return value if isinstance(value, str) else ""


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return None
