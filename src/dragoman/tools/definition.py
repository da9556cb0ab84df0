"""A tool as its server defines it becomes a `ToolDef`, or is set aside with the reason.

The policy: schemas are kept verbatim. A missing description becomes `MCP tool`, a missing input schema
an object without properties. A definition without a usable name, or whose input schema is not valid
JSON Schema, is rejected; it never spoils its neighbours. Nothing a schema refers to is ever fetched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from dragoman.model import ToolDef
from dragoman.tools.naming import Pair, expose
from dragoman.tools.plain_schema import is_plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dragoman.model import JsonObject

# The validator recurses, and a schema that is deep enough takes the whole process down with it.
MAX_DEPTH = 200
DEFAULT_DESCRIPTION = "MCP tool"
DEFAULT_SCHEMA: JsonObject = {"type": "object", "properties": {}}

# Any other `$schema` would make the validator look for it on the network.
_KNOWN_DIALECTS = frozenset(
    {
        "http://json-schema.org/draft-04/schema",
        "http://json-schema.org/draft-06/schema",
        "http://json-schema.org/draft-07/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A definition that cannot be used, and why."""

    tool: str
    reason: str


def define(raw: Mapping[str, Any], *, server: str, template: str) -> ToolDef | Rejected:
    """Turn one entry of a server's listing into a tool under its exposed name."""
    name = raw.get("name")
    if not isinstance(name, str) or not name:
        return Rejected(tool=str(name), reason="it has no name")
    if not name.isprintable() or name != name.strip():
        return Rejected(tool=name, reason="its name has characters that cannot be seen")
    schema: object = raw.get("inputSchema")
    if schema is None:
        schema = dict(DEFAULT_SCHEMA)
    if reason := schema_fault(schema):
        return Rejected(tool=name, reason=f"its input schema is not valid JSON Schema: {reason}")
    output = _mapping(raw.get("outputSchema")) or None
    fields = _fields(raw, name, server=server, template=template)
    return ToolDef(input_schema=cast("JsonObject", schema), output_schema=output, **fields)


def recall(raw: Mapping[str, Any], schemas: str, *, server: str, template: str) -> ToolDef:
    """Turn one entry that `define` took on an earlier day into a tool; its schemas are not looked at.

    Args:
        raw: The entry without its schemas; it has a name.
        schemas: The input schema and the output schema, or null, as a JSON array.
        server: As for `define`, and so is `template`.
        template: How the exposed name is made.
    """
    return ToolDef.undecoded(schemas, **_fields(raw, raw["name"], server=server, template=template))


def _fields(raw: Mapping[str, Any], name: str, *, server: str, template: str) -> dict[str, Any]:
    annotations = _mapping(raw.get("annotations"))
    return {
        "name": expose(template, Pair(server, name)),
        "description": _text(raw.get("description")) or DEFAULT_DESCRIPTION,
        "server": server,
        "original_name": name,
        "title": _text(raw.get("title")) or _text(annotations.get("title")),
        "annotations": annotations,
    }


def fill_in_schemas(result: Mapping[str, Any]) -> None:
    """Give every tool of a raw listing that has no input schema the default one, in place."""
    tools: object = result.get("tools")
    for tool in cast("list[object]", tools) if isinstance(tools, list) else ():
        if isinstance(tool, dict):
            fields = cast("dict[str, Any]", tool)
            if fields.get("inputSchema") is None:
                fields["inputSchema"] = dict(DEFAULT_SCHEMA)


def schema_fault(schema: object) -> str:
    """Say why something is not a valid JSON Schema for arguments, or nothing if it is one."""
    if not isinstance(schema, dict):
        return "it is not an object"
    if is_plain(cast("object", schema)):
        return ""
    checked = _mapping(cast("object", schema))
    if _is_too_deep(checked):
        return f"it is nested more than {MAX_DEPTH} deep"
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
