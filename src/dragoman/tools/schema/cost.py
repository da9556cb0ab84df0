"""The plain form of a schema, and the cost of checking a value against it.

A server's schema is untrusted: it may be a bomb. So the schema itself is never compiled, only a plain copy:
it has only the keywords that affect validation, every reference points into one flat `$defs`, and there is no
`$id`, no anchor and nothing to fetch. The cost is computed for exactly what is compiled.

Parts that the copy cannot hold (a pattern that the linear-time engine does not support, a dangling reference)
are left out, with a note. This only ever makes the copy looser: once a part is missing, every keyword that
would become stricter (`not`, `if`, `oneOf`, `unevaluatedProperties`, …) is loosened or left out too. So the
copy accepts every value that the schema accepts. Formats and content keywords are annotations.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast
from urllib.parse import unquote, urldefrag, urljoin

from dragoman.struct import Struct
from dragoman.visible import is_plain_ascii

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MAX_EXPANDED = 20_000
"""Subschemas that one place of a value may be checked against, with references and branches expanded."""
MAX_NODES = 3_000
"""Subschemas in the plain form; compiling each takes a few microseconds."""
MAX_NESTING = 100
MAX_STACK = 250
"""Nested subschemas while a value is checked. The validator recurses: twice as many would overflow the stack
of a thread with half a megabyte, and crash the process."""
VALUE_DEPTHS = (64, 16, 4)
"""How deep a value may be. The first is for all but schemas that unfold with the value's depth."""
MAX_NOTES = 20

_DRAFTS = {
    "http://json-schema.org/draft-04/schema": 4,
    "http://json-schema.org/draft-06/schema": 6,
    "http://json-schema.org/draft-07/schema": 7,
    "https://json-schema.org/draft/2019-09/schema": 2019,
    "https://json-schema.org/draft/2020-12/schema": 2020,
}
_ASSERTIONS = frozenset(
    """type enum const required multipleOf maximum exclusiveMaximum minimum exclusiveMinimum maxLength
    minLength maxItems minItems uniqueItems maxContains minContains maxProperties minProperties
    dependentRequired
    """.split()
)
_ONE = frozenset(
    """not if then else contains propertyNames additionalProperties unevaluatedProperties additionalItems
    unevaluatedItems items
    """.split()
)
_LISTS = frozenset("allOf anyOf oneOf prefixItems items".split())
_MAPS = frozenset("properties patternProperties dependentSchemas dependencies".split())
_STORES = ("$defs", "definitions")
_STRICTER_WHEN_LOOSENED = frozenset(
    "not if then else maxContains unevaluatedProperties unevaluatedItems".split()
)
_OPEN = frozenset(
    """items contains additionalItems unevaluatedItems patternProperties propertyNames unevaluatedProperties
    uniqueItems
    """.split()
)
# Levels are counted one by one; this keeps the counting itself cheap.
_MAX_COUNTED = 20_000

Node: TypeAlias = dict[str, Any] | bool


class SchemaTooCostlyError(Exception):
    """Checking values against the schema costs too much; the message says why."""


class PlainSchema(Struct, kw_only=True):
    """A schema in its plain form."""

    schema: Node
    notes: tuple[str, ...] = ()
    """What was left out, and why."""
    patterns: frozenset[str] = frozenset()


class Cost(Struct, kw_only=True):
    """How much work a value is, at most."""

    weight: int
    """Subschemas, and entries of their lists, that one place of a value is checked against."""
    depth: int
    """How deep a value may be for that to hold."""
    is_open: bool
    """Whether the work grows with the value; else it is the weight, however large the value is."""


