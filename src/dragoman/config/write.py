"""Writes configuration files: under a lock, atomically, and only the entry in question.

A change reads the file after it holds the lock, so two programs never undo each other's changes. Links are
followed, the mode is kept, and a new file is private if it is the user's own or has literal secrets. The
catalog of well-known servers is here too.
"""

from __future__ import annotations

import codecs
import contextlib
import copy
import difflib
import shlex
import stat
import tomllib
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from filelock import FileLock, Timeout

from dragoman.config import edit
from dragoman.config.dialects import HOSTS, dialect
from dragoman.config.documents import MAX_BYTES, dotted, parse
from dragoman.config.entries import build
from dragoman.config.export import entry, read_back
from dragoman.config.files import format_of
from dragoman.config.load import detect, place_path
from dragoman.config.merge import TemplateReference, differences, pieces
from dragoman.config.templates import ExpansionContext, expand_home, variables
from dragoman.errors import ConfigError, ConfigSyntaxError, InvalidSpecError
from dragoman.model import Http, Origin, ServerSpec, Stdio, Timeouts
from dragoman.model.keys import keys
from dragoman.model.server import REMOTE_KEYS
from dragoman.storage.files import private_folder, write_atomically
from dragoman.struct import Struct, field
from dragoman.suggest import suggest

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from dragoman.config.dialect import Dialect, Scope
    from dragoman.config.documents import Document, Format, Pointer
    from dragoman.config.export import Loss
    from dragoman.config.profiles import Profile
    from dragoman.model import Settings

LOCK_TIMEOUT = 10.0
_RULES_DIALECT = "dragoman"
"""The dialect whose files have rules for calls."""
_POLICY: Pointer = ("mcp", "policy")
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Target(Struct, kw_only=True):
    """A file that servers are written to, and how they are written."""

    path: Path
    dialect: Dialect
    root: str
    """The project's directory."""
    format: Format = "json"
    backup: bool = False
    """Whether to keep a copy of the old file: it belongs to another program."""
    scope: str = ""
    """Whose file it is, if known; a project's file is not written outside the project."""


def target(
    profile: Profile,
    expansion: ExpansionContext,
    *,
    config: str | None = None,
    scope: Scope | None = None,
) -> Target:
    """Decide which file a change goes to.

    Args:
        profile: The application whose configuration it is.
        expansion: The values of variables in paths.
        config: The file that the user named.
        scope: `project` for the project's own file; the profile's usual one unless given.

    Raises:
        ConfigError: The profile has no such file.
    """
    variable = profile.config_variable()
    named = config or (expansion.env.get(variable, "") if variable and scope is None else "")
    if named:
        path = Path(expansion.root, expand_home(named, expansion.home))
        return _named_target(profile, path, expansion)
    places = [
        (place, path)
        for place in profile.all_places()
        if "*" not in place.path and (path := place_path(place.path, expansion)) is not None
    ]
    if scope == "project":
        of_project = [found for found in places if found[0].scope == "project"]
        if not of_project:
            msg = f"the profile `{profile.app}` has no file in the project"
            raise ConfigError(msg, hint="leave `--scope` out, or name a file with `--config`")
        place, path = next((found for found in of_project if found[1].is_file()), of_project[0])
        return target_at(path, place.dialect or profile.default_dialect, expansion.root, scope)
    written = profile.written_file()
    path = place_path(written, expansion) if written else None
    if path is None:
        msg = f"the profile `{profile.app}` has no file of its own to write to"
        variables = f"set {profile.environment}_MCP_* in the environment" if profile.environment else ""
        raise ConfigError(msg, hint=variables or "name one with `--config FILE`")
    found = next((place for place, candidate in places if candidate == path), None)
    chosen = (found.dialect if found is not None else "") or profile.default_dialect
    scope_found = "user" if found is not None and found.scope == "user" else ""
    return target_at(path, chosen, expansion.root, scope_found)


