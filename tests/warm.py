"""Programs that start at once: a process that has imported dragoman forks for each of them.

A start of the interpreter with everything that a command imports takes longer than most commands. Each test process
has one such server, from the first program on until it ends itself. A program that it starts has its own process,
session, terminal, variables and folder; only its imports are made. Where the start, the imports or the process are
the subject of a test, it starts `python` itself.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PACKAGES = ("cli", "server", "manager", "agent", "gateway", "blocking", "demo")
"""What most programs import sooner or later."""
BESIDE = (
    "starlette.applications",
    "uvicorn",
    "aiohttp.web",
    "prompt_toolkit",
    "rich.live",
    "rich.markdown",
    "pyte",
    "mcp.server.lowlevel.server",
    "mcp.server.mcpserver",
    "mcp.server.stdio",
    "mcp.server.subscriptions",
)
SIZE = 1 << 20
SDK_SERVERS = {
    "official.py",
    "all_features.py",
    "asking.py",
    "changing.py",
    "conformance.py",
    "foreign_tasks.py",
}
CLIENT = Path(__file__).with_name("warm_client.py")


class Warm:
    """A program of the server: as much of `subprocess.Popen` as tests use; its streams are descriptors of the test.

    Args:
        words: The arguments of `dragoman`, or those after `python -c` if `code` is given.
        streams: The descriptors of its standard input, output and errors.
        environment: All of its variables.
        folder: Where it is started; the present folder unless given.
        code: A program that is run instead, with warnings as errors.
        terminal: Whether its input is to be the terminal of its session.
    """

    def __init__(
        self,
        words: Sequence[str],
        streams: tuple[int, int, int],
        environment: Mapping[str, str],
        *,
        folder: Path | None = None,
        code: str | None = None,
        terminal: bool = False,
    ) -> None:
        order = {
            "words": list(words),
            "environment": dict(environment),
            "folder": str(folder or Path.cwd()),
            "kind": "program" if code is None else "code",
            "code": code,
            "terminal": terminal,
            "interpreter": sys.executable,
        }
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SIZE)
        self._socket.connect(address())
        socket.send_fds(self._socket, [json.dumps(order).encode()], streams)
        self.pid = int(self._socket.recv(32))
        self.returncode: int | None = None
        self._waits = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, or the negative number of the signal that ended it."""
        with self._waits:
            if self.returncode is None:
                if not self._has_ended(timeout):
                    raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
                self.returncode = os.waitstatus_to_exitcode(int(self._socket.recv(32)))
                self._socket.close()
            return self.returncode

    def _has_ended(self, timeout: float | None) -> bool:
        return bool(select.select([self._socket], [], [], timeout)[0])


def run(
    words: Sequence[str],
    *,
    code: str | None = None,
    stdin: str = "",
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with pipes as its streams."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        streams = (given.fileno(), out.fileno(), err.fileno())
        program = Warm(words, streams, environment or os.environ, folder=folder, code=code)
        try:
            program.wait(timeout)
        finally:
            program.kill()
            ended = program.wait()
        texts: list[str] = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode("utf-8", "replace"))
        return subprocess.CompletedProcess(list(words), ended, *texts)


def server_command(script: Path, *words: str) -> list[str]:
    """Return the command of a test server: a warm one if it would import the SDK, which takes a second."""
    return [interpreter() if script.name in SDK_SERVERS else sys.executable, str(script), *words]


@cache
def interpreter() -> str:
    """Return a program that runs what it is told as `python` does: `-m MODULE …`, `-c CODE …` or `SCRIPT …`.

    What it runs has it as its `sys.executable`, so that the processes that it starts are warm, too. Beside it there is
    a `dragoman` for a PATH.
    """
    python, program = (Path(address()).with_name(name) for name in ("python", "dragoman"))
    for path in (python, program):
        path.write_text(f"#!{sys.executable} -SE\n{CLIENT.read_text('utf-8')}", "utf-8")
        path.chmod(0o700)
    return str(python)


