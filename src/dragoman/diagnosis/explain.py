"""Explain why a server is not ready, in one line, and name the command that helps.

Every face (`status`, `call`, `doctor`, the session, the dashboard) says what `explain` returns, so that a
server has the same diagnosis everywhere. It reads a typed error, the standard error in it and the spec, and
nothing else: no file, no network, no clock.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from dragoman.config.packages import package_of
from dragoman.diagnosis import signs
from dragoman.errors import (
    AuthRequiredError,
    ConfigError,
    ConnectError,
    DragomanError,
    HttpStatusError,
    InvalidSpecError,
    MissingVariableError,
    ServerNotReadyError,
    ToolUnavailableError,
)
from dragoman.model import Stdio
from dragoman.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.model import ServerSpec, ServerStatus

MAX_CHARS = 100
"""The longest cause: it fits on one line of most terminals."""

_PREFIX = re.compile(
    r"^(?:cannot connect to server `[^`]{0,300}`(?: \([^)]{0,300}\))?: |server `[^`]{0,300}`: "
    r"|required server `[^`]{0,300}` is not ready: )+"
)
_MISSPELT = re.compile(r"; did you mean `([^`]{1,60})` by `([^`]{1,60})`\?$")
_ERROR_LINE = re.compile(
    r"^\W{0,10}(?:\w{1,40}\.){0,6}\w{0,40}(?:Error|Exception|Exit|error|fatal|panic)\b[^\n]{0,20}?: \S",
    re.MULTILINE | re.IGNORECASE,
)
"""A line of standard error that names an error; the one at the end of a traceback, for example."""


class Explanation(Struct, kw_only=True):
    """Why a server is not ready, and what to do next."""

    cause: str
    """What is wrong: one line of at most 100 characters, without a full stop."""
    next_step: str
    """The command to run next, for example `dragoman doctor files`."""

    def __str__(self) -> str:
        stop = "" if self.cause.endswith("?") else "."
        return f"{self.cause}{stop} Run: {self.next_step}"


def explain(error: BaseException, spec: ServerSpec | None = None, *, name: str = "") -> Explanation:
    """Explain why a server is not ready.

    Args:
        error: The error of the server, or of a call to it: `status.error`, `result.exception`.
        spec: The server, if it is known; the cause is more exact with it.
        name: The server's name, if neither the spec nor the error has it.
    """
    found = root_cause(error)
    server = name or (spec.name if spec is not None else "") or str(getattr(found, "server", ""))
    return Explanation(cause=one_line(_cause(found, spec)), next_step=_next_step(found, server))


def explain_status(status: ServerStatus, spec: ServerSpec | None = None) -> Explanation | None:
    """Explain why a server is not ready; `None` if it is ready, or was not started."""
    if status.state.value in ("ready", "idle", "closed"):
        return None
    if status.error is not None and not status.downloading:
        return explain(status.error, spec, name=status.name)
    name = shlex.quote(status.name)
    said = f"downloading `{status.downloading}`" if status.downloading else status.last_error
    cause = one_line(_PREFIX.sub("", said or "waiting for its first answer"))
    if status.state.value == "needs_auth":
        return Explanation(cause=cause, next_step=f"dragoman login {name}")
    return Explanation(cause=cause, next_step=f"dragoman doctor {name}")


def root_cause(error: BaseException) -> BaseException:
    """Return the error of the server inside an error that wraps it: of a call, of a wait, of a start."""
    while error.__cause__ is not None and (
        isinstance(error, ToolUnavailableError | ServerNotReadyError)
        or (isinstance(error, ConnectError) and error.stage == "start" and not error.reason)
    ):
        inner = error.__cause__
        if not isinstance(inner, DragomanError):
            break
        error = inner
    return error


def state_word(status: ServerStatus) -> str:
    """Return a server's state in a word or two for people, for example `needs login`."""
    error = status.error
    if status.downloading:
        return "downloading"
    if isinstance(error, ConnectError) and error.stage == "approval":
        return "not approved"
    if isinstance(error, ConnectError) and status.state.value == "needs_auth":
        return _LOGIN_WORDS.get(error.reason, "needs login")
    return STATE_WORDS[status.state.value]


