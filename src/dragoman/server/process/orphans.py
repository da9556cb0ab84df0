"""A ledger of children on disk, so that the orphans of a killed dragoman are killed at the next start.

Each process has one small file with its running children: a line about itself, then a line for each child
that was started or has ended. (Adding a line costs a hundredth of starting a child.) If the owner of a file
is gone, its children are killed with their process groups, but only if the process id still belongs to a
process with the recorded start time. Descendants are found by the child's mark in their environment or
resource limits. A container that the child started is ended too. Children of a running owner are never
touched, and nothing is killed that is not identified with certainty. A file that cannot be read is removed.
Needs `/proc`; elsewhere it records nothing.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import stat
import subprocess
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypedDict, Unpack, cast

from dragoman.storage.files import private_folder, state_folder, write_atomically
from dragoman.struct import Struct
from dragoman.visible import spelled_out

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


logger = logging.getLogger("dragoman")

LABEL = "dragoman.child"
SECONDS = 10.0
"""How long a container engine may take for one command."""

_ENGINES = frozenset({"docker", "podman", "nerdctl", "finch"})
_WRAPPERS = frozenset({"env", "sudo", "doas", "nice", "nohup", "stdbuf", "setsid", "time", "timeout"})
_FLAGS = frozenset({"-D", "--debug", "--tls", "--tlsverify", "-r", "--remote", "--syslog", "--trace"})
"""Options before `run` without a value; all others have one."""
_VARIABLES = re.compile(r"DOCKER_|CONTAINER_|CONTAINERD_|NERDCTL_|PODMAN_|XDG_RUNTIME_DIR$|HOME$|PATH$")
_ID = re.compile(r"[0-9a-f]{12,64}")
_FILE_BYTES = 1024


class Container(NamedTuple):
    """The container that a child may have started."""

    engine: list[str]
    """The command of the engine: everything before `run`."""
    file: str
    """The file to which the engine writes the id; empty if there is none."""
    mark: str
    """The label of the container, used if there is no file."""
    removes: bool
    """Whether the command has `--rm`."""
    env: dict[str, str]
    """The variables that the engine needs."""

    def written(self) -> dict[str, Any]:
        """Return its ledger entry."""
        return self._asdict()

    @classmethod
    def read(cls, entry: object) -> Self:
        """Read a ledger entry.

        Raises:
            TypeError: It is not an entry made by `written`.
            ValueError: Its command is not a container engine.
        """
        fields = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        engine, env = fields.get("engine"), fields.get("env")
        if not isinstance(engine, list) or not isinstance(env, dict):
            msg = "it is not a container"
            raise TypeError(msg)
        words = [str(word) for word in cast("list[object]", engine)]
        if _run_at([*words, "run"]) != len(words):
            msg = "it is not a container engine"
            raise ValueError(msg)
        variables = cast("dict[object, object]", env)
        given = {str(name): str(value) for name, value in variables.items() if _VARIABLES.match(str(name))}
        file, mark = str(fields.get("file", "")), str(fields.get("mark", ""))
        return cls(words, file, mark, bool(fields.get("removes")), given)


def with_id(
    argv: Sequence[str], *, env: Mapping[str, str], folder: Path, mark: str
) -> tuple[list[str], Container | None]:
    """Add an option to a `docker run` command so that its container can be found; leave others unchanged.

    Args:
        argv: The command; its program is resolved.
        env: Its environment.
        folder: A private folder for the id file.
        mark: The unique mark of this child.
    """
    words = list(argv)
    at = _run_at(words)
    if at is None:
        return words, None
    options = words[at + 1 :]
    # Use a label if the engine is a snap, which cannot write to our folder, or if the user has a `--cidfile`.
    labels = _is_snap(words[:at]) or any(word.partition("=")[0] == "--cidfile" for word in options)
    file = "" if labels else str(folder / f"{mark}.cid")
    more = [f"--label={LABEL}={mark}"] if labels else ["--cidfile", file]
    removes = any(word in ("--rm", "--rm=true") for word in options)
    found = {name: value for name, value in env.items() if _VARIABLES.match(name)}
    return [*words[: at + 1], *more, *options], Container(words[:at], file, mark, removes, found)


def end(container: Container) -> None:
    """End a container, if it exists, after its command has ended; each step takes at most `SECONDS`."""
    for identity in _identities(container):
        words = ["rm", "-f", identity] if container.removes else ["kill", identity]
        _engine(container, words)
    if container.file:
        with suppress(OSError):
            Path(container.file).unlink(missing_ok=True)


def _identities(container: Container) -> list[str]:
    if container.file:
        text = _identifier_in(container.file)
    else:
        text = _engine(container, ["ps", "-aq", "--no-trunc", "--filter", f"label={LABEL}={container.mark}"])
    return [word for word in text.split() if _ID.fullmatch(word)]


def _identifier_in(file: str) -> str:
    """Return the id in a file; empty if it is missing or not a regular file."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return os.read(descriptor, _FILE_BYTES).decode("ascii", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _engine(container: Container, words: list[str]) -> str:
    """Run the engine and return its output; an error mostly means that the container is gone."""
    env = {**os.environ, **container.env}
    try:
        done = subprocess.run(
            [*container.engine, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=SECONDS,
            env=env,
            start_new_session=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        logger.warning(
            "a container may still run: `%s` failed: %s", container.engine[0], type(error).__name__
        )
        return ""
    return done.stdout[:65_536].decode("utf-8", "replace")


def _run_at(words: Sequence[str]) -> int | None:
    """Return the index of `run` in the command of a container engine, or `None`."""
    # Without pathlib, which takes ten times as long: this is for every start.
    at = 0
    if os.path.basename(words[0]) in _WRAPPERS:  # noqa: PTH119 -- see above
        at = next((at for at, word in enumerate(words) if os.path.basename(word) in _ENGINES), 0)  # noqa: PTH119 -- see above
    if os.path.basename(words[at]).removesuffix(".exe") not in _ENGINES:  # noqa: PTH119 -- see above
        return None
    at += 1
    while at < len(words) and words[at].startswith("-"):
        takes_value = not (
            "=" in words[at]
            or words[at] in _FLAGS
            or (len(words[at]) > 2 and words[at][1] != "-")
            or words[at + 1 : at + 2] in (["run"], ["container"])
        )
        at += 2 if takes_value else 1
    if words[at : at + 1] == ["container"]:
        at += 1
    return at if words[at : at + 1] == ["run"] else None


def _is_snap(words: Sequence[str]) -> bool:
    return any(
        "/snap/" in os.path.realpath(word) or os.path.realpath(word).endswith("/snap") for word in words
    )


MARK = "DRAGOMAN_CHILD"
"""The variable that marks a child and its descendants."""

MAX_UNWRITTEN = 16
"""So many children are added before the file is written, if they are started together."""

MAX_LINES = 1000
"""Beyond this many outdated lines the file is rewritten."""

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
"""Larger than a file with thousands of children."""
_KILL_SECONDS = 2.0
_KILL_PAUSE = 0.02
_TRIES = 10
"""How often to search again if nothing was found but processes exited meanwhile."""
_ENVIRON_BYTES = 8 * 1024 * 1024
"""Larger than any environment that Linux allows."""
_ENVIRON_TRIES = 5
_ENVIRON_PAUSE = 0.001
_AHEAD = 32
"""How many process ids after the newest are tried: the newest may have forked and exited meanwhile."""


class Identity(Struct):
    """A process, identified by its id and start time, because ids are reused."""

    pid: int
    began: str


def identify(pid: int) -> Identity | None:
    """Return the process that has this id now; `None` if there is none, or on a system without `/proc`."""
    try:
        fields = _fields(pid)
        boot = _boot()
    except OSError:
        return None
    return None if fields[0] == b"Z" else Identity(pid, f"{boot}/{fields[_START_FIELD].decode()}")


def _fields(pid: int) -> list[bytes]:
    """Return the fields of `/proc/PID/stat`, from the state on.

    Raises:
        OSError: The process does not exist, or cannot be read.
    """
    # Without a file object: a search reads this of every process.
    file = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    try:
        fields = os.read(file, _STAT_CHARS).rpartition(b")")[2].split()
    finally:
        os.close(file)
    if len(fields) <= _SIZE_FIELD:
        raise ProcessLookupError
    return fields


@cache
def _boot() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()


def began(process: Identity | None) -> int:
    """Return the start time of a process in clock ticks; 0 if it is gone."""
    return int(process.began.rpartition("/")[2]) if process else 0


class ProcessMatch(TypedDict, total=False):
    """How the descendants of some children are recognized, besides their marks."""

    groups: Collection[int]
    """The children's process groups."""
    ends: Mapping[str, int]
    """The children's ends of their pipes, from `child_ends`."""
    since: int
    """The start time of the first child: descendants are never older."""
    tags: Sequence[int]
    """Marks in the resource limits, which descendants inherit even if they clear their environment."""


def child_ends(stdin: int, stdout: int, stderr: int) -> dict[str, int]:
    """Return the child's ends of its three pipes: their names in `/proc`, and their modes."""
    modes = {stdin: stat.S_IRUSR, stdout: stat.S_IWUSR, stderr: stat.S_IWUSR}
    return {f"pipe:[{os.fstat(descriptor).st_ino}]": mode for descriptor, mode in modes.items()}


def descendants(*marks: str, number: int = 0, **kin: Unpack[ProcessMatch]) -> list[int]:
    """Return the running processes that have one of these marks, or match `kin`.

    The newest come first, and each gets its signal when it is found: a process that forks and exits would be
    gone a moment later. Processes that we may not signal are left out. Needs `/proc`.

    Args:
        marks: Marks in the environment.
        number: The signal to send; 0 for none.
        kin: Other ways to recognize them.
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


def _look(wanted: set[bytes], kin: ProcessMatch, number: int, gone: set[int]) -> list[int]:
    """Search once; add processes that exited meanwhile to `gone`: they may have forked unseen ones."""
    groups = {str(group).encode() for group in kin.get("groups", ())}
    ends, since = kin.get("ends"), kin.get("since", 0)
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
            if fields[0] == b"Z" or fields[_SIZE_FIELD] == b"0":  # a zombie, or a kernel thread
                gone.add(pid)
            elif (
                fields[_GROUP_FIELD] in groups
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
    """Return all process ids, the newest first."""
    try:
        names = os.listdir(_PROC)  # noqa: PTH208 -- faster
    except OSError:
        return []
    return sorted((int(name) for name in names if name.isdigit()), reverse=True)


def kill_relatives(*marks: str, **kin: Unpack[ProcessMatch]) -> set[int]:
    """Kill the descendants until none is found, within a time limit; return their process ids.

    One search is not enough: a process may start another during it.
    """
    killed: set[int] = set()
    until = time.monotonic() + _KILL_SECONDS
    while found := descendants(*marks, number=signal.SIGKILL, **kin):
        killed.update(found)
        if time.monotonic() > until:
            break
        time.sleep(_KILL_PAUSE)
    return killed


def _carries(pid: int, wanted: set[bytes]) -> bool:
    """Return whether a process has a mark in its environment.

    Raises:
        ProcessLookupError: It has no environment: it cleared it, or it is exiting.
    """
    for _ in range(_ENVIRON_TRIES):
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 -- faster; called for every process
            if environ := file.read(_ENVIRON_BYTES):
                return not wanted.isdisjoint(environ.split(b"\0"))
        # It is also empty for a moment during `exec`.
        time.sleep(_ENVIRON_PAUSE)
    raise ProcessLookupError


def _is_limited(pid: int, tags: set[bytes]) -> bool:
    """Return whether a process has a mark in its resource limits."""
    try:
        with open(f"/proc/{pid}/limits", "rb") as file:  # noqa: PTH123 -- as above
            return not tags.isdisjoint(file.read(_STAT_CHARS).split())
    except PermissionError:
        return False


def _holds(pid: int, session: bytes, ends: Mapping[str, int]) -> bool:
    """Return whether a process has inherited one of a child's pipe ends.

    Only the three standard descriptors count: others may have been passed to a process that is not a
    descendant, as `ssh` passes its own to its connection master. Processes of our own session are our forks:
    a child leaves our session before it runs.
    """
    if int(session) == os.getsid(0):
        return False
    for descriptor in range(3):
        path = f"/proc/{pid}/fd/{descriptor}"
        with suppress(FileNotFoundError):
            if os.lstat(path).st_mode & ends.get(os.readlink(path), 0):  # noqa: PTH115 -- as above
                return True
    return False


def default_folder() -> Path:
    """Return the user's folder for records of child processes."""
    return state_folder() / "children"


class Ledger:
    """The ledger file of this process: its running children."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """The folder of the ledger and of container id files."""
        self._owner = identify(os.getpid())
        self._children: dict[int, dict[str, Any]] = {}
        self._lines = 0
        """How many lines the file has; 0 if it must be rewritten."""
        self._unwritten: list[dict[str, Any]] = []
        self._lock = Lock()

    @property
    def _file(self) -> Path:
        return self.folder / f"{os.getpid()}{_SUFFIX}"

    def add(
        self,
        child: Identity | None,
        name: str,
        mark: str,
        *,
        tag: int = 0,
        container: Container | None = None,
        more: bool = False,
    ) -> None:
        """Record a child, directly after it was started.

        Args:
            child: The process; `None` if it is gone already.
            name: The server's name.
            mark: The mark in its environment.
            tag: The mark in its resource limits; 0 for none.
            container: The container that it may have started.
            more: Whether other children are being started, so that all of them are written together.
        """
        if child is not None:
            entry = {**_written(child), "name": name, "mark": mark, "tag": tag}
            if container is not None:
                entry["container"] = container.written()
            with self._lock:
                self._children[child.pid] = entry
                self._unwritten.append(entry)
                if not more or container is not None or len(self._unwritten) >= MAX_UNWRITTEN:
                    self._write()

    def flush(self) -> None:
        """Write what was added with `more`."""
        with self._lock:
            if self._unwritten:
                self._write()

    def remove(self, *pids: int) -> None:
        """Remove children, after their whole process groups have ended."""
        with self._lock:
            gone = [pid for pid in pids if self._children.pop(pid, None) is not None]
            if gone:
                self._unwritten += ({"gone": pid} for pid in gone)
                self._write()

    def _write(self) -> None:
        new, self._unwritten = self._unwritten, []
        if self._owner is None:
            return
        # An error here must not stop a server: then its orphans are not found later.
        with suppress(OSError):
            lines, self._lines = self._lines, 0
            if not self._children:
                self._file.unlink(missing_ok=True)
                return
            if lines == 0 or lines > MAX_LINES + 2 * len(self._children) or not self._append(new):
                self._rewrite()
                lines = len(self._children)
            self._lines = lines + len(new)

    def _append(self, new: Sequence[dict[str, Any]]) -> bool:
        """Add lines, and return whether that was possible."""
        try:
            # Do not follow a link, and do not block on a pipe.
            page = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            if _fault(os.fstat(page)):
                return False
            data = b"".join(map(_encoded, new))
            return os.write(page, data) == len(data)
        finally:
            os.close(page)

    def _rewrite(self) -> None:
        assert self._owner is not None  # noqa: S101 -- checked in `_write`
        private_folder(self.folder)
        lines = map(_encoded, (_written(self._owner), *self._children.values()))
        write_atomically(self._file, b"".join(lines), sync=False)


class _Left(NamedTuple):
    """A child that a dead process may have left."""

    identity: Identity
    name: str
    mark: str
    tag: int
    container: Container | None


def sweep(folder: Path) -> int:
    """Kill the orphans of dead processes, and return how many there were."""
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
        logger.warning("removing the ledger %s, which cannot be read: %s", file, reason)
        with suppress(OSError):
            file.unlink(missing_ok=True)
        return 0
    if identify(owner.pid) == owner:
        return 0
    killed = 0
    said = "%s: killing process %d, an orphan of a dragoman that was killed"
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
    """Return our process id, our process group, and our ancestors."""
    found = {os.getpgid(0)}
    pid = os.getpid()
    with suppress(OSError):
        while pid > 1 and pid not in found - {os.getpgid(0)}:
            found.add(pid)
            pid = int(_fields(pid)[_PARENT_FIELD])
    return found


def _fault(status: os.stat_result) -> str:
    """Return why a file cannot be one of our ledgers; empty if it can."""
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    if status.st_uid != os.geteuid():
        return "it belongs to another user"
    return "it is too large" if status.st_size > _PAGE_BYTES else ""


def _content(file: Path) -> bytes:
    """Read a ledger file.

    Raises:
        OSError: It cannot be read, or is not one of our ledgers.
    """
    # Do not follow a link, and do not block on a pipe.
    page = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if wrong := _fault(os.fstat(page)):
            raise OSError(wrong)
        return os.read(page, _PAGE_BYTES)
    finally:
        os.close(page)


def _page(content: bytes, folder: Path) -> tuple[Identity, list[_Left]]:
    """Parse a ledger file: its owner, and the children that have not ended."""
    # Ignore an unfinished last line: its owner died while writing it.
    whole, _, _ = content.rpartition(b"\n")
    owner, *lines = (cast("dict[str, Any]", json.loads(line)) for line in whole.split(b"\n"))
    children: dict[int, _Left] = {}
    for line in lines:
        if "gone" in line:
            children.pop(line["gone"], None)
        else:
            child = _read(line)
            name = spelled_out(str(line["name"]))
            container = _container(line.get("container"), folder)
            children[child.pid] = _Left(child, name, str(line["mark"]), int(line.get("tag", 0)), container)
    return _read(owner), list(children.values())


def _container(entry: object, folder: Path) -> Container | None:
    if entry is None:
        return None
    container = Container.read(entry)
    if container.file and (Path(container.file).parent != folder or not container.file.endswith(".cid")):
        msg = "its file is in another folder"
        raise ValueError(msg)
    return container


def _encoded(line: dict[str, Any]) -> bytes:
    return json.dumps(line).encode() + b"\n"


def _written(identity: Identity) -> dict[str, Any]:
    return {"pid": identity.pid, "began": identity.began}


def _read(entry: dict[str, Any]) -> Identity:
    pid = int(entry["pid"])
    if pid <= 1:
        msg = "not the process id of a child"
        raise ValueError(msg)
    return Identity(pid, str(entry["began"]))
