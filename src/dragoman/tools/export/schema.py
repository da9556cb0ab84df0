"""What all formats need to know of a schema: its parts, its references, and what it costs to look at it.

A schema is untrusted. Every look at one is bounded: by `MAX_NODES` subschemas, `MAX_DEPTH` of them inside one
another, and `MAX_EXPANDED` once references are written out. What lies beyond is left out with that reason.
Nothing is ever fetched, and the server's own schema is never written to: a change is made on a copy of the
path that leads to it, and what did not change is shared.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from urllib.parse import unquote

from dragoman.struct import MutableStruct, Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_NODES = 10_000
MAX_DEPTH = 64
MAX_EXPANDED = 2_000
"""Subschemas after references are written out."""

DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"

MAPS = frozenset("properties patternProperties $defs definitions dependentSchemas dependencies".split())
LISTS = frozenset("allOf anyOf oneOf prefixItems items".split())
ONES = frozenset(
    """items additionalProperties not if then else contains propertyNames additionalItems
    unevaluatedItems unevaluatedProperties
    """.split()
)
NESTING = MAPS | LISTS | ONES
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
ANNOTATIONS = frozenset(
    """title description default examples example deprecated readOnly writeOnly $comment $schema $id $anchor
    """.split()
)

Schema: TypeAlias = dict[str, Any]


class UnfitError(Exception):
    """The tool cannot be expressed; the message is the reason."""


class SchemaChange(Struct):
    """One thing that is not as the server said it."""

    where: str
    """A JSON pointer into the tool as its server defined it, such as `/inputSchema/properties/n`."""
    why: str


class Fitted(MutableStruct):
    """A tool's definition as an API takes it, still without its shape."""

    schema: Schema
    description: str
    # There is one for each of 10,000 tools, and few have any of these.
    changes: list[SchemaChange] | None = None
    renamed: dict[str, str] | None = None
    """Parameters that the API knows by another name: that name, and the server's."""
    nullable: list[tuple[str, ...]] | None = None
    """Where a null stands for an argument that is not given; `*` is every item of an array."""
    strict: bool = False
    is_harmless: bool = False
    """Whether its texts are known to be free of what a model must not see."""

    def record(self, where: str, why: str) -> None:
        """Note one change; `where` points into the input schema."""
        self.add(SchemaChange(f"/inputSchema{where}", why))

    def explain(self, note: str, why: str) -> None:
        """Tell the model in the description what the schema cannot say any more."""
        self.description = f"{self.description}\n\n{note}" if self.description else note
        self.add(SchemaChange("/description", why))

    def add(self, change: SchemaChange) -> None:
        """Note one change."""
        if self.changes is None:
            self.changes = []
        self.changes.append(change)


class Survey(MutableStruct):
    """What occurs in a schema, so that most of them need no closer look."""

    words: set[str]
    """The keywords."""
    has_bare_array: bool = False
    """Whether an array does not say what its items are."""
    has_boolean: bool = False
    """Whether `true` or `false` stands for the schema of a property, an item or a branch."""


def survey(schema: object) -> Survey:
    """Look over a schema once.

    Raises:
        UnfitError: It is too large, too deep, or contains something that is not a schema.
    """
    found = Survey(set())
    words = found.words
    level: list[Any] = [schema]
    count = 0
    for _ in range(MAX_DEPTH):
        count += len(level)
        if count > MAX_NODES:
            msg = f"its input schema has more than {MAX_NODES} parts"
            raise UnfitError(msg)
        below: list[Any] = []
        for node in level:
            if type(node) is not dict:
                if isinstance(node, bool):
                    found.has_boolean = True
                    continue
                raise _no_schema()
            fields = cast("Schema", node)
            words.update(fields)
            if "items" not in fields and is_array(fields.get("type")):
                found.has_bare_array = True
            if not NESTING.isdisjoint(fields):
                _descend(fields, below, found)
        if not below:
            return found
        level = below
    msg = f"its input schema is nested more than {MAX_DEPTH} deep"
    raise UnfitError(msg)


def _descend(node: Schema, below: list[Any], found: Survey) -> None:
    for word in NESTING.intersection(node):
        value = node[word]
        if type(value) is not (dict if word in MAPS else list) and word not in ONES:
            raise _no_schema()
        if isinstance(value, dict):
            if word not in MAPS:
                below.append(value)
            elif word == "dependencies":
                members = cast("Schema", value).values()
                below.extend(member for member in members if not isinstance(member, list))
            else:
                below.extend(cast("Schema", value).values())
        elif isinstance(value, list):
            below.extend(cast("list[Any]", value))
        elif isinstance(value, bool):
            found.has_boolean = found.has_boolean or word in {"items", "contains"}
        else:
            below.append(value)


