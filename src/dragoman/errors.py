"""Every exception that dragoman raises: what they are called, and which fields they have.

DragomanError                     code (stable string), hint
├── ConfigError                   source, pointer, line
│   ├── ConfigSyntaxError         the file does not parse
│   ├── InvalidSpecError          an entry is wrong: problems
│   └── MissingVariableError      a `${…}` has no value: variable
├── UserLimitError                as many users are connected as may be, and all are busy
├── ApprovalError                 an answer to what waits in the inbox counts no more: state, by
├── ServerError                   server
│   ├── UnknownServerError        suggestions
│   ├── ServerNotReadyError       state, retry_in
│   ├── ConnectError              stage, reason, subject, exit_code, stderr_tail
│   │   └── AuthRequiredError     url
│   ├── HttpStatusError           status, retry_after, challenge
│   └── ConnectionLostError       may_have_run
│       └── SessionGoneError      the server forgot our session; the request did not run
├── ToolExecutionError            server, tool, call_id; callers of a tool catch this one
│   ├── UnknownToolError          suggestions
│   ├── ToolUnavailableError      its server is down, lost or needs a login; may_have_run
│   ├── InvalidArgumentsError     problems, worded for a model
│   ├── CallDeniedError           rule, pending, public_message
│   ├── CallTimeoutError          seconds (also a TimeoutError)
│   ├── ProtocolError             rpc_code, data
│   ├── InvalidResultError        the result breaks the output schema: problems, result
│   └── ToolFailedError           the tool reported an error (`isError`)
├── BulkError                     a table, a template or a journal of bulk work cannot be used
└── AgentError
    ├── ModelError                the model's API failed
    └── BudgetExceededError       a limit of the loop was reached

A class declares its fields as annotations; all of them are keyword arguments of its constructor.

Messages say what happened, to which server or tool, and what to do. Cancellation is never wrapped. An error
is safe to print, even if its message quotes a server or a file: what `dragoman.visible` calls harmful shows
as `�`, and the middle of a long message is left out. Names (`server`, `tool`, `suggestions`) and `data` are
for programs and stay unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform

from dragoman.visible import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_UNRUN = frozenset({401, 403, 404, 405, 406, 407, 411, 413, 414, 415, 421, 425, 426, 429, 431, 503})
"""HTTP statuses that mean: the server did not start to process the request."""


MAX_CHARS = 32_000
"""Of one message; the middle of a longer one is left out."""


def printable(text: str) -> str:
    """Return a text that is safe to print: bounded, and with a `�` for each harmful character."""
    if len(text) > MAX_CHARS:
        left_out = len(text) - MAX_CHARS
        text = (
            f"{text[: MAX_CHARS * 3 // 4]} … ({left_out:,} characters left out) … {text[-MAX_CHARS // 4 :]}"
        )
    return shown(text)


_REQUIRED: Any = object()
"""Stands for the default of a field that must be given."""
_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("hint", "rule", "stderr_tail", "subject"), printable),
    "problems": lambda texts: tuple(map(printable, texts)),
    "suggestions": tuple,
}
"""What the constructor does with the values of some fields, by the name of the field."""


def _positional(*, kw_only: bool) -> Any:  # noqa: ARG001 -- type checkers read it
    """Declare the one field that is not a keyword argument."""
    return _REQUIRED


@dataclass_transform(kw_only_default=True, field_specifiers=(_positional,))
class _DeclaredFields(Exception):  # noqa: N818 -- the base of `DragomanError` only
    """Gives a subclass a constructor with the fields that it declares, as a dataclass has.

    Real dataclasses would do, but making them takes some milliseconds of each start. A class with its own
    constructor declares no fields.
    """

    declared_fields: ClassVar[dict[str, Any]] = {}
    """The default of each field, those of the base classes included."""

    def __init_subclass__(cls) -> None:
        own = {} if "__init__" in cls.__dict__ else cls.__annotations__
        names = [name for name, kind in own.items() if not str(kind).startswith("ClassVar")]
        cls.declared_fields = {
            **cls.declared_fields,
            **{name: cls.__dict__.get(name, _REQUIRED) for name in names},
        }

    def __init__(self, message: str, **given: Any) -> None:
        values = {**self.declared_fields, **given, "message": printable(message)}
        wrong = [name for name in values if name not in self.declared_fields or values[name] is _REQUIRED]
        if wrong:
            problem = "unexpected" if wrong[0] in given else "missing"
            msg = f"{type(self).__name__}: {problem} keyword argument {wrong[0]!r}"
            raise TypeError(msg)
        super().__init__(values["message"])
        for name, value in values.items():
            convert = _CONVERTERS.get(name)
            setattr(self, name, value if convert is None else convert(value))
        self.__post_init__()

    def __post_init__(self) -> None:
        """Complete the fields; for subclasses."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The usual way calls the constructor with the message alone; some classes require more.
        return _new, (type(self),), {**self.__dict__, "args": self.args}