def target_of_spec(spec: ServerSpec, root: str) -> Target:
    """Return the file in which a server is defined.

    Raises:
        ConfigError: It is defined by the environment, where nothing can be written.
    """
    origin = spec.origin
    if origin.source == "environment":
        msg = f"server `{spec.name}` is defined by the environment variable `{origin.pointer}`"
        raise ConfigError(msg, source=origin.source, hint="unset or change it where it is set")
    return target_at(Path(origin.source), origin.dialect, root, origin.scope)


def target_at(path: Path, dialect_name: str, root: str, scope: str = "") -> Target:
    """Return a file and the dialect with this name."""
    return Target(
        path=path,
        dialect=dialect(dialect_name),
        root=root,
        format=format_of(path),
        backup=dialect_name in HOSTS,
        scope=scope,
    )


def put(target: Target, specs: Sequence[ServerSpec], *, replaces: bool) -> dict[str, list[Loss]]:
    """Write servers into a file, all in one step.

    Args:
        target: The file.
        specs: The servers.
        replaces: Whether to replace a server with the same name.

    Returns:
        What was lost of each server.

    Raises:
        ConfigError: Nothing was written.
    """
    losses: dict[str, list[Loss]] = {}

    def change(document: Document) -> Document:
        for spec in specs:
            present = edit.entry_named(document, target.dialect, target.root, spec.name)
            if present is not None and not replaces:
                msg = f"a server called `{spec.name}` is there already"
                hint = "`--replace` replaces it"
                raise ConfigError(msg, source=str(target.path), line=present.line(), hint=hint)
            pointer = edit.slot(document, target.dialect, target.root, spec.name)
            listed = isinstance(pointer[-1], int)
            fields, losses[spec.name] = entry(spec, target.dialect, format=target.format, listed=listed)
            document = edit.put(document, pointer, fields)
            _check(document, target, spec.name, read_back(spec.name, fields, target.dialect, listed=listed))
        return document

    apply(target, change, private=any(_holds_literals(spec) for spec in specs))
    return losses


def remove(target: Target, name: str, pointer: str = "") -> None:
    """Remove a server from a file."""

    def change(document: Document) -> Document:
        return edit.remove(document, _pointer(document, target, name, pointer))

    apply(target, change)


def switch(target: Target, name: str, pointer: str = "", *, on: bool) -> None:
    """Set a server's own switch, under the key that its entry has or that the dialect writes.

    Raises:
        ConfigError: The dialect has no such key.
    """

    def change(document: Document) -> Document:
        place = _pointer(document, target, name, pointer)
        found = edit.entry_named(document, target.dialect, target.root, name, pointer)
        meanings = {key: meaning.field for key, meaning in target.dialect.keys.items()}
        written = found.fields if found else {}
        present = [key for key in written if meanings.get(key) in ("enabled", "disabled")]
        if not present:
            writes = target.dialect.writes
            present = [writes[field] for field in ("enabled", "disabled") if field in writes][:1]
        if not present:
            msg = f"{target.dialect.title} has no key that switches a server {'on' if on else 'off'}"
            hint = "`dragoman remove` takes it out"
            raise ConfigError(msg, source=str(target.path), pointer=pointer, hint=hint)
        for key in present:
            document = edit.put(document, (*place, key), on if meanings.get(key) == "enabled" else not on)
        return document

    apply(target, change)


def rules_target(settings: Settings, otherwise: Target) -> Target | None:
    """Return the user's file for one more rule, which comes after all rules that the user has.

    Args:
        settings: The configuration in effect.
        otherwise: The file for changes, if the user has no rules yet.

    Returns:
        The file; `None` if rules of that file would not be read.
    """
    own = [one for one in settings.policy if one.scope == "user"]
    if own:
        # Of two files with rules, the weaker one: the first rule that matches decides.
        return target_at(Path(own[-1].source), _RULES_DIALECT, otherwise.root)
    return otherwise if otherwise.dialect.name == _RULES_DIALECT else None


