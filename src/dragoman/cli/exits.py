"""With which number the program ends: one for each kind of failure, the same for every command.

Where several servers failed in different ways the number is 1: the output says which failed how.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.model import ServerStatus


class Exit(IntEnum):
    """The numbers; a test compares the documentation with the words below them."""

    DONE = 0
    """Done."""
    FAILED = 1
    """It failed for another reason, or several servers failed in different ways."""
    USAGE = 2
    """Wrong usage: an unknown option, or arguments that do not fit the tool; nothing was sent."""
    CONFIG = 3
    """The configuration has problems: a file, an entry, a variable without a value, a server that is off."""
    UNREACHABLE = 4
    """A server cannot be started, reached or understood, or the connection to it was lost."""
    LOGIN = 5
    """A server wants a login: `dragoman login NAME`, or a token in its headers."""
    TIMEOUT = 6
    """It took too long: `--timeout`, or the server's own `timeouts`."""
    TOOL = 7
    """The tool ran and failed, or its server refused the request or answered with nonsense."""
    DENIED = 8
    """Not allowed: a rule or a person refused it, or the project's server is not approved."""
    UNKNOWN = 9
    """Nothing has that name: no such server, tool, prompt or resource."""
    HUNG_UP = 129
    """The terminal was closed."""
    INTERRUPTED = 130
    """Interrupted by Ctrl-C."""
    TERMINATED = 143
    """Told to end, by SIGTERM."""


class EndedError(BaseException):
    """A signal ended the work. It is not an `Exception`, so that nothing takes it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def code_of(error: BaseException) -> Exit:
    """Return the number for an error; one that only wraps another counts as that one."""
    from dragoman import errors

    match error:
        case errors.InvalidArgumentsError():
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
    """Return the number for a server that was to be ready."""
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


def together(codes: Iterable[Exit]) -> Exit:
    """Return one number for many outcomes."""
    bad = {code for code in codes if code is not Exit.DONE}
    return Exit.DONE if not bad else bad.pop() if len(bad) == 1 else Exit.FAILED


def meanings() -> dict[str, str]:
    """Return the words below each number, by its name, from the source where they are written once."""
    import ast
    import inspect

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
