"""The texts of a tool for a model: without invisible characters and escape codes, bounded in length."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from dragoman.tools.export.schema import Fitted, SchemaChange, rebuild
from dragoman.trust.limits import Limits, excess_text
from dragoman.trust.sanitizing import for_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.model import ToolDef

LONGEST = Limits().description_chars
TEXTS = ("title", "description", "$comment", "markdownDescription", "deprecationMessage", "errorMessage")
_SUSPICIOUS = re.compile(r"\\[ruxU]|[^\x00-\x7f]")
"""What `repr` writes for anything but plain ASCII; it is twice as fast as JSON."""


def neutral_tool(tool: ToolDef, longest: int = LONGEST) -> tuple[ToolDef, list[SchemaChange]]:
    """Return a tool with a description that may be shown to a model, and what was done to it."""
    text = for_model(tool.description, longest)
    if text == tool.description:
        return tool, []
    why = "invisible characters and escape codes are removed"
    if len(tool.description) > longest:
        why = excess_text("description_chars", len(tool.description), longest, what="it") + "; it is cut"
    return tool.replace(description=text), [SchemaChange("/description", why)]


def neutralise(fitted: Fitted) -> None:
    """Neutralise the texts of a schema that has been fitted, which bounds its depth."""
    if not _SUSPICIOUS.search(repr(fitted.schema)):
        return
    schema = neutral_schema(fitted.schema)
    if schema != fitted.schema:
        fitted.schema = schema
        fitted.record("", "invisible characters and escape codes are removed from its texts")


def neutral_texts(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of a server's listing (a tool, a resource, a prompt) without hidden text."""
    long = any(isinstance(entry.get(name), str) and len(entry[name]) > LONGEST for name in TEXTS)
    if not long and not _SUSPICIOUS.search(repr(entry)):
        return dict(entry)
    shown: dict[str, Any] = {
        key: for_model(entry[key], LONGEST) for key in TEXTS if isinstance(entry.get(key), str)
    }
    for key in ("inputSchema", "outputSchema"):
        if key in entry:
            shown[key] = neutral_schema(entry[key])
    annotations, arguments = entry.get("annotations"), entry.get("arguments")
    if isinstance(annotations, dict):
        shown["annotations"] = neutral_texts(cast("dict[str, Any]", annotations))
    if isinstance(arguments, list):
        shown["arguments"] = [
            neutral_texts(cast("dict[str, Any]", one)) if isinstance(one, dict) else one
            for one in cast("list[object]", arguments)
        ]
    return {**entry, **shown}


def neutral_schema(node: Any) -> Any:
    """Return a schema whose titles and descriptions have no hidden text."""
    if not isinstance(node, dict):
        return node
    fields = cast("dict[str, Any]", node)
    texts = {name: for_model(fields[name]) for name in TEXTS if isinstance(fields.get(name), str)}
    if any(fields[name] != text for name, text in texts.items()):
        fields = {**fields, **texts}
    return rebuild(fields, lambda child, _step: neutral_schema(child))