def add_rule(target: Target, rule: Mapping[str, Any], *, before: Mapping[str, Any] | None = None) -> None:
    """Add a rule to a file's policy, after all others, or before one that is there.

    Raises:
        ConfigError: Nothing was written.
    """

    def change(document: Document) -> Document:
        policy = edit.value_at(document.data, _POLICY)
        place = _POLICY if isinstance(policy, list) else (*_POLICY, "rules")
        rules = edit.value_at(document.data, place)
        if before:
            listed = cast("list[Any]", rules) if isinstance(rules, list) else []
            if before not in listed:
                msg = "the rule that asks is not there any more"
                raise ConfigError(msg, source=str(target.path), pointer=dotted(place), hint="answer again")
            number = listed.index(before)
            _check_overtakes_none(rule, listed[number:], source=str(target.path), pointer=dotted(place))
            changed = edit.insert(document, (*place, number), dict(rule))
        elif isinstance(rules, list):
            changed = edit.put(document, (*place, len(cast("list[Any]", rules))), dict(rule))
        elif rules is None and isinstance(policy, dict):
            changed = edit.put(document, place, [dict(rule)])
        elif policy is None:
            changed = edit.put(document, _POLICY, {"rules": [dict(rule)]})
        else:
            msg = "the file is left as it is: `policy` must be a list of rules, or have one"
            raise ConfigError(msg, source=str(target.path), pointer=dotted(place), hint="fix it by hand")
        return changed

    apply(target, change)


def _check_overtakes_none(
    rule: Mapping[str, Any], later: Sequence[Any], *, source: str, pointer: str
) -> None:
    """Check that no rule that denies comes too late because of one about more than single arguments.

    The file may have another such rule since the person was shown what would be written.

    Raises:
        ConfigError: One would.
    """
    denies = any(isinstance(one, dict) and cast("Any", one).get("action") == "deny" for one in later)
    if denies and rule.get("other_arguments") is not False:
        msg = "a rule that denies would come too late: it is after the rule that asks"
        raise ConfigError(msg, source=source, pointer=pointer, hint="move it before the rule that asks")


def change_values(target: Target, name: str, pointer: str, values: Mapping[str, Any]) -> bool:
    """Change single values of a server's entry; everything else in the file stays byte for byte.

    Args:
        target: The file.
        name: The server.
        pointer: The dotted pointer of its entry.
        values: By dragoman's own keys, as `env.TOKEN` or `timeouts.call`, whatever the dialect of the file
            is; None removes a value.

    Returns:
        Whether anything was written.

    Raises:
        ConfigError: A key or value is invalid, or the file cannot express it; nothing was written.
    """
    return apply(target, lambda document: _with_values(document, target, name, pointer, values))


def preview_values(target: Target, name: str, pointer: str, values: Mapping[str, Any]) -> str:
    """Return what `change_values` would change, as a unified diff; empty if nothing would change."""
    text = _text_of(target.path)
    document = parse(text, str(target.path), target.format)
    changed = _with_values(document, target, name, pointer, values).text
    file = str(target.path)
    lines = difflib.unified_diff(text.splitlines(), changed.splitlines(), file, file, n=2, lineterm="")
    return "\n".join(lines)


