"""An entry of any dialect becomes a `ServerSpec`, or an `InvalidSpecError` with every problem at once.

The dialect says what its keys mean; the checks are the same for all. Every assumption (a unit, a kind
of transport, a converted value) is noted on the spec, unknown keys are kept, and text is turned into
templates by the dialect's own variable style. Nothing is expanded, looked up or run.
"""

from __future__ import annotations

import re
from dataclasses import fields as dataclass_fields
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

from dragoman.config.dialect import LEFT, NOT_A_MAP, NOT_SERVERS
from dragoman.config.documents import dotted, printable
from dragoman.config.durations import UNKNOWN_UNIT_LIMIT, is_plain, seconds
from dragoman.config.expand import AUTH_TEXTS, spelled, to_template
from dragoman.config.reaching import read_transport
from dragoman.config.reading import Reader, shown
from dragoman.config.sizes import size_in_bytes
from dragoman.errors import InvalidSpecError
from dragoman.model import ATTRIBUTION_KEYS, Auth, Origin, ServerSpec, Timeouts
from dragoman.suggesting import suggest
from dragoman.trust.limits import read_limits

if TYPE_CHECKING:
    from dragoman.config.dialect import Dialect, Entry, Scope

_CHOICES: dict[str, tuple[str, ...]] = {
    "replace": ("start-first", "stop-first"),
    "trust": ("warn", "ask", "strict", "off"),
    "wire": ("dragoman", "sdk"),
    "protocol": ("auto", "legacy", "modern"),
}


_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*")


class _Common(TypedDict, total=False):
    """The fields that a file can set besides the transport; named as in `ServerSpec`."""

    enabled: bool
    required: bool
    lazy: bool
    reconnect: bool
    trust_annotations: bool
    parallel: bool
    mend_arguments: bool
    attribution: dict[str, str]
    limits: dict[str, float]
    max_message_bytes: int
    allowed_tools: list[str]
    denied_tools: list[str]
    fallback: list[str]
    max_concurrency: int
    health_check_interval: float
    naming: str
    title: str
    description: str
    auth: Auth
    replace: Literal["start-first", "stop-first"]
    trust: Literal["warn", "strict", "off"]
    wire: Literal["dragoman", "sdk"]
    protocol: Literal["auto", "legacy", "modern"]


def build(entry: Entry, dialect: Dialect, scope: Scope) -> ServerSpec:
    """Make the spec that an entry describes.

    Raises:
        InvalidSpecError: The entry describes none; it has every problem.
    """
    reader = Reader(entry, dialect)
    for mark, wanted in (
        (NOT_SERVERS, "a map or a list of servers"),
        (NOT_A_MAP, "an object that describes a server"),
    ):
        if mark in entry.fields:
            reader.problem("", f"expected {wanted}, not {shown(entry.fields[mark], private=True)}")
            raise _invalid(reader, entry)
    if dialect.translate:
        dialect.translate(entry)
    for key, message in entry.problems:
        reader.problem(key, message)
    fields, extras = _sort_keys(entry, dialect, reader)
    if dialect.style.spellings:
        _note_references(entry, dialect, reader)
    _check_name(entry, reader)
    transport = read_transport(fields, extras, entry, dialect, reader)
    common = _common(fields, extras, dialect, reader)
    timeouts = _timeouts(fields, dialect, reader)
    if reader.problems or transport is None:
        raise _invalid(reader, entry)
    origin = Origin(
        source=entry.document.source,
        line=entry.line(),
        dialect=dialect.name,
        scope=scope,
        pointer=dotted(entry.pointer),
    )
    return ServerSpec(
        entry.name,
        transport,
        timeouts=timeouts,
        origin=origin,
        lines=reader.lines,
        extras=extras,
        notes=[*entry.notes, *reader.notes],
        **common,
    )


def _note_references(entry: Entry, dialect: Dialect, reader: Reader) -> None:
    """Name every value with a reference that the host resolves by itself."""

    def visit(value: object, keys: tuple[str | int, ...]) -> None:
        if isinstance(value, dict):
            for name, item in cast("dict[str, object]", value).items():
                visit(item, (*keys, name))
        elif isinstance(value, list):
            for at, item in enumerate(cast("list[object]", value)):
                visit(item, (*keys, at))
        elif isinstance(value, str):
            for _, spelling, _name in spelled(value, dialect.style):
                if spelling.loss:
                    reader.note("unused", dotted(entry.written(*keys)), spelling.loss)
                    break

    for key, value in entry.fields.items():
        meaning = dialect.keys.get(key)
        if meaning is not None and (dialect.expanded is None or meaning.field in dialect.expanded):
            visit(value, (key,))


def _check_name(entry: Entry, reader: Reader) -> None:
    if not entry.name.strip():
        reader.problem("name", "a server needs a name, a text that is not empty")
    elif not entry.name.isprintable():
        reader.problem("", "the server's name has a control character in it")


