"""The published rules of each model API for tools, as a judge that shares no code with the formats.

`problems(api, tool)` says what an API would refuse in one exported tool. The rules are those of
the vendors' documentation and SDKs, and of real refusals: OpenAI's `array schema missing items` and `regex lookaround is
not supported`, Anthropic's `does not support oneOf, allOf, or anyOf at the top level` and its pattern for
property keys, Gemini's `reference to undefined schema`, `only allowed for STRING type`, `cannot be empty`,
`property is not defined`, and Vertex's `specified other fields alongside any_of`.
"""

from __future__ import annotations

import functools
import json
import re
import warnings
from typing import TYPE_CHECKING, Any

import jsonschema_rs
from pydantic import TypeAdapter, ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterator

Schema = dict[str, Any]

NAMES = {
    "openai": r"[a-zA-Z0-9_-]{1,64}",
    "responses": r"[a-zA-Z0-9_-]{1,64}",
    "anthropic": r"[a-zA-Z0-9_-]{1,64}",
    "gemini": r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}",
    "gemini-openapi": r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}",
    "ai-sdk": r"[a-zA-Z0-9_-]{1,64}",
}
PARAMETERS = {
    "anthropic": r"[a-zA-Z0-9_.-]{1,64}",
    "gemini": r"[a-zA-Z_][a-zA-Z0-9_]{0,63}",
    "gemini-openapi": r"[a-zA-Z_][a-zA-Z0-9_]{0,63}",
}
KEYS = {
    "openai": {"type", "function"},
    "responses": {"type", "name", "description", "parameters", "strict"},
    "anthropic": {"name", "description", "input_schema"},
    "gemini": {"name", "description", "parameters_json_schema"},
    "gemini-openapi": {"name", "description", "parameters"},
    "ai-sdk": {"name", "description", "inputSchema", "title", "outputSchema"},
}
VERBATIM = {
    "openai": 932,
    "responses": 932,
    "anthropic": 933,
    "gemini": 919,
    "gemini-openapi": 514,
    "ai-sdk": 933,
}
"""How many of the real tools have the schema that their server said."""
STRICT_WORDS = {
    *("type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "const", "$ref"),
    *(
        "$defs",
        "definitions",
        "title",
        "description",
        "format",
        "pattern",
        "multipleOf",
        "minimum",
        "maximum",
    ),
    *("exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"),
}
STRICT_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
OPENAPI_WORDS = {
    *("type", "format", "title", "description", "nullable", "enum", "maxItems", "minItems", "properties"),
    *("required", "minProperties", "maxProperties", "minLength", "maxLength", "pattern", "example", "anyOf"),
    *("propertyOrdering", "default", "items", "minimum", "maximum"),
}
OPENAPI_TYPES = {"string", "number", "integer", "boolean", "array", "object"}
OPENAPI_FORMATS = {
    "string": {"enum", "date-time"},
    "number": {"float", "double"},
    "integer": {"int32", "int64"},
}


def name_of(tool: Schema) -> str:
    return tool.get("function", tool)["name"]


def schema_of(api: str, tool: Schema) -> Schema:
    body = tool.get("function", tool)
    words = {"anthropic": "input_schema", "gemini": "parameters_json_schema", "ai-sdk": "inputSchema"}
    return body[words.get(api, "parameters")]


def description_of(tool: Schema) -> str:
    return tool.get("function", tool)["description"]


def problems(api: str, tool: Schema) -> list[str]:
    """Return what the API would refuse."""
    return list(_problems(api, tool))


def _problems(api: str, tool: Schema) -> Iterator[str]:
    json.dumps(tool, allow_nan=False)
    if not tool.keys() <= KEYS[api]:
        yield f"unknown fields: {tool.keys() - KEYS[api]}"
    if not re.fullmatch(NAMES[api], name_of(tool)):
        yield f"the name {name_of(tool)!r} is not legal"
    yield from _sdk_problems(api, tool)
    schema = schema_of(api, tool)
    if schema.get("type") != "object":
        yield "the root is no object"
        return
    if api == "gemini-openapi":
        yield from _openapi(schema, "")
    else:
        if api != "ai-sdk":
            yield from _root(schema)
            yield from _meta(schema)
        if api in {"openai", "responses"}:
            yield from _openai(schema)
        if api == "gemini" and '"$ref"' in json.dumps(schema) and any("$ref" in n for n in nodes(schema)):
            yield "it has a reference"
    for key in schema.get("properties", {}):
        if api in PARAMETERS and not re.fullmatch(PARAMETERS[api], key):
            yield f"the parameter {key!r} is not legal"
    if api == "openai" and len(description_of(tool)) > 1024:
        yield "the description is longer than 1024"
    if tool.get("function", tool).get("strict"):
        yield from strict_problems(schema)


def _sdk_problems(api: str, tool: Schema) -> Iterator[str]:
    adapter = _adapters().get(api)
    if adapter is not None:
        try:
            adapter.validate_python(tool)
        except ValidationError as exc:
            yield f"the vendor's own types refuse it: {exc}"


@functools.cache
def _adapters() -> dict[str, TypeAdapter[Any]]:
    # Both packages take seconds to load.
    import anthropic.types
    import openai.types.chat
    import openai.types.responses

    return {
        "openai": TypeAdapter(openai.types.chat.ChatCompletionFunctionToolParam),
        "responses": TypeAdapter(openai.types.responses.FunctionToolParam),
        "anthropic": TypeAdapter(anthropic.types.ToolParam),
    }


def _root(schema: Schema) -> Iterator[str]:
    for word in ("oneOf", "anyOf", "allOf", "enum", "not"):
        if word in schema:
            yield f"it has {word} at the top level"


def _meta(schema: Schema) -> Iterator[str]:
    plain = {word: value for word, value in schema.items() if word != "$schema"}
    try:
        # The default is draft 2020-12.
        jsonschema_rs.meta.validate(plain)
    except (jsonschema_rs.ValidationError, ValueError) as exc:
        yield f"not valid in draft 2020-12: {str(exc)[:200]}"


def _openai(schema: Schema) -> Iterator[str]:
    if "properties" not in schema:
        yield "object schema missing properties"
    for node in nodes(schema):
        kinds = node.get("type")
        if (kinds == "array" or (isinstance(kinds, list) and "array" in kinds)) and "items" not in node:
            yield "array schema missing items"
        for pattern in [node["pattern"]] if "pattern" in node else []:
            yield from _pattern(pattern)
        for pattern in node.get("patternProperties", {}):
            yield from _pattern(pattern)


def _pattern(pattern: str) -> Iterator[str]:
    if re.search(r"\(\?<?[=!]", pattern):
        yield "regex lookaround is not supported"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except re.error:
        yield f"{pattern!r} is not a regex"


def strict_problems(schema: Schema) -> Iterator[str]:
    """Say what OpenAI's strict mode would refuse."""
    properties = values = characters = 0
    for node in nodes(schema):
        for word in node.keys() - STRICT_WORDS:
            yield f"{word} is not permitted"
        if "$ref" in node:
            if len(node) > 1:
                yield "$ref cannot have keywords"
            continue
        if "type" not in node and "anyOf" not in node:
            yield "schema must have a 'type' key"
        if "format" in node and node["format"] not in STRICT_FORMATS:
            yield "unknown format"
        kinds = node.get("type")
        if kinds == "object" or (isinstance(kinds, list) and "object" in kinds):
            if node.get("additionalProperties") is not False:
                yield "'additionalProperties' is required to be false"
            if set(node.get("required", ())) != node.get("properties", {}).keys():
                yield "'required' has to include every key in properties"
        properties += len(node.get("properties", {}))
        values += len(node.get("enum", ()))
        characters += sum(map(len, node.get("properties", {})))
    if properties > 5000 or values > 1000 or characters > 120_000:
        yield "too large for strict mode"
    if _levels(schema) > 10:
        yield "nested more than 10 levels"


def _levels(node: Any) -> int:
    if not isinstance(node, dict):
        return 0
    below = [_levels(child) for child in node.get("properties", {}).values()]
    below += [_levels(node["items"])] if isinstance(node.get("items"), dict) else []
    inner = max(below, default=-1) + 1
    return max([inner, *(_levels(branch) for branch in node.get("anyOf", ()))])


def _openapi(node: Any, where: str) -> Iterator[str]:
    if not isinstance(node, dict):
        yield f"{where}: a boolean or another thing stands for a schema"
        return
    for word in node.keys() - OPENAPI_WORDS:
        yield f"{where}: unknown name {word}"
    if "anyOf" in node:
        if node.keys() != {"anyOf"}:
            yield f"{where}: other fields alongside any_of"
        if len(node["anyOf"]) < 2:
            yield f"{where}: any_of of one"
        for index, branch in enumerate(node["anyOf"]):
            yield from _openapi(branch, f"{where}/anyOf/{index}")
        return
    kind = node.get("type")
    if kind not in OPENAPI_TYPES:
        yield f"{where}: the type {kind!r} is none"
        return
    if "format" in node and node["format"] not in OPENAPI_FORMATS.get(kind, ()):
        yield f"{where}: the format {node['format']!r} is not supported for {kind}"
    if "enum" in node and (
        kind != "string" or not node["enum"] or not all(isinstance(v, str) and v for v in node["enum"])
    ):
        yield f"{where}: enum is only allowed for STRING, and no value may be empty"
    if not isinstance(node.get("description", ""), str) or not isinstance(node.get("nullable", True), bool):
        yield f"{where}: a field of the wrong type"
    if kind == "array":
        if "items" not in node:
            yield f"{where}: items: missing field"
        else:
            yield from _openapi(node["items"], f"{where}/items")
    for word in ("items", "minItems", "maxItems"):
        if word in node and kind != "array":
            yield f"{where}: {word} in a {kind}"
    for name in node.get("required", ()):
        if name not in node.get("properties", {}):
            yield f"{where}: required {name!r} is not defined"
    for name, member in node.get("properties", {}).items():
        yield from _openapi(member, f"{where}/properties/{name}")


def nodes(root: Any) -> Iterator[Schema]:
    """Give every subschema that is an object."""
    todo = [root]
    while todo:
        node = todo.pop()
        if not isinstance(node, dict):
            continue
        yield node
        for word in ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"):
            todo += list(node.get(word, {}).values())
        for word in ("allOf", "anyOf", "oneOf", "prefixItems"):
            todo += node.get(word, [])
        for word in (
            *("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"),
            *("unevaluatedItems", "unevaluatedProperties"),
        ):
            todo += node[word] if isinstance(node.get(word), list) else [node.get(word)]
