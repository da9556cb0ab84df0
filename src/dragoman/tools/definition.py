"""Turn a server's tool definitions into `ToolDef`s, or reject them with the reason.

Schemas are kept verbatim. A missing description becomes `MCP tool`, a missing input schema an object without
properties. A definition without a usable name, or whose input schema is not valid JSON Schema, is rejected
without affecting the others. References in schemas are never fetched.
"""

from __future__ import annotations

import json
import marshal
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from dragoman.events import ToolsChanged
from dragoman.model import ToolDef
from dragoman.struct import Struct
from dragoman.tools.names import around_tool, is_exposed
from dragoman.tools.schema.cost import is_plain
from dragoman.trust.limits import Limits
from dragoman.visible import is_visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from dragoman.model import JsonObject, ServerSpec
    from dragoman.tools.transforms import Refusal

# The validator recurses: a schema that is too deep would crash the whole process.
MAX_DEPTH = 200
DEFAULT_DESCRIPTION = "MCP tool"
DEFAULT_SCHEMA: JsonObject = {"type": "object", "properties": {}}

# The validator would look for any other `$schema` on the network.
_KNOWN_DIALECTS = frozenset(
    {
        "http://json-schema.org/draft-04/schema",
        "http://json-schema.org/draft-06/schema",
        "http://json-schema.org/draft-07/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    }
)


class Rejected(Struct, kw_only=True):
    """A rejected definition and the reason."""

    tool: str
    reason: str


MakeFunc: TypeAlias = "Callable[[str, str], Callable[..., Any]]"
"""Makes the `func` of a tool, given its server and its own name."""


def define(
    raw: Mapping[str, Any], *, server: str, template: str, make_func: MakeFunc | None = None
) -> ToolDef | Rejected:
    """Turn one entry of a server's listing into a tool under its exposed name."""
    name = raw.get("name")
    if not isinstance(name, str) or not name:
        return Rejected(tool=str(name), reason="it has no name")
    if not is_visible(name) or name != name.strip():
        return Rejected(tool=name, reason="its name has invisible characters")
    schema: Any = raw.get("inputSchema")
    if schema is None:
        schema = dict(DEFAULT_SCHEMA)
    if reason := schema_fault(schema):
        return Rejected(tool=name, reason=f"its input schema is not valid JSON Schema: {reason}")
    output = _mapping(raw.get("outputSchema")) or None
    description, func, title, annotations, meta = _head(raw, server, make_func)
    return ToolDef(
        name=name.join(around_tool(template, server)),
        description=description,
        input_schema=schema,
        func=func,
        server=server,
        original_name=name,
        title=title,
        output_schema=output,
        annotations=annotations,
        meta=meta,
    )


def recall(
    raw: Mapping[str, Any], schemas: str, *, server: str, template: str, make_func: MakeFunc | None = None
) -> ToolDef:
    """Turn a cached entry, which `define` accepted before, into a tool without checking its schemas.

    Args:
        raw: The entry without its schemas; it has a name.
        schemas: The input schema and the output schema, or null, as a JSON array.
        server: The server's name.
        template: The template of the exposed name.
        make_func: Makes the function that runs it.
    """
    name: str = raw["name"]
    description, func, title, annotations, meta = _head(raw, server, make_func)
    return ToolDef.undecoded(
        schemas,
        name=name.join(around_tool(template, server)),
        description=description,
        func=func,
        server=server,
        original_name=name,
        title=title,
        annotations=annotations,
        meta=meta,
    )


def _head(
    raw: Mapping[str, Any], server: str, make_func: MakeFunc | None
) -> tuple[str, Callable[..., Any] | None, str, dict[str, Any], dict[str, Any]]:
    """Return the description, the function, the title, the annotations and the `_meta` of a tool."""
    description = _text(raw.get("description")) or DEFAULT_DESCRIPTION
    func = None if make_func is None else make_func(server, raw["name"])
    annotations = _mapping(raw.get("annotations"))
    title = _text(raw.get("title")) or (_text(annotations.get("title")) if annotations else "")
    return description, func, title, annotations, _mapping(raw.get("_meta"))


def fill_in_schemas(result: Mapping[str, Any]) -> None:
    """Add the default input schema to every tool of a raw listing that has none, in place."""
    tools: object = result.get("tools")
    for tool in cast("list[object]", tools) if isinstance(tools, list) else ():
        if isinstance(tool, dict):
            fields = cast("dict[str, Any]", tool)
            if fields.get("inputSchema") is None:
                fields["inputSchema"] = dict(DEFAULT_SCHEMA)


def schema_fault(schema: object) -> str:
    """Return why a value is not a valid JSON Schema for arguments; empty if it is valid."""
    if is_plain(schema):
        return ""
    if not isinstance(schema, dict):
        return "it is not an object"
    checked = _mapping(cast("object", schema))
    if _is_too_deep(checked):
        return f"it is nested more than {MAX_DEPTH} levels deep"
    import jsonschema_rs

    dialect = checked.get("$schema")
    if isinstance(dialect, str) and dialect.rstrip("#") not in _KNOWN_DIALECTS:
        del checked["$schema"]
    try:
        jsonschema_rs.meta.validate(checked)
    except jsonschema_rs.ValidationError as exc:
        place = "/".join(str(step) for step in exc.instance_path)
        return f"{exc.message} at `/{place}`"
    except ValueError as exc:
        return f"it cannot be read ({type(exc).__name__})"
    return ""


def _is_too_deep(schema: dict[str, Any]) -> bool:
    level: list[Any] = [schema]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for node in level:
            inner.extend(_children(node))
        level = cast("list[Any]", [child for child in inner if isinstance(child, dict | list)])
        if not level:
            return False
    return True


def _children(node: object) -> Iterable[object]:
    if isinstance(node, dict):
        return cast("dict[str, object]", node).values()
    return cast("list[object]", node)


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _mapping(value: object) -> dict[str, Any]:
    return dict(cast("dict[str, Any]", value)) if isinstance(value, dict) else {}


def admit(
    listing: Iterable[Mapping[str, Any]],
    spec: ServerSpec,
    *,
    template: str,
    limits: Limits | None = None,
    make_func: MakeFunc | None = None,
    on_refused: Callable[[Refusal], object] = lambda _: None,
) -> tuple[list[ToolDef], list[Rejected]]:
    """Return the tools that the spec exposes, as it changes them, and the rejected definitions."""
    admitted: list[ToolDef] = []
    rejected: list[Rejected] = []
    limits = limits or Limits()
    exposes_all = _exposes_all(spec)
    for raw in listing:
        if reason := excess(raw, limits):
            rejected.append(Rejected(tool=str(raw.get("name"))[: limits.name_chars], reason=reason))
            continue
        tool = define(raw, server=spec.name, template=template, make_func=make_func)
        if isinstance(tool, Rejected):
            rejected.append(tool)
        elif exposes_all or is_exposed(
            tool.original_name, allowed=spec.allowed_tools, denied=spec.denied_tools
        ):
            admitted.append(tool)
    return shown(admitted, spec, template=template, make_func=make_func, on_refused=on_refused), rejected


def shown(
    tools: list[ToolDef],
    spec: ServerSpec,
    *,
    template: str,
    make_func: MakeFunc | None = None,
    on_refused: Callable[[Refusal], object] = lambda _: None,
) -> list[ToolDef]:
    """Return the tools of a server as the spec shows them: changed, and without the hidden ones."""
    if not spec.tools:
        return tools
    # Imported late: it needs the validator, and few servers have changes.
    from dragoman.tools.transforms import transformed

    found = (
        transformed(tool, spec, template=template, make_func=make_func, on_refused=on_refused)
        for tool in tools
    )
    # A tool does not escape a rule by its new name.
    return [
        tool for tool in found if tool is not None and is_exposed(tool.own_name, denied=spec.denied_tools)
    ]


def excess(raw: Mapping[str, Any], limits: Limits) -> str:
    """Return the limit that a definition exceeds, with its setting; empty if it is within all limits."""
    name = raw.get("name")
    if isinstance(name, str) and len(name) > limits.name_chars:
        return limits.excess("name_chars", len(name), what="its name")
    for key, what in (("inputSchema", "its input schema"), ("outputSchema", "its output schema")):
        schema = raw.get(key)
        if schema is not None and not _is_small(schema, limits) and (wrong := _excess(schema, limits, what)):
            return wrong
    return ""


def _excess(schema: object, limits: Limits, what: str) -> str:
    nodes, levels = _measured(schema, limits)
    wrong = limits.excess("schema_depth", levels, what=what)
    wrong = wrong or limits.excess("schema_nodes", nodes, what=what)
    if wrong:
        return wrong
    try:
        # A schema with few parts is serialised quickly, even if its texts are long.
        return limits.excess("schema_bytes", len(json.dumps(schema)), what=what)
    except (TypeError, ValueError):
        return ""


def _is_small(schema: Any, limits: Limits) -> bool:
    """Return whether a schema is certainly within all limits: its bytes bound its parts and levels."""
    try:
        data = marshal.dumps(schema, 2)
    except ValueError:  # It is nested too deeply.
        return False
    objects = data.count(b"{")
    return (
        # JSON needs at most twelve bytes for one byte of `marshal`, which is five times as fast.
        12 * len(data) <= limits.schema_bytes
        and objects <= limits.schema_nodes
        and objects + data.count(b"[") <= limits.schema_depth
    )


def _measured(schema: object, limits: Limits) -> tuple[int, int]:
    """Count objects and levels, and stop just beyond the limits: a schema may be a bomb."""
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
    entries: Iterable[tuple[Mapping[str, Any], str]],
    spec: ServerSpec,
    *,
    template: str,
    make_func: MakeFunc | None = None,
    on_refused: Callable[[Refusal], object] = lambda _: None,
) -> list[ToolDef]:
    """Return the tools that the spec exposes, from cached definitions (head and schemas)."""
    exposes_all = _exposes_all(spec)
    recalled = [
        recall(raw, schemas, server=spec.name, template=template, make_func=make_func)
        for raw, schemas in entries
        # An older version may have cached a name that is not offered.
        if is_visible(raw["name"])
        and (exposes_all or is_exposed(raw["name"], allowed=spec.allowed_tools, denied=spec.denied_tools))
    ]
    return shown(recalled, spec, template=template, make_func=make_func, on_refused=on_refused)


def _exposes_all(spec: ServerSpec) -> bool:
    """Return whether a spec has no filter, so that no name needs to be matched."""
    return spec.allowed_tools is None and not spec.denied_tools


def difference(server: str, before: Iterable[ToolDef], after: Iterable[ToolDef]) -> ToolsChanged | None:
    """Return the changes between two sets of tools; `None` if there are none."""
    old = {tool.name: tool for tool in before}
    new = {tool.name: tool for tool in after}
    added = tuple(sorted(new.keys() - old.keys()))
    removed = tuple(sorted(old.keys() - new.keys()))
    changed = tuple(sorted(name for name in new.keys() & old.keys() if new[name] != old[name]))
    if not (added or removed or changed):
        return None
    return ToolsChanged(server=server, added=added, removed=removed, changed=changed)
