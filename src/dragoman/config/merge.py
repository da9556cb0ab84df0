"""Merge layers of entries into one list of servers.

Layers come strongest first. With `replace`, the strongest entry of a name is used as a whole; with `fields`,
its missing keys are filled from weaker entries, tables such as `env` key by key; with `first`, only the first
file counts. An invalid entry is reported and treated as absent, so a weaker entry of the same name may be
used; with `fields` that is the entry with the invalid key. The result lists every definition that it hides.

Everything is merged twice: with the project's files and without them. `trust.layers` decides which of the two
applies, and which settings; they are only collected here.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from dragoman.config.dialect import EMPTY, NOT_A_MAP, Entry
from dragoman.config.documents import dotted
from dragoman.config.entries import build
from dragoman.config.templates import VARIABLE, is_secret_reference, references
from dragoman.errors import ConfigError, InvalidSpecError
from dragoman.model import Origin, Statement, Stdio
from dragoman.model.keys import is_table, keys
from dragoman.struct import Struct
from dragoman.visible import spelled_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dragoman.config.dialect import Dialect, FileSettings, Scope
    from dragoman.config.documents import Document, Pointer
    from dragoman.model import Input, ServerSpec
    from dragoman.model.keys import Key


class Layer(Struct, kw_only=True):
    """What one file, or one part of it, contributes."""

    document: Document
    dialect: Dialect
    scope: Scope
    entries: Sequence[Entry]
    patch: FileSettings = EMPTY


class Merged(Struct, kw_only=True):
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
    kept = [layer.replace(entries=_without_repeats(layer, problems)) for layer in layers]
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
    for key, data in layer.patch.said.items():
        if data is None or (key in ("inputs", "without_servers") and not data):
            continue
        if key == "inputs":
            data = [item.replace(scope=layer.scope) for item in cast("Sequence[Input]", data)]
        pointer = layer.patch.places.get(key, ())
        yield Statement(
            key=key,
            data=data,
            source=layer.document.source,
            scope=layer.scope,
            pointer=dotted(pointer),
            line=layer.document.line(pointer) if pointer else None,
            rule_lines=_rule_lines(layer, data, pointer) if key == "policy" else (),
        )


def _rule_lines(layer: Layer, data: object, pointer: Pointer) -> list[int | None]:
    """Return the line of each rule of a policy, which is a list or has one."""
    inside = isinstance(data, dict)
    rules = cast("dict[str, object]", data).get("rules") if inside else data
    if not pointer or not isinstance(rules, list):
        return []
    at = (*pointer, "rules") if inside else pointer
    return [layer.document.line((*at, index)) for index in range(len(cast("list[object]", rules)))]


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
        msg = f"server `{spelled_out(entry.name)}` is skipped: duplicate name, first used {where}"
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
                spec.replace(shadowed=hidden[name]) if name in hidden else spec
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
            return spec.replace(shadowed=shadowed, origin=_origin(strongest, layer))
    return None


def _stacked(entries: Sequence[Entry]) -> Entry:
    """Fill the strongest entry's missing keys from the weaker ones; none of them is changed."""
    top = entries[0]
    merged = top.replace(fields={}, notes=[], problems=[], spellings=dict(top.spellings), layers={})
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


_PLACES = {
    "workspaceFolder": "workspaceFolder",
    "workspaceFolderBasename": "workspaceFolderBasename",
    "userHome": "userHome",
    "pathSeparator": "pathSeparator",
    "/": "pathSeparator",
}
_ABSENT = object()


class TemplateReference(Struct):
    """One `${…}` of a template."""

    kind: Literal["variable", "input", "place", "secret"]
    name: str
    """For a secret, with what gives it: `keyring:service/name`."""
    operator: Literal["", ":-", "-"] = ""
    default: str = ""


Piece: TypeAlias = str | TemplateReference


def pieces(template: str) -> list[Piece]:
    """Take a template apart into literal text and references; neighbouring texts are one."""
    found: list[Piece] = []

    def add(text: str) -> None:
        if found and isinstance(found[-1], str):
            found[-1] += text
        elif text:
            found.append(text)

    end = 0
    for start, stop, literal, body in references(template):
        add(template[end:start] + literal)
        reference = None if body is None else _reference(body)
        if reference is not None:
            found.append(reference)
        elif body is not None:
            add(f"${{{body}}}")
        end = stop
    add(template[end:])
    return found


