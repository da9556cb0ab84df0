"""Pins: what a server offered when it was first used, and what is different now.

The policy. What a model or a person gets to see of a server is pinned: of tools and prompts the fields of
`TOOL_FIELDS` and `PROMPT_FIELDS`, and the instructions. `_meta`, icons and fields that nobody shows are not:
some servers put the time into them. Text is compared exactly, invisible characters included. The order of
keys, of tools, of `required`, `enum` and `type` means nothing in JSON Schema and is no change; an absent
field is the same as an empty one, and `1.0` as `1`.

What was never pinned is trusted at first use. Later, with `trust = "warn"`, what is new or changed is offered
and flagged; with `"strict"` it is withheld until somebody approves it; `"off"` looks at nothing. What is
flagged stays so until it is approved: using it is no approval. Where two lock files know a server, the user's
and the project's, both have to agree, so that a project can only narrow.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeGuard, cast

from dragoman.trust.differences import difference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

TOOL_FIELDS = ("title", "description", "inputSchema", "outputSchema", "annotations")
PROMPT_FIELDS = ("title", "description", "arguments")
VERSION = 1
LOCK_NAME = "dragoman.lock"
MAX_DEFINITION_CHARS = 64 * 1024
"""Of a larger definition only the hash is kept: a change is seen, but not shown."""
MAX_SERVERS = 1_000

Kind: TypeAlias = Literal["tool", "prompt", "instructions"]
Trust: TypeAlias = Literal["warn", "strict", "off"]
Standing: TypeAlias = Literal["offered", "flagged", "withheld"]

_UNORDERED = frozenset({"required", "enum", "type"})
_DEFAULT_SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}
_MAX_DEPTH = 250


@dataclass(frozen=True, slots=True)
class Pin:
    """One tool, one prompt or the instructions, as they were."""

    hash: str
    definition: Mapping[str, Any] | None = None
    """The pinned fields, canonical; absent where they are too long or show a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPins:
    """Everything that is pinned of one server."""

    tools: Mapping[str, Pin] = field(default_factory=dict[str, Pin])
    prompts: Mapping[str, Pin] | None = None
    """`None` where they were never listed, which is not the same as having none."""
    instructions: Pin | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    """One field that differs; the texts are for people and harmless."""

    field: str
    lines: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that is not as it was pinned."""

    kind: Kind
    name: str
    """The tool's or the prompt's own name; empty for the instructions."""
    what: Literal["added", "removed", "renamed", "changed"]
    fields: Sequence[FieldChange] = ()
    before: str = ""
    """The name that it had, where only that changed."""

    def __str__(self) -> str:
        return "\n".join(describe(self))


def pins_of(
    tools: Iterable[Mapping[str, Any]],
    *,
    prompts: Iterable[Mapping[str, Any]] | None = None,
    instructions: str | None = None,
    secrets: Iterable[str] = (),
    hides: Callable[[str], bool] | None = None,
) -> ServerPins:
    """Return the pins of what a server offers.

    Args:
        tools: The raw entries of its listing.
        prompts: The same of its prompts; `None` if they were not listed.
        instructions: What it says about itself; `None` if it was not asked.
        secrets: Texts that no definition on disk may hold.
        hides: Tells whether a text shows a secret, as a `Redactor` can.
    """
    words = [json.dumps(secret)[1:-1] for secret in secrets if secret]

    def shows(text: str) -> bool:
        found = any(word in text or word in json.dumps(text) for word in words)
        return found or (hides is not None and hides(text))

    return ServerPins(
        tools=_pinned(tools, TOOL_FIELDS, shows),
        prompts=None if prompts is None else _pinned(prompts, PROMPT_FIELDS, shows),
        instructions=None if instructions is None else _pin([{"text": instructions}], ("text",), shows),
    )


def _pinned(
    entries: Iterable[Mapping[str, Any]], fields: Sequence[str], shows: Callable[[str], bool]
) -> dict[str, Pin]:
    named: dict[str, list[Mapping[str, Any]]] = {}
    for entry in entries:
        name = entry.get("name")
        if isinstance(name, str):
            named.setdefault(name, []).append(entry)
    return {name: _pin(same, fields, shows) for name, same in named.items()}


def _pin(entries: Sequence[Mapping[str, Any]], fields: Sequence[str], shows: Callable[[str], bool]) -> Pin:
    # Of two tools with one name only the first is used, so here the order counts.
    definitions = [_definition(entry, fields) for entry in entries]
    text = canonical(definitions[0] if len(definitions) == 1 else definitions)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    is_kept = len(text) <= MAX_DEFINITION_CHARS and len(definitions) == 1
    if not is_kept or shows(text):
        return Pin(digest)
    return Pin(digest, definitions[0])


def _definition(entry: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in fields:
        value = entry.get(name)
        if value not in (None, "", {}, []) and not (name == "inputSchema" and value == _DEFAULT_SCHEMA):
            found[name] = normal(value)
    return found


def normal(value: object, depth: int = _MAX_DEPTH) -> Any:
    """Return a value without the differences that mean nothing; what is too deep becomes a mark."""
    if depth == 0:
        return "…"
    if isinstance(value, dict):
        table = cast("dict[object, object]", value)
        return {
            str(key): _unordered(inner, depth) if key in _UNORDERED else normal(inner, depth - 1)
            for key, inner in sorted(table.items(), key=lambda item: str(item[0]))
        }
    if isinstance(value, list | tuple):
        return [normal(inner, depth - 1) for inner in cast("list[object]", value)]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def _unordered(value: object, depth: int) -> Any:
    if not isinstance(value, list):
        return normal(value, depth - 1)
    return sorted((normal(inner, depth - 1) for inner in cast("list[object]", value)), key=canonical)


def canonical(value: object) -> str:
    """Return the one text for a value: sorted keys, no spaces, plain ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=repr)


