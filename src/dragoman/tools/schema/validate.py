"""Validate values against schemas: arguments before they are sent, structured results when they arrive.

A schema is compiled once, from its plain form (see `cost`), with linear-time patterns, and only when a value
comes that the quick check cannot accept; nothing is ever fetched. What cannot be checked (a pattern, a
reference, a whole schema that is a bomb or does not compile) is skipped with a note: validation never makes a
tool unusable that its server accepts.

Checks run on the event loop, so their work is bounded to about 50 ms: by `MAX_WORK` (places of the value
times the subschemas each is checked against) and by the value's depth; a value beyond either is not checked.
Patterns are checked only if the value's text is short enough. All problems are reported if that stays below
`MAX_ERROR_WORK`, else the first, else none in detail. Values of sensitive keys are never shown.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from dragoman.tools.schema.cost import (
    Cost,
    Node,
    PlainSchema,
    QuickCheck,
    SchemaTooCostlyError,
    cost_of,
    flatten,
)
from dragoman.tools.schema.problems import word

if TYPE_CHECKING:
    import jsonschema_rs

    from dragoman.tools.schema.validate import Validator


MAX_WORK = 600_000
"""A step takes about 50 ns."""
MAX_ERROR_WORK = 6_000
"""An error takes about 10 µs, and a copy of the value it is about."""
MAX_FIRST_ERROR_WORK = 3_000
"""The first error may contain one error of every branch."""
CHARS_COPIED = 1_000
"""Characters that cost as much as a place when an error copies them."""
LONG_TEXT = 4_000
"""Longer texts are cut before collecting errors, if all texts together are longer than this too."""
PATTERN_WORK = 8_000
"""Characters for one light pattern. Linear means characters times the pattern's states."""
SMALL = 200
"""Most places of a value for the short way of measuring."""
MAX_PATTERNS = 100
MAX_PATTERN_CHARS = 2_000
_LIGHT_BYTES = 16 * 1024
_HEAVY_BYTES = 256 * 1024
_HEAVY_WEIGHT = 16

Path: TypeAlias = "tuple[str | int, ...]"

UNEXPLAINED = "the value does not match the schema, which is too large to say where"
_SCALARS = frozenset({str, int, bool, float, type(None)})
_CONTAINERS: tuple[type[Any], ...] = (dict, list, tuple)


