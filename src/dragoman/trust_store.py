"""What people have approved and what was pinned, on disk: approvals of project files, and lock files.

Approvals and the user's pins lie in the user's own data folder, never in a project. They are read whole and
bounded, written as a whole into a new file that takes the old one's place, for their owner alone, and under
a lock, so that two processes lose nothing. A file that cannot be read, is not ours or may be written by
others vouches for nothing: no server is approved, and every tool counts as new. A project's `dragoman.lock`
is read, but written only when somebody asks for it.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from dragoman.errors import ConfigError
from dragoman.private import private_folder, private_temporary
from dragoman.trust.approval import (
    Approval,
    changes_of,
    dump_approvals,
    load_approvals,
    new_approval,
    refusal,
)
from dragoman.trust.content import Evidence, entry_parts, fingerprint, input_ids, parts
from dragoman.trust.layers import (
    SETTINGS,
    effective,
    in_question,
    project_statements,
    settings_fingerprint,
    settings_summary,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from dragoman.errors import ConnectError
    from dragoman.model import Input, ServerSpec, Settings, Statement

MAX_BYTES = 64 * 2**20
MAX_PROJECT_BYTES = 4 * 2**20
"""Of a project's lock file, which is read before anything of its folder is approved."""
LOCK_TIMEOUT = 10.0
"""Seconds to wait for another process that writes."""

T = TypeVar("T")


def data_folder() -> Path:
    """Return the user's own folder for what dragoman has to remember."""
    import platformdirs

    return Path(platformdirs.user_data_dir("dragoman", appauthor=False))


def project_root(root: str | os.PathLike[str]) -> str:
    """Return a project's directory as approvals know it: one name, however it was reached."""
    return os.path.realpath(root)


