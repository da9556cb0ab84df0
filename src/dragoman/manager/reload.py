"""Reloading: compare two `Settings`, decide what happens to each server, and watch the files.

A server is touched only if the meaning of its entry changed, not if the entry was moved or reformatted.
Settings that are read at each use (timeouts, filters, names) change without restarting the server. A broken
file, or an invalid entry, keeps its last valid content. Changes of a project's files take effect only once
they are approved, including changes of rules.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeGuard

from dragoman.errors import ConfigError, ConfigSyntaxError, InvalidSpecError
from dragoman.model.server import server_keys
from dragoman.struct import Struct
from dragoman.trust.layers import as_read, inputs_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

    from dragoman.errors import DragomanError
    from dragoman.model import ServerSpec, Settings

logger = logging.getLogger("dragoman")

QUIET_MS = 100
"""A file counts as written after this time without changes: editors write in several steps."""
GATHER_MS = 1_000
LOOK_MS = 5_000
"""How often to check files without a notification: some file systems send none."""
MAX_FOLDERS = 64


class Plan(Struct, kw_only=True):
    """What to do with each server, by name."""

    keep: Sequence[str] = ()
    adjust: Sequence[str] = ()
    """Keeps running, with changed rules."""
    restart: Sequence[str] = ()
    start: Sequence[str] = ()
    stop: Sequence[str] = ()
    forget: Sequence[str] = ()
    """Was disabled, and is not configured at all now."""


def diff(old: Settings, new: Settings) -> Plan:
    """Return what changed from old to new settings; a disabled server counts as absent."""
    before, after = _wanted(old), _wanted(new)
    listed = {spec.name for spec in new.servers}
    kinds: dict[str, list[str]] = {"keep": [], "adjust": [], "restart": []}
    for name in after:
        if name in before:
            kinds[_change(before[name], after[name], old, new)].append(name)
    return Plan(
        keep=tuple(kinds["keep"]),
        adjust=tuple(kinds["adjust"]),
        restart=tuple(kinds["restart"]),
        start=tuple(name for name in after if name not in before),
        stop=tuple(name for name in before if name not in after),
        forget=tuple(spec.name for spec in old.servers if spec.name not in before.keys() | listed),
    )


def unapproved(plan: Plan, refused: Collection[str]) -> Plan:
    """Return a plan in which servers whose new entry is not approved do not get changed rules.

    The plan replaces them instead. That fails before the old server is touched, so the old one keeps running.
    """
    held = tuple(name for name in plan.adjust if name in refused)
    adjust = tuple(name for name in plan.adjust if name not in refused)
    return plan.replace(adjust=adjust, restart=(*plan.restart, *held))


def hold(old: Settings, new: Settings) -> Settings:
    """Return the new settings, with the old content of broken files and invalid entries.

    This is decided per file: a broken file of the project does not block a change in the user's own file.
    """
    before, after = old.layers, new.layers
    if before is None or after is None:
        return new
    broken = {problem.source for problem in after.problems if _spoils_its_file(problem)}
    entries = {
        (problem.source, problem.pointer)
        for problem in after.problems
        if isinstance(problem, InvalidSpecError)
    }
    order = [source.path for source in (*new.sources, *old.sources)]
    kept = [one for one in before.statements if one.source in broken]
    statements = [*(one for one in after.statements if one.source not in broken), *kept]
    layers = after.replace(
        servers=_held(before.servers, after.servers, broken, entries, _hidden(old, broken)),
        own=_held(before.own, after.own, broken, entries, _hidden(old, broken, own=True)),
        # The strongest file first, in search order; statements of a file for one project come before.
        statements=sorted(
            statements,
            key=lambda one: (one.scope != "local", order.index(one.source) if one.source in order else -1),
        ),
    )
    return as_read(new.replace(layers=layers))


def _held(
    old: Iterable[ServerSpec],
    new: Iterable[ServerSpec],
    broken: Collection[str],
    invalid: Collection[tuple[str, str]],
    hidden: Collection[str],
) -> list[ServerSpec]:
    servers = {spec.name: spec for spec in new if spec.origin.source not in hidden}
    for spec in old:
        if spec.origin.source in broken:
            servers[spec.name] = spec
        elif any(source == spec.origin.source and _is_at(pointer, spec) for source, pointer in invalid):
            servers.setdefault(spec.name, spec)
    return list(servers.values())


def _hidden(old: Settings, broken: Collection[str], *, own: bool = False) -> set[str]:
    """Return the files that were hidden by a nearer file that is broken now; `own`: skip the project's."""
    layers = old.layers
    if layers is None or not layers.first_only:
        return set()
    seen = [one for one in old.sources if one.status != "absent" and not (own and one.scope == "project")]
    return {one.path for one in seen[1:]} if seen and seen[0].path in broken else set()