class Validator:
    """A compiled schema; callers keep it for repeated use."""

    __slots__ = (
        "_core",
        "_cost",
        "_depth",
        "_glance",
        "_is_open",
        "_late",
        "_lite",
        "_most",
        "_schema",
        "_small",
        "_source",
        "_text",
        "notes",
    )

    def __init__(
        self,
        source: object,
        *,
        notes: tuple[str, ...] = (),
        plain: PlainSchema | None = None,
        cost: Cost | None = None,
        core: jsonschema_rs.Validator | None = None,
        glance: QuickCheck | None = None,
    ) -> None:
        self.notes = notes
        """What is not checked, and why."""
        self._source = source
        self._schema: Node = True if plain is None else plain.schema
        self._cost = cost or Cost(weight=1, depth=0, is_open=True)
        self._depth = self._cost.depth
        self._most = MAX_WORK // self._cost.weight
        self._small = min(self._most, SMALL) if self._depth >= 2 else 0
        self._core = core
        self._glance = glance
        self._late = plain if core is None else None
        """The compiled schema, made when the quick check is not enough."""
        self._lite: tuple[Node, jsonschema_rs.Validator] | None = None
        self._text: int | None = None
        if plain is not None and plain.patterns:
            effort = sum(map(_pattern_weight, plain.patterns)) * max(1, self._cost.weight // 100)
            self._text = PATTERN_WORK // effort
        self._is_open = self._cost.is_open or self._text is not None

    @property
    def schema(self) -> Node:
        """The plain form that values are checked against; `True` if nothing is checked."""
        return self._schema

    @property
    def source(self) -> object:
        """The schema as the server wrote it, with its descriptions and defaults."""
        return self._source

    def problems(self, value: object, *, limit: int = 20) -> list[str]:
        """Return the problems of a value, as text for a model; none if it fits or cannot be checked."""
        if self._glance is not None and self._glance.fits(value):
            return []
        core, schema = self._whole(), self._schema
        if self._is_open and not _is_small(value, self._small, self._text):
            core, schema = self._checker(value)
        try:
            if core is None or core.is_valid(value):
                return []
        except ValueError:
            # It contains something that is not JSON: the error comes when it is sent.
            return []
        return word(self._errors(core, value), schema, value, limit=limit) or [UNEXPLAINED]

    def errors(self, value: object) -> list[jsonschema_rs.ValidationError]:
        """Return the validator's own errors for a value; none if they cost too much."""
        core, _ = self._checker(value)
        return [] if core is None else self._errors(core, value)

    def work(self, value: object) -> int:
        """Return the highest cost of finding all errors of a value, in the units of `MAX_ERROR_WORK`."""
        return self._cost.weight * _copied(*self._size(value)) if self._whole() else 0

    def _checker(self, value: object) -> tuple[jsonschema_rs.Validator | None, Node]:
        """Choose the checks for a value: the whole schema, all but its patterns, or nothing."""
        size, characters = _measure(value, self._most, self._depth, counts_text=self._text is not None)
        if self._is_open and size > self._most:
            return None, True
        if self._text is not None and characters > self._text:
            schema, core = self._without_patterns()
            return core, schema
        return self._whole(), self._schema

    def _whole(self) -> jsonschema_rs.Validator | None:
        if self._late is not None:
            self._core, self._late = _compiled(self._late), None
        return self._core

    def _size(self, value: object) -> tuple[int, int]:
        return _measure(value, self._most, self._depth, counts_text=True)

    def _errors(self, core: jsonschema_rs.Validator, value: object) -> list[jsonschema_rs.ValidationError]:
        size, characters = self._size(value)
        if characters > LONG_TEXT and size <= self._most:
            # Every error copies its value, and most are not about the long texts in it.
            cuts: list[Path] = []
            short = _shortened(value, (), cuts)
            found = self._named(core, short, *self._size(short))
            found = [one for one in found if tuple(one.instance_path) not in cuts or _holds_uncut(one)]
            if found:
                return found
        return self._named(core, value, size, characters)

    def _named(
        self, core: jsonschema_rs.Validator, value: object, size: int, characters: int
    ) -> list[jsonschema_rs.ValidationError]:
        """Return all errors if that is cheap, else the first, else none."""
        import jsonschema_rs

        weight = self._cost.weight
        try:
            if weight * _copied(size, characters) <= MAX_ERROR_WORK:
                return list(core.iter_errors(value))
            if weight * _copied(1 + size // 200, characters) <= MAX_FIRST_ERROR_WORK and size <= self._most:
                core.validate(value)
        except jsonschema_rs.ValidationError as exc:
            return [exc]
        except ValueError:
            pass
        return []

    def _without_patterns(self) -> tuple[Node, jsonschema_rs.Validator]:
        if self._lite is None:
            plain = flatten(self._source, is_readable=lambda _: False)
            self._lite = plain.schema, _compiled(plain)
        return self._lite


class Validators:
    """A cache of validators by the identity of their schemas; each is compiled at its first use."""

    def __init__(self, size: int = 2048) -> None:
        self._size = size
        # Keep the schema too, so that its id is not reused.
        self._kept: dict[int, tuple[object, Validator]] = {}

    def of(self, schema: object) -> Validator:
        """Return the validator of this schema object."""
        kept = self._kept.get(id(schema))
        if kept is None:
            if len(self._kept) >= self._size:
                del self._kept[next(iter(self._kept))]
            kept = self._kept[id(schema)] = (schema, compile_schema(schema))
        return kept[1]


def compile_schema(schema: object) -> Validator:
    """Compile a schema of any draft; for an unusable one, return a validator that accepts everything."""
    try:
        plain = flatten(schema, is_readable=_Readable())
        cost = cost_of(plain.schema)
        # A schema that the quick check understands is valid; most arguments never need it compiled.
        glance = QuickCheck.of(schema)
        core = _compiled(plain) if glance is None else None
    except SchemaTooCostlyError as exc:
        return Validator(schema, notes=(f"nothing is checked against the schema: {exc}",))
    except (ValueError, TypeError, RecursionError) as exc:
        reason = f"it does not compile ({type(exc).__name__})"
        return Validator(schema, notes=(f"nothing is checked against the schema: {reason}",))
    return Validator(schema, notes=plain.notes, plain=plain, cost=cost, core=core, glance=glance)


def _compiled(plain: PlainSchema) -> jsonschema_rs.Validator:
    import jsonschema_rs

    return jsonschema_rs.validator_for(
        plain.schema,
        validate_formats=False,
        pattern_options=jsonschema_rs.RegexOptions(size_limit=_HEAVY_BYTES),
        offline=True,
    )


class _Readable:
    """Decides which patterns can be used, up to a number of them."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def __call__(self, pattern: str) -> bool:
        if pattern not in self._seen:
            if len(self._seen) >= MAX_PATTERNS or len(pattern) > MAX_PATTERN_CHARS:
                return False
            self._seen.add(pattern)
        return _pattern_weight(pattern) > 0


@functools.lru_cache(maxsize=1024)
def _pattern_weight(pattern: str) -> int:
    """Return the cost of a pattern per character; `None` if it cannot be matched in linear time."""
    import jsonschema_rs

    for size, weight in ((_LIGHT_BYTES, 1), (_HEAVY_BYTES, _HEAVY_WEIGHT)):
        try:
            jsonschema_rs.validator_for(
                {"pattern": pattern},
                pattern_options=jsonschema_rs.RegexOptions(size_limit=size),
                offline=True,
            )
        except ValueError:
            continue
        return weight
    return 0


def _is_small(value: Any, most: int, text: int | None) -> bool:
    """Return whether a value is simple, as most arguments are: few plain values, or short lists of them.

    Measuring a value in general takes longer than checking such a simple one.

    Args:
        value: The value.
        most: Most places it may have.
        text: Most characters, if that matters.
    """
    if type(value) is not dict:
        return False
    fields = cast("dict[Any, Any]", value)
    places = 1 + len(fields)
    if places > most:
        return False
    lists: list[list[Any]] = []
    for member in fields.values():
        if type(member) not in _SCALARS:
            if type(member) is not list:
                return False
            items = cast("list[Any]", member)
            places += len(items)
            if places > most or not _SCALARS.issuperset(map(type, items)):
                return False
            lists.append(items)
    return text is None or _characters(fields, lists) <= text


def _characters(fields: dict[Any, Any], lists: list[list[Any]]) -> int:
    texts = [member for member in fields.values() if type(member) is str]
    for items in lists:
        texts += [item for item in items if type(item) is str]
    return len("".join(texts)) + len("".join(map(str, fields)))


def _copied(size: int, characters: int) -> int:
    """Return how many places an error copies, including texts."""
    return size + characters // CHARS_COPIED


def _holds_uncut(error: jsonschema_rs.ValidationError) -> bool:
    """Return whether an error about a cut text also holds for the whole text."""
    options: list[Any] = error.kind.as_dict().get("options", ())
    is_short = not any(isinstance(option, str) and len(option) > LONG_TEXT for option in options)
    return type(error.kind).__name__ in ("Type", "Enum", "MaxLength") and is_short


def _shortened(value: Any, path: Path, cuts: list[Path]) -> Any:
    """Return a copy whose long texts are cut, and note where."""
    if isinstance(value, str) and len(value) > LONG_TEXT:
        cuts.append(path)
        return value[:LONG_TEXT]
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {key: _shortened(member, (*path, key), cuts) for key, member in fields.items()}
    if isinstance(value, list | tuple):
        items = cast("list[Any]", value)
        return [_shortened(item, (*path, index), cuts) for index, item in enumerate(items)]
    return value


def _measure(value: Any, most: int, depth: int, *, counts_text: bool = False) -> tuple[int, int]:
    """Count the places of a value, and its characters if wanted; too large or too deep gives `most + 1`."""
    places, characters = 1, len(value) if counts_text and isinstance(value, str) else 0
    level: list[Any] = [value] if isinstance(value, _CONTAINERS) else []
    while level:
        depth -= 1
        below: list[Any] = []
        for node in level:
            places += len(node)
            if places > most or depth < 0:
                return most + 1, characters
            is_mapping = isinstance(node, dict)
            members: Any = cast("dict[Any, Any]", node).values() if is_mapping else node
            # A fast path for simple arguments: a few plain values.
            if not _SCALARS.issuperset(map(type, members)):
                below += [member for member in members if isinstance(member, _CONTAINERS)]
            if counts_text:
                characters += len("".join([member for member in members if isinstance(member, str)]))
                characters += len("".join(map(str, cast("dict[Any, Any]", node)))) if is_mapping else 0
        level = below
    return places, characters
