"""Tools as a Rust module: the names of tools, and the types of arguments and results, for `serde`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dragoman.tools.schema.shapes import Choices, ListOf, MapOf, Named, PlainType, without_null
from dragoman.tools.stubs.typed_tools import (
    MAX_DOC,
    File,
    Names,
    comment,
    pascal,
    quoted,
    snake,
    texts_or_kind,
    typed,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.model import ToolDef
    from dragoman.tools.schema.shapes import Record, Shape

_PLAIN = {"string": "String", "integer": "i64", "number": "f64", "boolean": "bool"}
_RESERVED = (
    "BTreeMap",
    "Box",
    "Deserialize",
    "Option",
    "Result",
    "Self",
    "Serialize",
    "String",
    "Value",
    "Vec",
)
_KEYWORDS = frozenset(
    "abstract as async await become box break const continue do dyn else enum extern false final fn for gen "
    "if impl in let loop macro match mod move mut override priv pub ref return static struct trait true try "
    "type typeof unsafe unsized use virtual where while yield".split()
)
_NEVER_RAW = frozenset({"crate", "self", "super"})
_DERIVE = "#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]"
_HEAD = """\
//! The tools of the MCP server {server}, as the gateway of dragoman serves them.
//!
//! Needs the crates `serde` (with `derive`) and `serde_json`. With `rmcp`, on a client that is connected to
//! `dragoman serve`:
//!
//! ```ignore
//! let given = serde_json::from_value(serde_json::to_value(arguments)?)?;
//! let request = CallToolRequestParams::new({module}::{constant}).with_arguments(given);
//! let result = client.call_tool(request).await?;
//! ```
"""


def file_of(server: str, module: str, tools: Mapping[str, ToolDef]) -> File:
    """Return the module for the tools of a server, by the names by which clients call them."""
    writer = _RustWriter()
    found = typed(tools, writer.names)
    constants = Names()
    lines: list[str] = []
    first = ""
    for one in found:
        constant = constants.unique(snake(one.stem).upper())
        first = first or constant
        lines += comment(one.about or "A tool.", "///", most=MAX_DOC)
        lines.append(f"pub const {constant}: &str = {_text(one.name)};\n")
        lines += map(writer.definition, one.records)
        if one.result is not None and not isinstance(one.result, Named):
            name = writer.names.unique(f"{one.stem}Result")
            lines.append(f"/// The structured content of `{constant}`.")
            lines.append(f"pub type {name} = {writer.printed(one.result, name)};\n")
    lines += writer.choices
    body = "\n".join(lines)
    uses = ["use std::collections::BTreeMap;"] if "BTreeMap<" in body else []
    uses += ["use serde::{Deserialize, Serialize};"] if _DERIVE in body else []
    uses += ["use serde_json::Value;"] if re.search(r"\bValue\b[>,;]", body) else []
    head = _HEAD.format(server=_text(server), module=module, constant=first)
    return File(f"{module}.rs", "\n".join([head, *uses, "", body]))


class _RustWriter:
    """Writes types; a choice of texts becomes an enum."""

    def __init__(self) -> None:
        self.names = Names(_RESERVED)
        self.choices: list[str] = []

    def definition(self, record: Record) -> str:
        """Return the definition of a record."""
        lines = [_DERIVE, f"pub struct {record.name} {{"]
        fields = Names()
        for key, shape in record.fields.items():
            lines += comment(record.about[key], "    ///")
            field = fields.unique(snake(key))
            rules = [] if field == key else [f"rename = {_text(key)}"]
            wanted = self._field(shape, f"{record.name}{pascal(key)}", is_required=key in record.required)
            if key not in record.required:
                rules += ["default", 'skip_serializing_if = "Option::is_none"']
            lines += [f"    #[serde({', '.join(rules)})]"] if rules else []
            lines.append(f"    pub {_field_name(field)}: {wanted},")
        return "\n".join([*lines, "}\n"])

    def _field(self, shape: Shape, name: str, *, is_required: bool) -> str:
        shape, is_nullable = without_null(shape)
        wanted = self.printed(shape, name)
        if isinstance(shape, Named) and shape.is_recursive:
            wanted = f"Box<{wanted}>"
        return f"Option<{wanted}>" if is_nullable or not is_required else wanted

    def printed(self, shape: Shape, name: str) -> str:
        """Return a type; `name` is for a choice of texts in it."""
        match shape:
            case PlainType(kind):
                return _PLAIN.get(kind, "Value")
            case ListOf(item):
                return f"Vec<{self.printed(item, name)}>"
            case MapOf(value):
                return f"BTreeMap<String, {self.printed(value, name)}>"
            case Choices():
                texts, kind = texts_or_kind(shape)
                return self._choice(texts, name) if texts else _PLAIN.get(kind, "Value")
            case Named(found):
                return found
            case _:
                return "Value"

    def _choice(self, texts: list[str], name: str) -> str:
        title, variants = self.names.unique(name), Names(("Self",))
        lines = [_DERIVE, f"pub enum {title} {{"]
        for text in texts:
            lines += [f"    #[serde(rename = {_text(text)})]", f"    {variants.unique(pascal(text))},"]
        self.choices.append("\n".join([*lines, "}\n"]))
        return title


def _field_name(name: str) -> str:
    if name in _NEVER_RAW:
        return f"{name}_"
    return f"r#{name}" if name in _KEYWORDS else name


def _text(value: str) -> str:
    return quoted(value, lambda number: f"\\u{{{number:x}}}")
