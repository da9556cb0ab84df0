"""The daemon: the gateway on a local socket, for the clients of one user.

One process per user holds the servers of all of the user's shells, programs and worker pools. A connection
begins with `dragoman/hello`, which says where the client is; after that it speaks MCP, as the gateway serves
it, and these methods:

- `dragoman/command` runs a command of the terminal, `dragoman/output` is what it prints, `dragoman/ask` asks
  a question at the client's terminal, `dragoman/calling` says that a call goes out now.
- `dragoman/status` returns what the daemon runs, `dragoman/stop` ends it.
"""

from __future__ import annotations

import asyncio
import contextvars
import fcntl
import json
import logging
import os
import signal
import socket
import threading
import time
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, cast

from dragoman.gateway.client import (
    BUSY,
    HELLO_SECONDS,
    OTHER_VERSION,
    NoDaemonError,
    Paths,
    dial,
    hello,
    make_private,
    open_private,
    peer_user,
)
from dragoman.gateway.workspace import ClientPlace, Workspaces, WorkspaceStatus
from dragoman.model import json_object
from dragoman.server.late_import import late_import_module
from dragoman.server.process.signals import on_signal
from dragoman.server.sharing import SharedConnections, SharedProcess
from dragoman.struct import Report
from dragoman.trust.encoding import encoded
from dragoman.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from dragoman.gateway.connection import ClientConnection as McpConnection
    from dragoman.gateway.outbox import ClientOutbox
    from dragoman.model import Settings

logger = logging.getLogger("dragoman")

IDLE_SECONDS = 600.0
GRACE_SECONDS = 5.0
"""How long commands and requests in progress may take after the daemon was told to stop."""
SWEEP_SECONDS = 5.0
LOCK_SECONDS = 20.0
"""How long to wait for the end of a daemon that is stopping."""
LONGEST_LINE = 64 * 1024 * 1024
BACKLOG = 1_024
_INVALID_REQUEST, _METHOD_NOT_FOUND, _INVALID_PARAMS = -32600, -32601, -32602
_DEFAULTS: dict[str, Any] = {"words": [], "tty": {}, "columns": 0, "encoding": "utf-8", "stdin": ""}
"""The parameters of a command, where the client does not send them."""


class AlreadyRunningError(Exception):
    """Another daemon of this user is running."""


class DaemonStatus(Report, kw_only=True):
    """`dragoman daemon status --json`."""

    running: bool = True
    pid: int
    version: str
    since: float
    """When it started, in seconds since the epoch."""
    clients: int
    """How many clients are connected, this command included."""
    served: int
    idle_seconds: float
    """After how many seconds without clients it ends."""
    processes: Sequence[SharedProcess]
    workspaces: Sequence[WorkspaceStatus]


