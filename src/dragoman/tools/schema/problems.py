"""Word validation errors for a model: where, what was expected, what was given, and what may be meant."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from dragoman.suggest import suggest
from dragoman.tools.schema.cost import Node, cut
from dragoman.trust.masking import HUGE_INTEGER, MASK, MAX_INTEGER_BITS, is_sensitive_name, mask_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import jsonschema_rs


MAX_JSON_CHARS = 1_000_000
"""A longer text is not read as JSON."""
MAX_NUMBER_CHARS = 40
_NO_NUMBERS: frozenset[type] = frozenset({str, bool, type(None)})


class _Nothing:
    """The type of `NOTHING`."""

    def __repr__(self) -> str:
        return "NOTHING"


NOTHING: Final = _Nothing()
"""Returned if the text cannot be read that way; `None` is a value."""

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"(-?(?:0|[1-9][0-9]*))(?:\.0+)?")
_WORDS = {"true": True, "false": False}


def read_as(value: object, kind: str) -> Any:
    """Return a value as another type of JSON Schema, or `NOTHING`."""
    if kind == "string":
        return str(value) if type(value) is int and abs(value) < 10**MAX_NUMBER_CHARS else NOTHING
    if not isinstance(value, str):
        return NOTHING
    if kind in ("object", "array"):
        return _container(value, dict if kind == "object" else list)
    text = value[: MAX_NUMBER_CHARS + 1].strip() if len(value) <= 2 * MAX_NUMBER_CHARS else ""
    if not text or len(text) > MAX_NUMBER_CHARS:
        return NOTHING
    match kind:
        case "integer":
            found = _INTEGER.fullmatch(text)
            return int(found[1]) if found else NOTHING
        case "number":
            return _number(text)
        case "boolean":
            return _WORDS.get(text.lower(), NOTHING)
        case "null":
            return None if text == "null" else NOTHING
        case _:
            return NOTHING


def option_meant(value: object, options: Sequence[object]) -> Any:
    """Return the one option that a value clearly means; `NOTHING` if there is none, or more than one."""
    if isinstance(value, str):
        folded = value.strip().casefold()
        texts = [option for option in options if isinstance(option, str)]
        near = [option for option in texts if option.strip().casefold() == folded]
        trimmed = [option for option in near if option == value.strip()]
        # If two options differ only in case, the exact match is meant.
        near = trimmed or near
        near += [option for option in options if _is_meant(value, option)]
    else:
        near = [
            option for option in options if isinstance(option, str) and read_as(value, "string") == option
        ]
    return near[0] if len(near) == 1 else NOTHING


def _is_meant(text: str, option: object) -> bool:
    kinds: dict[type, str] = {bool: "boolean", int: "integer", float: "number", type(None): "null"}
    kind = kinds.get(type(option))
    if kind is None:
        return False
    meant = read_as(text, kind)
    return meant is not NOTHING and meant == option


def _number(text: str) -> Any:
    if not _NUMBER.fullmatch(text):
        return NOTHING
    whole = _INTEGER.fullmatch(text)
    if whole and "." not in text:
        return int(text)
    number = float(text)
    return number if math.isfinite(number) else NOTHING


def _container(text: str, wanted: type) -> Any:
    stripped = text.strip() if len(text) <= MAX_JSON_CHARS else ""
    if not stripped.startswith("{" if wanted is dict else "["):
        return NOTHING
    try:
        value = json.loads(stripped, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return NOTHING
    return value if isinstance(value, wanted) else NOTHING


def _refuse(word: str) -> None:
    msg = f"`{word}` is not JSON"
    raise ValueError(msg)


MAX_CHARS = 300
"""Longest text of one problem."""
SHOWN = 40
"""Characters shown of a string."""
LISTED = 10
"""Keys, options and branches shown of a longer list."""

_ANY = "a value of another form"
_TYPES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
_UNITS = {"Length": "character", "Items": "item", "Properties": "key"}
_IDENTIFIER = re.compile(r"[^\W\d][\w-]*")


def word(
    errors: Iterable[jsonschema_rs.ValidationError], schema: Node, value: object, *, limit: int
) -> list[str]:
    """Word the errors that a value has against a plain schema, each once.

    Args:
        errors: What the validator says.
        schema: The plain schema that it was compiled from.
        value: The value itself.
        limit: Most problems to return; the last one then says how many more there are.
    """
    wording = _Wording(schema, value)
    texts = list(dict.fromkeys(cut(text, MAX_CHARS) for error in errors for text in wording.of(error)))
    if len(texts) <= limit:
        return texts
    return [*texts[: limit - 1], f"… and {len(texts) - limit + 1} more problems"]


class _Wording:
    """Words the errors of one value for a model."""

    def __init__(self, schema: Node, value: object) -> None:
        self._schema = schema
        self._value = value

    def of(self, error: jsonschema_rs.ValidationError) -> list[str]:
        """Return the problems of one error, each after its place."""
        place = place_of(error.instance_path)
        start = f"`{place}`: " if place else ""
        return [start + text for text in self._texts(error)]

    def _texts(self, error: jsonschema_rs.ValidationError) -> list[str]:
        kind = type(error.kind).__name__
        facts = error.kind.as_dict()
        got = self._got(error)
        match kind:
            case "AdditionalProperties" | "UnevaluatedProperties":
                return [self._unknown_key(error, key) for key in facts["unexpected"]]
            case "Required":
                return [self._missing_key(error, facts["property"])]
            case "Type":
                return [f"expected {_asked(kind, facts)}, got {got}{self._meant(error, facts['types'])}"]
            case "Enum":
                return [f"expected {_asked(kind, facts)}, got {got}{self._nearest(error, facts['options'])}"]
            case "Constant":
                near = self._nearest(error, [facts["expected_value"]])
                return [f"expected {_asked(kind, facts)}, got {got}{near}"]
            case "AnyOf" | "OneOfNotValid":
                return [self._no_branch(error, facts["context"], got)]
            case "OneOfMultipleValid":
                forms = self._expected(self._subschema(error))
                return [f"exactly one form must match, but several do: {forms}"]
            case "PropertyNames":
                inner = facts["error"]
                asked = _asked(type(inner.kind).__name__, inner.kind.as_dict())
                return [f"the key {_key(str(inner.instance))} is not allowed: expected {asked}"]
            case "FalseSchema":
                what = "no key" if error.schema_path[-1:] == ["additionalProperties"] else "no value"
                return [f"{what} is allowed here, got {got}"]
            case "AdditionalItems" | "UnevaluatedItems":
                return [f"too many items, got {got}"]
            case "Contains":
                limits = self._parent(error)
                least, most = limits.get("minContains", 1), limits.get("maxContains")
                asked = f"at least {least}" + ("" if most is None else f" and at most {most}")
                return [f"expected {asked} of its items to be {self._expected(limits.get('contains'))}"]
            case "Not":
                return [f"must not be {self._expected(facts['schema'])}, got {got}"]
            case "UniqueItems":
                return ["the items must be unique"]
            case _:
                return [f"expected {_asked(kind, facts)}, got {got}"]

    def _got(self, error: jsonschema_rs.ValidationError) -> str:
        if any(isinstance(step, str) and is_sensitive_name(step) for step in error.instance_path):
            return MASK
        value = self._at(error)
        return f"the string {shown(value)}" if isinstance(value, str) else shown(value)

    def _at(self, error: jsonschema_rs.ValidationError) -> object:
        """Return the part that an error is about from the value itself, where keys keep their order."""
        node: Any = self._value
        for step in error.instance_path:
            try:
                node = node[step]
            except (LookupError, TypeError):
                return error.instance
        return node

    def _unknown_key(self, error: jsonschema_rs.ValidationError, key: str) -> str:
        known = list(self._properties(self._parent(error)))
        if near := _near(key, known):
            return f"unknown key {_key(key)}; did you mean {_key(near)}?"
        listed = ", ".join(_key(name) for name in known[:LISTED])
        more = ", …" if len(known) > LISTED else ""
        return f"unknown key {_key(key)}; " + (
            f"known keys: {listed}{more}" if known else "no keys are allowed here"
        )

    def _missing_key(self, error: jsonschema_rs.ValidationError, key: str) -> str:
        known = self._properties(self._parent(error))
        wanted = self._expected(known[key]) if key in known else ""
        text = f"the required key {_key(key)}{f' ({wanted})' if wanted else ''} is missing"
        value = self._at(error)
        others = (
            [name for name in cast("dict[str, object]", value) if name not in known]
            if isinstance(value, dict)
            else []
        )
        near = _near(key, others)
        return f"{text}; is {_key(near)} a typo?" if near else text

    def _meant(self, error: jsonschema_rs.ValidationError, kinds: list[Any]) -> str:
        """Return the hint with a string's value in the required type."""
        value = self._at(error)
        if not isinstance(value, str) or self._got(error) == MASK:
            return ""
        readings = [read_as(value, str(kind)) for kind in kinds]
        meant = next((reading for reading in readings if reading is not NOTHING), NOTHING)
        if meant is NOTHING:
            return ""
        return f"; did you mean {shown(meant)}{', not its text' if isinstance(meant, dict | list) else ''}?"

    def _nearest(self, error: jsonschema_rs.ValidationError, options: list[Any]) -> str:
        value = self._at(error)
        if self._got(error) == MASK:
            return ""
        meant = option_meant(value, options)
        if meant is NOTHING and isinstance(value, str):
            meant = _near(value, [option for option in options if isinstance(option, str)]) or NOTHING
        return "" if meant is NOTHING else f"; did you mean {shown(meant)}?"

    def _no_branch(
        self,
        error: jsonschema_rs.ValidationError,
        branches: list[list[jsonschema_rs.ValidationError]],
        got: str,
    ) -> str:
        """Return what the branches expect, and the problems of the nearest one."""
        text = f"expected {self._expected(self._subschema(error))}, got {got}"
        here = error.instance_path
        apt = [branch for branch in branches if branch and not any(_is_kind(inner, here) for inner in branch)]
        if not apt:
            return text + self._nearest(error, _options(branches, here))
        best = min(apt, key=lambda branch: (sum(_is_tag(inner) for inner in branch), len(branch)))
        return f"{text}; nearest: {'; '.join(self.of(best[0]))}"

    def _properties(self, node: object, depth: int = 4) -> dict[str, object]:
        """Collect the properties of a subschema, including those of its parts."""
        fields = self._resolved(node)
        known = dict(cast("dict[str, object]", fields.get("properties", {})))
        if depth:
            parts: list[object] = [{"$ref": fields["$ref"]}] if "$ref" in fields else []
            for word in ("allOf", "anyOf", "oneOf"):
                parts += fields.get(word, ())
            for part in parts[:LISTED]:
                known = {**self._properties(part, depth - 1), **known}
        return known

    def _expected(self, node: object, depth: int = 3) -> str:
        """Describe in a few words what a subschema requires."""
        if node is False:
            return "nothing"
        fields = self._resolved(node)
        if "const" in fields:
            return shown(fields["const"])
        if "enum" in fields:
            return _one_of(fields["enum"])
        kinds = fields.get("type")
        if isinstance(kinds, str):
            return self._one_type(kinds, fields, depth)
        if isinstance(kinds, list):
            return _or([_TYPES.get(str(kind), str(kind)) for kind in cast("list[object]", kinds)])
        for word in ("anyOf", "oneOf", "allOf"):
            if depth and fields.get(word):
                parts = [self._expected(part, depth - 1) for part in fields[word][:LISTED]]
                return _or(parts) if word != "allOf" else next((part for part in parts if part != _ANY), _ANY)
        if "required" in fields or "properties" in fields:
            return self._one_type("object", fields, depth)
        return _ANY

    def _one_type(self, kind: str, fields: dict[str, Any], depth: int) -> str:
        if kind == "array" and depth and isinstance(fields.get("items"), dict):
            items = self._resolved(fields["items"]).get("type")
            return (
                f"an array of {items}s" if items in ("string", "integer", "number", "object") else "an array"
            )
        if kind == "object" and (keys := fields.get("required")):
            return f"an object with {', '.join(_key(str(key)) for key in keys[:LISTED])}"
        return _TYPES.get(kind, kind)

    def _resolved(self, node: object) -> dict[str, Any]:
        for _ in range(4):
            if not isinstance(node, dict):
                break
            fields = cast("dict[str, Any]", node)
            reference = fields.get("$ref")
            if reference is None or len(fields) > 1:
                return fields
            node = self._lookup(str(reference).split("/")[1:])
        return {}

    def _parent(self, error: jsonschema_rs.ValidationError) -> dict[str, Any]:
        node = self._lookup(error.schema_path[:-1])
        return cast("dict[str, Any]", node) if isinstance(node, dict) else {}

    def _subschema(self, error: jsonschema_rs.ValidationError) -> dict[str, Any]:
        """Return the branches that an error is about, alone."""
        name = error.schema_path[-1] if error.schema_path else ""
        return {str(name): self._parent(error).get(str(name), [])}

    def _lookup(self, path: list[Any]) -> object:
        node: Any = self._schema
        for step in path:
            try:
                # The validator reports a key of digits as an index.
                node = node[str(step) if isinstance(node, dict) else step]
            except (LookupError, TypeError):
                return None
        return node