_ABSENT = Pin("", {})
"""What a new definition is compared with."""


def compare(pinned: ServerPins, now: ServerPins) -> list[Change]:
    """Return what differs, the tools first; what was not looked at now is not judged."""
    changes = _changes("tool", pinned.tools, now.tools)
    if now.prompts is not None and pinned.prompts is not None:
        changes += _changes("prompt", pinned.prompts, now.prompts)
    if now.instructions is not None and pinned.instructions is not None:
        changes += _changes("instructions", {"": pinned.instructions}, {"": now.instructions})
    return changes


def _changes(kind: Kind, pinned: Mapping[str, Pin], now: Mapping[str, Pin]) -> list[Change]:
    gone = {pinned[name].hash: name for name in sorted(pinned.keys() - now.keys())}
    changes: list[Change] = []
    renamed: set[str] = set()
    for name in sorted(now):
        old, new = pinned.get(name), now[name]
        if old is None:
            before = gone.get(new.hash, "")
            renamed.add(before)
            what = "renamed" if before else "added"
            # Whoever is asked about something new has to see what it says.
            fields = () if before else _field_changes(_ABSENT, new)
            changes.append(Change(kind=kind, name=name, what=what, before=before, fields=fields))
        elif old.hash != new.hash:
            changes.append(Change(kind=kind, name=name, what="changed", fields=_field_changes(old, new)))
    removed = sorted((pinned.keys() - now.keys()) - renamed)
    return [*changes, *(Change(kind=kind, name=name, what="removed") for name in removed)]


def _field_changes(old: Pin, new: Pin) -> list[FieldChange]:
    if old.definition is None or new.definition is None:
        return [
            FieldChange(
                field="definition", lines=["it is too long, or shows a secret: only its hash is known"]
            )
        ]
    names = sorted(old.definition.keys() | new.definition.keys())
    return [
        FieldChange(field=name, lines=difference(old.definition.get(name), new.definition.get(name)))
        for name in names
        if canonical(old.definition.get(name)) != canonical(new.definition.get(name))
    ]


def describe(change: Change) -> list[str]:
    """Return a change in lines for a person."""
    from dragoman.trust.sanitize import for_log

    what = change.kind if change.kind == "instructions" else f"{change.kind} `{for_log(change.name, 200)}`"
    if change.what == "renamed":
        return [f"{what}: renamed, it was `{for_log(change.before, 200)}`"]
    lines = [f"{what}: {change.what}"]
    for one in change.fields:
        lines += [f"  {one.field}:", *(f"    {line}" for line in one.lines)]
    return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What becomes of a server's offers after a look at the pins."""

    changes: Sequence[Change] = ()
    first_use: bool = False
    """Whether nothing was pinned yet, so that what came is to be pinned now."""
    trust: Trust = "warn"

    def standing(self, name: str, kind: Kind = "tool") -> Standing:
        """Say whether a tool, a prompt or the instructions may be offered."""
        if not any(change.kind == kind and change.name == name for change in self.changes):
            return "offered"
        return "withheld" if self.trust == "strict" else "flagged"

    @property
    def withheld(self) -> frozenset[str]:
        """The tools that must not be offered or called."""
        return frozenset(
            change.name
            for change in self.changes
            if self.trust == "strict" and change.kind == "tool" and change.what != "removed"
        )