@dataclass(frozen=True, slots=True)
class StoredFile(Generic[T]):
    """One file that is read and replaced as a whole."""

    path: Path
    load: Callable[[str], T]
    dump: Callable[[T], str]
    empty: Callable[[], T]
    private: bool = True
    """Whether only its owner may read and write it."""

    @property
    def most(self) -> int:
        """How many bytes it may have."""
        return MAX_BYTES if self.private else MAX_PROJECT_BYTES

    def content(self) -> T | None:
        """Return what is in it, empty if there is no such file; `None` if it cannot be used."""
        try:
            text = self._text()
            return self.empty() if text is None else self.load(text)
        except OSError as exc:
            _warn(self.path, exc.strerror)
        except ValueError as exc:
            _warn(self.path, exc)
        return None

    def change(self, change: Callable[[T], T]) -> T:
        """Read, change and write under a lock.

        Raises:
            ConfigError: It cannot be written.
        """
        try:
            with self._lock():
                found = self.content()
                if found is None:
                    # Somebody may still want to see what it was.
                    self.path.replace(self.path.with_name(f"{self.path.name}.damaged"))
                old = self.empty() if found is None else found
                new = change(old)
                if new != found:
                    self._write(self.dump(new))
                return new
        except OSError as exc:
            msg = f"it cannot be written: {exc.strerror or exc}"
            raise ConfigError(msg, source=str(self.path), hint="check its permissions") from exc

    def _text(self) -> str | None:
        # Non-blocking, so that a pipe in its place cannot make us wait.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        try:
            number = os.open(self.path, flags)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            if wrong := self._fault(os.fstat(number)):
                raise ValueError(wrong)
            with os.fdopen(number, "rb", closefd=False) as file:
                return file.read(self.most).decode()
        finally:
            os.close(number)

    def _fault(self, status: os.stat_result) -> str:
        if not stat.S_ISREG(status.st_mode):
            return "it is no regular file"
        if status.st_size > self.most:
            return "it is too large"
        if not self.private or sys.platform == "win32":
            return ""
        if status.st_uid != os.geteuid():
            return "it belongs to somebody else"
        return "others may write to it" if status.st_mode & 0o022 else ""

    def _write(self, text: str) -> None:
        if len(text) > self.most:
            msg = f"it would be larger than {self.most // 2**20} MiB"
            raise ConfigError(msg, source=str(self.path))
        number, name = private_temporary(self.path.parent, ".new")
        try:
            with os.fdopen(number, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if not self.private:
                Path(name).chmod(0o644)
            Path(name).replace(self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    @contextmanager
    def _lock(self) -> Generator[None]:
        import filelock

        if not self.private:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        # The lock of a project's file lies with ours: a project gets no files but the one that was asked for.
        folder = self.path.parent if self.private else data_folder()
        private_folder(folder)
        try:
            with filelock.FileLock(folder / f".{self.path.name}.guard", timeout=LOCK_TIMEOUT, mode=0o600):
                yield
        except filelock.Timeout:
            msg = f"another process has been writing to it for {LOCK_TIMEOUT:g} s"
            raise ConfigError(msg, source=str(self.path), hint="try again") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A server of a project as it is now, beside what was approved of it."""

    spec: ServerSpec
    evidence: Evidence
    approval: Approval | None
    changes: Sequence[str] = ()
    """What is not as it was approved."""
    error: ConnectError | None = None
    """Why it must not be used, if so."""


class Approvals:
    """What a user has approved of projects' files."""

    def __init__(self, folder: Path | None = None) -> None:
        """Use a folder; the user's own unless given."""
        path = (folder or data_folder()) / "approvals.json"
        self._file = StoredFile(path, load_approvals, dump_approvals, list[Approval])

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    def all(self) -> list[Approval]:
        """Return every approval."""
        return self._file.content() or []

    def is_approved(
        self, spec: ServerSpec, root: str | os.PathLike[str], inputs: Iterable[Input] = ()
    ) -> bool:
        """Return whether this very content was approved for this project."""
        return self.look(spec, root, inputs).error is None

    def look(self, spec: ServerSpec, root: str | os.PathLike[str], inputs: Iterable[Input] = ()) -> Look:
        """Compare a server as it is now, with the files that it names, with what was approved."""
        return self._looks([spec], root, inputs)[0]

    def refused(
        self, specs: Iterable[ServerSpec], root: str | os.PathLike[str], inputs: Iterable[Input] = ()
    ) -> dict[str, ConnectError]:
        """Return an error for each server that is not approved, by name; the approvals are read once.

        The files of one that was never approved are not looked at: a project could make that take long.
        """
        given, (known, home) = list(specs), self._known(root)
        errors = {spec.name: refusal(spec, home) for spec in given if spec.name not in known}
        looks = self._looks([spec for spec in given if spec.name in known], root, inputs)
        return errors | {one.spec.name: one.error for one in looks if one.error is not None}

    def refused_entries(
        self, specs: Iterable[ServerSpec], root: str | os.PathLike[str], inputs: Iterable[Input] = ()
    ) -> dict[str, ConnectError]:
        """Return the same by what the entries say alone, without looking at the files that they name.

        It is quick, and what it lets pass has to be looked at whole before it is started.
        """
        given = _of_project(inputs)
        known, home = self._known(root)
        errors: dict[str, ConnectError] = {}
        for spec in specs:
            used = [one for one in given if one.id in input_ids(spec)]
            found, now = known.get(spec.name), parts(spec, Evidence(inputs=used))
            if found is None:
                errors[spec.name] = refusal(spec, home)
                continue
            then = replace(found, parts=entry_parts(found.parts))
            if changes := changes_of(then, now):
                errors[spec.name] = refusal(spec, home, changes=changes)
        return errors

    def _looks(
        self, specs: Iterable[ServerSpec], root: str | os.PathLike[str], inputs: Iterable[Input]
    ) -> list[Look]:
        from dragoman.evidence import gather  # needed where a project has servers that may be approved

        given = _of_project(inputs)
        known, home = self._known(root)
        looks: list[Look] = []
        for spec in specs:
            evidence, found = gather(spec, root, given), known.get(spec.name)
            changes: list[str] | None = None
            if found is not None and found.fingerprint != fingerprint(spec, evidence):
                changes = changes_of(found, parts(spec, evidence), evidence)
            error = None
            if found is None or changes is not None:
                error = refusal(spec, home, changes=changes)
            looks.append(
                Look(spec=spec, evidence=evidence, approval=found, changes=changes or (), error=error)
            )
        return looks

    def _known(self, root: str | os.PathLike[str]) -> tuple[dict[str, Approval], str]:
        home = project_root(root)
        return {one.server: one for one in self.all() if one.root == home}, home

    def decide(self, settings: Settings, root: str | os.PathLike[str]) -> Settings:
        """Return the settings that hold: what of a project's files was approved counts, nothing else."""
        if settings.layers is None:
            return settings
        # Only a server that the user defines too can take the project's place. Whether any other may be used
        # is checked when it starts.
        own = {spec.name for spec in settings.layers.own}
        rivals = [spec for spec in in_question(settings) if spec.name in own]
        return effective(
            settings,
            refused=self.refused(rivals, root, settings.inputs) if rivals else (),
            trusts_settings=self.trusts_settings(project_statements(settings), root),
        )

    def trusts_settings(self, statements: Sequence[Statement], root: str | os.PathLike[str]) -> bool:
        """Return whether this very content of a project's settings was approved."""
        if not statements:
            return False
        wanted = (project_root(root), SETTINGS, settings_fingerprint(statements))
        return any((one.root, one.server, one.fingerprint) == wanted for one in self.all())

    def approve_settings(self, statements: Sequence[Statement], root: str | os.PathLike[str]) -> Approval:
        """Remember that the user saw a project's settings and approved them.

        Raises:
            ConfigError: That cannot be written down.
        """
        new = Approval(
            root=project_root(root),
            server=SETTINGS,
            fingerprint=settings_fingerprint(statements),
            summary=settings_summary(statements),
            at=time.time(),
        )
        self._file.change(lambda old: [*_without(old, new.root, new.server), new])
        return new

    def approve(
        self,
        spec: ServerSpec,
        root: str | os.PathLike[str],
        evidence: Evidence | None = None,
        *,
        inputs: Iterable[Input] = (),
    ) -> Approval:
        """Remember that a person saw this content and said yes.

        Args:
            spec: The server.
            root: The project's directory.
            evidence: What was shown of the files that it names; as they are now unless given.
            inputs: The inputs of the configuration, where there is no evidence.

        Raises:
            ConfigError: That cannot be written down.
        """
        from dragoman.evidence import gather

        shown = gather(spec, root, _of_project(inputs)) if evidence is None else evidence
        new = new_approval(spec, project_root(root), shown, time.time())
        self._file.change(lambda old: [*_without(old, new.root, new.server), new])
        return new

    def revoke(self, server: str, root: str | os.PathLike[str]) -> bool:
        """Forget an approval; tell whether there was one.

        Raises:
            ConfigError: That cannot be written down.
        """
        home = project_root(root)
        if not any((one.root, one.server) == (home, server) for one in self.all()):
            return False
        self._file.change(lambda old: _without(old, home, server))
        return True


def _of_project(inputs: Iterable[Input]) -> list[Input]:
    """Return the inputs that a project's servers can see; the user's own are not for them."""
    return [one for one in inputs if one.scope in ("project", "code")]


def _without(approvals: Sequence[Approval], root: str, server: str) -> list[Approval]:
    return [one for one in approvals if (one.root, one.server) != (root, server)]


def _warn(path: Path, why: object) -> None:
    import logging  # it is rarely needed here, and takes a while to import

    logging.getLogger("dragoman").warning("%s is not used: %s", path, why)
