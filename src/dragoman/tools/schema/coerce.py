"""Coerce arguments that nearly fit their schema, if the schema leaves only one meaning.

Only values that the validator rejects are changed. A change is one of the following, and counts only if
everything fits in the end; else nothing is changed, and the problems of the original are reported. Each
change is recorded with its place and its reason.

- A value of the wrong type that can be read as the right one: `"3"` for an integer, a JSON string for an
  object; the arguments as a whole may be such a string too.
- A single value for an array whose items have its type. Not a string with a comma or a line break, which may
  be several values, nor the string `null`, which may be none.
- A value that differs from an `enum` value only in case, surrounding spaces or quotes; spaces around a string
  that a `pattern` rejects.
- A key that the schema rejects or lacks, if it differs only in case or in `-` and `_` from exactly one
missing
  property.
- Null (or the string `null`) for an optional key: it is left out. This is done for every caller, since null
  means a missing value in most languages, and the schema excludes every other meaning.
- A missing key that is required and has a `default`: it is filled in, for every caller too, as the server
  would do itself.

If `anyOf` or `oneOf` allows several forms, each is tried alone, and only one may fit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from dragoman.struct import Struct
from dragoman.tools.schema.problems import NOTHING, option_meant, place_of, read_as, shown
from dragoman.trust.masking import MASK, is_sensitive_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import jsonschema_rs

    from dragoman.tools.schema.validate import Validator

COERCED = "dragoman/coerced"
"""The key in a result's `meta` for the changes to its arguments."""
MAX_ROUNDS = 6
"""Each round fixes problems that the round before revealed, for instance inside a JSON string."""
MAX_WORK = 4_000
"""In the units of the validator's `work`: about 50 ms at worst, far less for real tools."""
MAX_BRANCHES = 12
MAX_DEPTH = 3
"""Nesting of `anyOf` that is tried."""
MAX_CHANGES = 100

_SEVERAL = re.compile(r"[,;\n\r]")
_SCALAR_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
}
_SPACING = str.maketrans("", "", "-_ ")

Path: TypeAlias = "tuple[str | int, ...]"


class ArgumentChange(Struct, kw_only=True):
    """One change, as text. Values of sensitive keys are not shown, long values only described."""

    path: str
    before: str
    after: str
    why: str

    def as_dict(self) -> dict[str, str]:
        """Return it as JSON: `path`, `from`, `to`, `why`."""
        return {"path": self.path, "from": self.before, "to": self.after, "why": self.why}


class Coerced(Struct, kw_only=True):
    """Arguments that fit, and the changes made to them."""

    arguments: dict[str, Any]
    changes: Sequence[ArgumentChange]


class _Set(Struct):
    path: Path
    value: Any
    why: str


class _Drop(Struct):
    path: Path
    why: str


class _Rename(Struct):
    path: Path
    name: str
    why: str


_Edit: TypeAlias = _Set | _Drop | _Rename


def coerce(validator: Validator, arguments: object, *, only_nulls: bool = False) -> Coerced | None:
    """Return arguments that fit the schema; `None` if that would take a guess.

    Args:
        validator: The validator of the tool's input schema.
        arguments: The caller's arguments; if they fit, they come back unchanged.
        only_nulls: Whether to do nothing but leave out nulls and fill in defaults.
    """
    return _Coercion(validator, only_nulls=only_nulls).run(arguments)


class _Exhausted(Exception):  # noqa: N818 -- ends nested trials, never leaves this module
    """The work limit of one call is reached."""


