"""Vercel's AI SDK: what its `dynamicTool` takes, under the tool's name.

The SDK takes JSON Schema, of draft 7 as its types have it, with an object at its root and leaves the rest to
the provider, so nothing else is changed. `outputSchema` and `title` are there if the server gave them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.tools.formats.fitting import check
from dragoman.tools.formats.root import as_object, fit_type
from dragoman.tools.formats.schema import DRAFT_7, Fitted, fault, survey
from dragoman.trust.sanitize import for_model

if TYPE_CHECKING:
    from dragoman.model import JsonObject, ToolDef

MAX_TITLE = 500


def fit_dynamic(tool: ToolDef) -> Fitted:
    """Fit a tool for the AI SDK."""
    schema = as_object(tool.input_schema)
    survey(schema)
    if fault(schema, draft=DRAFT_7):
        check(schema)
    fitted = Fitted(schema, tool.description)
    fit_type(fitted)
    return fitted


def shape_dynamic(alias: str, fitted: Fitted, tool: ToolDef) -> JsonObject:
    """Return a tool as `dynamicTool` takes it, once its schemas are wrapped in `jsonSchema`."""
    shape: JsonObject = {"name": alias, "description": fitted.description, "inputSchema": fitted.schema}
    if tool.title:
        shape["title"] = for_model(tool.title, MAX_TITLE)
    if tool.output_schema is not None:
        shape["outputSchema"] = tool.output_schema
    return shape
