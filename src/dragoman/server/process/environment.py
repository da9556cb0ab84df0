"""The environment of a child process, the capture of its stderr, and the end of its process group.

Never writes to our own terminal, and never gives a child more of our environment than its entry says, besides
the variables that every program needs and those that a package launcher needs.
"""

from __future__ import annotations

import logging
import os
import signal
import stat
import sys
from asyncio import get_running_loop
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, cast

from dragoman.errors import ConfigError
from dragoman.model import Stdio
from dragoman.storage.files import private_folder, private_opener
from dragoman.trust.redaction import Redactor, current_redactor
from dragoman.trust.sandbox import DEFAULT
from dragoman.trust.sanitizing import for_terminal

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Mapping
    from types import TracebackType

    from dragoman.model import ServerSpec, Transport


logger = logging.getLogger("dragoman")

MAX_BYTES = 1024 * 1024
OLDER_FILES = 2
LONGEST_LINE = 64 * 1024
"""Longer lines are split, so that an endless line takes no memory."""


class RotatingLog:
    """A log file that is rotated by size; use it in one thread only."""

    def __init__(
        self,
        path: str,
        *,
        server: str,
        secrets: Iterable[str] = (),
        masks_shapes: bool = False,
        is_quiet: bool = False,
    ) -> None:
        """Open a log, and create its folder if necessary.

        Args:
            path: The newest file.
            server: The server's name, for warnings.
            secrets: Values to mask, besides those that the connection's redactor knows.
            masks_shapes: Whether to mask text that only looks like a secret, too.
            is_quiet: Whether nothing is said if it cannot be written.
        """
        self._masks_shapes = masks_shapes
        self._is_quiet = is_quiet
        self._path = Path(path)
        self._server = server
        self._redactor = Redactor(secrets)
        self._known = current_redactor.get() or self._redactor
        self._begun = b""
        self._file: int | None = None
        with self._closing_on_error():
            private_folder(self._path.parent)
            self._open()

    def write(self, data: bytes) -> None:
        """Add data; complete lines are written."""
        if self._file is None:
            return
        lines, newline, rest = (self._begun + data).rpartition(b"\n")
        if len(rest) > LONGEST_LINE:
            lines, newline, rest = lines + newline + rest, b"\n", b""
        self._begun = rest
        if newline:
            self._write(lines + newline)

    def close(self) -> None:
        """Write the unfinished line, and close the file."""
        if self._file is not None and self._begun:
            self._write(self._begun + b"\n")
        self._close()

    def _write(self, lines: bytes) -> None:
        text = lines.decode("utf-8", "surrogateescape")
        if self._masks_shapes:
            text = self._known.mask(self._redactor.mask_known(text))
        elif len(self._redactor) or len(self._known):
            text = self._redactor.mask_known(text)
            text = text if self._known is self._redactor else self._known.mask_known(text)
        lines = for_terminal(text).encode("utf-8", "replace")
        with self._closing_on_error():
            for start in range(0, len(lines), MAX_BYTES):
                self._put(lines[start : start + MAX_BYTES])

    def _put(self, lines: bytes) -> None:
        if self._file is not None and not self._is_ours(self._file):
            # Another connection to the same server has rotated the log.
            self._close()
            self._open()
        if self._file is not None and os.fstat(self._file).st_size + len(lines) > MAX_BYTES:
            self._close()
            self._rotate()
            self._open()
        if self._file is not None:
            os.write(self._file, lines)

    def _is_ours(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), os.stat(self._path))  # noqa: PTH116 -- of a descriptor too
        except FileNotFoundError:
            return False

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        # Do not block on a named pipe, and do not take over a terminal.
        flags |= getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
        # Only the owner may read it.
        file = private_opener(self._path, flags)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            msg = "it is not a regular file"
            raise OSError(msg)
        self._file = file

    def _rotate(self) -> None:
        names = [self._path, *(Path(f"{self._path}.{number}") for number in range(1, OLDER_FILES + 1))]
        for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
            with suppress(FileNotFoundError):
                newer.replace(older)

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    @contextmanager
    def _closing_on_error(self) -> Generator[None]:
        """On an error, close the log with a warning; the server goes on."""
        try:
            yield
        except OSError as exc:
            with suppress(OSError):
                self._close()
            reason = exc.strerror or str(exc)
            level = logging.DEBUG if self._is_quiet else logging.WARNING
            logger.log(level, "%s: `log_file` (%s) cannot be written: %s", self._server, self._path, reason)


TAIL_BYTES = 16_384
SAFE_VARIABLES = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
"""Variables that a child always inherits, as with the SDK's own transport; a test compares the two."""


