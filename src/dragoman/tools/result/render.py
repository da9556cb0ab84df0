"""Parse a server's result, and render it as one string or as the blocks of a model API.

Texts are joined by newlines, in the server's order. A part that is not text becomes a short description in
brackets, and stays available in the result. Structured content is shown as JSON, unless the text contains it
already. Sources come last, and are kept when a budget cuts the rest. Rendering never fails.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, cast

from dragoman.languages import fill
from dragoman.model import Part, Texts
from dragoman.struct import HIDDEN, MutableStruct, field
from dragoman.tools.result.budget import TextBudget, fit
from dragoman.tools.schema.cost import cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dragoman.model import SourceRef


ANNOTATIONS = "dragoman/annotations"
"""The key in a part's `meta` for the block's annotations: audience, priority, lastModified."""
DETAILS = "dragoman/details"
"""The key in a part's `meta` for other fields of a block: name, title, description, size, alt."""
FILE = "dragoman/file"
"""The key in a part's `meta` for the path of the file with its bytes."""

_DETAILS = ("name", "title", "description", "alt", "size")


_YES = (True, "true", "True")
"""Values that servers use for true; 1 is among them."""


class ServerAnswer(MutableStruct, kw_only=True):
    """A tool's answer, parsed but not rendered."""

    parts: Sequence[Part]
    structured: Any = None
    is_error: bool = False
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    raw: Annotated[Mapping[str, Any], HIDDEN] = field(default_factory=dict[str, Any])
    """The result as the server sent it."""


def to_answer(result: Mapping[str, Any]) -> ServerAnswer:
    """Turn the result of `tools/call` into an answer."""
    parts = [to_part(block) for block in result.get("content") or ()]
    structured = result.get("structuredContent")
    if structured is not None:
        parts.append(Part(kind="structured", value=structured))
    return ServerAnswer(
        parts=parts,
        structured=structured,
        is_error=result.get("isError") in _YES,
        meta=_mapping(result.get("_meta")),
        raw=result,
    )


def local_answer(text: str) -> ServerAnswer:
    """Return the result of a local function like the answer of a server, so that its sources are found."""
    try:
        read = json.loads(text) if text.startswith("{") else None
    except (ValueError, RecursionError):
        read = None
    raw: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": False}
    return to_answer({**raw, "structuredContent": read} if isinstance(read, dict) else raw)


def to_part(block: Mapping[str, Any]) -> Part:
    """Turn a content block into a piece of a result."""
    kind = block.get("type")
    match kind:
        case "text":
            return Part(kind="text", text=_text(block, "text"), meta=_meta(block))
        case "image" | "audio":
            data = _decoded(_text(block, "data"))
            if data is None:
                return Part(kind="text", text=f"[{kind}: unreadable, not valid base64]", meta=_meta(block))
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
            return Part(kind="text", text=f"[content of unknown type: {kind}]", meta=_meta(block))


def _resource(block: Mapping[str, Any]) -> Part:
    resource = _mapping(block.get("resource"))
    uri, blob = _text(resource, "uri"), _text(resource, "blob")
    data = _decoded(blob)
    meta = {**_meta(resource, details=True), **_meta(block)}
    if data is None:
        text = f"[resource: {uri or 'without a URI'}: unreadable, not valid base64]"
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
    if value is None:
        return {}
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


_PNG = b"\x89PNG\r\n\x1a\n"
_GIF = (b"GIF87a", b"GIF89a")
_JPEG = b"\xff\xd8"
# Frame headers of JPEG hold the size; the three left out of the range are tables, not frames.
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_STANDALONE = frozenset({0x01, *range(0xD0, 0xD8)})


def image_type(data: bytes) -> str:
    """Return the media type according to the first bytes; empty if unknown."""
    if data.startswith(_PNG):
        return "image/png"
    if data.startswith(_GIF):
        return "image/gif"
    if data.startswith(_JPEG):
        return "image/jpeg"
    return "image/webp" if _is_webp(data) else ""


