"""Secrets that neither a file nor the environment has: what a keyring keeps, what a command prints.

Asked once a connection, after the server was admitted, and never in the loop's way. A command gets no shell,
no input and no terminal, and it runs in the project's directory with all our variables, as the programs that
keep secrets need them. What it says beside the value is not read, since a secret may be among it. Each source
has the time that the server has to connect; errors name the field and show no value.
"""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import threading
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from dragoman.config.expand import expand_home, reference_error, secret_references
from dragoman.server.process import kill_group
from dragoman.trust.redact import mask_args
from dragoman.trust.sanitize import for_log

if TYPE_CHECKING:
    from dragoman.config.expand import Surroundings
    from dragoman.model import ServerSpec

MAX_BYTES = 64 * 1024
"""Of one value; a certificate with its chain has a few thousand."""
SHOWN_CHARS = 200
"""Of a command, in an error."""


class _NoValueError(Exception):
    """A source gave nothing that can be used."""

    def __init__(self, why: str, hint: str) -> None:
        super().__init__(why)
        self.hint = hint


async def fetch(spec: ServerSpec, surroundings: Surroundings) -> Surroundings:
    """Ask every keyring entry and every command that a spec refers to, each once, side by side.

    Returns:
        The surroundings with what they gave; those that were given if there is nothing to ask for.

    Raises:
        MissingVariableError: One gave no value; it names the field, the file and the line.
    """
    wanted = secret_references(spec)
    if not wanted:
        return surroundings
    async with asyncio.TaskGroup() as group:
        jobs = {body: group.create_task(_value(spec, body, surroundings)) for body in wanted}
    found: dict[str, str] = {}
    for body, key in wanted.items():
        value = jobs[body].result()
        if isinstance(value, _NoValueError):
            kind, _, rest = body.partition(":")
            shown = for_log(_shown_command(rest) if kind == "command" else rest, SHOWN_CHARS)
            raise reference_error(
                spec,
                key,
                variable=f"{kind}:{shown}",
                what=f"the command `{shown}`" if kind == "command" else f"the keyring entry `{shown}`",
                why=str(value),
                hint=value.hint,
            )
        found[body] = value
    return replace(surroundings, fetched=found)


async def _value(spec: ServerSpec, body: str, surroundings: Surroundings) -> str | _NoValueError:
    kind, _, rest = body.partition(":")
    try:
        async with asyncio.timeout(spec.connect_timeout):
            if kind == "command":
                return await _from_command(rest, surroundings)
            return await _from_keyring(rest)
    except TimeoutError:
        why = f"gave nothing within {spec.connect_timeout:g} s"
        return _NoValueError(why, "it may wait for a person; raise `timeouts.connect` if it needs longer")
    except _NoValueError as exc:
        return exc


# Commands


async def _from_command(words: str, surroundings: Surroundings) -> str:
    try:
        argv = shlex.split(words)
    except ValueError:
        msg = "cannot be split into words"
        raise _NoValueError(msg, "close its quotes") from None
    if not argv or "\0" in words:
        msg = "names no program"
        raise _NoValueError(msg, "write `${command:program argument …}`")
    argv[0] = expand_home(argv[0], surroundings.home)
    code, printed = await _run(argv, surroundings)
    if code:
        msg = f"failed ({f'exit code {code}' if code > 0 else f'signal {-code}'})"
        raise _NoValueError(msg, "run it in a terminal to see why; what it says is not shown here")
    if len(printed) > MAX_BYTES:
        msg = f"printed more than {MAX_BYTES:,} bytes"
        raise _NoValueError(msg, "let it print the value alone")
    return _checked(printed)


def _checked(printed: bytes) -> str:
    try:
        value = printed.decode("utf-8")
    except UnicodeDecodeError:
        value = "\0"
    value = value.removesuffix("\n").removesuffix("\r")
    if not value or "\0" in value:
        msg = "printed nothing" if not value else "printed what is no text"
        raise _NoValueError(msg, "let it print the value to its standard output")
    return value


class _Printing(asyncio.SubprocessProtocol):
    """What a command prints, until it is gone and its output with it."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.printed = bytearray()
        self.enough: asyncio.Future[None] = loop.create_future()
        """Done when there is nothing more to wait for."""
        self.gone: asyncio.Future[None] = loop.create_future()

    def pipe_data_received(self, fd: int, data: bytes) -> None:  # noqa: ARG002 -- there is one pipe
        """Keep what came, within the limit."""
        self.printed += data[: MAX_BYTES + 1 - len(self.printed)]
        if len(self.printed) > MAX_BYTES:
            _set(self.enough)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- as the protocol has it
        """Note that the process has ended and its pipe is closed."""
        _set(self.enough)
        _set(self.gone)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _run(argv: list[str], surroundings: Surroundings) -> tuple[int, bytes]:
    """Run a command; return its exit code and the beginning of what it printed, one byte beyond the limit."""
    try:
        transport, printing = await asyncio.get_running_loop().subprocess_exec(
            _Printing,
            *argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(surroundings.env),
            cwd=surroundings.root or None,
            start_new_session=True,
        )
    except (OSError, ValueError) as exc:
        why = exc.strerror if isinstance(exc, OSError) and exc.strerror else "it cannot be run"
        msg = f"could not be started ({why})"
        raise _NoValueError(msg, "check that the program is there and on the PATH") from None
    try:
        # A future is waited for apart: whoever gives up must not cancel what the loop is about to set.
        await asyncio.wait({printing.enough})
        return transport.get_returncode() or 0, bytes(printing.printed)
    finally:
        if not printing.gone.done():
            kill_group(transport.get_pid())
        transport.close()
        await asyncio.wait({printing.gone})


def _shown_command(words: str) -> str:
    return " ".join(mask_args(words.split(" ")))


# Keyring


async def _from_keyring(entry: str) -> str:
    service, slash, name = entry.rpartition("/")
    if not (slash and service and name):
        msg = "names no entry"
        raise _NoValueError(msg, "write `${keyring:service/name}`")
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str | _NoValueError] = loop.create_future()

    def ask() -> None:
        given = _ask_keyring(service, name)
        # The loop may be over before a person has answered.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: None if answer.done() else answer.set_result(given))

    # A keyring may wait for a person: a thread of the usual pool would hold up the end of the process.
    threading.Thread(target=ask, name="dragoman-keyring", daemon=True).start()
    given = await answer
    if isinstance(given, _NoValueError):
        raise given
    return given


def _ask_keyring(service: str, name: str) -> str | _NoValueError:
    try:
        import keyring
    except ImportError:
        return _NoValueError("cannot be read without the keyring library", "`pip install dragoman[keyring]`")
    try:
        found = keyring.get_password(service, name)
    except Exception as exc:  # noqa: BLE001 -- every backend has errors of its own
        return _NoValueError(f"could not be read ({type(exc).__name__})", "unlock the keyring, and try again")
    if not found:
        return _NoValueError(
            "is not there", f"add it: `keyring set {shlex.quote(service)} {shlex.quote(name)}`"
        )
    return found
