"""Turn an entry of any dialect into a `ServerSpec`, or an `InvalidSpecError` with every problem.

The dialect says what its keys mean; the checks are the same for all. Every assumption (a unit, a transport, a
converted value) becomes a note on the spec, unknown keys are kept, and text becomes templates in the
dialect's own variable syntax. Nothing is expanded, looked up or run.
"""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal, cast

from dragoman.config.dialect import LEFT, NOT_A_MAP, NOT_SERVERS, Entry
from dragoman.config.documents import Document, dotted
from dragoman.config.templates import spelled, to_template
from dragoman.config.tool_transforms import read_transforms
from dragoman.config.values import UNKNOWN_UNIT_LIMIT, EntryReader, is_plain, seconds, shown, size_in_bytes
from dragoman.errors import InvalidSpecError
from dragoman.model import (
    ATTRIBUTION_KEYS,
    Auth,
    Http,
    Origin,
    ServerSpec,
    Sse,
    Stdio,
    Timeouts,
    Tls,
)
from dragoman.model.keys import keys
from dragoman.model.server import REMOTE_KEYS
from dragoman.suggest import suggest
from dragoman.trust.limits import read_limits
from dragoman.trust.sandbox import read_sandbox
from dragoman.visible import is_visible, spelled_out

if TYPE_CHECKING:
    from dragoman.config.dialect import Dialect, Scope
    from dragoman.model import Transport
    from dragoman.model.keys import Key
    from dragoman.struct import Struct

KINDS = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamablehttp": "http",
    "remote": "http",
    "sse": "sse",
}
_FOREIGN_KINDS = {
    "ws": "WebSocket",
    "websocket": "WebSocket",
    "tcp": "plain TCP",
    "wside": "an editor's own WebSocket",
    "sseide": "an editor's own SSE",
    "sdk": "servers inside the host's own process",
    "builtin": "servers inside the host's own process",
    "platform": "servers inside the host's own process",
    "frontend": "servers inside the host's own window",
    "inlinepython": "servers whose code stands in the file",
}


def read_transport(
    fields: dict[str, Any], extras: dict[str, Any], entry: Entry, dialect: Dialect, reader: EntryReader
) -> Transport | None:
    """Return the transport that an entry describes, or add problems to the reader.

    Keys that belong to another kind of transport are moved to `extras`, with a note.
    """
    kind = _kind(fields, entry, dialect, reader)
    if kind is None:
        return None
    for field in REMOTE_KEYS if kind == "stdio" else keys(Stdio):
        if field in fields:
            key = entry.spellings.get(reader.spelling(field), reader.spelling(field))
            extras[key] = fields.pop(field)
            reader.note("conflict", key, f"not used by a server of type {kind}")
    if kind == "stdio":
        return _stdio(fields, dialect, reader)
    url = reader.text("url", fields.get("url"), required=f"a server of type `{kind}` needs a `url`")
    headers = reader.texts("headers", fields.get("headers"), header=True)
    if url is None or headers is None:
        return None
    template = to_template(url, dialect.style_of("url"))
    scheme, separator, _ = template.partition("://")
    if not template.startswith("${") and (not separator or scheme.lower() not in ("http", "https")):
        # The URL may contain a secret, so it is not shown.
        reader.problem("url", "expected a URL that starts with http:// or https://")
        return None
    return _remote(kind, template, headers, fields, dialect, reader)


def _remote(
    kind: str,
    url: str,
    headers: dict[str, str],
    fields: dict[str, Any],
    dialect: Dialect,
    reader: EntryReader,
) -> Transport:
    style = dialect.style_of("headers")
    templates = {name: to_template(value, style) for name, value in headers.items()}
    given = reader.boolean("alternate", fields.get("alternate"))
    if "transport" in fields:
        made, alternate = _typed(kind, dialect, reader, alternate=given)
    else:
        made, alternate = _untyped(url, dialect, reader, alternate=given)
    alternate = alternate if given is None else given
    return made(
        url,
        headers=templates,
        alternate=alternate,
        tls=_tls(fields, url, dialect, reader),
        allow_http=reader.boolean("allow_http", fields.get("allow_http")) is True,
    )


def _typed(
    kind: str, dialect: Dialect, reader: EntryReader, *, alternate: bool | None
) -> tuple[type[Http | Sse], bool]:
    """Return what a type means, and whether the other kind is tried too unless the entry says."""
    if kind == "sse" and not dialect.sse_is_http:
        return Sse, dialect.either_kind
    if kind == "sse" and alternate is not False:
        key = reader.spelling("transport")
        reader.note("transport", key, "`sse` tries Streamable HTTP first, then legacy SSE")
    return Http, dialect.either_kind or kind == "sse"