_LOGIN_WORDS = {"token": "wrong token", "saved_token": "wrong token", "no_oauth": "needs token"}
STATE_WORDS = {
    "idle": "not started",
    "connecting": "waiting",
    "ready": "ready",
    "degraded": "no tools",
    "backoff": "retrying",
    "needs_auth": "needs login",
    "failed": "failed",
    "closed": "stopped",
}
"""The states in words for people; programs get the states themselves."""


def one_line(text: str, limit: int = MAX_CHARS) -> str:
    """Return a text on one line, cut to a number of characters."""
    text = " ".join(text.split()).rstrip(".")
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def _next_step(error: BaseException, server: str) -> str:
    if isinstance(error, ConfigError) and not isinstance(error, MissingVariableError):
        return "dragoman config check"
    if not server:
        return "dragoman doctor"
    name = shlex.quote(server)
    if isinstance(error, AuthRequiredError) and error.reason != "token":
        return f"dragoman login {name}{' --with-token' * (error.reason in ('saved_token', 'no_oauth'))}"
    if isinstance(error, MissingVariableError) and error.variable.startswith("input:"):
        return f"dragoman login {name}"
    if isinstance(error, ConnectError) and error.stage == "approval":
        return f"dragoman trust approve {name}"
    return f"dragoman doctor {name}"


def _cause(error: BaseException, spec: ServerSpec | None) -> str:
    match error:
        case MissingVariableError() if error.variable.startswith("input:"):
            return f"it needs a value for the input `{error.variable.removeprefix('input:')}`"
        case MissingVariableError():
            return f"the variable `{error.variable}` is not set"
        case InvalidSpecError():
            # A misspelt key says more than what is missing because of it.
            guess = _MISSPELT.search(error.problems[0])
            problem = f"unknown key `{guess[2]}`; did you mean `{guess[1]}`?" if guess else error.problems[0]
            return f"{_place(error)}: {problem}"
        case ConfigError():
            return f"{_place(error)}: {error.message}" if error.source else error.message
        case ConnectError(stage="approval"):
            return "not approved: it comes from this project's files"
        case AuthRequiredError():
            return _LOGINS.get(error.reason, "needs login")
        case HttpStatusError():
            return _http(error.status)
        case ConnectError():
            return _connect(error, spec)
        case DragomanError():
            return _PREFIX.sub("", error.message)
        case _:
            return f"{type(error).__name__}: {error}"


def _place(error: ConfigError) -> str:
    """Return the file's name and line with its folder; the whole path would fill the line."""
    name = "/".join(re.split(r"[/\\]", error.source)[-2:]).lstrip("/") or error.pointer
    return f"{name}:{error.line}" if error.line else name


def _connect(error: ConnectError, spec: ServerSpec | None) -> str:
    rule = _RULES.get(error.reason)
    if rule is not None:
        return rule(error, spec)
    text = _PREFIX.sub("", error.message)
    return text.partition("; last stderr lines: ")[0].partition("; before that: ")[0]


def _command(spec: ServerSpec | None) -> str:
    command = spec.transport.command if spec is not None and isinstance(spec.transport, Stdio) else ""
    # The end of a long path says more than its beginning.
    return f"`{command if len(command) <= 60 else '…' + command[-59:]}`" if command else "of the server"


def _timeout(error: ConnectError, spec: ServerSpec | None) -> str:
    after = " after the start" if spec is not None and isinstance(spec.transport, Stdio) else ""
    return f"no answer within {error.subject} s{after}"


def _exit(error: ConnectError, spec: ServerSpec | None) -> str:
    if spec is not None and (known := stderr_cause(error.stderr_tail, spec)):
        return known
    if error.hint.startswith("its sandbox "):
        return error.hint.partition(";")[0]
    code = error.exit_code
    how = f"killed by signal {-code}" if code is not None and code < 0 else f"exited with code {code}"
    said = _last_words(error.stderr_tail)
    return f"{how}: {said}" if said else f"{how}, without a message"


