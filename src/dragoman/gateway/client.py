"""The client of the daemon: the standard library alone, so that it starts in milliseconds.

`dragoman call`, `tools` and `status` go through `run`: the daemon runs the command, and this side prints what
it says. Programs use `Client`:

    from dragoman.gateway.client import Client

    with Client() as client:
        print(client.call("mcp_files_read_text_file", {"path": "README.md"}).text)

A client may be used from several threads, survives a fork, and can be pickled: each thread and each process
has a connection of its own, and dials again after the daemon was restarted.

On the socket, each line is one JSON-RPC message: MCP itself, and the few methods that begin with `dragoman/`.
The first request is `dragoman/hello`. Its answer proves that a daemon is there: a process that accepts
connections may be stuck, or be another program.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from binascii import crc32

from dragoman.version import VERSION

try:
    import _socket as socket  # `socket` itself takes 3 ms, for classes and constants that are not needed here
except ImportError:  # another Python than CPython
    import socket

TYPE_CHECKING = False
"""Not imported: `typing` takes a third of the time that this module takes to import."""
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Any, NoReturn, Self

HELLO_SECONDS = 10.0
"""How long the daemon may take to answer `dragoman/hello`."""
START_SECONDS = 30.0
"""How long a daemon may take to start, on a busy machine."""
MOST_STDIN = 64 * 1024 * 1024
LARGEST_LOG = 1024 * 1024
"""Bytes of the log at which the next daemon begins a new one; one older log is kept."""
LONGEST_PATH = 100
"""Of a socket's path, in bytes: the system's limit is 104 on some systems, 108 on others."""
PROTOCOL = "2026-07-28"
OTHER_VERSION = -32050
"""The error code of a daemon of another version."""
BUSY = -32051
"""The error code of a daemon that is ending."""
_META = "io.modelcontextprotocol/"
_KEYED_BY = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME")
"""Where the user's files are: clients that disagree about that do not share a daemon."""


class DaemonError(Exception):
    """The daemon cannot be reached or started, or has refused a request."""

    def __init__(self, message: str, *, code: int = 0, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data

    @property
    def may_be_replaced(self) -> bool:
        """Whether the daemon ends now: it is of another version and idle, or was told to stop."""
        data: dict[str, Any] = self.data or {}
        return self.code in (OTHER_VERSION, BUSY) and not data.get("busy")


class OutcomeUnknownError(DaemonError):
    """The daemon ended during a call: the server may have carried it out, or not."""


class NoDaemonError(DaemonError):
    """No daemon is running, or it has ended before it got the request."""


def is_supported() -> bool:
    """Return whether this system has daemons: it needs Unix sockets."""
    return hasattr(socket, "AF_UNIX") and sys.platform != "win32"


class Paths:
    """The files of a user's daemon."""

    __slots__ = ("folder", "lock", "log", "socket", "start")

    def __init__(self, folder: str, stem: str, path: str) -> None:
        self.folder = folder
        self.socket = path
        """Where it listens."""
        self.lock = f"{stem}.lock"
        """Locked while a daemon lives; the system unlocks it even after `kill -9`."""
        self.start = f"{stem}.start"
        """Locked by the client that starts a daemon."""
        self.log = f"{stem}.log"


def paths(env: Mapping[str, str] | None = None) -> Paths:
    """Return the files of this user's daemon on this machine."""
    given = os.environ if env is None else env
    home = given.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 -- pathlib costs 10 ms
    state = given.get("XDG_STATE_HOME", "")
    if sys.platform == "darwin":
        folder = os.path.join(home, "Library/Application Support/dragoman/daemon")  # noqa: PTH118 -- as above
    else:
        folder = os.path.join(state if os.path.isabs(state) else f"{home}/.local/state", "dragoman/daemon")  # noqa: PTH117, PTH118 -- as above
    # Home folders may be shared between machines; sockets are not.
    name = f"{os.uname().nodename[:24]}-{crc32(repr([given.get(one) for one in _KEYED_BY]).encode()):08x}"
    path = f"{folder}/{name}.sock"
    if len(os.fsencode(path)) > LONGEST_PATH:
        folder = f"/tmp/dragoman-{os.getuid()}"  # noqa: S108 -- the daemon checks whose folder it is
        path = f"{folder}/{name}-{crc32(os.fsencode(path)):08x}.sock"
    stem = path.removesuffix(".sock")
    return Paths(folder, stem, path)


def peer_user(connection: socket.socket) -> int | None:
    """Return the id of the user at the other end; `None` if the system does not tell."""
    if hasattr(socket, "SO_PEERCRED"):
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)  # pid, user, group
    elif sys.platform == "darwin":
        found = connection.getsockopt(0, 1, 76)  # SOL_LOCAL, LOCAL_PEERCRED: version, user …
    else:
        return None
    return int.from_bytes(found[4:8], sys.byteorder)


