"""The exit codes: one for each kind of failure."""

from __future__ import annotations

import pytest

from dragoman import errors
from dragoman.cli.exits import Exit, code_of, code_of_status, meanings, overall_exit
from dragoman.model import ServerState, ServerStatus


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


def not_ready() -> Exception:
    return errors.ServerNotReadyError("x", server="s", state="failed")


CONNECT = errors.ConnectError("x", server="s", stage="handshake")
AUTH = errors.AuthRequiredError("x", server="s")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidArgumentsError("x"), Exit.USAGE),
        (errors.UnknownServerError("x", server="s"), Exit.UNKNOWN),
        (errors.UnknownToolError("x"), Exit.UNKNOWN),
        (errors.MissingVariableError("x", variable="V"), Exit.CONFIG),
        (CONNECT, Exit.UNREACHABLE),
        (errors.ConnectError("x", server="s", stage="approval"), Exit.DENIED),
        (AUTH, Exit.LOGIN),
        (errors.HttpStatusError("x", server="s", status=401), Exit.LOGIN),
        (errors.HttpStatusError("x", server="s", status=500), Exit.UNREACHABLE),
        (errors.ConnectionLostError("x", server="s", may_have_run=True), Exit.UNREACHABLE),
        (not_ready(), Exit.UNREACHABLE),
        (caused(errors.ToolUnavailableError("x"), caused(not_ready(), AUTH)), Exit.LOGIN),
        (errors.ToolUnavailableError("x"), Exit.UNREACHABLE),
        (errors.CallTimeoutError("x", seconds=1), Exit.TIMEOUT),
        (caused(errors.ServerError("x", server="s"), TimeoutError()), Exit.TIMEOUT),
        (TimeoutError(), Exit.TIMEOUT),
        (errors.ServerError("it exists", server="s"), Exit.FAILED),
        (errors.ToolFailedError("x"), Exit.TOOL),
        (errors.ProtocolError("x"), Exit.TOOL),
        (errors.InvalidResultError("x"), Exit.TOOL),
        (errors.CallDeniedError("x"), Exit.DENIED),
        (errors.DragomanError("x"), Exit.FAILED),
        (RuntimeError("x"), Exit.FAILED),
    ],
)
def test_an_error_has_the_code_of_its_kind(error: Exception, code: Exit) -> None:
    assert code_of(error) is code


@pytest.mark.parametrize(
    ("state", "error_code", "code"),
    [
        (ServerState.READY, None, Exit.DONE),
        (ServerState.DEGRADED, "server.connect", Exit.UNREACHABLE),
        (ServerState.NEEDS_AUTH, "server.auth_required", Exit.LOGIN),
        (ServerState.CONNECTING, None, Exit.TIMEOUT),
        (ServerState.FAILED, "config.missing_variable", Exit.CONFIG),
        (ServerState.FAILED, "server.connect", Exit.UNREACHABLE),
        (ServerState.BACKOFF, "server.connect", Exit.UNREACHABLE),
    ],
)
def test_a_server_that_is_not_ready_has_the_code_of_its_state(
    state: ServerState, error_code: str | None, code: Exit
) -> None:
    status = ServerStatus(name="s", state=state, transport="stdio", error_code=error_code)
    assert code_of_status(status) is code


def test_failures_of_one_kind_have_its_code_and_mixed_ones_1() -> None:
    assert overall_exit([]) is Exit.DONE
    assert overall_exit([Exit.DONE, Exit.LOGIN, Exit.LOGIN]) is Exit.LOGIN
    assert overall_exit([Exit.LOGIN, Exit.UNREACHABLE]) is Exit.FAILED


def test_every_code_is_explained() -> None:
    assert list(meanings()) == [code.name for code in Exit]
    assert all(words.endswith(".") for words in meanings().values())
