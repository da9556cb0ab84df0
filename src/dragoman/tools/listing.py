"""A server's listing becomes the tools that an agent may see, and two listings become what changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from dragoman.events import ToolsChanged
from dragoman.tools.definition import Rejected, define, recall
from dragoman.tools.filters import is_exposed
from dragoman.trust.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dragoman.model import ServerSpec, ToolDef


def admit(
    listing: Iterable[Mapping[str, Any]], spec: ServerSpec, *, template: str, limits: Limits | None = None
) -> tuple[list[ToolDef], list[Rejected]]:
    """Return the tools that the spec exposes, and the definitions that cannot be used."""
    admitted: list[ToolDef] = []
    rejected: list[Rejected] = []
    limits = limits or Limits()
    for raw in listing:
        if reason := excess(raw, limits):
            rejected.append(Rejected(tool=str(raw.get("name"))[: limits.name_chars], reason=reason))
            continue
        tool = define(raw, server=spec.name, template=template)
        if isinstance(tool, Rejected):
            rejected.append(tool)
        elif is_exposed(tool.original_name, allowed=spec.allowed_tools, denied=spec.denied_tools):
            admitted.append(tool)
    return admitted, rejected


def excess(raw: Mapping[str, Any], limits: Limits) -> str:
    """Say which limit a definition is beyond, with the setting that raises it; nothing if within all."""
    name = raw.get("name")
    if isinstance(name, str) and (wrong := limits.excess("name_chars", len(name), what="its name")):
        return wrong
    for key, what in (("inputSchema", "its input schema"), ("outputSchema", "its output schema")):
        if (schema := raw.get(key)) is None:
            continue
        nodes, levels = _measured(schema, limits)
        wrong = limits.excess("schema_depth", levels, what=what) or limits.excess(
            "schema_nodes", nodes, what=what
        )
        if not wrong:
            try:
                # What has few parts is written out fast, however long its texts are.
                wrong = limits.excess("schema_bytes", len(json.dumps(schema)), what=what)
            except (TypeError, ValueError):
                continue
        if wrong:
            return wrong
    return ""


def _measured(schema: object, limits: Limits) -> tuple[int, int]:
    """Count objects and levels, no further than one beyond the limits: a bomb is not walked through."""
    nodes = levels = 0
    level: list[object] = [schema]
    while level and levels <= limits.schema_depth:
        levels += 1
        inner: list[object] = []
        for node in level:
            if isinstance(node, dict):
                nodes += 1
                inner += [one for one in cast("dict[str, object]", node).values() if type(one) in _NESTING]
            elif isinstance(node, list):
                inner += [one for one in cast("list[object]", node) if type(one) in _NESTING]
            if nodes > limits.schema_nodes:
                return nodes, levels
        level = inner
    return nodes, levels


_NESTING = (dict, list)


def readmit(
    entries: Iterable[tuple[Mapping[str, Any], str]], spec: ServerSpec, *, template: str
) -> list[ToolDef]:
    """Return the tools that the spec exposes, of definitions that were admitted before: head and schemas."""
    return [
        recall(raw, schemas, server=spec.name, template=template)
        for raw, schemas in entries
        if is_exposed(raw["name"], allowed=spec.allowed_tools, denied=spec.denied_tools)
    ]


def difference(server: str, before: Iterable[ToolDef], after: Iterable[ToolDef]) -> ToolsChanged | None:
    """Return what changed from one set of tools to the next, or nothing if that is nothing."""
    old = {tool.name: tool for tool in before}
    new = {tool.name: tool for tool in after}
    added = tuple(sorted(new.keys() - old.keys()))
    removed = tuple(sorted(old.keys() - new.keys()))
    changed = tuple(sorted(name for name in new.keys() & old.keys() if new[name] != old[name]))
    if not (added or removed or changed):
        return None
    return ToolsChanged(server=server, added=added, removed=removed, changed=changed)
