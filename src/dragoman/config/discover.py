"""From a profile to `Settings`: look for the files, read them, merge them, report every problem.

This is the only way configuration gets in. Nothing raises for what a file says: each problem is
logged, kept in `Settings.problems` with its place, and the rest is used. A file that is not there is
silence, unless somebody named it.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from dragoman.config.detect import detect
from dragoman.config.dialect import EMPTY, Place, local_part
from dragoman.config.dialects import dialect
from dragoman.config.dialects.legal import finder
from dragoman.config.documents import MAX_PROJECT_BYTES, dotted, environment
from dragoman.config.expand import Surroundings, expand, expand_home
from dragoman.config.files import is_file, read
from dragoman.config.merge import Layer, merge
from dragoman.config.profiles import Profile, profile_named
from dragoman.config.reading import shown
from dragoman.errors import ConfigError, ConfigSyntaxError
from dragoman.model import Layers, Settings, Source
from dragoman.trust.layers import as_read

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dragoman.config.dialect import Dialect, Entry, Patch
    from dragoman.config.documents import Document
    from dragoman.model import ServerSpec


MAX_SERVERS = 1_000
"""Of one file."""


class _Unset(Exception):  # noqa: N818 -- a signal inside this module, never seen outside
    """A place's path needs a variable that is not set, so there is no such place."""


def load(
    profile: str | Profile = "dragoman",
    *,
    root: str | os.PathLike[str] | None = None,
    config: str | os.PathLike[str] | None = None,
    log_problems: bool = True,
    # The world around, for tests and for applications that serve several users
    env: Mapping[str, str] | None = None,
    home: str | os.PathLike[str] | None = None,
    platform: str | None = None,
) -> Settings:
    """Read all the configuration there is.

    Args:
        profile: An application's profile, or its name.
        root: The project's directory; the working directory unless given.
        config: The one file to read instead of the profile's own.
        log_problems: Whether problems are logged; a caller that shows them itself needs no log.
        env: The environment; this process's unless given.
        home: The home directory; this user's unless given.
        platform: As `sys.platform`.
    """
    profile = profile_named(profile) if isinstance(profile, str) else profile
    surroundings = Surroundings(
        env=os.environ if env is None else env,
        root=os.path.abspath(root or Path.cwd()),  # noqa: PTH100 -- keeps symbolic links as the user wrote them
        home=str(home) if home else str(Path.home()),
    )
    search = _Search(profile, surroundings, platform or sys.platform)
    search.run(None if config is None else str(config))
    settings = search.settings()
    if settings.problems and log_problems:
        # Most readings have no problem and need no logging, which takes a while to import.
        import logging

        for problem in settings.problems:
            logging.getLogger("dragoman").error("%s", problem)
    return settings


def candidate_places(
    profile: Profile, surroundings: Surroundings, platform: str
) -> Iterable[tuple[Place, Path]]:
    """Yield the files that a profile looks for on this machine, the strongest first."""
    for place in profile.all_places():
        path = place_path(place.path, surroundings)
        if path is not None and (not place.platform or platform.startswith(place.platform)):
            for each in _fitting(path):
                yield place, each


def _fitting(path: Path) -> Sequence[Path]:
    """Return the files that a path with a `*` stands for; itself where there are none."""
    if "*" not in path.name:
        return (path,)
    try:
        return sorted(path.parent.glob(path.name)) or (path,)
    except OSError:
        return (path,)


def place_path(template: str, surroundings: Surroundings) -> Path | None:
    """Return the path that a template stands for; `None` where a variable in it is unset."""

    def missing(_name: str, _whole: str) -> str:
        raise _Unset

    home = surroundings.home
    try:
        text = expand(template, surroundings, missing)
    except _Unset:
        return None
    return Path(expand_home(text, home))