def image_size(data: bytes) -> str:
    """Read the size of a PNG, GIF, JPEG or WebP from its header, as `64x64`; nothing if it has none."""
    if data.startswith(_PNG) and data[12:16] == b"IHDR" and len(data) >= 24:
        return f"{int.from_bytes(data[16:20])}x{int.from_bytes(data[20:24])}"
    if data.startswith(_GIF) and len(data) >= 10:
        return f"{int.from_bytes(data[6:8], 'little')}x{int.from_bytes(data[8:10], 'little')}"
    if _is_webp(data):
        return _webp_size(data)
    return _jpeg_size(data) if data.startswith(_JPEG) else ""


def _is_webp(data: bytes) -> bool:
    return data[:4] == b"RIFF" and data[8:12] == b"WEBP"


def _webp_size(data: bytes) -> str:
    """Read the size from the first chunk: plain (`VP8 `), lossless (`VP8L`) or extended (`VP8X`)."""
    kind = data[12:16]
    if kind == b"VP8X" and len(data) >= 30:
        width, height = data[24:27], data[27:30]
        return f"{int.from_bytes(width, 'little') + 1}x{int.from_bytes(height, 'little') + 1}"
    if kind == b"VP8L" and len(data) >= 25 and data[20] == 0x2F:
        bits = int.from_bytes(data[21:25], "little")
        return f"{(bits & 0x3FFF) + 1}x{(bits >> 14 & 0x3FFF) + 1}"
    if kind == b"VP8 " and len(data) >= 30 and data[23:26] == b"\x9d\x01\x2a":
        width, height = (int.from_bytes(data[at : at + 2], "little") & 0x3FFF for at in (26, 28))
        return f"{width}x{height}"
    return ""


def _jpeg_size(data: bytes) -> str:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _JPEG_FRAMES:
            height, width = data[at + 5 : at + 7], data[at + 7 : at + 9]
            return f"{int.from_bytes(width)}x{int.from_bytes(height)}"
        if marker == 0xFF:
            at += 1
        elif marker in _JPEG_STANDALONE:
            at += 2
        else:
            at += 2 + max(2, int.from_bytes(data[at + 2 : at + 4]))
    return ""


MAX_SHOWN_SOURCES = 20
MAX_FACT_CHARS = 300
MAX_COMPARED_CHARS = 200_000
"""Longer texts are not searched for embedded structured content."""

_ALTS = ("alt", "altText", "alt_text", "caption", "description", "title")


def render(
    parts: Sequence[Part],
    sources: Iterable[SourceRef] = (),
    *,
    budget: TextBudget | None = None,
    spill: Callable[[str], str] | None = None,
) -> str:
    """Return everything as one string.

    Args:
        parts: The pieces.
        sources: What the text ends with.
        budget: How long it may be; unlimited unless given.
        spill: Stores a text that exceeds the budget; returns its place, as text for the model.
    """
    body, end = pieces(parts, sources)
    if budget is None or budget.holds(body + end):
        return body + end
    whole = spill(body + end) if spill is not None else ""
    return fit(body, budget, end=end, whole=whole)


def pieces(
    parts: Sequence[Part], sources: Iterable[SourceRef] = (), *, words: Texts | None = None
) -> tuple[str, str]:
    """Return the text that may be cut, and the end that is kept: the sources.

    Args:
        parts: The pieces.
        sources: What the text ends with.
        words: The words for images, resources and sources.
    """
    if len(parts) == 1 and parts[0].kind == "text" and not sources:
        return parts[0].text, ""
    texts = [part.text for part in parts if part.kind == "text"]
    instead = {"image": words.image, "resource": words.resource} if words is not None else {}
    shown: list[str] = []
    for part in parts:
        if part.kind == "structured":
            if not is_carried(part.value, texts):
                shown.append(_json(part.value))
        else:
            shown.append(instead.get(part.kind) or describe(part))
    body, end = "\n".join(text for text in shown if text), attribution(sources, words)
    return body, f"\n{end}" if body and end else end


