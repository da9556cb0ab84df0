"""A server's listing becomes the tools that an agent may see, and two listings become what changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dragoman.events import ToolsChanged
from dragoman.tools.definition import Rejected, define, recall
from dragoman.tools.filters import is_exposed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dragoman.model import ServerSpec, ToolDef


def admit(
    listing: Iterable[Mapping[str, Any]], spec: ServerSpec, *, template: str
) -> tuple[list[ToolDef], list[Rejected]]:
    """Return the tools that the spec exposes, and the definitions that cannot be used."""
    admitted: list[ToolDef] = []
    rejected: list[Rejected] = []
    for raw in listing:
        tool = define(raw, server=spec.name, template=template)
        if isinstance(tool, Rejected):
            rejected.append(tool)
        elif is_exposed(tool.original_name, allowed=spec.allowed_tools, denied=spec.denied_tools):
            admitted.append(tool)
    return admitted, rejected


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