def _options(branches: list[list[jsonschema_rs.ValidationError]], here: list[str | int]) -> list[Any]:
    """Collect the values that the branches list for the value as a whole."""
    found: list[Any] = []
    for inner in (inner for branch in branches for inner in branch if inner.instance_path == here):
        facts = inner.kind.as_dict()
        found += facts.get("options", ())
        found += [facts["expected_value"]] if "expected_value" in facts else []
    return found[:500]


def _is_kind(error: jsonschema_rs.ValidationError, here: list[str | int]) -> bool:
    """Return whether an error says that the value as a whole has another type than a branch requires."""
    return type(error.kind).__name__ in ("Type", "Enum", "Constant") and error.instance_path == here


def _is_tag(error: jsonschema_rs.ValidationError) -> bool:
    return type(error.kind).__name__ in ("Enum", "Constant", "Required")


def _asked(kind: str, facts: dict[str, Any]) -> str:
    """Describe what a simple keyword requires."""
    limit = facts.get("limit")
    match kind:
        case "Type":
            return _or([_TYPES.get(str(name), str(name)) for name in facts["types"]])
        case "Enum":
            return _one_of(facts["options"])
        case "Constant":
            return shown(facts["expected_value"])
        case "Minimum" | "Maximum":
            return f"a number of at {'least' if kind == 'Minimum' else 'most'} {shown(limit)}"
        case "ExclusiveMinimum" | "ExclusiveMaximum":
            return f"a number {'above' if kind == 'ExclusiveMinimum' else 'below'} {shown(limit)}"
        case "MultipleOf":
            return f"a multiple of {shown(facts['multiple_of'])}"
        case "Pattern":
            return f"a string that matches `{cut(facts['pattern'], 100)}`"
        case "MinLength" | "MinItems" | "MinProperties":
            return f"at least {_count(limit, _UNITS[kind[3:]])}"
        case "MaxLength" | "MaxItems" | "MaxProperties":
            return f"at most {_count(limit, _UNITS[kind[3:]])}"
        case _:
            return "another value"


