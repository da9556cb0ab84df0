"""A ledger of children on disk, so that what a killed dragoman left behind is swept at the next start.

Each process keeps one small file of its living children: a line about itself, then a line for each child
that was started or is gone, since adding a line costs a hundredth of what starting a child does. A file whose
owner is gone is swept: a child in it is killed, with its group, only if a process of that number still runs
and began when the ledger says; and so is whatever carries the child's mark in its environment, which
descendants inherit. A living owner's children are never touched, and nothing is swept that cannot be told
apart for sure. It needs `/proc`; elsewhere it keeps nothing.
"""

from __future__ import annotations

import json
import logging
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, cast

logger = logging.getLogger("dragoman")

MARK = "DRAGOMAN_CHILD"
"""The variable by which a child's descendants are known."""

MAX_LINES = 1000
"""From so many lines of the past on, the page is written anew."""

_SUFFIX = ".jsonl"
_PROC = Path("/proc")
_GROUP_FIELD = 2
_START_FIELD = 19
_STAT_CHARS = 4_096
"""The start time, counted from the field after the command's name in `/proc/PID/stat`."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A process that no other can be mistaken for: its number, and when it began."""

    pid: int
    began: str


def identify(pid: int) -> Identity | None:
    """Return who has a process number now; `None` if nobody has, or if this system does not tell."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123 -- in the way of every start
            stat = file.read(_STAT_CHARS)
        boot = _boot()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    if not fields or fields[0] == "Z":
        return None
    return Identity(pid, f"{boot}/{fields[_START_FIELD]}")


@cache
def _boot() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()


def relatives(*marks: str, group: int | None = None) -> list[int]:
    """Find the living processes that carry one of these marks or are of that group; needs `/proc`."""
    wanted = {f"{MARK}={mark}".encode() for mark in marks if mark}
    found: list[int] = []
    for entry in _PROC.glob("[0-9]*"):
        with suppress(OSError):
            fields = (entry / "stat").read_text("ascii", "replace").rpartition(")")[2].split()
            if fields[0] == "Z":
                continue
            of_group = fields[_GROUP_FIELD] == str(group)
            if of_group or not wanted.isdisjoint((entry / "environ").read_bytes().split(b"\0")):
                found.append(int(entry.name))
    return found


def default_folder() -> Path:
    """Return where the ledgers of this user lie."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state, "dragoman", "children")


class Ledger:
    """This process's own page: who is alive because of us."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._owner = identify(os.getpid())
        self._children: dict[int, dict[str, Any]] = {}
        self._lines = 0
        """How many lines there are on disk; none if they are not known to be whole."""
        self._lock = Lock()

    @property
    def _file(self) -> Path:
        return self._folder / f"{os.getpid()}{_SUFFIX}"

    def add(self, pid: int, name: str, mark: str) -> None:
        """Enter a child, right after it was started."""
        child = identify(pid)
        if child is not None:
            with self._lock:
                self._children[pid] = {**_written(child), "name": name, "mark": mark}
                self._write(self._children[pid])

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
            page = os.open(self._file, os.O_WRONLY | os.O_APPEND)
        except FileNotFoundError:
            return False
        try:
            data = _encoded(line)
            return os.write(page, data) == len(data)
        finally:
            os.close(page)

    def _rewrite(self) -> None:
        assert self._owner is not None  # noqa: S101 -- else nothing is written
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = self._file.with_suffix(".new")
        temporary.write_bytes(b"".join(map(_encoded, (_written(self._owner), *self._children.values()))))
        temporary.replace(self._file)


def sweep(folder: Path) -> int:
    """Kill what dead owners left behind; returns how many processes that were."""
    killed = 0
    with suppress(OSError):
        for file in sorted(folder.glob(f"*{_SUFFIX}")):
            killed += _sweep_page(file)
    return killed


def _sweep_page(file: Path) -> int:
    try:
        owner, children = _page(file.read_bytes())
    except (OSError, ValueError, KeyError, TypeError):
        logger.warning("the ledger %s cannot be read and is removed", file)
        with suppress(OSError):
            file.unlink(missing_ok=True)
        return 0
    if identify(owner.pid) == owner:
        return 0
    killed = 0
    said = "%s: killing process %d, left behind by a dragoman that was killed"
    for child, name, _ in children:
        if identify(child.pid) == child:
            logger.warning(said, name, child.pid)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
                killed += 1
    for pid in relatives(*(mark for _, _, mark in children)):
        logger.warning(said, "a descendant", pid)
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            killed += 1
    with suppress(OSError):
        file.unlink(missing_ok=True)
    return killed


def _page(content: bytes) -> tuple[Identity, list[tuple[Identity, str, str]]]:
    """Read a page: its owner, and the children that are not crossed out."""
    whole, _, _ = content.rpartition(
        b"\n"
    )  # a line that was being written when its owner died counts for nothing
    owner, *lines = (cast("dict[str, Any]", json.loads(line)) for line in whole.split(b"\n"))
    children: dict[int, tuple[Identity, str, str]] = {}
    for line in lines:
        if "gone" in line:
            children.pop(line["gone"], None)
        else:
            child = _read(line)
            children[child.pid] = (child, str(line["name"]), str(line["mark"]))
    return _read(owner), list(children.values())


def _encoded(line: dict[str, Any]) -> bytes:
    return json.dumps(line).encode() + b"\n"


def _written(identity: Identity) -> dict[str, Any]:
    return {"pid": identity.pid, "began": identity.began}


def _read(entry: dict[str, Any]) -> Identity:
    return Identity(int(entry["pid"]), str(entry["began"]))
