"""Apply transforms: a tool as the configuration shows it, and its arguments as its server takes them. Pure.

Only the arguments at the top of the input schema can be changed; what is inside them stays as it is. A
schema keeps its meaning, or the tool is not changed at all: where a combination (`oneOf`, `if`), a reference
or a rule about names speaks of a changed argument, the transform is refused, with the reason. A tool is not
offered without a transform that keeps something from callers.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

from dragoman.errors import InvalidArgumentsError
from dragoman.model import AppliedTransform, json_object
from dragoman.struct import UNSET, MutableStruct, Struct, field
from dragoman.suggest import suggest
from dragoman.tools.names import around_tool
from dragoman.tools.schema.validate import compile_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from dragoman.model import ArgumentTransform, JsonObject, ServerSpec, ToolDef

_COMBINATIONS = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
"""Keywords at the top that may say something about single arguments."""
_ABOUT_NAMES = ("patternProperties", "propertyNames", "minProperties", "maxProperties", "const", "enum")
"""Keywords at the top that speak of the arguments as a whole."""
_UNCLEAR = frozenset(
    {
        "patternProperties",
        "propertyNames",
        "additionalProperties",
        "unevaluatedProperties",
        "minProperties",
        "maxProperties",
    }
)
"""Keywords inside a combination that may say something about any argument."""
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_KEPT = ("$schema", "$id", "$defs", "definitions")
"""Keywords at the top that the schemas of single arguments may need."""
_DEFINITIONS = ("#/$defs/", "#/definitions/")
_PROPERTIES = "#/properties/"


class Refusal(Struct, kw_only=True):
    """A transform that a tool does not take."""

    tool: str
    reason: str
    is_withheld: bool
    """Whether the tool is not offered; otherwise it is, unchanged."""

    def __str__(self) -> str:
        outcome = "it is not offered" if self.is_withheld else "it is offered unchanged"
        return (
            f"tool `{self.tool}` cannot be changed as `tools.{self.tool}` says, so {outcome}: {self.reason}"
        )


class _RefusedError(Exception):
    """A transform cannot be applied; the message says why."""


def transformed(
    tool: ToolDef,
    spec: ServerSpec,
    *,
    template: str,
    make_func: Callable[[str, str], Callable[..., Any]] | None = None,
    on_refused: Callable[[Refusal], object] = lambda _: None,
) -> ToolDef | None:
    """Return a tool of a server as the configuration shows it; `None` if it is not offered.

    Args:
        tool: The tool as its server has it.
        spec: The server.
        template: The template of the exposed name.
        make_func: Makes the function that runs it, given its server and its name there.
        on_refused: Called with a transform that the tool does not take.
    """
    rules = spec.tools.get(tool.original_name)
    if rules is None:
        return tool
    if rules.hidden:
        return None
    try:
        schema = _Schema(tool.input_schema, rules.arguments)
    except _RefusedError as exc:
        on_refused(Refusal(tool=tool.original_name, reason=str(exc), is_withheld=rules.is_guard))
        applied = AppliedTransform(rules=rules, original=tool, name=tool.original_name)
        return None if rules.is_guard else tool.replace(transform=applied)
    name = rules.name or tool.original_name
    annotations = tool.annotations
    if rules.title is not None and "title" in annotations:
        annotations = {**annotations, "title": rules.title}
    return tool.replace(
        name=name.join(around_tool(template, tool.server)),
        title=tool.title if rules.title is None else rules.title,
        description=tool.description if rules.description is None else rules.description,
        input_schema=schema.shown if rules.arguments else tool.input_schema,
        annotations=annotations,
        func=tool.func if make_func is None else make_func(tool.server, name),
        transform=AppliedTransform(
            rules=rules,
            original=tool,
            name=name,
            renamed=schema.renamed,
            closed=schema.closed,
            folded=frozenset(map(_folded, schema.closed)),
            fixed=schema.fixed,
            defaults=schema.defaults,
            references=frozenset(name for name, value in schema.given.items() if _has_reference(value)),
            values=schema.values,
        ),
    )


def sent_arguments(
    tool: ToolDef,
    arguments: Mapping[str, Any],
    *,
    value_of: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return the arguments that the server of a tool is sent.

    Args:
        tool: The tool.
        arguments: The arguments of the caller, by the names that are shown.
        value_of: Replaces the references in the values of the configuration.

    Raises:
        InvalidArgumentsError: They have a name that is only the server's.
    """
    by = tool.transform
    if by is None:
        return dict(arguments)
    renamed, closed = by.renamed, by.closed
    known = json_object(tool.input_schema.get("properties")) if closed else {}
    sent: dict[str, Any] = {}
    for name, value in arguments.items():
        if (own := renamed.get(name)) is not None:
            sent[own] = value
        elif name in closed or (closed and name not in known and _folded(name) in by.folded):
            problem = f"unknown key `{name}`"
            msg = f"invalid arguments for `{tool.name}` (nothing was sent): {problem}"
            raise InvalidArgumentsError(msg, tool=tool.name, server=tool.server, problems=[problem])
        else:
            sent[name] = value
    if by.defaults:
        missing = {name: value for name, value in by.defaults.items() if name not in sent}
        sent |= missing if value_of is None or by.references.isdisjoint(missing) else value_of(missing)
    if by.fixed:
        # Last, so that nothing else counts.
        sent |= by.fixed if value_of is None or by.references.isdisjoint(by.fixed) else value_of(by.fixed)
    return sent


