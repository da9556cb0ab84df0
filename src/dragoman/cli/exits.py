"""Exit codes, checks of the configuration, and running a command on an event loop.

Each kind of failure has one exit code, the same for all commands. If several servers fail in different ways,
the code is 1 and the output shows each failure.
"""

from __future__ import annotations

import ast
import inspect
import os
import sys
from contextlib import suppress
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dragoman.cli import interrupts

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Coroutine, Iterable

    from dragoman.model import ServerStatus, Settings


class Exit(IntEnum):
    """The exit codes; `dragoman help exit-codes` prints the text below each."""

    DONE = 0
    """Success."""
    FAILED = 1
    """Another error, or several servers failed in different ways."""
    USAGE = 2
    """Wrong usage: an unknown option, or invalid arguments for a tool; nothing was sent."""
    CONFIG = 3
    """Configuration error: an invalid file or entry, an unset variable, a disabled server."""
    UNREACHABLE = 4
    """A server could not be started or reached, or the connection was lost."""
    LOGIN = 5
    """A server requires login: run `dragoman login NAME`, or with `--with-token` if it offers no OAuth."""
    TIMEOUT = 6
    """Timeout: `--timeout`, or the `timeouts` of the server."""
    TOOL = 7
    """The tool failed, or its server rejected the request or sent an invalid answer."""
    DENIED = 8
    """Denied: by a rule or by the user, or the project's server is not approved."""
    UNKNOWN = 9
    """Unknown server, tool, prompt or resource."""
    HUNG_UP = 129
    """The terminal was closed."""
    INTERRUPTED = 130
    """Interrupted by Ctrl-C."""
    TERMINATED = 143
    """Terminated by SIGTERM."""


class EndedError(BaseException):
    """A signal ended the program. Not an `Exception`, so that handlers of errors do not catch it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def code_of(error: BaseException) -> Exit:
    """Return the exit code for an error; a wrapper has the code of the error that it wraps."""
    from dragoman import errors

    match error:
        case errors.InvalidArgumentsError() | errors.BulkError():
            return Exit.USAGE
        case errors.UnknownServerError() | errors.UnknownToolError():
            return Exit.UNKNOWN
        case errors.ConfigError():
            return Exit.CONFIG
        case errors.AuthRequiredError() | errors.HttpStatusError(status=401):
            return Exit.LOGIN
        case errors.ConnectError(stage="approval") | errors.CallDeniedError():
            return Exit.DENIED
        case TimeoutError():
            return Exit.TIMEOUT
        case errors.ToolUnavailableError() | errors.ServerNotReadyError() if error.__cause__ is not None:
            return code_of(error.__cause__)
        case errors.ServerError() if isinstance(error.__cause__, TimeoutError):
            return Exit.TIMEOUT
        case errors.ServerError() if type(error) is not errors.ServerError:
            return Exit.UNREACHABLE
        case errors.ToolUnavailableError():
            return Exit.UNREACHABLE
        case errors.ToolExecutionError():
            return Exit.TOOL
        case _:
            return Exit.FAILED


def code_of_status(status: ServerStatus) -> Exit:
    """Return the exit code for a server that should be ready."""
    code = status.error_code or ""
    match status.state.value:
        case "ready":
            return Exit.DONE
        case "needs_auth":
            return Exit.LOGIN
        case "connecting":
            return Exit.TIMEOUT
        case _ if code.startswith("config"):
            return Exit.CONFIG
        case _:
            return Exit.UNREACHABLE


def overall_exit(codes: Iterable[Exit]) -> Exit:
    """Combine several exit codes into one."""
    bad = {code for code in codes if code is not Exit.DONE}
    return Exit.DONE if not bad else bad.pop() if len(bad) == 1 else Exit.FAILED


def meanings() -> dict[str, str]:
    """Return the docstring below each exit code, by name, read from the source."""
    body = ast.parse(inspect.getsource(Exit)).body[0]
    assert isinstance(body, ast.ClassDef)  # noqa: S101 -- it is the class above
    found: dict[str, str] = {}
    name = ""
    for node in body.body:
        if isinstance(node, ast.Assign):
            name = ast.unparse(node.targets[0])
        elif name and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found[name] = str(node.value.value)
    return found


CHECK = "run `dragoman config check`"


def require_settings(settings: Settings) -> None:
    """Raise an error if the files have problems and no server is left.

    Raises:
        ConfigError: The first problem, and the number of problems.
    """
    if settings.servers or not settings.problems:
        return
    from dragoman.errors import ConfigError

    first, *others = settings.problems
    if not others or not isinstance(first, ConfigError):
        raise first
    hint = f"{problem_count(settings)}: {CHECK}"
    raise ConfigError(first.message, source=first.source, pointer=first.pointer, line=first.line, hint=hint)


def report_problems(settings: Settings, *, but_for: int = 0) -> None:
    """Print a warning if the configuration files have problems, or keys that were probably misspelt.

    Args:
        settings: The configuration.
        but_for: How many of its problems were shown already.
    """
    from dragoman.cli import output

    if len(settings.problems) > but_for:
        output.warn(f"{problem_count(settings)}: {CHECK}")
    for warning in settings.warnings:
        output.warn(f"warning: {warning}")


def problem_count(settings: Settings) -> str:
    """Return the number of problems as text."""
    count = len(settings.problems)
    return f"{count} configuration problem{'s' * (count > 1)}"


T = TypeVar("T")

_LONGEST_ANSWER = 4096


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine like `asyncio.run`; a signal cancels it, so that servers are stopped.

    Raises:
        EndedError: A signal ended the program.
        KeyboardInterrupt: Ctrl-C did; more of them have no effect.
    """
    from dragoman.cli.remote import current_command

    if (command := current_command.get()) is not None:
        return command.wait(work)
    import asyncio  # takes longer than everything else that a light command needs
    import signal

    from dragoman.server.process.signals import on_signal

    received: list[int] = []
    running: list[Callable[[], object]] = []
    is_interrupted: list[bool] = []

    async def watched() -> T:
        task = asyncio.current_task()

        def end(number: int) -> None:
            received.append(number)
            if task is not None and len(received) == 1:
                task.cancel()

        for number in _numbers():
            on_signal(number, partial(end, number))
        loop = asyncio.get_running_loop()
        running.append(lambda: loop.call_soon_threadsafe(end, signal.SIGINT))
        if is_interrupted:
            end(signal.SIGINT)
        try:
            return await work
        finally:
            # The loop closes its pipe before it lets go of signals: one in between would print an error.
            with suppress(ValueError):  # not the main thread
                signal.set_wakeup_fd(-1)

    def interrupt() -> None:
        interrupts.begin_end()
        is_interrupted.append(True)
        for end in running:
            with suppress(RuntimeError):  # the loop has ended
                end()

    try:
        with interrupts.calling(interrupt):
            result = asyncio.run(watched())
    except BaseException:
        if received:
            raise _ending(received[0]) from None
        raise
    if received:
        raise _ending(received[0])
    return result


