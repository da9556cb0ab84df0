"""Every exception dragoman raises, and nothing else.

DragomanError                     code (stable string), hint
├── ConfigError                   source, pointer, line
│   ├── ConfigSyntaxError         the file does not parse
│   ├── InvalidSpecError          an entry is wrong: all its problems at once
│   └── MissingVariableError      a `${…}` has no value: its variable and its field
├── ServerError                   server
│   ├── UnknownServerError        suggestions
│   ├── ServerNotReadyError       state, retry_in
│   ├── ConnectError              stage, exit_code, stderr_tail
│   │   └── AuthRequiredError     url
│   ├── HttpStatusError           status, retry_after, challenge
│   └── ConnectionLostError       may_have_run
│       └── SessionGoneError      refused unrun: the server forgot our session
├── ToolExecutionError            server, tool, call_id: the one that callers of a tool catch
│   ├── UnknownToolError          suggestions
│   ├── ToolUnavailableError      its server is down, lost or needs a login; may_have_run
│   ├── InvalidArgumentsError     problems, worded for a model
│   ├── CallDeniedError           rule
│   ├── CallTimeoutError          seconds (also a TimeoutError)
│   ├── ProtocolError             rpc_code, data
│   ├── InvalidResultError        breaks the declared output schema: problems, and the result itself
│   └── ToolFailedError           the server said isError
└── AgentError
    ├── ModelError                the model's API failed
    └── BudgetExceededError       a limit of the loop was reached

Messages say what, which, and what to do. Cancellation is never wrapped. Whatever text of a server or a file
a message has in it, an error is safe to print: what would steer a terminal or turn text around shows as `�`,
and a long message keeps its beginning and its end. Names (`server`, `tool`, `suggestions`) and `data` stay as
they are: they are for programs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence


_UNRUN = frozenset({401, 403, 404, 405, 406, 407, 411, 413, 414, 415, 421, 425, 426, 429, 431, 503})
"""HTTP statuses with which a server says that it did not begin with the request."""


MAX_CHARS = 32_000
"""Of one message; the middle of a longer one is left out."""
_STEERING = re.compile(
    # Controls, bidi marks, line and paragraph separators, what has no width, and halves of characters
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    # Tag characters hide text, except behind the black flag, which three countries have
    r"\ud800-\udfff]|(?<![\U0001f3f4\U000e0020-\U000e007f])[\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    """Return a text that is safe to print: bounded, and nothing in it steers a terminal."""
    if len(text) > MAX_CHARS:
        left_out = len(text) - MAX_CHARS
        text = (
            f"{text[: MAX_CHARS * 3 // 4]} … ({left_out:,} characters left out) … {text[-MAX_CHARS // 4 :]}"
        )
    return text if text.isprintable() else _STEERING.sub("\ufffd", text.replace("\r\n", "\n"))


class DragomanError(Exception):
    """The root of everything dragoman raises on purpose."""

    code: ClassVar[str] = "error"
    """A stable string for programs: never reworded, unlike the message."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message = printable(message)
        super().__init__(self.message)
        self.hint = printable(hint)
        """What the reader can do about it; may be empty."""

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def add_note(self, note: str, /) -> None:
        """Add a line that tracebacks show below the message."""
        super().add_note(printable(note))


