"""Two `Settings` become what to keep, replace, start and stop; the files behind them are watched.

The policy: a server is touched only if its entry means something else than before, not because it was moved
or is spelled otherwise. What is read from a spec at each use (time limits, filters, names) changes without
touching the server. A file that is broken now, and an entry that is invalid now, keep what they said before.
What a project's file says otherwise than it was approved is not taken over, not even a rule.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeGuard

from dragoman.config.comparing import differences
from dragoman.errors import ConfigError, ConfigSyntaxError, InvalidSpecError
from dragoman.model import Stdio
from dragoman.server.roster import overtaken
from dragoman.trust.layers import as_read, inputs_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence

    from dragoman.errors import DragomanError
    from dragoman.model import ServerSpec, Settings
    from dragoman.server.roster import Roster

logger = logging.getLogger("dragoman")

QUIET_MS = 100
"""A file counts as written when nothing happened to it for so long: editors write in several steps."""
GATHER_MS = 1_000
LOOK_MS = 5_000
"""Files are looked at now and then without being told: some file systems tell nothing."""
MAX_FOLDERS = 64

_READ_AT_EACH_USE = frozenset(
    {"title", "description", "allowed_tools", "denied_tools", "naming", "fallback", "required", "replace"}
    | {"trust", "trust_annotations", "timeouts.call", "timeouts.connect"}
    | {"parallel", "mend_arguments", "attribution", "limits"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What has to be done with every server, by name."""

    keep: Sequence[str] = ()
    adjust: Sequence[str] = ()
    """Runs on, by other rules."""
    replace: Sequence[str] = ()
    start: Sequence[str] = ()
    stop: Sequence[str] = ()
    forget: Sequence[str] = ()
    """Was switched off, and is not there at all now."""


def diff(old: Settings, new: Settings) -> Plan:
    """Compare what was wanted with what is wanted now; a server that is switched off counts as absent."""
    before, after = _wanted(old), _wanted(new)
    listed = {spec.name for spec in new.servers}
    kinds: dict[str, list[str]] = {"keep": [], "adjust": [], "replace": []}
    for name in after:
        if name in before:
            kinds[_change(before[name], after[name], old, new)].append(name)
    return Plan(
        keep=tuple(kinds["keep"]),
        adjust=tuple(kinds["adjust"]),
        replace=tuple(kinds["replace"]),
        start=tuple(name for name in after if name not in before),
        stop=tuple(name for name in before if name not in after),
        forget=tuple(spec.name for spec in old.servers if spec.name not in before.keys() | listed),
    )


def unapproved(plan: Plan, refused: Collection[str]) -> Plan:
    """Return a plan in which servers that nobody has approved as they are now do not go on by other rules.

    They are to be replaced, which fails before anything is done with them, and those that run go on.
    """
    held = tuple(name for name in plan.adjust if name in refused)
    adjust = tuple(name for name in plan.adjust if name not in refused)
    return replace(plan, adjust=adjust, replace=(*plan.replace, *held))


def hold(old: Settings, new: Settings) -> Settings:
    """Return the new settings, as they were read, with what still holds of the old ones.

    That is what a file said that is broken now, and entries that are invalid now. Each file keeps its own: a
    project's broken file does not keep a change of the user's from being taken over.
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
    layers = replace(
        after,
        servers=_held(before.servers, after.servers, broken, entries, _hidden(old, broken)),
        own=_held(before.own, after.own, broken, entries, _hidden(old, broken, own=True)),
        # The strongest file first, as they are looked for; what a file says for one project comes before.
        statements=sorted(
            statements,
            key=lambda one: (one.scope != "local", order.index(one.source) if one.source in order else -1),
        ),
    )
    return as_read(replace(new, layers=layers))


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
    """Return the files that a nearer one hid, which is broken now; `own`: without the project's."""
    layers = old.layers
    if layers is None or not layers.first_only:
        return set()
    seen = [one for one in old.sources if one.status != "absent" and not (own and one.scope == "project")]
    return {one.path for one in seen[1:]} if seen and seen[0].path in broken else set()


