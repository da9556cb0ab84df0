"""A result's pieces as one string, for a model or a terminal.

The policy: texts are joined by newlines, in the server's order. A piece that is not text leaves a short
description in brackets where it stood, and stays available in the result. Structured content is shown
as JSON, but only if the text does not already carry it. Sources come last.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dragoman.model import Part, SourceRef

_PNG = b"\x89PNG\r\n\x1a\n"
_GIF = (b"GIF87a", b"GIF89a")
_JPEG = b"\xff\xd8"
# Frame headers of JPEG hold the size; the three left out of the range are tables, not frames.
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_STANDALONE = frozenset({0x01, *range(0xD0, 0xD8)})


def render(parts: Sequence[Part], sources: Iterable[SourceRef] = ()) -> str:
    """Return everything as one string."""
    texts = [part.text for part in parts if part.kind == "text"]
    shown: list[str] = []
    for part in parts:
        if part.kind == "structured":
            if not is_carried(part.value, texts):
                shown.append(json.dumps(part.value, ensure_ascii=False))
        else:
            shown.append(describe(part))
    shown.append(attribution(sources))
    return "\n".join(text for text in shown if text)


def describe(part: Part) -> str:
    """Return the text of a piece, or what stands for it where only text can go."""
    match part.kind:
        case "text":
            return part.text
        case "image":
            return _bracketed("image", part.mime_type, image_size(part.data), _bytes(part.data))
        case "audio":
            return _bracketed("audio", part.mime_type, _bytes(part.data))
        case "link":
            return _bracketed("resource link", part.text, part.uri, part.mime_type)
        case "resource":
            size = f"{len(part.text)} characters" if part.text else _bytes(part.data)
            head = _bracketed("resource", part.uri, part.mime_type, size)
            return f"{head}\n{part.text}" if part.text else head
        case "structured":
            return json.dumps(part.value, ensure_ascii=False)


def attribution(sources: Iterable[SourceRef]) -> str:
    """Return the block that names the sources, or nothing if there are none."""
    lines: list[str] = []
    for source in sources:
        line = ", ".join(text for text in (source.title, source.locator) if text)
        line += f" <{source.url}>" if source.url else ""
        line += f" (updated {source.updated})" if source.updated else ""
        lines.append(f"- {line.strip()}")
    return "\n".join(["", "Sources:", *lines]) if lines else ""


def is_carried(value: Any, texts: Sequence[str]) -> bool:
    """Tell whether the texts already say what the structured content says."""
    if not texts:
        return False
    known: list[Any] = [value]
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        # Structured content has to be an object, so servers wrap a bare value, as `{"result": …}`.
        known += list(fields.values()) if len(fields) == 1 else []
    said = [_read(text) for text in texts]
    return any(item in known for item in (*said, *texts, said))


def image_size(data: bytes) -> str:
    """Read the size of a PNG, GIF or JPEG from its header, as `64x64`; nothing if it has none."""
    if data.startswith(_PNG) and data[12:16] == b"IHDR" and len(data) >= 24:
        return f"{int.from_bytes(data[16:20])}x{int.from_bytes(data[20:24])}"
    if data.startswith(_GIF) and len(data) >= 10:
        return f"{int.from_bytes(data[6:8], 'little')}x{int.from_bytes(data[8:10], 'little')}"
    return _jpeg_size(data) if data.startswith(_JPEG) else ""


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


def _read(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _bytes(data: bytes) -> str:
    return f"{len(data)} byte{'' if len(data) == 1 else 's'}"


def _bracketed(kind: str, *facts: str) -> str:
    known = ", ".join(fact for fact in facts if fact)
    return f"[{kind}: {known}]" if known else f"[{kind}]"
