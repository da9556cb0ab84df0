"""Pins: a server's tools, prompts and instructions as first used, and how they differ now.

Everything of a server that a model or a person sees is pinned: the fields `TOOL_FIELDS` of tools and
`PROMPT_FIELDS` of prompts, and the instructions. Of `_meta` only `ui` is pinned: it says who may call a tool,
and which page shows its results. The rest of it, icons and fields that are never shown are not pinned: some
servers put the time into them. Text is compared exactly, including invisible characters. The
order of keys, of tools and of `required`, `enum` and `type` has no meaning in JSON Schema and does not count;
an absent field equals an empty one, and `1.0` equals `1`.

The first listing of a server is trusted and pinned. After that, `trust = "warn"` offers new and changed tools
and flags them; `"ask"` and `"strict"` withhold them until they are approved; `"off"` compares nothing. A flag
stays until the change is approved: using a tool does not approve it. If both the user's and the project's
lock file know a server, both must match, so that a project can only be stricter.

A server may offer different tools to clients that declare different capabilities (sampling, elicitation,
roots), so there are pins for each set of capabilities. A tool that matches its pin in any set is known; a
tool that is pinned but matches no set is changed; a tool that is in no set is new, unless this set is used
for the first time.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeGuard, cast

from dragoman.struct import Struct, field
from dragoman.trust.sanitizing import for_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

MAX_LINES = 20
MAX_LINE_CHARS = 200
CONTEXT_CHARS = 30
_MAX_COMPARED = 300
"""Lines that are compared pairwise; more would take too long (quadratic time)."""
_NOTHING = object()


def difference(before: object, after: object) -> list[str]:
    """Return lines with `-` and `+`: the changed parts of texts, the places where data differs."""
    if isinstance(before, str) and isinstance(after, str):
        lines = text_difference(before, after)
    elif isinstance(before, dict | list) and isinstance(after, dict | list):
        places = _places(cast("object", before), cast("object", after), "")
        lines = [line for place, old, new in places for line in _place_lines(place, old, new)]
    else:
        sides = (("-", cast("object", before)), ("+", after))
        lines = [f"{sign} {_shown(value)}" for sign, value in sides if value is not None]
    more = len(lines) - MAX_LINES
    return lines if more <= 0 else [*lines[:MAX_LINES], f"… and {more} more lines"]


def text_difference(before: str, after: str) -> list[str]:
    """Return the differences between two texts, line by line, or within a single line."""
    old, new = before.split("\n"), after.split("\n")
    if len(old) == len(new) == 1 or max(len(old), len(new)) > _MAX_COMPARED:
        return _within(before, after)
    # Skip the first two lines, which name files.
    lines = list(difflib.unified_diff(old, new, lineterm="", n=0))[2:]
    return [f"{line[0]} {_shown(line[1:])}" for line in lines if not line.startswith("@@")]


def _within(before: str, after: str) -> list[str]:
    """Cut the common beginning and end of two texts, except for a little context."""
    start = 0
    shorter = min(len(before), len(after))
    while start < shorter and before[start] == after[start]:
        start += 1
    end = 0
    while end < shorter - start and before[-1 - end] == after[-1 - end]:
        end += 1
    return [
        f"{sign} {_excerpt(text, start, len(text) - end)}" for sign, text in (("-", before), ("+", after))
    ]


def _excerpt(text: str, start: int, end: int) -> str:
    first, last = max(0, start - CONTEXT_CHARS), end + CONTEXT_CHARS
    middle = _shown(text[first:last])
    return f"{'…' if first else ''}{middle}{'…' if last < len(text) else ''}"


def _places(before: Any, after: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the differences of two values with their JSON pointers; not recursive, as schemas may be deep."""
    waiting = [(place, before, after)]
    while waiting:
        place, old, new = waiting.pop()
        if isinstance(old, dict) and isinstance(new, dict):
            ours, theirs = cast("dict[str, object]", old), cast("dict[str, object]", new)
            keys = sorted(ours.keys() | theirs.keys(), reverse=True)
            waiting += [
                (f"{place}/{key}", ours.get(key, _NOTHING), theirs.get(key, _NOTHING)) for key in keys
            ]
        elif isinstance(old, list) and isinstance(new, list):
            mine, yours = cast("list[object]", old), cast("list[object]", new)
            if len(mine) != len(yours):
                yield place, mine, yours
            else:
                pairs = list(enumerate(zip(mine, yours, strict=True)))
                waiting += [(f"{place}/{index}", one, other) for index, (one, other) in reversed(pairs)]
        elif type(cast("object", old)) is not type(cast("object", new)) or old != new:
            yield place, old, new