@cache
def address() -> str:
    """Start the server of this test process, and return where it listens.

    It is no child of the test process and shares no descriptor with it, so that no test leaves it behind.
    """
    path = f"{tempfile.mkdtemp(prefix='warm-')}/socket"
    # Nothing of the test that needs it first: each program gets the variables of its own test.
    environment = {name: os.environ[name] for name in ("PATH", "LC_ALL", "LANG") if name in os.environ}
    subprocess.run(
        [sys.executable, __file__, path, str(os.getpid())],
        env=environment | {"HOME": "/nonexistent"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        cwd="/",
        check=True,
    )
    return path


def main(path: str, owner: int) -> None:
    """Serve until the test process ends; in a forked program, run it."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(64)
    tests = os.pidfd_open(owner)
    if os.fork():
        os._exit(0)
    os.setsid()
    del sys.path[0]  # the folder of this file
    load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        ready = select.select([listener, tests], [], [])[0]
        if tests in ready:
            shutil.rmtree(Path(path).parent)
            return
        client, _ = listener.accept()
        if os.fork():
            client.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        listener.close()
        os.close(tests)
        message, streams, _, _ = socket.recv_fds(client, SIZE, 3)
        pid = os.fork()
        if pid:
            watch(client, pid, streams)
        client.close()
        end_as_python_does(run_as_told, json.loads(message), streams)


def load() -> None:
    """Import what programs import."""
    for name in PACKAGES:
        package = importlib.import_module(f"dragoman.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                with suppress(ImportError):
                    importlib.import_module(module.name)
    for name in BESIDE:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def watch(client: socket.socket, pid: int, streams: list[int]) -> None:
    """Tell the test which process the program is, and how it ended."""
    for number in (0, 1, 2, *streams):
        os.close(number)
    with suppress(OSError):  # the test may have ended before it
        client.send(str(pid).encode())
    program = os.pidfd_open(pid)
    if client in select.select([client, program], [], [])[0]:  # the test, or the client, is gone
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with suppress(OSError):
        client.send(str(status).encode())
    os._exit(0)


def end_as_python_does(program: Callable[..., None], *given: Any) -> NoReturn:
    """Run a program to the end of its process, but leave the modules as they are: to clear them takes 0.1 s."""
    code: object = None
    try:
        program(*given)
    except SystemExit as end:
        code = end.code
        if not isinstance(code, int | None):
            print(code, file=sys.stderr)
            code = 1
    except BaseException as error:  # noqa: BLE001 -- as the interpreter does
        sys.excepthook(type(error), error, error.__traceback__)
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    # What a destructor says of something that was not closed is an error in many a test.
    vars(sys.modules["__main__"]).clear()
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or 120
    if code == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit((code or 0) & 255)


def run_as_told(order: dict[str, Any], streams: list[int]) -> None:
    """Become the program."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if order["terminal"]:
        import fcntl
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        stream = open(number, "w" if number else "r", encoding="utf-8", errors=old.errors, closefd=False)  # noqa: SIM115 -- for as long as the program lives
        if number == 2:
            stream.reconfigure(line_buffering=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.executable = order["interpreter"]
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    match order["kind"]:
        case "program":
            sys.path.insert(0, order["folder"])
            sys.argv = [str(Path(sys.executable).with_name("dragoman")), *order["words"]]
            from dragoman.cli.entry import main as start

            start()
        case "python":
            run_as_python(order["words"], order["folder"], module)
        case _:
            import warnings

            warnings.simplefilter("error")
            sys.path.insert(0, "")
            sys.argv = ["-c", *order["words"]]
            exec(compile(order["code"], "<string>", "exec"), module.__dict__)


def run_as_python(words: list[str], folder: str, module: types.ModuleType) -> None:
    """Run what the words after `python` say."""
    import runpy
    import warnings

    while words[0].startswith("-") and words[0] not in ("-m", "-c"):
        option = words.pop(0)
        if option == "-W":
            warnings.simplefilter(words.pop(0))
        else:  # -P
            folder = ""
    given = os.environ.get("PYTHONPATH", "")
    if given:
        sys.path[:0] = given.split(os.pathsep)
        with suppress(ModuleNotFoundError):
            importlib.import_module("sitecustomize")
    sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in os.environ
    first, *rest = words
    match first:
        case "-m":
            sys.path[:0] = [folder] if folder else []
            sys.argv = rest
            if not hasattr(sys.modules.get(rest[0]), "__path__"):
                sys.modules.pop(rest[0], None)  # so that it is new, as in a fresh interpreter
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        case "-c":
            sys.path.insert(0, "")
            sys.argv = ["-c", *rest[1:]]
            exec(compile(rest[0], "<string>", "exec"), module.__dict__)
        case _:
            script = Path(first)
            sys.path.insert(0, str(script.resolve().parent))
            sys.argv = words
            module.__file__ = str(script)
            exec(compile(script.read_bytes(), script, "exec"), module.__dict__)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