class _Search:
    """One pass over the places of a profile."""

    def __init__(self, profile: Profile, surroundings: Surroundings, platform: str) -> None:
        self.profile = profile
        self.surroundings = surroundings
        self.platform = platform
        self.unset = self._unset_policy()
        self.layers: list[Layer] = []
        self.sources: list[Source] = []
        self.problems: list[ConfigError] = []

    def run(self, config: str | None) -> None:
        variable = self.profile.config_variable()
        named = config or (self.surroundings.env.get(variable, "") if variable else "")
        if named:
            path = Path(self.surroundings.root, expand_home(named, self.surroundings.home))
            self._read_named(path, "" if config else variable)
        candidates = candidate_places(self.profile, self.surroundings, self.platform)
        for place, path in candidates:
            self._read_place(place, path, hidden=bool(named))
        if self.profile.environment and not config:
            self._read_environment()

    def settings(self) -> Settings:
        combine = self.profile.combine
        local = [layer for layer in self.layers if layer.scope == "local"]
        others = [layer for layer in self.layers if layer.scope != "local"]
        merged = merge([*local, *others], combine)
        layers = Layers(
            servers=self._with_unset(merged.servers),
            own=self._with_unset(merged.own),
            statements=merged.statements,
            naming=self.profile.naming,
            first_only=combine == "first",
            problems=[*self.problems, *merged.problems],
        )
        read = Settings(
            collisions=self.profile.collisions,
            by_field=combine == "fields",
            profile=self.profile.app,
            root=self.surroundings.root,
            sources=self.sources,
            layers=layers,
        )
        return as_read(read)

    def _with_unset(self, specs: Iterable[ServerSpec]) -> list[ServerSpec]:
        if self.unset == "error":
            return list(specs)
        return [replace(spec, unset_variables=self.unset) for spec in specs]

    def _unset_policy(self) -> Literal["error", "keep", "empty"]:
        variable = self.profile.unset_variable
        value = self.surroundings.env.get(variable, "error") if variable else "error"
        return cast("Literal['error', 'keep', 'empty']", value) if value in ("keep", "empty") else "error"

    def _read_named(self, path: Path, variable: str) -> None:
        place = Place(str(path), "session")
        try:
            document = read(path)
        except FileNotFoundError:
            who = f"`{variable}` names it" if variable else "it was asked for"
            msg = f"the file does not exist, although {who}"
            self.problems.append(ConfigSyntaxError(msg, source=str(path), hint="check the path"))
            self._note(place, path, "absent")
            return
        except ConfigSyntaxError as error:
            self.problems.append(error)
            self._note(place, path, "broken")
            return
        chosen = self.profile.default_dialect
        if chosen in ("mcp-json", "legal"):
            chosen = detect(document)
        self._add(document, place, chosen)

    def _read_place(self, place: Place, path: Path, *, hidden: bool) -> None:
        read_before = self.layers if self.profile.combine == "first" else ()
        before = {layer.scope == "project" for layer in read_before}
        # Behind a project's file, the user's own has to be known: it counts until the project's is approved.
        if hidden or False in before or (before and place.scope == "project"):
            self._note(place, path, "hidden" if is_file(path) else "absent")
            return
        try:
            most = MAX_PROJECT_BYTES if place.scope == "project" else None
            document = read(path, place.format, only_regular=True, most=most)
        except FileNotFoundError:
            self._note(place, path, "absent")
        except ConfigSyntaxError as error:
            self.problems.append(error)
            self._note(place, path, "broken")
        else:
            self._add(document, place, place.dialect, status="hidden" if before else "loaded")

    def _read_environment(self) -> None:
        found = self._dialect("legal")
        document = environment(self.surroundings.env)
        entries = list(found.find(document, self.surroundings.root))
        self.layers.append(Layer(document=document, dialect=found, scope="user", entries=entries))
        self.sources.append(
            Source(
                path=f"environment: {self.profile.environment}_MCP_*",
                dialect=found.name,
                scope="user",
                status="loaded" if entries else "absent",
                servers=len(entries),
            )
        )

    def _add(
        self, document: Document, place: Place, name: str, status: Literal["loaded", "hidden"] = "loaded"
    ) -> None:
        found = self._dialect(name)
        root = self.surroundings.root
        entries = self._bounded(document, found.find(document, root))
        layer = Layer(document=document, dialect=found, scope=place.scope, entries=entries)
        local, local_patch = local_part(found, document, root)
        local = self._bounded(document, local)
        if place.scope == "project":
            self.problems.extend(_not_local(document, found, local, local_patch))
            local, local_patch = [], EMPTY
        elif local or local_patch.without_servers:
            self.layers.append(replace(layer, scope="local", entries=local, patch=local_patch))
        self.layers.append(replace(layer, patch=found.patch(document, root)))
        count = len(entries) + len(local)
        self.problems.extend(_wrong_as_a_whole(document, found, found_any=bool(count)))
        self._note(place, Path(document.source), status, servers=count, dialect_name=name)

    def _bounded(self, document: Document, found: Iterable[Entry]) -> list[Entry]:
        """Return the entries of a file, up to a number that no person writes."""
        entries = list(islice(found, MAX_SERVERS + 1))
        if len(entries) > MAX_SERVERS:
            del entries[MAX_SERVERS:]
            msg = f"the file has more than {MAX_SERVERS:,} servers; the rest is ignored"
            self.problems.append(ConfigError(msg, source=document.source, hint="split the file"))
        return entries

    def _dialect(self, name: str) -> Dialect:
        """Return a dialect, as this profile and this environment have it."""
        found = dialect(name)
        if name == "legal" and self.profile.environment:
            return replace(found, find=finder(self.profile.environment))
        if self.unset == "keep" and found.style.bare:
            return replace(found, style=replace(found.style, keep_bare=True))
        return found

    def _note(
        self,
        place: Place,
        path: Path,
        status: Literal["absent", "loaded", "hidden", "broken"],
        *,
        servers: int = 0,
        dialect_name: str = "",
    ) -> None:
        source = Source(
            path=str(path),
            dialect=dialect_name or place.dialect,
            scope=place.scope,
            status=status,
            servers=servers,
        )
        self.sources.append(source)


def _not_local(
    document: Document, found: Dialect, entries: Sequence[Entry], patch: Patch
) -> Iterable[ConfigError]:
    """Say that a project's file cannot speak for the user."""
    pointers = [entry.pointer for entry in entries] + list(patch.places.values())
    for pointer in pointers:
        msg = "this counts in a file of yours only, and this file came with the project: it is ignored"
        hint = (
            f"write it into your own file of {found.title}, or under `{dotted(tuple(found.container))}` here"
        )
        line = document.line(pointer)
        yield ConfigError(msg, source=document.source, pointer=dotted(pointer), line=line, hint=hint)


def _wrong_as_a_whole(document: Document, found: Dialect, *, found_any: bool) -> Iterable[ConfigError]:
    data = document.data
    if not isinstance(data, dict) and not found_any and data != []:
        key = dotted(tuple(found.container))
        msg = f"expected an object with servers under `{key}`, not {shown(data, private=True)}"
        yield ConfigError(msg, source=document.source, line=1)
    for pointer, line in document.repeats.items():
        msg = "this key stands twice in one object; the last one counts"
        hint = "rename or remove one of them"
        yield ConfigError(msg, source=document.source, pointer=dotted(pointer), line=line, hint=hint)
