"""Writes a `ServerSpec` as an entry of a dialect, and lists what the dialect cannot express.

A variable is written in the dialect's own syntax or not at all. If a command, an argument or a URL cannot be
written, the server is refused; any other field is left out and reported as a loss. The entry is then read
back by the code that reads files, and every difference is a loss too, so nothing is lost silently.
"""

from __future__ import annotations

import copy
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

from dragoman.config.dialect import Entry
from dragoman.config.dialects import NAMES
from dragoman.config.dialects import dialect as dialect_named
from dragoman.config.documents import Document
from dragoman.config.entries import build
from dragoman.config.merge import TemplateReference, differences, loosely, pieces
from dragoman.config.templates import NONE, VariableSyntax, to_template
from dragoman.errors import ConfigError, InvalidSpecError
from dragoman.model import ServerSpec, Stdio
from dragoman.model.keys import keys
from dragoman.model.server import server_keys
from dragoman.struct import Struct, defaults, field_names
from dragoman.trust.sandbox import as_vscode, rules_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dragoman.config.dialect import Dialect
    from dragoman.config.documents import Format
    from dragoman.model import Http, Sse
    from dragoman.model.keys import Key


class Loss(Struct):
    """One thing that an entry cannot express."""

    key: str
    """The field, as `cwd` or `env.TOKEN`; for a key that only its old host knows, that key."""
    why: str

    def __str__(self) -> str:
        return f"{self.key}: {self.why}"


def entry(
    spec: ServerSpec,
    dialect: Dialect,
    *,
    format: Format = "json",  # noqa: A002 -- as in `documents.parse`
    listed: bool | None = None,
    is_typed: bool = False,
) -> tuple[dict[str, Any], list[Loss]]:
    """Write a spec as an entry of a dialect.

    Args:
        spec: The server.
        dialect: The dialect.
        format: The file's format; TOML has no null.
        listed: Whether the entry is an item of a list; the dialect's default unless given.
        is_typed: Whether to write the type of a server behind a URL, if the dialect reads one, even where
            that app writes none.

    Returns:
        The entry, and what is lost in it.

    Raises:
        InvalidSpecError: The dialect cannot express this server.
        ConfigError: The dialect is never written.
    """
    listed = dialect.as_list if listed is None else listed
    if not dialect.writes:
        msg = f"servers of {dialect.title} are not written to a file"
        raise ConfigError(msg)
    writer = _SpecWriter(spec, dialect, format, is_typed=is_typed)
    written = writer.written()
    if writer.problems:
        raise _refused(spec, dialect, writer.problems)
    chosen: tuple[dict[str, Any], dict[str, str]] | None = None
    problems: Sequence[str] = ()
    for reached in writer.ways_to_reach():
        candidate = {**dialect.always, **reached, **written}
        if dialect.needs_args and "command" in candidate:
            candidate.setdefault("args", [])
        candidate = {"name": spec.name} | candidate if listed else candidate
        try:
            unlike = differences(spec, read_back(spec.name, candidate, dialect, listed=listed), dialect.title)
        except InvalidSpecError as error:
            problems = problems or error.problems
            continue
        if chosen is None or ("transport" in chosen[1] and "transport" not in unlike):
            chosen = candidate, unlike
    if chosen is None:
        raise _refused(spec, dialect, problems)
    known = {_folded(loss.key) for loss in writer.losses}
    more = [Loss(key, why) for key, why in chosen[1].items() if _folded(key) not in known]
    return chosen[0], [one.replace(key=as_written(one.key)) for one in (*writer.losses, *more)]


def read_back(name: str, entry: Mapping[str, Any], dialect: Dialect, *, listed: bool = False) -> ServerSpec:
    """Read an entry as from a file of that dialect."""
    pointer = (*dialect.container, 0 if listed else name)
    return build(Entry(name, copy.deepcopy(dict(entry)), Document("", "json", {}), pointer), dialect, "user")