def _sort_keys(entry: Entry, dialect: Dialect, reader: Reader) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split an entry into fields that mean something, under our names, and the others."""
    fields: dict[str, Any] = {}
    extras: dict[str, Any] = {}
    for spelling, value in entry.fields.items():
        key = dialect.keys.get(spelling)
        written = entry.spellings.get(spelling, spelling)
        if spelling == "name" and key is None and value == entry.name:
            continue
        if key is None:
            extras[written] = value
            if not spelling.startswith(LEFT):
                _note_extra(written, dialect, reader)
        elif value is None:
            continue
        elif key.field in fields:
            other = reader.spelling(key.field)
            reader.note("conflict", written, f"`{other}` says the same and comes first; this is not used")
            extras[written] = value
        else:
            fields[key.field] = value
            reader.name(key.field, spelling)
    return fields, extras


def _note_extra(spelling: str, dialect: Dialect, reader: Reader) -> None:
    if spelling in dialect.dropped:
        reader.note("unused", spelling, dialect.dropped[spelling])
    elif not spelling.startswith(("$", "_", "//")):
        near = suggest(spelling, dialect.keys, count=1, cutoff=0.75)
        guess = f"; did you mean `{near[0]}`?" if near else ""
        reader.note("unknown", spelling, f"this means nothing here and is kept as it is{guess}")


def _timeouts(fields: dict[str, Any], dialect: Dialect, reader: Reader) -> Timeouts:
    nested = reader.mapping("timeouts", fields.get("timeouts"))
    wanted: dict[str, object] = {}
    for name, value in nested.items():
        if name in Timeouts.__annotations__:
            wanted[name] = value
            reader.name(name, f"timeouts.{name}")
        else:
            reader.problem("timeouts", "expected connect, call or idle", name)
    wanted.update({name: fields[name] for name in Timeouts.__annotations__ if name in fields})
    found: dict[str, float] = {}
    for name, value in wanted.items():
        duration = _duration(name, value, dialect, reader)
        if duration is not None:
            found[name] = duration
    return cast("Timeouts", found)


def _duration(name: str, value: object, dialect: Dialect, reader: Reader) -> float | None:
    spelling = reader.spelling(name)
    key = dialect.keys.get(spelling)
    unit = (key.unit if key else None) or "s"
    try:
        result = seconds(value, unit)
    except ValueError as error:
        reader.problem(name, str(error))
        return None
    if unit == "unknown" and is_plain(value):
        meant = "milliseconds" if float(cast("float", value)) >= UNKNOWN_UNIT_LIMIT else "seconds"
        message = f'hosts disagree about the unit; {value} is taken as {meant}: write "{result:g}s"'
        reader.note("unit", spelling, message)
    elif unit == "ms" and is_plain(value):
        reader.note("unit", spelling, f"{value} is in milliseconds here: {result:g} s")
    return result


def _common(fields: dict[str, Any], extras: dict[str, Any], dialect: Dialect, reader: Reader) -> _Common:
    found: dict[str, object] = {}
    for name in ("required", "lazy", "reconnect", "trust_annotations", "parallel", "mend_arguments"):
        _put(found, name, reader.boolean(name, fields.get(name)))
    for name in ("naming", "title", "description"):
        _put(found, name, reader.text(name, fields.get(name)))
    for name in ("denied_tools", "fallback"):
        _put(found, name, reader.one_or_many(name, fields.get(name)) or None)
    for name, choices in _CHOICES.items():
        _put(found, name, reader.choice(name, fields.get(name), choices))
    _put(found, "allowed_tools", _allowed(fields, dialect, reader))
    _put(found, "enabled", _enabled(fields, reader))
    _put(found, "auth", _auth(fields, extras, dialect, reader))
    _put(found, "attribution", _attribution(fields, reader))
    _put(found, "limits", _limits(fields, reader))
    _put(found, "max_message_bytes", _size("max_message_bytes", fields, reader))
    _put(found, "max_concurrency", reader.count("max_concurrency", fields.get("max_concurrency")))
    if "health_check_interval" in fields:
        interval = _duration("health_check_interval", fields["health_check_interval"], dialect, reader)
        _put(found, "health_check_interval", interval)
    naming = found.get("naming")
    if isinstance(naming, str) and ("{tool}" not in naming):
        reader.problem("naming", "it lacks {tool}: write for example {server}__{tool}")
    return cast("_Common", found)


def _put(found: dict[str, object], name: str, value: object) -> None:
    if value is not None:
        found[name] = value


def _enabled(fields: dict[str, Any], reader: Reader) -> bool | None:
    enabled = reader.boolean("enabled", fields.get("enabled"))
    disabled = reader.boolean("disabled", fields.get("disabled"))
    if enabled is not None and disabled is not None and enabled == disabled:
        reader.note("conflict", "disabled", "`enabled` and `disabled` contradict each other; it stays off")
        return False
    if disabled is not None:
        return not disabled
    return enabled


def _allowed(fields: dict[str, Any], dialect: Dialect, reader: Reader) -> list[str] | None:
    value = fields.get("allowed_tools")
    allowed = None if value is None else reader.one_or_many("allowed_tools", value)
    if allowed == [] and dialect.empty_allows_all:
        return None
    return None if allowed is not None and "*" in allowed else allowed


def _attribution(fields: dict[str, Any], reader: Reader) -> dict[str, str] | None:
    """Read where answers name their sources."""
    found: dict[str, str] = {}
    for name, value in reader.mapping("attribution", fields.get("attribution")).items():
        if name not in ATTRIBUTION_KEYS:
            reader.problem("attribution", f"expected one of {', '.join(ATTRIBUTION_KEYS)}", name)
        elif (pointer := reader.text("attribution", value, inner=name)) is not None:
            if _POINTER.fullmatch(pointer):
                found[name] = pointer
            else:
                message = f"expected a JSON pointer such as /results/*/title, not {shown(pointer)}"
                reader.problem("attribution", message, name)
    return found or None


def _limits(fields: dict[str, Any], reader: Reader) -> dict[str, float] | None:
    """Read how much a server may send or get."""
    found: dict[str, float] = {}
    for name, value in reader.mapping("limits", fields.get("limits")).items():
        if problems := read_limits({name: value})[1]:
            reader.problem("limits", problems[0].partition("` ")[2], name)
        else:
            found[name] = value
    return found or None


def _size(name: str, fields: dict[str, Any], reader: Reader) -> int | None:
    if name not in fields:
        return None
    try:
        return size_in_bytes(fields[name])
    except ValueError as error:
        reader.problem(name, str(error))
        return None


def _auth(fields: dict[str, Any], extras: dict[str, Any], dialect: Dialect, reader: Reader) -> Auth | None:
    value: object = fields.get("auth")
    if value is None:
        return None
    if isinstance(value, str):
        mode = reader.choice("auth", value, _AUTH_MODES)
        return None if mode is None else Auth(mode=cast("Literal['auto', 'none', 'oauth']", mode))
    table = {key: item for key, item in reader.mapping("auth", value).items() if item is not None}
    _set_aside(table, extras, reader)

    def text(name: str) -> str | None:
        found = reader.text("auth", table.get(name), inner=name)
        return None if found is None else to_template(found, dialect.style_of("auth"))

    def word(name: str) -> str | None:
        return reader.choice("auth", table.get(name), _AUTH_CHOICES[name], inner=name)

    scopes = table.get("scopes")
    scopes = scopes.split() if isinstance(scopes, str) else reader.strings("auth", scopes, inner="scopes")
    found: dict[str, Any] = {name: text(name) for name in AUTH_TEXTS} | {
        name: word(name) for name in _AUTH_CHOICES
    }
    found["hosts"] = tuple(reader.strings("auth", table.get("hosts"), inner="hosts") or ())
    found["callback_port"] = reader.count("auth", table.get("callback_port"), inner="callback_port")
    found["signing_algorithm"] = reader.text(
        "auth", table.get("signing_algorithm"), inner="signing_algorithm"
    )
    mode = reader.choice("auth", table.get("mode", "oauth"), _AUTH_MODES, inner="mode")
    return Auth(
        mode=cast("Literal['auto', 'none', 'oauth']", mode or "auto"),
        scopes=tuple(scopes or ()),
        **{name: value for name, value in found.items() if value is not None},
    )


_AUTH_MODES = ("auto", "none", "oauth")
_AUTH_CHOICES: dict[str, tuple[str, ...]] = {
    "grant": ("authorization_code", "client_credentials"),
    "client_auth": ("client_secret_basic", "client_secret_post", "private_key_jwt"),
    "store": ("file", "keyring"),
}
AUTH_WORDS = ("grant", "client_auth", "signing_algorithm", "store", "callback_port")
_AUTH_KEYS = frozenset(field.name for field in dataclass_fields(Auth))


def _set_aside(table: dict[str, Any], extras: dict[str, Any], reader: Reader) -> None:
    """Keep keys of an `auth` table that mean nothing here."""
    unknown = {key: table.pop(key) for key in list(table) if key not in _AUTH_KEYS}
    if unknown:
        spelling = reader.spelling("auth")
        extras[spelling] = unknown
        names = ", ".join(printable(name) for name in unknown)
        reader.note("unused", spelling, f"these keys of it mean nothing here and are kept: {names}")


def _invalid(reader: Reader, entry: Entry) -> InvalidSpecError:
    what = f"server `{printable(entry.name)}`" if entry.name else "this entry"
    return InvalidSpecError(
        f"{what} is skipped: {'; '.join(reader.problems)}",
        problems=reader.problems,
        source=reader.culprit.document.source,
        pointer=dotted(reader.pointer),
        line=reader.line or entry.line(),
    )
