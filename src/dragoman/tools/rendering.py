"""A result's pieces as one string, for a model or a terminal.

The policy: texts are joined by newlines, in the server's order. A piece that is not text leaves a short
description in brackets where it stood, and stays available in the result. Structured content is shown
as JSON, but only if the text does not already carry it. Sources come last, and a budget that cuts the rest
leaves them. Whatever the pieces hold, there is a string for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from dragoman.tools.budget import Budget, fit
from dragoman.tools.content import ANNOTATIONS, DETAILS, FILE
from dragoman.tools.pictures import image_size
from dragoman.tools.schema_cost import cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dragoman.model import Part, SourceRef

MAX_SHOWN_SOURCES = 20
MAX_FACT_CHARS = 300
MAX_COMPARED_CHARS = 200_000
"""Longer texts are not searched for structured content that stands in the midst of them."""

_ALTS = ("alt", "altText", "alt_text", "caption", "description", "title")


def render(
    parts: Sequence[Part],
    sources: Iterable[SourceRef] = (),
    *,
    budget: Budget | None = None,
    spill: Callable[[str], str] | None = None,
) -> str:
    """Return everything as one string.

    Args:
        parts: The pieces.
        sources: What the text ends with.
        budget: How long it may be; unlimited unless given.
        spill: Keeps a text that is too long for the budget as a whole; returns where, in words for the model.
    """
    body, end = pieces(parts, sources)
    if budget is None or budget.holds(body + end):
        return body + end
    whole = spill(body + end) if spill is not None else ""
    return fit(body, budget, end=end, whole=whole)


def pieces(parts: Sequence[Part], sources: Iterable[SourceRef] = ()) -> tuple[str, str]:
    """Return what may be cut if it is too long, and the end that stays: the sources."""
    texts = [part.text for part in parts if part.kind == "text"]
    shown: list[str] = []
    for part in parts:
        if part.kind == "structured":
            if not is_carried(part.value, texts):
                shown.append(_json(part.value))
        else:
            shown.append(describe(part))
    body, end = "\n".join(text for text in shown if text), attribution(sources)
    return body, f"\n{end}" if body and end else end


def describe(part: Part) -> str:
    """Return the text of a piece, or what stands for it where only text can go."""
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
            # The text of one that is bytes is what stands for it, not its content.
            size = _bytes(part.data) if part.data or not part.text else f"{len(part.text)} characters"
            head = _bracketed("resource", part.uri, part.mime_type, size, _saved(part), alt=alt_text(part))
            return f"{head}\n{part.text}" if part.text and not part.data else head
        case "structured":
            return _json(part.value)


def _saved(part: Part) -> str:
    path = part.meta.get(FILE)
    return f"saved as `{path}`" if isinstance(path, str) and path else ""


def alt_text(part: Part) -> str:
    """Return what a piece is said to show or to be, if anything says it."""
    places = (_mapping(part.meta.get(DETAILS)), part.meta, _mapping(part.meta.get(ANNOTATIONS)))
    for fields in places:
        for key in _ALTS:
            value = fields.get(key)
            if isinstance(value, str) and value.strip():
                return cut(" ".join(value.split()), MAX_FACT_CHARS)
    return ""


def attribution(sources: Iterable[SourceRef]) -> str:
    """Return the block that names the sources, or nothing if there are none."""
    lines: list[str] = []
    for source in sources:
        line = ", ".join(text for text in (source.title, source.locator) if text)
        line += f" <{source.url}>" if source.url and source.url != source.title else ""
        line += f" (updated {source.updated})" if source.updated else ""
        lines.append(f"- {line.strip()}")
    if len(lines) > MAX_SHOWN_SOURCES:
        lines[MAX_SHOWN_SOURCES:] = [f"- … and {len(lines) - MAX_SHOWN_SOURCES} more"]
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
    try:
        return any(item in known for item in (*said, *texts, said)) or _is_quoted(
            cast("object", value), texts
        )
    except RecursionError:
        return False


def _is_quoted(value: object, texts: Sequence[str]) -> bool:
    """Tell whether a text holds the data as JSON in the midst of other words, however it is set."""
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
        return f"[structured content that is no JSON: {type(value).__name__}]"


def _read(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _bytes(data: bytes) -> str:
    return _count(len(data))


def _count(size: int) -> str:
    return f"{size} byte{'' if size == 1 else 's'}"


def _bracketed(kind: str, *facts: str, alt: str = "") -> str:
    known = ", ".join(cut(" ".join(fact.split()), MAX_FACT_CHARS) for fact in facts if fact)
    text = f"{kind}: {known}" if known else kind
    return f"[{text}: {cut(' '.join(alt.split()), MAX_FACT_CHARS)}]" if alt else f"[{text}]"
