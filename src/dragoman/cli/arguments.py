"""Tool arguments on the command line: signatures as text, and `key=value` words parsed by the schema.

- `a.b=1` sets a value inside an object, unless the tool has an argument called `a.b`.
- A repeated key makes a list; so does a single value if the schema expects a list.
- `@path` is the content of a file, `@-` standard input, `@@text` a text that starts with `@`.

A value that does not fit the schema stays a string; argument validation reports it later. Files and standard
input are read only through the `load` function, for example `load_file`.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, cast

from dragoman.cli.output import cut, one_line, safe
from dragoman.errors import InvalidArgumentsError
from dragoman.suggest import suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dragoman.model import ToolDef

Piece: TypeAlias = tuple[str, str]
"""A text and its role: `name`, `type`, or empty."""

MAX_CHOICES = 4
"""With more choices than this, the type is shown instead."""
MAX_DEFAULT = 20
LONGEST_ABOUT = 60
"""Columns for the description of an argument in errors; `tools --schema` shows all of it."""

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
    """Return a signature in styled pieces; required arguments come first."""
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
    """Return a signature as one line; the name is the exposed one by default."""
    return "".join(text for text, _ in pieces(tool, name or tool.name))


def properties_of(schema: object) -> Mapping[str, Any]:
    """Return the properties of a schema, by name."""
    found = cast("Mapping[str, Any]", schema).get("properties") if isinstance(schema, dict) else None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def required_of(schema: object) -> list[str]:
    """Return the names of the required arguments."""
    found = cast("Mapping[str, Any]", schema).get("required") if isinstance(schema, dict) else None
    return [str(name) for name in cast("list[object]", found)] if isinstance(found, list) else []


def description_of(schema: object) -> str:
    """Return the description in a schema, or an empty string."""
    return str(_member(schema, "description") or "")


def resolved(schema: object, root: object) -> object:
    """Resolve a local `$ref`, at most a few steps deep."""
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
    """Return a short type name in Python's notation."""
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


STDIN = "-"
MAX_BYTES = 64 * 2**20

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_KINDS: dict[type, set[str]] = {
    dict: {"object"},
    list: {"array"},
    str: set(),
    bool: {"boolean"},
    int: {"integer", "number"},
    float: {"number"},
    type(None): {"null"},
}
"""The JSON Schema types of values from `json.loads`; a quoted string keeps its quotes."""


class ArgumentError(Exception):
    """A word cannot be parsed as an argument; the message tells the user why."""


def read(
    words: Sequence[str], schema: object, *, load: Callable[[str], bytes] | None = None
) -> dict[str, Any]:
    """Parse words into arguments: one JSON object, or `key=value` words as `parse` reads them.

    Raises:
        ArgumentError: They are neither.
    """
    if len(words) == 1 and is_object(words[0]):
        return parse_object(words[0])
    return parse(words, schema, load=load)


def is_object(word: str) -> bool:
    """Return whether a word is meant as a JSON object."""
    return word.lstrip().startswith("{")


def parse(
    words: Iterable[str], schema: object, *, load: Callable[[str], bytes] | None = None
) -> dict[str, Any]:
    """Parse words into arguments.

    Args:
        words: As `key=value`.
        schema: The tool's input schema.
        load: Returns the content of a file, or of standard input for `-`; without it `@` is not special.

    Raises:
        ArgumentError: A word is not `key=value`, contradicts another, or its file cannot be read.
    """
    found: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            names = ", ".join(properties_of(schema))
            msg = f"Expected key=value, not `{word}`.{f' Parameters: {names}' if names else ''}"
            raise ArgumentError(msg)
        path, inner = _path_of(key, schema)
        _put(found, path, _value(text, inner, schema, load), allowed_types(inner, schema))
    return found


def parse_object(text: str) -> dict[str, Any]:
    """Parse all arguments from one JSON object.

    Raises:
        ArgumentError: The text is not a JSON object.
    """
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"The arguments are not valid JSON: {error}"
        raise ArgumentError(msg) from None
    if not isinstance(found, dict):
        msg = f"The arguments must be a JSON object, not {type(found).__name__}."
        raise ArgumentError(msg)
    return cast("dict[str, Any]", found)


def allowed_types(schema: object, root: object, depth: int = 0) -> set[str]:
    """Return the JSON types that a schema allows; empty if the schema does not restrict them."""
    schema = resolved(schema, root)
    if not isinstance(schema, dict) or depth > 8:
        return set()
    fields = cast("dict[str, Any]", schema)
    kind: object = fields.get("type") or []
    found = {kind} if isinstance(kind, str) else {str(one) for one in cast("list[object]", kind)}
    branches: object = fields.get("anyOf") or fields.get("oneOf")
    for branch in cast("list[object]", branches) if isinstance(branches, list) else []:
        found |= allowed_types(branch, root, depth + 1)
    if not found and isinstance(fields.get("enum"), list):
        values = cast("list[object]", fields["enum"])
        found = {name for value in values for name in (_KINDS.get(type(value)) or {"string"})}
    return found


def _path_of(key: str, schema: object) -> tuple[tuple[str, ...], object]:
    """Return the path of a key inside the arguments, and the schema at that path."""
    properties = properties_of(schema)
    if key in properties or "." not in key:
        return (key,), properties.get(key)
    steps = tuple(key.split("."))
    inner: object = schema
    for step in steps:
        inner = resolved(properties_of(resolved(inner, schema)).get(step), schema)
    return steps, inner


