"""Words of a command line become the arguments of a tool: `key=value`, typed by the tool's schema.

- `a.b=1` goes inside an object, unless the tool has an argument that is itself called `a.b`.
- A key that is given again makes a list; so does a single value where the schema wants a list.
- `@path` is the content of a file and `@-` standard input, `@@text` a text that begins with `@`.

A value that the schema cannot take stays a text: whoever checks the arguments says what is wrong with it.
Nothing is read from files or standard input but through the function that is given for it, as `load_file`.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dragoman.cli.signatures import properties_of, required_of, resolved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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
"""The JSON Schema types of what `json.loads` gives; a quoted text is taken with its quotes."""


class ArgumentError(Exception):
    """A word is no argument; the message says why, for the person who typed it."""


def parse(
    words: Iterable[str], schema: object, *, load: Callable[[str], bytes] | None = None, name: str = "it"
) -> dict[str, Any]:
    """Return the arguments that words stand for.

    Args:
        words: As `key=value`.
        schema: The tool's input schema.
        load: Gives the content of a file, or of standard input for `-`; without it `@` is a letter as others.
        name: What takes the arguments, for errors.

    Raises:
        ArgumentError: A word is no `key=value`, or contradicts another, or its file cannot be read.
    """
    found: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            takes = ", ".join(properties_of(schema)) or "nothing"
            msg = f"`{word}` is no key=value; {name} takes: {takes}"
            raise ArgumentError(msg)
        path, wanted = _path_of(key, schema)
        _put(found, path, _value(text, wanted, schema, load), wanted_types(wanted, schema))
    return found


def parse_object(text: str) -> dict[str, Any]:
    """Read all arguments from one JSON object.

    Raises:
        ArgumentError: It is none.
    """
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"the arguments are not valid JSON: {error}"
        raise ArgumentError(msg) from None
    if not isinstance(found, dict):
        msg = f"the arguments have to be a JSON object, not {type(found).__name__}"
        raise ArgumentError(msg)
    return cast("dict[str, Any]", found)


def wanted_types(schema: object, root: object, depth: int = 0) -> set[str]:
    """Return the JSON types that a schema allows; none means that it does not say."""
    schema = resolved(schema, root)
    if not isinstance(schema, dict) or depth > 8:
        return set()
    fields = cast("dict[str, Any]", schema)
    kind: object = fields.get("type") or []
    found = {kind} if isinstance(kind, str) else {str(one) for one in cast("list[object]", kind)}
    branches: object = fields.get("anyOf") or fields.get("oneOf")
    for branch in cast("list[object]", branches) if isinstance(branches, list) else []:
        found |= wanted_types(branch, root, depth + 1)
    if not found and isinstance(fields.get("enum"), list):
        values = cast("list[object]", fields["enum"])
        found = {name for value in values for name in (_KINDS.get(type(value)) or {"string"})}
    return found


def _path_of(key: str, schema: object) -> tuple[tuple[str, ...], object]:
    """Return where a value goes, and the schema of that place."""
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
            msg = f"`{'.'.join(path)}` goes inside `{step}`, which has a value of its own already"
            raise ArgumentError(msg)
        place = cast("dict[str, Any]", inner)
    name = path[-1]
    if name not in place:
        place[name] = value
        return
    if types and "array" not in types:
        msg = f"`{'.'.join(path)}` is given twice, and it is no list"
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
        msg = f"`{text[1:]}` is not text, and the tool does not say that it takes base64"
        raise ArgumentError(msg) from None
    types = wanted_types(schema, root)
    # A file is meant as it is; only what no text can be is read as JSON.
    return written if not types or "string" in types else typed(written.strip(), schema, root)


def typed(text: str, schema: object, root: object) -> Any:
    """Read a value as one of the types that the schema allows; a text stays a text."""
    types = wanted_types(schema, root)
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
    """Return the schema of a list's items."""
    field = resolved(schema, root)
    fields = cast("dict[str, Any]", field) if isinstance(field, dict) else {}
    if "items" in fields:
        return fields["items"]
    for branch in fields.get("anyOf") or fields.get("oneOf") or ():
        if "array" in wanted_types(branch, root):
            return _items(branch, root)
    return {}


def missing(arguments: dict[str, Any], schema: object) -> dict[str, Any]:
    """Return the schemas of the required arguments that are not there, by name."""
    properties = properties_of(schema)
    return {
        name: resolved(properties.get(name, {}), schema)
        for name in required_of(schema)
        if name not in arguments
    }


def load_file(path: str) -> bytes:
    """Return the content of a file, or of standard input for `-`.

    Raises:
        ArgumentError: It cannot be read, or is too large for an argument.
    """
    try:
        if path == STDIN:
            content = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(path).expanduser().open("rb") as file:
                content = file.read(MAX_BYTES + 1)
    except OSError as error:
        msg = f"`{path}` cannot be read: {error.strerror}"
        raise ArgumentError(msg) from None
    if len(content) > MAX_BYTES:
        msg = f"`{path}` has more than {MAX_BYTES // 2**20} MiB, which is too much for an argument"
        raise ArgumentError(msg)
    return content
