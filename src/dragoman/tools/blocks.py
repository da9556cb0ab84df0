"""A result in the blocks of each model API: what the API can take of its pieces, and a note for the rest.

The policy: the rendered text comes first and already has, where each piece stood, a line that describes it;
then come the images and PDF files that the API takes, in their order. An image that it would refuse (another
type, bytes that are no image, too large, too many) is left out with a note that says why: one refused block
would fail the whole request, and every later one that repeats the conversation. What the text does not
mention gets a note too, so nothing is dropped silently.

The limits are those that the APIs document for a request without uploads; each function says which.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dragoman.tools.pictures import image_size, image_type
from dragoman.tools.rendering import describe
from dragoman.tools.schema_cost import cut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.model import Part

Block: TypeAlias = dict[str, Any]

MAX_MEDIA = 20
"""Images and files of one result; with more, Anthropic takes smaller images only."""
MAX_TOTAL_BYTES = 20 * 2**20
PDF = "application/pdf"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Api:
    """What one API takes."""

    name: str
    images: frozenset[str]
    max_image_bytes: int
    max_pixels: int = 0
    """Of each side; none unless given."""


_COMMON = frozenset({"image/png", "image/jpeg", "image/webp"})
_ANTHROPIC = _Api(
    name="Anthropic",
    images=_COMMON | {"image/gif"},
    max_image_bytes=5 * 2**20 * 3 // 4,  # Five megabytes once they are base64.
    max_pixels=8000,
)
_OPENAI = _Api(name="OpenAI", images=_COMMON | {"image/gif"}, max_image_bytes=20 * 2**20)
_GEMINI = _Api(name="Gemini", images=_COMMON, max_image_bytes=14 * 2**20)


@dataclass(frozen=True, slots=True)
class _Media:
    """An image or a file that an API takes."""

    kind: Literal["image", "file"]
    mime_type: str
    data: bytes
    label: str
    name: str

    @property
    def base64(self) -> str:
        return base64.b64encode(self.data).decode("ascii")

    @property
    def url(self) -> str:
        return f"data:{self.mime_type};base64,{self.base64}"


def anthropic_content(text: str, parts: Sequence[Part]) -> str | list[Block]:
    """Return the content of a `tool_result` for Anthropic's Messages API; an error's flag goes beside it.

    Images of 5 MB in base64 and 8000 pixels a side; PDF files become documents.
    """
    media, notes = _sorted(text, parts, _ANTHROPIC)
    if not media:
        return _joined(text, notes)
    blocks: list[Block] = [{"type": "text", "text": said} for said in _texts(text, notes)]
    for one in media:
        source = {"type": "base64", "media_type": one.mime_type, "data": one.base64}
        if one.kind == "image":
            blocks.append({"type": "image", "source": source})
        else:
            blocks.append({"type": "document", "source": source, "title": one.name})
    return blocks


def responses_output(text: str, parts: Sequence[Part]) -> str | list[Block]:
    """Return the `output` of a `function_call_output` for OpenAI's Responses API.

    Images of 20 MB; PDF files.
    """
    media, notes = _sorted(text, parts, _OPENAI)
    if not media:
        return _joined(text, notes)
    blocks: list[Block] = [{"type": "input_text", "text": said} for said in _texts(text, notes)]
    for one in media:
        if one.kind == "image":
            blocks.append({"type": "input_image", "image_url": one.url, "detail": "auto"})
        else:
            blocks.append({"type": "input_file", "filename": one.name, "file_data": one.url})
    return blocks


def chat_content(text: str, parts: Sequence[Part]) -> tuple[str, list[Block] | None]:
    """Return the text of a `tool` message for OpenAI's Chat API, and what a `user` message then has to show.

    A tool's message takes text only. The images follow once all tools of the turn have answered, each after
    its description, so that it is clear which one it is.
    """
    media, notes = _sorted(text, parts, _OPENAI)
    following: list[Block] = []
    for one in media:
        following.append({"type": "text", "text": one.label})
        if one.kind == "image":
            following.append({"type": "image_url", "image_url": {"url": one.url}})
        else:
            following.append({"type": "file", "file": {"filename": one.name, "file_data": one.url}})
    return _joined(text, notes), following or None


def gemini_response(text: str, parts: Sequence[Part], *, is_error: bool = False) -> Block:
    """Return a `functionResponse` for Gemini, without its name and id: `response`, and `parts` if it has any.

    No GIF; images of 14 MB, for a request may have 20 in base64.
    """
    media, notes = _sorted(text, parts, _GEMINI)
    response: Block = {"response": {"error" if is_error else "output": _joined(text, notes)}}
    if media:
        response["parts"] = [{"inlineData": {"mimeType": one.mime_type, "data": one.base64}} for one in media]
    return response


def _sorted(text: str, parts: Sequence[Part], api: _Api) -> tuple[list[_Media], list[str]]:
    """Part what the API takes from what it does not."""
    media: list[_Media] = []
    notes: list[str] = []
    total = 0
    for part in parts:
        if part.kind in ("text", "structured"):
            continue
        label = _label(part)
        found = _media(part, label, api)
        if isinstance(found, _Media) and len(media) >= MAX_MEDIA:
            found = f"there are more than {MAX_MEDIA}"
        if isinstance(found, _Media) and total + len(found.data) > MAX_TOTAL_BYTES:
            found = "the result has too many bytes"
        if isinstance(found, _Media):
            total += len(found.data)
            media.append(found)
        elif found:
            notes.append(f"{label[:-1]}; it is not shown: {found}]")
        elif label not in text:
            notes.append(label)
    return media, notes


def _media(part: Part, label: str, api: _Api) -> _Media | str:
    """Return a piece as the API takes it, or why it does not; nothing if it is neither image nor file."""
    declared = part.mime_type.partition(";")[0].strip().lower()
    if part.kind == "resource" and declared == PDF and part.data:
        # A reader looks for the mark in the first kilobyte.
        if b"%PDF-" not in part.data[:1024]:
            return "its bytes are no PDF"
        return _Media("file", PDF, part.data, label, _file_name(part))
    if part.kind != "image" and not (part.kind == "resource" and part.data and declared.startswith("image/")):
        return ""
    # What the bytes are counts: an API refuses a PNG that is called a JPEG.
    kind = image_type(part.data)
    if not kind:
        return f"{cut(declared) or 'an unknown type'} cannot be shown to the model, or its bytes are no image"
    if kind not in api.images:
        return f"{api.name} takes no {kind}"
    if len(part.data) > api.max_image_bytes:
        return f"{api.name} takes no more than {api.max_image_bytes} bytes"
    sides = [int(side) for side in image_size(part.data).split("x") if side]
    if not sides or 0 in sides:
        return "its bytes are no image"
    if api.max_pixels and max(sides) > api.max_pixels:
        return f"{api.name} takes no more than {api.max_pixels} pixels a side"
    return _Media("image", kind, part.data, label, _file_name(part))


def _label(part: Part) -> str:
    """Return the line that stands for a piece; of a resource that is text, not the text."""
    first = describe(part).partition("\n")[0]
    return _encodable(first if first.endswith("]") else f"[{part.kind}]")


def _file_name(part: Part) -> str:
    name = part.uri.partition("?")[0].rstrip("/").rpartition("/")[2][-100:]
    return _encodable(name) or "document.pdf"


def _texts(text: str, notes: list[str]) -> list[str]:
    said = _joined(text, notes)
    return [said] if said.strip() else []


def _joined(text: str, notes: list[str]) -> str:
    return _encodable("\n".join([said for said in (text, *notes) if said]))


def _encodable(text: str) -> str:
    """Replace lone surrogates, which JSON can write but no request can carry."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
