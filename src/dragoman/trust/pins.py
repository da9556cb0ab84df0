"""Pins: what a server offered when it was first used, and what is different now.

The policy. What a model or a person gets to see of a server is pinned: of tools and prompts the fields of
`TOOL_FIELDS` and `PROMPT_FIELDS`, and the instructions. `_meta`, icons and fields that nobody shows are not:
some servers put the time into them. Text is compared exactly, invisible characters included. The order of
keys, of tools, of `required`, `enum` and `type` means nothing in JSON Schema and is no change; an absent
field is the same as an empty one, and `1.0` as `1`.

What was never pinned is trusted at first use. Later, with `trust = "warn"`, what is new or changed is offered
and flagged; with `"ask"` and `"strict"` it is withheld until it is approved; `"off"` looks at nothing. What
is flagged stays so until it is approved: using it is not an approval. Where two lock files know a server, the
user's and the project's, both have to agree, so that a project can only narrow.

A server may offer other tools to a client that declares other capabilities (sampling, elicitation, roots), so
pins are kept for each set of them. A tool that is as it was pinned in any set is known; one that is pinned,
but never like this, is changed; one that no set knows is new, unless this set itself is used for the first
time.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from dragoman.trust.differences import difference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

TOOL_FIELDS = ("title", "description", "inputSchema", "outputSchema", "annotations")
PROMPT_FIELDS = ("title", "description", "arguments")
MAX_DEFINITION_CHARS = 64 * 1024
"""Of a larger definition only the hash is kept: a change is seen, but not shown."""

Kind: TypeAlias = Literal["tool", "prompt", "instructions"]
Trust: TypeAlias = Literal["warn", "ask", "strict", "off"]
Standing: TypeAlias = Literal["offered", "flagged", "withheld"]

HOLDING: frozenset[str] = frozenset({"ask", "strict"})
"""Kinds of trust that withhold what is not as it was pinned."""
ANY = "*"
"""The capabilities of a listing of which it is not known which were declared."""

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
    capabilities: str = ""
    """What the client declared when it was offered this."""
    variants: Mapping[str, ServerPins] = field(default_factory=dict[str, "ServerPins"])
    """What it was offered when it declared something else, by what that was."""


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
    capabilities: str = "",
) -> ServerPins:
    """Return the pins of what a server offers.

    Args:
        tools: The raw entries of its listing.
        prompts: The same of its prompts; `None` if they were not listed.
        instructions: What it says about itself; `None` if it was not asked.
        secrets: Texts that no definition on disk may hold.
        hides: Tells whether a text shows a secret, as a `Redactor` can.
        capabilities: What the client declared.
    """
    words = [json.dumps(secret)[1:-1] for secret in secrets if secret]

    def shows(text: str) -> bool:
        found = any(word in text or word in json.dumps(text) for word in words)
        return found or (hides is not None and hides(text))

    return ServerPins(
        tools=_pinned(tools, TOOL_FIELDS, shows),
        prompts=None if prompts is None else _pinned(prompts, PROMPT_FIELDS, shows),
        instructions=None if instructions is None else _pin([{"text": instructions}], ("text",), shows),
        capabilities=capabilities,
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


def sets_of(pins: ServerPins) -> dict[str, ServerPins]:
    """Return the pins of each set of capabilities."""
    return {pins.capabilities: pins, **pins.variants}


def _with_set(pins: ServerPins | None, own: ServerPins, capabilities: str) -> ServerPins:
    """Return pins with those of one set replaced."""
    if pins is None or pins.capabilities == capabilities:
        variants = ServerPins().variants if pins is None else pins.variants
        return replace(own, capabilities=capabilities, variants=variants)
    alone = replace(own, capabilities=capabilities, variants={})
    return replace(pins, variants={**pins.variants, capabilities: alone})


def expected(pins: ServerPins, now: ServerPins, *, takes_new: bool) -> ServerPins:
    """Return what a listing is compared with: the pins of its own set, and for the rest those of the others.

    Args:
        pins: Of all sets.
        now: What is offered, under some capabilities.
        takes_new: Whether what no set knows is trusted where this set is used for the first time.
    """
    sets = sets_of(pins)
    own = sets.pop(now.capabilities, None)
    takes_new = takes_new and now.capabilities != ANY
    others = list(sets.values())
    tools = _inherited(own.tools if own else None, [one.tools for one in others], now.tools, takes_new)
    prompts = own.prompts if own else None
    listed = [one.prompts for one in others if one.prompts is not None]
    if now.prompts is not None and listed:
        prompts = _inherited(prompts, listed, now.prompts, takes_new)
    said = [one.instructions for one in others if one.instructions is not None]
    instructions = own.instructions if own else None
    if instructions is None and said and now.instructions is not None:
        instructions = _like(now.instructions, said)
    return ServerPins(tools=tools, prompts=prompts, instructions=instructions)


def _inherited(
    own: Mapping[str, Pin] | None,
    others: Sequence[Mapping[str, Pin]],
    now: Mapping[str, Pin],
    takes_new: bool,  # noqa: FBT001 -- the only one of its kind, in a function of this module
) -> dict[str, Pin]:
    found = dict(own or {})
    for name, pin in now.items():
        if name not in found:
            known = [other[name] for other in others if name in other]
            if known:
                found[name] = _like(pin, known)
            elif takes_new and own is None:
                found[name] = pin
    return found


def _like(pin: Pin, known: Sequence[Pin]) -> Pin:
    """Return the one that is the same, or else the first."""
    return next((one for one in known if one.hash == pin.hash), known[0])


def compare(pinned: ServerPins, now: ServerPins, *, takes_new: bool = True) -> list[Change]:
    """Return what differs, the tools first; what was not looked at now is not judged."""
    pinned = expected(pinned, now, takes_new=takes_new)
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
    problem: str = ""
    """Why nothing could be pinned, if so."""

    def standing(self, name: str, kind: Kind = "tool") -> Standing:
        """Say whether a tool, a prompt or the instructions may be offered."""
        if not any(change.kind == kind and change.name == name for change in self.changes):
            return "offered"
        return "withheld" if self.trust in HOLDING else "flagged"

    @property
    def withheld(self) -> frozenset[str]:
        """The tools that must not be offered or called."""
        return frozenset(
            change.name
            for change in self.changes
            if self.trust in HOLDING and change.kind == "tool" and change.what != "removed"
        )


def judge(
    now: ServerPins,
    locks: Iterable[ServerPins | None],
    trust: Trust,
    fixed: Iterable[ServerPins | None] = (),
) -> Verdict:
    """Compare what a server offers with every lock that knows it.

    Args:
        now: What it offers.
        locks: Its pins in the user's lock, absent where there are none.
        trust: As its spec has it.
        fixed: The same in locks that take nothing in at a first use, such as the project's.
    """
    if trust == "off":
        return Verdict(trust=trust)
    known = [(lock, True) for lock in locks] + [(lock, False) for lock in fixed]
    changes: dict[tuple[str, str], Change] = {}
    for lock, takes_new in known:
        for change in compare(lock, now, takes_new=takes_new) if lock is not None else ():
            changes.setdefault((change.kind, change.name), change)
    is_first = all(lock is None for lock, _ in known)
    return Verdict(changes=list(changes.values()), first_use=is_first, trust=trust)


def fingerprint_of(changes: Iterable[Change], now: ServerPins | None) -> str:
    """Return a hash of what is in question, to approve exactly that and nothing else."""
    tables: dict[str, Mapping[str, Pin]] = {}
    if now is not None:
        tables = {"tool": now.tools, "prompt": now.prompts or {}}
        tables |= {"instructions": {"": now.instructions}} if now.instructions is not None else {}
    rows = [
        [one.kind, one.name, one.what, pin.hash if (pin := tables.get(one.kind, {}).get(one.name)) else ""]
        for one in changes
    ]
    return f"sha256:{hashlib.sha256(canonical(sorted(rows)).encode('utf-8', 'surrogatepass')).hexdigest()}"


def approved(old: ServerPins | None, now: ServerPins, tools: Iterable[str] | None = None) -> ServerPins:
    """Return the pins after an approval of everything, or of some tools.

    A set of other capabilities that has the same old definition gets the new one too: it is the same tool.

    Args:
        old: The pins so far.
        now: What the server offers.
        tools: The tools that are approved; everything, prompts and instructions too, unless given.
    """
    own = None if old is None else sets_of(old).get(now.capabilities)
    before = own or (ServerPins() if old is None else _fitting(old, now))
    if tools is None:
        new = ServerPins(
            tools=now.tools,
            prompts=before.prompts if now.prompts is None else now.prompts,
            instructions=now.instructions or before.instructions,
        )
    else:
        chosen = set(tools)
        kept = {name: pin for name, pin in before.tools.items() if name not in chosen}
        taken = {name: pin for name, pin in now.tools.items() if name in chosen}
        new = ServerPins(tools={**kept, **taken}, prompts=before.prompts, instructions=before.instructions)
    found = _with_set(old, new, now.capabilities)
    for key, other in sets_of(found).items() if own is not None else ():
        if own is not None and key != now.capabilities:
            moved = ServerPins(
                tools=_moved(other.tools, own.tools, new.tools),
                prompts=None if other.prompts is None else _moved(other.prompts, own.prompts, new.prompts),
                instructions=new.instructions
                if other.instructions == own.instructions
                else other.instructions,
            )
            found = _with_set(found, moved, key)
    return found


def _moved(
    other: Mapping[str, Pin], before: Mapping[str, Pin] | None, after: Mapping[str, Pin] | None
) -> dict[str, Pin]:
    """Return the pins of another set, with the new ones where it had the same old ones."""
    old, new = before or {}, after or {}
    return {
        name: new[name] if name in new and name in old and old[name].hash == pin.hash else pin
        for name, pin in other.items()
    }


def filled_in(old: ServerPins, now: ServerPins) -> ServerPins:
    """Return the pins with what was never looked at before: a new set, prompts and instructions.

    What other sets know, but not like this, is left out: it waits for an approval.
    """
    own = sets_of(old).get(now.capabilities)
    fitting = _fitting(old, now)
    if own is None:
        return _with_set(old, fitting, now.capabilities)
    new = ServerPins(
        tools=own.tools,
        prompts=fitting.prompts if own.prompts is None else own.prompts,
        instructions=own.instructions or fitting.instructions,
    )
    return _with_set(old, new, now.capabilities)


def _fitting(old: ServerPins, now: ServerPins) -> ServerPins:
    """Return what is offered now without what other sets know, but not like this."""
    others = [one for key, one in sets_of(old).items() if key != now.capabilities]

    def fits(pin: Pin, known: Sequence[Pin]) -> bool:
        return not known or any(one.hash == pin.hash for one in known)

    def fitting(table: Mapping[str, Pin], tables: Sequence[Mapping[str, Pin]]) -> dict[str, Pin]:
        known = {name: [one[name] for one in tables if name in one] for name in table}
        return {name: pin for name, pin in table.items() if fits(pin, known[name])}

    said = [one.instructions for one in others if one.instructions is not None]
    instructions = now.instructions
    return ServerPins(
        tools=fitting(now.tools, [one.tools for one in others]),
        prompts=None if now.prompts is None else fitting(now.prompts, [one.prompts or {} for one in others]),
        instructions=instructions if instructions is not None and fits(instructions, said) else None,
    )