class Daemon:
    """Listens on the user's socket until it is stopped, or has been idle for long."""

    def __init__(
        self,
        paths: Paths,
        *,
        load: Callable[[ClientPlace], Settings],
        run: Callable[[Command], int | None],
        preload: Sequence[str] = (),
        idle: float = IDLE_SECONDS,
    ) -> None:
        """Prepare a daemon; nothing is opened yet.

        Args:
            paths: Its files.
            load: Reads the configuration of a client's place, in a thread.
            run: Runs a command of the terminal, in a thread; returns its exit code, or `None` if the client
                has to run it alone.
            preload: Modules to import in the background, so that the first client does not wait for them.
            idle: Seconds without clients after which the daemon ends.
        """
        self._paths = paths
        self._run = run
        self._preload = preload
        self._idle = idle
        self.shared = SharedConnections()
        self.workspaces = Workspaces(load, self.shared)
        self._connections: set[_DaemonConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending = asyncio.Event()
        self._began = time.time()
        self._last_used = time.monotonic()
        self._served = 0

    async def serve(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop`, SIGTERM or SIGINT, or the idle end.

        Raises:
            AlreadyRunningError: Another daemon is running and answers.
            DaemonError: Its folder is not this user's alone.
            OSError: The socket cannot be made.
        """
        lock = await self._take_lock()
        try:
            listener = _listen(self._paths.socket)
            for number in (signal.SIGTERM, signal.SIGINT):
                on_signal(number, self.stop)
            server = await asyncio.start_unix_server(
                self._accept, sock=listener, limit=LONGEST_LINE, backlog=BACKLOG
            )
            on_ready()
            logger.info("daemon %s started, process %d", VERSION, os.getpid())
            loading = asyncio.create_task(self._import())
            try:
                await self._until_end()
            finally:
                # New clients find no socket, and start the next daemon; it waits for our lock.
                with suppress(OSError):
                    os.unlink(self._paths.socket)  # noqa: PTH108 -- as the client spells it
                server.close()
                await self._drain()
                loading.cancel()
                await asyncio.wait({loading})
                await self.workspaces.close()
                logger.info("daemon ended")
        finally:
            os.close(lock)

    def stop(self) -> None:
        """Begin to end."""
        self._ending.set()

    def status(self) -> DaemonStatus:
        """Return what runs; no variable, argument or header is in it."""
        return DaemonStatus(
            version=VERSION,
            pid=os.getpid(),
            since=round(self._began, 3),
            clients=len(self._connections),
            served=self._served,
            idle_seconds=self._idle,
            processes=self.shared.status(),
            workspaces=[one.status() for one in self.workspaces.all()],
        )

    @property
    def is_ending(self) -> bool:
        """Whether no new work is taken."""
        return self._ending.is_set()

    def is_busy(self) -> bool:
        """Return whether a client has work in progress."""
        return any(one.is_busy for one in self._connections)

    def run(self, command: Command) -> asyncio.Future[int | None]:
        """Run a command of the terminal in a thread of its own."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[int | None] = loop.create_future()
        context = contextvars.copy_context()

        def work() -> None:
            outcome: int | None = None
            try:
                outcome = context.run(self._run, command)
            except Exception as exc:
                # Not `None`: the client would run it again, and a call may have been carried out.
                logger.exception("a command failed in the daemon")
                command.write(
                    "err", f"error: the daemon failed: {type(exc).__name__} (see `dragoman daemon logs`)\n"
                )
                outcome = 1
            finally:
                with suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(lambda: done.done() or done.set_result(outcome))

        # Not from a pool: commands that wait for a stuck server would take the threads of the others.
        threading.Thread(target=work, name="dragoman command", daemon=True).start()
        return done

    def used(self) -> None:
        """Note that a client was here."""
        self._last_used = time.monotonic()

    async def _take_lock(self) -> int:
        make_private(self._paths.folder)
        descriptor = open_private(self._paths.lock, os.O_RDWR)
        until = time.monotonic() + LOCK_SECONDS
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if await asyncio.to_thread(_answers, self._paths.socket) or time.monotonic() > until:
                        raise AlreadyRunningError from None
                    await asyncio.sleep(0.05)
                else:
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise

    async def _import(self) -> None:
        for name in self._preload:
            await late_import_module(name)

    async def _until_end(self) -> None:
        while not self._ending.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(min(SWEEP_SECONDS, self._idle)):
                    await self._ending.wait()
            now = time.monotonic()
            if not self._connections and now - self._last_used > self._idle:
                logger.info("no client for %.0f s", self._idle)
                self._ending.set()
            try:
                await self.workspaces.sweep(now)
            except Exception:
                logger.exception("could not close an unused workspace")

    async def _drain(self) -> None:
        for one in list(self._connections):
            if not one.is_busy:
                one.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GRACE_SECONDS)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GRACE_SECONDS)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected: socket.socket = writer.get_extra_info("socket")
        user = peer_user(cast("socket.socket", getattr(connected, "_sock", connected)))
        if user not in (None, os.getuid()):
            logger.warning("refused a connection of user %s", user)
            writer.transport.abort()
            return
        connection = _DaemonConnection(self, reader, writer)
        self._connections.add(connection)
        task = asyncio.create_task(connection.serve(), name="dragoman client")
        self._tasks.add(task)

        def ended(_: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._connections.discard(connection)
            self.used()

        task.add_done_callback(ended)
        self._served += 1


def _answers(path: str) -> bool:
    try:
        dial(path, hello("/", {}), seconds=2.0).close()
    except NoDaemonError:
        return False
    except Exception:  # noqa: BLE001 -- it has answered, even if it refuses
        return True
    return True


def _listen(path: str) -> socket.socket:
    """Return a listening socket for this user alone. The caller holds the lock: what is there is stale."""
    with suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108 -- as the client spells it
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        before = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(before)
        os.chmod(path, 0o600)  # noqa: PTH101 -- as above
        listener.setblocking(False)  # noqa: FBT003 -- its only parameter
    except BaseException:
        listener.close()
        raise
    return listener


class Command:
    """A command of the terminal that runs in the daemon, for a client."""

    def __init__(
        self, daemon: Daemon, connection: _DaemonConnection, params: dict[str, Any], place: ClientPlace
    ) -> None:
        """Take what the client wants to run.

        Raises:
            _RefusedError: A parameter has the wrong type.
        """
        given = {**_DEFAULTS, **params}
        for name, default in _DEFAULTS.items():
            if type(given[name]) is not type(default):
                raise _RefusedError(_INVALID_PARAMS, f"`{name}` must be a {type(default).__name__}")
        self.workspaces = daemon.workspaces
        self.place = place
        self.words: list[str] = [str(word) for word in given["words"]]
        self.tty: dict[str, bool] = given["tty"]
        self.columns: int | None = given["columns"] or None
        self.encoding: str = given["encoding"]
        self.stdin: str = given["stdin"]
        """What the client read from its standard input, in base64."""
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._futures: set[Any] = set()
        self._is_cancelled = False

    def write(self, stream: str, text: str) -> None:
        """Print at the client; for any thread."""
        self._notify("dragoman/output", {"stream": stream, "text": text})

    def calling(self, *, is_safe: bool) -> None:
        """Say that a call goes to its server now."""
        self._notify("dragoman/calling", {"safe": is_safe})

    async def ask(self, prompt: str) -> str:
        """Ask at the client's terminal and return the line; empty if the client is gone."""
        return await self._connection.ask(prompt)

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the daemon's loop and return its result; for the thread of the command."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._futures.add(future)
        if self._is_cancelled:
            future.cancel()
        try:
            return future.result()
        finally:
            self._futures.discard(future)

    def cancel(self) -> None:
        """End what the command waits for: its client is gone."""
        self._is_cancelled = True
        for future in list(self._futures):
            future.cancel()

    def _notify(self, method: str, params: dict[str, Any]) -> None:
        line = _line({"method": method, "params": params})
        if threading.get_ident() == getattr(self._loop, "_thread_id", None):
            self._connection.write(line)
        else:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._connection.write, line)


class _RefusedError(Exception):
    """A request is answered with an error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class _DaemonConnection:
    """One client."""

    def __init__(self, daemon: Daemon, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._daemon = daemon
        self._reader = reader
        self._writer = writer
        self._commands: dict[Any, tuple[Command, asyncio.Task[None]]] = {}
        self._asked: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._mcp: _McpSide | None = None

    @property
    def is_busy(self) -> bool:
        """Whether work of this client is in progress."""
        return bool(self._commands) or (self._mcp is not None and self._mcp.is_busy)

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    def write(self, line: bytes) -> None:
        """Send a message."""
        if not self._writer.is_closing():
            self._writer.write(line)

    async def serve(self) -> None:
        """Serve the client until it or the daemon closes the connection."""
        try:
            place = await self._greet()
            if place is not None:
                await self._serve(place)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except Exception:
            logger.exception("the connection of a client failed")
        finally:
            for command, task in list(self._commands.values()):
                command.cancel()
                task.cancel()
            for answer in self._asked.values():
                answer.cancel()
            if self._mcp is not None:
                await self._mcp.close()
            self._writer.close()

    async def ask(self, prompt: str) -> str:
        """Ask at the client's terminal."""
        number = f"ask-{len(self._asked)}-{time.monotonic_ns()}"
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self.write(_line({"id": number, "method": "dragoman/ask", "params": {"prompt": prompt}}))
        try:
            return str((await answer).get("line", ""))
        finally:
            self._asked.pop(number, None)

    async def _greet(self) -> ClientPlace | None:
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                message = await self._next()
        except TimeoutError:
            return None
        if message is None:
            return None
        params = json_object(message.get("params"))
        try:
            if message.get("method") != "dragoman/hello":
                raise _RefusedError(_INVALID_REQUEST, "the first request must be `dragoman/hello`")
            if params.get("version") != VERSION:
                self._on_other_version(str(params.get("version")))
            if self._daemon.is_ending:
                raise _RefusedError(BUSY, "the daemon is ending", {"busy": False})
        except _RefusedError as exc:
            self.write(_error(message.get("id"), exc))
            await self.flush()
            return None
        about = {"version": VERSION, "pid": os.getpid()}
        self.write(_line({"id": message.get("id"), "result": about}))
        self._daemon.used()
        env = {str(name): str(value) for name, value in json_object(params.get("env")).items()}
        profile, config = params.get("profile"), params.get("config")
        return ClientPlace(
            root=str(params.get("root") or "/"),
            env=env,
            profile=str(profile) if profile else None,
            config=str(config) if config else None,
        )

    def _on_other_version(self, version: str) -> None:
        """Refuse a client of another version, and end if that harms no other client."""
        is_busy = self._daemon.is_busy()
        if not is_busy:
            logger.info("a client has version %s: ending", version)
            self._daemon.stop()
        msg = f"the daemon has version {VERSION}, this client {version}"
        raise _RefusedError(OTHER_VERSION, msg, {"busy": is_busy, "version": VERSION})

    async def _serve(self, place: ClientPlace) -> None:
        while (message := await self._next()) is not None:
            method, number = message.get("method"), message.get("id")
            if method is None and number in self._asked:
                if not self._asked[number].done():
                    self._asked[number].set_result(json_object(message.get("result")))
            elif isinstance(method, str) and method.startswith("dragoman/"):
                self._control(method, message, place)
            else:
                if self._mcp is None:
                    self._mcp = _McpSide(self._writer, place, self._daemon.workspaces)
                await self._mcp.take(message)
            with suppress(ConnectionError):
                await self._writer.drain()

    def _control(self, method: str, message: dict[str, Any], place: ClientPlace) -> None:
        number = message.get("id")
        match method:
            case "dragoman/command":
                try:
                    command = Command(self._daemon, self, json_object(message.get("params")), place)
                except _RefusedError as exc:
                    self.write(_error(number, exc))
                else:
                    self._commands[number] = command, asyncio.create_task(self._run(number, command))
            case "dragoman/status":
                self.write(_line({"id": number, "result": encoded(self._daemon.status())}))
            case "dragoman/stop":
                self.write(_line({"id": number, "result": {"pid": os.getpid()}}))
                self._daemon.stop()
            case _:
                self.write(_error(number, _RefusedError(_METHOD_NOT_FOUND, f"unknown method `{method}`")))

    async def _run(self, number: Any, command: Command) -> None:
        try:
            code = await self._daemon.run(command)
            # Output that the thread has sent is in the queue of the loop before this.
            self.write(_line({"id": number, "result": {"code": code}}))
        finally:
            self._commands.pop(number, None)

    async def _next(self) -> dict[str, Any] | None:
        try:
            line = await self._reader.readline()
        except ValueError:
            logger.warning("a client sent a line of more than %d bytes", LONGEST_LINE)
            self.write(_error(None, _RefusedError(_INVALID_REQUEST, "the message is too long")))
            return None
        if not line.endswith(b"\n"):
            return None  # the end, or a part of a line: it was not meant yet
        try:
            rpc = await late_import_module("dragoman.server.protocol.rpc")
            found: object = rpc.decode_bounded(line)
        except ValueError:
            found = None
        if not isinstance(found, dict) or type(cast("dict[str, Any]", found).get("id", 0)) not in (int, str):
            logger.warning("a client sent something that is not a JSON-RPC message")
            self.write(_error(None, _RefusedError(-32700, "not a JSON-RPC message")))
            return None
        return cast("dict[str, Any]", found)

    async def flush(self) -> None:
        """Wait until the client has room for more."""
        with suppress(ConnectionError):
            await self._writer.drain()


class _McpSide:
    """The part of a connection that is MCP: the gateway of the client's workspace serves it."""

    def __init__(self, writer: asyncio.StreamWriter, place: ClientPlace, workspaces: Workspaces) -> None:
        """Prepare; the workspace is opened with the first message.

        Args:
            writer: Where messages to the client go.
            place: Where the client is.
            workspaces: All workspaces of the daemon.
        """
        self._writer = writer
        self._place = place
        self._workspaces = workspaces
        self._stack = AsyncExitStack()
        self._served: McpConnection | None = None
        self._outbox: ClientOutbox | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a request has no answer yet."""
        return self._served is not None and self._served.is_busy

    async def take(self, message: dict[str, Any]) -> None:
        """Take a message of the client."""
        if self._served is None:
            self._served = await self._open()
        self._served.take(message)

    async def close(self) -> None:
        """End it; requests in progress are cancelled."""
        if self._served is not None:
            await self._served.close()
        if self._outbox is not None:
            await self._outbox.close(flush=False)
        await self._stack.aclose()

    async def _open(self) -> McpConnection:
        await late_import_module("dragoman.gateway.gateway")
        from dragoman.gateway.outbox import ClientOutbox

        settings = await asyncio.to_thread(self._workspaces.settings, self._place)
        workspace = await self._stack.enter_async_context(self._workspaces.use(self._place, settings))
        await workspace.start_all()
        self._outbox = ClientOutbox(self._write, on_stuck=self._writer.transport.abort)
        return workspace.gateway.connect(self._outbox, "unix")

    async def _write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def _error(number: Any, exc: _RefusedError) -> bytes:
    error = {"code": exc.code, "message": str(exc), **({"data": exc.data} if exc.data else {})}
    return _line({"id": number, "error": error})
