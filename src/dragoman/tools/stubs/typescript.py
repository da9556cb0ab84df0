"""Tools as a TypeScript module: types, and a function that calls them with any MCP client."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dragoman.tools.schema.shapes import Choices, ListOf, MapOf, Named, OneOf, PlainType
from dragoman.tools.stubs.typed_tools import MAX_DOC, File, Names, comment, quoted, typed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.model import ToolDef
    from dragoman.tools.schema.shapes import Record, Shape

_RESERVED = ("Array", "Caller", "Error", "Promise", "Record", "Tools")
_PLAIN = {
    "any": "unknown",
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}
_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_HEAD = """\
// The tools of the MCP server {server}, as the gateway of dragoman serves them.
//
// `client` is a client of the MCP TypeScript SDK that is connected to `dragoman serve`:
//
//   const result = await call(client, {name}, {{ … }});
"""
_CALL = """\
/** What calls a tool, such as the `Client` of the MCP TypeScript SDK. */
export interface Caller {
  callTool(request: { name: string; arguments: { [key: string]: unknown } }): Promise<unknown>;
}

/** Call a tool, and return its structured content or its text; throw an error with the text if it failed. */
export async function call<Name extends keyof Tools>(
  client: Caller,
  name: Name,
  args: Tools[Name]["arguments"],
): Promise<Tools[Name]["result"]> {
  const answer = (await client.callTool({ name, arguments: { ...args } })) as {
    content?: Array<{ text?: string }>;
    structuredContent?: unknown;
    isError?: boolean;
  };
  const text = (answer.content ?? []).map((part) => part.text ?? "").join("\\n");
  if (answer.isError) {
    throw new Error(text);
  }
  return (answer.structuredContent ?? text) as Tools[Name]["result"];
}
"""


def file_of(server: str, module: str, tools: Mapping[str, ToolDef]) -> File:
    """Return the module for the tools of a server, by the names by which clients call them."""
    found = typed(tools, Names(_RESERVED))
    lines = [_HEAD.format(server=_text(server), name=_text(next(iter(sorted(tools)), "")))]
    for one in found:
        lines += map(_record, one.records)
    lines += ["/** The arguments and the result of each tool. */", "export interface Tools {"]
    for one in found:
        lines += _documented(one.about, "  ", most=MAX_DOC)
        result = "string" if one.result is None else _printed(one.result)
        lines.append(f"  {_key(one.name)}: {{ arguments: {_printed(one.arguments)}; result: {result} }};")
    lines += ["}", "", _CALL]
    return File(f"{module}.ts", "\n".join(lines))


def _record(record: Record) -> str:
    if not record.fields:
        return f"export type {record.name} = {{ [key: string]: never }};\n"
    lines = [f"export type {record.name} = {{"]
    for key, shape in record.fields.items():
        lines += _documented(record.about[key], "  ")
        mark = "" if key in record.required else "?"
        lines.append(f"  {_key(key)}{mark}: {_printed(shape)};")
    return "\n".join([*lines, "};", ""])


def _printed(shape: Shape) -> str:
    match shape:
        case PlainType(kind):
            return _PLAIN[kind]
        case ListOf(item):
            return f"Array<{_printed(item)}>"
        case MapOf(value):
            return f"{{ [key: string]: {_printed(value)} }}"
        case Choices(values):
            return " | ".join(map(_literal, values))
        case OneOf(shapes):
            return " | ".join(dict.fromkeys(map(_printed, shapes)))
        case Named(name):
            return name


def _literal(value: str | int | None) -> str:
    if isinstance(value, str):
        return _text(value)
    return "null" if value is None else str(value).lower()


def _key(name: str) -> str:
    return name if _IDENTIFIER.fullmatch(name) else _text(name)


def _documented(text: str, indent: str, **limits: int) -> list[str]:
    # The end of a comment inside of one would end it.
    lines = [line.replace("*/", "*\\/") for line in comment(text, f"{indent} *", **limits)]
    if len(lines) == 1:
        return [f"{indent}/** {lines[0].removeprefix(f'{indent} * ')} */"]
    return [f"{indent}/**", *lines, f"{indent} */"] if lines else []


def _text(value: str) -> str:
    return quoted(value, lambda number: f"\\u{{{number:x}}}")
