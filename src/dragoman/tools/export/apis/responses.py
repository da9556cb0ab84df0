"""OpenAI's Responses API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.tools.export.api import ModelApi, ToolForm
from dragoman.tools.export.apis.openai import MEDIA, NAMES, fit_openai, fit_strict
from dragoman.tools.result.media import joined, said_in_blocks, sort_media

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.model import JsonObject, Part, ToolDef
    from dragoman.tools.export.schema import Fitted
    from dragoman.tools.result.media import Block


def _shape(alias: str, fitted: Fitted, _tool: ToolDef) -> JsonObject:
    return {
        "type": "function",
        "name": alias,
        "description": fitted.description,
        "parameters": fitted.schema,
        "strict": fitted.strict,
    }


API = ModelApi(
    names=NAMES,
    form=ToolForm(fit_openai, _shape),
    strict=ToolForm(fit_strict, _shape),
    is_checked=False,
    cost_place=2,
)


def responses_output(text: str, parts: Sequence[Part]) -> str | list[Block]:
    """Return the `output` of a `function_call_output` for OpenAI's Responses API.

    Images of 20 MB; PDF files.
    """
    media, notes = sort_media(text, parts, MEDIA)
    if not media:
        return joined(text, notes)
    blocks: list[Block] = [{"type": "input_text", "text": said} for said in said_in_blocks(text, notes)]
    for one in media:
        if one.kind == "image":
            blocks.append({"type": "input_image", "image_url": one.url, "detail": "auto"})
        else:
            blocks.append({"type": "input_file", "filename": one.name, "file_data": one.url})
    return blocks
