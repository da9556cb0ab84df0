"""Google's Gemini API, with schemas as JSON Schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.tools.export.api import ModelApi, ToolForm
from dragoman.tools.export.fit import Demands, fit
from dragoman.tools.names import NameRule
from dragoman.tools.result.media import COMMON_IMAGES, MediaLimits, joined, sort_media

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.model import JsonObject, Part, ToolDef
    from dragoman.tools.export.schema import Fitted
    from dragoman.tools.result.media import Block

NAMES = NameRule("a-zA-Z0-9_.:-", 128, starts_with_letter=True)
PARAMETERS = NameRule("a-zA-Z0-9_", 64, starts_with_letter=True)
MEDIA = MediaLimits(name="Gemini", images=COMMON_IMAGES, max_image_bytes=14 * 2**20)
_DEMANDS = Demands(references=False, parameters=PARAMETERS)


def fit_gemini(tool: ToolDef) -> Fitted:
    """Fit a tool for either form of the API."""
    return fit(tool, _DEMANDS)


def _shape(alias: str, fitted: Fitted, _tool: ToolDef) -> JsonObject:
    return {"name": alias, "description": fitted.description, "parameters_json_schema": fitted.schema}


API = ModelApi(names=NAMES, form=ToolForm(fit_gemini, _shape))


def gemini_response(text: str, parts: Sequence[Part], *, is_error: bool = False) -> Block:
    """Return a `functionResponse` for Gemini, without its name and id: `response`, and `parts` if it has any.

    No GIF; images up to 14 MB, since a request is limited to 20 MB in base64.
    """
    media, notes = sort_media(text, parts, MEDIA)
    response: Block = {"response": {"error" if is_error else "output": joined(text, notes)}}
    if media:
        response["parts"] = [{"inlineData": {"mimeType": one.mime_type, "data": one.base64}} for one in media]
    return response