class Channel:
    """A connection on which the daemon has answered `dragoman/hello`."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._read = bytearray()
        self._scanned = 0
        self.daemon: dict[str, Any] = {}
        """What the daemon says about itself."""

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def send(self, *messages: dict[str, Any]) -> None:
        """Send messages.

        Raises:
            OSError: They did not go out whole; the daemon ignores a part of a line.
        """
        lines = "".join(f"{json.dumps({'jsonrpc': '2.0', **one})}\n" for one in messages)
        self._socket.sendall(lines.encode())

    def receive(self, until: float | None = None) -> dict[str, Any] | None:
        """Return the next message; `None` if the daemon has closed the connection.

        Raises:
            TimeoutError: None came until then, on the clock of `time.monotonic`.
        """
        while (end := self._read.find(b"\n", self._scanned)) < 0:
            self._scanned = len(self._read)
            self._socket.settimeout(None if until is None else max(0.001, until - time.monotonic()))
            try:
                chunk = self._socket.recv(262_144)
            except ConnectionError:
                chunk = b""
            if not chunk:
                return None
            self._read += chunk
        line = bytes(self._read[:end])
        del self._read[: end + 1]
        self._scanned = 0
        found: object = json.loads(line)
        return dict(found) if isinstance(found, dict) else {}  # type: ignore[arg-type]  # of JSON


def hello(
    root: str, env: Mapping[str, str], *, profile: str | None = None, config: str | None = None
) -> dict[str, Any]:
    """Return the first request of a connection: who we are, and where we would work alone."""
    params = {"version": VERSION, "root": root, "env": dict(env), "profile": profile, "config": config}
    return {"id": 0, "method": "dragoman/hello", "params": params}


def dial(path: str, *first: dict[str, Any], seconds: float = HELLO_SECONDS) -> Channel:
    """Connect to the daemon and wait for its answer to the first of these messages.

    Raises:
        NoDaemonError: No daemon answers.
        DaemonError: It refuses us; a `code` says why.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(seconds)
        connection.connect(path)
        if peer_user(connection) not in (None, os.getuid()):
            _refuse(f"`{path}` belongs to another user")
        channel = Channel(connection)
        channel.send(*first)
        answer = channel.receive(time.monotonic() + seconds)
        connection.settimeout(None)
    except OSError as exc:  # a `TimeoutError` too
        connection.close()
        msg = f"no daemon answers at `{path}`"
        raise NoDaemonError(msg) from exc
    except BaseException:
        connection.close()
        raise
    if answer is None or "result" not in answer:
        connection.close()
        error: dict[str, Any] = (answer or {}).get("error") or {}
        if error:
            message = str(error.get("message"))
            raise DaemonError(message, code=int(error.get("code", 0)), data=error.get("data"))
        msg = f"the daemon at `{path}` closed the connection"
        raise NoDaemonError(msg)
    channel.daemon = answer["result"]
    return channel