def _reference(body: str) -> TemplateReference | None:
    if body in _PLACES:
        return TemplateReference("place", _PLACES[body])
    if body.startswith("input:") and not body.startswith("input:-"):
        return TemplateReference("input", body.removeprefix("input:"))
    if is_secret_reference(body):
        return TemplateReference("secret", body)
    variable = VARIABLE.fullmatch(body)
    if variable is None:
        return None
    operator = cast("Literal['', ':-', '-']", variable["operator"] or "")
    return TemplateReference("variable", variable["name"], operator, variable["default"] or "")


def loosely(parts: Sequence[Piece]) -> list[Piece]:
    """Forget whether a default also replaces an empty value, about which hosts disagree."""
    return [
        part.replace(operator=":-") if isinstance(part, TemplateReference) and part.operator else part
        for part in parts
    ]


def differences(wanted: ServerSpec, found: ServerSpec, title: str) -> dict[str, str]:
    """Return the fields that changed when a spec was written and read back, and how.

    Values are never shown: they may be secrets.
    """
    before, after = _flat(wanted), _flat(found)
    unlike: dict[str, str] = {}
    for key in {**before, **after}:
        old, new = before.get(key, _ABSENT), after.get(key, _ABSENT)
        if not _same(old, new):
            unlike[key] = _how(key, old, new, title)
    return unlike


def _flat(spec: ServerSpec) -> dict[str, object]:
    """Return everything that matters about a spec, one value a key, or one for each item of a table."""
    flat: dict[str, object] = {}
    for of in (spec, spec.transport):
        for name, key in keys(type(of)).items():
            found: Any = getattr(of, name)
            if isinstance(found, Mapping) and (key.is_template or is_table(key.type)):
                items = cast("Mapping[str, object]", found).items()
                flat |= {f"{name}.{_folded(name, item)}": _comparable(value, key) for item, value in items}
            else:
                flat[name] = _comparable(cast("object", found), key)
    flat["transport"] = "stdio"
    if not isinstance(spec.transport, Stdio):
        flat["transport"] = (spec.kind, flat.pop("alternate"))
    if spec.allowed_tools and "*" in spec.allowed_tools:
        flat["allowed_tools"] = None
    return flat


def _folded(name: str, item: str) -> str:
    return item.lower() if name == "headers" else item


def _comparable(value: object, key: Key) -> object:
    """Return a template as its pieces; a list and a tuple of the same items are the same."""
    if isinstance(value, Struct):
        return {name: _comparable(getattr(value, name), one) for name, one in keys(type(value)).items()}
    if isinstance(value, list | tuple):
        return [_comparable(item, key) for item in cast("Sequence[object]", value)]
    return pieces(value) if isinstance(value, str) and key.is_template else value


def _same(old: object, new: object) -> bool:
    if isinstance(old, float | int) and isinstance(new, float | int):
        return math.isclose(old, new, rel_tol=1e-9)
    return old == new


def _how(key: str, old: object, new: object, title: str) -> str:
    if key == "transport" and isinstance(new, tuple):
        kind, alternate = cast("tuple[str, bool]", new)
        names = {"http": "Streamable HTTP", "sse": "legacy SSE"}
        other = names["sse" if kind == "http" else "http"]
        return f"{title} tries {names[kind]}{f' first, then {other}' if alternate else ' only'}"
    if key.startswith("timeouts."):
        return f"{title} makes it {new:g} s" if isinstance(new, float) else f"{title} does not keep it"
    if _is_texts(old) and _is_texts(new) and _loose_texts(old) == _loose_texts(new):
        return f"{title} treats an empty variable with a default differently"
    return f"{title} does not keep it" if new is _ABSENT else f"{title} reads it back differently"


def _is_texts(value: object) -> bool:
    return isinstance(value, list)


def _loose_texts(value: Any) -> list[Any]:
    parts = cast("list[Piece | list[Piece]]", value)
    return [loosely(part) if isinstance(part, list) else loosely([part])[0] for part in parts]
