"""Writes configuration files: under a lock, atomically, and only the entry in question.

A change reads the file after it holds the lock, so two programs never undo each other's changes. Links are
followed, the mode is kept, and a new file with literal secrets is private. The catalog of well-known servers
is here too.
"""

from __future__ import annotations

import codecs
import contextlib
import stat
import tomllib
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from dragoman.config import edit
from dragoman.config.dialects import HOSTS, dialect
from dragoman.config.documents import MAX_BYTES, parse
from dragoman.config.entries import build
from dragoman.config.export import entry, read_back
from dragoman.config.files import format_of
from dragoman.config.load import detect, place_path
from dragoman.config.merge import Reference, differences, pieces
from dragoman.config.templates import ExpansionContext, expand_home, variables
from dragoman.errors import ConfigError, ConfigSyntaxError
from dragoman.model import Http, Origin, ServerSpec, Stdio
from dragoman.storage.files import is_ours, private_folder, write_atomically

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Mapping, Sequence

    from dragoman.config.dialect import Dialect, Scope
    from dragoman.config.documents import Document, Format, Pointer
    from dragoman.config.export import Loss
    from dragoman.config.profiles import Profile

LOCK_TIMEOUT = 10.0
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A file that servers are written to, and how they are written."""

    path: Path
    dialect: Dialect
    root: str
    """The project's directory."""
    format: Format = "json"
    backup: bool = False
    """Whether to keep a copy of the old file: it belongs to another program."""


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
        return target_at(path, place.dialect or profile.default_dialect, expansion.root)
    written = profile.written_file()
    path = place_path(written, expansion) if written else None
    if path is None:
        msg = f"the profile `{profile.app}` has no file of its own to write to"
        variables = f"set {profile.environment}_MCP_* in the environment" if profile.environment else ""
        raise ConfigError(msg, hint=variables or "name one with `--config FILE`")
    found = next((place.dialect for place, candidate in places if candidate == path), "")
    return target_at(path, found or profile.default_dialect, expansion.root)


def target_of_spec(spec: ServerSpec, root: str) -> Target:
    """Return the file in which a server is defined.

    Raises:
        ConfigError: It is defined by the environment, where nothing can be written.
    """
    origin = spec.origin
    if origin.source == "environment":
        msg = f"server `{spec.name}` is defined by the environment variable `{origin.pointer}`"
        raise ConfigError(msg, source=origin.source, hint="unset or change it where it is set")
    return target_at(Path(origin.source), origin.dialect, root)


def target_at(path: Path, dialect_name: str, root: str) -> Target:
    """Return a file and the dialect with this name."""
    return Target(
        path=path,
        dialect=dialect(dialect_name),
        root=root,
        format=format_of(path),
        backup=dialect_name in HOSTS,
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


def apply(target: Target, change: Callable[[Document], Document], *, private: bool = False) -> None:
    """Change a configuration file.

    Args:
        target: The file.
        change: Takes the current document and returns the new one.
        private: Whether a new file is for its owner alone.

    Raises:
        ConfigError: Nothing was written.
    """

    def edited(text: str) -> str:
        return change(parse(text, str(target.path), target.format)).text

    change_text(target.path, edited, private=private, backup=target.backup)


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
        if is_ours(real.parent):
            private_folder(real.parent)
        else:
            real.parent.mkdir(parents=True, exist_ok=True)
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
    return any(not any(isinstance(piece, Reference) for piece in found) for found in parts)


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


# ── The catalog of well-known servers, in `catalogue.toml`


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One server of the catalogue."""

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
        found = [value for value in (*self.env.values(), *self.headers.values()) if ":-" not in value]
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
        return ServerSpec(name or self.name, transport, origin=Origin(source="catalogue"))


def catalogue() -> dict[str, Item]:
    """Return the catalog by name, in the order of the file."""
    text = resources.files("dragoman.config").joinpath("catalogue.toml").read_text("utf-8")
    tables: dict[str, dict[str, Any]] = tomllib.loads(text)
    return {name: Item(name=name, **table) for name, table in tables.items()}
