"""Layers of entries become one list of servers: who wins, who is hidden, what is switched off.

Layers come strongest first. By `replace` the strongest entry of a name is taken whole; by `fields`
its missing keys are filled from the weaker ones, tables such as `env` key by key. An entry that
cannot be used is a problem and is treated as absent, so a weaker one of the same name may serve; by
`fields` that is the entry which the wrong key comes from. The winner knows every definition that it
hides. Global switches of the files are applied last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast

from dragoman.config.dialect import EMPTY, NOT_A_MAP, Entry, Patch
from dragoman.config.documents import dotted, printable
from dragoman.config.entries import build
from dragoman.errors import ConfigError, InvalidSpecError
from dragoman.model import Note, Origin, Statement

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dragoman.config.dialect import Dialect, Scope
    from dragoman.config.documents import Document
    from dragoman.model import Input, ServerSpec


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
    problems: Sequence[ConfigError]
    patch: Patch
    policy: Sequence[Statement] = ()
    """What each file says about calls, the strongest first."""
    limits: Sequence[Statement] = ()
    """The same about limits."""


def merge(layers: Sequence[Layer], combine: Literal["replace", "fields", "first"]) -> Merged:
    """Merge layers, the strongest first."""
    problems: list[ConfigError] = []
    kept = [replace(layer, entries=_without_repeats(layer, problems)) for layer in layers]
    servers = _by_fields(kept, problems) if combine == "fields" else _by_name(kept, problems)
    for layer in layers:
        problems.extend(_patch_problems(layer))
    patch = _merge_patches([layer.patch for layer in layers])
    return Merged(
        servers=[_switched(spec, patch) for spec in servers],
        problems=problems,
        patch=patch,
        policy=_statements(layers, "policy"),
        limits=_statements(layers, "limits"),
    )


def _statements(layers: Sequence[Layer], matter: Literal["policy", "limits"]) -> list[Statement]:
    said = ((layer, getattr(layer.patch, matter)) for layer in layers)
    return [
        Statement(source=layer.document.source, scope=layer.scope, data=data)
        for layer, data in said
        if data is not None
    ]


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


def _by_name(layers: Sequence[Layer], problems: list[ConfigError]) -> list[ServerSpec]:
    found: dict[str, ServerSpec] = {}
    for layer in layers:
        for entry in layer.entries:
            spec = _built(entry, layer, problems)
            if spec is None:
                continue
            winner = found.setdefault(spec.name, spec)
            if winner is not spec:
                found[spec.name] = replace(winner, shadowed=[*winner.shadowed, spec.origin])
    return list(found.values())


def _by_fields(layers: Sequence[Layer], problems: list[ConfigError]) -> list[ServerSpec]:
    stacks: dict[str, list[tuple[Entry, Layer]]] = {}
    for layer in layers:
        for entry in layer.entries:
            if not entry.name or NOT_A_MAP in entry.fields:
                _built(entry, layer, problems)
            else:
                stacks.setdefault(entry.name, []).append((entry, layer))
    found = (_from_stack(stack, problems) for stack in stacks.values())
    return [spec for spec in found if spec is not None]


def _from_stack(stack: Sequence[tuple[Entry, Layer]], problems: list[ConfigError]) -> ServerSpec | None:
    """Build the server that a stack of entries makes, without those that are wrong."""
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
        for key, value in entry.fields.items():
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
        scope=entry.scope or layer.scope,
        pointer=dotted(entry.pointer),
    )


def _patch_problems(layer: Layer) -> Iterable[ConfigError]:
    for pointer, message in layer.patch.problems:
        line = layer.document.line(pointer)
        yield ConfigError(message, source=layer.document.source, pointer=dotted(pointer), line=line)


def _merge_patches(patches: Sequence[Patch]) -> Patch:
    """Merge what the files say beyond their servers, the strongest first."""
    inputs: dict[str, Input] = {}
    without: list[str] = []
    for patch in patches:
        for item in patch.inputs:
            inputs.setdefault(item.id, item)
        without.extend(name for name in patch.without_servers if name not in without)

    def strongest(name: str) -> object:
        return next((value for patch in patches if (value := getattr(patch, name)) is not None), None)

    return Patch(
        enabled=cast("bool | None", strongest("enabled")),
        auto_reload=cast("bool | None", strongest("auto_reload")),
        call_log=cast("bool | None", strongest("call_log")),
        health_check_interval=cast("float | None", strongest("health_check_interval")),
        naming=cast("str | None", strongest("naming")),
        only_servers=cast("Sequence[str] | None", strongest("only_servers")),
        inputs=list(inputs.values()),
        without_servers=without,
    )


def _switched(spec: ServerSpec, patch: Patch) -> ServerSpec:
    off = ""
    if patch.only_servers is not None and spec.name not in patch.only_servers:
        off = "it is not on the list of allowed servers"
    if spec.name in patch.without_servers:
        off = "it is on the list of excluded servers"
    if not off or not spec.enabled:
        return spec
    return replace(
        spec, enabled=False, notes=[*spec.notes, Note(code="unused", key="", message=f"off: {off}")]
    )
