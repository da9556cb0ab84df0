"""Tools as Python modules: one module per server, typed from the schemas of its tools.

The text of a module is a stub file (`.pyi`): the sandbox checks programs against it, and people and editors
read it. Pure: schemas in, text out. Schemas are untrusted, so depth and size are bounded; what Python's types
cannot say becomes `Any`.
"""

from __future__ import annotations

import builtins
import json
import keyword
import re
import sys
import unicodedata
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from dragoman.trust.sanitizing import for_model
from dragoman.visible import is_harmful, visible_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from dragoman.model import ToolDef

LOCAL = "local"
"""The module of tools that belong to no server."""
MAX_DEPTH = 12
MAX_CHOICES = 60
"""Values of an enum, or branches of a union, that a type lists; above that it only has their types."""
MAX_NAME = 60
MAX_CLASSES = 200
"""Classes of one tool; deeper objects are `dict[str, Any]`."""
MAX_SHOWN = 2_000
"""Characters of a signature with its classes that a model is shown."""
MAX_ABOUT = 120
"""Characters about a parameter that a model is shown beside a signature."""
MAX_DOC = 4_000

_WORDS = frozenset({"Any", "Literal", "NotRequired", "TypedDict"})
_TYPES = frozenset({"bool", "dict", "float", "int", "list", "str", "None"})
_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_BUILTINS = frozenset(dir(builtins))


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One tool as a function of its server's module."""

    name: str
    tool: ToolDef
    parameters: Mapping[str, str]
    """The tool's arguments by the names of the parameters, in the order of the parameters."""
    signature: str
    """`(path: str, limit: int = 10) -> ReadResult`."""
    classes: Sequence[str]
    """The definitions of the types in the signature."""
    is_open: bool = False
    """Whether the tool takes arguments that its schema does not name."""

    def arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tool's arguments for a Python call.

        Raises:
            TypeError: The call does not fit the signature.
        """
        names = list(self.parameters)
        if len(args) > len(names):
            msg = f"{self.name}() takes {len(names)} arguments, not {len(args)}"
            raise TypeError(msg)
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name in given:
                msg = f"{self.name}() got two values for `{name}`"
                raise TypeError(msg)
            if name not in self.parameters and not self.is_open:
                msg = f"{self.name}() has no parameter `{name}`"
                raise TypeError(msg)
            given[name] = value
        return {self.parameters.get(name, name): value for name, value in given.items()}

    def shown(self, module: str, *, documented: bool = False) -> str:
        """Return the signature and its types for a model, in few tokens.

        Args:
            module: The name of the module.
            documented: Whether to say what the parameters mean.
        """
        lines = [f"{module}.{self.name}{self.signature}"]
        if documented:
            lines += [f"  {name}: {said}" for name, said in self.documentation(MAX_ABOUT)]
            lines += [
                f"  `{name}` is `{argument}` outside of programs"
                for name, argument in self.parameters.items()
                if name != argument
            ]
        return for_model("\n".join([*lines, *map(_brief, self.classes)]), MAX_SHOWN)

    def documentation(self, most: int) -> list[tuple[str, str]]:
        """Return what the parameters mean, as far as the schema says it, each in one line."""
        properties = _object(_object(self.tool.input_schema).get("properties"))
        said = {
            name: " ".join(
                for_model(str(_object(properties.get(argument)).get("description", "")), most).split()
            )
            for name, argument in self.parameters.items()
        }
        return [(name, text) for name, text in said.items() if text]


class Module:
    """The tools of one server; its functions are made when they are first needed."""

    def __init__(self, name: str, server: str, tools: Iterable[ToolDef]) -> None:
        self.name = name
        self.server = server
        self._tools = sorted(tools, key=lambda tool: (tool.original_name or tool.name, tool.name))

    @cached_property
    def functions(self) -> dict[str, Function]:
        """The functions by name."""
        taken = set(_TYPES | _WORDS)
        made: dict[str, Function] = {}
        for tool in self._tools:
            name = _unique(identifier(tool.original_name or tool.name, "tool"), taken)
            made[name] = _function(name, tool, taken)
        return made

    @cached_property
    def stub(self) -> str:
        """The text of the stub file without documentation, as the type checker reads it."""
        return self._text(documented=False)

    def documented(self) -> str:
        """Return the text of the stub file for people and editors."""
        return self._text(documented=True)

    def find(self, tool: str) -> Function | None:
        """Return the function for a tool's exposed name."""
        return next((one for one in self.functions.values() if one.tool.name == tool), None)

    def _text(self, *, documented: bool) -> str:
        lines: list[str] = []
        for one in self.functions.values():
            lines += [f"{text}\n" for text in one.classes]
            lines.append(f"def {one.name}{one.signature}:{_documentation(one) if documented else ' ...'}\n")
        plain = "\n".join([text for one in self.functions.values() for text in (one.signature, *one.classes)])
        used = [word for word in sorted(_WORDS) if re.search(rf"\b{word}\b", plain)]
        head = [f'"""The tools of the MCP server {_text(self.server)}."""\n'] if documented else []
        head += [f"from typing import {', '.join(used)}\n"] if used else []
        return "\n".join([*head, *lines])