def _wanted(settings: Settings) -> dict[str, ServerSpec]:
    return {spec.name: spec for spec in settings.servers if settings.enabled and spec.enabled}


def _change(
    before: ServerSpec, after: ServerSpec, old: Settings, new: Settings
) -> Literal["keep", "adjust", "restart"]:
    # A reload has read files, which imports this; a manager without files does not need it.
    from dragoman.config.merge import differences
    from dragoman.config.templates import input_ids

    unlike = set(differences(before, after, ""))
    if after.health_check_interval is None and old.health_check_interval != new.health_check_interval:
        unlike.add("health_check_interval")
    if after.naming is None and old.naming != new.naming:
        unlike.add("naming")
    known = (inputs_of(before, old), inputs_of(after, new))
    defaults = [{item.id: item.default for item in inputs.values()} for inputs in known]
    moved = {name for name in defaults[0] | defaults[1] if defaults[0].get(name) != defaults[1].get(name)}
    if moved.intersection(input_ids(after)):
        return "restart"
    if not unlike:
        return "keep"
    return "restart" if any(map(_restarts, unlike)) else "adjust"


def _restarts(place: str) -> bool:
    """Return whether a change of a key, or of an item of its table, restarts the server."""
    every = server_keys()
    return every.get(place, every[place.partition(".")[0]]).restarts


def _spoils_its_file(problem: DragomanError) -> TypeGuard[ConfigError]:
    return isinstance(problem, ConfigSyntaxError) or (
        isinstance(problem, ConfigError) and bool(problem.source) and not problem.pointer
    )


def _is_at(pointer: str, spec: ServerSpec) -> bool:
    own = spec.origin.pointer
    return bool(own) and (pointer == own or pointer.startswith((f"{own}.", f"{own}[")))


class Watcher:
    """Watches files, including those that do not exist yet.

    It watches their folders, because a replaced file is a new file.
    """

    def __init__(self, files: Callable[[], Iterable[Path]], changed: Callable[[], Awaitable[object]]) -> None:
        """Record the current version of the files.

        Args:
            files: Returns the files; called again after every change.
            changed: Called whenever one of them has changed.
        """
        self._files = files
        self._changed = changed
        self._known = self._readings()
        self._doubted: set[Path] = set()
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start watching, unless already started."""
        if self._tasks and not self._stop.is_set():
            return
        self._stop = asyncio.Event()
        task = asyncio.create_task(self._run(self._stop), name="dragoman watches the configuration")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> set[asyncio.Task[None]]:
        """Stop watching; return the running tasks. A change that is being applied is finished first."""
        self._stop.set()
        return set(self._tasks)

    async def _run(self, stop: asyncio.Event) -> None:
        polling: bool | None = None
        while not stop.is_set():
            folders = self._folders()
            try:
                await self._look()
                await self._watch(folders, stop, polling=polling)
            except (OSError, RuntimeError) as exc:
                # The system's file watches may be used up, or a folder was just deleted.
                logger.warning("cannot watch the configuration's folders, polling them instead: %s", exc)
                polling = True
                await _pause(stop, LOOK_MS / 1000)

    async def _watch(self, folders: set[Path], stop: asyncio.Event, *, polling: bool | None) -> None:
        from watchfiles import awatch  # pyright: ignore[reportUnknownVariableType] -- of trio, which may be absent

        batches = awatch(
            *folders,
            watch_filter=None,
            debounce=GATHER_MS,
            step=QUIET_MS,
            stop_event=stop,
            rust_timeout=LOOK_MS,
            yield_on_timeout=True,
            recursive=False,
            force_polling=polling,
            ignore_permission_denied=True,
        )
        async with aclosing(batches):
            async for _ in batches:
                await self._look()
                if self._folders() != folders:
                    return

    async def _look(self) -> None:
        seen = await asyncio.to_thread(self._readings)
        # Writing a file often truncates it first: an empty file counts only if it is still empty next time.
        doubtful = {path for path, reading in seen.items() if reading and reading[1] == 0}
        doubtful -= {path for path in doubtful if seen[path] == self._known.get(path)} | self._doubted
        self._doubted = doubtful
        if seen == self._known or doubtful:
            return
        self._known = seen
        try:
            await self._changed()
        except Exception:
            logger.exception("the changed configuration could not be applied")

    def _readings(self) -> dict[Path, tuple[int, ...] | None]:
        """Return the version of each file: it differs after every change."""
        return {path: _reading(path) for path in self._files()}

    def _folders(self) -> set[Path]:
        """Return the nearest existing folder of each file, and that of its target if it is a link."""
        found: set[Path] = set()
        for path in self._files():
            for place in {path, Path(os.path.realpath(path))}:
                found.add(next((folder for folder in place.parents if folder.is_dir()), Path("/")))
        return set(sorted(found)[:MAX_FOLDERS])


def _reading(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        pass