def shown(value: object) -> str:
    """Return a value in a few characters, without anything that looks like a secret."""
    match value:
        case None | bool():
            return json.dumps(value)
        case str():
            # Cut first, since long texts are slow; leave enough to recognise a token.
            text = cut(mask_text(value[:500]), SHOWN)
            more = f" ({len(value)} characters)" if len(value) > SHOWN else ""
            return json.dumps(text, ensure_ascii=False) + more
        case int():
            return str(value) if value.bit_length() < 200 else "a very large integer"
        case float():
            return repr(value)
        case list() | tuple():
            return f"an array of {_count(len(cast('list[object]', value)), 'item')}"
        case dict():
            keys = list(cast("dict[object, object]", value))
            listed = ", ".join(_key(str(key)) for key in keys[:5]) + (", …" if len(keys) > 5 else "")
            return f"an object with {listed}" if keys else "an empty object"
        case _:
            return f"a {type(value).__name__}"


def _one_of(options: list[Any]) -> str:
    listed = ", ".join(shown(option) for option in options[:LISTED])
    if len(options) > LISTED:
        return f"one of {listed}, … ({len(options)} in all)"
    return f"one of {listed}" if len(options) > 1 else listed or "nothing"


def _or(phrases: list[str]) -> str:
    unique = list(dict.fromkeys(phrases))
    return " or ".join([", ".join(unique[:-1]), unique[-1]] if len(unique) > 1 else unique) or _ANY


