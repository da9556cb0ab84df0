"""The JSON Schema of configuration files, made from the declarations of the keys.

Editors complete keys with it, and underline those that are not read. One schema serves `mcp.json` and
`dragoman.toml`, `.json` and `.yaml`; it is of draft 7, which every editor knows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin

from dragoman.config.dialects.dragoman import DRAGOMAN
from dragoman.config.entries import KINDS
from dragoman.model import Settings
from dragoman.model.keys import Key, is_table, keys
from dragoman.model.server import server_keys
from dragoman.struct import field_names
from dragoman.trust.limits import Limits
from dragoman.trust.policy import Rule

Schema: TypeAlias = dict[str, Any]
DRAFT = "http://json-schema.org/draft-07/schema#"
_LINK = re.compile(r"\[([^][]*)\]\([^()]*\)")
"""The documentation of a key is Markdown."""
_DURATION = r"^\s*(\d+(\.\d+)?\s*(ms|[smhdSMHD])\s*)+$|^\s*\d+(\.\d+)?\s*$"
_SIZE = r"^\s*\d+(\.\d+)?\s*([kKmMgG]?[iI]?)[bB]?\s*$"
_SPELLED_KINDS = ("streamable-http", "streamable_http", "streamableHttp")
_SCALAR: Schema = {"type": ["string", "number", "boolean", "null"]}
"""Values of variables and arguments may be written without quotes."""
_COMMENTS = r"^(_|x-|//|#|\$)"
"""Keys that no one reads."""


def config_schema() -> Schema:
    """Return the schema of a configuration file."""
    servers: Schema = {
        "description": "the servers, by name or as a list with names",
        "oneOf": [
            {"type": "object", "additionalProperties": {"$ref": "#/definitions/server"}},
            {"type": "array", "items": {"allOf": [{"$ref": "#/definitions/server"}, {"required": ["name"]}]}},
        ],
    }
    settings = {key.name: _key(key) for key in keys(Settings).values() if key.in_files}
    settings |= {"policy": {"$ref": "#/definitions/policy"}, "limits": {"$ref": "#/definitions/limits"}}
    settings["toolsets"] = _toolsets()
    return {
        "$schema": DRAFT,
        "title": "MCP servers for dragoman",
        "description": "mcp.json, dragoman.toml and the same in YAML",
        "type": "object",
        "properties": {
            "$schema": {"type": "string"},
            "mcp": _object({**settings, "servers": servers}),
            "mcpServers": servers,
            "mcp_servers": servers,
            "servers": servers,
            "inputs": {"type": "array", "description": "values that are asked for, as in VS Code"},
        },
        "patternProperties": {_COMMENTS: {}},
        "additionalProperties": False,
        "definitions": {
            "server": _server(),
            "limits": _limits(),
            "policy": _policy(),
            "rule": _rule(),
        },
    }


def policy_schema() -> Schema:
    """Return the schema of a file that is a policy alone."""
    return {
        "$schema": DRAFT,
        "title": "A policy of dragoman",
        "definitions": {"rule": _rule()},
        **_policy(),
    }


def _server() -> Schema:
    declared = server_keys()
    properties: Schema = {}
    for place, key in declared.items():
        if not key.in_files:
            continue
        shape = _key(key)
        if "." not in place:
            properties[key.name] = shape
        if key.opposite:
            properties[key.opposite] = {"type": "boolean", "description": f"the opposite of `{key.name}`"}
        for name in (*key.spellings, *key.milliseconds):
            unit = ", in milliseconds" if name in key.milliseconds else ""
            properties[name] = shape | {"description": f"the same as `{place}`{unit}"}
    kinds = {"enum": [*sorted(KINDS), *_SPELLED_KINDS], "description": declared["transport"].doc}
    properties |= dict.fromkeys(("transport", *declared["transport"].spellings), kinds)
    properties["command"] = {
        "description": declared["command"].doc,
        "oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}],
    }
    properties |= {name: {"description": why} for name, why in DRAGOMAN.dropped.items()}
    properties |= {
        "name": {"type": "string", "description": "the server's name, in a list of servers"},
        # A reference hides what stands beside it.
        "limits": {"description": declared["limits"].doc, "allOf": [{"$ref": "#/definitions/limits"}]},
    }
    return _object(properties)


def _policy() -> Schema:
    rules = {"type": "array", "items": {"$ref": "#/definitions/rule"}}
    action = {"enum": list(keys(Rule)["action"].choices), "description": "what holds for every other call"}
    return {"oneOf": [rules, _object({"rules": rules, "default": action})]}


def _rule() -> Schema:
    properties = {key.name: _key(key) for key in keys(Rule).values()}
    properties[keys(Rule)["arguments"].name] = {
        "type": "object",
        "description": keys(Rule)["arguments"].doc,
        "minProperties": 1,
    }
    return _object(properties) | {"required": [keys(Rule)["action"].name]}


def _toolsets() -> Schema:
    patterns = {"type": "array", "items": {"type": "string"}, "minItems": 1}
    toolset = _object({"tools": patterns}) | {"required": ["tools"]}
    return {"type": "object", "description": keys(Settings)["toolsets"].doc, "additionalProperties": toolset}


def _limits() -> Schema:
    shape = {"type": "number", "minimum": 0}
    return _object(dict.fromkeys(field_names(Limits), shape))


def _key(key: Key) -> Schema:
    return {"description": _LINK.sub(r"\1", key.doc), **_form(key)}


def _form(key: Key) -> Schema:
    match key.form:
        case "seconds":
            return {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": _DURATION}]}
        case "size":
            return {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": _SIZE}]}
        case "choice":
            return {"enum": list(key.choices)}
        case _:
            return _type(key.type)


def _type(kind: Any) -> Schema:
    if is_table(kind):
        return _object({one.name: _key(one) for one in keys(kind).values()})
    plain: dict[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}
    if kind in plain:
        return {"type": plain[kind]}
    origin, given = get_origin(kind), get_args(kind)
    if origin is Literal:
        return {"enum": list(given)}
    if origin in (Union, UnionType):
        return {"anyOf": [_type(one) for one in given]}
    if origin is Sequence:
        return {"anyOf": [{"type": "string"}, {"type": "array", "items": _SCALAR}]}
    if origin is Mapping:
        values = given[1]
        is_text = values is str or NoneType in get_args(values)
        return {"type": "object", "additionalProperties": _SCALAR if is_text else _type(values)}
    return {}


def _object(properties: Mapping[str, Any]) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "patternProperties": {_COMMENTS: {}},
        "additionalProperties": False,
    }
