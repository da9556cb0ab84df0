"""An entry of any dialect becomes a `ServerSpec`, or an `InvalidSpecError` with every problem at once.

The dialect says what its keys mean; the checks are the same for all. Every assumption (a unit, a kind
of transport, a converted value) is noted on the spec, unknown keys are kept, and text is turned into
templates by the dialect's own variable style. Nothing is expanded, looked up or run.
"""

from __future__ import annotations

import difflib
from dataclasses import fields as dataclass_fields
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

from dragoman.config.dialect import LEFT, NOT_A_MAP, NOT_SERVERS
from dragoman.config.documents import dotted, printable
from dragoman.config.durations import UNKNOWN_UNIT_LIMIT, is_plain, seconds
from dragoman.config.expand import to_template
from dragoman.config.reading import Reader, shown
from dragoman.errors import InvalidSpecError
from dragoman.model import Auth, Http, Origin, ServerSpec, Sse, Stdio, Timeouts

if TYPE_CHECKING:
    from dragoman.config.dialect import Dialect, Entry, Scope
    from dragoman.model import Transport

_KINDS = {
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
}

_CHOICES: dict[str, tuple[str, ...]] = {
    "replace": ("start-first", "stop-first"),
    "trust": ("warn", "strict", "off"),
    "wire": ("dragoman", "sdk"),
    "protocol": ("auto", "legacy", "modern"),
}


