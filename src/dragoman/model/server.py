"""Servers as they are wanted: how to reach one, how to log in to it, and the rules that hold for it.

Text that may contain `${…}` is a template: it is kept as written and expanded when a connection is opened
(`config/templates.py`). Fields that may contain a literal secret are left out of every `repr`.

Unlike in the rest of the package, annotations are no texts here: `keys` reads them, and compiling seventy
texts when a configuration is read would take longer than evaluating them at the import.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias, TypedDict, cast

from dragoman.model.keys import Key, keys, nested
from dragoman.model.transforms import ToolTransform
from dragoman.struct import HIDDEN, Struct, field, force_setattr

DEFAULT_CONNECT_TIMEOUT = 30.0
DEFAULT_CALL_TIMEOUT = 30.0
ATTRIBUTION_KEYS = ("source", "title", "locator", "url", "updated")


class Timeouts(TypedDict, total=False):
    """Seconds; a missing key means the default."""

    connect: Annotated[
        float,
        Key(
            "the time from the start of a connection to its first listing",
            unit="s",
            unless_given="30",
            spellings=("connect_timeout", "startup_timeout_sec"),
            milliseconds=("connectionTimeout", "initTimeout", "startup_timeout_ms"),
            restarts=False,
        ),
    ]
    call: Annotated[
        float,
        Key(
            "the time for one tool call",
            unit="s",
            unless_given="30",
            spellings=("timeout", "timeout_seconds", "tool_timeout_sec"),
            milliseconds=("requestTimeout",),
            restarts=False,
        ),
    ]
    idle: Annotated[
        float,
        Key(
            "how long a lazy server may be unused before it is stopped",
            unit="s",
            unless_given="none",
            spellings=("idle_timeout",),
        ),
    ]


SandboxLevel: TypeAlias = Literal["off", "credentials", "strict"]


class Sandbox(TypedDict, total=False):
    """What a server that is a child process may read, write and reach; a missing key means the default."""

    level: SandboxLevel
    """`strict` unless given, where there is a table at all."""
    read: Sequence[str]
    """Files and folders that it may read too, `~` or relative to the project."""
    write: Sequence[str]
    """Files and folders that it may read and write too."""
    network: Literal["on", "off"] | Sequence[int]
    """Or the only TCP ports that it may connect to."""
    sockets: bool
    """Whether it may use named sockets, such as those of Docker, D-Bus and an ssh agent."""


_STDIO_FORM = 'Stdio("npx", ["-y", "package"])'


class _CommandLine(Struct):
    command: Annotated[
        str, Key("the program to start; never a shell", spellings=("cmd",), is_template=True, mask="command")
    ]
    args: Annotated[
        Sequence[str], Key("its arguments", is_template=True, mask="words", is_always_shown=True)
    ] = ()


class Stdio(_CommandLine, kw_only=True):
    """A server that is a child process, spoken to over its standard input and output."""

    env: Annotated[
        Mapping[str, str | None],
        Key(
            "environment variables of the process, besides the inherited ones; `null` removes one",
            spellings=("envs", "environment"),
            is_template=True,
            mask="value",
        ),
    ] = field(default_factory=dict[str, "str | None"])
    cwd: Annotated[
        str | None,
        Key(
            "the working directory, relative to the project",
            spellings=("working_directory", "workingDirectory"),
            is_template=True,
            unless_given="the project",
        ),
    ] = None
    env_file: Annotated[
        Sequence[str],
        Key(
            "files of `NAME=value` lines, read at start; `env` wins over them",
            spellings=("envFile",),
            is_template=True,
        ),
    ] = ()
    inherit_env: Annotated[
        Literal["safe", "all"] | Sequence[str],
        Key(
            '`"safe"`, `"all"`, or names of variables to inherit besides `safe`: '
            "[inherited variables](configuration.md#inherited-variables)",
            unless_given='`"safe"`',
        ),
    ] = "safe"
    sandbox: Annotated[
        SandboxLevel | Sandbox | None,
        Key(
            '`"off"`, `"credentials"`, `"strict"`, or `{level, read, write, network, sockets}`: what the '
            "process may read, write and reach: [sandbox](sandbox.md)",
            unless_given='`"off"`',
        ),
    ] = None
    log_file: Annotated[
        str | None,
        Key(
            "a file for the process's stderr: 1 MiB, and two older ones; known secrets are masked, and "
            "escape sequences are removed",
            is_template=True,
        ),
    ] = None

    def __post_init__(self) -> None:
        # A string is a sequence of strings too, so type checkers accept this mistake.
        if not isinstance(cast("object", self.command), str):
            msg = f"`command` is one string, the program; its arguments follow as a list: {_STDIO_FORM}"
            raise TypeError(msg)
        if isinstance(self.args, str | bytes):
            msg = f"`args` is a list with one string for each argument: {_STDIO_FORM}"
            raise TypeError(msg)
        force_setattr(self, "args", tuple(self.args))
        force_setattr(self, "env", dict(self.env))
        force_setattr(self, "env_file", tuple(self.env_file))
        if isinstance(self.sandbox, dict):
            table = cast("dict[str, Any]", self.sandbox)
            frozen = {
                name: tuple(cast("list[Any]", value)) if isinstance(value, list) else value
                for name, value in table.items()
            }
            force_setattr(self, "sandbox", frozen)


class Tls(Struct, kw_only=True):
    """TLS settings of a server behind a URL: trusted and client certificates; paths are templates."""

    ca: Annotated[
        str | None,
        Key(
            "a file or a directory of certificates that are trusted instead of the system's",
            is_template=True,
            is_always_shown=True,
        ),
    ] = None
    cert: Annotated[
        str | None, Key("the client certificate, with its chain", is_template=True, is_always_shown=True)
    ] = None
    key: Annotated[
        str | None,
        Key(
            "the private key of `cert`, if it is not in the same file; not an encrypted one",
            is_template=True,
            is_always_shown=True,
        ),
    ] = None
    verify: Annotated[
        bool,
        Key(
            "whether the server's certificate is checked; without, anyone may intercept the connection",
            is_always_shown=True,
        ),
    ] = True


class _Address(Struct):
    url: Annotated[
        str,
        Key(
            "the address of a remote server",
            spellings=("uri", "httpUrl", "serverUrl", "server_url", "baseUrl", "base_url"),
            is_template=True,
            mask="url",
        ),
    ]


class _Remote(_Address, kw_only=True):
    headers: Annotated[
        Mapping[str, str],
        Key("headers of each request", spellings=("http_headers",), is_template=True, mask="value"),
    ] = field(default_factory=dict[str, str])
    alternate: Annotated[
        bool,
        Key(
            "try the other HTTP transport too if the server refuses this one",
            unless_given="only without a type",
            is_always_shown=True,
        ),
    ] = False
    tls: Annotated[
        Tls | None,
        Key(
            "`{ca, cert, key, verify}`: CA certificates to trust instead of the system's (a file or a "
            "directory), the client certificate and its key; `verify = false` disables verification, with a "
            "warning",
            unless_given="the system's",
        ),
    ] = None
    allow_http: Annotated[
        bool,
        Key(
            "for an `http://` URL that is not on this machine: send credentials of the entry (headers, a "
            "password or a token in the URL), of `header_provider` and of calls anyway. Others on the "
            "network can read them; OAuth tokens are never sent there"
        ),
    ] = False

    def __post_init__(self) -> None:
        force_setattr(self, "headers", dict(self.headers))


class Http(_Remote):
    """A server behind a URL that speaks Streamable HTTP."""


class Sse(_Remote):
    """A server behind a URL that speaks the legacy HTTP+SSE transport."""


Transport: TypeAlias = Stdio | Http | Sse


class Auth(Struct, kw_only=True):
    """How a server behind a URL wants to be logged in to, as far as the configuration says it."""

    mode: Annotated[
        Literal["auto", "none", "oauth"],
        Key("whether to log in: `auto` if the server requires it", is_always_shown=True),
    ] = "auto"
    client_id: Annotated[str | None, Key("the id of this client", is_template=True)] = None
    client_secret: Annotated[
        str | None,
        Key("its secret; write a variable, not the secret itself", is_template=True, mask="value"),
    ] = None
    scopes: Annotated[Sequence[str], Key("the scopes to ask for")] = ()
    callback_port: Annotated[int | None, Key("the port that the browser returns to")] = None
    redirect_uri: Annotated[
        str | None, Key("the address that the browser returns to", is_template=True, mask="url")
    ] = None
    metadata_url: Annotated[
        str | None,
        Key(
            "where the authorization server describes itself, if that cannot be found from the server",
            is_template=True,
            mask="url",
        ),
    ] = None
    resource: Annotated[
        str | None,
        Key(
            "what the token is asked for, if the server's own address is not the right name for it",
            is_template=True,
            mask="url",
        ),
    ] = None
    issuer: Annotated[
        str | None,
        Key(
            "the authorization server that `client_id` belongs to; the server decides unless given",
            is_template=True,
            mask="url",
        ),
    ] = None
    grant: Annotated[
        Literal["authorization_code", "client_credentials", "jwt_bearer"],
        Key("who logs in: a person, this program by itself, or this program with a token of another issuer"),
    ] = "authorization_code"
    client_auth: Annotated[
        Literal["client_secret_basic", "client_secret_post", "private_key_jwt"] | None,
        Key("how the client proves who it is; as the authorization server wishes unless given"),
    ] = None
    private_key: Annotated[
        str | None,
        Key("for `private_key_jwt`: the key as PEM, or the path of its file", is_template=True, mask="value"),
    ] = None
    signing_algorithm: Annotated[str, Key("for `private_key_jwt`: the algorithm of the signature")] = "RS256"
    assertion: Annotated[
        str | None,
        Key(
            "for `jwt_bearer`: the signed token of this workload, or the path of its file",
            is_template=True,
            mask="value",
        ),
    ] = None
    id_token: Annotated[
        str | None,
        Key(
            "for `jwt_bearer`, to get an assertion: the user's token of an identity provider, or its file",
            is_template=True,
            mask="value",
        ),
    ] = None
    idp_token_url: Annotated[
        str | None,
        Key(
            "where the identity provider exchanges `id_token` for an assertion", is_template=True, mask="url"
        ),
    ] = None
    idp_client_id: Annotated[
        str | None, Key("this client at the identity provider, if it wants to know", is_template=True)
    ] = None
    idp_client_secret: Annotated[
        str | None, Key("the secret of `idp_client_id`", is_template=True, mask="value")
    ] = None
    client_metadata_url: Annotated[
        str | None,
        Key(
            "an https address that describes this client, and is its id where the server takes that",
            is_template=True,
            mask="url",
        ),
    ] = None
    hosts: Annotated[
        Sequence[str], Key("hosts that may be asked about logins although they lie in a private network")
    ] = ()
    store: Annotated[Literal["file", "keyring"], Key("where tokens are kept")] = "file"


class Origin(Struct, kw_only=True):
    """Where a definition was written down."""

    source: str
    """The file's path, or what stands for it: `environment`, `catalog`, `code`."""
    line: int | None = None
    dialect: str = "dragoman"
    scope: Literal["session", "local", "project", "user", "system", "code"] = "code"
    """`project`: the file came with the project and is not trusted until a person approves it."""
    pointer: str = ""
    """The key inside the source, as `mcpServers.files`."""

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


