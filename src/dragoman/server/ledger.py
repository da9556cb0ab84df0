"""A ledger of children on disk, so that what a killed dragoman left behind is swept at the next start.

Each process keeps one small file of its living children: a line about itself, then a line for each child
that was started or is gone, since adding a line costs a hundredth of what starting a child does. A file
whose owner is gone is swept: a child in it is killed, with its group, only if a process of that number
still runs and began when the ledger says; and so is whatever carries the child's mark in its environment or
its limits, which descendants inherit. A container that the child had is ended too. A living owner's
children are never touched, and nothing is swept that cannot be told apart for sure. A page that cannot be
read costs its own sweep and nothing else. It needs `/proc`; elsewhere it keeps nothing.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack, cast

from dragoman.private import private_folder, private_temporary
from dragoman.server.containers import Container, end

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

logger = logging.getLogger("dragoman")

MARK = "DRAGOMAN_CHILD"
"""The variable by which a child's descendants are known."""

MAX_LINES = 1000
"""From so many lines of the past on, the page is written anew."""

_SUFFIX = ".jsonl"
_PROC = Path("/proc")
_PARENT_FIELD = 1
_GROUP_FIELD = 2
_SESSION_FIELD = 3
_START_FIELD = 19
_SIZE_FIELD = 20
"""Fields of `/proc/PID/stat`, counted from the one after the command's name."""
_STAT_CHARS = 4_096
_PAGE_BYTES = 8 * 1024 * 1024
"""More than a page of thousands of children has."""
_KILL_SECONDS = 2.0
_KILL_PAUSE = 0.02
_TRIES = 10
"""How often a look is taken that finds nobody, while at each of them somebody else has gone away."""
_ENVIRON_BYTES = 8 * 1024 * 1024
"""More than Linux lets a program have."""
_ENVIRON_TRIES = 5
_ENVIRON_PAUSE = 0.001
_AHEAD = 32
"""How many numbers beyond the newest are tried: the newest may have handed over since, and exited."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A process that no other can be mistaken for: its number, and when it began."""

    pid: int
    began: str


def identify(pid: int) -> Identity | None:
    """Return who has a process number now; `None` if nobody has, or if this system does not tell."""
    try:
        fields = _fields(pid)
        boot = _boot()
    except OSError:
        return None
    return None if fields[0] == "Z" else Identity(pid, f"{boot}/{fields[_START_FIELD]}")


def _fields(pid: int) -> list[str]:
    """Read what the system tells of a process, from its state on.

    Raises:
        OSError: There is no such process, or it is not told.
    """
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123 -- in the way of every start
        fields = file.read(_STAT_CHARS).rpartition(")")[2].split()
    if len(fields) <= _SIZE_FIELD:
        raise ProcessLookupError
    return fields


@cache
def _boot() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()


def began(pid: int) -> int:
    """Return when a process began, in ticks of the system; 0, which is before all others, if it is gone."""
    identity = identify(pid)
    return int(identity.began.rpartition("/")[2]) if identity else 0


class Kin(TypedDict, total=False):
    """By what the descendants of a child are known, besides their marks."""

    group: int
    """The number of the process group that the child led."""
    ends: Mapping[str, int]
    """The child's ends of our pipes to it, as `child_ends` tells them."""
    since: int
    """When the child began: a descendant never began before."""
    tags: Sequence[int]
    """What marks limits of the child, which descendants inherit even if they empty their environment."""


def child_ends(stdin: int, stdout: int, stderr: int) -> dict[str, int]:
    """Tell a child's ends of our three pipes: what they are called, and the mode that they are open in."""
    modes = {stdin: stat.S_IRUSR, stdout: stat.S_IWUSR, stderr: stat.S_IWUSR}
    return {f"pipe:[{os.fstat(descriptor).st_ino}]": mode for descriptor, mode in modes.items()}


def relatives(*marks: str, number: int = 0, **kin: Unpack[Kin]) -> list[int]:
    """Find the living processes that carry one of these marks, are of a group or hold a child's pipes.

    The newest come first, and each is signalled where it is found: one that hands over to the next and exits
    is gone a moment later. Those that we may not signal are left out. It needs `/proc`.

    Args:
        marks: What they have in their environment.
        number: The signal that each of them gets; 0 is none.
        kin: What else they may be known by.
    """
    wanted = {f"{MARK}={mark}".encode() for mark in marks if mark}
    found: list[int] = []
    gone: set[int] = set()
    for _ in range(_TRIES):
        before = len(gone)
        found = _look(wanted, kin, number, gone)
        if found or len(gone) == before:
            break
    return found