def not_finite(arguments: Mapping[str, Any]) -> list[str]:
    """Return the problem with the first number of the arguments that not every JSON parser can read."""
    if _NO_NUMBERS.issuperset(map(type, arguments.values())):
        return []
    nodes: list[tuple[list[str | int], Any]] = [([], arguments)]
    seen: set[int] = set()
    for path, node in nodes:
        members: Any = cast("Any", node).items() if isinstance(node, Mapping) else enumerate(node)
        for step, value in members:
            if type(value) in _NO_NUMBERS:
                continue
            if isinstance(value, int):
                if value.bit_length() > MAX_INTEGER_BITS:
                    return [f"`{place_of(_place(path, step))}`: the integer is too large"]
            elif isinstance(value, float):
                if not math.isfinite(value):
                    return [f"`{place_of(_place(path, step))}`: {float(value)!r} is not a number in JSON"]
            elif isinstance(value, Mapping | list | tuple) and id(cast("object", value)) not in seen:
                seen.add(id(cast("object", value)))
                nodes.append((_place(path, step), cast("Any", value)))
    return []


def _place(path: list[str | int], step: object) -> list[str | int]:
    if not isinstance(step, int):
        return [*path, str(step)]
    return [*path, step if step.bit_length() <= MAX_INTEGER_BITS else HUGE_INTEGER]


def _near(name: str, names: list[str]) -> str:
    """Return the name most like another, ignoring case."""
    folded = {cut(other, 100).casefold(): other for other in names[:500]}
    near = suggest(cut(name, 100).casefold(), folded, count=1)
    return folded[near[0]] if near else ""


def place_of(path: list[str | int]) -> str:
    """Return a path as `order.items[2].price`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _IDENTIFIER.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(cut(mask_text(step[:500]), SHOWN), ensure_ascii=False)}]"
    return text if len(text) <= 120 else f"{text[:60]}…{text[-59:]}"


def _key(name: str) -> str:
    return f"`{cut(mask_text(name[:500]), SHOWN)}`"


def _count(number: object, unit: str) -> str:
    return f"{shown(number)} {unit}{'' if number == 1 else 's'}"