def _put(found: dict[str, Any], path: tuple[str, ...], value: Any, types: set[str]) -> None:
    place = found
    for step in path[:-1]:
        inner = place.setdefault(step, {})
        if not isinstance(inner, dict):
            msg = f"Cannot set `{'.'.join(path)}`: `{step}` already has a value."
            raise ArgumentError(msg)
        place = cast("dict[str, Any]", inner)
    name = path[-1]
    if name not in place:
        place[name] = value
        return
    if types and "array" not in types:
        msg = f"`{'.'.join(path)}` is given twice, but it is not a list."
        raise ArgumentError(msg)
    before = place[name]
    items = cast("list[Any]", before) if isinstance(before, list) else [before]
    place[name] = [*items, *(cast("list[Any]", value) if isinstance(value, list) else [value])]


def _value(text: str, schema: object, root: object, load: Callable[[str], bytes] | None) -> Any:
    if load is None or not text.startswith("@"):
        return typed(text, schema, root)
    if text.startswith("@@"):
        return typed(text[1:], schema, root)
    content = load(text[1:])
    field = resolved(schema, root)
    if isinstance(field, dict) and cast("dict[str, Any]", field).get("contentEncoding") == "base64":
        return base64.b64encode(content).decode()
    try:
        written = content.decode()
    except UnicodeDecodeError:
        msg = f"`{text[1:]}` is not a text file, and the tool does not accept base64."
        raise ArgumentError(msg) from None
    types = allowed_types(schema, root)
    # The content of a file is used as it is; it is parsed only if the schema does not allow a string.
    return written if not types or "string" in types else typed(written.strip(), schema, root)


def typed(text: str, schema: object, root: object) -> Any:
    """Convert a text to one of the types that the schema allows."""
    types = allowed_types(schema, root)
    if types == {"string"}:
        return text
    if "boolean" in types and "string" not in types and text.lower() in _TRUE | _FALSE:
        if types & {"integer", "number"} and text in "01":
            return int(text)
        return text.lower() in _TRUE
    items = _items(schema, root) if "array" in types else None
    try:
        read: object = json.loads(text)
    except (ValueError, RecursionError):
        read = text
    kinds = _KINDS[type(cast("Any", read))]
    if items is not None and "array" not in kinds and not types & kinds:
        return text if "string" in types else [typed(text, items, root)]
    return text if "string" in types and not types & kinds else cast("Any", read)


def _items(schema: object, root: object) -> object:
    """Return the schema of the items of a list."""
    field = resolved(schema, root)
    fields = cast("dict[str, Any]", field) if isinstance(field, dict) else {}
    if "items" in fields:
        return fields["items"]
    for branch in fields.get("anyOf") or fields.get("oneOf") or ():
        if "array" in allowed_types(branch, root):
            return _items(branch, root)
    return {}


def missing(arguments: Mapping[str, Any], schema: object) -> dict[str, Any]:
    """Return the schemas of the missing required arguments, by name."""
    properties = properties_of(schema)
    return {
        name: resolved(properties.get(name, {}), schema)
        for name in required_of(schema)
        if name not in arguments
    }


def refuse_unknown(given: Mapping[str, Any], tool: ToolDef) -> None:
    """Refuse arguments that the tool does not have: a server ignores a misspelt one silently.

    Raises:
        InvalidArgumentsError: It has no such argument, and its schema does not say that it takes others.
    """
    schema = tool.input_schema
    known = properties_of(schema)
    is_open = {"patternProperties", "allOf", "anyOf", "oneOf", "$ref"}.intersection(schema)
    if is_open or not known or schema.get("additionalProperties"):
        return
    problems: list[str] = []
    for name in given:
        if name not in known:
            near = suggest(name, known, count=1, by_part=True)
            guess = f"; did you mean `{near[0]}`?" if near else ""
            problems.append(f"unknown argument `{name}`{guess}")
    if problems:
        _refuse(f"{problems[0]} (nothing was sent)", tool, problems)


def refuse_incomplete(given: Mapping[str, Any], tool: ToolDef) -> None:
    """Refuse a call that lacks required arguments.

    Raises:
        InvalidArgumentsError: It does; the message describes them.
    """
    schema = tool.input_schema
    if lacking := missing(given, schema):
        names = ", ".join(_described(name, inner, schema) for name, inner in lacking.items())
        problems = [
            f"`{name}` is missing: {json.dumps(inner, ensure_ascii=False)}" for name, inner in lacking.items()
        ]
        of = f" of server `{tool.server}`" if tool.server else ""
        _refuse(f"missing arguments for `{tool.own_name}`{of}: {names}", tool, problems)


def _refuse(msg: str, tool: ToolDef, problems: Sequence[str]) -> NoReturn:
    raise InvalidArgumentsError(
        msg, tool=tool.name, server=tool.server, problems=problems, hint=usage_hint(tool)
    )


def usage_hint(tool: ToolDef) -> str:
    """Return how a tool is called, for the error of a wrong call."""
    return f"usage: {signature_text(tool, tool.own_name)}"


def _described(name: str, schema: object, root: object) -> str:
    fields = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
    about = cut(one_line(str(fields.get("description") or "")), LONGEST_ABOUT)
    return f"`{name}: {type_name(fields, root)}`" + (f" – {about}" if about else "")


def load_file(path: str) -> bytes:
    """Return the content of a file, or of standard input for `-`.

    Raises:
        ArgumentError: The file cannot be read, or is too large.
    """
    try:
        if path == STDIN:
            content = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(path).expanduser().open("rb") as file:
                content = file.read(MAX_BYTES + 1)
    except OSError as error:
        msg = f"Cannot read `{path}`: {error.strerror}"
        raise ArgumentError(msg) from None
    if len(content) > MAX_BYTES:
        msg = f"`{path}` is larger than {MAX_BYTES // 2**20} MiB."
        raise ArgumentError(msg)
    return content
