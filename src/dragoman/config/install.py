"""Install the gateway into a host: its servers move to dragoman, and `dragoman serve` takes their place.

Only the user's own files change. Each file is kept as it was, so that `undo` can restore it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dragoman.config import edit, write
from dragoman.config.documents import parse
from dragoman.config.export import entry
from dragoman.errors import ConfigError
from dragoman.model import ServerSpec, Stdio
from dragoman.storage.files import private_folder, state_folder, write_atomically
from dragoman.struct import Struct, field
from dragoman.trust.own_gateway import is_own_gateway

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.config.write import Target
    from dragoman.model import Settings

NAME = "dragoman"


class Move(Struct, kw_only=True):
    """One server of a host, and what happens to it."""

    spec: ServerSpec
    outcome: Literal["copied", "known", "kept"]
    """It goes to dragoman, is there already, or stays in the host."""
    why: str = ""


class InstallPlan(Struct, kw_only=True):
    """What an installation changes."""

    host: str
    moves: Sequence[Move]
    gateway: ServerSpec
    target: Target
    """The host's file that gets the gateway."""
    own: Target
    """Dragoman's file that gets the servers."""
    root: str
    is_installed: bool = False
    """Whether nothing is left to do."""
    files: Sequence[Path] = field(default_factory=tuple)
    """The host's files that change."""


def entry_text(planned: InstallPlan) -> str:
    """Return the gateway's entry as a whole file of the host, to paste."""
    target = planned.target
    if target.format == "yaml":  # such files are not changed
        import yaml

        fields, _ = entry(planned.gateway, target.dialect, format="yaml", listed=False)
        nested: dict[str, Any] = {NAME: fields}
        for key in reversed(target.dialect.container):
            nested = {key: nested}
        return yaml.safe_dump(nested, sort_keys=False).strip()
    empty = parse("{}" if target.format == "json" else "", str(target.path), target.format)
    place = edit.slot(empty, target.dialect, planned.root, NAME)
    listed = isinstance(place[-1], int)
    fields, _ = entry(planned.gateway, target.dialect, format=target.format, listed=listed)
    return edit.put(empty, place, fields).text.strip()


def plan(
    host: str, settings: Settings, known: Settings, *, target: Target, own: Target, command: Stdio
) -> InstallPlan:
    """Decide what an installation changes; nothing is written.

    Args:
        host: The host's name.
        settings: Its configuration.
        known: Dragoman's own.
        target: The host's file of the user.
        own: Dragoman's file of the user.
        command: What starts the gateway.
    """
    moves = [_move(spec, known) for spec in settings.servers if not is_own_gateway(spec.transport)]
    gateway = ServerSpec(NAME, command)
    moved = [move for move in moves if move.outcome != "kept"]
    present = any(is_own_gateway(spec.transport) for spec in settings.servers)
    files = [write.target_of_spec(move.spec, settings.root).path for move in moved]
    return InstallPlan(
        host=host,
        moves=moves,
        gateway=gateway,
        target=target,
        own=own,
        root=settings.root,
        is_installed=present and not moved,
        files=tuple(dict.fromkeys([*files, target.path])),
    )


def _move(spec: ServerSpec, known: Settings) -> Move:
    if spec.origin.scope != "user":
        return Move(spec=spec, outcome="kept", why=f"it is defined by the {spec.origin.scope}")
    same = known.server(spec.name)
    if same is None:
        return Move(spec=spec, outcome="copied")
    if same.transport == spec.transport:
        return Move(spec=spec, outcome="known")
    return Move(spec=spec, outcome="kept", why="dragoman has another server with this name")


def install(planned: InstallPlan) -> None:
    """Copy the servers into dragoman's file, then put the gateway in their place.

    Raises:
        ConfigError: A file cannot be read or written; `undo` restores those that were changed before.
    """
    record = {str(path): _text(path) for path in planned.files}
    _save(planned.host, record, after={})
    copied = [move.spec for move in planned.moves if move.outcome == "copied"]
    if copied:
        write.put(planned.own, copied, replaces=False)
    changed: set[Path] = set()

    def once(target: Target) -> Target:
        """Keep the file as it was before the first change only."""
        is_first = target.path not in changed
        changed.add(target.path)
        return target.replace(backup=target.backup and is_first)

    for move in planned.moves:
        if move.outcome != "kept":
            place = once(write.target_of_spec(move.spec, planned.root))
            write.remove(place, move.spec.name, move.spec.origin.pointer)
    write.put(once(planned.target), [planned.gateway], replaces=True)
    _save(planned.host, record, after={str(path): _digest(_text(path)) for path in planned.files})


def undo(host: str) -> list[Path]:
    """Restore a host's files as they were; dragoman keeps its copies of the servers.

    Raises:
        ConfigError: Nothing was installed, or a file has changed since.
    """
    path = _record(host)
    try:
        saved: dict[str, dict[str, Any]] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        msg = f"the gateway was not installed into `{host}` by `dragoman install`"
        raise ConfigError(msg, hint="remove its entry from the host's file yourself") from None
    for name, digest in saved["after"].items():
        if _digest(_text(Path(name))) != digest:
            msg = f"`{name}` has changed since the installation"
            raise ConfigError(msg, hint=f"its former text is in `{path}`")
    restored: list[Path] = []
    for name, text in saved["before"].items():
        if text is None:
            Path(name).unlink(missing_ok=True)
        else:
            write.change_text(Path(name), lambda _, text=text: text)
        restored.append(Path(name))
    path.unlink()
    return restored


def _text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeError) as exc:
        msg = f"the file cannot be read: {exc}"
        raise ConfigError(msg, source=str(path)) from None


def _digest(text: str | None) -> str:
    return "" if text is None else hashlib.sha256(text.encode()).hexdigest()


def _record(host: str) -> Path:
    return state_folder() / "installed" / f"{host}.json"


def _save(host: str, before: dict[str, str | None], *, after: dict[str, str]) -> None:
    path = _record(host)
    private_folder(path.parent)
    text = json.dumps({"before": before, "after": after}, ensure_ascii=False)
    write_atomically(path, text.encode(), mode=0o600)