def _look(wanted: set[bytes], kin: Kin, number: int, gone: set[int]) -> list[int]:
    """Look once; notes who went away meanwhile, and may have handed over to somebody that was not seen."""
    group, ends, since = str(kin.get("group")), kin.get("ends"), kin.get("since", 0)
    tags = {str(tag).encode() for tag in kin.get("tags", ()) if tag}
    us = os.getpid()
    found: list[int] = []
    listed = _listed()
    newest = max(listed, default=0)
    for pid in (*range(newest + 1, newest + 1 + _AHEAD), *listed):
        try:
            fields = _fields(pid)
            if pid == us or int(fields[_START_FIELD]) < since:
                continue
            if fields[0] == "Z" or fields[_SIZE_FIELD] == "0":  # it exits, or is a thread of the system's own
                gone.add(pid)
            elif (
                fields[_GROUP_FIELD] == group
                or (ends and _holds(pid, fields[_SESSION_FIELD], ends))
                or (tags and _is_limited(pid, tags))
                or (wanted and _carries(pid, wanted))
            ):
                os.kill(pid, number)
                found.append(pid)
        except (FileNotFoundError, ProcessLookupError):
            if pid <= newest:
                gone.add(pid)
        except OSError:
            continue
    return found


def _listed() -> list[int]:
    """Return the numbers of all processes, the newest first."""
    try:
        names = os.listdir(_PROC)  # noqa: PTH208 -- paths cost more than the look
    except OSError:
        return []
    return sorted((int(name) for name in names if name.isdigit()), reverse=True)


def kill_relatives(*marks: str, **kin: Unpack[Kin]) -> set[int]:
    """Kill the relatives, again and again until a look finds nobody, in bounded time; returns who they were.

    One look is not enough: a process may start another while it is looked for.
    """
    killed: set[int] = set()
    until = time.monotonic() + _KILL_SECONDS
    while found := relatives(*marks, number=signal.SIGKILL, **kin):
        killed.update(found)
        if time.monotonic() > until:
            break
        time.sleep(_KILL_PAUSE)
    return killed


def _carries(pid: int, wanted: set[bytes]) -> bool:
    """Tell whether a process carries a mark.

    Raises:
        ProcessLookupError: It has no environment: it may have emptied it, or it exits.
    """
    for _ in range(_ENVIRON_TRIES):
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 -- every process is looked at
            if environ := file.read(_ENVIRON_BYTES):
                return not wanted.isdisjoint(environ.split(b"\0"))
        # There is none either for a moment while a process turns into another program.
        time.sleep(_ENVIRON_PAUSE)
    raise ProcessLookupError


def _is_limited(pid: int, tags: set[bytes]) -> bool:
    """Return whether a process has a limit that marks it."""
    try:
        with open(f"/proc/{pid}/limits", "rb") as file:  # noqa: PTH123 -- as above
            return not tags.isdisjoint(file.read(_STAT_CHARS).split())
    except PermissionError:
        return False


def _holds(pid: int, session: str, ends: Mapping[str, int]) -> bool:
    """Tell whether a process has inherited one of a child's ends.

    Only the three standard descriptors count: others may have been passed to a process that is no descendant,
    as `ssh` does with its own to the one that keeps the connection. A process of our own session was forked
    off by us: a child has left that session before it runs.
    """
    if session == str(os.getsid(0)):
        return False
    for descriptor in range(3):
        path = f"/proc/{pid}/fd/{descriptor}"
        with suppress(FileNotFoundError):
            if os.lstat(path).st_mode & ends.get(os.readlink(path), 0):  # noqa: PTH115 -- as above
                return True
    return False