def flatten(schema: object, *, is_readable: Callable[[str], bool]) -> PlainSchema:
    """Return the plain form of a schema.

    Args:
        schema: The schema, as its server gave it.
        is_readable: Returns whether the validator can use a pattern; others are left out.

    Raises:
        SchemaTooCostlyError: It is too large, nested too deeply, or not a schema.
    """
    if isinstance(schema, bool):
        return PlainSchema(schema=schema)
    if not isinstance(schema, dict):
        msg = "it is neither an object nor a boolean"
        raise SchemaTooCostlyError(msg)
    root = cast("dict[str, Any]", schema)
    copy = _Copy(root, is_readable)
    plain = copy.run()
    notes = tuple(copy.notes)[:MAX_NOTES]
    if notes:
        copy = _Copy(root, is_readable, is_careful=True)
        plain = copy.run()
    return PlainSchema(schema=plain, notes=notes, patterns=frozenset(copy.patterns))


class _Copy:
    """One pass over a schema; a careful pass loosens keywords that missing parts would make stricter."""

    def __init__(
        self, root: dict[str, Any], is_readable: Callable[[str], bool], *, is_careful: bool = False
    ) -> None:
        self.notes: dict[str, None] = {}
        self.patterns: set[str] = set()
        self._root = root
        self._is_readable = is_readable
        self._is_careful = is_careful
        declared = root.get("$schema")
        self._draft = _DRAFTS.get(declared.rstrip("#"), 2020) if isinstance(declared, str) else 2020
        self._declared = None if self._draft == 2020 else declared
        self._resources: dict[str, dict[str, Any]] = {"": root}
        self._anchors: dict[tuple[str, str], dict[str, Any]] = {}
        self._dynamic: list[str] = []
        self._bases: dict[int, str] = {}
        self._names: dict[int, str] = {id(root): "#"}
        self._waiting: list[dict[str, Any]] = []
        self._count = 0

    def run(self) -> Node:
        """Copy the schema, and all that its references lead to."""
        self._index()
        plain = cast("dict[str, Any]", self._copied(self._root, "", 0))
        defs: dict[str, Node] = {}
        while self._waiting:
            node = self._waiting.pop()
            defs[self._names[id(node)].rpartition("/")[2]] = self._copied(node, "", 0)
        if self._draft <= 7 and "$ref" in plain:
            # Older drafts ignore the siblings of a reference.
            plain = cast("dict[str, Any]", {"allOf": [plain]})
        if defs:
            plain["$defs"] = defs
        if self._declared is not None:
            plain["$schema"] = self._declared
        return plain

    def _index(self) -> None:
        """Find identifiers and anchors, and the base that each subschema refers from."""
        word = "id" if self._draft == 4 else "$id"
        todo: list[tuple[object, str]] = [(self._root, "")]
        while todo:
            node, base = todo.pop()
            if not isinstance(node, dict) or id(cast("object", node)) in self._bases:
                continue
            fields = cast("dict[str, Any]", node)
            own = fields.get(word)
            if isinstance(own, str) and not (self._draft <= 7 and "$ref" in fields):
                base, anchor = _joined(base, own)
                if anchor and self._draft <= 7:
                    self._anchors[base, anchor] = fields
                else:
                    self._resources[base] = fields
            for name in ("$anchor", "$dynamicAnchor"):
                if isinstance(anchor := fields.get(name), str):
                    self._anchors[base, anchor] = fields
                    self._dynamic += [anchor] if name == "$dynamicAnchor" else []
            self._bases[id(fields)] = base
            if len(self._bases) > MAX_NODES:
                raise _too_many()
            todo += [(child, base) for child in _subschemas(fields)]

    def _copied(self, node: object, base: str, depth: int) -> Node:
        if not isinstance(node, dict):
            # Keep a value that is not a schema, so that the compiler reports it.
            return cast("Node", node)
        fields = cast("dict[str, Any]", node)
        base = self._bases.get(id(fields), base)
        self._count += 1
        if self._count > MAX_NODES:
            raise _too_many()
        if depth > MAX_NESTING:
            msg = f"it is nested more than {MAX_NESTING} levels deep"
            raise SchemaTooCostlyError(msg)
        plain: dict[str, Any] = {}
        more = self._copy_references(fields, base, plain)
        if self._draft <= 7 and "$ref" in fields:
            return {"allOf": more} if more else plain
        for word, value in fields.items():
            if self._is_careful and word in _STRICTER_WHEN_LOOSENED:
                continue
            if word in _MAPS and isinstance(value, dict):
                plain[word] = self._copied_map(word, cast("dict[str, Any]", value), base, depth)
            elif word in _LISTS and isinstance(value, list):
                copies = [self._copied(item, base, depth + 1) for item in cast("list[object]", value)]
                if word == "oneOf" and self._is_careful:
                    more.append({"anyOf": copies})
                else:
                    plain[word] = copies
            elif word in _ONE:
                plain[word] = self._copied(value, base, depth + 1)
            elif word == "pattern" and isinstance(value, str):
                if self._reads(value):
                    plain[word] = value
            elif word in _ASSERTIONS or word in _MAPS or word in _LISTS or word == "pattern":
                plain[word] = value
        if not self._reads_all(fields.get("patternProperties")):
            # Which keys are additional is known only if every pattern is.
            plain.pop("additionalProperties", None)
        if more and isinstance(plain.setdefault("allOf", []), list):
            plain["allOf"] += more
        return plain

    def _copied_map(self, word: str, value: dict[str, Any], base: str, depth: int) -> dict[str, Any]:
        copies: dict[str, Any] = {}
        for name, item in value.items():
            if word == "dependencies" and isinstance(item, list):
                copies[name] = item
            elif word != "patternProperties" or self._reads(name):
                copies[name] = self._copied(item, base, depth + 1)
        return copies

    def _copy_references(self, fields: dict[str, Any], base: str, plain: dict[str, Any]) -> list[Node]:
        """Add the references of a subschema; return those that have no place beside another one."""
        more: list[Node] = []
        words = {2019: ("$ref", "$recursiveRef"), 2020: ("$ref", "$dynamicRef")}.get(self._draft, ("$ref",))
        for word in words:
            reference = fields.get(word)
            if not isinstance(reference, str):
                if reference is not None:
                    plain[word] = reference
                continue
            target = None if self._is_ambiguous(word, reference) else self._resolved(reference, base)
            if target is None:
                where = "points nowhere" if reference.startswith("#") else "points outside the schema"
                self._note(f"`{word}` to `{cut(reference)}` is not checked: it {where}")
            elif target is False:
                more.append({"not": {}})
            elif target is not True:
                pointer = self._name(target)
                if "$ref" in plain:
                    more.append({"$ref": pointer})
                else:
                    plain["$ref"] = pointer
        return more

    def _is_ambiguous(self, word: str, reference: str) -> bool:
        """Return whether the target of a reference depends on the path to it."""
        if word == "$ref":
            return False
        documents = {id(document) for document in self._resources.values()}
        return len(documents) > 1 or self._dynamic.count(reference.lstrip("#")) > 1

    def _resolved(self, reference: str, base: str) -> Node | None:
        url, fragment = _joined(base, reference)
        document = self._resources.get(url)
        if document is None:
            return None
        if fragment and not fragment.startswith("/"):
            return self._anchors.get((url, fragment))
        node: object = document
        for step in fragment.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict):
                node = cast("dict[str, object]", node).get(step)
            elif isinstance(node, list) and step.isdecimal() and len(step) < 9:
                items = cast("list[object]", node)
                node = items[int(step)] if int(step) < len(items) else None
            else:
                return None
        if isinstance(node, dict):
            self._bases.setdefault(id(cast("object", node)), url)
            return cast("dict[str, Any]", node)
        return node if isinstance(node, bool) else None

    def _name(self, target: dict[str, Any]) -> str:
        if id(target) not in self._names:
            self._names[id(target)] = f"#/$defs/d{len(self._names)}"
            self._waiting.append(target)
        return self._names[id(target)]

    def _reads(self, pattern: str) -> bool:
        if self._is_readable(pattern):
            self.patterns.add(pattern)
            return True
        self._note(f"the pattern `{cut(pattern)}` is not checked: it is not supported, or costs too much")
        return False

    def _reads_all(self, patterns: object) -> bool:
        return not isinstance(patterns, dict) or all(map(self._reads, cast("dict[str, object]", patterns)))

    def _note(self, text: str) -> None:
        self.notes[text] = None


