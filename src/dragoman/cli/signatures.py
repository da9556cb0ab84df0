"""Tools as Python-like signatures: `read(path: str, head: int = null)`; nothing is drawn here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from dragoman.cli.output import safe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.model import ToolDef

Piece: TypeAlias = tuple[str, str]
"""Some text, and what it is: `name`, `type`, or nothing."""

MAX_CHOICES = 4
"""A value with more choices than that is shown by its type."""
MAX_DEFAULT = 20

_TYPES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
    "null": "null",
}


def pieces(tool: ToolDef, name: str) -> list[Piece]:
    """Return a signature in pieces; required arguments come first."""
    schema = tool.input_schema
    properties = properties_of(schema)
    required = required_of(schema)
    found: list[Piece] = [(safe(name), "name"), ("(", "")]
    for index, key in enumerate(sorted(properties, key=lambda key: key not in required)):
        found.append((", " if index else "", ""))
        found.append((safe(key), ""))
        found.append((f": {type_name(properties[key], schema)}", "type"))
        if key not in required:
            found.append((f" = {_default(properties[key])}", "type"))
    return [*found, (")", "")]


def signature_text(tool: ToolDef, name: str = "") -> str:
    """Return a signature as one line, under the exposed name unless another is given."""
    return "".join(text for text, _ in pieces(tool, name or tool.name))


def properties_of(schema: object) -> Mapping[str, Any]:
    """Return the arguments of a schema, by name."""
    found = cast("Mapping[str, Any]", schema).get("properties") if isinstance(schema, dict) else None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def required_of(schema: object) -> list[str]:
    """Return the names of the arguments that have to be given."""
    found = cast("Mapping[str, Any]", schema).get("required") if isinstance(schema, dict) else None
    return [str(name) for name in cast("list[object]", found)] if isinstance(found, list) else []


def description_of(schema: object) -> str:
    """Return what a schema says about itself."""
    return str(_member(schema, "description") or "")


def resolved(schema: object, root: object) -> object:
    """Follow a reference into the schema's own definitions, a few steps at most."""
    found = schema
    for _ in range(8):
        reference = _member(found, "$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        found = root
        for step in reference[2:].split("/"):
            found = _member(found, step.replace("~1", "/").replace("~0", "~"))
    return found


def _member(value: object, key: str) -> object:
    return cast("dict[str, object]", value).get(key) if isinstance(value, dict) else None


def type_name(schema: object, root: object, depth: int = 0) -> str:
    """Return a type as Python would write it, as far as that is short."""
    schema = resolved(schema, root)
    if not isinstance(schema, dict) or depth > 3:
        return "any"
    fields = cast("dict[str, Any]", schema)
    choices = [fields["const"]] if "const" in fields else fields.get("enum")
    if isinstance(choices, list) and len(cast("list[Any]", choices)) <= MAX_CHOICES:
        return " | ".join(_short(choice) for choice in cast("list[Any]", choices))
    branches = fields.get("anyOf") or fields.get("oneOf")
    if isinstance(branches, list):
        names = [type_name(branch, root, depth + 1) for branch in cast("list[object]", branches)]
        return "any" if "any" in names else " | ".join(dict.fromkeys(names))
    kind = fields.get("type")
    if isinstance(kind, list):
        return " | ".join(_TYPES.get(str(item), safe(str(item))) for item in cast("list[object]", kind))
    if kind == "array" and isinstance(fields.get("items"), dict):
        inner = type_name(fields["items"], root, depth + 1)
        return "list" if inner == "any" else f"list[{inner}]"
    return _TYPES.get(str(kind), "any")


def _default(schema: object) -> str:
    return _short(cast("dict[str, Any]", schema).get("default") if isinstance(schema, dict) else None)


def _short(value: object) -> str:
    text = safe(json.dumps(value, ensure_ascii=False, default=str))
    return text if len(text) <= MAX_DEFAULT else f"{text[: MAX_DEFAULT - 1]}…"
