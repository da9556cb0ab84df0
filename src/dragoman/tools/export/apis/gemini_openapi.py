"""Google's Gemini API, with schemas in its OpenAPI subset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.tools.export.api import ModelApi, ToolForm
from dragoman.tools.export.apis.gemini import NAMES, fit_gemini
from dragoman.tools.export.openapi import to_openapi

if TYPE_CHECKING:
    from dragoman.model import JsonObject, ToolDef
    from dragoman.tools.export.schema import Fitted


def _fit(tool: ToolDef) -> Fitted:
    fitted = fit_gemini(tool)
    fitted.is_harmless = False  # it may tell values in words
    to_openapi(fitted)
    return fitted


def _shape(alias: str, fitted: Fitted, _tool: ToolDef) -> JsonObject:
    return {"name": alias, "description": fitted.description, "parameters": fitted.schema}


API = ModelApi(names=NAMES, form=ToolForm(_fit, _shape), is_checked=False)