def cost_of(schema: Node) -> Cost:
    """Return the cost of checking a value against a plain schema.

    Raises:
        SchemaTooCostlyError: It expands to too much, even for shallow values, or its references are circular.
    """
    reason = ""
    for depth in VALUE_DEPTHS:
        count = _Count(schema)
        try:
            weight, _ = count.weigh(schema, depth, 0)
            return Cost(weight=weight, depth=depth, is_open=count.is_open)
        except _TooMuchError as exc:
            reason = str(exc)
    raise SchemaTooCostlyError(reason)


class _TooMuchError(Exception):
    """Values of this depth cost too much; shallower ones may not."""


class _Count:
    """Counts, level by level of a value, the subschemas that one place of it is checked against."""

    def __init__(self, root: Node) -> None:
        self.is_open = False
        self._root = root
        self._defs: dict[str, Node] = root.get("$defs", {}) if isinstance(root, dict) else {}
        self._known: dict[tuple[int, int], tuple[int, int]] = {}
        self._open: set[tuple[int, int]] = set()

    def weigh(self, node: object, left: int, height: int) -> tuple[int, int]:
        """Return the weight of a subschema and its nesting.

        Args:
            node: The subschema.
            left: Levels that the value may have below this one.
            height: Number of enclosing subschemas.
        """
        if not isinstance(node, dict):
            return 1, 1
        fields = cast("dict[str, Any]", node)
        key = (id(fields), left)
        known = self._known.get(key)
        if known is None:
            if key in self._open:
                msg = "its references are circular"
                raise SchemaTooCostlyError(msg)
            if height > MAX_STACK:
                msg = f"more than {MAX_STACK} of its subschemas are nested"
                raise _TooMuchError(msg)
            self._open.add(key)
            known = self._weighed(fields, left, height + 1)
            self._open.remove(key)
            self._known[key] = known
        if known[0] > MAX_EXPANDED or len(self._known) > _MAX_COUNTED:
            msg = f"it expands to more than {MAX_EXPANDED} subschemas"
            raise _TooMuchError(msg)
        if height + known[1] > MAX_STACK:
            msg = f"more than {MAX_STACK} of its subschemas are nested"
            raise _TooMuchError(msg)
        return known

    def _weighed(self, fields: dict[str, Any], left: int, height: int) -> tuple[int, int]:
        weight, inside = 1 + _entries(fields), 0
        for child in self._here(fields):
            more, tall = self.weigh(child, left, height)
            weight += more
            inside = max(inside, tall)
        self.is_open |= not _OPEN.isdisjoint(fields) or isinstance(fields.get("additionalProperties"), dict)
        self.is_open |= left == 0
        if left:
            below = 0
            for singles, others in _below(fields):
                heaviest = total = 0
                for child in singles:
                    more, tall = self.weigh(child, left - 1, height)
                    heaviest, inside = max(heaviest, more), max(inside, tall)
                for child in others:
                    more, tall = self.weigh(child, left - 1, height)
                    total, inside = total + more, max(inside, tall)
                below = max(below, heaviest + total)
            weight += below
        return weight, inside + 1

    def _here(self, fields: dict[str, Any]) -> Iterator[object]:
        """Return the subschemas that apply to the same place of the value."""
        reference = fields.get("$ref")
        if isinstance(reference, str):
            yield self._root if reference == "#" else self._defs[reference.rpartition("/")[2]]
        for word in ("not", "if", "then", "else", "propertyNames"):
            if word in fields:
                yield fields[word]
        for word in ("allOf", "anyOf", "oneOf"):
            yield from _listed(fields, word)
        for word in ("dependentSchemas", "dependencies"):
            yield from _mapped(fields, word)


