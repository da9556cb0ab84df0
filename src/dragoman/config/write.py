"""Configuration files are changed here: under a lock, in one step, and only the entry in question.

A change reads the file again once it holds the lock, so two programs never undo each other's. The new text
is written to a file beside the old one, synced, and put in its place; links are followed, the mode is kept,
and a new file that holds literal secrets is for its owner alone.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from dragoman.config import edit
from dragoman.config.comparing import Reference, differences, pieces
from dragoman.config.detect import detect
from dragoman.config.dialects import HOSTS, dialect
from dragoman.config.discover import place_path
from dragoman.config.documents import MAX_BYTES, parse
from dragoman.config.entries import build
from dragoman.config.expand import Surroundings, expand_home
from dragoman.config.export import entry, read_back
from dragoman.config.files import format_of
from dragoman.errors import ConfigError, ConfigSyntaxError
from dragoman.model import Stdio
from dragoman.private import is_ours, private_folder, private_opener

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from dragoman.config.dialect import Dialect, Scope
    from dragoman.config.documents import Document, Format
    from dragoman.config.export import Loss
    from dragoman.config.positions import Pointer
    from dragoman.config.profiles import Profile
    from dragoman.model import ServerSpec

LOCK_TIMEOUT = 10.0
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A file that servers are written to, and the way they are written there."""

    path: Path
    dialect: Dialect
    root: str
    """The project's directory."""
    format: Format = "json"
    backup: bool = False
    """Whether the file as it was is kept beside it: it belongs to another program."""


def target(
    profile: Profile,
    surroundings: Surroundings,
    *,
    config: str | None = None,
    scope: Scope | None = None,
) -> Target:
    """Decide which file a change goes to.

    Args:
        profile: Whose configuration.
        surroundings: What paths refer to.
        config: The file that was asked for.
        scope: `project` for the project's own file; the profile's usual one unless given.

    Raises:
        ConfigError: The profile has no such file.
    """
    variable = profile.config_variable()
    named = config or (surroundings.env.get(variable, "") if variable and scope is None else "")
    if named:
        path = Path(surroundings.root, expand_home(named, surroundings.home))
        return _named_target(profile, path, surroundings)
    places = [
        (place, path)
        for place in profile.all_places()
        if "*" not in place.path and (path := place_path(place.path, surroundings)) is not None
    ]
    if scope == "project":
        of_project = [found for found in places if found[0].scope == "project"]
        if not of_project:
            msg = f"the profile `{profile.app}` has no file in the project"
            raise ConfigError(msg, hint="leave `--scope` out, or name a file with `--config`")
        place, path = next((found for found in of_project if found[1].is_file()), of_project[0])
        return target_at(path, place.dialect or profile.default_dialect, surroundings.root)
    written = profile.written_file()
    path = place_path(written, surroundings) if written else None
    if path is None:
        msg = f"the profile `{profile.app}` has no file of its own to write to"
        variables = f"set {profile.environment}_MCP_* in the environment" if profile.environment else ""
        raise ConfigError(msg, hint=variables or "name one with `--config FILE`")
    found = next((place.dialect for place, candidate in places if candidate == path), "")
    return target_at(path, found or profile.default_dialect, surroundings.root)


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
    """Return a file that is written as a dialect has it."""
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
        replaces: Whether a server of the same name that is there already is replaced.

    Returns:
        What was lost of each.

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
    """Take a server out of a file."""

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
    """Replace a file by what `change` makes of it.

    Args:
        target: The file.
        change: Given the document as it is now, returns it as it is to be.
        private: Whether a file that is not there yet is for its owner alone.

    Raises:
        ConfigError: Nothing was written.
    """

    def edited(text: str) -> str:
        return change(parse(text, str(target.path), target.format)).text

    change_text(target.path, edited, private=private, backup=target.backup)


def change_text(
    path: Path, change: Callable[[str], str], *, private: bool = False, backup: bool = False
) -> bool:
    """Replace a file's text by what `change` makes of it; an absent file is an empty text.

    Returns:
        Whether anything was written.

    Raises:
        ConfigError: The file cannot be read or written; it is as it was.
    """
    try:
        real = path.resolve()
        if is_ours(real.parent):
            private_folder(real.parent)
        else:
            real.parent.mkdir(parents=True, exist_ok=True)
        with _locked(real):
            data, mode = _bytes(real)
            mark, encoding = next((pair for pair in _MARKS if data.startswith(pair[0])), (b"", "utf-8"))
            old = data.removeprefix(mark).decode(encoding)
            new = change(old)
            if new == old:
                return False
            if backup and mode is not None:
                _replace(real.with_name(f"{real.name}.bak"), data, mode=mode, private=True)
            _replace(real, mark + new.encode(encoding), mode=mode, private=private)
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


def _named_target(profile: Profile, path: Path, surroundings: Surroundings) -> Target:
    """Choose the dialect of a named file as reading does; a TOML file without servers is dragoman's own."""
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
    return target_at(path, chosen, surroundings.root)


def _pointer(document: Document, target: Target, name: str, pointer: str) -> Pointer:
    found = edit.entry_named(document, target.dialect, target.root, name, pointer)
    if found is None:
        msg = f"server `{name}` is not there"
        hint = "another program changed the file"
        raise ConfigError(msg, source=str(target.path), pointer=pointer, hint=hint)
    return found.pointer


def _check(document: Document, target: Target, name: str, wanted: ServerSpec) -> None:
    """Make sure that the file, as it would be, gives the server that was meant."""
    found = edit.entry_named(document, target.dialect, target.root, name)
    if found is None or differences(wanted, build(found, target.dialect, "user"), target.dialect.title):
        msg = f"the file is left as it is: server `{name}` would not be read back from it"
        raise ConfigError(msg, source=str(target.path), hint="add it by hand")


def _holds_literals(spec: ServerSpec) -> bool:
    """Tell whether a variable or a header of the spec is written out, so that it may be a secret."""
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
            # Whoever waits finds that its lock file has no name left, and takes a new one.
            with contextlib.suppress(OSError):
                lock.unlink()


def _bytes(path: Path) -> tuple[bytes, int | None]:
    """Return what is in a file, and its mode; an absent one is empty and has none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return b"", None
    if not stat.S_ISREG(found.st_mode):
        msg = "it is a directory" if stat.S_ISDIR(found.st_mode) else "it is no ordinary file"
        raise OSError(msg)
    if found.st_size > MAX_BYTES:
        msg = f"it is larger than {MAX_BYTES // 2**20} MiB"
        raise OSError(msg)
    return path.read_bytes(), stat.S_IMODE(found.st_mode)


def _replace(path: Path, data: bytes, *, mode: int | None, private: bool) -> None:
    """Put a whole new file in a path's place, or leave the old one untouched."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    strict = private or mode is not None
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    handle = private_opener(beside, flags) if strict else os.open(beside, flags, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            beside.chmod(mode)
            _keep_owner(beside, path)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _keep_owner(new: Path, old: Path) -> None:
    with contextlib.suppress(OSError, AttributeError):
        found = old.stat()
        os.chown(new, found.st_uid, found.st_gid)
