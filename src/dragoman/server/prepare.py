"""Prepare a connection: check the approval, resolve variables and paths, register secrets.

No variable of a spec is expanded before the gate approves the server, and every expanded value is registered
as a secret before other code gets it. `server/connection.py`, which imports the SDK, is imported here, late.
"""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import threading
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.config.packages import may_download, not_installed
from dragoman.config.templates import (
    expand_auth,
    expand_home,
    expand_transport,
    reference_error,
    secret_references,
)
from dragoman.model import Stdio
from dragoman.server.late_import import is_loaded, late_import_module
from dragoman.server.process.environment import copy_of, env_file_values, kill_group, with_sandbox
from dragoman.trust.masking import mask_args
from dragoman.trust.redaction import current_redactor
from dragoman.trust.sanitizing import for_log

if TYPE_CHECKING:
    from dragoman.config.templates import ExpansionContext
    from dragoman.model import Auth, ServerSpec, Transport
    from dragoman.trust.gate import Gate


MAX_BYTES = 64 * 1024
"""The limit for one value; a certificate chain has a few thousand bytes."""
DOWNLOAD_TIMEOUT = 120.0
"""Seconds for the first start of a command that may download its server, unless `timeouts.connect` is set."""
SHOWN_CHARS = 200
"""How much of a command an error shows."""


class _NoValueError(Exception):
    """A source has no usable value."""

    def __init__(self, why: str, hint: str) -> None:
        super().__init__(why)
        self.hint = hint


async def download_of(transport: Transport, expansion: ExpansionContext) -> str:
    """Return the package that the start of a server downloads; empty if it downloads none."""
    if not isinstance(transport, Stdio) or not may_download(transport):
        return ""
    return await asyncio.to_thread(
        not_installed, transport, root=str(expansion.root), env=copy_of(expansion.env)
    )


def with_time_to_download(spec: ServerSpec, transport: Transport) -> ServerSpec:
    """Return a spec whose first start may take as long as a download, unless it says how long."""
    if not isinstance(transport, Stdio) or not may_download(transport):
        return spec
    return spec.replace(timeouts={"connect": DOWNLOAD_TIMEOUT, **spec.timeouts})


async def fetch(spec: ServerSpec, expansion: ExpansionContext) -> ExpansionContext:
    """Read every keyring entry and run every command that a spec refers to, once each, concurrently.

    Returns:
        The expansion with their values; the same expansion if the spec has no such reference.

    Raises:
        MissingVariableError: A source has no value; the error names the field, the file and the line.
    """
    wanted = secret_references(spec)
    if not wanted:
        return expansion
    async with asyncio.TaskGroup() as group:
        jobs = {body: group.create_task(_value(spec, body, expansion)) for body in wanted}
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
    return expansion.replace(fetched=found)


async def _value(spec: ServerSpec, body: str, expansion: ExpansionContext) -> str | _NoValueError:
    kind, _, rest = body.partition(":")
    try:
        async with asyncio.timeout(spec.connect_timeout):
            if kind == "command":
                return await _from_command(rest, expansion)
            return await _from_keyring(rest)
    except TimeoutError:
        why = f"gave nothing within {spec.connect_timeout:g} s"
        return _NoValueError(why, "it may wait for the user; raise `timeouts.connect` if it needs longer")
    except _NoValueError as exc:
        return exc


# Commands


async def _from_command(words: str, expansion: ExpansionContext) -> str:
    try:
        argv = shlex.split(words)
    except ValueError:
        msg = "cannot be split into words"
        raise _NoValueError(msg, "close its quotes") from None
    if not argv or "\0" in words:
        msg = "names no program"
        raise _NoValueError(msg, "write `${command:program argument …}`")
    argv[0] = expand_home(argv[0], expansion.home)
    code, printed = await _run(argv, expansion)
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
        msg = "printed nothing" if not value else "printed something that is not text"
        raise _NoValueError(msg, "let it print the value to its standard output")
    return value