class _Coercion:
    """Coerces the arguments of one call."""

    def __init__(self, validator: Validator, *, only_nulls: bool) -> None:
        self._validator = validator
        self._only_nulls = only_nulls
        self._left = MAX_WORK

    def run(self, arguments: object) -> Coerced | None:
        changes: list[ArgumentChange] = []
        if isinstance(arguments, str) and not self._only_nulls:
            whole = read_as(arguments, "object")
            if whole is NOTHING:
                return None
            changes.append(_change(arguments, _Set((), whole, "the arguments must be an object")))
            arguments = whole
        if not isinstance(arguments, Mapping):
            return None
        current: Any = dict(cast("Mapping[str, Any]", arguments))
        try:
            for _ in range(MAX_ROUNDS):
                errors = self._errors(current)
                if not errors:
                    break
                edits = self._edits(current, errors, MAX_DEPTH)
                if not edits or len(changes) + len(edits) > MAX_CHANGES:
                    return None
                for edit in edits:
                    changes.append(_change(current, edit))
                    current = _applied(current, edit)
        except _Exhausted:
            return None
        if not isinstance(current, dict) or self._validator.problems(cast("object", current), limit=1):
            return None
        return Coerced(arguments=cast("dict[str, Any]", current), changes=tuple(changes))

    def _errors(self, value: object) -> list[jsonschema_rs.ValidationError]:
        if not self._validator.problems(value, limit=1):
            return []
        self._left -= self._validator.work(value)
        errors = self._validator.errors(value) if self._left >= 0 else []
        if not errors:
            raise _Exhausted
        return errors

    def _edits(
        self, value: object, errors: Sequence[jsonschema_rs.ValidationError], depth: int
    ) -> list[_Edit]:
        """Find one change for each place with an error, where possible."""
        found: dict[Path, _Edit] = {}
        for error in errors:
            for edit in self._of(value, error, depth):
                found.setdefault(edit.path, edit)
        # A place inside another changed place is checked again in the next round.
        return [
            edit for path, edit in found.items() if not any(path[:end] in found for end in range(len(path)))
        ]

    def _of(self, value: object, error: jsonschema_rs.ValidationError, depth: int) -> Iterator[_Edit]:
        path = tuple(error.instance_path)
        kind, facts = type(error.kind).__name__, error.kind.as_dict()
        here = _at(value, path)
        match kind:
            case "AdditionalProperties" | "UnevaluatedProperties":
                for key in facts["unexpected"]:
                    yield from self._unknown_key(value, (*path, key), error)
                return
            case "Required":
                renamed = False
                if not self._only_nulls:
                    for edit in self._missing_key(here, path, facts["property"]):
                        renamed = True
                        yield edit
                if not renamed:
                    yield from self._default_of(path, facts["property"], error)
                return
            case "FalseSchema" if error.schema_path[-1:] == ["additionalProperties"]:
                # The validator names the object here, not the rejected key.
                for key, member in cast("dict[str, Any]", here).items() if isinstance(here, dict) else ():
                    if member is None:
                        yield _Drop((*path, key), _LEFT_OUT)
                return
            case _:
                pass
        if here is None and path and isinstance(path[-1], str):
            yield _Drop(path, _LEFT_OUT)
        elif not self._only_nulls:
            yield from self._other_value(value, error, depth)

    def _other_value(
        self, value: object, error: jsonschema_rs.ValidationError, depth: int
    ) -> Iterator[_Edit]:
        path = tuple(error.instance_path)
        kind, facts = type(error.kind).__name__, error.kind.as_dict()
        here = _at(value, path)
        match kind:
            case "Type":
                yield from self._other_type(here, error, is_alone=depth == MAX_DEPTH)
            case "Enum" | "Constant":
                options = facts["options"] if kind == "Enum" else [facts["expected_value"]]
                meant = option_meant(here, options)
                if meant is not NOTHING:
                    yield _Set(path, meant, "the schema lists it in this form")
            case "Pattern":
                if isinstance(here, str) and here != here.strip():
                    yield _Set(path, here.strip(), "the schema's pattern does not allow surrounding spaces")
            case "AnyOf" | "OneOfNotValid" if depth:
                yield from self._branches(value, error, depth - 1)
            case _:
                return

    def _other_type(
        self, here: object, error: jsonschema_rs.ValidationError, *, is_alone: bool
    ) -> Iterator[_Edit]:
        path = tuple(error.instance_path)
        names = [str(kind) for kind in error.kind.as_dict()["types"]]
        wider = [name for name in names if name != "integer" or "number" not in names]
        readings = [(name, read_as(here, name)) for name in wider]
        found = [(name, meant) for name, meant in readings if meant is not NOTHING]
        if len(found) == 1:
            ((name, meant),) = found
            yield _Set(path, meant, f"the schema requires {_ARTICLES.get(name, name)}")
        elif not found and "array" in names and self._is_item(here, error):
            yield _Set(path, [here], "the schema requires an array of such values")
        elif is_alone and not found and here == "null" and path and isinstance(path[-1], str):
            yield _Drop(path, _LEFT_OUT)

    def _is_item(self, here: object, error: jsonschema_rs.ValidationError) -> bool:
        """Return whether a value is clearly one item of the required array."""
        kind = _SCALAR_TYPES.get(type(here))
        if kind is None or (isinstance(here, str) and (here == "null" or _SEVERAL.search(here))):
            return False
        items = self._resolved(self._lookup(error.schema_path[:-1]).get("items"))
        kinds = items.get("type")
        if kinds is None and "enum" in items:
            return here in items["enum"]
        wanted = cast("list[Any]", kinds) if isinstance(kinds, list) else [kinds]
        return kind in wanted or (kind == "integer" and "number" in wanted)

    def _unknown_key(
        self, value: object, path: Path, error: jsonschema_rs.ValidationError
    ) -> Iterator[_Edit]:
        if _at(value, path) is None:
            yield _Drop(path, _LEFT_OUT)
        elif not self._only_nulls:
            given = _at(value, path[:-1])
            known = self._lookup(error.schema_path[:-1]).get("properties")
            if isinstance(given, dict) and isinstance(known, dict):
                keys = [key for key in map(str, cast("dict[str, Any]", given)) if key not in known]
                free = [name for name in cast("dict[str, Any]", known) if name not in given]
                near = [name for name in free if _spelled(name) == _spelled(str(path[-1]))]
                # If two keys could be meant by the property's name, change neither.
                rivals = [key for key in keys if _spelled(key) == _spelled(str(path[-1]))]
                if len(near) == len(rivals) == 1:
                    yield _Rename(path, near[0], _SPELLED)

    def _missing_key(self, here: object, path: Path, name: str) -> Iterator[_Edit]:
        if isinstance(here, dict):
            known = self._known_keys()
            keys = [key for key in cast("dict[str, Any]", here) if key not in known]
            near = [key for key in keys if _spelled(key) == _spelled(name)]
            if len(near) == 1:
                yield _Rename((*path, near[0]), name, _SPELLED)

    def _default_of(self, path: Path, name: str, error: jsonschema_rs.ValidationError) -> Iterator[_Edit]:
        # The plain form of the schema has no defaults; the original has them in the same place.
        known = _found(self._validator.source, error.schema_path[:-1]).get("properties")
        prop = _found(known, [name])
        if "default" in prop:
            yield _Set((*path, name), prop["default"], _DEFAULT)

    def _known_keys(self) -> set[str]:
        """Collect all property names in the schema: a key with such a name is not misspelled."""
        found: set[str] = set()
        todo: list[Any] = [self._validator.schema]
        while todo:
            node = todo.pop()
            if isinstance(node, dict):
                fields = cast("dict[str, Any]", node)
                names = fields.get("properties")
                found.update(cast("dict[str, Any]", names) if isinstance(names, dict) else ())
                todo += fields.values()
            elif isinstance(node, list):
                todo += cast("list[Any]", node)
        return found

    def _branches(self, value: object, error: jsonschema_rs.ValidationError, depth: int) -> Iterator[_Edit]:
        """Try each form alone; if exactly one fits, make its first changes: the next round continues."""
        readings: dict[str, list[_Edit]] = {}
        for index in range(min(MAX_BRANCHES, len(error.kind.as_dict()["context"]))):
            reading = self._read_as_branch(value, error, index, depth)
            if reading is not None:
                readings.setdefault(repr(reading[0]), reading[1])
        if len(readings) == 1:
            yield from next(iter(readings.values()))

    def _read_as_branch(
        self, value: object, error: jsonschema_rs.ValidationError, index: int, depth: int
    ) -> tuple[object, list[_Edit]] | None:
        """Return the coerced value for one of its forms, and the first changes on the way there."""
        path, place = tuple(error.instance_path), error.schema_path
        branch = error.kind.as_dict()["context"][index]
        first: list[_Edit] = []
        for _ in range(MAX_ROUNDS):
            edits = self._edits(value, branch, depth)
            if not edits or any(edit.path[: len(path)] != path for edit in edits):
                return None
            first = first or edits
            for edit in edits:
                value = _applied(value, edit)
            below = [one for one in self._errors(value) if tuple(one.instance_path[: len(path)]) == path]
            if not below:
                return _at(value, path), first
            again = next((one for one in below if one.schema_path == place), None)
            context = again.kind.as_dict().get("context") if again is not None else None
            if not context:
                return None
            branch = context[index]
        return None

    def _lookup(self, path: list[Any]) -> dict[str, Any]:
        return _found(self._validator.schema, path)

    def _resolved(self, node: object) -> dict[str, Any]:
        for _ in range(4):
            fields = cast("dict[str, Any]", node) if isinstance(node, dict) else {}
            reference = fields.get("$ref")
            if not isinstance(reference, str) or len(fields) > 1:
                return fields
            node = self._lookup(reference.split("/")[1:])
        return {}