def _folded(name: str) -> str:
    """Return what names have in common that a server may take for the same: `perPage`, `Per_page`.

    Parsers in several languages ignore the case of names, and some the marks between words.
    """
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return "".join(filter(str.isalnum, plain)) or plain


def unused_transforms(spec: ServerSpec, listing: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each transform whose tool a server does not list."""
    if not spec.tools:
        return []
    listed = [name for raw in listing if isinstance(name := raw.get("name"), str)]
    found: list[str] = []
    for name in spec.tools.keys() - set(listed):
        near = suggest(name, listed, count=1)
        guess = f"; did you mean `{near[0]}`?" if near else ""
        found.append(f"it lists no tool `{name}`, which `tools.{name}` would change{guess}")
    return sorted(found)


class _Schema(MutableStruct):
    """The input schema of a tool while it is changed."""

    original: JsonObject
    rules: Mapping[str, ArgumentTransform]
    shown: JsonObject = field(default_factory=dict[str, Any])
    renamed: dict[str, str] = field(default_factory=dict[str, str])
    closed: frozenset[str] = frozenset()
    fixed: dict[str, Any] = field(default_factory=dict[str, Any])
    defaults: dict[str, Any] = field(default_factory=dict[str, Any])
    values: JsonObject = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if not self.rules:
            return
        members = self.original.get("properties")
        properties = json_object(members)
        if unknown := [name for name in self.rules if name not in properties]:
            msg = f"it has no argument {', '.join(f'`{name}`' for name in unknown)}"
            raise _RefusedError(msg)
        names = self._names(properties)
        self.renamed = {shown: name for name, shown in names.items() if name != shown}
        gone = properties.keys() - names.keys()
        moved = {*self.renamed.values(), *gone}
        required = self._required(names)
        self.closed = frozenset(moved)
        # One with a default is always there, whatever the caller gives.
        altered = {*moved, *self.defaults}
        if altered:
            _refuse_unclear(self.original, {*altered, *self.renamed})
        if moved or required is not None:
            _refuse_references(self.original, moved)
        self._check_values(properties)
        self.shown = {**self.original, "properties": self._properties(properties, names)}
        for word in ("examples", "default") if moved else ():
            # They are about the arguments as they were.
            self.shown.pop(word, None)
        if required is not None:
            self.shown.pop("required", None)
            # Draft 4 has no empty list.
            self.shown |= {"required": required} if required else {}
        if isinstance(self.original.get("dependentRequired"), dict):
            self.shown["dependentRequired"] = self._dependencies(names)

    @property
    def given(self) -> JsonObject:
        """The values of the configuration, by the server's names."""
        return {**self.fixed, **self.defaults}

    def _check_values(self, properties: Mapping[str, Any]) -> None:
        """Make the schema of the configuration's values, and check those that are known now."""
        given = self.given
        if not given:
            return
        kept = {word: self.original[word] for word in _KEPT if word in self.original}
        self.values = {**kept, "type": "object", "properties": {name: properties[name] for name in given}}
        known = {name: value for name, value in given.items() if not _has_reference(value)}
        validator = compile_schema(self.values)
        # The value itself may be a secret.
        if wrong := [name for name, value in known.items() if validator.problems({name: value})]:
            msg = f"the configuration's value does not fit the argument `{wrong[0]}`"
            raise _RefusedError(msg)

    def _names(self, properties: Mapping[str, Any]) -> dict[str, str]:
        """Return the shown name of each argument that is shown, and note the values of the others."""
        names: dict[str, str] = {}
        required = _texts(self.original.get("required"))
        for name in properties:
            rule = self.rules.get(name)
            if rule is None or rule.is_shown:
                names[name] = (rule.name if rule else "") or name
                if rule is not None and rule.default is not UNSET:
                    self.defaults[name] = rule.default
            elif rule.constant is not UNSET:
                self.fixed[name] = rule.constant
            elif name in required:
                msg = f"the argument `{name}` is required, so it cannot be hidden without a `default`"
                raise _RefusedError(msg)
        twice = [name for name, times in Counter(names.values()).items() if times > 1]
        if twice:
            msg = f"it would have two arguments named `{twice[0]}`"
            raise _RefusedError(msg)
        # Names may be required that are no properties.
        said = {*required, *texts_in(self.original.get("dependentRequired"))} - properties.keys()
        if taken := sorted(said.intersection(names.values())):
            msg = f"`{taken[0]}` is another argument of its schema"
            raise _RefusedError(msg)
        return names

    def _required(self, names: Mapping[str, str]) -> list[str] | None:
        """Return the shown names of the required arguments; `None` if nothing changes about them."""
        old = _texts(self.original.get("required"))
        kept = [name for name in old if name in names or name not in json_object(self.original["properties"])]
        kept = [name for name in kept if name not in self.defaults]
        kept += [
            name for name, rule in self.rules.items() if rule.required and name in names and name not in kept
        ]
        shown = [names.get(name, name) for name in kept]
        return None if shown == old else shown

    def _properties(self, properties: Mapping[str, Any], names: Mapping[str, str]) -> JsonObject:
        return {shown: self._property(name, properties[name]) for name, shown in names.items()}

    def _property(self, name: str, schema: Any) -> Any:
        rule = self.rules.get(name)
        added: dict[str, Any] = {}
        if rule is not None and rule.description is not None:
            added["description"] = rule.description
        if rule is not None and rule.default is not UNSET and not _has_reference(rule.default):
            added["default"] = rule.default
        if not added or not isinstance(schema, dict):
            return added if added and schema is True else schema
        return {**cast("JsonObject", schema), **added}

    def _dependencies(self, names: Mapping[str, str]) -> JsonObject:
        """Return `dependentRequired` by the shown names."""
        found: JsonObject = {}
        for name, others in json_object(self.original["dependentRequired"]).items():
            every = [name, *_texts(others)]
            unclear = [
                one for one in every if one in self.defaults or (one in self.closed and one not in names)
            ]
            if unclear:
                msg = f"`dependentRequired` of its schema speaks of the argument `{unclear[0]}`"
                raise _RefusedError(msg)
            found[names.get(name, name)] = [names.get(one, one) for one in every[1:]]
        return found


def _refuse_unclear(schema: JsonObject, names: Collection[str]) -> None:
    """Refuse if a keyword at the top could say something else about arguments with these names.

    Raises:
        _RefusedError: One does.
    """
    for word in _ABOUT_NAMES:
        if word in schema:
            msg = f"`{word}` of its schema speaks of all arguments"
            raise _RefusedError(msg)
    for word in _COMBINATIONS:
        if word not in schema:
            continue
        texts = set(texts_in(schema[word]))
        if found := sorted(texts.intersection(names)):
            msg = f"`{word}` of its schema speaks of the argument `{found[0]}`"
            raise _RefusedError(msg)
        if found := sorted(texts.intersection({*_REFERENCES, *_UNCLEAR})):
            msg = f"`{word}` of its schema has `{found[0]}`, which may speak of any argument"
            raise _RefusedError(msg)
    for word in _REFERENCES:
        if word in schema:
            msg = f"its schema is a reference (`{word}`)"
            raise _RefusedError(msg)


def _refuse_references(schema: JsonObject, moved: Collection[str]) -> None:
    """Refuse if a reference leads to what is changed.

    Raises:
        _RefusedError: One does.
    """
    for reference in _references(schema):
        if reference.startswith(_DEFINITIONS):
            continue
        name = reference.removeprefix(_PROPERTIES).partition("/")[0].replace("~1", "/").replace("~0", "~")
        if not reference.startswith(_PROPERTIES) or name in moved or "%" in name:
            msg = f"a reference in its schema (`{reference:.100}`) leads to what is changed"
            raise _RefusedError(msg)


def _references(value: object) -> Iterator[str]:
    for node in _nodes(value):
        for word in _REFERENCES:
            if isinstance(reference := node.get(word), str):
                yield reference


def _nodes(value: object) -> Iterator[JsonObject]:
    """Yield every object in a value; a schema may be nested deeply, so nothing is called recursively."""
    rest: list[object] = [value]
    while rest:
        one = rest.pop()
        if isinstance(one, dict):
            node = cast("JsonObject", one)
            yield node
            rest.extend(node.values())
        elif isinstance(one, list):
            rest.extend(cast("list[object]", one))


def texts_in(value: object) -> Iterator[str]:
    """Yield every text in a JSON value, and every key."""
    rest: list[object] = [value]
    while rest:
        one = rest.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            node = cast("JsonObject", one)
            yield from node
            rest.extend(node.values())
        elif isinstance(one, list):
            rest.extend(cast("list[object]", one))


def _has_reference(value: object) -> bool:
    return any("${" in text for text in texts_in(value))


def _texts(value: object) -> Sequence[str]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [one for one in items if isinstance(one, str)]
