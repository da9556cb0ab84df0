"""Tools as Python modules: one module per server, typed from the schemas of its tools.

The text of a module is a stub file (`.pyi`): the sandbox checks programs against it, and people and editors
read it. Pure: schemas in, text out; `tools.schema.shapes` has the types.
"""

from __future__ import annotations

import builtins
import json
import keyword
import re
import sys
import unicodedata
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dragoman.model import json_object
from dragoman.struct import Struct
from dragoman.tools.schema.shapes import (
    Choices,
    ListOf,
    MapOf,
    Named,
    OneOf,
    PlainType,
    Shapes,
    is_sayable,
)
from dragoman.trust.sanitizing import for_model
from dragoman.visible import is_harmful, visible_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dragoman.model import ToolDef
    from dragoman.tools.schema.shapes import Record, Shape

LOCAL = "local"
"""The module of tools that belong to no server."""
MAX_NAME = 60
MAX_SHOWN = 2_000
"""Characters of a signature with its classes that a model is shown."""
MAX_ABOUT = 120
"""Characters about a parameter that a model is shown beside a signature."""
MAX_DOC = 4_000

_WORDS = frozenset({"Any", "Literal", "NotRequired", "TypedDict"})
_TYPES = frozenset({"bool", "dict", "float", "int", "list", "str", "None"})
_PLAIN = {
    "any": "Any",
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
}
_BUILTINS = frozenset(dir(builtins))


class Function(Struct, kw_only=True):
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
        properties = json_object(json_object(self.tool.input_schema).get("properties"))
        said = {
            name: " ".join(
                for_model(str(json_object(properties.get(argument)).get("description", "")), most).split()
            )
            for name, argument in self.parameters.items()
        }
        return [(name, text) for name, text in said.items() if text]


class Module:
    """The tools of one server; its functions are made when they are first needed."""

    def __init__(self, name: str, server: str, tools: Iterable[ToolDef]) -> None:
        self.name = name
        self.server = server
        self._tools = sorted(tools, key=lambda tool: (tool.own_name, tool.name))

    @cached_property
    def functions(self) -> dict[str, Function]:
        """The functions by name."""
        taken = set(_TYPES | _WORDS)
        made: dict[str, Function] = {}
        for tool in self._tools:
            name = _unique(identifier(tool.own_name, "tool"), taken)
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
    def name_record(path: Sequence[str]) -> str:
        parts = (_camel(identifier(key, "field")) for key in path)
        return _unique(f"{_camel(name)}{''.join(parts)}"[: 2 * MAX_NAME], taken)

    schema = json_object(tool.input_schema)
    shapes = Shapes(schema, name_record)
    properties, required = shapes.properties(schema), shapes.required(schema)
    named: dict[str, str] = {}
    used: set[str] = set()
    parts: list[str] = []
    for argument in sorted(properties, key=lambda one: one not in required):
        parameter = _unique(identifier(argument, "argument"), used)
        named[parameter] = argument
        wanted = _printed(shapes.shape_of(properties[argument], [parameter], 1))
        default = "" if argument in required else f" = {_default(properties[argument])}"
        parts.append(f"{parameter}: {wanted}{default}")
    is_open = bool(schema.get("additionalProperties"))
    if is_open:
        parts.append(f"**{_unique('arguments', used)}: Any")
    result, records = "str", shapes.records
    if tool.output_schema is not None:
        output = Shapes(json_object(tool.output_schema), name_record)
        result = _printed(output.shape_of(tool.output_schema, ["result"]))
        records = [*records, *output.records]
    return Function(
        name=name,
        tool=tool,
        parameters=named,
        signature=f"({', '.join(parts)}) -> {result}",
        classes=list(map(_class, records)),
        is_open=is_open,
    )


def _printed(shape: Shape) -> str:
    """Return a type as Python writes it."""
    match shape:
        case PlainType(kind):
            return _PLAIN[kind]
        case ListOf(item):
            # Lists are invariant, and a program's list of whole numbers fits a list of numbers.
            return "list[float] | list[int]" if item == PlainType("number") else f"list[{_printed(item)}]"
        case MapOf(value):
            return f"dict[str, {_printed(value)}]"
        case Choices(values):
            return f"Literal[{', '.join(map(_literal, values))}]"
        case OneOf(shapes):
            return " | ".join(dict.fromkeys(map(_printed, shapes)))
        case Named(name):
            return name


def _class(record: Record) -> str:
    """Return the definition of a record."""
    fields = {
        key: wanted if key in record.required else f"NotRequired[{wanted}]"
        for key, wanted in ((key, _printed(shape)) for key, shape in record.fields.items())
    }
    if all(map(_is_attribute, fields)):
        body = "\n".join(f"    {key}: {wanted}" for key, wanted in fields.items())
        return f"class {record.name}(TypedDict):\n{body}"
    body = ", ".join(f"{_text(key)}: {_text(wanted)}" for key, wanted in fields.items())
    return f'{record.name} = TypedDict("{record.name}", {{{body}}})'


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _is_attribute(key: str) -> bool:
    """Return whether a key can be a field of a class whose annotations mean what they say."""
    plain = key.isidentifier() and key.isascii() and not keyword.iskeyword(key)
    return plain and not key.startswith("__") and key not in _TYPES | _WORDS and not key[:1].isupper()


def _literal(value: str | float | None) -> str:
    return _text(value) if isinstance(value, str) else repr(value)


def _text(value: str) -> str:
    """Return a text as a Python literal in one line."""
    quoted = json.dumps(value, ensure_ascii=False)
    return ascii(value) if is_harmful(quoted) else quoted


def _default(schema: Any) -> str:
    value = json_object(schema).get("default", ...)
    kind = json_object(schema).get("type")
    fits = {"string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,)}
    if not isinstance(kind, str) or kind not in fits or not isinstance(value, fits[kind]):
        return "..."
    if isinstance(value, bool) != (kind == "boolean") or "enum" in schema or "const" in schema:
        return "..."
    if isinstance(value, str) and not (is_sayable(value) and len(value) <= 50):
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
    paragraphs = [for_model(tool.description, MAX_DOC).strip() or f"Call `{tool.own_name}`."]
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