def judge(now: ServerPins, locks: Iterable[ServerPins | None], trust: Trust) -> Verdict:
    """Compare what a server offers with every lock that knows it.

    Args:
        now: What it offers.
        locks: Its pins in the user's lock and in the project's, absent where there are none.
        trust: As its spec has it.
    """
    if trust == "off":
        return Verdict(trust=trust)
    known = [lock for lock in locks if lock is not None]
    changes: dict[tuple[str, str], Change] = {}
    for lock in known:
        for change in compare(lock, now):
            changes.setdefault((change.kind, change.name), change)
    return Verdict(changes=list(changes.values()), first_use=not known, trust=trust)


def approved(old: ServerPins | None, now: ServerPins, tools: Iterable[str] | None = None) -> ServerPins:
    """Return the pins after an approval of everything, or of some tools.

    Args:
        old: The pins so far.
        now: What the server offers.
        tools: The tools that are approved; everything, prompts and instructions too, unless given.
    """
    before = old or ServerPins()
    if tools is None:
        return ServerPins(
            tools=now.tools,
            prompts=before.prompts if now.prompts is None else now.prompts,
            instructions=now.instructions or before.instructions,
        )
    chosen = set(tools)
    kept = {name: pin for name, pin in before.tools.items() if name not in chosen}
    taken = {name: pin for name, pin in now.tools.items() if name in chosen}
    return ServerPins(tools={**kept, **taken}, prompts=before.prompts, instructions=before.instructions)


def filled_in(old: ServerPins, now: ServerPins) -> ServerPins:
    """Return the pins with what was never looked at before: prompts and instructions at their first use."""
    return ServerPins(
        tools=old.tools,
        prompts=now.prompts if old.prompts is None else old.prompts,
        instructions=old.instructions or now.instructions,
    )


def dump_lock(servers: Mapping[str, ServerPins]) -> str:
    """Return the text of a lock file: sorted and indented, so that a review shows what changed."""
    data = {name: _server_json(pins) for name, pins in servers.items()}
    return json.dumps({"version": VERSION, "servers": data}, indent=2, sort_keys=True) + "\n"


def _server_json(pins: ServerPins) -> dict[str, Any]:
    found: dict[str, Any] = {"tools": {name: _pin_json(pin) for name, pin in pins.tools.items()}}
    if pins.prompts is not None:
        found["prompts"] = {name: _pin_json(pin) for name, pin in pins.prompts.items()}
    if pins.instructions is not None:
        found["instructions"] = _pin_json(pins.instructions)
    return found


def _pin_json(pin: Pin) -> dict[str, Any]:
    return {"sha256": pin.hash} | ({} if pin.definition is None else {"definition": pin.definition})


def load_lock(text: str) -> dict[str, ServerPins]:
    """Read the text of a lock file.

    Raises:
        ValueError: It is none; nothing in it counts.
    """
    try:
        data: object = json.loads(text)
    except RecursionError:
        data = None
    if not _is_table(data) or data.get("version") != VERSION:
        msg = f"it is no lock file of version {VERSION}"
        raise ValueError(msg)
    servers = data.get("servers")
    if not _is_table(servers) or len(servers) > MAX_SERVERS:
        msg = "it has no servers, or too many"
        raise ValueError(msg)
    return {name: _server(entry) for name, entry in servers.items()}


def _server(entry: object) -> ServerPins:
    if not _is_table(entry):
        raise _damaged()
    return ServerPins(
        tools=_pin_table(entry.get("tools", {})),
        prompts=_pin_table(entry["prompts"]) if "prompts" in entry else None,
        instructions=_read_pin(entry["instructions"]) if "instructions" in entry else None,
    )


def _pin_table(table: object) -> dict[str, Pin]:
    if not _is_table(table):
        raise _damaged()
    return {name: _read_pin(pin) for name, pin in table.items()}


def _read_pin(pin: object) -> Pin:
    if not _is_table(pin) or not isinstance(pin.get("sha256"), str):
        raise _damaged()
    definition = pin.get("definition")
    digest = cast("str", pin["sha256"])
    if definition is None:
        return Pin(digest)
    if not _is_table(definition):
        raise _damaged()
    # A definition that somebody edited does not belong to its hash, and would make a false difference.
    real = hashlib.sha256(canonical(definition).encode("utf-8", "surrogatepass")).hexdigest()
    return Pin(digest, definition if real == digest else None)


def _damaged() -> ValueError:
    return ValueError("one of its entries is damaged")


def _is_table(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
