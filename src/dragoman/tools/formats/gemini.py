"""Google's Gemini API, in both of its forms.

`parameters_json_schema` takes JSON Schema. References in it are documented and yet refused in practice
(google-gemini/gemini-cli#13326), so they are written out. `parameters` takes the subset of OpenAPI 3.0 that
`openapi` knows. In both, names of parameters are at most 64 letters, digits and underscores and start with no
digit; those within parameters are free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.tools.aliases import GEMINI_PARAMETERS
from dragoman.tools.formats.fitting import Demands, fit
from dragoman.tools.formats.openapi import to_openapi

if TYPE_CHECKING:
    from dragoman.model import JsonObject, ToolDef
    from dragoman.tools.formats.schema import Fitted

_DEMANDS = Demands(references=False, parameters=GEMINI_PARAMETERS)


def fit_json_schema(tool: ToolDef) -> Fitted:
    """Fit a tool for `parameters_json_schema`."""
    return fit(tool, _DEMANDS)


def fit_openapi(tool: ToolDef) -> Fitted:
    """Fit a tool for `parameters`."""
    fitted = fit(tool, _DEMANDS)
    to_openapi(fitted)
    return fitted


def shape_json_schema(alias: str, fitted: Fitted) -> JsonObject:
    """Return a function declaration with JSON Schema."""
    return {"name": alias, "description": fitted.description, "parameters_json_schema": fitted.schema}


def shape_openapi(alias: str, fitted: Fitted) -> JsonObject:
    """Return a function declaration with the OpenAPI subset."""
    return {"name": alias, "description": fitted.description, "parameters": fitted.schema}