def _refuse(why: str) -> NoReturn:
    raise DaemonError(why)


def start(seconds: float = START_SECONDS, *, options: Sequence[str] = ()) -> dict[str, Any]:
    """Start a daemon unless one answers; return what it says about itself, with `started`.

    Clients that start one at the same time wait for each other: one of them starts it.

    Raises:
        DaemonError: None could be started, or it is of another version and busy.
    """
    import fcntl

    where = paths()
    until = time.monotonic() + seconds
    make_private(where.folder)
    descriptor = open_private(where.start, os.O_RDWR)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    _refuse(f"another process has been starting the daemon for {seconds:g} s")
                time.sleep(0.02)
        try:
            return {**_greet(where.socket), "started": False}
        except NoDaemonError:
            pass
        except DaemonError as exc:
            if not exc.may_be_replaced:
                raise
        _spawn(where, options)
        while True:
            try:
                return {**_greet(where.socket), "started": True}
            except NoDaemonError:
                pass
            except DaemonError as exc:
                if not exc.may_be_replaced:
                    raise
            if time.monotonic() > until:
                _refuse(f"the daemon did not start within {seconds:g} s (see `{where.log}`)")
            time.sleep(0.02)
    finally:
        os.close(descriptor)


def _greet(path: str) -> dict[str, Any]:
    channel = dial(path, hello("/", {}))
    channel.close()
    return channel.daemon


def make_private(folder: str) -> None:
    """Create the daemon's folder for this user alone, or check that it is one.

    Raises:
        DaemonError: It belongs to another user, others may write to it, or it is a link.
        OSError: It cannot be created.
    """
    from pathlib import Path  # here it may cost 10 ms: a daemon is started

    from dragoman.storage.files import private_folder

    private_folder(Path(folder))
    status = os.lstat(folder)
    if status.st_uid != os.getuid() or status.st_mode & 0o170000 != 0o040000:  # S_IFMT, S_IFDIR
        _refuse(f"`{folder}` is not a folder of this user")
    if status.st_mode & 0o022:
        _refuse(f"other users may write to `{folder}`: remove it")
    if status.st_mode & 0o077:
        os.chmod(folder, 0o700)  # noqa: PTH101 -- a text


def open_private(path: str, flags: int) -> int:
    """Open a file of the daemon, or create it for this user alone; never follows a link."""
    return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _spawn(where: Paths, options: Sequence[str]) -> None:
    import subprocess

    command = [sys.executable, "-m", "dragoman", "daemon", "start", "--foreground", *options]
    if os.path.exists(where.log) and os.path.getsize(where.log) > LARGEST_LOG:  # noqa: PTH110, PTH202 -- as above
        os.replace(where.log, f"{where.log}.1")  # noqa: PTH105 -- as above
    log = open_private(where.log, os.O_WRONLY | os.O_APPEND)
    try:
        # It outlives this process and its terminal; its working folder must not keep a disk in use.
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/"
        )
    finally:
        os.close(log)
    # It may end before a long-lived program does, and must not stay a zombie until then.
    threading.Thread(target=child.wait, name="dragoman daemon", daemon=True).start()


COMMANDS = ("call", "tools", "status", "list", "ls")
"""The commands that the daemon runs."""
UNREACHABLE = 4
"""The exit code of a command whose daemon has ended."""


def command_of(words: Sequence[str]) -> str:
    """Return the command that these words name, if the daemon can run it; else an empty text."""
    takes_value = False
    for word in words:
        if takes_value:
            takes_value = False
        elif word in ("--profile", "--config"):
            takes_value = True
        elif not word.startswith("-"):
            return word if word in COMMANDS else ""
    return ""


