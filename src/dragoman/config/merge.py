"""Layers of entries become one list of servers: who wins, who is hidden, who serves without a project.

Layers come strongest first. By `replace` the strongest entry of a name is taken whole; by `fields`
its missing keys are filled from the weaker ones, tables such as `env` key by key; by `first` only the
first file counts. An entry that cannot be used is a problem and is treated as absent, so a weaker one of the
same name may serve; by `fields` that is the entry which the wrong key comes from. The winner knows every
definition that it hides.

Everything is merged twice: with the project's files, and as if there were none. Which of both holds is
decided by `trust.layers`, as are the settings, which are only gathered here.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from dragoman.config.dialect import EMPTY, NOT_A_MAP, Entry, Patch
from dragoman.config.documents import dotted, printable
from dragoman.config.entries import build
from dragoman.errors import ConfigError, InvalidSpecError
from dragoman.model import Origin, Statement

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dragoman.config.dialect import Dialect, Scope
    from dragoman.config.documents import Document
    from dragoman.model import Input, ServerSpec

_MATTERS = tuple(field.name for field in fields(Patch) if field.name not in ("places", "problems"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What one file, or one part of it, contributes."""

    document: Document
    dialect: Dialect
    scope: Scope
    entries: Sequence[Entry]
    patch: Patch = EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The outcome: servers in the order of their names' first appearance, and what was wrong."""

    servers: Sequence[ServerSpec]
    own: Sequence[ServerSpec]
    """The servers as they are without the project's files."""
    problems: Sequence[ConfigError]
    statements: Sequence[Statement] = ()
    """Every setting of every file, the strongest file first."""


_Stack: TypeAlias = list[tuple[Entry, Layer]]


def merge(layers: Sequence[Layer], combine: Literal["replace", "fields", "first"]) -> Merged:
    """Merge layers, the strongest first."""
    problems: list[ConfigError] = []
    kept = [replace(layer, entries=_without_repeats(layer, problems)) for layer in layers]
    if combine == "fields":
        servers, own = _by_fields(kept, problems)
    else:
        servers, own = _by_name(kept, problems, first_only=combine == "first")
    for layer in layers:
        problems.extend(_patch_problems(layer))
    return Merged(
        servers=servers,
        own=own,
        problems=problems,
        statements=[one for layer in layers for one in _statements(layer)],
    )


def _statements(layer: Layer) -> Iterable[Statement]:
    """Return the settings of a file, each with its place and with whose file it is."""
    for key in _MATTERS:
        data = getattr(layer.patch, key)
        if data is None or (key in ("inputs", "without_servers") and not data):
            continue
        if key == "inputs":
            data = [replace(item, scope=layer.scope) for item in cast("Sequence[Input]", data)]
        pointer = layer.patch.places.get(key, ())
        yield Statement(
            key=key,
            data=data,
            source=layer.document.source,
            scope=layer.scope,
            pointer=dotted(pointer),
            line=layer.document.line(pointer) if pointer else None,
        )


def _without_repeats(layer: Layer, problems: list[ConfigError]) -> list[Entry]:
    seen: dict[str, Entry] = {}
    kept: list[Entry] = []
    for entry in layer.entries:
        if not entry.name or entry.name not in seen:
            seen[entry.name] = entry
            kept.append(entry)
            continue
        first = seen[entry.name]
        where = f"on line {first.line()}" if first.line() else f"at {dotted(first.pointer)}"
        msg = f"server `{printable(entry.name)}` is skipped: the name is taken by the entry {where}"
        place = dotted(entry.pointer)
        problems.append(InvalidSpecError(msg, source=entry.document.source, pointer=place, line=entry.line()))
    return kept


def _by_name(
    layers: Sequence[Layer], problems: list[ConfigError], *, first_only: bool
) -> tuple[list[ServerSpec], list[ServerSpec]]:
    built = [(layer, _all_built(layer, problems)) for layer in layers]
    found: list[list[ServerSpec]] = []
    for seen in (built, [pair for pair in built if pair[0].scope != "project"]):
        first = seen[0][0].document.source if seen and first_only else None
        winners: dict[str, ServerSpec] = {}
        hidden: dict[str, list[Origin]] = {}
        for layer, specs in seen:
            for spec in specs if first in (None, layer.document.source) else ():
                if winners.setdefault(spec.name, spec) is not spec:
                    hidden.setdefault(spec.name, []).append(spec.origin)
        found.append(
            [
                replace(spec, shadowed=hidden[name]) if name in hidden else spec
                for name, spec in winners.items()
            ]
        )
    return found[0], found[1]


