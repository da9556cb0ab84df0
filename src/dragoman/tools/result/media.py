"""The images and files of a result for a model API, and notes for what that API does not take."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dragoman.struct import Struct
from dragoman.tools.result.render import describe, image_size, image_type
from dragoman.tools.schema.cost import cut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.model import Part

Block: TypeAlias = dict[str, Any]

MAX_MEDIA = 20
"""Images and files of one result; with more, Anthropic takes smaller images only."""
MAX_TOTAL_BYTES = 20 * 2**20
PDF = "application/pdf"
COMMON_IMAGES = frozenset({"image/png", "image/jpeg", "image/webp"})


class MediaLimits(Struct, kw_only=True):
    """The images and files that one API supports."""

    name: str
    """The API, as notes call it."""
    images: frozenset[str]
    max_image_bytes: int
    max_pixels: int = 0
    """Pixels per side; unlimited by default."""


class Media(Struct):
    """An image or a file in a form that an API supports."""

    kind: Literal["image", "file"]
    mime_type: str
    data: bytes
    label: str
    name: str

    @property
    def base64(self) -> str:
        """The data as base64."""
        return base64.b64encode(self.data).decode("ascii")

    @property
    def url(self) -> str:
        """The data as a `data:` URL."""
        return f"data:{self.mime_type};base64,{self.base64}"


def sort_media(text: str, parts: Sequence[Part], limits: MediaLimits) -> tuple[list[Media], list[str]]:
    """Split the parts into supported media and notes for the rest."""
    media: list[Media] = []
    notes: list[str] = []
    total = 0
    for part in parts:
        if part.kind in ("text", "structured"):
            continue
        label = _label(part)
        found = _media(part, label, limits)
        if isinstance(found, Media) and len(media) >= MAX_MEDIA:
            found = f"there are more than {MAX_MEDIA}"
        if isinstance(found, Media) and total + len(found.data) > MAX_TOTAL_BYTES:
            found = "the result has too many bytes"
        if isinstance(found, Media):
            total += len(found.data)
            media.append(found)
        elif found:
            notes.append(f"{label[:-1]}; not shown: {found}]")
        elif label not in text:
            notes.append(label)
    return media, notes


def _media(part: Part, label: str, limits: MediaLimits) -> Media | str:
    """Return a piece as the API takes it, or why it does not; nothing if it is neither image nor file."""
    declared = part.mime_type.partition(";")[0].strip().lower()
    if part.kind == "resource" and declared == PDF and part.data:
        # A reader looks for the mark in the first kilobyte.
        if b"%PDF-" not in part.data[:1024]:
            return "it is not a valid PDF"
        return Media("file", PDF, part.data, label, _file_name(part))
    if part.kind != "image" and not (part.kind == "resource" and part.data and declared.startswith("image/")):
        return ""
    # The actual bytes count: an API rejects a PNG that is declared as a JPEG.
    kind = image_type(part.data)
    if not kind:
        return f"{cut(declared) or 'an unknown type'} is not supported, or it is not a valid image"
    if kind not in limits.images:
        return f"{limits.name} does not support {kind}"
    if len(part.data) > limits.max_image_bytes:
        return f"{limits.name} accepts at most {limits.max_image_bytes} bytes"
    sides = [int(side) for side in image_size(part.data).split("x") if side]
    if not sides or 0 in sides:
        return "it is not a valid image"
    if limits.max_pixels and max(sides) > limits.max_pixels:
        return f"{limits.name} accepts at most {limits.max_pixels} pixels per side"
    return Media("image", kind, part.data, label, _file_name(part))


def _label(part: Part) -> str:
    """Return the one-line description of a part, even of a text resource."""
    first = describe(part).partition("\n")[0]
    return _encodable(first if first.endswith("]") else f"[{part.kind}]")


def _file_name(part: Part) -> str:
    name = part.uri.partition("?")[0].rstrip("/").rpartition("/")[2][-100:]
    return _encodable(name) or "document.pdf"


def said_in_blocks(text: str, notes: list[str]) -> list[str]:
    """Return the text and the notes for a block of text, if there is any."""
    said = joined(text, notes)
    return [said] if said.strip() else []


def joined(text: str, notes: list[str]) -> str:
    """Return the text and the notes as one text that a request can carry."""
    return _encodable("\n".join([said for said in (text, *notes) if said]))


def _encodable(text: str) -> str:
    """Replace lone surrogates, which JSON can write but no request can carry."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