CODE = Origin(source="code")
"""The origin of specs that a program builds itself."""


class Note(Struct, kw_only=True):
    """An assumption that reading the configuration had to make, or a key it could not use."""

    code: Literal["unit", "transport", "type", "unknown", "unused", "conflict", "consent", "path", "name"]
    key: str
    """The key that the note is about, relative to the server's entry."""
    message: str
    meant: str = ""
    """For an unknown key: the key that was probably meant."""
    line: int | None = None


def _fallback(
    given: str | Sequence[str] | Mapping[str, str | Sequence[str]],
) -> tuple[str, ...] | dict[str, tuple[str, ...]]:
    if isinstance(given, Mapping) and given:
        return {tool: (names,) if isinstance(names, str) else tuple(names) for tool, names in given.items()}
    return (given,) if isinstance(given, str) else tuple(given)


def _wrong_transport(name: str, given: object) -> str:
    """Say how a server is written; what was given may hold a secret and is not repeated."""
    kind = type(given).__name__
    if isinstance(given, str) and given.lower().startswith(("http://", "https://")):
        form = f'ServerSpec("{name}", Http("https://…"))'
    elif isinstance(given, Mapping):
        form = f'McpManager({{"{name}": {{…}}}})'
    else:
        form = f'ServerSpec("{name}", {_STDIO_FORM})'
    return f"`transport` is a `Stdio`, `Http` or `Sse`, not a {kind}: write {form}"


