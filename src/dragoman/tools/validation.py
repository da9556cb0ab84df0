"""Values against schemas: arguments before they are sent, structured results when they come.

The policy: a schema is compiled once, from its plain form (`schema_cost`), with patterns that take linear
time; nothing is ever fetched. What cannot be checked (a pattern, a reference, a whole schema that is a bomb
or does not compile) is left out and noted: validation never makes a tool unusable that its server accepts.

Checks run on the event loop, so their work is bounded to some 50 ms: by `MAX_WORK` (places of the value times
what each is checked against) and by the value's depth; a value beyond either is not checked. Patterns are
checked only if the value's text is short enough for them. All problems are worded at once if that stays below
`MAX_ERROR_WORK`, else the first, else none in detail. Nothing is shown of what a telling key holds.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from dragoman.tools.problems import word
from dragoman.tools.schema_cost import Cost, Node, Plain, TooDearError, flatten, price

if TYPE_CHECKING:
    import jsonschema_rs

MAX_WORK = 600_000
"""A step takes some 50 ns."""
MAX_ERROR_WORK = 6_000
"""An error takes some 10 µs, and a copy of what it is about."""
MAX_FIRST_ERROR_WORK = 3_000
PATTERN_WORK = 8_000
"""Characters for one light pattern. Linear means characters times the pattern's states."""
MAX_PATTERNS = 100
MAX_PATTERN_CHARS = 2_000
_LIGHT_BYTES = 16 * 1024
_HEAVY_BYTES = 256 * 1024
_HEAVY_WEIGHT = 16

UNEXPLAINED = "the value does not fit the schema, which is too large to say where"
_SCALARS = frozenset({str, int, bool, float, type(None)})
_CONTAINERS: tuple[type[Any], ...] = (dict, list, tuple)


class Validator:
    """A compiled schema; it is kept by whoever checks values against it more than once."""

    __slots__ = (
        "_core",
        "_cost",
        "_depth",
        "_is_open",
        "_lite",
        "_most",
        "_schema",
        "_source",
        "_text",
        "notes",
    )

    def __init__(
        self,
        source: object,
        *,
        notes: tuple[str, ...] = (),
        plain: Plain | None = None,
        cost: Cost | None = None,
        core: jsonschema_rs.Validator | None = None,
    ) -> None:
        self.notes = notes
        """What is not checked, and why."""
        self._source = source
        self._schema: Node = True if plain is None else plain.schema
        self._cost = cost or Cost(weight=1, depth=0, is_open=True)
        self._depth = self._cost.depth
        self._most = MAX_WORK // self._cost.weight
        self._core = core
        self._lite: tuple[Node, jsonschema_rs.Validator] | None = None
        self._text: int | None = None
        if plain is not None and plain.patterns:
            effort = sum(map(_pattern_weight, plain.patterns)) * max(1, self._cost.weight // 100)
            self._text = PATTERN_WORK // effort
        self._is_open = self._cost.is_open or self._text is not None

    def problems(self, value: object, *, limit: int = 20) -> list[str]:
        """Return what is wrong with a value, worded for a model; nothing if it fits or cannot be checked."""
        core = self._core
        if core is None:
            return []
        schema, text = self._schema, self._text
        if self._is_open:
            size, characters = _measure(value, self._most, self._depth, counts_keys=text is not None)
            if size > self._most:
                return []
            if text is not None and characters > text:
                schema, core = self._without_patterns()
        try:
            if core.is_valid(value):
                return []
        except ValueError:
            # It holds something that is no JSON: that is for the wire to say.
            return []
        return word(self._errors(core, value), schema, value, limit=limit) or [UNEXPLAINED]

    def _errors(self, core: jsonschema_rs.Validator, value: object) -> list[jsonschema_rs.ValidationError]:
        import jsonschema_rs

        weight, (size, _) = self._cost.weight, _measure(value, self._most, self._depth)
        try:
            if weight * size <= MAX_ERROR_WORK:
                return list(core.iter_errors(value))
            if weight <= MAX_FIRST_ERROR_WORK and size <= self._most:
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
    """The latest validators by the identity of their schemas; each is compiled at its first use."""

    def __init__(self, size: int = 2048) -> None:
        self._size = size
        # The schema is kept along, so that its identity stays its own.
        self._kept: dict[int, tuple[object, Validator]] = {}

    def of(self, schema: object) -> Validator:
        """Return the validator of this very schema."""
        kept = self._kept.get(id(schema))
        if kept is None:
            if len(self._kept) >= self._size:
                del self._kept[next(iter(self._kept))]
            kept = self._kept[id(schema)] = (schema, compile_schema(schema))
        return kept[1]


def compile_schema(schema: object) -> Validator:
    """Compile a schema of any draft; one that cannot be used gives one that accepts all, and a note."""
    try:
        plain = flatten(schema, is_readable=_Readable())
        cost = price(plain.schema)
        core = _compiled(plain)
    except TooDearError as exc:
        return Validator(schema, notes=(f"nothing is checked against the schema: {exc}",))
    except (ValueError, TypeError, RecursionError) as exc:
        reason = f"it does not compile ({type(exc).__name__})"
        return Validator(schema, notes=(f"nothing is checked against the schema: {reason}",))
    return Validator(schema, notes=plain.notes, plain=plain, cost=cost, core=core)


def _compiled(plain: Plain) -> jsonschema_rs.Validator:
    import jsonschema_rs

    return jsonschema_rs.validator_for(
        plain.schema,
        validate_formats=False,
        pattern_options=jsonschema_rs.RegexOptions(size_limit=_HEAVY_BYTES),
        offline=True,
    )


class _Readable:
    """Tells which patterns can be used, up to a number of them."""

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
    """Return what a pattern costs for a character: nothing if it cannot be read in linear time."""
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


def _measure(value: Any, most: int, depth: int, *, counts_keys: bool = False) -> tuple[int, int]:
    """Count the places of a value and its characters; too large or too deep is `most + 1`."""
    places, characters = 1, len(value) if isinstance(value, str) else 0
    level: list[Any] = [value] if isinstance(value, _CONTAINERS) else []
    while level:
        depth -= 1
        below: list[Any] = []
        for node in level:
            places += len(node)
            if places > most or depth < 0:
                return most + 1, characters
            is_mapping = issubclass(type(node), dict)
            if is_mapping and counts_keys:
                characters += len("".join(map(str, node)))
            for member in node.values() if is_mapping else node:
                if type(member) is str:
                    characters += len(member)
                elif type(member) not in _SCALARS and isinstance(member, _CONTAINERS):
                    below.append(member)
        level = below
    return places, characters
