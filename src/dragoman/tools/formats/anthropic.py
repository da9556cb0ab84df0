"""Anthropic's Messages API.

What it wants, beyond `fitting`: names of parameters of at most 64 letters, digits, underscores, dots and
hyphens. Those within parameters are free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.tools.aliases import ANTHROPIC_PARAMETERS
from dragoman.tools.formats.fitting import Demands, fit

if TYPE_CHECKING:
    from dragoman.model import JsonObject, ToolDef
    from dragoman.tools.formats.schema import Fitted

_DEMANDS = Demands(parameters=ANTHROPIC_PARAMETERS)


def fit_messages(tool: ToolDef) -> Fitted:
    """Fit a tool for the Messages API."""
    return fit(tool, _DEMANDS)


def shape_messages(alias: str, fitted: Fitted) -> JsonObject:
    """Return a tool as the Messages API takes it."""
    return {"name": alias, "description": fitted.description, "input_schema": fitted.schema}