def _all_built(layer: Layer, problems: list[ConfigError]) -> list[ServerSpec]:
    built = (_built(entry, layer, problems) for entry in layer.entries)
    return [spec for spec in built if spec is not None]


def _by_fields(
    layers: Sequence[Layer], problems: list[ConfigError]
) -> tuple[list[ServerSpec], list[ServerSpec]]:
    stacks: dict[str, _Stack] = {}
    for layer in layers:
        for entry in layer.entries:
            if not entry.name or NOT_A_MAP in entry.fields:
                _built(entry, layer, problems)
            else:
                stacks.setdefault(entry.name, []).append((entry, layer))
    found: list[ServerSpec] = []
    own: dict[str, ServerSpec] = {}
    for name, stack in stacks.items():
        users = [pair for pair in stack if pair[1].scope != "project"]
        mine = _from_stack(users, problems)
        own |= {} if mine is None else {name: mine}
        spec = mine
        if len(users) < len(stack):
            wrong: list[ConfigError] = []
            spec = _from_stack(stack, wrong)
            # What is wrong in the user's own entries was found before.
            problems += [one for one in wrong if str(one) not in {str(known) for known in problems}]
        found += [] if spec is None else [spec]
    order = (entry.name for layer in layers if layer.scope != "project" for entry in layer.entries)
    return found, [own[name] for name in dict.fromkeys(order) if name in own]


def _from_stack(stack: Sequence[tuple[Entry, Layer]], problems: list[ConfigError]) -> ServerSpec | None:
    """Return the server that a stack of entries makes, without those that are wrong."""
    while stack:
        strongest, layer = stack[0]
        try:
            spec = build(_stacked([entry for entry, _ in stack]), layer.dialect, layer.scope)
        except InvalidSpecError as error:
            problems.append(error)
            culprits = (at for at, (entry, _) in enumerate(stack) if entry.document.source == error.source)
            wrong = next(culprits, 0)
            stack = [*stack[:wrong], *stack[wrong + 1 :]]
        else:
            shadowed = [_origin(entry, owner) for entry, owner in stack[1:]]
            return replace(spec, shadowed=shadowed, origin=_origin(strongest, layer))
    return None


def _stacked(entries: Sequence[Entry]) -> Entry:
    """Fill the strongest entry's missing keys from the weaker ones; none of them is changed."""
    top = entries[0]
    merged = replace(top, fields={}, notes=[], problems=[], spellings=dict(top.spellings), layers={})
    for entry in entries:
        for key, value in copy.deepcopy(entry.fields).items():
            if key not in merged.fields:
                merged.fields[key] = value
                merged.layers[key] = entry
            elif isinstance(value, dict) and isinstance(merged.fields[key], dict):
                stronger = cast("dict[str, object]", merged.fields[key])
                weaker = cast("dict[str, object]", value)
                merged.fields[key] = weaker | stronger
                merged.layers.update({f"{key}.{name}": entry for name in weaker.keys() - stronger.keys()})
    return merged


def _built(entry: Entry, layer: Layer, problems: list[ConfigError]) -> ServerSpec | None:
    try:
        return build(entry, layer.dialect, layer.scope)
    except InvalidSpecError as error:
        problems.append(error)
        return None


def _origin(entry: Entry, layer: Layer) -> Origin:
    return Origin(
        source=entry.document.source,
        line=entry.line(),
        dialect=layer.dialect.name,
        scope=layer.scope,
        pointer=dotted(entry.pointer),
    )


def _patch_problems(layer: Layer) -> Iterable[ConfigError]:
    for pointer, message in layer.patch.problems:
        line = layer.document.line(pointer)
        yield ConfigError(message, source=layer.document.source, pointer=dotted(pointer), line=line)