def from_template(text: str, style: VariableSyntax) -> str:
    """Write a template in a dialect's own variable syntax: the inverse of `to_template`.

    Raises:
        ValueError: The syntax cannot express it; the message names the reference.
    """
    if style.escape:
        return text
    written = "".join(piece if isinstance(piece, str) else _reference(piece, style) for piece in pieces(text))
    if loosely(pieces(to_template(written, style))) != loosely(pieces(text)):
        msg = "a `$` in it would be taken for a variable"
        raise ValueError(msg)
    return written


def _reference(reference: TemplateReference, style: VariableSyntax) -> str:
    name = reference.name
    for spelling in style.spellings:
        if spelling.kind == reference.kind and not reference.operator and name.startswith(spelling.prefix):
            return spelling.write(name)
    whole = f"`${{{'input:' if reference.kind == 'input' else ''}{name}}}`"
    match reference.kind:
        case "input" if style.inputs:
            return f"${{input:{name}}}"
        case "place" if style.has_place(name):
            return f"${{{name}}}"
        case "place":
            for variable, template in style.renamed.items():
                if template == f"${{{name}}}" and style.braces:
                    return f"${{{variable}}}"
        case "variable" if not reference.operator or style.defaults:
            default = f":-{reference.default}" if reference.operator else ""
            if style.braces:
                return f"${{{name}{default}}}"
            if style.env_prefix:
                return f"${{env:{name}{default}}}"
        case "variable" if style.braces or style.env_prefix or style.spellings:
            msg = f"a default for {whole} cannot be written"
            raise ValueError(msg)
        case _:
            pass
    msg = f"{whole} cannot be written"
    raise ValueError(msg)


