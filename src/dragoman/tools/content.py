"""A server's result, as raw protocol data, becomes an `Answer` of `Part`s.

A block that is broken or of an unknown kind becomes a text that says so: nothing is dropped silently. What a
block says about itself beyond its content (annotations; name, description and size of a link) is kept in the
part's `meta`, under keys of ours.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from dragoman.model import Part

if TYPE_CHECKING:
    from collections.abc import Sequence

ANNOTATIONS = "dragoman/annotations"
"""The key in a part's `meta` for the block's annotations: audience, priority, lastModified."""
DETAILS = "dragoman/details"
"""The key in a part's `meta` for what else a block says: name, title, description, size, alt."""
FILE = "dragoman/file"
"""The key in a part's `meta` for the path of the file that its bytes were saved in."""

_DETAILS = ("name", "title", "description", "alt", "size")


_YES = (True, "true", "True")
"""What servers write for yes; 1 is among them."""


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
        is_error=result.get("isError") in _YES,
        meta=_mapping(result.get("_meta")),
    )


def to_part(block: Mapping[str, Any]) -> Part:
    """Turn a content block into a piece of a result."""
    kind = block.get("type")
    match kind:
        case "text":
            return Part(kind="text", text=_text(block, "text"), meta=_meta(block))
        case "image" | "audio":
            data = _decoded(_text(block, "data"))
            if data is None:
                return Part(kind="text", text=f"[{kind}: unreadable, it is not base64]", meta=_meta(block))
            return Part(
                kind=kind, data=data, mime_type=_text(block, "mimeType"), meta=_meta(block, details=True)
            )
        case "resource_link":
            return Part(
                kind="link",
                text=_text(block, "title") or _text(block, "name"),
                uri=_text(block, "uri"),
                mime_type=_text(block, "mimeType"),
                meta=_meta(block, details=True),
            )
        case "resource":
            return _resource(block)
        case _:
            return Part(kind="text", text=f"[content of an unknown kind: {kind}]", meta=_meta(block))


def _resource(block: Mapping[str, Any]) -> Part:
    resource = _mapping(block.get("resource"))
    uri, blob = _text(resource, "uri"), _text(resource, "blob")
    data = _decoded(blob)
    meta = {**_meta(resource, details=True), **_meta(block)}
    if data is None:
        text = f"[resource: {uri or 'without an address'}: unreadable, it is not base64]"
        return Part(kind="text", text=text, uri=uri, meta=meta)
    return Part(
        kind="resource",
        text=_text(resource, "text"),
        data=data,
        uri=uri,
        mime_type=_text(resource, "mimeType"),
        meta=meta,
    )


def _meta(block: Mapping[str, Any], *, details: bool = False) -> dict[str, Any]:
    meta = dict(_mapping(block.get("_meta")))
    if annotations := _mapping(block.get("annotations")):
        meta[ANNOTATIONS] = annotations
    if details:
        found = {key: block[key] for key in _DETAILS if isinstance(block.get(key), str | int)}
        if found:
            meta[DETAILS] = found
    return meta


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    return value if isinstance(value, str) else ""


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        pass
    # Servers write line breaks, the alphabet for URLs, no padding, or a whole data URL.
    head, _, rest = text.partition(",")
    plain = "".join((rest if head.startswith("data:") else text).split()).translate(_URL_ALPHABET)
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


_URL_ALPHABET = str.maketrans("-_", "+/")
