"""What a child process needs besides its pipes: an environment, an ear for its stderr, a sure end.

Never writes to our own terminal, and never hands a child more of our environment than its spec says.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from asyncio import get_running_loop
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from dragoman.config.files import read_env_file
from dragoman.errors import ConfigError
from dragoman.guard import secrets_of
from dragoman.server.rotating import RotatingLog

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from dragoman.model import Stdio

TAIL_BYTES = 16_384
SAFE_VARIABLES = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
"""What a child always inherits, as with the SDK's own transport; a test compares the two."""


def safe_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that every child inherits; exported shell functions are left out."""
    return {name: env[name] for name in SAFE_VARIABLES if not env.get(name, "()").startswith("()")}


def child_environment(stdio: Stdio, env: Mapping[str, str]) -> dict[str, str]:
    """Return what a child gets beyond the SDK's safe set: inherited names, env files, its own `env`.

    Raises:
        ConfigError: An env file cannot be read.
    """
    match stdio.inherit_env:
        case "safe":
            given: dict[str, str] = {}
        case "all":
            given = dict(env)
        case names:
            given = {name: env[name] for name in names if name in env}
    for name in stdio.env_file:
        try:
            given |= read_env_file(Path(name))
        except ConfigError as exc:
            msg = f"an env file cannot be read: {exc.location or name}: {exc.message}"
            raise ConfigError(msg, hint=exc.hint or "check `env_file`") from exc
    for name, value in stdio.env.items():
        if value is None:
            given.pop(name, None)
        else:
            given[name] = value
    return given


def removed_variables(stdio: Stdio) -> list[str]:
    """Return the variables that the spec takes away even from the safe set."""
    return [name for name, value in stdio.env.items() if value is None]


def whole_environment(stdio: Stdio, env: Mapping[str, str]) -> dict[str, str]:
    """Return everything that a child gets: the safe set, what its spec adds, less what it takes away.

    Raises:
        ConfigError: An env file cannot be read.
    """
    given = safe_environment(env) | child_environment(stdio, env)
    for removed in removed_variables(stdio):
        given.pop(removed, None)
    return given


def stderr_log(stdio: Stdio, name: str, given: Mapping[str, str]) -> RotatingLog | None:
    """Open the file that a child's standard error is kept in, if one is wanted.

    Args:
        stdio: The child.
        name: The server's name, for warnings.
        given: The environment that the child gets, to know what is secret.
    """
    if stdio.log_file is None:
        return None
    return RotatingLog(stdio.log_file, server=name, secrets=secrets_of(stdio, given))


def kill_group(pid: int) -> None:
    """Kill whatever is left of a child's process group; its leader may already be gone."""
    if sys.platform != "win32":
        # macOS refuses the signal if only zombies are left.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


class StderrTail:
    """Takes a child's standard error and remembers its end; use it in the loop's own thread."""

    def __init__(self, source: int | None = None, log: RotatingLog | None = None) -> None:
        """Listen to a child.

        Args:
            source: The descriptor to read, which is closed with this; without one there is a `sink` for a
                child to come.
            log: Where everything is kept; closed with this.
        """
        self._kept = bytearray()
        self._log = log
        self._source = source
        self.sink: IO[bytes] | None = None
        if source is None and sys.platform == "win32":
            # Proactor loops cannot watch a pipe; a file serves, at the price of growing.
            self.sink = tempfile.TemporaryFile()  # noqa: SIM115 -- closed in __exit__
            return
        if source is None:
            self._source, target = os.pipe()
            self.sink = os.fdopen(target, "wb", buffering=0)
        assert self._source is not None  # noqa: S101 -- given, or just made
        os.set_blocking(self._source, False)
        get_running_loop().add_reader(self._source, self._read)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.text()
        self._let_go()
        if self._log is not None:
            self._log.close()
        if self.sink is not None:
            self.sink.close()

    def spawned(self) -> None:
        """Drop our own end of the pipe: the child has it now."""
        if self._source is not None and self.sink is not None:
            self.sink.close()

    def text(self) -> str:
        """Return the last lines that came."""
        if self._source is not None:
            self._read()
        elif self.sink is not None and not self.sink.closed and self.sink.readable():
            size = self.sink.seek(0, os.SEEK_END)
            self.sink.seek(max(0, size - TAIL_BYTES))
            self._kept[:] = self.sink.read()
        return self._kept.decode("utf-8", "replace").strip()

    def _read(self) -> None:
        if self._source is None:
            return
        with suppress(BlockingIOError):
            # One pipe's worth at a time: a flood must not keep the loop here.
            for _ in range(4):
                if not (chunk := os.read(self._source, TAIL_BYTES)):
                    self._let_go()
                    return
                if self._log is not None:
                    self._log.write(chunk)
                self._kept += chunk
                del self._kept[:-TAIL_BYTES]

    def _let_go(self) -> None:
        if self._source is not None:
            get_running_loop().remove_reader(self._source)
            os.close(self._source)
            self._source = None