def _untyped(
    url: str, dialect: Dialect, reader: EntryReader, *, alternate: bool | None
) -> tuple[type[Http | Sse], bool]:
    """Return what an address without a type means, and whether the other kind is tried too."""
    key = reader.spelling("url")
    if dialect.untyped_url == "sse":
        reader.note("transport", key, "a URL without a type is legacy SSE in this dialect")
        return Sse, False
    if dialect.untyped_url == "http":
        return Http, False
    path = url.split("?", 1)[0].split("#", 1)[0].rstrip("/")
    only = " only" if alternate is False else ""
    if dialect.untyped_url == "auto" and path.endswith("/sse"):
        order = f"legacy SSE{only or ' first, then HTTP'}"
        reader.note("transport", key, f"no type given, and the path ends in /sse: {order}")
        return Sse, True
    reader.note("transport", key, f"no type given: Streamable HTTP{only or ' first, then legacy SSE'}")
    return Http, True


def _tls(fields: dict[str, Any], url: str, dialect: Dialect, reader: EntryReader) -> Tls | None:
    if "tls" not in fields:
        return None
    table = reader.mapping("tls", fields["tls"])
    for name in table:
        if name not in keys(Tls):
            reader.problem("tls", "expected ca, cert, key or verify", name)
    found = _inner(Tls, "tls", table, dialect, reader)
    for name, value in found.items():
        if isinstance(value, str) and not value.strip():
            reader.problem("tls", "expected the path of a file", name)
    if "key" in found and "cert" not in found:
        reader.problem("tls", "a key needs its certificate: add `cert`", "key")
    if url.lower().startswith("http://"):
        reader.note("unused", reader.spelling("tls"), "a URL that starts with http:// does not use TLS")
    return Tls(**found)


def _inner(
    kind: type[Struct], field: str, table: Mapping[str, Any], dialect: Dialect, reader: EntryReader
) -> dict[str, Any]:
    """Read the keys of a table in an entry; absent ones are left out."""
    found = {
        name: _value(key, field, table.get(name), dialect, reader, inner=name)
        for name, key in keys(kind).items()
    }
    return {name: value for name, value in found.items() if value is not None}


def _value(
    key: Key, field: str, value: object, dialect: Dialect, reader: EntryReader, *, inner: str | None = None
) -> Any:
    """Read a value as its key says; an absent one is `None`."""
    if value is None:
        return None
    match key.form:
        case "flag":
            return reader.boolean(field, value, inner=inner)
        case "choice":
            return reader.choice(field, value, key.choices, inner=inner)
        case "count":
            return reader.count(field, value, inner=inner)
        case "seconds":
            return _duration(field, value, dialect, reader)
        case "size":
            return _size(field, value, reader)
        case "names":
            names = [value] if isinstance(value, str) else value
            return tuple(reader.strings(field, names, inner=inner) or ())
        case "text":
            text = reader.text(field, value, inner=inner)
            if text is None or not key.is_template:
                return text
            return to_template(text, dialect.style_of(field))
        case "table" | "other":
            return _TABLES[field](value, dialect, reader)


def _kind(fields: dict[str, Any], entry: Entry, dialect: Dialect, reader: EntryReader) -> str | None:
    """Decide between `stdio`, `http` and `sse`, or say why it cannot be decided."""
    written = fields.get("transport")
    has_command, has_url = "command" in fields, "url" in fields
    if written is None:
        if dialect.listed_need_transport and isinstance(entry.pointer[-1], int):
            reader.problem("", "`transport` is missing: stdio, http or sse")
            return None
        if has_command and has_url:
            reader.problem(
                "url", "both a `command` and a URL are given; choose one with a type, or remove one"
            )
            return None
        if has_url and dialect.untyped_url == "error":
            reader.problem("url", 'a URL needs a type in this dialect: add "type": "http" or "sse"')
            return None
        if not has_command and not has_url and entry.problems:
            return None
        if not has_command and not has_url:
            unknown = [one for one in reader.notes if one.code == "unknown"]
            guesses = [(one.meant, one.key) for one in unknown if one.meant]
            # A shorter key is less like the one that was meant, but here one of two is missing.
            guesses += [(near, one.key) for one in unknown for near in suggest(one.key, ("command", "url"))]
            guess = f"; did you mean `{guesses[0][0]}` by `{guesses[0][1]}`?" if guesses else ""
            reader.problem("", f"a server needs a `command` (stdio) or a `url` (http, sse){guess}")
            return None
        return "stdio" if has_command else "http"
    if not isinstance(written, str):
        reader.problem("transport", f"expected stdio, http or sse, not {shown(written)}")
        return None
    folded = written.strip().lower().replace("-", "").replace("_", "").replace(" ", "")
    kind = KINDS.get(folded)
    if kind is None:
        if folded in _FOREIGN_KINDS:
            reader.problem("transport", f"{_FOREIGN_KINDS[folded]} (`{written.strip()}`) is not supported")
            return None
        near = suggest(folded, KINDS, count=1)
        guess = f"; did you mean `{KINDS[near[0]]}`?" if near else ""
        reader.problem("transport", f"`{spelled_out(written):.40}` is not stdio, http or sse{guess}")
        return None
    return kind


