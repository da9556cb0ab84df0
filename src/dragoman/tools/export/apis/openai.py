"""OpenAI's Chat Completions API, and what it has in common with the Responses API."""

from __future__ import annotations

import functools
import re
import warnings
from typing import TYPE_CHECKING

from dragoman.tools.export.api import ModelApi, ToolForm
from dragoman.tools.export.fit import Demands, fit
from dragoman.tools.export.schema import SchemaChange, UnfitError
from dragoman.tools.export.strict import make_strict
from dragoman.tools.names import NameRule
from dragoman.tools.result.media import COMMON_IMAGES, MediaLimits, joined, sort_media

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.model import JsonObject, Part, ToolDef
    from dragoman.tools.export.schema import Fitted
    from dragoman.tools.result.media import Block

NAMES = NameRule("a-zA-Z0-9_-", 64)
MEDIA = MediaLimits(name="OpenAI", images=COMMON_IMAGES | {"image/gif"}, max_image_bytes=20 * 2**20)
MAX_DESCRIPTION = 1024
MAX_PATTERN = 1_000

_LOOKAROUND = re.compile(r"\(\?<?[=!]")
_CONTINUED = " … (continued in the description of the parameters)"


@functools.lru_cache(maxsize=1024)
def reads(pattern: str) -> bool:
    """Return whether OpenAI takes a pattern."""
    if len(pattern) > MAX_PATTERN or _LOOKAROUND.search(pattern):
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


_DEMANDS = Demands(properties=True, items=True, reads=reads)


def fit_openai(tool: ToolDef) -> Fitted:
    """Fit a tool for either API of OpenAI."""
    return fit(tool, _DEMANDS)


def fit_strict(tool: ToolDef) -> Fitted:
    """Fit a tool for the strict mode, if its schema can be expressed in it."""
    fitted = fit_openai(tool)
    fitted.is_harmless = False  # defaults are told in words
    try:
        make_strict(fitted)
    except UnfitError as exc:
        fitted.record("", f"it is not strict: {exc}")
    return fitted


def _fit(tool: ToolDef) -> Fitted:
    return _share_description(fit_openai(tool))


def _fit_strict(tool: ToolDef) -> Fitted:
    return _share_description(fit_strict(tool))


def _shape(alias: str, fitted: Fitted, _tool: ToolDef) -> JsonObject:
    function: JsonObject = {"name": alias, "description": fitted.description, "parameters": fitted.schema}
    return {"type": "function", "function": function}


def _shape_strict(alias: str, fitted: Fitted, tool: ToolDef) -> JsonObject:
    shape = _shape(alias, fitted, tool)
    shape["function"]["strict"] = fitted.strict
    return shape


def _share_description(fitted: Fitted) -> Fitted:
    text = fitted.description
    if len(text) <= MAX_DESCRIPTION:
        return fitted
    end = MAX_DESCRIPTION - len(_CONTINUED)
    # At the end of a line or a sentence, unless that would leave little.
    at = max(text.rfind(mark, end // 2, end) + len(mark) - 1 for mark in ("\n", ". ", "。", " "))
    at = at if at >= end // 2 else end
    rest = text[at:].lstrip()
    about = fitted.schema.get("description")
    more = f"{rest}\n\n{about}" if isinstance(about, str) and about else rest
    fitted.schema = {**fitted.schema, "description": more}
    fitted.description = text[:at].rstrip() + _CONTINUED
    why = f"what goes beyond {MAX_DESCRIPTION} characters stands in the description of the parameters"
    fitted.add(SchemaChange("/description", why))
    return fitted


API = ModelApi(
    names=NAMES, form=ToolForm(_fit, _shape), strict=ToolForm(_fit_strict, _shape_strict), cost_place=1
)


def chat_content(text: str, parts: Sequence[Part]) -> tuple[str, list[Block] | None]:
    """Return the text of a `tool` message for OpenAI's Chat API, and the `user` message that follows it.

    A tool's message supports text only. The images follow after all tools of the turn have answered, each
    after its description.
    """
    media, notes = sort_media(text, parts, MEDIA)
    following: list[Block] = []
    for one in media:
        following.append({"type": "text", "text": one.label})
        if one.kind == "image":
            following.append({"type": "image_url", "image_url": {"url": one.url}})
        else:
            following.append({"type": "file", "file": {"filename": one.name, "file_data": one.url}})
    return joined(text, notes), following or None