def _last_words(stderr: str) -> str:
    """Return the line of standard error that says most: the last one with an error, or the last one."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    named = [line for line in lines if _ERROR_LINE.match(line)]
    return (named or lines or [""])[-1]


def stderr_cause(stderr: str, spec: ServerSpec) -> str:
    """Return what a server that exited says is wrong, if it is a known sign; else an empty text."""
    transport = spec.transport
    if not isinstance(transport, Stdio) or not stderr:
        return ""
    package = package_of(transport)
    shown = package.name if package is not None else transport.command
    if package is not None and (signs.NPM_MISSING.search(stderr) or signs.PYPI_MISSING.search(stderr)):
        version = f"{package.joint}{package.version}" if package.version else ""
        return f"{'npm' if package.registry == 'npm' else 'PyPI'} has no package `{shown}{version}`"
    if signs.SDK_OLD.search(stderr):
        return f"`{shown}` needs version 1 of the `mcp` package"
    if module := signs.MODULE.search(stderr):
        return f"the module `{module[1]}` is not installed"
    if misfit := signs.MISFIT.search(stderr):
        return f"the installed version of `{misfit[1].partition('.')[0]}` does not fit"
    if signs.UNTRUSTED.search(stderr):
        return "it does not trust the certificate of a service that it needs"
    refused, offline = signs.REFUSED.search(stderr), signs.OFFLINE.search(stderr)
    if (refused or offline) and package is not None and signs.INSTALLER.search(stderr):
        return f"{'npm' if package.registry == 'npm' else 'PyPI'} cannot be reached to get `{shown}`"
    if refused:
        where = f" at `{refused[1]}`" if refused[1] else ""
        return f"a service that it needs refuses connections{where}"
    if offline:
        host = signs.HOST.search(stderr)
        return f"it cannot reach {f'`{host[1]}`' if host else 'a service that it needs'}"
    if signs.OLD_NODE.search(stderr):
        return "it needs a newer Node.js"
    if started := signs.PROGRAM.search(stderr):
        name = started[1] or started[2] or started[3]
        return f"it starts {f'`{name}`' if name else 'a program'}, which was not found"
    if wrong := signs.wrong_path(stderr):
        return wrong
    if signs.BROWSER.search(stderr):
        return "it needs a browser"
    if signs.DAEMON.search(stderr):
        return "Docker is not running"
    if signs.IN_USE.search(stderr):
        return "its port is in use"
    if wanted := signs.wanted_variables(stderr):
        return f"it needs the variable {' and '.join(f'`{name}`' for name in wanted[:2])}"
    return ""


_LOGINS = {
    "token": "the token was rejected (HTTP 401)",
    "saved_token": "the saved token was rejected (HTTP 401)",
    "no_oauth": "needs a token: it offers no login by OAuth",
}
"""The cause for each `reason` of an `AuthRequiredError`."""
_PHRASES = {
    403: "access denied",
    404: "no MCP server at this URL",
    405: "the server does not accept this transport at this URL",
    407: "the proxy requires a password",
    410: "no MCP server at this URL any more",
    429: "too many requests",
    502: "a gateway answers, but not the server",
    503: "the server is not available",
    504: "a gateway answers, but not the server",
}


def _http(status: int) -> str:
    if status in _PHRASES:
        return f"{_PHRASES[status]} (HTTP {status})"
    if 300 <= status < 400:
        return f"the server redirects to another address (HTTP {status})"
    what = "the server failed" if status >= 500 else "the server refused the request"
    return f"{what} (HTTP {status})"


_RULES: dict[str, Callable[[ConnectError, ServerSpec | None], str]] = {
    "program": lambda _, spec: f"the program {_command(spec)} was not found",
    "folder": lambda _error, _spec: "its directory (`cwd`) does not exist",
    "permission": lambda _, spec: f"no permission to run {_command(spec)}",
    "exit": _exit,
    "timeout": _timeout,
    "stdout": lambda _error, _spec: "the server prints text that is not MCP on stdout",
    "dns": lambda error, _: f"DNS: no such host `{error.subject}`",
    "refused": lambda error, _: f"nothing listens at `{error.subject}` (connection refused)",
    "unreachable": lambda error, _: f"`{error.subject}` cannot be reached",
    "tls": lambda error, _: f"TLS: the certificate is not trusted ({error.subject})",
    "plain": lambda error, _: f"TLS: `{error.subject}` does not speak TLS",
    "proxy": lambda _error, _spec: "the proxy does not connect to the server",
    "http": lambda error, _: _http(int(error.subject)),
    "page": lambda _error, _spec: "a web page answers at this URL, not an MCP server",
    "version": lambda error, _: f"the server speaks MCP version {error.subject}, which is not supported",
    "size": lambda error, _: (
        f"{'the tool list' if error.stage == 'listing' else 'an answer'} is larger than `max_message_bytes`"
    ),
}
"""The cause for each `reason` of a `ConnectError`."""
