"""Vercel's AI SDK: what its `dynamicTool` takes, under the tool's name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.tools.export.api import ModelApi, ToolForm
from dragoman.tools.export.fit import as_object, check, fit_type
from dragoman.tools.export.schema import DRAFT_7, MAX_NODES, Fitted, fault, survey
from dragoman.tools.names import COMMON
from dragoman.tools.schema.cost import is_harmless
from dragoman.trust.sanitizing import for_model

if TYPE_CHECKING:
    from dragoman.model import JsonObject, ToolDef

MAX_TITLE = 500


def _fit(tool: ToolDef) -> Fitted:
    schema = as_object(tool.input_schema)
    fitted = Fitted(schema, tool.description, is_harmless=is_harmless(schema, MAX_NODES))
    if not fitted.is_harmless:
        survey(schema)
        if fault(schema, draft=DRAFT_7):
            check(schema)
    fit_type(fitted)
    return fitted


def _shape(alias: str, fitted: Fitted, tool: ToolDef) -> JsonObject:
    """Return a tool as `dynamicTool` takes it, once its schemas are wrapped in `jsonSchema`."""
    shape: JsonObject = {"name": alias, "description": fitted.description, "inputSchema": fitted.schema}
    if tool.title:
        shape["title"] = for_model(tool.title, MAX_TITLE)
    if tool.output_schema is not None:
        shape["outputSchema"] = tool.output_schema
    return shape


# The SDK hands names on to the provider, so they are legal for each.
API = ModelApi(names=COMMON, form=ToolForm(_fit, _shape), is_checked=False)