class _Common(TypedDict, total=False):
    """The fields that a file can set besides the transport; named as in `ServerSpec`."""

    enabled: bool
    required: bool
    lazy: bool
    reconnect: bool
    trust_annotations: bool
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
    _check_name(entry, reader)
    transport = _transport(fields, extras, entry, dialect, reader)
    common = _common(fields, extras, dialect, reader)
    timeouts = _timeouts(fields, dialect, reader)
    if reader.problems or transport is None:
        raise _invalid(reader, entry)
    origin = Origin(
        source=entry.document.source,
        line=entry.line(),
        dialect=dialect.name,
        scope=entry.scope or scope,
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
        near = difflib.get_close_matches(spelling, dialect.keys, n=1, cutoff=0.75)
        guess = f"; did you mean `{near[0]}`?" if near else ""
        reader.note("unknown", spelling, f"this means nothing here and is kept as it is{guess}")


_OF_STDIO = ("command", "args", "env", "env_file", "inherit_env", "cwd")
_OF_URL = ("url", "headers", "auth")


def _transport(
    fields: dict[str, Any], extras: dict[str, Any], entry: Entry, dialect: Dialect, reader: Reader
) -> Transport | None:
    kind = _kind(fields, entry, dialect, reader)
    if kind is None:
        return None
    for field in _OF_URL if kind == "stdio" else _OF_STDIO:
        if field in fields:
            key = entry.spellings.get(reader.spelling(field), reader.spelling(field))
            extras[key] = fields.pop(field)
            reader.note("conflict", key, f"a server of type {kind} has no use for it")
    if kind == "stdio":
        return _stdio(fields, dialect, reader)
    url = reader.text("url", fields.get("url"), required=f"a server of type `{kind}` needs a `url`")
    headers = reader.texts("headers", fields.get("headers"), header=True)
    if url is None or headers is None:
        return None
    template = to_template(url, dialect.style)
    scheme, separator, _ = template.partition("://")
    if not template.startswith("${") and (not separator or scheme.lower() not in ("http", "https")):
        # The address itself may hold a secret, so it is not shown.
        reader.problem("url", "expected an address that begins with http:// or https://")
        return None
    return _remote(kind, template, headers, dialect, reader, typed="transport" in fields)


def _remote(
    kind: str, url: str, headers: dict[str, str], dialect: Dialect, reader: Reader, *, typed: bool
) -> Transport:
    templates = {name: to_template(value, dialect.style) for name, value in headers.items()}
    if typed:
        if kind == "sse" and not dialect.sse_is_http:
            return Sse(url, headers=templates, alternate=dialect.either_kind)
        if kind == "sse":
            reader.note(
                "transport",
                reader.spelling("transport"),
                "`sse` tries Streamable HTTP first, then legacy SSE",
            )
        return Http(url, headers=templates, alternate=dialect.either_kind or kind == "sse")
    key = reader.spelling("url")
    if dialect.untyped_url == "sse":
        reader.note("transport", key, "a URL without a type is legacy SSE in this dialect")
        return Sse(url, headers=templates)
    if dialect.untyped_url == "http":
        return Http(url, headers=templates)
    path = url.split("?", 1)[0].split("#", 1)[0].rstrip("/")
    if dialect.untyped_url == "auto" and path.endswith("/sse"):
        reader.note("transport", key, "no type given, and the path ends in /sse: legacy SSE first, then HTTP")
        return Sse(url, headers=templates, alternate=True)
    reader.note("transport", key, "no type given: Streamable HTTP first, then legacy SSE")
    return Http(url, headers=templates, alternate=True)


def _kind(fields: dict[str, Any], entry: Entry, dialect: Dialect, reader: Reader) -> str | None:
    """Decide between `stdio`, `http` and `sse`, or say why it cannot be decided."""
    written = fields.get("transport")
    has_command, has_url = "command" in fields, "url" in fields
    if written is None:
        if dialect.listed_need_transport and isinstance(entry.pointer[-1], int):
            reader.problem("", "`transport` is missing: stdio, http or sse")
            return None
        if has_command and has_url:
            reader.problem(
                "url", "both a `command` and a URL are given; say which one with a type, or remove one"
            )
            return None
        if has_url and dialect.untyped_url == "error":
            reader.problem("url", 'a URL needs a type in this dialect: add "type": "http" or "sse"')
            return None
        if not has_command and not has_url:
            reader.problem("", "a server needs a `command` (stdio) or a `url` (http, sse)")
            return None
        return "stdio" if has_command else "http"
    if not isinstance(written, str):
        reader.problem("transport", f"expected stdio, http or sse, not {shown(written)}")
        return None
    folded = written.strip().lower().replace("-", "").replace("_", "").replace(" ", "")
    kind = _KINDS.get(folded)
    if kind is None:
        if folded in _FOREIGN_KINDS:
            reader.problem("transport", f"{_FOREIGN_KINDS[folded]} (`{written.strip()}`) is not supported")
            return None
        near = difflib.get_close_matches(folded, _KINDS, n=1, cutoff=0.5)
        guess = f"; did you mean `{_KINDS[near[0]]}`?" if near else ""
        reader.problem("transport", f"`{printable(written):.40}` is no transport: stdio, http or sse{guess}")
        return None
    return kind


def _stdio(fields: dict[str, Any], dialect: Dialect, reader: Reader) -> Stdio | None:
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
    args = reader.strings("args", fields.get("args"))
    env = reader.environment("env", fields.get("env"))
    cwd = reader.text("cwd", fields.get("cwd"))
    env_file = reader.one_or_many("env_file", fields.get("env_file"))
    inherit = _inherit(fields, reader)
    if text is None or args is None or env is None or env_file is None or words is None or reader.problems:
        return None
    args = words[1:] + args
    _note_unsplit(text, args, reader)
    _note_home({"command": text, "cwd": cwd or "", "env_file": env_file[0] if env_file else ""}, reader)

    def template(value: str) -> str:
        return to_template(value, dialect.style)

    return Stdio(
        template(text),
        [template(arg) for arg in args],
        env={name: None if value is None else template(value) for name, value in env.items()},
        cwd=None if cwd is None else template(cwd),
        env_file=[template(name) for name in env_file],
        inherit_env=inherit,
    )


def _note_unsplit(command: str, args: list[str], reader: Reader) -> None:
    if len(command.split()) > 1 and not args and "/" not in command and "\\" not in command:
        message = (
            "it has spaces and no `args`; if it does not start, put every word but the first into `args`"
        )
        reader.note("type", reader.spelling("command"), message)


def _note_home(paths: dict[str, str], reader: Reader) -> None:
    for field, path in paths.items():
        if path == "~" or path.startswith(("~/", "~\\")):
            reader.note("path", reader.spelling(field), "the `~` is taken as the home directory")


def _inherit(fields: dict[str, Any], reader: Reader) -> Literal["safe", "all"] | list[str]:
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
    for name in ("required", "lazy", "reconnect", "trust_annotations"):
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
        return None if found is None else to_template(found, dialect.style)

    scopes = table.get("scopes")
    scopes = scopes.split() if isinstance(scopes, str) else reader.strings("auth", scopes, inner="scopes")
    mode = reader.choice("auth", table.get("mode", "oauth"), _AUTH_MODES, inner="mode")
    return Auth(
        mode=cast("Literal['auto', 'none', 'oauth']", mode or "auto"),
        client_id=text("client_id"),
        client_secret=text("client_secret"),
        scopes=tuple(scopes or ()),
        callback_port=reader.count("auth", table.get("callback_port"), inner="callback_port"),
        redirect_uri=text("redirect_uri"),
        metadata_url=text("metadata_url"),
        resource=text("resource"),
    )


_AUTH_MODES = ("auto", "none", "oauth")
_AUTH_KEYS = frozenset(field.name for field in dataclass_fields(Auth))


def _set_aside(table: dict[str, Any], extras: dict[str, Any], reader: Reader) -> None:
    """Keep keys of an `auth` table that mean nothing here."""
    unknown = {key: table.pop(key) for key in list(table) if key not in _AUTH_KEYS}
    if unknown:
        spelling = reader.spelling("auth")
        extras[spelling] = unknown
        names = ", ".join(printable(name) for name in unknown)
        reader.note("unknown", spelling, f"these keys of it mean nothing here and are kept: {names}")


def _invalid(reader: Reader, entry: Entry) -> InvalidSpecError:
    what = f"server `{printable(entry.name)}`" if entry.name else "this entry"
    return InvalidSpecError(
        f"{what} is skipped: {'; '.join(reader.problems)}",
        problems=reader.problems,
        source=reader.culprit.document.source,
        pointer=dotted(reader.pointer),
        line=reader.line or entry.line(),
    )