def _stdio(fields: dict[str, Any], dialect: Dialect, reader: EntryReader) -> Stdio | None:
    command: object = fields.get("command")
    words: list[str] | None = []
    if isinstance(command, list):
        words = reader.strings("command", cast("list[object]", command))
        command = words[0] if words else None
    text = (
        reader.text("command", command, required="a server of type `stdio` needs a `command`")
        if words is not None
        else None
    )
    if dialect.needs_args and isinstance(command, str) and fields.get("args") is None:
        _check_shared(dialect, reader)
    args = reader.strings("args", fields.get("args"))
    env = reader.environment("env", fields.get("env"))
    cwd = reader.text("cwd", fields.get("cwd"))
    env_file = reader.one_or_many("env_file", fields.get("env_file"))
    log_file = reader.text("log_file", fields.get("log_file"))
    if log_file is not None and not log_file.strip():
        reader.problem("log_file", "expected the path of a file")
    inherit = _inherit(fields, reader)
    sandbox, problems, lost = read_sandbox(fields.get("sandbox"))
    for problem in problems:
        reader.problem("sandbox", problem)
    for message in lost:
        reader.note("unused", reader.spelling("sandbox"), message)
    if text is None or args is None or env is None or env_file is None or words is None or reader.problems:
        return None
    args = words[1:] + args
    _note_unsplit(text, args, reader)
    paths = {"command": text, "cwd": cwd, "env_file": env_file[0] if env_file else "", "log_file": log_file}
    _note_home(paths, reader)

    def template(field: str, value: str) -> str:
        return to_template(value, dialect.style_of(field))

    return Stdio(
        template("command", text),
        [template("args", arg) for arg in args],
        env={name: None if value is None else template("env", value) for name, value in env.items()},
        cwd=None if cwd is None else template("cwd", cwd),
        env_file=[template("env_file", name) for name in env_file],
        inherit_env=inherit,
        sandbox=sandbox,
        log_file=None if log_file is None else template("log_file", log_file),
    )


def _check_shared(dialect: Dialect, reader: EntryReader) -> None:
    if PurePath(reader.culprit.document.source).name != ".mcp.json":
        message = f'`args` is missing: {dialect.title} needs `command` and `args`; add "args": []'
        reader.problem("", message)


def _note_unsplit(command: str, args: list[str], reader: EntryReader) -> None:
    if len(command.split()) > 1 and not args and "/" not in command and "\\" not in command:
        message = "it has spaces and no `args`; if it does not start, move all words but the first to `args`"
        reader.note("type", reader.spelling("command"), message)


def _note_home(paths: dict[str, str | None], reader: EntryReader) -> None:
    for field, path in paths.items():
        if path and (path == "~" or path.startswith(("~/", "~\\"))):
            reader.note("path", reader.spelling(field), "`~` means the home directory")


def _inherit(fields: dict[str, Any], reader: EntryReader) -> Literal["safe", "all"] | list[str]:
    value = fields.get("inherit_env")
    match value:
        case None:
            return "safe"
        case "safe" | "all":
            return value
        case list():
            return reader.strings("inherit_env", cast("list[object]", value)) or []
        case _:
            reader.problem("inherit_env", f'expected "safe", "all" or a list of names, not {shown(value)}')
            return "safe"


_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
_FIELD_OR_DATE = re.compile(
    r"[^\W\d][\w.-]*|[12]\d{3}(?:[-/.年](?:0?[1-9]|1[0-2])(?:[-/.月](?:0?[1-9]|[12]\d|3[01])日?|月)?|年)?"
)
"""The name of a field, or a year with or without its month and day."""