class _Named(Struct):
    name: str
    transport: Annotated[
        Transport,
        Key(
            "`stdio`, `http` or `sse`",
            spellings=("type", "transportType"),
            unless_given="from the other keys",
        ),
    ]


class ServerSpec(_Named, kw_only=True):
    """One server as it is wanted: how to reach it, and the rules that hold for it."""

    # Whether and when it runs
    enabled: Annotated[
        bool, Key("whether the server is used", opposite="disabled", is_approved=False, is_always_shown=True)
    ] = True
    required: Annotated[bool, Key("start-up fails without it", restarts=False)] = False
    lazy: Annotated[bool, Key("start it at the first call", is_approved=False)] = False
    reconnect: Annotated[
        bool, Key("reconnect after a lost connection", is_approved=False, is_of_process=True)
    ] = True
    replacement: Annotated[
        Literal["start-first", "stop-first"],
        Key(
            "when an entry changes: prove the new server before the old one is stopped, or stop first",
            name="replace",
            is_approved=False,
            restarts=False,
        ),
    ] = "start-first"
    # Time
    timeouts: Annotated[
        Timeouts,
        Key(
            '`{connect, call, idle}` in seconds, or texts such as `"500ms"`; `timeout` alone is `call`',
            unless_given="30, 30, none",
            is_approved=False,
        ),
    ] = field(default_factory=Timeouts)
    health_check_interval: Annotated[
        float | None,
        Key("seconds between probes of an idle connection", unit="s", unless_given="30", is_approved=False),
    ] = None
    # Tools
    allowed_tools: Annotated[
        Sequence[str] | None,
        Key(
            "names and globs of the tools that are offered; an empty list offers none",
            spellings=("enabled_tools", "includeTools"),
            unless_given="all",
            restarts=False,
        ),
    ] = None
    denied_tools: Annotated[
        Sequence[str],
        Key(
            "names and globs of tools that are not offered; wins over `allowed_tools`",
            spellings=("disabled_tools", "disabledTools", "excludeTools"),
            unless_given="none",
            restarts=False,
        ),
    ] = ()
    tools: Annotated[
        Mapping[str, ToolTransform],
        Key(
            "changes of single tools, by the server's names for them: other names and descriptions, hidden "
            "tools, fixed arguments: [transforms](tools.md#transforms)",
            restarts=False,
        ),
    ] = field(default_factory=dict[str, ToolTransform])
    max_concurrency: Annotated[
        int | None, Key("concurrent calls", unless_given="unlimited", is_approved=False, is_of_process=True)
    ] = None
    share: Annotated[
        bool | None,
        Key(
            "who may share one process of it: with `true` also the users of "
            "[one program](how-to/web-app.md), with `false` only calls of one client",
            unless_given="clients of the [daemon](how-to/daemon.md)",
            is_approved=False,
        ),
    ] = None
    parallel: Annotated[
        bool, Key("an agent may run several calls to it in parallel", is_approved=False, restarts=False)
    ] = False
    coerce_arguments: Annotated[
        bool | None,
        Key(
            'coerce a model\'s arguments that nearly match the schema, such as `"5"` for a number',
            unless_given="the application's setting",
            restarts=False,
        ),
    ] = None
    attribution: Annotated[
        Mapping[str, str],
        Key(
            "where results name their sources: [sources](configuration.md#sources-of-an-answer)",
            unless_given="the usual keys",
            restarts=False,
        ),
    ] = field(default_factory=dict[str, str])
    """Where an answer names its sources: JSON pointers in which `*` is any key, under `ATTRIBUTION_KEYS`.
    `updated` may also be the name of a field, or a date for sources without one."""
    sources_in_text: Annotated[
        bool | None,
        Key(
            "end the text of a result with its sources; a result has them as data either way",
            unless_given="`false`; `true` in the profile `legal`",
            restarts=False,
        ),
    ] = None
    naming: Annotated[
        str | None,
        Key(
            "the scheme of its tools' names, such as `{server}__{tool}`",
            unless_given="`mcp_{server}_{tool}`",
            contains="{tool}",
            restarts=False,
        ),
    ] = None
    fallback: Annotated[
        Sequence[str] | Mapping[str, str | Sequence[str]],
        Key(
            "what answers while this server is unavailable: servers and local tools, or these by tool: "
            "[fallbacks](configuration.md#fallbacks)",
            restarts=False,
        ),
    ] = ()
    """What answers while this server is unavailable, in order: servers and local tools, or these by tool.

    A server answers with its tool of the same name. A local tool answers for the tool of the same name, or
    for the one that the mapping gives to it. The key `*` stands for every tool without a key."""
    # Trust
    auth: Annotated[
        Auth | None,
        Key(
            '`"none"`, `"oauth"`, or `{client_id, client_secret, scopes, …}`',
            unless_given="OAuth if the server requires it",
        ),
    ] = None
    trust: Annotated[
        Literal["warn", "ask", "strict", "off"] | None,
        Key(
            "what happens with [changed tools](trust.md#tool-definitions-are-pinned): they are offered and "
            "flagged, withheld until they are approved (`ask`, `strict`), or not looked at",
            unless_given="`ask` at a terminal, else `warn`",
            restarts=False,
        ),
    ] = None
    trust_annotations: Annotated[
        bool, Key("whether the server's annotations (read-only, idempotent) are trusted", restarts=False)
    ] = False
    # The connection
    max_message_bytes: Annotated[
        int | None,
        Key(
            'the largest accepted message, as `16777216` or `"64MiB"`',
            unit="bytes",
            unless_given="16 MiB",
            is_of_process=True,
        ),
    ] = None
    limits: Annotated[
        Mapping[str, float],
        Key("other limits: [limits](configuration.md#limits)", unless_given="those of `mcp`", restarts=False),
    ] = field(default_factory=dict[str, float])
    """How much of other things it may send or get, by the names of `trust.limits.Limits`."""
    protocol: Annotated[
        Literal["auto", "legacy", "modern"],
        Key(
            "`auto`, `legacy` (handshake with `initialize`), `modern` (2026-07-28 and later)",
            is_of_process=True,
        ),
    ] = "auto"
    unset_variables: Annotated[
        Literal["error", "keep", "empty"], Key("what a `${VAR}` without a value becomes", in_files=False)
    ] = "error"
    # For people
    title: Annotated[str, Key("a name for people", is_approved=False, restarts=False)] = ""
    description: Annotated[str, Key("a description for people", is_approved=False, restarts=False)] = ""
    # Where it comes from
    origin: Origin = CODE
    shadowed: Sequence[Origin] = ()
    """Definitions of the same name that this one hides, the nearest first."""
    lines: Mapping[str, int] = field(default_factory=dict[str, int])
    """The line of each key of the entry, for errors: `command`, `env.TOKEN`."""
    extras: Annotated[Mapping[str, Any], HIDDEN] = field(default_factory=dict[str, Any])
    """Keys that mean nothing to dragoman, kept as written."""
    notes: Sequence[Note] = ()

    def __post_init__(self) -> None:
        if not self.name:
            msg = "a server needs a name"
            raise ValueError(msg)
        if not isinstance(cast("object", self.transport), Stdio | Http | Sse):
            raise TypeError(_wrong_transport(self.name, self.transport))
        force_setattr(self, "timeouts", Timeouts(**self.timeouts))
        force_setattr(self, "attribution", dict(self.attribution))
        force_setattr(self, "limits", dict(self.limits))
        force_setattr(self, "tools", dict(self.tools))
        if self.allowed_tools is not None:
            force_setattr(self, "allowed_tools", tuple(self.allowed_tools))
        force_setattr(self, "fallback", _fallback(self.fallback))
        for name in ("denied_tools", "shadowed", "notes"):
            force_setattr(self, name, tuple(getattr(self, name)))

    @property
    def kind(self) -> Literal["stdio", "http", "sse"]:
        """The transport's name in configuration files."""
        match self.transport:
            case Stdio():
                return "stdio"
            case Http():
                return "http"
            case Sse():
                return "sse"

    def fallbacks_of(self, tool: str) -> tuple[str, ...]:
        """Return what answers for a tool, given by the server's own name for it."""
        if isinstance(self.fallback, Mapping):
            by_tool = cast("Mapping[str, tuple[str, ...]]", self.fallback)
            return by_tool.get(tool, by_tool.get("*", ()))
        return tuple(self.fallback)

    @property
    def fallback_names(self) -> tuple[str, ...]:
        """Every server and local tool in `fallback`, each once."""
        if isinstance(self.fallback, Mapping):
            by_tool = cast("Mapping[str, tuple[str, ...]]", self.fallback)
            return tuple(dict.fromkeys(name for names in by_tool.values() for name in names))
        return tuple(dict.fromkeys(self.fallback))

    @property
    def connect_timeout(self) -> float:
        """Seconds a connection may take, from start to first listing."""
        return self.timeouts.get("connect", DEFAULT_CONNECT_TIMEOUT)

    @property
    def call_timeout(self) -> float:
        """Seconds a call may take unless the caller says otherwise."""
        return self.timeouts.get("call", DEFAULT_CALL_TIMEOUT)


@cache
def server_keys() -> Mapping[str, Key]:
    """Return every key of a server's entry by its place in it; those of `Sse` are those of `Http`."""
    return nested(Stdio, Http, ServerSpec)


REMOTE_KEYS = (*keys(Http), "auth")
"""The keys that only a server behind a URL has."""