def _ending(number: int) -> BaseException:
    import signal

    return KeyboardInterrupt() if number == signal.SIGINT else EndedError(number)


async def confirm(question: str) -> bool:
    """Ask at the terminal without blocking the event loop; the default is no."""
    from dragoman.cli.remote import current_command

    if (command := current_command.get()) is not None:
        while True:
            answer = (await command.ask(f"{question} [y/N]: ")).strip().lower()
            if answer in ("y", "yes"):
                return True
            if answer in ("", "n", "no"):
                return False
            click.echo("Please answer y or n.", err=True)
    while True:
        click.echo(f"{question} [y/N]: ", nl=False, err=True)
        try:
            line = await _read_line(sys.stdin.fileno())
        except OSError:  # the terminal is closed
            return False
        answer = line.decode("utf-8", "replace").strip().lower()
        if answer in ("y", "yes"):
            return True
        if not line.strip() or answer in ("n", "no"):
            return False
        click.echo("Please answer y or n.", err=True)


async def _read_line(descriptor: int) -> bytes:
    """Read one answer from a terminal."""
    import asyncio
    import threading

    loop = asyncio.get_running_loop()
    answered: asyncio.Future[bytes] = loop.create_future()

    def read() -> None:
        try:
            outcome: bytes | OSError = os.read(descriptor, _LONGEST_ANSWER)
        except OSError as exc:
            outcome = exc
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(take, outcome)

    def take(outcome: bytes | OSError) -> None:
        if answered.done():
            return
        if isinstance(outcome, OSError):
            answered.set_exception(outcome)
        else:
            answered.set_result(outcome)

    try:
        loop.add_reader(descriptor, lambda: answered.done() or answered.set_result(b""))
    except NotImplementedError:
        # Loops of Windows watch no terminal. A thread that waits for one cannot be ended: it is a daemon.
        threading.Thread(target=read, daemon=True).start()
        return await answered
    try:
        await answered
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, _LONGEST_ANSWER)


def _numbers() -> list[signal.Signals]:
    """Return the signals that end the program; ignored ones (`nohup`) stay ignored."""
    import signal

    known = [getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")]
    return [number for number in known if number and signal.getsignal(number) is not signal.SIG_IGN]