def run(words: Sequence[str], *, may_start: bool = False) -> int | None:
    """Run a command in the daemon and print what it prints.

    Args:
        words: The command line, without the name of the program.
        may_start: Whether to start a daemon if none runs.

    Returns:
        The exit code; `None` if the command has to go alone.
    """
    where = paths()
    try:
        root = os.getcwd()  # noqa: PTH109 -- pathlib costs 10 ms
    except OSError:
        return None
    asked = [hello(root, os.environ), _command(words)]
    for attempt in range(3):
        try:
            channel = dial(where.socket, *asked)
        except NoDaemonError:
            if not may_start or attempt == 2 or not _started():
                return None
            continue
        except DaemonError as exc:
            # A daemon of another version ends itself if it is idle.
            if not exc.may_be_replaced or not _started():
                return None
            continue
        try:
            outcome = _follow(channel)
        finally:
            channel.close()
        if outcome != _LOST:
            return outcome
        # The daemon ended before the command did anything; another one may have taken over.
    return None


def _started() -> bool:
    try:
        start()
    except (DaemonError, OSError):
        return False
    return True


_LOST = -1


def _command(words: Sequence[str]) -> dict[str, Any]:
    out, err = sys.stdout, sys.stderr
    tty = {"in": sys.stdin is not None and sys.stdin.isatty(), "out": out.isatty(), "err": err.isatty()}
    params: dict[str, Any] = {"words": list(words), "tty": tty, "encoding": err.encoding or "utf-8"}
    if tty["out"] or tty["err"]:
        import shutil

        params["columns"] = shutil.get_terminal_size().columns
    if any(word == "-" or word.endswith("@-") for word in words):
        from base64 import b64encode

        given = sys.stdin.buffer.read(MOST_STDIN + 1) if sys.stdin is not None else b""
        if len(given) > MOST_STDIN:
            sys.stderr.write("error: standard input is longer than 64 MiB\n")
            raise SystemExit(2)
        params["stdin"] = b64encode(given).decode()
    return {"id": 1, "method": "dragoman/command", "params": params}


def _follow(channel: Channel) -> int | None:
    """Print what a command prints until its end; return its exit code."""
    is_unknown = False
    while (message := channel.receive()) is not None:
        params: dict[str, Any] = message.get("params") or {}
        match message.get("method"):
            case "dragoman/output":
                stream = sys.stderr if params["stream"] == "err" else sys.stdout
                stream.write(params["text"])
                stream.flush()
            case "dragoman/ask":
                sys.stderr.write(params["prompt"])
                sys.stderr.flush()
                channel.send({"id": message["id"], "result": {"line": sys.stdin.readline()}})
            case "dragoman/calling":
                # From here on the server may carry the call out.
                is_unknown = not params.get("safe")
            case None if message.get("id") == 1:
                result: dict[str, Any] = message.get("result") or {}
                return result.get("code")
            case _:
                pass
    if not is_unknown:
        return _LOST
    what = "the daemon ended during the call, and the server may have carried it out"
    sys.stderr.write(f"error: {what} (check before you repeat it)\n")
    return UNREACHABLE


class CallResult:
    """What a tool has answered."""

    __slots__ = ("content", "raw", "structured", "success", "text")

    def __init__(self, raw: dict[str, Any], content: list[dict[str, Any]], text: str) -> None:
        self.success = not raw.get("isError")
        self.text = text
        """The text of the answer, or of the error."""
        self.structured: Any = raw.get("structuredContent")
        self.content = content
        self.raw = raw
        """The result as MCP has it."""

    def __repr__(self) -> str:
        return f"CallResult(success={self.success}, text={self.text!r}, structured={self.structured!r})"

    @property
    def error(self) -> str | None:
        """The text of the error, if the tool has failed."""
        return None if self.success else self.text


class _Connections(threading.local):
    """The connection of each thread."""

    def __init__(self) -> None:
        self.channel: Channel | None = None
        self.process = 0
        self.number = 0