class ConfigError(DragomanError):
    """Something in a configuration file or in the environment is wrong."""

    code = "config"

    def __init__(
        self,
        message: str,
        *,
        source: str = "",
        pointer: str = "",
        line: int | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.source = source
        """The file's path, or the name of an environment variable."""
        self.pointer = pointer
        """The key inside the source, as `mcpServers.files.command`."""
        self.line = line
        """The line in the file, counted from 1, where it is known."""

    @property
    def location(self) -> str:
        """Where it is, as `path:line: key`."""
        place = f"{self.source}:{self.line}" if self.source and self.line else self.source
        return printable(": ".join(part for part in (place, self.pointer) if part))

    def __str__(self) -> str:
        text = super().__str__()
        return f"{self.location}: {text}" if self.location else text


class ConfigSyntaxError(ConfigError):
    """The file is not valid JSON, TOML or YAML, or cannot be read at all."""

    code = "config.syntax"


class InvalidSpecError(ConfigError):
    """An entry does not describe a server; `problems` has every reason."""

    code = "config.invalid"

    def __init__(
        self,
        message: str,
        *,
        problems: Sequence[str] = (),
        source: str = "",
        pointer: str = "",
        line: int | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, source=source, pointer=pointer, line=line, hint=hint)
        self.problems = tuple(map(printable, problems)) or (self.message,)


class MissingVariableError(ConfigError):
    """A variable that the configuration refers to has no value."""

    code = "config.missing_variable"

    def __init__(
        self,
        message: str,
        *,
        variable: str,
        source: str = "",
        pointer: str = "",
        line: int | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, source=source, pointer=pointer, line=line, hint=hint)
        self.variable = variable


class ServerError(DragomanError):
    """Something is wrong with one server; the others are untouched."""

    code = "server"

    def __init__(self, message: str, *, server: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.server = server


class UnknownServerError(ServerError):
    """No server has that name; `suggestions` are the nearest ones."""

    code = "server.unknown"

    def __init__(self, message: str, *, server: str, suggestions: Sequence[str] = (), hint: str = "") -> None:
        super().__init__(message, server=server, hint=hint)
        self.suggestions = tuple(suggestions)


class ServerNotReadyError(ServerError):
    """The server exists but cannot take a request now."""

    code = "server.not_ready"

    def __init__(
        self, message: str, *, server: str, state: str, retry_in: float | None = None, hint: str = ""
    ) -> None:
        super().__init__(message, server=server, hint=hint)
        self.state = state
        self.retry_in = retry_in
        """Seconds until the next attempt to connect, where one is planned."""


class ConnectError(ServerError):
    """A connection could not be opened."""

    code = "server.connect"

    def __init__(
        self,
        message: str,
        *,
        server: str,
        stage: str,
        exit_code: int | None = None,
        stderr_tail: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message, server=server, hint=hint)
        self.stage = stage
        """How far it came: `variables`, `spawn`, `connect`, `handshake` or `listing`."""
        self.exit_code = exit_code
        self.stderr_tail = printable(stderr_tail)
        """The last lines a child wrote to its standard error."""


class AuthRequiredError(ConnectError):
    """The server wants a login; a person has to act."""

    code = "server.auth_required"

    def __init__(
        self, message: str, *, server: str, url: str = "", stage: str = "connect", hint: str = ""
    ) -> None:
        super().__init__(message, server=server, stage=stage, hint=hint)
        self.url = url


class ConnectionLostError(ServerError):
    """A live connection ended under a request."""

    code = "server.lost"

    def __init__(self, message: str, *, server: str, may_have_run: bool, hint: str = "") -> None:
        super().__init__(message, server=server, hint=hint)
        self.may_have_run = may_have_run
        """Whether the server may have carried the request out."""


class SessionGoneError(ConnectionLostError):
    """The server does not know our session any more; the request was refused unrun."""

    code = "server.session_gone"

    def __init__(self, message: str, *, server: str, hint: str = "") -> None:
        super().__init__(message, server=server, may_have_run=False, hint=hint)


class HttpStatusError(ServerError):
    """The server refused a request with an HTTP status; what the status said is kept."""

    code = "server.http"

    def __init__(
        self,
        message: str,
        *,
        server: str,
        status: int,
        retry_after: float | None = None,
        challenge: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message, server=server, hint=hint)
        self.status = status
        self.retry_after = retry_after
        """Seconds, where the server named them."""
        self.challenge = challenge
        """What it said about logging in (`WWW-Authenticate`)."""

    @property
    def refused_unrun(self) -> bool:
        """Whether the request surely did not run, so that sending it again is safe."""
        return self.status in _UNRUN or 300 <= self.status < 400


class ToolExecutionError(DragomanError):
    """A tool call did not give a result; the one error that callers of a tool catch."""

    code = "tool"

    def __init__(
        self, message: str, *, tool: str = "", server: str = "", call_id: str = "", hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.tool = tool
        self.server = server
        self.call_id = call_id


class UnknownToolError(ToolExecutionError):
    """No tool has that name; `suggestions` are the nearest ones."""

    code = "tool.unknown"

    def __init__(
        self,
        message: str,
        *,
        tool: str = "",
        server: str = "",
        call_id: str = "",
        suggestions: Sequence[str] = (),
        hint: str = "",
    ) -> None:
        super().__init__(message, tool=tool, server=server, call_id=call_id, hint=hint)
        self.suggestions = tuple(suggestions)


class ToolUnavailableError(ToolExecutionError):
    """The tool's server is down, lost or needs a login; the `ServerError` is the cause."""

    code = "tool.unavailable"

    def __init__(
        self,
        message: str,
        *,
        tool: str = "",
        server: str = "",
        call_id: str = "",
        may_have_run: bool = False,
        hint: str = "",
    ) -> None:
        super().__init__(message, tool=tool, server=server, call_id=call_id, hint=hint)
        self.may_have_run = may_have_run


class InvalidArgumentsError(ToolExecutionError):
    """The arguments break the tool's input schema; nothing was sent."""

    code = "tool.invalid_arguments"

    def __init__(
        self,
        message: str,
        *,
        tool: str = "",
        server: str = "",
        call_id: str = "",
        problems: Sequence[str] = (),
        hint: str = "",
    ) -> None:
        super().__init__(message, tool=tool, server=server, call_id=call_id, hint=hint)
        self.problems = tuple(map(printable, problems))


class CallDeniedError(ToolExecutionError):
    """A policy or a person refused the call; nothing was sent."""

    code = "tool.denied"

    def __init__(
        self,
        message: str,
        *,
        tool: str = "",
        server: str = "",
        call_id: str = "",
        rule: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message, tool=tool, server=server, call_id=call_id, hint=hint)
        self.rule = printable(rule)


class CallTimeoutError(ToolExecutionError, TimeoutError):
    """The call ran past its deadline; the server was told to stop."""

    code = "tool.timeout"

    def __init__(
        self,
        message: str,
        *,
        seconds: float,
        tool: str = "",
        server: str = "",
        call_id: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message, tool=tool, server=server, call_id=call_id, hint=hint)
        self.seconds = seconds


class ProtocolError(ToolExecutionError):
    """The server answered with a JSON-RPC error, or with something that is no answer."""

    code = "tool.protocol"

    def __init__(
        self,
        message: str,
        *,
        rpc_code: int | None = None,
        data: object = None,
        tool: str = "",
        server: str = "",
        call_id: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message, tool=tool, server=server, call_id=call_id, hint=hint)
        self.rpc_code = rpc_code
        self.data = data


class InvalidResultError(ToolExecutionError):
    """The result breaks the tool's declared output schema; the answer itself is in `result`."""

    code = "tool.invalid_result"

    def __init__(
        self,
        message: str,
        *,
        tool: str = "",
        server: str = "",
        call_id: str = "",
        problems: Sequence[str] = (),
        result: Any = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, tool=tool, server=server, call_id=call_id, hint=hint)
        self.problems = tuple(map(printable, problems))
        self.result = result
        """The `ToolResult` as it would be without the check: text, parts, structured content, provenance."""


class ToolFailedError(ToolExecutionError):
    """The tool ran and reported an error of its own (`isError`)."""

    code = "tool.failed"


class AgentError(DragomanError):
    """The agent's loop could not go on."""

    code = "agent"


class ModelError(AgentError):
    """The model's API failed."""

    code = "agent.model"


class BudgetExceededError(AgentError):
    """A limit on steps, tokens, seconds or money was reached."""

    code = "agent.budget"