PROXY_VARIABLES = tuple(
    spelling
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
    for spelling in (name, name.lower())
)
PLACE_VARIABLES = ("TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
"""Folders and files that every program needs to work here; they hold no secrets."""
LAUNCHERS = frozenset({"npx", "npm", "uvx", "uv", "pipx"})
"""Programs that download a server's package before they run it."""
_NPM = ("registry", "proxy", "https_proxy", "noproxy", "cafile", "strict_ssl", "cache", "userconfig")
LAUNCHER_VARIABLES = (
    *(f"npm_config_{name}" for name in _NPM),
    *(f"NPM_CONFIG_{name.upper()}" for name in _NPM),
    *(
        "UV_DEFAULT_INDEX",
        "UV_INDEX",
        "UV_INDEX_URL",
        "UV_EXTRA_INDEX_URL",
        "UV_INDEX_STRATEGY",
        "UV_FIND_LINKS",
    ),
    *("UV_INSECURE_HOST", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_OFFLINE", "UV_CONFIG_FILE", "UV_CACHE_DIR"),
    *("UV_PYTHON_INSTALL_MIRROR", "UV_KEYRING_PROVIDER", "UV_HTTP_TIMEOUT"),
    *(
        "PIP_INDEX_URL",
        "PIP_EXTRA_INDEX_URL",
        "PIP_FIND_LINKS",
        "PIP_NO_INDEX",
        "PIP_TRUSTED_HOST",
        "PIP_CERT",
    ),
    *("PIP_PROXY", "PIP_CONFIG_FILE", "PIP_CACHE_DIR", "PIPX_HOME", "PIPX_BIN_DIR", "PIPX_DEFAULT_PYTHON"),
)
"""Where launchers find packages. An explicit list: `npm_config__authToken` and the like are never in it."""


def is_launcher(command: str, env: Mapping[str, str], own: Collection[str] = ()) -> bool:
    """Return whether a command is a package launcher of this machine, not a program that is named like one.

    Args:
        command: The command, expanded.
        env: Our environment. A path counts only if its folder is on our `PATH`: a project's folder is not.
        own: The variables that the entry sets. One that sets `PATH` chooses the program itself.
    """
    return is_program(command, LAUNCHERS, env, own)


def is_program(
    command: str, names: Collection[str], env: Mapping[str, str], own: Collection[str] = ()
) -> bool:
    """Return whether a command is a program of this machine with one of these names, as in `is_launcher`."""
    # Every start asks; taking the path apart takes ten times as long.
    last = command.rstrip("/\\").rpartition("/")[2].rpartition("\\")[2].lower()
    if last.removesuffix(".exe").removesuffix(".cmd") not in names or "PATH" in own:
        return False
    path = Path(command)
    return path.name == command or str(path.parent) in env.get("PATH", "").split(os.pathsep)


def network_environment(env: Mapping[str, str], *, launches: bool) -> dict[str, str]:
    """Return the variables with which a child reaches the network, and finds certificates and a folder.

    The password in the address of a proxy or of an index goes to launchers only: without it they cannot
    download the server. Every other program gets the address without it.

    Args:
        env: Our environment.
        launches: Whether the child is a package launcher.
    """
    if launches:
        names = (*PROXY_VARIABLES, *PLACE_VARIABLES, *LAUNCHER_VARIABLES)
        return {name: env[name] for name in names if name in env}
    found = {name: without_password(env[name]) for name in PROXY_VARIABLES if name in env}
    return found | {name: env[name] for name in PLACE_VARIABLES if name in env}


_copied: tuple[object, dict[str, str]] = (None, {})


def copy_of(env: Mapping[str, str]) -> Mapping[str, str]:
    """Return an environment as a plain dict, not to be changed.

    `os.environ` decodes a value each time it is read, and each start reads all of them several times. So it
    is copied once, and again after a change.
    """
    global _copied  # noqa: PLW0603 -- the environment of this process
    if env is not os.environ:
        return env
    raw: object = getattr(os.environ, "_data", None)
    if not isinstance(raw, dict):
        return dict(env)
    if _copied[0] != raw:
        _copied = (dict(cast("dict[object, object]", raw)), dict(env))
    return _copied[1]


def without_password(url: str) -> str:
    """Return the address of a proxy without user name and password."""
    scheme, separator, rest = url.rpartition("://")
    # A password may contain any character but the `@` that ends it; the last one counts, as in browsers.
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def safe_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that every child inherits; exported shell functions are left out."""
    return {name: env[name] for name in SAFE_VARIABLES if not env.get(name, "()").startswith("()")}


def child_environment(stdio: Stdio, env: Mapping[str, str]) -> dict[str, str]:
    """Return what a child gets besides the safe variables: network, inherited names, env files, its `env`.

    Raises:
        ConfigError: An env file cannot be read.
    """
    own: dict[str, str | None] = {}
    for name in stdio.env_file:
        try:
            own |= _env_file(name)
        except ConfigError as exc:
            msg = f"cannot read an env file: {exc.location or name}: {exc.message}"
            raise ConfigError(msg, hint=exc.hint or "check `env_file`") from exc
    own |= stdio.env
    given = network_environment(env, launches=is_launcher(stdio.command, env, own))
    match stdio.inherit_env:
        case "safe":
            pass
        case "all":
            given |= env
        case names:
            given |= {name: env[name] for name in names if name in env}
    for name, value in own.items():
        if value is None:
            given.pop(name, None)
        else:
            given[name] = value
    return given


def removed_variables(stdio: Stdio) -> list[str]:
    """Return the variables that the entry removes, even safe ones."""
    return [name for name, value in stdio.env.items() if value is None]


def whole_environment(stdio: Stdio, env: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of a child: safe variables, what its entry adds, without what it removes.

    Raises:
        ConfigError: An env file cannot be read.
    """
    given = safe_environment(env) | child_environment(stdio, env)
    for removed in removed_variables(stdio):
        given.pop(removed, None)
    return given


def env_file_values(transport: Transport) -> list[dict[str, str]]:
    """Return the values in a server's env files; an unreadable file is reported when the server starts."""
    found: list[dict[str, str]] = []
    for name in transport.env_file if isinstance(transport, Stdio) else ():
        with suppress(ConfigError, OSError):
            found.append(_env_file(name))
    return found


def _env_file(name: str) -> dict[str, str]:
    # Imported here: most servers have no env file, and the parsers take 5 ms to import.
    from dragoman.config.files import read_env_file

    return read_env_file(Path(name))


def sandbox_state(spec: ServerSpec) -> str:
    """Return what a person should know of a server's sandbox; empty for one with a URL."""
    if not isinstance(spec.transport, Stdio):
        return ""
    stdio = with_sandbox(spec.transport, is_foreign=spec.origin.scope == "project")
    if stdio.sandbox in (None, "off"):
        return "off"
    # Imported where it is needed: it takes 5 ms.
    from dragoman.server.process.sandbox import state_of

    return state_of(stdio, os.environ)


def with_sandbox(stdio: Stdio, *, is_foreign: bool) -> Stdio:
    """Return an entry with the default of its sandbox filled in, if this system can keep that.

    It is foreign if a project, or a single command, says what to start.
    """
    if stdio.sandbox is not None or DEFAULT == "off":
        return stdio
    from dragoman.server.process import landlock

    if not (landlock.abi() >= landlock.TRUNCATES and landlock.has_filters()):
        return stdio
    return stdio.replace(sandbox="strict" if is_foreign else DEFAULT)


def sandbox_hint(spec: ServerSpec, text: str) -> str:
    """Return what to add to an entry so that its sandbox allows what a text says was refused, if it does."""
    if sandbox_state(spec) in ("", "off") or not text:
        return ""
    from dragoman.server.process.sandbox import denial_hint

    return denial_hint(spec, text)


def kill_group(pid: int) -> None:
    """Kill the rest of a child's process group; the child itself may already have exited."""
    if sys.platform != "win32":
        # macOS reports PermissionError if only zombies are left.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


class StderrSink(Protocol):
    """Gets a child's standard error."""

    def write(self, data: bytes) -> None:
        """Add data."""

    def close(self) -> None:
        """Write what is left, and close."""


class StderrTail:
    """Captures a child's stderr and keeps the last lines; use it in the event loop's thread."""

    def __init__(self, source: int | None = None, log: StderrSink | None = None) -> None:
        """Start to capture.

        Args:
            source: The descriptor to read; it is closed with this. Without it, `add` is called.
            log: Gets everything; it is closed with this.
        """
        self._kept = bytearray()
        self._log = log
        self._source = source
        if source is not None:
            os.set_blocking(source, False)
            get_running_loop().add_reader(source, self._read)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.text()
        self._close_source()
        if self._log is not None:
            self._log.close()

    def add(self, chunk: bytes) -> None:
        """Take what the child has written."""
        if self._log is not None:
            self._log.write(chunk)
        self._kept += chunk
        del self._kept[:-TAIL_BYTES]

    def text(self) -> str:
        """Return the last lines."""
        if self._source is not None:
            self._read()
        return self._kept.decode("utf-8", "replace").strip()

    def _read(self) -> None:
        if self._source is None:
            return
        with suppress(BlockingIOError):
            # A limited amount at a time: a flood must not block the event loop.
            for _ in range(4):
                if not (chunk := os.read(self._source, TAIL_BYTES)):
                    self._close_source()
                    return
                self.add(chunk)

    def _close_source(self) -> None:
        if self._source is not None:
            get_running_loop().remove_reader(self._source)
            os.close(self._source)
            self._source = None
