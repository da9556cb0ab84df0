"""Exports: all tools in the form of one API, with the tables that lead back from it.

The policy: a tool that an API cannot express is left out of that API's export and named with its reason; the
others are untouched by it. Tools are in the order of their exposed names, so that prompt caches hold. A tool
that did not change is not fitted again when others come and go. What a model reads is neutralised on the way.
"""

from __future__ import annotations

import functools
import json
import re
import warnings
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TypeAlias, cast

from dragoman.struct import HIDDEN, Struct, field
from dragoman.tools.export.fit import Demands, as_object, check, describe, fit, fit_type
from dragoman.tools.export.openapi import to_openapi
from dragoman.tools.export.schema import (
    DRAFT_7,
    MAX_NODES,
    Fitted,
    References,
    Schema,
    SchemaChange,
    UnfitError,
    escape,
    fault,
    is_array,
    kind_of,
    rebuild,
    survey,
)
from dragoman.tools.names import (
    ANTHROPIC,
    ANTHROPIC_PARAMETERS,
    GEMINI,
    GEMINI_PARAMETERS,
    OPENAI,
    Rule,
    assign,
)
from dragoman.tools.schema.cost import is_harmless
from dragoman.trust.limits import Limits, excess_text
from dragoman.trust.sanitizing import for_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dragoman.model import JsonObject, ToolDef

# ── Cleaning the texts of a tool: without invisible characters and escape codes, bounded in length


LONGEST = Limits().description_chars
TEXTS = ("title", "description", "$comment", "markdownDescription", "deprecationMessage", "errorMessage")
_SUSPICIOUS = re.compile(r"\\[ruxU]|[^\x00-\x7f]")
"""What `repr` writes for anything but plain ASCII; it is twice as fast as JSON."""


def neutral_tool(tool: ToolDef, longest: int = LONGEST) -> tuple[ToolDef, list[SchemaChange]]:
    """Return a tool with a description that may be shown to a model, and what was done to it."""
    text = for_model(tool.description, longest)
    if text == tool.description:
        return tool, []
    why = "invisible characters and escape codes are removed"
    if len(tool.description) > longest:
        why = excess_text("description_chars", len(tool.description), longest, what="it") + "; it is cut"
    return tool.replace(description=text), [SchemaChange("/description", why)]


def neutralise(fitted: Fitted) -> None:
    """Neutralise the texts of a schema that has been fitted, which bounds its depth."""
    if not _SUSPICIOUS.search(repr(fitted.schema)):
        return
    schema = neutral_schema(fitted.schema)
    if schema != fitted.schema:
        fitted.schema = schema
        fitted.record("", "invisible characters and escape codes are removed from its texts")


