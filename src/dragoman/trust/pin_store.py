"""Pins on disk: the user's lock files, one for each server, and a project's `dragoman.lock`.

The user's lock files are in the data folder. A project's lock file is written only on request.
"""

from __future__ import annotations

import hashlib
import logging
import re
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.errors import ConfigError
from dragoman.model import Stdio
from dragoman.storage.files import StoredFile, data_folder, project_root, write_atomically
from dragoman.trust.masking import mask_args, mask_url
from dragoman.trust.pins import (
    LOCK_NAME,
    Pin,
    ServerPins,
    approved,
    dump_lock,
    expected,
    filled_in,
    judge,
    load_lock,
)
from dragoman.version import VERSION

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from dragoman.model import ServerSpec
    from dragoman.trust.pins import Trust, Verdict

logger = logging.getLogger("dragoman")

_VERSION = re.compile(r"(?<=\w)(?:@|==)[\w.+-]+\Z")
CHECKED = ".checked"
"""The suffix of a file with the hash of the last listing that had no changes."""


class Pins:
    """The pins of servers: the user has one lock file for each server, a project has one for all.

    Separate files keep a check fast; one file in a project is easy to review.
    """

    def __init__(
        self, root: str | os.PathLike[str], folder: Path | None = None, *, default: Trust = "warn"
    ) -> None:
        """Use the lock files of a project and of the user.

        Args:
            root: The project's directory.
            folder: The user's folder; the data folder unless given.
            default: The trust of servers that do not set it.
        """
        self._default: Trust = default
        self.root = project_root(root)
        self._folder = (folder or data_folder()) / "pins"
        self._paths: dict[str, Path] = {}
        self._project = _lock_file(Path(self.root, LOCK_NAME), private=False)
        self._seen: tuple[object, dict[str, ServerPins] | None] = (None, {})

    @property
    def project_path(self) -> Path:
        """The project's lock file, whether it exists or not."""
        return self._project.path

    def user_path(self, spec: ServerSpec) -> Path:
        """Return the user's lock file of a server; a project's server has one for each project."""
        key = self._identity(spec)
        if (path := self._paths.get(key)) is None:
            word = re.sub(r"[^A-Za-z0-9._-]", "_", spec.name)[:40].lstrip(".")
            digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:16]
            path = self._paths[key] = self._folder / f"{word}-{digest}.lock"
        return path

    def check(self, spec: ServerSpec, now: ServerPins) -> Verdict:
        """Compare what a server offers with its pins; what is new on first use is pinned.

        Reads files, and writes only the user's lock file. An error of the disk is logged. With strict trust,
        what cannot be pinned is withheld; else it is offered, and the next check is a first use again.
        """
        trust = self.trust(spec)
        if trust == "off":
            return judge(now, (), "off")
        key = self._key(spec)
        file = self._user(spec)
        mine = _pins(file.content(), key)
        verdict = self._judged(spec, now, mine)
        if mine is _NOTHING or (mine is None and verdict.changes):
            # A lock file has different pins: do not pin what the user has not approved.
            return verdict
        if mine is None or filled_in(mine, now) != mine:
            try:
                file.change(lambda old: {**old, key: filled_in(old[key], now) if key in old else now})
            except ConfigError as exc:
                logger.warning("%s: its tools are not pinned: %s", spec.name, exc)
                if trust == "strict":
                    theirs = _pins(self._of_project(), spec.name)
                    verdict = judge(now, (), trust, fixed=(_as_pinned(mine, now), theirs))
                    return verdict.replace(problem=str(exc))
        return verdict

    def is_as_checked(self, spec: ServerSpec, digest: str) -> bool:
        """Return whether a listing was checked before with the same lock files, and had no changes.

        Args:
            spec: The server.
            digest: The hash of its listing.
        """
        note = StoredFile(self.user_path(spec).with_suffix(CHECKED), str, str, str)
        try:
            said = note.text()
            return said is not None and said == self._note(spec, digest)
        except (OSError, ValueError):
            return False

    def note_checked(self, spec: ServerSpec, digest: str) -> None:
        """Remember for `is_as_checked` that a listing has no changes."""
        path = self.user_path(spec).with_suffix(CHECKED)
        with suppress(OSError, ValueError):
            write_atomically(path, self._note(spec, digest).encode(), sync=False)

    def _note(self, spec: ServerSpec, digest: str) -> str:
        """Return what says that a listing was checked with exactly these lock files, by this version.

        Raises:
            OSError: A lock file cannot be read.
            ValueError: A lock file cannot be used.
        """
        locks = [self._user(spec).text(), self._project.text()]
        joined = "\0".join("" if text is None else text for text in locks)
        return f"{VERSION} {hashlib.sha256(joined.encode()).hexdigest()} {digest}\n"

    def trust(self, spec: ServerSpec) -> Trust:
        """Return the effective trust of a server."""
        return spec.trust or self._default

    def look(self, spec: ServerSpec, now: ServerPins) -> Verdict:
        """Compare as `check` does but write nothing: for a listing from the cache."""
        if self.trust(spec) == "off":
            return judge(now, (), "off")
        return self._judged(spec, now, _pins(self._user(spec).content(), self._key(spec)))

    def _judged(self, spec: ServerSpec, now: ServerPins, mine: ServerPins | None) -> Verdict:
        theirs = _pins(self._of_project(), spec.name)
        if mine is _NOTHING:
            return judge(now, (), self.trust(spec), fixed=(mine, theirs))
        return judge(now, (mine,), self.trust(spec), fixed=(theirs,))

    def approve(
        self,
        spec: ServerSpec,
        now: ServerPins,
        *,
        tools: Iterable[str] | None = None,
        in_project: bool = False,
    ) -> None:
        """Pin what a server offers now, or some of its tools.

        Args:
            spec: The server.
            now: What it offers.
            tools: Which tools; everything unless given.
            in_project: Whether to write the project's lock file too, and to create it if needed.

        Raises:
            ConfigError: A lock file cannot be written.
        """
        names = None if tools is None else list(tools)
        key, name = self._key(spec), spec.name
        theirs = _pins(self._of_project(), name)
        # A lock file without this server starts with the pins of the other one.
        new = self._user(spec).change(lambda old: {**old, key: approved(old.get(key, theirs), now, names)})
        if in_project or theirs is not None:
            self._project.change(lambda old: {**old, name: approved(old.get(name, new[key]), now, names)})

    def known(self, spec: ServerSpec) -> dict[Path, ServerPins]:
        """Return the pins of a server by lock file: the user's, then the project's."""
        found = {
            self.user_path(spec): _pins(self._user(spec).content(), self._key(spec)),
            self.project_path: _pins(self._of_project(), spec.name),
        }
        return {path: pins for path, pins in found.items() if pins is not None}

    def forget(self, spec: ServerSpec) -> bool:
        """Forget a server's pins in the user's lock file; return whether there were any.

        Raises:
            ConfigError: The lock file cannot be removed.
        """
        path = self.user_path(spec)
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        except OSError as exc:
            msg = f"it cannot be removed: {exc.strerror}"
            raise ConfigError(msg, source=str(path)) from exc
        with suppress(OSError):
            path.with_suffix(CHECKED).unlink(missing_ok=True)
        return True

    def _key(self, spec: ServerSpec) -> str:
        return f"{spec.name} @ {self.root}" if spec.origin.scope == "project" else spec.name

    def _identity(self, spec: ServerSpec) -> str:
        """Return what tells servers of one name apart: what is run or contacted.

        A project's server has an approval of its content: after a change its pins are compared all the same.
        """
        transport, key = spec.transport, self._key(spec)
        if spec.origin.scope == "project":
            return key
        if not isinstance(transport, Stdio):
            return f"{key}\0{mask_url(transport.url)}"
        # Another version of a package is the same server.
        words = mask_args([transport.command, *transport.args])
        return "\0".join([key, *(_VERSION.sub("", word) for word in words)])

    def _user(self, spec: ServerSpec) -> StoredFile[dict[str, ServerPins]]:
        return _lock_file(self.user_path(spec), private=True)

    def _of_project(self) -> dict[str, ServerPins] | None:
        """Return the content of the project's lock file; it is read again only after a change."""
        try:
            status = self._project.path.stat()
            mark = (status.st_mtime_ns, status.st_size, status.st_ino)
        except OSError:
            mark = None
        if mark is None or self._seen[0] != mark:
            self._seen = (mark, self._project.content())
        return self._seen[1]


_NOTHING = ServerPins()
"""The pins of an unusable lock file."""


def _pins(servers: dict[str, ServerPins] | None, key: str) -> ServerPins | None:
    return _NOTHING if servers is None else servers.get(key)


def _as_pinned(mine: ServerPins | None, now: ServerPins) -> ServerPins:
    """Return the pins where none can be added: what was never pinned counts as absent."""
    known = expected(mine or _NOTHING, now, takes_new=False)
    return ServerPins(
        tools=known.tools,
        prompts=known.prompts or {},
        instructions=known.instructions or Pin(""),
        capabilities=now.capabilities,
    )


def _lock_file(path: Path, *, private: bool) -> StoredFile[dict[str, ServerPins]]:
    # Only a project's lock file is reviewed; the user's has one line.
    dump = partial(dump_lock, indent=None) if private else dump_lock
    return StoredFile(path, load_lock, dump, dict[str, ServerPins], private)