class _Printing(asyncio.SubprocessProtocol):
    """Collects the output of a command until the process has ended and its pipe is closed."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.printed = bytearray()
        self.enough: asyncio.Future[None] = loop.create_future()
        """Done when the output is complete or too long."""
        self.gone: asyncio.Future[None] = loop.create_future()

    def pipe_data_received(self, fd: int, data: bytes) -> None:  # noqa: ARG002 -- there is one pipe
        """Keep the output, up to the limit."""
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


async def _run(argv: list[str], expansion: ExpansionContext) -> tuple[int, bytes]:
    """Run a command; return its exit code and its output, cut one byte beyond the limit."""
    try:
        transport, printing = await asyncio.get_running_loop().subprocess_exec(
            _Printing,
            *argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(expansion.env),
            cwd=expansion.root or None,
            start_new_session=True,
        )
    except (OSError, ValueError) as exc:
        why = exc.strerror if isinstance(exc, OSError) and exc.strerror else "it cannot be run"
        msg = f"could not be started ({why})"
        raise _NoValueError(msg, "check that the program is there and on the PATH") from None
    try:
        # `asyncio.wait` does not cancel the future when this task is cancelled; the loop still sets it.
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
        # The loop may be closed before the user has unlocked the keyring.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: None if answer.done() else answer.set_result(given))

    # A keyring may wait for the user. A thread of the default pool would delay the exit of the process.
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


CONNECTION = "dragoman.server.connection"
VALIDATOR = "jsonschema_rs"


async def prepare(spec: ServerSpec, expansion: ExpansionContext, gate: Gate) -> tuple[Transport, Auth | None]:
    """Return the transport and the login settings of a server, with every variable expanded.

    Raises:
        ConnectError: The server comes from a project's file and is not approved in its current form.
        MissingVariableError: A variable, a keyring entry or a command has no value.
    """
    # Reading the approvals may block, so it runs in a thread; most servers do not need one.
    program = await asyncio.to_thread(gate.admit, spec) if gate.needs_approval(spec) else ""
    expansion = await fetch(spec, expansion)
    # A value from a keyring or a command is a secret in any field.
    gate.redactor.add((expansion.fetched or {}).values())
    current_redactor.set(gate.redactor)
    transport = resolve_paths(expand_transport(spec, expansion), expansion.root)
    auth = expand_auth(spec, expansion)
    if program and isinstance(transport, Stdio):
        # Start the file that was approved: a second search of the PATH could find another one.
        transport = transport.replace(command=program)
    if isinstance(transport, Stdio):
        transport = with_sandbox(transport, is_foreign=spec.origin.scope == "project")
    has_files = isinstance(transport, Stdio) and bool(transport.env_file)
    env_files = await asyncio.to_thread(env_file_values, transport) if has_files else []
    gate.register_secrets(transport, expansion.env, auth, env_files=env_files)
    return transport, auth


def is_imported() -> bool:
    """Return whether `server/connection.py`, and with it the SDK, is imported."""
    return is_loaded(CONNECTION)


async def connection_module() -> Any:
    """Import `server/connection.py` in a thread, because the SDK takes a second to import.

    The first listing needs the validator, so it is imported there too.
    """
    module = await late_import_module(CONNECTION)
    if not is_loaded(VALIDATOR):
        await late_import_module(VALIDATOR)
    return module


def resolve_paths(transport: Transport, root: str) -> Transport:
    """Resolve the relative paths of a stdio server against the project's directory."""
    if not isinstance(transport, Stdio) or not root:
        return transport
    return transport.replace(
        cwd=_resolved(root, transport.cwd or ""),
        env_file=[_resolved(root, name) for name in transport.env_file],
    )


@lru_cache(maxsize=128)
def _resolved(root: str, path: str) -> str:
    return str(Path(root, path))