def _with_values(
    document: Document, target: Target, name: str, pointer: str, values: Mapping[str, Any]
) -> Document:
    place = _pointer(document, target, name, pointer)
    found = edit.entry_named(document, target.dialect, target.root, name, pointer)
    assert found is not None  # noqa: S101 -- `_pointer` found it
    listed = isinstance(place[-1], int)
    before = build(found, target.dialect, "user")
    after = _changed_spec(before, values, source=str(target.path))
    how: dict[str, Any] = {"format": target.format, "listed": listed}
    raw = edit.value_at(document.data, place)
    has_type = isinstance(raw, dict) and any(
        key in raw for key, meaning in target.dialect.keys.items() if meaning.field == "transport"
    )
    old, known = entry(before, target.dialect, is_typed=has_type, **how)
    new, losses = entry(after, target.dialect, is_typed=has_type or "transport" in values, **how)
    lost = [str(loss) for loss in losses if loss not in known]
    if lost:
        msg = f"the format of this file cannot express it: {'; '.join(lost)}"
        host, hint = target.dialect.name, ""
        if host in HOSTS and target.scope != "session":
            hint = f"copy it first: `dragoman import {host} --only {shlex.quote(name)} --write`"
        raise ConfigError(msg, source=str(target.path), pointer=dotted(place), hint=hint)
    for path, value in _leaves(old, new):
        for alias in _timeout_aliases(path, raw, target.dialect):
            document = edit.remove(document, (*place, alias))
        written = (*place, *_as_spelled(path, raw, target.dialect))
        if value is not None:
            document = edit.put(document, written, value)
        elif edit.value_at(document.data, written) is not None:
            document = edit.remove(document, written)
    wanted = read_back(name, new, target.dialect, listed=listed)
    changed = edit.entry_named(document, target.dialect, target.root, name, pointer)
    if changed is None or differences(wanted, build(changed, target.dialect, "user"), target.dialect.title):
        msg = f"the file is left as it is: server `{name}` would not be read back from it"
        raise ConfigError(msg, source=str(target.path), pointer=dotted(place), hint="change it by hand")
    return document


def _changed_spec(spec: ServerSpec, values: Mapping[str, Any], *, source: str) -> ServerSpec:
    """Return the spec with values changed by dragoman's own keys."""
    own = dialect("dragoman")
    fields = copy.deepcopy(entry(spec, own)[0])
    for key, value in values.items():
        first, _, rest = key.partition(".")
        known = sorted(own.writes.values())
        if first not in known:
            near = suggest(first, known, count=1)
            hint = f"did you mean `{near[0]}`?" if near else f"known keys: {', '.join(known)}"
            msg = f"unknown key `{key}`"
            raise ConfigError(msg, hint=hint)
        table: dict[str, Any] = fields
        if rest:
            inner = fields.setdefault(first, {})
            if not isinstance(inner, dict):
                msg = f"`{first}` has no keys of its own, so `{key}` cannot be set"
                raise ConfigError(msg)
            table = cast("dict[str, Any]", inner)
        if value is None:
            table.pop(rest or first, None)
        else:
            table[rest or first] = value
        if rest and not table:
            del fields[first]
    if isinstance(spec.transport, Stdio) == ("url" in fields):
        # The other transport needs another type; it is guessed from what is there.
        fields.pop("transport", None)
        others = keys(Stdio) if "url" in fields else REMOTE_KEYS
        fields = {key: value for key, value in fields.items() if key not in others}
    try:
        found = read_back(spec.name, fields, own)
    except InvalidSpecError as error:
        msg = f"server `{spec.name}` would be invalid: {'; '.join(error.problems)}"
        raise ConfigError(msg, source=source) from None
    is_local = isinstance(found.transport, Stdio)
    others = REMOTE_KEYS if is_local else keys(Stdio)
    for key, value in values.items():
        if value is not None and key.partition(".")[0] in others:
            what = "a local command" if is_local else "behind a URL"
            msg = f"server `{spec.name}` is {what}, which has no `{key}`"
            raise ConfigError(msg)
    wrong = [note.message for note in found.notes if note.code == "unknown"]
    if wrong:
        raise ConfigError(wrong[0], source=source)
    return found.replace(extras=spec.extras, origin=spec.origin, notes=spec.notes)