def neutral_texts(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of a server's listing (a tool, a resource, a prompt) without hidden text."""
    long = any(isinstance(entry.get(name), str) and len(entry[name]) > LONGEST for name in TEXTS)
    if not long and not _SUSPICIOUS.search(repr(entry)):
        return dict(entry)
    shown: dict[str, Any] = {
        key: for_model(entry[key], LONGEST) for key in TEXTS if isinstance(entry.get(key), str)
    }
    for key in ("inputSchema", "outputSchema"):
        if key in entry:
            shown[key] = neutral_schema(entry[key])
    annotations, arguments = entry.get("annotations"), entry.get("arguments")
    if isinstance(annotations, dict):
        shown["annotations"] = neutral_texts(cast("dict[str, Any]", annotations))
    if isinstance(arguments, list):
        shown["arguments"] = [
            neutral_texts(cast("dict[str, Any]", one)) if isinstance(one, dict) else one
            for one in cast("list[object]", arguments)
        ]
    return {**entry, **shown}


def neutral_schema(node: Any) -> Any:
    """Return a schema whose titles and descriptions have no hidden text."""
    if not isinstance(node, dict):
        return node
    fields = cast("dict[str, Any]", node)
    texts = {name: for_model(fields[name]) for name in TEXTS if isinstance(fields.get(name), str)}
    if any(fields[name] != text for name, text in texts.items()):
        fields = {**fields, **texts}
    return rebuild(fields, lambda child, _step: neutral_schema(child))


# ── Vercel's AI SDK: what its `dynamicTool` takes, under the tool's name


MAX_TITLE = 500


def fit_dynamic(tool: ToolDef) -> Fitted:
    """Fit a tool for the AI SDK."""
    schema = as_object(tool.input_schema)
    fitted = Fitted(schema, tool.description, is_harmless=is_harmless(schema, MAX_NODES))
    if not fitted.is_harmless:
        survey(schema)
        if fault(schema, draft=DRAFT_7):
            check(schema)
    fit_type(fitted)
    return fitted


def shape_dynamic(alias: str, fitted: Fitted, tool: ToolDef) -> JsonObject:
    """Return a tool as `dynamicTool` takes it, once its schemas are wrapped in `jsonSchema`."""
    shape: JsonObject = {"name": alias, "description": fitted.description, "inputSchema": fitted.schema}
    if tool.title:
        shape["title"] = for_model(tool.title, MAX_TITLE)
    if tool.output_schema is not None:
        shape["outputSchema"] = tool.output_schema
    return shape


# ── Anthropic's Messages API


_ANTHROPIC_DEMANDS = Demands(parameters=ANTHROPIC_PARAMETERS)


def fit_messages(tool: ToolDef) -> Fitted:
    """Fit a tool for the Messages API."""
    return fit(tool, _ANTHROPIC_DEMANDS)


def shape_messages(alias: str, fitted: Fitted) -> JsonObject:
    """Return a tool as the Messages API takes it."""
    return {"name": alias, "description": fitted.description, "input_schema": fitted.schema}


# ── Google's Gemini API, in both of its forms


_GEMINI_DEMANDS = Demands(references=False, parameters=GEMINI_PARAMETERS)


def fit_json_schema(tool: ToolDef) -> Fitted:
    """Fit a tool for `parameters_json_schema`."""
    return fit(tool, _GEMINI_DEMANDS)


def fit_openapi(tool: ToolDef) -> Fitted:
    """Fit a tool for `parameters`."""
    fitted = fit(tool, _GEMINI_DEMANDS)
    fitted.is_harmless = False  # it may tell values in words
    to_openapi(fitted)
    return fitted


def shape_json_schema(alias: str, fitted: Fitted) -> JsonObject:
    """Return a function declaration with JSON Schema."""
    return {"name": alias, "description": fitted.description, "parameters_json_schema": fitted.schema}


def shape_openapi(alias: str, fitted: Fitted) -> JsonObject:
    """Return a function declaration with the OpenAPI subset."""
    return {"name": alias, "description": fitted.description, "parameters": fitted.schema}


# ── OpenAI's strict mode: every argument is sure to fit, for the part of JSON Schema that it knows


MAX_PROPERTIES = 5_000
MAX_LEVELS = 10
MAX_ENUM_VALUES = 1_000
MAX_CHARACTERS = 120_000

FORMATS = frozenset("date-time time date duration email hostname ipv4 ipv6 uuid".split())
KEYWORDS = frozenset(
    """type properties required additionalProperties items anyOf enum const $ref $defs definitions
    title description format pattern multipleOf minimum maximum exclusiveMinimum exclusiveMaximum
    minItems maxItems
    """.split()
)
_DROPPED = frozenset("$schema $id $comment default examples example deprecated readOnly writeOnly".split())
_STORES = ("$defs", "definitions")


def make_strict(fitted: Fitted) -> None:
    """Make a schema strict.

    Raises:
        UnfitError: Its meaning would not survive; nothing is changed then.
    """
    copying = _Copying(fitted.schema)
    schema = copying.copied(fitted.schema, "", (), 0)
    if copying.properties > MAX_PROPERTIES:
        msg = f"it has more than {MAX_PROPERTIES} properties"
        raise UnfitError(msg)
    if copying.values > MAX_ENUM_VALUES:
        msg = f"it has more than {MAX_ENUM_VALUES} values in its enumerations"
        raise UnfitError(msg)
    if copying.characters > MAX_CHARACTERS:
        msg = f"its names and values have more than {MAX_CHARACTERS} characters"
        raise UnfitError(msg)
    fitted.schema = schema
    fitted.strict = True
    fitted.nullable = copying.nullable
    for where, why in copying.changes:
        fitted.record(where, why)


class _Copying:
    def __init__(self, root: Schema) -> None:
        self.changes: list[tuple[str, str]] = []
        self.nullable: list[tuple[str, ...]] = []
        self.properties = self.values = self.characters = 0
        self._references = References(root)
        self._takes_null: dict[int, bool] = {}

    def copied(self, node: Any, where: str, path: tuple[str, ...] | None, level: int) -> Schema:
        """Return the strict copy of a subschema.

        Args:
            node: The subschema.
            where: The pointer to it.
            path: The way through a value that leads only here; nothing if there are several.
            level: How many objects and arrays stand around it.
        """
        if not isinstance(node, dict):
            _refuse("a value of any type", where)
        if level > MAX_LEVELS:
            msg = f"it is nested more than {MAX_LEVELS} deep"
            raise UnfitError(msg)
        fields = self._known(cast("Schema", node), where)
        if "$ref" in fields:
            return self._reference(fields, where)
        copy = dict(fields)
        for store in _STORES:
            if isinstance(members := fields.get(store), dict):
                copy[store] = {
                    name: self.copied(member, f"{where}/{store}/{escape(name)}", None, 0)
                    for name, member in cast("Schema", members).items()
                }
        if isinstance(branches := fields.get("anyOf"), list):
            copy["anyOf"] = [
                self.copied(branch, f"{where}/anyOf/{index}", None, level)
                for index, branch in enumerate(cast("list[Any]", branches))
            ]
        elif not fields.keys() & {"type", "enum", "const"}:
            _refuse("a value of any type", where)
        if "type" not in fields and "anyOf" not in fields:
            copy["type"] = self._inferred(fields, where)
        kinds: Any = copy.get("type")
        if kinds == "object" or (isinstance(kinds, list) and "object" in kinds) or "properties" in fields:
            self._object(fields, copy, where, path, level)
        if is_array(cast("object", kinds)):
            below = None if path is None else (*path, "*")
            copy["items"] = self.copied(fields.get("items", {}), f"{where}/items", below, level + 1)
        elif "items" in fields:
            _refuse("`items` outside an array", where)
        return copy

    def _inferred(self, fields: Schema, where: str) -> str | list[str]:
        values = fields["enum"] if "enum" in fields else [fields["const"]]
        kinds = sorted({kind_of(value) for value in cast("list[Any]", values)})
        self.changes.append((where, "`type` is that of the values: strict mode requires it"))
        return kinds[0] if len(kinds) == 1 else kinds

    def _known(self, node: Schema, where: str) -> Schema:
        """Return a subschema without the annotations that strict mode refuses."""
        notes: list[str] = []
        for word in node:
            if word in _DROPPED or word.startswith("x-"):
                self.changes.append(
                    (f"{where}/{escape(word)}", f"`{word}` is left out: strict mode refuses it")
                )
            elif word not in KEYWORDS:
                _refuse(f"`{word}`", where)
        if node.get("default") is not None:
            notes.append(f"Default: {json.dumps(node['default'], ensure_ascii=False)}.")
        fields = {name: node[name] for name in node if name in KEYWORDS}
        if "format" in fields and fields["format"] not in FORMATS:
            notes.append(f"Format: {fields.pop('format')}.")
            self.changes.append((f"{where}/format", "the format is told in words: strict mode refuses it"))
        values: object = fields.get("enum")
        if isinstance(values, list):
            listed = cast("list[Any]", values)
            self.values += len(listed)
            self.characters += sum(len(value) for value in listed if isinstance(value, str))
        return describe(fields, " ".join(notes)) if notes else fields

    def _reference(self, fields: Schema, where: str) -> Schema:
        if self._references.resolve(fields["$ref"]) is None:
            _refuse("a reference that leads nowhere", where)
        if not fields["$ref"].startswith(("#/$defs/", "#/definitions/")) and fields["$ref"] != "#":
            msg = f"it refers to `{fields['$ref']}`"
            raise UnfitError(msg)
        rest = {name: fields[name] for name in fields if name != "$ref"}
        if not rest:
            return fields
        if not rest.keys() <= {"title", "description"}:
            _refuse("other words beside `$ref`", where)
        self.changes.append((where, "`$ref` stands in an `anyOf` of its own: strict mode wants it alone"))
        return {**rest, "anyOf": [{"$ref": fields["$ref"]}]}

    def _object(
        self, fields: Schema, copy: Schema, where: str, path: tuple[str, ...] | None, level: int
    ) -> None:
        members: Schema = fields.get("properties") or {}
        if fields.get("additionalProperties", False) is not False or (not members and where):
            _refuse("an object with members of any name", where)
        required: list[str] = fields.get("required") or []
        if not set(required) <= members.keys():
            _refuse("a required property that is not described", where)
        self.properties += len(members)
        self.characters += sum(map(len, members))
        copy["properties"] = {}
        for name, member in members.items():
            place = f"{where}/properties/{escape(name)}"
            below = None if path is None else (*path, name)
            schema = self.copied(member, place, below, level + 1)
            if name not in required and not self._may_be_null(member):
                if below is None:
                    _refuse("a property that may be missing, in a part with several places", place)
                schema = _or_null(schema)
                self.nullable.append(below)
                self.changes.append((place, "it may be null, which stands for an argument that is not given"))
            copy["properties"][name] = schema
        copy["required"] = list(members)
        if not members and "required" not in fields:
            self.changes.append((where, "`required` is empty, but there: strict mode wants it"))
        if "additionalProperties" not in fields:
            copy["additionalProperties"] = False
            self.changes.append((where, "it is closed to other members: strict mode requires it"))

    def _may_be_null(self, node: Any) -> bool:
        if not isinstance(node, dict):
            return False
        fields = cast("Schema", node)
        if id(fields) not in self._takes_null:
            # Until it is known: one that refers to itself says nothing new.
            self._takes_null[id(fields)] = False
            self._takes_null[id(fields)] = self._allows_null(fields)
        return self._takes_null[id(fields)]

    def _allows_null(self, fields: Schema) -> bool:
        if "$ref" in fields:
            return self._may_be_null(self._references.resolve(fields["$ref"]))
        if "anyOf" in fields:
            return any(map(self._may_be_null, cast("list[Any]", fields["anyOf"])))
        if "enum" in fields:
            return None in fields["enum"]
        if "const" in fields:
            return fields["const"] is None
        kinds = fields.get("type")
        return kinds == "null" or (isinstance(kinds, list) and "null" in kinds)


def _or_null(schema: Schema) -> Schema:
    kinds = schema.get("type")
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if isinstance(kinds, str) and not schema.keys() & {"enum", "const", "properties"}:
        return {**schema, "type": [kinds, "null"]}
    about = {name: schema[name] for name in ("title", "description") if name in schema}
    rest = {name: schema[name] for name in schema if name not in about}
    return {**about, "anyOf": [rest, {"type": "null"}]}


def _refuse(what: str, where: str) -> NoReturn:
    msg = f"it has {what} at `{where or '/'}`"
    raise UnfitError(msg)


# ── OpenAI's two APIs, Chat Completions and Responses


MAX_DESCRIPTION = 1024
MAX_PATTERN = 1_000

_LOOKAROUND = re.compile(r"\(\?<?[=!]")
_CONTINUED = " … (continued in the description of the parameters)"


def fit_chat(tool: ToolDef, *, strict: bool) -> Fitted:
    """Fit a tool for Chat Completions."""
    fitted = _fit(tool, strict=strict)
    _share_description(fitted)
    return fitted


def fit_responses(tool: ToolDef, *, strict: bool) -> Fitted:
    """Fit a tool for the Responses API."""
    return _fit(tool, strict=strict)


def shape_chat(alias: str, fitted: Fitted, *, strict: bool) -> JsonObject:
    """Return a tool as Chat Completions takes it."""
    function: JsonObject = {"name": alias, "description": fitted.description, "parameters": fitted.schema}
    if strict:
        function["strict"] = fitted.strict
    return {"type": "function", "function": function}


def shape_responses(alias: str, fitted: Fitted) -> JsonObject:
    """Return a tool as the Responses API takes it."""
    return {
        "type": "function",
        "name": alias,
        "description": fitted.description,
        "parameters": fitted.schema,
        "strict": fitted.strict,
    }


@functools.lru_cache(maxsize=1024)
def reads(pattern: str) -> bool:
    """Return whether OpenAI takes a pattern."""
    if len(pattern) > MAX_PATTERN or _LOOKAROUND.search(pattern):
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


_OPENAI_DEMANDS = Demands(properties=True, items=True, reads=reads)


def _fit(tool: ToolDef, *, strict: bool) -> Fitted:
    fitted = fit(tool, _OPENAI_DEMANDS)
    if strict:
        fitted.is_harmless = False  # defaults are told in words
        try:
            make_strict(fitted)
        except UnfitError as exc:
            fitted.record("", f"it is not strict: {exc}")
    return fitted


def _share_description(fitted: Fitted) -> None:
    text = fitted.description
    if len(text) <= MAX_DESCRIPTION:
        return
    end = MAX_DESCRIPTION - len(_CONTINUED)
    # At the end of a line or a sentence, unless that would leave little.
    at = max(text.rfind(mark, end // 2, end) + len(mark) - 1 for mark in ("\n", ". ", "。", " "))
    at = at if at >= end // 2 else end
    rest = text[at:].lstrip()
    about = fitted.schema.get("description")
    more = f"{rest}\n\n{about}" if isinstance(about, str) and about else rest
    fitted.schema = {**fitted.schema, "description": more}
    fitted.description = text[:at].rstrip() + _CONTINUED
    why = f"what goes beyond {MAX_DESCRIPTION} characters stands in the description of the parameters"
    fitted.add(SchemaChange("/description", why))


# ── Exports: all tools in the form of one API, with the tables that lead back from it


Api: TypeAlias = Literal["openai", "responses", "anthropic", "gemini", "gemini-openapi", "ai-sdk"]
APIS: tuple[Api, ...] = ("openai", "responses", "anthropic", "gemini", "gemini-openapi", "ai-sdk")
"""`gemini` is the JSON Schema form, `gemini-openapi` the OpenAPI one."""
STRICT_APIS: frozenset[str] = frozenset({"openai", "responses"})

_RULES: dict[Api, Rule] = {
    "openai": OPENAI,
    "responses": OPENAI,
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
    "gemini-openapi": GEMINI,
    # The SDK hands names on to the provider, so they are legal for each.
    "ai-sdk": OPENAI,
}


class Export(Struct, kw_only=True):
    """All tools as one API takes them.

    It is kept and given out again until the tools change: what is in it is not to be written to.
    """

    api: Api
    tools: list[JsonObject]
    """What goes into the request, sorted by exposed name."""
    names: Mapping[str, str]
    """What the model says, and the exposed name that stands for."""
    aliases: Mapping[str, str]
    """The same the other way."""
    changes: Mapping[str, Sequence[SchemaChange]]
    """By exposed name, what is not as the server said it, and why; tools without changes are not there."""
    left_out: Mapping[str, str]
    """Tools that cannot be expressed, by exposed name, and why."""
    parameters: Mapping[str, Mapping[str, str]]
    """By exposed name, parameters that have another name here: that name, and the server's."""
    _nullable: Annotated[Mapping[str, Sequence[tuple[str, ...]]], HIDDEN] = field(
        default_factory=dict[str, Any]
    )

    def restore(self, alias: str, arguments: Mapping[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Turn what a model called into what is to be called: the exposed name, and the server's arguments.

        An unknown name comes back unchanged: calling it gives the error.
        """
        name = self.names.get(alias, alias)
        given = dict(arguments or {})
        renamed = self.parameters.get(name, {})
        restored = {renamed.get(key, key): value for key, value in given.items()}
        for path in self._nullable.get(name, ()):
            restored = _without_null(restored, path)
        return name, restored

    def only(self, keep: Callable[[str], bool]) -> Export:
        """Return the same for the tools whose exposed names are kept; aliases do not change."""
        aliases = {name: alias for name, alias in self.aliases.items() if keep(name)}
        return Export(
            api=self.api,
            tools=[tool for tool, name in zip(self.tools, self.aliases, strict=True) if name in aliases],
            names=MappingProxyType({alias: name for name, alias in aliases.items()}),
            aliases=MappingProxyType(aliases),
            changes=_kept(self.changes, keep),
            left_out=_kept(self.left_out, keep),
            parameters=_kept(self.parameters, keep),
            _nullable=_kept(self._nullable, keep),
        )


class Exporter:
    """Makes exports for one API, and remembers each tool's part until that tool changes."""

    def __init__(self, api: Api, *, strict: bool = False, longest: Mapping[str, int] | None = None) -> None:
        """Export for an API.

        Args:
            api: Which one.
            strict: Whether the API is to hold the model to the schemas.
            longest: By server, how many characters of a description a model is given.

        Raises:
            ValueError: Unknown API, or it has no strict mode.
        """
        if api not in _RULES:
            msg = f"unknown API `{api}`: use one of {', '.join(APIS)}"
            raise ValueError(msg)
        if strict and api not in STRICT_APIS:
            msg = f"`{api}` has no strict mode here: only {' and '.join(sorted(STRICT_APIS))} have one"
            raise ValueError(msg)
        self._api: Api = api
        self._strict = strict
        self._longest: Mapping[str, int] = {} if longest is None else longest
        self._tools: dict[str, ToolDef] = {}
        self._parts: dict[str, Fitted | str] = {}
        """Each tool as the API takes it, or why it cannot be expressed."""

    def export(self, tools: Iterable[ToolDef]) -> Export:
        """Return all tools, which are sorted, in the form of the API."""
        kept: dict[str, ToolDef] = {}
        parts: dict[str, Fitted | str] = {}
        for tool in tools:
            name = tool.name
            kept[name] = tool
            parts[name] = self._parts[name] if self._tools.get(name) is tool else self._fitted(tool)
        self._tools, self._parts = kept, parts
        # Those that are left out keep their aliases, so that no other tool ever answers to one of them.
        aliases = assign(kept, _RULES[self._api])
        shapes: list[JsonObject] = []
        exported: dict[str, str] = {}
        changes: dict[str, Sequence[SchemaChange]] = {}
        left_out: dict[str, str] = {}
        parameters: dict[str, Mapping[str, str]] = {}
        nullable: dict[str, Sequence[tuple[str, ...]]] = {}
        for name, part in parts.items():
            if isinstance(part, str):
                left_out[name] = part
                continue
            alias = exported[name] = aliases[name]
            shapes.append(self._shape(alias, kept[name], part))
            if part.changes:
                changes[name] = tuple(part.changes)
            if part.renamed:
                parameters[name] = part.renamed
            if part.nullable:
                nullable[name] = part.nullable
        return Export(
            api=self._api,
            tools=shapes,
            names=MappingProxyType({alias: name for name, alias in exported.items()}),
            aliases=MappingProxyType(exported),
            changes=MappingProxyType(changes),
            left_out=MappingProxyType(left_out),
            parameters=MappingProxyType(parameters),
            _nullable=MappingProxyType(nullable),
        )

    def _fitted(self, tool: ToolDef) -> Fitted | str:
        try:
            shown, changes = neutral_tool(tool, self._longest.get(tool.server, LONGEST))
            fitted = self._fit(shown)
            if not fitted.is_harmless:
                neutralise(fitted)
        except UnfitError as exc:
            return str(exc)
        except RecursionError:
            # A default or an example may be deeper than any schema.
            return "a value in its input schema is nested too deep"
        if changes:
            fitted.changes = changes + (fitted.changes or [])
        return fitted

    def _fit(self, tool: ToolDef) -> Fitted:
        match self._api:
            case "openai":
                return fit_chat(tool, strict=self._strict)
            case "responses":
                return fit_responses(tool, strict=self._strict)
            case "anthropic":
                return fit_messages(tool)
            case "gemini":
                return fit_json_schema(tool)
            case "gemini-openapi":
                return fit_openapi(tool)
            case "ai-sdk":
                return fit_dynamic(tool)

    def _shape(self, alias: str, tool: ToolDef, fitted: Fitted) -> JsonObject:
        match self._api:
            case "openai":
                return shape_chat(alias, fitted, strict=self._strict)
            case "responses":
                return shape_responses(alias, fitted)
            case "anthropic":
                return shape_messages(alias, fitted)
            case "gemini":
                return shape_json_schema(alias, fitted)
            case "gemini-openapi":
                return shape_openapi(alias, fitted)
            case "ai-sdk":
                return shape_dynamic(alias, fitted, tool)


def _kept(parts: Mapping[str, Any], keep: Callable[[str], bool]) -> Mapping[str, Any]:
    return MappingProxyType({name: part for name, part in parts.items() if keep(name)})


def _without_null(value: Any, path: tuple[str, ...]) -> Any:
    """Return a value without the null at the end of a path; what is on the way is copied."""
    step, *rest = path
    if step == "*" and isinstance(value, list):
        return [_without_null(item, tuple(rest)) if rest else item for item in cast("list[Any]", value)]
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    if step not in fields:
        return cast("Any", value)
    if rest:
        return {**fields, step: _without_null(fields[step], tuple(rest))}
    return {name: member for name, member in fields.items() if name != step or member is not None}
