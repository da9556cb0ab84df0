"""The user's approvals of projects' servers and settings, and what changed since."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeAlias

from dragoman.storage.files import StoredFile, data_folder, project_root
from dragoman.struct import Struct
from dragoman.trust.approvals import (
    Approval,
    Evidence,
    changes_of,
    dump_approvals,
    entry_parts,
    fingerprint,
    input_ids,
    load_approvals,
    new_approval,
    parts,
    refusal,
)
from dragoman.trust.layers import (
    SETTINGS,
    effective,
    in_question,
    project_statements,
    settings_fingerprint,
    settings_summary,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from dragoman.errors import ConnectError
    from dragoman.model import Input, ServerSpec, Settings, Statement


Gather: TypeAlias = "Callable[[ServerSpec, str | os.PathLike[str], Iterable[Input]], Evidence]"


class Look(Struct, kw_only=True):
    """A project's server as it is now, and its approval."""

    spec: ServerSpec
    evidence: Evidence
    approval: Approval | None
    changes: Sequence[str] = ()
    """What differs from the approval."""
    error: ConnectError | None = None
    """Why it must not be used; `None` if it may."""


class Approvals:
    """The user's approvals."""

    def __init__(self, gather: Gather, folder: Path | None = None) -> None:
        """Use a folder, by default the user's data folder.

        Args:
            gather: Reads the files that a server's entry names: `config.evidence.gather`.
            folder: The folder of the file.
        """
        self._gather = gather
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
        """Return whether exactly this content was approved for this project."""
        return self.look(spec, root, inputs).error is None

    def look(self, spec: ServerSpec, root: str | os.PathLike[str], inputs: Iterable[Input] = ()) -> Look:
        """Compare a server and the files that it names with its approval."""
        return self._looks([spec], root, inputs)[0]

    def refused(
        self, specs: Iterable[ServerSpec], root: str | os.PathLike[str], inputs: Iterable[Input] = ()
    ) -> dict[str, ConnectError]:
        """Return an error for each server that is not approved, by name; the approvals are read once.

        The files of a server that was never approved are not read: a project could make that slow.
        """
        given, (known, home) = list(specs), self._known(root)
        errors = {spec.name: refusal(spec, home) for spec in given if spec.name not in known}
        looks = self._looks([spec for spec in given if spec.name in known], root, inputs)
        return errors | {one.spec.name: one.error for one in looks if one.error is not None}

    def refused_entries(
        self, specs: Iterable[ServerSpec], root: str | os.PathLike[str], inputs: Iterable[Input] = ()
    ) -> dict[str, ConnectError]:
        """Return the same as `refused` from the entries alone, without reading the files that they name.

        It is quick. A server that passes must be checked by `refused` before it starts.
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
            then = found.replace(parts=entry_parts(found.parts))
            if changes := changes_of(then, now):
                errors[spec.name] = refusal(spec, home, changes=changes)
        return errors

    def _looks(
        self, specs: Iterable[ServerSpec], root: str | os.PathLike[str], inputs: Iterable[Input]
    ) -> list[Look]:
        given = _of_project(inputs)
        known, home = self._known(root)
        looks: list[Look] = []
        for spec in specs:
            evidence, found = self._gather(spec, root, given), known.get(spec.name)
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
        """Return the effective settings: of a project's files, only what was approved counts."""
        if settings.layers is None:
            return settings
        # Only where the user defines a server of the same name does the choice matter here. Any other server
        # of the project is checked when it starts.
        own = {spec.name for spec in settings.layers.own}
        rivals = [spec for spec in in_question(settings) if spec.name in own]
        return effective(
            settings,
            refused=self.refused(rivals, root, settings.inputs) if rivals else (),
            trusts_settings=self.trusts_settings(project_statements(settings), root),
        )

    def trusts_settings(self, statements: Sequence[Statement], root: str | os.PathLike[str]) -> bool:
        """Return whether exactly these project settings were approved."""
        if not statements:
            return False
        wanted = (project_root(root), SETTINGS, settings_fingerprint(statements))
        return any((one.root, one.server, one.fingerprint) == wanted for one in self.all())

    def approve_settings(self, statements: Sequence[Statement], root: str | os.PathLike[str]) -> Approval:
        """Remember that the user approved a project's settings.

        Raises:
            ConfigError: The approvals cannot be written.
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
        """Remember that the user approved this content.

        Args:
            spec: The server.
            root: The project's directory.
            evidence: The files that the user was shown; the current ones unless given.
            inputs: The inputs of the configuration, used if `evidence` is not given.

        Raises:
            ConfigError: The approvals cannot be written.
        """
        shown = self._gather(spec, root, _of_project(inputs)) if evidence is None else evidence
        new = new_approval(spec, project_root(root), shown, time.time())
        self._file.change(lambda old: [*_without(old, new.root, new.server), new])
        return new

    def revoke(self, server: str, root: str | os.PathLike[str]) -> bool:
        """Forget an approval; return whether there was one.

        Raises:
            ConfigError: The approvals cannot be written.
        """
        home = project_root(root)
        if not any((one.root, one.server) == (home, server) for one in self.all()):
            return False
        self._file.change(lambda old: _without(old, home, server))
        return True


def _of_project(inputs: Iterable[Input]) -> list[Input]:
    """Return the inputs that a project's servers may use; the user's own are excluded."""
    return [one for one in inputs if one.scope in ("project", "code")]


def _without(approvals: Sequence[Approval], root: str, server: str) -> list[Approval]:
    return [one for one in approvals if (one.root, one.server) != (root, server)]