def default_folder() -> Path:
    """Return where the ledgers of this user lie."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state, "dragoman", "children")


class Ledger:
    """This process's own page: who is alive because of us."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """Where the page lies, and what belongs to it."""
        self._owner = identify(os.getpid())
        self._children: dict[int, dict[str, Any]] = {}
        self._lines = 0
        """How many lines there are on disk; none if they are not known to be whole."""
        self._lock = Lock()

    @property
    def _file(self) -> Path:
        return self.folder / f"{os.getpid()}{_SUFFIX}"

    def add(
        self, pid: int, name: str, mark: str, *, tag: int = 0, container: Container | None = None
    ) -> None:
        """Enter a child, right after it was started.

        Args:
            pid: Its number.
            name: The server's name.
            mark: What is in its environment.
            tag: What is in its limits; 0 is nothing.
            container: What it may have started outside of its family.
        """
        child = identify(pid)
        if child is not None:
            entry = {**_written(child), "name": name, "mark": mark, "tag": tag}
            if container is not None:
                entry["container"] = container.written()
            with self._lock:
                self._children[pid] = entry
                self._write(entry)

    def remove(self, pid: int) -> None:
        """Cross a child out, once its whole group is gone."""
        with self._lock:
            if self._children.pop(pid, None) is not None:
                self._write({"gone": pid})

    def _write(self, line: dict[str, Any]) -> None:
        if self._owner is None:
            return
        # A ledger that cannot be written costs the sweep, never the server.
        with suppress(OSError):
            lines, self._lines = self._lines, 0
            if not self._children:
                self._file.unlink(missing_ok=True)
                return
            if lines == 0 or lines > MAX_LINES + 2 * len(self._children) or not self._append(line):
                self._rewrite()
                lines = len(self._children)
            self._lines = lines + 1

    def _append(self, line: dict[str, Any]) -> bool:
        """Add a line; returns whether there is a page that it could be added to."""
        try:
            # Whatever lies in its place must not hold us up, nor lead elsewhere.
            page = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            if _fault(os.fstat(page)):
                return False
            data = _encoded(line)
            return os.write(page, data) == len(data)
        finally:
            os.close(page)

    def _rewrite(self) -> None:
        assert self._owner is not None  # noqa: S101 -- else nothing is written
        private_folder(self.folder)
        number, name = private_temporary(self.folder, ".new")
        try:
            with os.fdopen(number, "wb") as file:
                file.writelines(map(_encoded, (_written(self._owner), *self._children.values())))
            Path(name).replace(self._file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


class _Left(NamedTuple):
    """A child that a dead owner may have left behind."""

    identity: Identity
    name: str
    mark: str
    tag: int
    container: Container | None


def sweep(folder: Path) -> int:
    """Kill what dead owners left behind; returns how many processes that were."""
    killed = 0
    with suppress(OSError):
        for file in sorted(folder.glob(f"*{_SUFFIX}")):
            killed += _sweep_page(file)
    return killed


def _sweep_page(file: Path) -> int:
    try:
        owner, children = _page(_content(file), file.parent)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        reason = str(error) if isinstance(error, OSError) else type(error).__name__
        logger.warning("the ledger %s cannot be read and is removed: %s", file, reason)
        with suppress(OSError):
            file.unlink(missing_ok=True)
        return 0
    if identify(owner.pid) == owner:
        return 0
    killed = 0
    said = "%s: killing process %d, left behind by a dragoman that was killed"
    ours = _ancestors()
    for child in children:
        pid = child.identity.pid
        if pid not in ours and identify(pid) == child.identity:
            logger.warning(said, child.name, pid)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
                killed += 1
    for pid in kill_relatives(*(one.mark for one in children), tags=[one.tag for one in children]):
        logger.warning(said, "a descendant", pid)
        killed += 1
    for child in children:
        if child.container is not None:
            end(child.container)
    with suppress(OSError):
        file.unlink(missing_ok=True)
    return killed


def _ancestors() -> set[int]:
    """Return our own number, that of our group, and those of the processes above us."""
    found = {os.getpgid(0)}
    pid = os.getpid()
    with suppress(OSError):
        while pid > 1 and pid not in found - {os.getpgid(0)}:
            found.add(pid)
            pid = int(_fields(pid)[_PARENT_FIELD])
    return found


def _fault(status: os.stat_result) -> str:
    """Say why a file cannot be a page of ours; nothing if it can."""
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    if status.st_uid != os.geteuid():
        return "it belongs to another user"
    return "it is too large" if status.st_size > _PAGE_BYTES else ""


def _content(file: Path) -> bytes:
    """Read a page, if it can be one.

    Raises:
        OSError: It cannot.
    """
    # A link leads elsewhere, and a pipe would hold us up for ever.
    page = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if wrong := _fault(os.fstat(page)):
            raise OSError(wrong)
        return os.read(page, _PAGE_BYTES)
    finally:
        os.close(page)


def _page(content: bytes, folder: Path) -> tuple[Identity, list[_Left]]:
    """Read a page: its owner, and the children that are not crossed out."""
    whole, _, _ = content.rpartition(
        b"\n"
    )  # a line that was being written when its owner died counts for nothing
    owner, *lines = (cast("dict[str, Any]", json.loads(line)) for line in whole.split(b"\n"))
    children: dict[int, _Left] = {}
    for line in lines:
        if "gone" in line:
            children.pop(line["gone"], None)
        else:
            child = _read(line)
            name = "".join(char if char.isprintable() else "?" for char in str(line["name"]))
            container = _container(line.get("container"), folder)
            children[child.pid] = _Left(child, name, str(line["mark"]), int(line.get("tag", 0)), container)
    return _read(owner), list(children.values())


def _container(entry: object, folder: Path) -> Container | None:
    if entry is None:
        return None
    container = Container.read(entry)
    if container.file and (Path(container.file).parent != folder or not container.file.endswith(".cid")):
        msg = "its file lies elsewhere"
        raise ValueError(msg)
    return container


def _encoded(line: dict[str, Any]) -> bytes:
    return json.dumps(line).encode() + b"\n"


def _written(identity: Identity) -> dict[str, Any]:
    return {"pid": identity.pid, "began": identity.began}


def _read(entry: dict[str, Any]) -> Identity:
    pid = int(entry["pid"])
    if pid <= 1:
        msg = "there is no such child"
        raise ValueError(msg)
    return Identity(pid, str(entry["began"]))
