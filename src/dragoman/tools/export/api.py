"""What a model API is for an export: the names that it allows, and the form of a tool in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.model import JsonObject, ToolDef
    from dragoman.tools.export.schema import Fitted
    from dragoman.tools.names import NameRule


class ToolForm(Struct):
    """How an API takes tools."""

    fit: Callable[[ToolDef], Fitted]
    """Makes the schema one that the API takes; raises `UnfitError` if it cannot be expressed."""
    shape: Callable[[str, Fitted, ToolDef], JsonObject]
    """Returns the definition for a request, from the tool's name in this API."""


class ModelApi(Struct, kw_only=True):
    """One model API; see the modules of `dragoman.tools.export.apis`."""

    names: NameRule
    """The names of tools that it allows."""
    form: ToolForm
    strict: ToolForm | None = None
    """The form that holds the model to the schemas, if it has one."""
    is_checked: bool = True
    """Whether `doctor` says which tools it cannot take; false for a second form of another API."""
    cost_place: int = 0
    """Its place in `tools --tokens`, which says what the tools cost in it; 0 if it is not there."""