def _place_lines(place: str, old: object, new: object) -> Iterator[str]:
    where = for_log(place, MAX_LINE_CHARS) or "/"
    if isinstance(old, str) and isinstance(new, str):
        yield from (f"{line[0]} {where}: {line[2:]}" for line in text_difference(old, new))
        return
    if old is not _NOTHING:
        yield f"- {where}: {_shown(old)}"
    if new is not _NOTHING:
        yield f"+ {where}: {_shown(new)}"


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return for_log(value, MAX_LINE_CHARS)
    try:
        text = json.dumps(value, ensure_ascii=False, default=repr)
    except RecursionError:
        text = "a deeply nested value"
    return for_log(text, MAX_LINE_CHARS)


TOOL_FIELDS = ("title", "description", "inputSchema", "outputSchema", "annotations", "_meta/ui")
"""A name with a slash is a key inside a field."""
PROMPT_FIELDS = ("title", "description", "arguments")
MAX_DEFINITION_CHARS = 64 * 1024
"""Only the hash of a larger definition is kept: a change is detected but cannot be shown."""
MAX_KEPT_CHARS = 1024 * 1024
"""The same for definitions beyond this sum: a lock file is read in one step, which delays the event loop."""

Kind: TypeAlias = Literal["tool", "prompt", "instructions"]
Trust: TypeAlias = Literal["warn", "ask", "strict", "off"]
Standing: TypeAlias = Literal["offered", "flagged", "withheld"]

HOLDING: frozenset[str] = frozenset({"ask", "strict"})
"""Values of `trust` that withhold new and changed tools."""
ANY = "*"
"""Stands for the capabilities of a listing for which they are unknown."""

_UNORDERED = frozenset({"required", "enum", "type"})
_DEFAULT_SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}
_MAX_DEPTH = 250
_PLAIN = frozenset({str, bool, int, type(None)})


class Pin(Struct):
    """One tool, one prompt or the instructions, as pinned."""

    hash: str
    definition: Mapping[str, Any] | None = None
    """The pinned fields in canonical form; absent if they are too long or contain a secret."""


class ServerPins(Struct, kw_only=True):
    """All pins of one server."""

    tools: Mapping[str, Pin] = field(default_factory=dict[str, Pin])
    prompts: Mapping[str, Pin] | None = None
    """`None` if prompts were never listed, unlike an empty listing."""
    instructions: Pin | None = None
    capabilities: str = ""
    """The capabilities that the client declared for this listing."""
    variants: Mapping[str, ServerPins] = field(default_factory=dict[str, "ServerPins"])
    """The pins of other listings, by the capabilities declared for them."""


class FieldChange(Struct, kw_only=True):
    """One field that differs, as lines that are safe to print."""

    field: str
    lines: Sequence[str]