def _new(kind: type[_DeclaredFields]) -> _DeclaredFields:
    return kind.__new__(kind)


class DragomanError(_DeclaredFields):
    """The base class of all errors that dragoman raises."""

    code: ClassVar[str] = "error"
    """A stable string for programs; unlike the message, it never changes."""

    message: str = _positional(kw_only=False)
    hint: str = ""
    """What the reader can do about it; may be empty."""

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def add_note(self, note: str, /) -> None:
        """Add a line that tracebacks show below the message."""
        super().add_note(printable(note))


class ConfigError(DragomanError):
    """Something in a configuration file or in the environment is wrong."""

    code = "config"

    source: str = ""
    """The file's path, or the name of an environment variable."""
    pointer: str = ""
    """The key inside the source, as `mcpServers.files.command`."""
    line: int | None = None
    """The line in the file, counted from 1, where it is known."""

    @property
    def location(self) -> str:
        """Where the problem is, as `path:line: key`."""
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

    problems: Sequence[str] = ()
    """Every reason; the message itself where none was given."""
    server: str = ""
    """The name of the entry, where it has one."""

    def __post_init__(self) -> None:
        self.problems = self.problems or (self.message,)


class MissingVariableError(ConfigError):
    """A variable that the configuration refers to has no value."""

    code = "config.missing_variable"

    variable: str


class UserLimitError(DragomanError):
    """As many users are connected as the limit allows, and none of them can make room."""

    code = "users.limit"


class ApprovalError(DragomanError):
    """An answer does not count: the entry of the inbox is unknown, or was decided already."""

    code = "approval"

    state: str = ""
    """What became of the entry; empty if it is unknown."""
    by: str = ""
    """Who decided it."""


class ServerError(DragomanError):
    """Something is wrong with one server; the others are not affected."""

    code = "server"

    server: str


class UnknownServerError(ServerError):
    """No server has that name; `suggestions` are the nearest ones."""

    code = "server.unknown"

    suggestions: Sequence[str] = ()


class ServerNotReadyError(ServerError):
    """The server exists but cannot take a request now."""

    code = "server.not_ready"

    state: str
    retry_in: float | None = None
    """Seconds until the next attempt to connect, where one is planned."""


class ConnectError(ServerError):
    """A connection could not be opened."""

    code = "server.connect"

    stage: str
    """How far it came: `variables`, `spawn`, `connect`, `handshake` or `listing`."""
    reason: str = ""
    """What went wrong, as a stable word: `program` (not found), `folder` (its `cwd` does not exist),
    `permission`, `exit`, `timeout`, `stdout` (text that is not MCP), `dns`, `refused`, `unreachable`, `tls`,
    `plain` (no TLS), `proxy`, `http` (an error status), `page` (a web page), `token` (the `Authorization`
    header was rejected), `saved_token` (that of `dragoman login` was), `no_oauth` (it offers no login by
    OAuth, so it needs a token), `version` (of the protocol) or `size` (of a message). Empty if none
    of them fits."""
    subject: str = ""
    """What the reason is about: host and port, the HTTP status, the version, or the detail of an error."""
    exit_code: int | None = None
    stderr_tail: str = ""
    """The last lines that a child process wrote to its standard error."""