def describe(part: Part) -> str:
    """Return the text of a part, or its description if it is not text."""
    match part.kind:
        case "text":
            return part.text
        case "image":
            return _bracketed(
                "image",
                part.mime_type,
                image_size(part.data),
                _bytes(part.data),
                _saved(part),
                alt=alt_text(part),
            )
        case "audio":
            return _bracketed("audio", part.mime_type, _bytes(part.data), _saved(part), alt=alt_text(part))
        case "link":
            return _link(part)
        case "resource":
            # The text of a binary part is its description, not its content.
            size = _bytes(part.data) if part.data or not part.text else f"{len(part.text)} characters"
            head = _bracketed("resource", part.uri, part.mime_type, size, _saved(part), alt=alt_text(part))
            return f"{head}\n{part.text}" if part.text and not part.data else head
        case "structured":
            return _json(part.value)


def _saved(part: Part) -> str:
    path = part.meta.get(FILE)
    return f"saved as `{path}`" if isinstance(path, str) and path else ""


def alt_text(part: Part) -> str:
    """Return the description of a part, if it has one."""
    places = (_mapping(part.meta.get(DETAILS)), part.meta, _mapping(part.meta.get(ANNOTATIONS)))
    for fields in places:
        for key in _ALTS:
            value = fields.get(key)
            if isinstance(value, str) and value.strip():
                return cut(" ".join(value.split()), MAX_FACT_CHARS)
    return ""


def attribution(sources: Iterable[SourceRef], words: Texts | None = None) -> str:
    """Return the block of sources, each with its date; empty if there are none."""
    words = words or Texts()
    lines: list[str] = []
    for source in sources:
        line = ", ".join(text for text in (source.title, source.locator) if text)
        line += f" <{source.url}>" if source.url and source.url != source.title else ""
        line += f" {fill(words.updated, date=source.updated) if source.updated else words.undated}"
        lines.append(f"- {line.strip()}")
    if len(lines) > MAX_SHOWN_SOURCES:
        lines[MAX_SHOWN_SOURCES:] = [f"- … and {len(lines) - MAX_SHOWN_SOURCES} more"]
    return "\n".join(["", words.sources, *lines]) if lines else ""


def is_carried(value: Any, texts: Sequence[str]) -> bool:
    """Return whether the texts already contain the structured content."""
    if not texts:
        return False
    known: list[Any] = [value]
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        # Structured content has to be an object, so servers wrap a bare value, as `{"result": …}`.
        known += list(fields.values()) if len(fields) == 1 else []
    said = [_read(text) for text in texts]
    try:
        return any(item in known for item in (*said, *texts, said)) or _is_quoted(
            cast("object", value), texts
        )
    except RecursionError:
        return False


def _is_quoted(value: object, texts: Sequence[str]) -> bool:
    """Return whether a text contains the data as JSON among other text, in any formatting."""
    if not value or not isinstance(value, dict | list):
        return False
    size = sum(map(len, texts))
    if size > MAX_COMPARED_CHARS:
        return False
    data = _squeezed(_json(cast("object", value)))
    return len(data) <= size and any(data in _squeezed(text) for text in texts)


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _link(part: Part) -> str:
    details = _mapping(part.meta.get(DETAILS))
    name, size, description = (details.get(key) for key in ("name", "size", "description"))
    label = part.text
    if isinstance(name, str) and name and name != label:
        label = f"{label} ({name})" if label else name
    measure = _count(size) if isinstance(size, int) and not isinstance(size, bool) else ""
    about = description if isinstance(description, str) else ""
    return _bracketed("resource link", label, part.uri, part.mime_type, measure, alt=about)


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return f"[structured content that is not JSON: {type(value).__name__}]"


def _read(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _bytes(data: bytes) -> str:
    return _count(len(data))


def _count(size: int) -> str:
    return f"{size} byte{'' if size == 1 else 's'}"


def _bracketed(kind: str, *facts: str, alt: str = "") -> str:
    known = ", ".join(cut(" ".join(fact.split()), MAX_FACT_CHARS) for fact in facts if fact)
    text = f"{kind}: {known}" if known else kind
    return f"[{text}: {cut(' '.join(alt.split()), MAX_FACT_CHARS)}]" if alt else f"[{text}]"
