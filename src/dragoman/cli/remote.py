"""Run commands of the terminal inside the daemon: what they print and ask goes to their client.

The commands are the same code as without a daemon. `current_command` says whose terminal is meant; the
streams of this process find it there, and so do the few places that need the event loop, the width of the
terminal or an answer.
"""

from __future__ import annotations

import io
import os
import sys
from base64 import b64decode
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

from dragoman.cli.options import Options, usual_profile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.gateway.daemon import Command
    from dragoman.gateway.workspace import ClientPlace
    from dragoman.model import Settings

current_command: ContextVar[Command | None] = ContextVar("current_command", default=None)
"""The command that the current task or thread runs for a client; `None` outside the daemon."""

current_options: ContextVar[Options | None] = ContextVar("current_options", default=None)
"""The options of that command, for tasks of the daemon's loop, which have no context of click."""

HELD_CHARS = 64 * 1024
"""How much of the output is held back, so that a long list is not sent line by line."""


class GoAloneError(Exception):
    """The client has to run the command itself."""


class UseDaemonError(Exception):
    """The command has to run in the daemon, which was started for it."""


def divert(options: Options, settings: Settings) -> None:
    """Let the daemon run this command, if the user wants one.

    Raises:
        UseDaemonError: It does; `main` passes the command line on.
    """
    from dragoman.gateway import client

    if not settings.daemon or options.no_daemon or options.debug or options.server is not None:
        return
    if os.environ.get("DRAGOMAN_DAEMON", "").strip() or not client.is_supported():
        return  # the variable decides before the configuration, in `entry.py`
    raise UseDaemonError


def load(place: ClientPlace) -> Settings:
    """Load the configuration of a client, as it would alone."""
    options = Options(root=place.root, env=place.env)
    options.profile = place.profile or usual_profile(place.env)
    options.config = place.config
    return options.load()


def run(command: Command) -> int | None:
    """Run a command; return its exit code, or `None` if the client has to run it."""
    from concurrent.futures import CancelledError

    from dragoman.cli.main import run_with

    place = command.place
    options = Options(root=place.root, env=place.env, no_daemon=True)
    options.profile = usual_profile(place.env)

    def load_here() -> Settings:
        if options.server is not None:
            raise GoAloneError  # a server of the command line is started for this command alone
        own = options.profile if options.profile != usual_profile(place.env) else None
        config = None if options.config is None else os.path.join(place.root, options.config)  # noqa: PTH118 -- a text
        command.place = place.replace(profile=own, config=config)
        return command.workspaces.settings(command.place)

    options.load_here = load_here
    token = current_command.set(command)
    current_options.set(options)
    held = _Held(command)
    output = _held.set(held)
    try:
        code = run_with(command.words, options)
        held.flush()
    except (GoAloneError, CancelledError):
        return None
    else:
        return code
    finally:
        _held.reset(output)
        current_command.reset(token)


def here(path: str | os.PathLike[str]) -> str:
    """Return a path of the command line, relative to the folder of the command."""
    command = current_command.get()
    text = os.fspath(path)
    if command is None or text.startswith("~"):
        return text
    return os.path.join(command.place.root, text)  # noqa: PTH118 -- texts in, texts out


class _Held:
    """The output of one command that was not sent yet."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self._texts: list[str] = []
        self._size = 0

    def write(self, stream: str, text: str) -> None:
        """Print; standard error at once, after what came before."""
        if stream == "err":
            self.flush()
            self._command.write("err", text)
            return
        self._texts.append(text)
        self._size += len(text)
        if self._size > HELD_CHARS:
            self.flush()

    def flush(self) -> None:
        """Send what is held."""
        texts, self._texts, self._size = self._texts, [], 0
        if texts:
            self._command.write("out", "".join(texts))


_held: ContextVar[_Held | None] = ContextVar("held_output", default=None)


class _Output(io.TextIOBase):
    """Stands for a standard stream of this process: writes to the client of the current command."""

    def __init__(self, name: str, own: Any) -> None:
        self._name = name
        self._own = own

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] -- of the client
        command = current_command.get()
        return command.encoding if command is not None else "utf-8"

    def isatty(self) -> bool:
        command = current_command.get()
        return bool(command is not None and command.tty.get(self._name))

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] -- click tries bytes
            msg = f"write() argument must be str, not {type(text).__name__}"
            raise TypeError(msg)
        held = _held.get()
        if held is not None:
            held.write(self._name, text)
        else:
            self._own.write(text)
        return len(text)

    def flush(self) -> None:
        if _held.get() is None:
            self._own.flush()


class _Input(io.TextIOBase):
    """Stands for standard input: has what the client read from its own."""

    @property
    def buffer(self) -> io.BytesIO:
        command = current_command.get()
        return io.BytesIO(b64decode(command.stdin) if command is not None else b"")

    def isatty(self) -> bool:
        command = current_command.get()
        return bool(command is not None and command.tty.get("in"))

    def readable(self) -> bool:
        return True

    def readline(self, size: int | None = -1) -> str:  # noqa: ARG002 -- as in the class above
        # Questions go through `exits.confirm`. Others need the client's own terminal.
        raise GoAloneError


def install_streams() -> None:
    """Let the standard streams of this process go to the client of each command."""
    sys.stdout = cast("Any", _Output("out", sys.stdout))
    sys.stderr = cast("Any", _Output("err", sys.stderr))
    sys.stdin = cast("Any", _Input())


def preloaded() -> Iterable[str]:
    """Return the modules to import when the daemon starts, the first needed first."""
    return (
        "dragoman.cli.main",
        "dragoman.cli.commands.call",
        "dragoman.cli.connect",
        "dragoman.manager.manager",
        "dragoman.call",
        "dragoman.server.connection",
        "dragoman.gateway.questions",
        "dragoman.cli.commands.status",
        "dragoman.cli.commands.tools",
        "dragoman.gateway.gateway",
    )
