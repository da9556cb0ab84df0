"""Anthropic's Messages API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.tools.export.api import ModelApi, ToolForm
from dragoman.tools.export.fit import Demands, fit
from dragoman.tools.names import NameRule
from dragoman.tools.result.media import COMMON_IMAGES, MediaLimits, joined, said_in_blocks, sort_media

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.model import JsonObject, Part, ToolDef
    from dragoman.tools.export.schema import Fitted
    from dragoman.tools.result.media import Block

NAMES = NameRule("a-zA-Z0-9_-", 64)
PARAMETERS = NameRule("a-zA-Z0-9_.-", 64)
MEDIA = MediaLimits(
    name="Anthropic",
    images=COMMON_IMAGES | {"image/gif"},
    max_image_bytes=5 * 2**20 * 3 // 4,  # Five megabytes once they are base64.
    max_pixels=8000,
)
_DEMANDS = Demands(parameters=PARAMETERS)


def _fit(tool: ToolDef) -> Fitted:
    return fit(tool, _DEMANDS)


def _shape(alias: str, fitted: Fitted, _tool: ToolDef) -> JsonObject:
    return {"name": alias, "description": fitted.description, "input_schema": fitted.schema}


API = ModelApi(names=NAMES, form=ToolForm(_fit, _shape), cost_place=3)


def anthropic_content(text: str, parts: Sequence[Part]) -> str | list[Block]:
    """Return the content of a `tool_result` for Anthropic's Messages API; an error's flag goes beside it.

    Images of 5 MB in base64 and 8000 pixels a side; PDF files become documents.
    """
    media, notes = sort_media(text, parts, MEDIA)
    if not media:
        return joined(text, notes)
    blocks: list[Block] = [{"type": "text", "text": said} for said in said_in_blocks(text, notes)]
    for one in media:
        source = {"type": "base64", "media_type": one.mime_type, "data": one.base64}
        if one.kind == "image":
            blocks.append({"type": "image", "source": source})
        else:
            blocks.append({"type": "document", "source": source, "title": one.name})
    return blocks