class Client:
    """The servers of a folder, as the daemon has them; picklable, and usable from threads."""

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        *,
        profile: str | None = None,
        config: str | None = None,
        env: Mapping[str, str] | None = None,
        may_start: bool = True,
        elicit: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
    ) -> None:
        """Choose the configuration; nothing is connected before the first request.

        Args:
            root: The project's folder; the current one by default.
            profile: The application whose configuration to use.
            config: The only file to read.
            env: The environment for the variables of the configuration; this process's by default.
            may_start: Whether to start a daemon if none runs.
            elicit: Answers a server's question: gets its `message` and `requestedSchema` (or `url`), returns
                `{"action": "accept", "content": {…}}`, or `decline` or `cancel`. A function of a module, if
                the client is to be pickled. Without it, servers are told that questions cannot be asked.
        """
        self._root = os.path.abspath(root or os.getcwd())  # noqa: PTH100, PTH109 -- pathlib costs 10 ms
        self._profile = profile
        self._config = None if config is None else os.path.join(self._root, config)  # noqa: PTH118 -- as above
        self._env = dict(os.environ if env is None else env)
        self._may_start = may_start
        self._elicit = elicit
        self._own = _Connections()
        self._all: list[Channel] = []

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_own", "_all")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._own = _Connections()
        self._all = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections of all threads; the daemon and its servers go on."""
        for channel in self._all:
            channel.close()
        self._all.clear()
        self._own = _Connections()

    def tools(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Return the tools of all servers, as MCP lists them.

        Raises:
            DaemonError: The daemon cannot be reached, or refuses.
        """
        found: list[dict[str, Any]] = []
        cursor: dict[str, Any] = {}
        while True:
            page = self.request("tools/list", cursor, timeout=timeout, is_safe=True)
            found += page.get("tools", ())
            if not page.get("nextCursor"):
                return found
            cursor = {"cursor": page["nextCursor"]}

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: Callable[[dict[str, Any]], object] | None = None,
        is_safe: bool = False,
    ) -> CallResult:
        """Call a tool by its exposed name; a tool that fails is a result.

        Args:
            name: The tool.
            arguments: Its arguments.
            timeout: Seconds; by default the server's own limit.
            on_progress: Called with each report: `progress`, and perhaps `total` and `message`.
            is_safe: Whether the call may be sent again if the daemon ends while it runs.

        Raises:
            OutcomeUnknownError: The daemon ended while the call ran.
            DaemonError: The daemon cannot be reached, or the request was refused: an unknown tool, a rule.
            TimeoutError: The time is over; the server was told.
        """
        params = {"name": name, "arguments": dict(arguments or {})}
        raw = self.request("tools/call", params, timeout=timeout, on_progress=on_progress, is_safe=is_safe)
        content: list[dict[str, Any]] = raw.get("content") or []
        text = "\n".join(str(block.get("text", "")) for block in content if block.get("type") == "text")
        return CallResult(raw, content, text)

    def status(self) -> dict[str, Any]:
        """Return what the daemon runs: its process, clients and servers."""
        return self.request("dragoman/status", {}, is_safe=True)

    def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        timeout: float | None = None,
        on_progress: Callable[[dict[str, Any]], object] | None = None,
        is_safe: bool = False,
    ) -> dict[str, Any]:
        """Send any request of MCP and return its result; questions of servers are answered on the way.

        Raises:
            OutcomeUnknownError: The daemon ended after it got the request, which is not safe to repeat.
            DaemonError: The daemon cannot be reached, or answers with an error.
            TimeoutError: The time is over; the server was told.
        """
        until = None if timeout is None else time.monotonic() + timeout
        given = dict(params)
        while True:
            result = self._exchange(method, given, until, on_progress, is_safe=is_safe)
            if result.get("resultType") != "input_required":
                return result
            questions: dict[str, dict[str, Any]] = result.get("inputRequests") or {}
            answers = {key: self._answer(one) for key, one in questions.items()}
            given = {**params, "inputResponses": answers, "requestState": result.get("requestState")}

    def _answer(self, question: dict[str, Any]) -> Mapping[str, Any]:
        if self._elicit is None or question.get("method") != "elicitation/create":
            return {"action": "decline"}
        return self._elicit(question.get("params") or {})

    def _exchange(
        self,
        method: str,
        params: dict[str, Any],
        until: float | None,
        on_progress: Callable[[dict[str, Any]], object] | None,
        *,
        is_safe: bool,
    ) -> dict[str, Any]:
        answer: dict[str, Any] | None = None
        attempt = 0
        while answer is None:
            attempt += 1
            channel = self._channel()
            self._own.number += 1
            number = self._own.number
            request = {
                "id": number,
                "method": method,
                "params": self._framed(method, params, number, on_progress),
            }
            try:
                channel.send(request)
            except OSError as exc:
                # The line is not whole: the daemon has not carried it out.
                self._drop(channel)
                if attempt == 3:
                    raise NoDaemonError(str(exc)) from exc
                continue
            try:
                answer = self._await_answer(channel, number, until, on_progress)
            except TimeoutError:
                self._cancel(channel, number)
                raise
            except BaseException:
                # The answer would be taken for that of the next request.
                self._drop(channel)
                raise
            if answer is not None:
                continue
            self._drop(channel)
            if not is_safe or attempt == 3:
                msg = (
                    f"the daemon ended during `{params.get('name', method)}`, which may have been carried out"
                )
                raise OutcomeUnknownError(msg)
        if "result" in answer:
            return answer["result"]
        error: dict[str, Any] = answer.get("error") or {}
        raise DaemonError(str(error.get("message")), code=int(error.get("code", 0)), data=error.get("data"))

    def _await_answer(
        self,
        channel: Channel,
        number: int,
        until: float | None,
        on_progress: Callable[[dict[str, Any]], object] | None,
    ) -> dict[str, Any] | None:
        while (message := channel.receive(until)) is not None:
            if message.get("id") == number and "method" not in message:
                break
            if message.get("method") == "notifications/progress" and on_progress is not None:
                given: dict[str, Any] = message.get("params") or {}
                if given.get("progressToken") == number:
                    on_progress({key: value for key, value in given.items() if key != "progressToken"})
        return message

    def _framed(
        self, method: str, params: dict[str, Any], number: int, on_progress: object
    ) -> dict[str, Any]:
        if method.startswith("dragoman/"):
            return params
        meta: dict[str, Any] = {
            f"{_META}protocolVersion": PROTOCOL,
            f"{_META}clientInfo": {"name": "dragoman-client", "version": VERSION},
            f"{_META}clientCapabilities": {"elicitation": {"form": {}, "url": {}}} if self._elicit else {},
            **(params.get("_meta") or {}),
        }
        if on_progress is not None:
            meta["progressToken"] = number
        return {**params, "_meta": meta}

    def _channel(self) -> Channel:
        own = self._own
        if own.channel is None or own.process != os.getpid():
            first = hello(self._root, self._env, profile=self._profile, config=self._config)
            own.channel = self._dial(first)
            own.process = os.getpid()
            self._all.append(own.channel)
        return own.channel

    def _dial(self, first: dict[str, Any]) -> Channel:
        path = paths(self._env).socket
        for attempt in (1, 2, 3):
            try:
                return dial(path, first)
            except NoDaemonError:
                if not self._may_start or attempt == 3:
                    raise
            except DaemonError as exc:
                if not exc.may_be_replaced or attempt == 3:
                    raise
            start()
        raise AssertionError  # not reached

    def _drop(self, channel: Channel) -> None:
        channel.close()
        self._own.channel = None
        if channel in self._all:
            self._all.remove(channel)

    def _cancel(self, channel: Channel, number: int) -> None:
        try:
            channel.send({"method": "notifications/cancelled", "params": {"requestId": number}})
        except OSError:
            self._drop(channel)