async def apply(
    plan: Plan, settings: Settings, *, roster: Roster, starts: Callable[[ServerSpec], bool]
) -> dict[str, DragomanError]:
    """Carry a plan out, all servers at once; return why some did not get ready.

    Args:
        plan: From what is current to `settings`.
        settings: What is wanted.
        roster: Where it happens.
        starts: Whether a server is started without being asked for.
    """
    specs = {spec.name: spec for spec in settings.servers}
    for name in (*plan.stop, *plan.forget):
        if name not in specs:
            roster.drop(roster.current[name])
    for name in plan.keep:
        roster.current[name].adopt(specs[name])
    for name in plan.adjust:
        roster.adjust(specs[name])
    for name in specs.keys() - {*plan.keep, *plan.adjust, *plan.start, *plan.replace}:
        roster.put(specs[name])
    failed: dict[str, DragomanError] = {}

    async def change(spec: ServerSpec) -> None:
        old = roster.current.get(spec.name)
        try:
            if old is None:
                error = await roster.start(spec, starts=starts(spec))
            else:
                error = await roster.exchange(old, spec, starts=starts(spec))
        except Exception:
            logger.exception("%s: the reload failed in an unforeseen way", spec.name)
            error = overtaken(spec.name)
        if error is not None:
            failed[spec.name] = error

    async with asyncio.TaskGroup() as group:
        for name in (*plan.start, *plan.replace):
            group.create_task(change(specs[name]))
    for name in specs:
        if name in roster.current:
            roster.current[name] = roster.current.pop(name)
    return failed


def _wanted(settings: Settings) -> dict[str, ServerSpec]:
    return {spec.name: spec for spec in settings.servers if settings.enabled and spec.enabled}


def _change(
    before: ServerSpec, after: ServerSpec, old: Settings, new: Settings
) -> Literal["keep", "adjust", "replace"]:
    unlike = set(differences(before, after, ""))
    if after.health_check_interval is None and old.health_check_interval != new.health_check_interval:
        unlike.add("health_check_interval")
    if after.naming is None and old.naming != new.naming:
        unlike.add("naming")
    known = (inputs_of(before, old), inputs_of(after, new))
    defaults = [{item.id: item.default for item in inputs.values()} for inputs in known]
    moved = {name for name in defaults[0] | defaults[1] if defaults[0].get(name) != defaults[1].get(name)}
    if any(f"${{input:{name}}}" in text for name in moved for text in _templates(after)):
        unlike.add("inputs")
    if not unlike:
        return "keep"
    return "adjust" if unlike <= _READ_AT_EACH_USE else "replace"


def _templates(spec: ServerSpec) -> Iterator[str]:
    transport = spec.transport
    if isinstance(transport, Stdio):
        values = (value for value in transport.env.values() if value)
        yield from (transport.command, *transport.args, *values, transport.cwd or "", *transport.env_file)
    else:
        yield from (transport.url, *transport.headers.values())


def _spoils_its_file(problem: DragomanError) -> TypeGuard[ConfigError]:
    return isinstance(problem, ConfigSyntaxError) or (
        isinstance(problem, ConfigError) and bool(problem.source) and not problem.pointer
    )


def _is_at(pointer: str, spec: ServerSpec) -> bool:
    own = spec.origin.pointer
    return bool(own) and (pointer == own or pointer.startswith((f"{own}.", f"{own}[")))


class Watcher:
    """Looks after files, also after those that do not exist yet.

    Folders are watched rather than files, so that a file which is replaced by another is noticed.
    """

    def __init__(self, files: Callable[[], Iterable[Path]], changed: Callable[[], Awaitable[object]]) -> None:
        """Take in what the files are now.

        Args:
            files: Tells which files; asked again after every change.
            changed: Called whenever one of them is another than before.
        """
        self._files = files
        self._changed = changed
        self._known = self._readings()
        self._doubted: set[Path] = set()
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to watch, unless that is under way."""
        if self._tasks and not self._stop.is_set():
            return
        self._stop = asyncio.Event()
        task = asyncio.create_task(self._run(self._stop), name="dragoman watches the configuration")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> set[asyncio.Task[None]]:
        """Begin to end; return what is still at it. A change that is being applied is applied."""
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
                # The system's watches may be used up, or a folder has just gone.
                logger.warning("the configuration's folders are looked at now and then only: %s", exc)
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
        # Who writes a file empties it first: an empty one counts when it is still so at the next look.
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
        """Return what tells one version of each file from another."""
        return {path: _reading(path) for path in self._files()}

    def _folders(self) -> set[Path]:
        """Return the nearest folder that exists for each file, and the one of what a link points to."""
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