def modules_of(tools: Iterable[ToolDef]) -> dict[str, Module]:
    """Return the modules for these tools, by name."""
    by_server: dict[str, list[ToolDef]] = {}
    for tool in tools:
        by_server.setdefault(tool.server, []).append(tool)
    # A module must not hide one that programs import, or a name that they use.
    reserved = sys.stdlib_module_names | _BUILTINS | _WORDS | {LOCAL}
    taken = set(reserved)
    made: dict[str, Module] = {}
    for server in sorted(by_server):
        name = identifier(server, "server") if server else LOCAL
        if server:
            name = _unique(name, taken, suffix="server" if name in reserved else "")
        made[name] = Module(name, server, by_server[server])
    return made


def identifier(name: str, fallback: str) -> str:
    """Return a legal Python name that is close to `name`; it never begins with an underscore."""
    seen = visible_part(unicodedata.normalize("NFKC", name))
    text = re.sub(r"\W", "_", seen)[:MAX_NAME].strip("_")
    text = (
        text if text.isidentifier() or text[:1].isdigit() else re.sub(r"[^A-Za-z0-9_]", "", text).strip("_")
    )
    if not text:
        text = fallback
    elif not text.isidentifier():
        text = f"{fallback}_{text}"
    return f"{text}_" if keyword.iskeyword(text) else text


def _unique(name: str, taken: set[str], *, suffix: str = "") -> str:
    if name not in taken:
        found = name
    elif suffix and f"{name}_{suffix}" not in taken:
        found = f"{name}_{suffix}"
    elif not suffix and f"{name}_" not in taken and name in _TYPES | _WORDS:
        found = f"{name}_"
    else:
        number = 2
        while f"{name}_{number}" in taken:
            number += 1
        found = f"{name}_{number}"
    taken.add(found)
    return found


def _function(name: str, tool: ToolDef, taken: set[str]) -> Function:
    schema = _object(tool.input_schema)
    types = _Types(schema, _camel(name), taken)
    properties = types.properties(schema)
    required = types.required(schema)
    named: dict[str, str] = {}
    used: set[str] = set()
    parts: list[str] = []
    for argument in sorted(properties, key=lambda one: one not in required):
        parameter = _unique(identifier(argument, "argument"), used)
        named[parameter] = argument
        wanted = types.type_of(properties[argument], _camel(parameter), 1)
        default = "" if argument in required else f" = {_default(properties[argument])}"
        parts.append(f"{parameter}: {wanted}{default}")
    is_open = bool(schema.get("additionalProperties"))
    if is_open:
        parts.append(f"**{_unique('arguments', used)}: Any")
    result = "str"
    if tool.output_schema is not None:
        output = _Types(_object(tool.output_schema), _camel(name), taken)
        result = output.type_of(tool.output_schema, "Result", 0)
        classes = [*types.classes, *output.classes]
    else:
        classes = types.classes
    return Function(
        name=name,
        tool=tool,
        parameters=named,
        signature=f"({', '.join(parts)}) -> {result}",
        classes=classes,
        is_open=is_open,
    )