def _leaves(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield what differs between two entries, by key or by a key inside a table; None: it is gone."""
    for key in {**old, **new}:
        before, after = old.get(key), new.get(key)
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            inner = _leaves(cast("dict[str, Any]", before), cast("dict[str, Any]", after))
            yield from (((key, *keys), value) for keys, value in inner)
        else:
            yield (key,), after


def _as_spelled(keys: tuple[str, ...], raw: Any, found: Dialect) -> tuple[str, ...]:
    """Return keys as the entry spells them: a host may have several spellings for one field."""
    if not isinstance(raw, dict) or keys[0] in raw:
        return keys
    field = next((field for field, key in found.writes.items() if key == keys[0]), "")
    for spelling, key in found.keys.items():
        if spelling in raw and key.field == field and key.unit is None:
            return (spelling, *keys[1:])
    return keys


def _timeout_aliases(keys: tuple[str, ...], raw: Any, found: Dialect) -> list[str]:
    """Return the keys beside `timeouts` that set one of its values too, such as `timeout`."""
    if keys[0] != "timeouts" or not isinstance(raw, dict):
        return []
    fields = keys[1:] or tuple(Timeouts.__annotations__)
    return [
        key for key in cast("dict[str, Any]", raw) if key in found.keys and found.keys[key].field in fields
    ]


def _text_of(path: Path) -> str:
    data, _ = _bytes(path.resolve())
    mark, encoding = next((pair for pair in _MARKS if data.startswith(pair[0])), (b"", "utf-8"))
    return data.removeprefix(mark).decode(encoding)


def apply(target: Target, change: Callable[[Document], Document], *, private: bool = False) -> bool:
    """Change a configuration file; return whether anything was written.

    Args:
        target: The file.
        change: Takes the current document and returns the new one.
        private: Whether a new file is for its owner alone.

    Raises:
        ConfigError: Nothing was written.
    """
    if target.scope in ("project", "local") and not target.path.resolve().is_relative_to(
        Path(target.root).resolve()
    ):
        msg = "the file of the project is a link to a file elsewhere, which is not changed"
        raise ConfigError(
            msg, source=str(target.path), hint="change that file, or replace the link by a file"
        )

    def edited(text: str) -> str:
        return change(parse(text, str(target.path), target.format)).text

    # A file of the user's own gets its secrets later, perhaps, and keeps its mode then.
    private = private or target.scope == "user"
    return change_text(target.path, edited, private=private, backup=target.backup)


def change_text(
    path: Path, change: Callable[[str], str], *, private: bool = False, backup: bool = False
) -> bool:
    """Change the text of a file; a missing file counts as empty.

    Returns:
        Whether anything was written.

    Raises:
        ConfigError: The file cannot be read or written; it is unchanged.
    """
    try:
        real = path.resolve()
        private_folder(real.parent)
        with _locked(real):
            data, status = _bytes(real)
            mark, encoding = next((pair for pair in _MARKS if data.startswith(pair[0])), (b"", "utf-8"))
            old = data.removeprefix(mark).decode(encoding)
            new = change(old)
            if new == old:
                return False
            if backup and status is not None:
                write_atomically(real.with_name(f"{real.name}.bak"), data, like=status)
            mode = 0o600 if private else None
            write_atomically(real, mark + new.encode(encoding), mode=mode, like=status)
            return True
    except Timeout:
        msg = f"another program has been changing the file for {LOCK_TIMEOUT:g} seconds"
        raise ConfigError(msg, source=str(path), hint="try again") from None
    except UnicodeError as error:
        msg = f"the text cannot be read or written: {getattr(error, 'reason', 'bad encoding')}"
        raise ConfigSyntaxError(msg, source=str(path)) from None
    except (OSError, RuntimeError) as error:
        msg = f"the file cannot be written: {getattr(error, 'strerror', None) or error}"
        raise ConfigError(msg, source=str(path)) from None


def _named_target(profile: Profile, path: Path, expansion: ExpansionContext) -> Target:
    """Choose the dialect of a named file as reading does; for a TOML file without servers, dragoman's own."""
    chosen = profile.default_dialect
    if chosen in ("mcp-json", "legal"):
        try:
            text = path.read_text("utf-8-sig")
        except (OSError, UnicodeError):
            text = ""
        document = parse(text, str(path), format_of(path))
        chosen = detect(document)
        if document.format == "toml" and chosen == "mcp-json" and "mcpServers" not in document.data:
            chosen = "dragoman"
    return target_at(path, chosen, expansion.root)


def _pointer(document: Document, target: Target, name: str, pointer: str) -> Pointer:
    found = edit.entry_named(document, target.dialect, target.root, name, pointer)
    if found is None:
        msg = f"server `{name}` is not there"
        hint = "another program changed the file"
        raise ConfigError(msg, source=str(target.path), pointer=pointer, hint=hint)
    return found.pointer


def _check(document: Document, target: Target, name: str, wanted: ServerSpec) -> None:
    """Check that the new file would be read back as the intended server."""
    found = edit.entry_named(document, target.dialect, target.root, name)
    if found is None or differences(wanted, build(found, target.dialect, "user"), target.dialect.title):
        msg = f"the file is left as it is: server `{name}` would not be read back from it"
        raise ConfigError(msg, source=str(target.path), hint="add it by hand")


def _holds_literals(spec: ServerSpec) -> bool:
    """Return whether a variable or a header of the spec is a literal, which may be a secret."""
    transport = spec.transport
    values = transport.env if isinstance(transport, Stdio) else transport.headers
    parts = [pieces(value) for value in values.values() if value]
    return any(not any(isinstance(piece, TemplateReference) for piece in found) for found in parts)


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None]:
    # Not `NAME.lock`: Claude Code locks its file with a directory of that name.
    lock = path.with_name(f".{path.name}.dragoman-lock")
    with FileLock(lock, timeout=LOCK_TIMEOUT):
        try:
            yield
        finally:
            # A waiting process notices that the lock file was removed, and creates a new one.
            with contextlib.suppress(OSError):
                lock.unlink()


