"""What a model reads of a tool, without what nobody sees or what steers a terminal, and bounded in length.

Neutralised are the texts that explain: the description, and those inside the schema. Names, values and
patterns stay as they are, since arguments are checked against them. `ToolDef` keeps the original.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from dragoman.tools.formats.schema import Change, rebuild
from dragoman.trust.limits import Limits, excess_text
from dragoman.trust.sanitize import for_model

if TYPE_CHECKING:
    from dragoman.model import ToolDef
    from dragoman.tools.formats.schema import Fitted

LONGEST = Limits().description_chars
TEXTS = ("title", "description", "$comment", "markdownDescription", "deprecationMessage", "errorMessage")
_SUSPICIOUS = re.compile(r"\\[bfru]|\x7f")
"""What JSON writes for anything but plain ASCII."""


def neutral_tool(tool: ToolDef, longest: int = LONGEST) -> tuple[ToolDef, list[Change]]:
    """Return a tool with a description that may be shown to a model, and what was done to it."""
    text = for_model(tool.description, longest)
    if text == tool.description:
        return tool, []
    why = "characters that nobody sees, or that steer a terminal, are left out"
    if len(tool.description) > longest:
        why = excess_text("description_chars", len(tool.description), longest, what="it") + "; it is cut"
    return replace(tool, description=text), [Change("/description", why)]


def neutralise(fitted: Fitted) -> None:
    """Neutralise the texts of a schema that has been fitted, which bounds its depth."""
    if not _SUSPICIOUS.search(json.dumps(fitted.schema)):
        return
    schema = _visit(fitted.schema)
    if schema != fitted.schema:
        fitted.schema = schema
        fitted.record("", "characters that nobody sees, or that steer a terminal, are left out of its texts")


def _visit(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    fields = cast("dict[str, Any]", node)
    texts = {name: for_model(fields[name]) for name in TEXTS if isinstance(fields.get(name), str)}
    if any(fields[name] != text for name, text in texts.items()):
        fields = {**fields, **texts}
    return rebuild(fields, lambda child, _step: _visit(child))