class _Types:
    """The types of one schema document; objects become classes."""

    def __init__(self, root: Mapping[str, Any], prefix: str, taken: set[str]) -> None:
        self.classes: list[str] = []
        self._root = root
        self._prefix = prefix
        self._taken = taken
        self._references: dict[str, str] = {}
        self._open: set[str] = set()

    def type_of(self, schema: Any, name: str, depth: int) -> str:
        """Return the type of a schema; `name` is for the class that it may need."""
        known = _object(schema)
        if not known or depth > MAX_DEPTH:
            return "Any"
        reference = known.get("$ref")
        if isinstance(reference, str):
            return self._referenced(reference, depth)
        found = self._plain(known, name, depth)
        return _union([found, "None"]) if known.get("nullable") is True else found

    def properties(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return the properties of an object, with those of its `allOf`."""
        found: dict[str, Any] = {}
        for one in (*self._parts(schema), schema):
            found |= _object(one.get("properties"))
        return found

    def required(self, schema: Mapping[str, Any]) -> AbstractSet[str]:
        """Return the names of the properties that an object must have."""
        named = {
            name
            for one in (*self._parts(schema), schema)
            for name in _list(one.get("required"))
            if isinstance(name, str)
        }
        return named & self.properties(schema).keys()

    def _parts(self, schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        parts: list[Mapping[str, Any]] = []
        for one in _list(schema.get("allOf")):
            part = _object(one)
            reference = part.get("$ref")
            parts.append(_object(self._target(reference)) if isinstance(reference, str) else part)
        return parts

    def _plain(self, schema: Mapping[str, Any], name: str, depth: int) -> str:
        if "const" in schema:
            return _choices([schema["const"]])
        if isinstance(schema.get("enum"), list):
            return _choices(_list(schema["enum"]))
        if self.properties(schema):
            return self._class(schema, name, depth)
        for key in ("anyOf", "oneOf"):
            branches = _list(schema.get(key))
            if branches and not schema.get("properties"):
                if len(branches) > MAX_CHOICES:
                    return "Any"
                return _union(
                    self.type_of(one, name if len(branches) == 1 else f"{name}{number}", depth + 1)
                    for number, one in enumerate(branches, 1)
                )
        parts = _list(schema.get("allOf"))
        if len(parts) == 1 and "type" not in schema:
            return self.type_of(parts[0], name, depth + 1)
        kinds = schema.get("type")
        if isinstance(kinds, list):
            return _union(self._kind(kind, schema, name, depth) for kind in cast("list[Any]", kinds))
        return self._kind(kinds, schema, name, depth)

    def _kind(self, kind: Any, schema: Mapping[str, Any], name: str, depth: int) -> str:
        if isinstance(kind, str) and kind in _PLAIN:
            return _PLAIN[kind]
        if kind == "array" or (kind is None and "items" in schema):
            if "items" not in schema or isinstance(schema["items"], list):
                return "list[Any]"
            item = self.type_of(schema["items"], f"{name}Item", depth + 1)
            # Lists are invariant, and a program's list of whole numbers fits a list of numbers.
            return "list[float] | list[int]" if item == "float" else f"list[{item}]"
        if kind == "object" or (kind is None and "additionalProperties" in schema):
            value = schema.get("additionalProperties")
            item = self.type_of(value, f"{name}Value", depth + 1) if isinstance(value, dict) else "Any"
            return f"dict[str, {item}]"
        return "Any"

    def _class(self, schema: Mapping[str, Any], name: str, depth: int, *, reserved: str = "") -> str:
        if len(self.classes) >= MAX_CLASSES:
            return "dict[str, Any]"
        title = reserved or self._name(name)
        properties, required = self.properties(schema), self.required(schema)
        fields: dict[str, str] = {}
        for key, value in properties.items():
            wanted = self.type_of(value, f"{name}{_camel(identifier(key, 'field'))}", depth + 1)
            fields[key] = wanted if key in required else f"NotRequired[{wanted}]"
        if all(map(_is_attribute, fields)):
            body = "\n".join(f"    {key}: {wanted}" for key, wanted in fields.items())
            self.classes.append(f"class {title}(TypedDict):\n{body}")
        else:
            body = ", ".join(f"{_text(key)}: {_text(wanted)}" for key, wanted in fields.items())
            self.classes.append(f'{title} = TypedDict("{title}", {{{body}}})')
        return title

    def _name(self, name: str) -> str:
        return _unique(f"{self._prefix}{name}"[: 2 * MAX_NAME], self._taken)

    def _referenced(self, reference: str, depth: int) -> str:
        if reference in self._references:
            return self._references[reference]
        target = _object(self._target(reference))
        if not target or reference in self._open:
            # An alias that contains itself, such as a list of lists, has no name to refer to.
            return "Any"
        name = _camel(identifier(reference.rpartition("/")[2], "Type"))
        if self.properties(target) and len(self.classes) < MAX_CLASSES:
            title = self._name(name)
            self._references[reference] = title
            return self._class(target, name, depth + 1, reserved=title)
        self._open.add(reference)
        found = self.type_of(target, name, depth + 1)
        self._open.discard(reference)
        return found

    def _target(self, reference: str) -> Any:
        """Return what a reference inside the document points to; others are unknown."""
        if not reference.startswith("#"):
            return None
        found: Any = self._root
        for step in reference[1:].split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict):
                found = cast("dict[str, Any]", found).get(key)
            elif isinstance(found, list) and key.isdecimal():
                several = cast("list[Any]", found)
                found = several[int(key)] if len(key) < 6 and int(key) < len(several) else None
            else:
                return None
        return found


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _is_attribute(key: str) -> bool:
    """Return whether a key can be a field of a class whose annotations mean what they say."""
    plain = key.isidentifier() and key.isascii() and not keyword.iskeyword(key)
    return plain and not key.startswith("__") and key not in _TYPES | _WORDS and not key[:1].isupper()


def _union(types: Iterable[str]) -> str:
    found = list(dict.fromkeys(part for one in types for part in _branches(one)))
    if "Any" in found or not found:
        return "Any"
    found.sort(key=lambda one: one == "None")
    return " | ".join(found)


def _branches(text: str) -> list[str]:
    """Split a union at its own bars, not at those inside of brackets or texts."""
    return [text] if "[" in text else text.split(" | ")


def _choices(values: Sequence[Any]) -> str:
    plain = [one for one in values if one is None or isinstance(one, (str, bool, int))]
    if not plain or len(plain) != len(values):
        return "Any"
    if len(values) > MAX_CHOICES or not all(map(_is_sayable, plain)):
        kinds = {"None" if one is None else type(one).__name__ for one in plain}
        return _union(sorted(kinds))
    return f"Literal[{', '.join(dict.fromkeys(_literal(one) for one in plain))}]"


def _is_sayable(value: str | int | None) -> bool:
    if isinstance(value, str):
        return len(value) <= 200 and not any("\ud800" <= char <= "\udfff" for char in value)
    return not isinstance(value, int) or abs(value) < 2**63


def _literal(value: str | float | None) -> str:
    return _text(value) if isinstance(value, str) else repr(value)


def _text(value: str) -> str:
    """Return a text as a Python literal in one line."""
    quoted = json.dumps(value, ensure_ascii=False)
    return ascii(value) if is_harmful(quoted) else quoted


def _default(schema: Any) -> str:
    value = _object(schema).get("default", ...)
    kind = _object(schema).get("type")
    fits = {"string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,)}
    if not isinstance(kind, str) or kind not in fits or not isinstance(value, fits[kind]):
        return "..."
    if isinstance(value, bool) != (kind == "boolean") or "enum" in schema or "const" in schema:
        return "..."
    if isinstance(value, str) and not (_is_sayable(value) and len(value) <= 50):
        return "..."
    if isinstance(value, float) and not abs(value) < 1e15:
        return "..."
    return _literal(value)


def _brief(text: str) -> str:
    """Return the definition of a class in one line: `Result = {name: str, note?: str}`."""
    head, *fields = text.splitlines()
    if not fields:
        return text
    name = head.removeprefix("class ").partition("(")[0]
    return f"{name} = {{{', '.join(map(_brief_field, fields))}}}"


def _brief_field(line: str) -> str:
    key, _, wanted = line.strip().partition(": ")
    if wanted.startswith("NotRequired["):
        return f"{key}?: {wanted.removeprefix('NotRequired[').removesuffix(']')}"
    return f"{key}: {wanted}"


def _documentation(function: Function) -> str:
    """Return the body of a function in a documented stub."""
    tool = function.tool
    paragraphs = [
        for_model(tool.description, MAX_DOC).strip() or f"Call `{tool.original_name or tool.name}`."
    ]
    about = [f"    {parameter}: {said}" for parameter, said in function.documentation(500)]
    if about:
        paragraphs.append("\n".join(["Args:", *about]))
    # Quotes and backslashes would end the text, or change it.
    text = "\n\n".join(paragraphs).replace("\\", "\\\\").replace('"""', "'''")
    if text.endswith('"'):
        text += " "
    lines = text.splitlines()
    body = "\n".join(f"    {line}" if line.strip() else "" for line in lines).strip()
    return f'\n    """{body}"""'