def _no_schema() -> UnfitError:
    return UnfitError("its input schema is not valid JSON Schema: a part of it is not a schema")


def is_array(kind: object) -> bool:
    """Return whether a `type` allows arrays."""
    return kind == "array" or (isinstance(kind, list) and "array" in kind)


def kind_of(value: object) -> str:
    """Return the type of a value, as a schema calls it."""
    if isinstance(value, bool):
        return "boolean"
    if value is None:
        return "null"
    kinds: dict[type, str] = {str: "string", int: "integer", float: "number", list: "array"}
    return kinds.get(type(value), "object")


def fault(schema: Schema, *, draft: str = DRAFT_2020) -> str:
    """Say why a schema, which has been surveyed, is not valid in a draft; nothing if it is."""
    import jsonschema_rs

    try:
        # Whatever draft it declares itself: an unknown one would be looked for on the network.
        jsonschema_rs.meta.validate({**schema, "$schema": draft})
    except jsonschema_rs.ValidationError as exc:
        place = "/".join(str(step) for step in exc.instance_path)
        return f"{exc.message[:200]} at `/{place}`"
    except ValueError as exc:
        return f"it cannot be read ({type(exc).__name__})"
    return ""


def rebuild(node: Schema, visit: Callable[[Any, str], Any]) -> Schema:
    """Put each direct subschema through `visit`; return the same node if none of them changed.

    Args:
        node: A subschema.
        visit: Given a subschema below it and the pointer from here to there; returns what stands there then.
    """
    changed: Schema = {}
    for word in NESTING.intersection(node):
        value = node[word]
        if word in MAPS and isinstance(value, dict):
            members = cast("Schema", value)
            new: Schema = {
                name: member
                if isinstance(member, list) and word == "dependencies"
                else visit(member, f"/{word}/{escape(name)}")
                for name, member in members.items()
            }
            if any(new[name] is not member for name, member in members.items()):
                changed[word] = new
        elif word in LISTS and isinstance(value, list):
            items = cast("list[Any]", value)
            copies = [visit(item, f"/{word}/{index}") for index, item in enumerate(items)]
            if any(copy is not item for copy, item in zip(copies, items, strict=True)):
                changed[word] = copies
        elif word in ONES:
            one = visit(value, f"/{word}")
            if one is not value:
                changed[word] = one
    # In the old order of keywords, so that what changed is all that changed.
    return {**node, **changed} if changed else node


def escape(step: str) -> str:
    """Return a member's name as a step of a JSON pointer."""
    return step.replace("~", "~0").replace("/", "~1")


class References:
    """Where the references of a schema lead; never out of it."""

    def __init__(self, root: Schema) -> None:
        self._root = root

    @functools.cached_property
    def _anchors(self) -> dict[str, Schema]:
        found: dict[str, Schema] = {}
        for node in _subschemas(self._root):
            for word in ("$anchor", "$dynamicAnchor", "$id"):
                name = node.get(word)
                if isinstance(name, str) and (word != "$id" or name.startswith("#")):
                    found.setdefault(name.removeprefix("#"), node)
        return found

    def resolve(self, reference: object) -> Schema | bool | None:
        """Return what a reference leads to; nothing if it leads nowhere, or out of the schema."""
        if not isinstance(reference, str):
            return None
        own = self._root.get("$id")
        if isinstance(own, str) and own and reference.startswith(f"{own.rstrip('#')}#"):
            reference = reference[len(own.rstrip("#")) :]
        if not reference.startswith("#"):
            return None
        fragment = unquote(reference[1:])
        if fragment and not fragment.startswith("/"):
            return self._anchors.get(fragment)
        node: object = self._root
        for step in fragment.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict):
                node = cast("dict[str, object]", node).get(name)
            elif isinstance(node, list) and name.isdecimal() and int(name[:9]) < len(cast("list[Any]", node)):
                node = cast("list[object]", node)[int(name[:9])]
            else:
                return None
        return cast("Schema | bool", node) if isinstance(node, dict | bool) else None


def _subschemas(root: Schema) -> Iterator[Schema]:
    todo: list[Any] = [root]
    found = Survey(set())
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            yield (fields := cast("Schema", node))
            _descend(fields, todo, found)
