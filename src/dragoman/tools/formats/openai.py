"""OpenAI's two APIs, Chat Completions and Responses.

What both want, beyond `fitting`: arrays say what their items are, and patterns are ones that Python reads and
that look neither ahead nor behind. Chat Completions of some deployments refuse a description beyond 1,024
characters, and with it the whole request; the rest of a longer one goes to the description of the parameters,
so that no word is lost. `strict` is said where the caller asked for it, and always to the Responses API,
which would otherwise try to be strict by itself.
"""

from __future__ import annotations

import functools
import re
import warnings
from typing import TYPE_CHECKING

from dragoman.tools.formats.fitting import Demands, fit
from dragoman.tools.formats.schema import Change, UnfitError
from dragoman.tools.formats.strict import make_strict

if TYPE_CHECKING:
    from dragoman.model import JsonObject, ToolDef
    from dragoman.tools.formats.schema import Fitted

MAX_DESCRIPTION = 1024
MAX_PATTERN = 1_000

_LOOKAROUND = re.compile(r"\(\?<?[=!]")
_CONTINUED = " … (continued in the description of the parameters)"


def fit_chat(tool: ToolDef, *, strict: bool) -> Fitted:
    """Fit a tool for Chat Completions."""
    fitted = _fit(tool, strict=strict)
    _share_description(fitted)
    return fitted


def fit_responses(tool: ToolDef, *, strict: bool) -> Fitted:
    """Fit a tool for the Responses API."""
    return _fit(tool, strict=strict)


def shape_chat(alias: str, fitted: Fitted, *, strict: bool) -> JsonObject:
    """Return a tool as Chat Completions takes it."""
    function: JsonObject = {"name": alias, "description": fitted.description, "parameters": fitted.schema}
    if strict:
        function["strict"] = fitted.strict
    return {"type": "function", "function": function}


def shape_responses(alias: str, fitted: Fitted) -> JsonObject:
    """Return a tool as the Responses API takes it."""
    return {
        "type": "function",
        "name": alias,
        "description": fitted.description,
        "parameters": fitted.schema,
        "strict": fitted.strict,
    }


@functools.lru_cache(maxsize=1024)
def reads(pattern: str) -> bool:
    """Tell whether OpenAI takes a pattern."""
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


def _fit(tool: ToolDef, *, strict: bool) -> Fitted:
    fitted = fit(tool, _DEMANDS)
    if strict:
        try:
            make_strict(fitted)
        except UnfitError as exc:
            fitted.record("", f"it is not strict: {exc}")
    return fitted


def _share_description(fitted: Fitted) -> None:
    text = fitted.description
    if len(text) <= MAX_DESCRIPTION:
        return
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
    fitted.changes.append(Change("/description", why))