class _SpecWriter:
    """Writes one spec's fields, and collects losses and problems."""

    def __init__(self, spec: ServerSpec, dialect: Dialect, format: Format, *, is_typed: bool) -> None:  # noqa: A002
        self.losses: list[Loss] = []
        self.problems: list[str] = []
        self._spec = spec
        self._dialect = dialect
        self._writes = dialect.writes
        self._has_null = format != "toml"
        self._is_typed = is_typed

    def written(self) -> dict[str, Any]:
        """Return the entry without its type."""
        result: dict[str, Any] = {}
        transport = self._spec.transport
        if self._spec.kind not in self._dialect.remote_types:
            self.problems.append(f"it has no servers of the type `{self._spec.kind}`")
        elif isinstance(transport, Stdio):
            self._stdio(result, transport)
        else:
            self._remote(result, transport)
        self._common(result)
        self._timeouts(result)
        self._extras(result)
        return result

    def ways_to_reach(self) -> list[dict[str, Any]]:
        """Return the ways to write the type, the simplest first."""
        spelled = self._dialect.remote_types[self._spec.kind]
        key = self._writes.get("transport")
        transport = self._spec.transport
        if key is None or isinstance(transport, Stdio):
            return [{key: spelled} if key and spelled else {}]
        others = [self._dialect.remote_types.get(kind, "") for kind in ("http", "sse")]
        ways: list[dict[str, Any]] = [
            {key: one} if one else {} for one in dict.fromkeys([spelled, "", *others])
        ]
        if self._is_typed and not spelled:
            ways.append({key: self._spec.kind})
        if "alternate" in self._writes:
            ways.append({key: spelled, self._writes["alternate"]: transport.alternate})
        return ways

    def _stdio(self, result: dict[str, Any], stdio: Stdio) -> None:
        command = self._vital("command", stdio.command)
        args = [self._vital(f"args.{i}", arg) for i, arg in enumerate(stdio.args)]
        if self._dialect.command_is_list:
            self._put(result, "command", [command, *args])
        else:
            self._put(result, "command", command)
            self._put(result, "args", args or None)
        env: dict[str, str | None] = {}
        for name, value in stdio.env.items():
            if value is None and not self._has_null:
                self._lose(f"env.{name}", "TOML has no null, which takes a variable away")
            elif value is None:
                env[name] = None
            else:
                self._keep(env, f"env.{name}", name, value)
        self._put(result, "env", env or None)
        self._put(result, "log_file", self._plain("log_file", stdio.log_file, keys(Stdio)["log_file"]))
        self._put(result, "cwd", self._plain("cwd", stdio.cwd, keys(Stdio)["cwd"]))
        files = self._plain("env_file", stdio.env_file, keys(Stdio)["env_file"])
        self._put(result, "env_file", files[0] if len(files) == 1 else files or None)
        foreign = as_vscode(rules_of(stdio.sandbox)) if self._dialect.sandbox_is_enabled else None
        if foreign is None:
            self._put(result, "sandbox", _as_json(stdio.sandbox))
        else:
            result |= foreign
        inherit = stdio.inherit_env
        if inherit == "all" and self._writes.get("inherit_env") not in (None, "inherit_env"):
            self._lose("inherit_env", f"{self._dialect.title} passes on named variables only")
        elif inherit != "safe":
            self._put(result, "inherit_env", _as_json(inherit))

    def _remote(self, result: dict[str, Any], remote: Http | Sse) -> None:
        self._put(result, "url", self._vital("url", remote.url))
        headers: dict[str, str] = {}
        named: dict[str, str] = {}
        for name, value in remote.headers.items():
            match pieces(value):
                case [TemplateReference(kind="variable", operator="") as one] if (
                    "header_variables" in self._writes
                ):
                    named[name] = one.name
                case ["Bearer ", TemplateReference(kind="variable", operator="") as one] if (
                    "bearer_variable" in self._writes and name.lower() == "authorization"
                ):
                    self._put(result, "bearer_variable", one.name)
                case _:
                    self._keep(headers, f"headers.{name}", name, value)
        self._put(result, "headers", headers or None)
        self._put(result, "header_variables", named or None)
        if remote.allow_http:
            self._put(result, "allow_http", value=True)
        if remote.tls is not None:
            self._put(result, "tls", self._table("tls", remote.tls))

    def _common(self, result: dict[str, Any]) -> None:
        spec = self._spec
        for name, key in keys(ServerSpec).items():
            value: Any = getattr(spec, name)
            negated = name not in self._writes and key.opposite in self._writes
            if name in ("transport", "timeouts") or value == key.default:
                continue
            if name == "enabled" and negated:
                self._put(result, key.opposite, value=True)
            elif name == "auth":
                self._put(result, name, self._table(name, value, mode=value.mode))
            elif name == "tools":
                self._tools(result, cast("dict[str, Any]", _as_json(value)))
            elif name != "allowed_tools" or "*" not in value:
                self._put(result, name, self._plain(name, value, key))

    def _tools(self, result: dict[str, Any], tools: dict[str, Any]) -> None:
        found = tools if self._dialect.write_tools is None else self._dialect.write_tools(tools)
        if found is None:
            self._lose("tools", f"a variable in a value cannot be written in {self._dialect.title}")
        elif not self._has_null and _holds_null(found):
            self._lose("tools", "TOML has no null, which is a value of an argument")
        else:
            self._put(result, "tools", found)

    def _table(self, field: str, of: Struct, **always: object) -> dict[str, Any]:
        """Return the keys of a table that are not their defaults; none if the dialect has no such table."""
        table: dict[str, Any] = dict(always)
        for name, key in keys(type(of)).items() if field in self._writes else ():
            value: Any = getattr(of, name)
            if value != key.default and (written := self._plain(f"{field}.{name}", value, key)) is not None:
                table[name] = written
        return table

    def _plain(self, place: str, value: Any, key: Key) -> Any:
        """Return a value as JSON data; `None` for a text that cannot be written, which is lost."""
        if key.form == "seconds":
            return self._duration(value)
        if not key.is_template or value is None:
            return _as_json(value)
        if isinstance(value, str):
            return self._text(place, value)
        return [text for one in value if (text := self._text(place, one)) is not None]

    def _timeouts(self, result: dict[str, Any]) -> None:
        wanted = cast("dict[str, float]", self._spec.timeouts)
        if "timeouts" in self._writes:
            durations = {key: self._duration(value) for key, value in wanted.items()}
            self._put(result, "timeouts", durations or None)
            return
        for key, value in wanted.items():
            if key in self._writes:
                self._put(result, key, self._duration(value))
            else:
                self._lose(f"timeouts.{key}", f"{self._dialect.title} has no key for it")

    def _duration(self, seconds: float) -> int | float | str:
        if self._dialect.write_unit == "ms":
            return max(1, round(seconds * 1000))
        if self._dialect.write_unit == "text":
            digits = format(Decimal(repr(float(seconds))), "f")
            return f"{digits.removesuffix('.0')}s"
        return int(seconds) if float(seconds).is_integer() else seconds

    def _extras(self, result: dict[str, Any]) -> None:
        source = self._spec.origin.dialect
        dropped: Mapping[str, str] = dialect_named(source).dropped if source in NAMES else {}
        for key, value in self._spec.extras.items():
            if source != self._dialect.name:
                noted = [
                    note.message for note in self._spec.notes if note.key == key and note.code != "unknown"
                ]
                why = [dropped.get(key, ""), *noted, f"{self._dialect.title} has no such key"]
                self._lose(key, next(filter(None, why)))
            elif key in result or (not self._has_null and _holds_null(value)):
                self._lose(key, "it cannot stand beside what is written")
            else:
                result[key] = copy.deepcopy(value)

    def _vital(self, key: str, template: str) -> str:
        """Write a text that the server cannot do without."""
        try:
            return from_template(template, self._style_of(key))
        except ValueError as error:
            self.problems.append(f"`{key}`: {error}")
            return ""

    def _text(self, key: str, template: str) -> str | None:
        try:
            return from_template(template, self._style_of(key))
        except ValueError as error:
            self._lose(key, f"{error} in {self._dialect.title}")
            return None

    def _style_of(self, key: str) -> VariableSyntax:
        return NONE if self._dialect.literal_when_written else self._dialect.style_of(key.partition(".")[0])

    def _keep(self, table: dict[str, Any], key: str, name: str, template: str) -> None:
        text = self._text(key, template)
        if text is not None:
            table[name] = text

    def _put(self, result: dict[str, Any], field: str, value: object) -> None:
        """Write a field under its key, or lose it where the dialect has none."""
        if value is None:
            return
        if field in self._writes:
            *outer, key = self._writes[field].split(".")
            table = result
            for name in outer:
                table = table.setdefault(name, {})
            table[key] = value
        elif field in ("command", "url", "args"):
            self.problems.append(f"{self._dialect.title} has no key for `{field}`")
        elif isinstance(value, dict) and field in ("env", "headers"):
            for name in cast("dict[str, object]", value):
                self._lose(f"{field}.{name}", f"{self._dialect.title} has no key for it")
        else:
            self._lose(field, f"{self._dialect.title} has no key for it")

    def _lose(self, key: str, why: str) -> None:
        self.losses.append(Loss(key, why))