_LEFT_OUT: Final = "null means that the key is left out"
_DEFAULT: Final = "the schema requires the key and has this default for it"
_SPELLED: Final = "the schema spells the key this way"
_ARTICLES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}


def _found(node: Any, path: list[Any]) -> dict[str, Any]:
    """Return the object at a place of a schema; an empty one if the place does not exist."""
    for step in path:
        try:
            node = node[str(step) if isinstance(node, dict) else step]
        except (LookupError, TypeError):
            return {}
    return cast("dict[str, Any]", node) if isinstance(node, dict) else {}


def _spelled(name: str) -> str:
    return name.translate(_SPACING).casefold()


def _at(value: Any, path: Path) -> Any:
    for step in path:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return NOTHING
    return value


def _applied(value: Any, edit: _Edit) -> Any:
    """Return a copy with one change; all other parts are shared with the original."""
    path = edit.path
    if not path:
        return edit.value if isinstance(edit, _Set) else value
    top = copy = _copied(value)
    for step in path[:-1]:
        copy[step] = copy = _copied(copy[step])
    last = path[-1]
    match edit:
        case _Set():
            copy[last] = edit.value
        case _Drop():
            del copy[last]
        case _Rename():
            entries = [(edit.name if key == last else key, member) for key, member in copy.items()]
            copy.clear()
            copy.update(entries)
    return top


def _copied(value: Any) -> Any:
    return cast("dict[str, Any]", value).copy() if isinstance(value, dict) else list(value)


def _change(value: object, edit: _Edit) -> ArgumentChange:
    secret = any(isinstance(step, str) and is_sensitive_name(step) for step in edit.path)
    before = _at(value, edit.path)
    match edit:
        case _Set():
            after: object = edit.value
            # A string that is read as JSON may contain anything, including secrets.
            is_json = isinstance(before, str) and isinstance(after, dict | list) and after != [before]
            text = f"a JSON string of {len(before)} characters" if is_json else shown(before)
            return ArgumentChange(
                path=place_of(list(edit.path)),
                before=MASK if secret else text,
                after=MASK if secret else shown(cast("object", after)),
                why=edit.why,
            )
        case _Drop():
            return ArgumentChange(
                path=place_of(list(edit.path)), before=shown(before), after="left out", why=edit.why
            )
        case _Rename():
            return ArgumentChange(
                path=place_of(list(edit.path)),
                before=f"the key `{edit.path[-1]}`",
                after=f"the key `{edit.name}`",
                why=edit.why,
            )