def build(entry: Entry, dialect: Dialect, scope: Scope) -> ServerSpec:
    """Make the spec that an entry describes.

    Raises:
        InvalidSpecError: The entry is invalid; the error has every problem.
    """
    reader = EntryReader(entry, dialect)
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


def read_entries(
    servers: Mapping[str, ServerSpec | Mapping[str, Any]], dialect: Dialect
) -> tuple[list[ServerSpec], list[InvalidSpecError]]:
    """Read the servers of a program, by name: specs, or entries as in the files of a dialect.

    An invalid entry is logged and skipped; it is returned as a problem.
    """
    specs: list[ServerSpec] = []
    problems: list[InvalidSpecError] = []
    for name, given in servers.items():
        if isinstance(given, ServerSpec):
            specs.append(given.replace(name=name))
            continue
        fields: dict[str, Any] = (
            dict(given) if isinstance(cast("object", given), Mapping) else {NOT_A_MAP: given}
        )
        entry = Entry(name, copy.deepcopy(fields), Document("code", "json", {}), ("mcpServers", name))
        try:
            specs.append(build(entry, dialect, "code"))
        except InvalidSpecError as error:
            logging.getLogger("dragoman").error("%s", error)
            problems.append(error)
    return specs, problems


def _note_references(entry: Entry, dialect: Dialect, reader: EntryReader) -> None:
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


def _check_name(entry: Entry, reader: EntryReader) -> None:
    if not entry.name.strip():
        reader.problem("name", "a server needs a name, a non-empty string")
    elif not is_visible(entry.name):
        reader.problem("", "the server's name has invisible characters")


def _sort_keys(entry: Entry, dialect: Dialect, reader: EntryReader) -> tuple[dict[str, Any], dict[str, Any]]:
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
            reader.note("conflict", written, f"not used: `{other}` sets the same and comes first")
            extras[written] = value
        else:
            fields[key.field] = value
            reader.name(key.field, spelling)
    return fields, extras


def _note_extra(spelling: str, dialect: Dialect, reader: EntryReader) -> None:
    if spelling in dialect.dropped:
        reader.note("unused", spelling, dialect.dropped[spelling])
    elif not spelling.startswith(("$", "_", "//")):
        near = suggest(spelling, dialect.keys, count=1, cutoff=0.75)
        meant = near[0] if near else ""
        guess = f"; did you mean `{meant}`?" if near else ""
        reader.note("unknown", spelling, f"unknown key, kept as it is{guess}", meant=meant)


def _timeouts(fields: dict[str, Any], dialect: Dialect, reader: EntryReader) -> Timeouts:
    nested = reader.mapping("timeouts", fields.get("timeouts"))
    wanted: dict[str, object] = {}
    for name, value in nested.items():
        if name in keys(Timeouts):
            wanted[name] = value
            reader.name(name, f"timeouts.{name}")
        else:
            reader.problem("timeouts", "expected connect, call or idle", name)
    wanted.update({name: fields[name] for name in keys(Timeouts) if name in fields})
    found: dict[str, float] = {}
    for name, value in wanted.items():
        duration = _duration(name, value, dialect, reader)
        if duration is not None:
            found[name] = duration
    return cast("Timeouts", found)


def _duration(name: str, value: object, dialect: Dialect, reader: EntryReader) -> float | None:
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
        message = f'hosts disagree about the unit; {value} is read as {meant}: write "{result:g}s"'
        reader.note("unit", spelling, message)
    elif unit == "ms" and is_plain(value):
        reader.note("unit", spelling, f"{value} is in milliseconds here: {result:g} s")
    return result


def _common(
    fields: dict[str, Any], extras: dict[str, Any], dialect: Dialect, reader: EntryReader
) -> dict[str, Any]:
    """Read the keys besides those of the transport and the timeouts; absent ones are left out."""
    found: dict[str, Any] = {}
    for name, key in keys(ServerSpec).items():
        match name:
            case "transport" | "timeouts":
                continue
            case "enabled":
                value = _enabled(fields, reader)
            case "auth":
                value = _auth(fields.get("auth"), extras, dialect, reader)
            case _:
                value = _value(key, name, fields.get(name), dialect, reader)
        if value is not None:
            found[name] = value
    allowed = found.get("allowed_tools")
    if allowed is not None and ("*" in allowed or (not allowed and dialect.empty_allows_all)):
        del found["allowed_tools"]
    if keys(ServerSpec)["naming"].contains not in found.get("naming", "{tool}"):
        reader.problem("naming", "{tool} is missing; for example {server}__{tool}")
    return found