def _as_json(value: object) -> object:
    """Return a field's value as JSON data; a struct has the fields that are not their defaults."""
    if isinstance(value, Struct):
        usual = defaults(value)
        fields = {name: getattr(value, name) for name in field_names(value)}
        return {name: _as_json(item) for name, item in fields.items() if item != usual.get(name)}
    if isinstance(value, list | tuple):
        return list(cast("Sequence[str]", value))
    if isinstance(value, dict):
        return {key: _as_json(item) for key, item in cast("dict[str, object]", value).items()}
    return value


def _holds_null(value: object) -> bool:
    if isinstance(value, dict):
        return any(_holds_null(item) for item in cast("dict[str, object]", value).values())
    if isinstance(value, list):
        return any(_holds_null(item) for item in cast("list[object]", value))
    return value is None


def as_written(place: str) -> str:
    """Return the name that a key has in files."""
    key = server_keys().get(place)
    return place if key is None or "." in place else key.name


def _folded(key: str) -> str:
    """Names of headers are the same in any case."""
    return key.lower() if key.startswith("headers.") else key


def _refused(spec: ServerSpec, dialect: Dialect, problems: Sequence[str]) -> InvalidSpecError:
    msg = f"server `{spec.name}` cannot be written for {dialect.title}: {'; '.join(problems)}"
    return InvalidSpecError(msg, problems=problems, source=spec.origin.source, line=spec.origin.line)