def _below(fields: dict[str, Any]) -> Iterator[tuple[list[object], list[object]]]:
    """Return the subschemas for members and items: groups of which one applies, and those that may all."""
    names = ("additionalProperties", "unevaluatedProperties")
    others = [*_mapped(fields, "patternProperties"), *(fields[name] for name in names if name in fields)]
    yield list(_mapped(fields, "properties")), others
    names = ("contains", "additionalItems", "unevaluatedItems")
    others = [fields[name] for name in names if name in fields]
    items = fields.get("items")
    if isinstance(items, list):
        yield cast("list[object]", items), others
    else:
        yield list(_listed(fields, "prefixItems")), [*others, items]


def _entries(fields: dict[str, Any]) -> int:
    """Count the entries that cost time although they are not subschemas."""
    count = sum(len(fields[word]) for word in ("properties", "required") if _is_sized(fields.get(word)))
    # Every key and item is looked up again in all siblings of such a keyword.
    count += 32 * sum(word in fields for word in ("unevaluatedProperties", "unevaluatedItems"))
    return count + (len(fields["enum"]) // 16 if _is_sized(fields.get("enum")) else 0)


def _is_sized(value: object) -> bool:
    return isinstance(value, dict | list)


def _subschemas(fields: dict[str, Any]) -> Iterator[object]:
    for word, value in fields.items():
        if word in _ONE:
            yield value
        if word in _LISTS:
            yield from _listed(fields, word)
        if word in _MAPS or word in _STORES:
            yield from _mapped(fields, word)


def _listed(fields: dict[str, Any], word: str) -> list[object]:
    value: object = fields.get(word)
    return cast("list[object]", value) if isinstance(value, list) else []


def _mapped(fields: dict[str, Any], word: str) -> list[object]:
    value: object = fields.get(word)
    return list(cast("dict[str, object]", value).values()) if isinstance(value, dict) else []


def _joined(base: str, reference: str) -> tuple[str, str]:
    """Resolve a reference; return the document and the fragment."""
    if reference.startswith("#"):
        return base, unquote(reference[1:])
    try:
        url, fragment = urldefrag(urljoin(base, reference))
    except ValueError:
        return reference, ""
    return url, unquote(fragment)


def _too_many() -> SchemaTooCostlyError:
    return SchemaTooCostlyError(f"it has more than {MAX_NODES} subschemas")


def cut(text: str, most: int = 80) -> str:
    """Shorten a text to that many characters, with a mark."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


MAX_DEPTH = 24
MAX_FIELDS = 200
"""Arguments with more fields go to the validator, which bounds its own work."""
_LARGE = 2**53
_TYPES: dict[str, frozenset[type]] = {
    "string": frozenset({str}),
    "integer": frozenset({int}),
    # NaN and infinities are floats, but not JSON numbers.
    "number": frozenset({int}),
    "boolean": frozenset({bool}),
    "null": frozenset({type(None)}),
    "object": frozenset(),
    "array": frozenset(),
}
"""The Python types whose values always have a JSON Schema type, by the name of that type."""
_DIALECTS = frozenset(
    {
        "http://json-schema.org/draft-07/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    }
)
_REMARKS = frozenset({"title", "description", "default", "format", "examples", "deprecated", "$comment"})
"""Keywords that do not affect validation."""


def is_plain(schema: object) -> bool:
    """Return whether this is certainly a valid schema: only well-known keywords with valid values."""
    return _rated(schema, [MAX_DEPTH, 0]) != _OTHER


def is_harmless(schema: object, most: int) -> bool:
    """Return whether this is certainly a valid schema that any model API can have, but for its root.

    It is plain, every array says what its items are, no boolean stands for a subschema except in
    `additionalProperties`, and its texts have no character that a model must not see.

    Args:
        schema: The schema.
        most: The number of subschemas that it may have.
    """
    left = [MAX_DEPTH, most]
    return _rated(schema, left) == _HARMLESS and left[1] >= 0


def _rated(schema: object, left: list[int]) -> int:
    if type(schema) is not dict:
        return _OTHER
    fields = cast("dict[str, Any]", schema)
    if (dialect := fields.get("$schema")) is not None:
        if type(dialect) is not str or dialect.rstrip("#") not in _DIALECTS:
            return _OTHER
        fields = {word: value for word, value in fields.items() if word != "$schema"}
    return _rate_schema(fields, left)


class QuickCheck:
    """Accepts simple arguments of one tool without compiling its schema."""

    __slots__ = ("_kinds", "_required")

    def __init__(self, kinds: Mapping[str, frozenset[type]], required: frozenset[str]) -> None:
        self._kinds = kinds
        self._required = required

    @classmethod
    def of(cls, schema: object) -> Self | None:
        """Read a schema; return `None` if it is not simple enough."""
        if not is_plain(schema):
            return None
        fields = cast("dict[str, Any]", schema)
        if fields.get("type") != "object" or not fields.keys() <= _TOP:
            return None
        kinds = {name: _kinds(inner) for name, inner in fields.get("properties", {}).items()}
        return cls(kinds, frozenset(fields.get("required", ())))

    def fits(self, value: object) -> bool:
        """Return whether a value certainly fits."""
        if type(value) is not dict:
            return False
        fields = cast("dict[str, object]", value)
        if len(fields) > MAX_FIELDS:
            return False
        get = self._kinds.get
        for name, member in fields.items():
            kinds = get(name)
            # A field without a property may be forbidden, or restricted by `additionalProperties`.
            if kinds is None or type(member) not in kinds:
                return False
        return self._required <= fields.keys()


_TOP = _REMARKS | {"type", "properties", "required", "additionalProperties", "$schema"}


def _kinds(schema: Any) -> frozenset[type]:
    """Return the types of which every value fits a simple schema."""
    if type(schema) is not dict:
        return frozenset()
    fields = cast("dict[str, Any]", schema)
    words = fields.keys() - _REMARKS
    if words == {"type"}:
        named = fields["type"]
        names = cast("list[str]", named) if type(named) is list else [cast("str", named)]
        return frozenset[type]().union(*(_TYPES[name] for name in names))
    if words == {"anyOf"}:
        return frozenset[type]().union(*map(_kinds, fields["anyOf"]))
    return frozenset()


# Every definition of every listing passes here, so these are loops without casts and generators. They return
# a rating; the rating of a whole is the `&` of the ratings of its parts. `left` has how many levels and how
# many subschemas may still follow.

_OTHER, _PLAIN, _HARMLESS = 0, 1, 7
_ARRAY = 3
"""Harmless if `items` stands beside it."""
_TYPE_RATINGS = {name: _ARRAY if name == "array" else _HARMLESS for name in _TYPES}


def _rate_schema(schema: Any, left: list[int]) -> int:
    kind = schema.__class__
    if kind is not dict:
        return _PLAIN if kind is bool else _OTHER
    if left[0] == 0:
        return _OTHER
    left[0] -= 1
    left[1] -= 1
    rating = _HARMLESS
    for word, value in schema.items():
        check = _WORDS.get(word)
        if check is None:
            return _OTHER
        rating &= check(value, left)
        if not rating:
            return _OTHER
    left[0] += 1
    if rating == _ARRAY:
        return _HARMLESS if "items" in schema else _PLAIN
    return rating


def _rate_extra(value: object, left: list[int]) -> int:
    return _HARMLESS if type(value) is bool else _rate_schema(value, left)


def _rate_shown(value: Any, _: object) -> int:
    """Rate a text that a model reads."""
    if value.__class__ is str and value.isascii():
        return _HARMLESS if is_plain_ascii(value) else _PLAIN
    return _PLAIN if _rate_text(value) else _OTHER


def _rate_text(value: object, _: object = None) -> int:
    if type(value) is not str:
        return _OTHER
    if value.isascii():
        return _HARMLESS
    try:
        value.encode()
    except UnicodeEncodeError:
        return _OTHER
    return _HARMLESS


def _rate_flag(value: object, _: object) -> int:
    return _HARMLESS if type(value) is bool else _OTHER


def _rate_count(value: object, _: object) -> int:
    return _HARMLESS if type(value) is int and 0 <= value < _LARGE else _OTHER


def _rate_number(value: Any, _: object) -> int:
    kind = value.__class__
    if kind is int:
        return _HARMLESS if -_LARGE < value < _LARGE else _OTHER
    return _HARMLESS if kind is float and isfinite(value) else _OTHER


def _rate_factor(value: object, _: object) -> int:
    return _HARMLESS if type(value) is int and 0 < value < _LARGE else _OTHER


def _rate_json(value: object, left: list[int]) -> int:
    return _HARMLESS if _is_json(value, left[0]) else _OTHER


def _rate_list(value: object, left: list[int]) -> int:
    return _HARMLESS if type(value) is list and _is_json(cast("object", value), left[0]) else _OTHER


def _is_json(value: Any, depth: int) -> bool:
    kind = value.__class__
    if kind is str:
        return _rate_text(value) != _OTHER
    if value is None or kind is bool or _rate_number(value, None):
        return True
    if depth == 0:
        return False
    if kind is dict:
        return all(_rate_text(key) and _is_json(member, depth - 1) for key, member in value.items())
    return kind is list and all(_is_json(item, depth - 1) for item in value)


def _rate_names(value: Any, _: object) -> int:
    if value.__class__ is not list:
        return _OTHER
    try:
        text = "".join(value)
    except TypeError:
        return _OTHER
    return _rate_text(text) if len(set(value)) == len(value) else _OTHER


def _rate_some_names(value: Any, _: object) -> int:
    return _rate_names(value, None) if value else _OTHER


def _rate_type(value: object, _: object) -> int:
    if type(value) is str:
        return _TYPE_RATINGS.get(value, _OTHER)
    rating = _rate_some_names(value, None)
    for name in cast("list[str]", value) if rating else ():
        rating &= _TYPE_RATINGS.get(name, _OTHER)
    return rating


def _rate_properties(value: Any, left: list[int]) -> int:
    kind = value.__class__
    if kind is not dict:
        return _OTHER
    rating = _HARMLESS
    for name, inner in value.items():
        if (name.__class__ is not str or not name.isascii()) and not _rate_text(name):
            return _OTHER
        rating &= _rate_schema(inner, left)
        if not rating:
            return _OTHER
    return rating


def _rate_schemas(value: Any, left: list[int]) -> int:
    if value.__class__ is not list or not value:
        return _OTHER
    rating = _HARMLESS
    for inner in value:
        rating &= _rate_schema(inner, left)
        if not rating:
            return _OTHER
    return rating


Check: TypeAlias = "Callable[[object, list[int]], int]"


def _words(check: Check, words: str) -> dict[str, Check]:
    return dict.fromkeys(words.split(), check)


_WORDS: dict[str, Check] = {
    **_words(_rate_type, "type"),
    **_words(_rate_shown, "title description $comment"),
    **_words(_rate_text, "format"),
    **_words(_rate_json, "default const"),
    **_words(_rate_list, "examples"),
    **_words(_rate_some_names, "enum"),
    **_words(_rate_names, "required"),
    **_words(_rate_number, "minimum maximum exclusiveMinimum exclusiveMaximum"),
    **_words(_rate_factor, "multipleOf"),
    **_words(_rate_count, "minLength maxLength minItems maxItems minProperties maxProperties"),
    **_words(_rate_flag, "uniqueItems readOnly writeOnly deprecated"),
    **_words(_rate_properties, "properties"),
    **_words(_rate_extra, "additionalProperties"),
    **_words(_rate_schema, "items not"),
    **_words(_rate_schemas, "anyOf allOf oneOf"),
}
