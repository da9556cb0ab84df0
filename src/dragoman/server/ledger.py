"""A ledger of children on disk, so that what a killed dragoman left behind is swept at the next start.

Each process keeps one small file of its living children. A file whose owner is gone is swept: a child in it
is killed, with its group, only if a process of that number still runs and began when the ledger says; and
so is whatever carries the child's mark in its environment, which descendants inherit. A living owner's
children are never touched, and nothing is swept that cannot be told apart for sure. It needs `/proc`;
elsewhere it keeps nothing.
"""

from __future__ import annotations

import json
import logging
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, cast

logger = logging.getLogger("dragoman")

MARK = "DRAGOMAN_CHILD"
"""The variable by which a child's descendants are known."""

_PROC = Path("/proc")
_GROUP_FIELD = 2
_START_FIELD = 19
"""The start time, counted from the field after the command's name in `/proc/PID/stat`."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A process that no other can be mistaken for: its number, and when it began."""

    pid: int
    began: str


def identify(pid: int) -> Identity | None:
    """Return who has a process number now; `None` if nobody has, or if this system does not tell."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text("ascii", "replace")
        boot = (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    if not fields or fields[0] == "Z":
        return None
    return Identity(pid, f"{boot}/{fields[_START_FIELD]}")


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
        self._children: dict[int, tuple[Identity, str, str]] = {}
        self._lock = Lock()

    @property
    def _file(self) -> Path:
        return self._folder / f"{os.getpid()}.json"

    def add(self, pid: int, name: str, mark: str) -> None:
        """Enter a child, right after it was started."""
        child = identify(pid)
        if child is not None:
            with self._lock:
                self._children[pid] = (child, name, mark)
                self._write()

    def remove(self, pid: int) -> None:
        """Cross a child out, once its whole group is gone."""
        with self._lock:
            if self._children.pop(pid, None) is not None:
                self._write()

    def _write(self) -> None:
        if self._owner is None:
            return
        # A ledger that cannot be written costs the sweep, never the server.
        with suppress(OSError):
            if not self._children:
                self._file.unlink(missing_ok=True)
                return
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            page = {
                "owner": _written(self._owner),
                "children": [
                    {**_written(child), "name": name, "mark": mark}
                    for child, name, mark in self._children.values()
                ],
            }
            temporary = self._file.with_suffix(".new")
            temporary.write_text(json.dumps(page), "utf-8")
            temporary.replace(self._file)


def sweep(folder: Path) -> int:
    """Kill what dead owners left behind; returns how many processes that were."""
    killed = 0
    with suppress(OSError):
        for file in sorted(folder.glob("*.json")):
            killed += _sweep_page(file)
    return killed


def _sweep_page(file: Path) -> int:
    try:
        page = cast("dict[str, Any]", json.loads(file.read_text("utf-8")))
        owner = _read(page["owner"])
        children = [(_read(child), str(child["name"]), str(child["mark"])) for child in page["children"]]
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


def _written(identity: Identity) -> dict[str, Any]:
    return {"pid": identity.pid, "began": identity.began}


def _read(entry: dict[str, Any]) -> Identity:
    return Identity(int(entry["pid"]), str(entry["began"]))