def _bytes(path: Path) -> tuple[bytes, os.stat_result | None]:
    """Return the content and the status of a file; a missing one is empty and has no status."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return b"", None
    if not stat.S_ISREG(found.st_mode):
        msg = "it is a directory" if stat.S_ISDIR(found.st_mode) else "it is not a regular file"
        raise OSError(msg)
    if found.st_size > MAX_BYTES:
        msg = f"it is larger than {MAX_BYTES // 2**20} MiB"
        raise OSError(msg)
    return path.read_bytes(), found


class Item(Struct, kw_only=True):
    """One server of the catalog."""

    name: str
    description: str
    needs: str = ""
    """What has to be installed: `node` or `uv`; empty for a remote server."""
    command: str = ""
    args: Sequence[str] = ()
    arguments: Sequence[str] = ()
    """The default arguments after `args`; the user may give others."""
    takes: str = ""
    """What these arguments are; empty if it takes none."""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    env: Mapping[str, str] = field(default_factory=dict[str, str])

    def variables(self) -> list[str]:
        """Return the environment variables that it requires."""
        values = (*self.arguments, *self.env.values(), *self.headers.values())
        found = [value for value in values if ":-" not in value]
        return [name for value in found for name in variables(value)]

    def spec(self, name: str = "", arguments: Sequence[str] = ()) -> ServerSpec:
        """Return the server.

        Args:
            name: Its name; as in the catalog unless given.
            arguments: The user's arguments instead of the default ones.

        Raises:
            ValueError: It takes no arguments.
        """
        if arguments and not self.takes:
            msg = f"`{self.name}` takes no arguments"
            raise ValueError(msg)
        transport = (
            Http(self.url, headers=self.headers)
            if self.url
            else Stdio(self.command, [*self.args, *(arguments or self.arguments)], env=self.env)
        )
        return ServerSpec(name or self.name, transport, origin=Origin(source="catalog"))


def catalog() -> dict[str, Item]:
    """Return the catalog by name, in the order of the file."""
    text = resources.files("dragoman.config").joinpath("catalog.toml").read_text("utf-8")
    tables: dict[str, dict[str, Any]] = tomllib.loads(text)
    return {name: Item(name=name, **table) for name, table in tables.items()}