class PinChange(Struct, kw_only=True):
    """One tool, prompt or instructions text that differs from its pin."""

    kind: Kind
    name: str
    """The tool's or prompt's own name; empty for the instructions."""
    what: Literal["added", "removed", "renamed", "changed"]
    fields: Sequence[FieldChange] = ()
    before: str = ""
    """The old name, if only the name changed."""

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
    """Return the pins of a listing.

    Args:
        tools: The raw tool entries.
        prompts: The raw prompt entries; `None` if prompts were not listed.
        instructions: The server's instructions; `None` if unknown.
        secrets: Texts that must not be written to disk.
        hides: Returns whether a text contains a secret, as a `Redactor` does.
        capabilities: The capabilities that the client declared.
    """
    words = [json.dumps(secret)[1:-1] for secret in secrets if secret]
    # Escaping once more only adds backslashes: it shows no other word.
    escaped = [word for word in words if "\\" in word]

    def shows(text: str) -> bool:
        if any(word in text for word in words) or (hides is not None and hides(text)):
            return True
        again = json.dumps(text) if escaped else ""
        return any(word in again for word in escaped)

    return ServerPins(
        tools=_pinned(tools, TOOL_FIELDS, shows),
        prompts=None if prompts is None else _pinned(prompts, PROMPT_FIELDS, shows),
        instructions=None if instructions is None else _pin([{"text": instructions}], ("text",), shows)[0],
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
    found: dict[str, Pin] = {}
    left = MAX_KEPT_CHARS
    for name, same in named.items():
        found[name], chars = _pin(same, fields, shows, left)
        left -= chars
    return found


def _pin(
    entries: Sequence[Mapping[str, Any]],
    fields: Sequence[str],
    shows: Callable[[str], bool],
    left: int = MAX_KEPT_CHARS,
) -> tuple[Pin, int]:
    """Return a pin, and how many of the characters that are left its definition takes."""
    # If two tools have the same name, only the first is used, so here the order counts.
    definitions = [_definition(entry, fields) for entry in entries]
    text = canonical(definitions[0] if len(definitions) == 1 else definitions)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    is_kept = len(text) <= min(left, MAX_DEFINITION_CHARS) and len(definitions) == 1
    if not is_kept or shows(text):
        return Pin(digest), 0
    return Pin(digest, definitions[0]), len(text)


def _definition(entry: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in fields:
        value = _inner(entry, name) if "/" in name else entry.get(name)
        if value not in (None, "", {}, []) and not (name == "inputSchema" and value == _DEFAULT_SCHEMA):
            found[name] = normal(value)
    return found


def _inner(entry: Mapping[str, Any], path: str) -> Any:
    outer, _, key = path.partition("/")
    table = entry.get(outer)
    return cast("dict[str, Any]", table).get(key) if isinstance(table, dict) else None


def normal(value: object, depth: int = _MAX_DEPTH) -> Any:
    """Return a value normalised so that meaningless differences vanish; too deep parts become a marker."""
    if depth == 0:
        return "…"
    if type(value) in _PLAIN:
        return value
    if isinstance(value, dict):
        table = cast("dict[object, object]", value)
        return {
            str(key): _unordered(table[key], depth) if key in _UNORDERED else normal(table[key], depth - 1)
            for key in sorted(table, key=str)
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


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=repr).encode


def canonical(value: object) -> str:
    """Return the canonical JSON of a value: sorted keys, no spaces, plain ASCII."""
    return _encode(value)


_ABSENT = Pin("", {})
"""A pin to compare a new definition with."""


def sets_of(pins: ServerPins) -> dict[str, ServerPins]:
    """Return the pins by set of capabilities."""
    return {pins.capabilities: pins, **pins.variants}


def _with_set(pins: ServerPins | None, own: ServerPins, capabilities: str) -> ServerPins:
    """Return the pins with one set replaced."""
    if pins is None or pins.capabilities == capabilities:
        variants = ServerPins().variants if pins is None else pins.variants
        return own.replace(capabilities=capabilities, variants=variants)
    alone = own.replace(capabilities=capabilities, variants={})
    return pins.replace(variants={**pins.variants, capabilities: alone})


def expected(pins: ServerPins, now: ServerPins, *, takes_new: bool) -> ServerPins:
    """Return the pins to compare a listing with: those of its own set, completed from the other sets.

    Args:
        pins: The pins of all sets.
        now: The current listing.
        takes_new: Whether unknown tools are trusted if this set is used for the first time.
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
    if said and now.instructions is not None:
        instructions = _like(now.instructions, [instructions, *said] if instructions else said)
    return ServerPins(tools=tools, prompts=prompts, instructions=instructions)


def _inherited(
    own: Mapping[str, Pin] | None,
    others: Sequence[Mapping[str, Pin]],
    now: Mapping[str, Pin],
    takes_new: bool,  # noqa: FBT001 -- the only one of its kind, in a function of this module
) -> dict[str, Pin]:
    found = dict(own or {})
    for name, pin in now.items():
        known = [table[name] for table in (found, *others) if name in table]
        if known:
            found[name] = _like(pin, known)
        elif takes_new and own is None:
            found[name] = pin
    return found


def _like(pin: Pin, known: Sequence[Pin]) -> Pin:
    """Return the pin that matches, or else the first."""
    return next((one for one in known if one.hash == pin.hash), known[0])


def compare(pinned: ServerPins, now: ServerPins, *, takes_new: bool = True) -> list[PinChange]:
    """Return the differences, tools first; prompts or instructions that were not listed are skipped."""
    pinned = expected(pinned, now, takes_new=takes_new)
    changes = _changes("tool", pinned.tools, now.tools)
    if now.prompts is not None and pinned.prompts is not None:
        changes += _changes("prompt", pinned.prompts, now.prompts)
    if now.instructions is not None and pinned.instructions is not None:
        changes += _changes("instructions", {"": pinned.instructions}, {"": now.instructions})
    return changes


def _changes(kind: Kind, pinned: Mapping[str, Pin], now: Mapping[str, Pin]) -> list[PinChange]:
    gone = {pinned[name].hash: name for name in sorted(pinned.keys() - now.keys())}
    changes: list[PinChange] = []
    renamed: set[str] = set()
    for name in sorted(now):
        old, new = pinned.get(name), now[name]
        if old is None:
            before = gone.get(new.hash, "")
            renamed.add(before)
            what = "renamed" if before else "added"
            # Show the whole definition of something new to the person who approves it.
            fields = () if before else _field_changes(_ABSENT, new)
            changes.append(PinChange(kind=kind, name=name, what=what, before=before, fields=fields))
        elif old.hash != new.hash:
            changes.append(PinChange(kind=kind, name=name, what="changed", fields=_field_changes(old, new)))
    removed = sorted((pinned.keys() - now.keys()) - renamed)
    return [*changes, *(PinChange(kind=kind, name=name, what="removed") for name in removed)]


def _field_changes(old: Pin, new: Pin) -> list[FieldChange]:
    if old.definition is None or new.definition is None:
        return [
            FieldChange(field="definition", lines=["too long, or contains a secret: only its hash is known"])
        ]
    names = sorted(old.definition.keys() | new.definition.keys())
    return [
        FieldChange(field=name, lines=difference(old.definition.get(name), new.definition.get(name)))
        for name in names
        if canonical(old.definition.get(name)) != canonical(new.definition.get(name))
    ]


def describe(change: PinChange) -> list[str]:
    """Return a change as lines for a person."""
    from dragoman.trust.sanitizing import for_log

    what = change.kind if change.kind == "instructions" else f"{change.kind} `{for_log(change.name, 200)}`"
    if change.what == "renamed":
        return [f"{what}: renamed from `{for_log(change.before, 200)}`"]
    lines = [f"{what}: {change.what}"]
    for one in change.fields:
        lines += [f"  {one.field}:", *(f"    {line}" for line in one.lines)]
    return lines


class Verdict(Struct, kw_only=True):
    """The result of comparing a server's listing with its pins."""

    changes: Sequence[PinChange] = ()
    first_use: bool = False
    """Whether nothing was pinned yet, so that the listing is pinned now."""
    trust: Trust = "warn"
    problem: str = ""
    """Why the listing could not be pinned; empty if it could."""

    def standing(self, name: str, kind: Kind = "tool") -> Standing:
        """Return whether a tool, a prompt or the instructions may be offered."""
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
    """Compare a listing with every lock file that knows the server.

    Args:
        now: The current listing.
        locks: Its pins in the user's lock file, if any.
        trust: The server's `trust`.
        fixed: Its pins in lock files that are never extended at first use, such as the project's.
    """
    if trust == "off":
        return Verdict(trust=trust)
    known = [(lock, True) for lock in locks] + [(lock, False) for lock in fixed]
    changes: dict[tuple[str, str], PinChange] = {}
    for lock, takes_new in known:
        for change in compare(lock, now, takes_new=takes_new) if lock is not None else ():
            changes.setdefault((change.kind, change.name), change)
    is_first = all(lock is None for lock, _ in known)
    return Verdict(changes=list(changes.values()), first_use=is_first, trust=trust)


def fingerprint_of(changes: Iterable[PinChange], now: ServerPins | None) -> str:
    """Return a hash of the changes, to approve exactly these and nothing newer."""
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
    """Return the pins after everything, or some tools, were approved.

    Other sets of capabilities with the same old definition get the new one too: it is the same tool.

    Args:
        old: The current pins.
        now: The current listing.
        tools: The approved tools; by default everything, including prompts and instructions.
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
    """Return the pins of another set, with new pins in place of equal old ones."""
    old, new = before or {}, after or {}
    return {
        name: new[name] if name in new and name in old and old[name].hash == pin.hash else pin
        for name, pin in other.items()
    }


def filled_in(old: ServerPins, now: ServerPins) -> ServerPins:
    """Return the pins extended by what was never listed before: a new set, prompts and instructions.

    Definitions that differ from their pins in other sets are left out: they need an approval.
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
    """Return the listing without definitions that differ from their pins in other sets."""
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


VERSION = 1
LOCK_NAME = "dragoman.lock"
MAX_SERVERS = 1_000


def dump_lock(servers: Mapping[str, ServerPins], *, indent: int | None = 2) -> str:
    """Return the text of a lock file: sorted, and indented so that diffs are readable.

    Args:
        servers: The pins of each server.
        indent: Spaces for each level; `None` for one line, which takes a tenth of the time.
    """
    data = {name: _server_json(pins) for name, pins in servers.items()}
    return json.dumps({"version": VERSION, "servers": data}, indent=indent, sort_keys=True) + "\n"


def _server_json(pins: ServerPins) -> dict[str, Any]:
    found: dict[str, Any] = {"tools": {name: _pin_json(pin) for name, pin in pins.tools.items()}}
    if pins.prompts is not None:
        found["prompts"] = {name: _pin_json(pin) for name, pin in pins.prompts.items()}
    if pins.instructions is not None:
        found["instructions"] = _pin_json(pins.instructions)
    if pins.capabilities:
        found["capabilities"] = pins.capabilities
    if pins.variants:
        found["variants"] = {key: _server_json(one) for key, one in pins.variants.items()}
    return found


def _pin_json(pin: Pin) -> dict[str, Any]:
    return {"sha256": pin.hash} | ({} if pin.definition is None else {"definition": pin.definition})


def load_lock(text: str) -> dict[str, ServerPins]:
    """Read the text of a lock file.

    Raises:
        ValueError: The text is not a valid lock file; ignore all of it.
    """
    try:
        data: object = json.loads(text)
    except RecursionError:
        data = None
    if not _is_table(data) or data.get("version") != VERSION:
        msg = f"it is not a lock file of version {VERSION}"
        raise ValueError(msg)
    servers = data.get("servers")
    if not _is_table(servers) or len(servers) > MAX_SERVERS:
        msg = "it has no servers, or too many"
        raise ValueError(msg)
    return {name: _server(entry) for name, entry in servers.items()}


def _server(entry: object, *, is_variant: bool = False) -> ServerPins:
    if not _is_table(entry):
        raise _damaged()
    capabilities, variants = entry.get("capabilities", ""), entry.get("variants", {})
    if not isinstance(capabilities, str) or not _is_table(variants) or (variants and is_variant):
        raise _damaged()
    return ServerPins(
        capabilities=capabilities,
        variants={key: _server(one, is_variant=True) for key, one in variants.items()},
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
    # An edited definition does not match its hash, and would show a false difference.
    real = hashlib.sha256(canonical(definition).encode("utf-8", "surrogatepass")).hexdigest()
    return Pin(digest, definition if real == digest else None)


def _damaged() -> ValueError:
    return ValueError("one of its entries is damaged")


def _is_table(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