def _enabled(fields: dict[str, Any], reader: EntryReader) -> bool | None:
    enabled = reader.boolean("enabled", fields.get("enabled"))
    disabled = reader.boolean("disabled", fields.get("disabled"))
    if enabled is not None and disabled is not None and enabled == disabled:
        reader.note(
            "conflict",
            "disabled",
            "`enabled` and `disabled` contradict each other; it stays disabled",
        )
        return False
    if disabled is not None:
        return not disabled
    return enabled


def _fallback(
    value: object, _dialect: Dialect, reader: EntryReader
) -> list[str] | dict[str, list[str]] | None:
    """Read the fallbacks: one or many names, or one or many for each tool."""
    if not isinstance(value, dict):
        return reader.one_or_many("fallback", value)
    found: dict[str, list[str]] = {}
    for tool, names in cast("dict[str, object]", value).items():
        several = reader.strings("fallback", [names] if isinstance(names, str) else names, inner=tool)
        if several is not None:
            found[tool] = several
    return found


def _attribution(value: object, _dialect: Dialect, reader: EntryReader) -> dict[str, str] | None:
    """Read the pointers to the sources of answers."""
    found: dict[str, str] = {}
    for name, place in reader.mapping("attribution", value).items():
        if name not in ATTRIBUTION_KEYS:
            reader.problem("attribution", f"expected one of {', '.join(ATTRIBUTION_KEYS)}", name)
        elif (pointer := reader.text("attribution", place, inner=name)) is not None:
            if _POINTER.fullmatch(pointer) or (name == "updated" and _FIELD_OR_DATE.fullmatch(pointer)):
                found[name] = pointer
            elif name == "updated":
                message = (
                    f"expected a date such as 2026-01-30, a field or a JSON pointer, not {shown(pointer)}"
                )
                reader.problem("attribution", message, name)
            else:
                message = f"expected a JSON pointer such as /results/*/title, not {shown(pointer)}"
                reader.problem("attribution", message, name)
    return found or None


def _limits(value: object, _dialect: Dialect, reader: EntryReader) -> dict[str, float] | None:
    """Read how much a server may send or get."""
    found: dict[str, float] = {}
    for name, limit in reader.mapping("limits", value).items():
        if problems := read_limits({name: limit})[1]:
            reader.problem("limits", problems[0].partition("` ")[2], name)
        else:
            found[name] = limit
    return found or None


_TABLES: Mapping[str, Callable[[object, Dialect, EntryReader], Any]] = {
    "fallback": _fallback,
    "attribution": _attribution,
    "limits": _limits,
    "tools": read_transforms,
}
"""What reads the keys whose values have rules of their own."""


def _size(name: str, value: object, reader: EntryReader) -> int | None:
    try:
        return size_in_bytes(value)
    except ValueError as error:
        reader.problem(name, str(error))
        return None


def _auth(value: object, extras: dict[str, Any], dialect: Dialect, reader: EntryReader) -> Auth | None:
    if value is None:
        return None
    if isinstance(value, str):
        mode = reader.choice("auth", value, keys(Auth)["mode"].choices)
        return None if mode is None else Auth(mode=cast("Literal['auto', 'none', 'oauth']", mode))
    table = {key: item for key, item in reader.mapping("auth", value).items() if item is not None}
    _set_aside(table, extras, reader)
    if isinstance(scopes := table.get("scopes"), str):
        table["scopes"] = scopes.split()
    return Auth(**_inner(Auth, "auth", {"mode": "oauth", **table}, dialect, reader))


def _set_aside(table: dict[str, Any], extras: dict[str, Any], reader: EntryReader) -> None:
    """Keep unknown keys of an `auth` table."""
    unknown = {key: table.pop(key) for key in list(table) if key not in keys(Auth)}
    if unknown:
        spelling = reader.spelling("auth")
        extras[spelling] = unknown
        names = ", ".join(spelled_out(name) for name in unknown)
        reader.note("unused", spelling, f"unknown keys in it, kept as they are: {names}")


def _invalid(reader: EntryReader, entry: Entry) -> InvalidSpecError:
    what = f"server `{spelled_out(entry.name)}`" if entry.name else "this entry"
    return InvalidSpecError(
        f"{what} is skipped: {'; '.join(reader.problems)}",
        problems=reader.problems,
        server=entry.name,
        source=reader.culprit.document.source,
        pointer=dotted(reader.pointer),
        line=reader.line or entry.line(),
    )