class AuthRequiredError(ConnectError):
    """The server requires a login; a person has to act."""

    code = "server.auth_required"

    stage: str = "connect"
    url: str = ""


class ConnectionLostError(ServerError):
    """A live connection ended during a request."""

    code = "server.lost"

    may_have_run: bool
    """Whether the server may have carried the request out."""


class SessionGoneError(ConnectionLostError):
    """The server does not know our session any more; it refused the request without running it."""

    code = "server.session_gone"

    may_have_run: bool = False


class HttpStatusError(ServerError):
    """The server refused a request with an HTTP status."""

    code = "server.http"

    status: int
    retry_after: float | None = None
    """Seconds, where the server named them."""
    challenge: str = ""
    """What it said about logging in (`WWW-Authenticate`)."""

    @property
    def refused_unrun(self) -> bool:
        """Whether the request certainly did not run, so that sending it again is safe."""
        return self.status in _UNRUN or 300 <= self.status < 400


class ToolExecutionError(DragomanError):
    """A tool call did not give a result; the one error that callers of a tool catch."""

    code = "tool"

    tool: str = ""
    server: str = ""
    call_id: str = ""


class UnknownToolError(ToolExecutionError):
    """No tool has that name, or several have; `suggestions` are the nearest ones."""

    code = "tool.unknown"

    suggestions: Sequence[str] = ()
    is_ambiguous: bool = False
    """Whether several tools could be meant."""


class ToolUnavailableError(ToolExecutionError):
    """The tool's server is down, lost or needs a login; the `ServerError` is the cause."""

    code = "tool.unavailable"

    may_have_run: bool = False


class InvalidArgumentsError(ToolExecutionError):
    """The arguments break the tool's input schema; nothing was sent."""

    code = "tool.invalid_arguments"

    problems: Sequence[str] = ()


class CallDeniedError(ToolExecutionError):
    """A policy or a person refused the call; nothing was sent."""

    code = "tool.denied"

    rule: str = ""
    pending: bool = False
    """Whether a person is being asked, and the call will be made again with the answer: not a failure."""
    public_message: str = ""
    """The whole text for a client on another machine: it names no file and no path of this one."""

    def __post_init__(self) -> None:
        self.public_message = printable(self.public_message or str(self))


class CallTimeoutError(ToolExecutionError, TimeoutError):
    """The call ran past its deadline; the server was told to stop."""

    code = "tool.timeout"

    seconds: float


class ProtocolError(ToolExecutionError):
    """The server answered with a JSON-RPC error, or with something that is not a valid answer."""

    code = "tool.protocol"

    rpc_code: int | None = None
    data: object = None


class InvalidResultError(ToolExecutionError):
    """The result breaks the tool's declared output schema; the answer itself is in `result`."""

    code = "tool.invalid_result"

    problems: Sequence[str] = ()
    result: Any = None
    """The `ToolResult` as it would be without the check: text, parts, structured content, provenance."""


class ToolFailedError(ToolExecutionError):
    """The tool ran and reported an error of its own (`isError`)."""

    code = "tool.failed"


class BulkError(DragomanError):
    """A table, a template or a journal of bulk work cannot be used; no call was made for it."""

    code = "bulk"


class AgentError(DragomanError):
    """The agent's loop could not go on."""

    code = "agent"


class ModelError(AgentError):
    """The model's API failed."""

    code = "agent.model"


class BudgetExceededError(AgentError):
    """A limit on steps, tokens, seconds or money was reached."""

    code = "agent.budget"
