"""The cause and the next step of a failed server; real broken servers are in `behaviour/test_broken_servers.py`."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman import (
    AuthRequiredError,
    ConfigError,
    ConnectError,
    Http,
    ServerSpec,
    Stdio,
    ToolUnavailableError,
)
from dragoman.diagnosis.explain import Explanation, explain, explain_status, state_word
from dragoman.errors import ServerNotReadyError
from dragoman.model import ServerState, ServerStatus

NPX = ServerSpec("files", Stdio("npx", ["-y", "@acme/files@1.2"]))
UVX = ServerSpec("files", Stdio("uvx", ["acme-files"]))
PYTHON = ServerSpec("files", Stdio("python", ["server.py"]))
REMOTE = ServerSpec("files", Http("https://mcp.example/mcp", headers={"Authorization": "Bearer x"}))


def failed(reason: str = "", stderr: str = "", **more: Any) -> ConnectError:
    fields: dict[str, Any] = {"stage": "handshake", "reason": reason, "stderr_tail": stderr, **more}
    return ConnectError(
        "cannot connect to server `files` (stdio, handshake): it broke", server="files", **fields
    )


@pytest.mark.parametrize(
    ("spec", "stderr", "cause"),
    [
        (NPX, "npm error code E404\nnpm error 404", "npm has no package `@acme/files@1.2`"),
        (UVX, "acme-files was not found in the package registry", "PyPI has no package `acme-files`"),
        (
            NPX,
            "npm error network getaddrinfo ENOTFOUND registry",
            "npm cannot be reached to get `@acme/files`",
        ),
        (PYTHON, "ModuleNotFoundError: No module named 'yaml'", "the module `yaml` is not installed"),
        (
            PYTHON,
            "connect ECONNREFUSED 127.0.0.1:5432",
            "a service that it needs refuses connections at `127.0.0.1:5432`",
        ),
        (PYTHON, "Error: ACME_TOKEN is required", "it needs the variable `ACME_TOKEN`"),
        (PYTHON, "OSError: [Errno 98] Address already in use", "its port is in use"),
        (
            PYTHON,
            "Traceback\n  File x\nValueError: no such table\nbye",
            "exited with code 1: ValueError: no such table",
        ),
        (PYTHON, "", "exited with code 1, without a message"),
    ],
)
def test_a_process_that_exited_is_explained_by_what_it_said(
    spec: ServerSpec, stderr: str, cause: str
) -> None:
    found = explain(failed("exit", stderr, exit_code=1), spec)
    assert found == Explanation(cause=cause, next_step="dragoman doctor files")


def test_a_signal_is_not_an_exit_code() -> None:
    assert explain(failed("exit", exit_code=-9), PYTHON).cause == "killed by signal 9, without a message"


def test_a_cause_fits_on_one_line_whatever_a_server_says() -> None:
    found = explain(failed("exit", "ValueError: " + "long\n words " * 500, exit_code=1), PYTHON)
    assert len(found.cause) <= 100
    assert "\n" not in found.cause
    path = "/opt/" + "deep/" * 60 + "server"
    command = explain(failed("program"), ServerSpec("files", Stdio(path))).cause
    assert len(command) <= 100
    assert "server` was not found" in command


def test_a_rejected_token_is_never_answered_with_a_login() -> None:
    rejected = AuthRequiredError("no", server="files", reason="token")
    assert explain(rejected, REMOTE).next_step == "dragoman doctor files"
    assert explain(rejected, REMOTE).cause == "the token was rejected (HTTP 401)"
    required = AuthRequiredError("no", server="files")
    assert explain(required).next_step == "dragoman login files"


def test_the_error_of_a_call_is_explained_by_the_error_of_its_server() -> None:
    waiting = ServerNotReadyError("waiting", server="files", state="backoff")
    waiting.__cause__ = failed("dns", subject="mcp.example")
    error = ToolUnavailableError("not available", server="files")
    error.__cause__ = waiting
    assert explain(error, REMOTE).cause == "DNS: no such host `mcp.example`"


def test_an_error_without_a_reason_keeps_its_own_words() -> None:
    assert explain(failed()).cause == "it broke"
    assert explain(failed(), ServerSpec("a b", Stdio("x"))).next_step == "dragoman doctor 'a b'"
    assert (
        explain(ConfigError("two names", source="/home/me/mcp.json", line=7)).cause
        == "me/mcp.json:7: two names"
    )
    assert explain(ConfigError("two names")).next_step == "dragoman config check"
    assert (
        explain(ConnectError("no", server="files", stage="approval")).next_step
        == "dragoman trust approve files"
    )


def test_a_status_is_explained_in_words_for_people() -> None:
    def status(state: ServerState, error: ConnectError | None = None) -> ServerStatus:
        return ServerStatus(name="files", state=state, transport="stdio", error=error)

    assert explain_status(status(ServerState.READY)) is None
    waiting = explain_status(status(ServerState.CONNECTING))
    assert waiting is not None
    assert "waiting" in waiting.cause
    assert state_word(status(ServerState.CONNECTING)) == "waiting"
    needs = AuthRequiredError("no", server="files")
    assert state_word(status(ServerState.NEEDS_AUTH, needs)) == "needs login"
    for reason in ("token", "saved_token"):
        wrong = AuthRequiredError("no", server="files", reason=reason)
        assert state_word(status(ServerState.NEEDS_AUTH, wrong)) == "wrong token"
    refused = ConnectError("no", server="files", stage="approval")
    assert state_word(status(ServerState.FAILED, refused)) == "not approved"
