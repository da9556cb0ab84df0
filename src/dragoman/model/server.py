"""Servers as they are wanted: how to reach one, how to log in to it, and the rules that hold for it.

Text that may contain `${…}` is a template: it is kept as written and expanded when a connection is opened
(`config/templates.py`). Fields that may contain a literal secret are left out of every `repr`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypedDict, cast

from dragoman.struct import HIDDEN, Struct, field, force_setattr

DEFAULT_CONNECT_TIMEOUT = 30.0
DEFAULT_CALL_TIMEOUT = 30.0
ATTRIBUTION_KEYS = ("source", "title", "locator", "url", "updated")


class Timeouts(TypedDict, total=False):
    """Seconds; a missing key means the default."""

    connect: float
    """From the start of a connection to its first listing; 30 s unless given."""
    call: float
    """One tool call; 30 s unless given."""
    idle: float
    """How long a lazy server may be unused before it is stopped; never unless given."""


_STDIO_FORM = 'Stdio("npx", ["-y", "package"])'


class _CommandLine(Struct):
    command: str
    args: Annotated[Sequence[str], HIDDEN] = ()


class Stdio(_CommandLine, kw_only=True):
    """A server that is a child process, spoken to over its standard input and output."""

    env: Annotated[Mapping[str, str | None], HIDDEN] = field(default_factory=dict[str, "str | None"])
    """Added to the inherited environment; `None` takes a variable away."""
    cwd: str | None = None
    env_file: Sequence[str] = ()
    """Files of `NAME=value` lines, read when the server is started; `env` wins over them."""
    inherit_env: Literal["safe", "all"] | Sequence[str] = "safe"
    """`safe`: HOME, PATH, proxies and their like; `all`: everything; or the names to add to `safe`."""
    log_file: str | None = None
    """Where its standard error is kept besides the tail in memory; a few files of bounded size."""

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


class Tls(Struct, kw_only=True):
    """TLS settings of a server behind a URL: trusted and client certificates; paths are templates."""

    ca: str | None = None
    """A file or a directory of certificates that are trusted instead of the system's."""
    cert: str | None = None
    """Our own certificate, with its chain."""
    key: str | None = None
    """The private key of `cert`, where it is not in the same file; not an encrypted one."""
    verify: bool = True
    """Whether the server's certificate is checked; off means that anyone may intercept the connection."""


class _Address(Struct):
    url: Annotated[str, HIDDEN]


class _Remote(_Address, kw_only=True):
    headers: Annotated[Mapping[str, str], HIDDEN] = field(default_factory=dict[str, str])
    alternate: bool = False
    """Whether the other HTTP transport is tried if the server refuses this one."""
    tls: Tls | None = None
    allow_http: bool = False
    """Whether its credentials may go over plain http to another machine; a login's token never does."""

    def __post_init__(self) -> None:
        force_setattr(self, "headers", dict(self.headers))


class Http(_Remote):
    """A server behind a URL that speaks Streamable HTTP."""


class Sse(_Remote):
    """A server behind a URL that speaks the legacy HTTP+SSE transport."""


Transport: TypeAlias = Stdio | Http | Sse


class Auth(Struct, kw_only=True):
    """How a server behind a URL wants to be logged in to, as far as the configuration says it."""

    SECRETS: ClassVar[tuple[str, ...]] = (
        "client_secret",
        "private_key",
        "assertion",
        "id_token",
        "idp_client_secret",
    )
    """The fields that are never shown."""

    mode: Literal["auto", "none", "oauth"] = "auto"
    client_id: str | None = None
    client_secret: Annotated[str | None, HIDDEN] = None
    """A template; write a variable here, not the secret itself."""
    scopes: Sequence[str] = ()
    callback_port: int | None = None
    redirect_uri: str | None = None
    metadata_url: str | None = None
    """Where the authorization server describes itself, if that cannot be found from the server."""
    resource: str | None = None
    """What the token is asked for, if the server's own address is not the right name for it."""
    issuer: str | None = None
    """The authorization server that `client_id` belongs to; the server decides unless given."""
    grant: Literal["authorization_code", "client_credentials", "jwt_bearer"] = "authorization_code"
    """Who logs in: a person, this program by itself, or this program with a token of another issuer."""
    client_auth: Literal["client_secret_basic", "client_secret_post", "private_key_jwt"] | None = None
    """How the client proves who it is; as the authorization server wishes unless given."""
    private_key: Annotated[str | None, HIDDEN] = None
    """For `private_key_jwt`: the key as PEM, or the path of its file; a template."""
    signing_algorithm: str = "RS256"
    assertion: Annotated[str | None, HIDDEN] = None
    """For `jwt_bearer`: the signed token of this workload, or the path of its file; a template."""
    id_token: Annotated[str | None, HIDDEN] = None
    """For `jwt_bearer`, to get an assertion: the user's token of an identity provider, or its file."""
    idp_token_url: str | None = None
    """Where the identity provider exchanges `id_token` for an assertion."""
    idp_client_id: str | None = None
    """This client at the identity provider, if it wants to know."""
    idp_client_secret: Annotated[str | None, HIDDEN] = None
    client_metadata_url: str | None = None
    """An https address that describes this client, and is its id where the server takes that."""
    hosts: Sequence[str] = ()
    """Hosts that may be asked about logins although they lie in a private network."""
    store: Literal["file", "keyring"] = "file"
    """Where tokens are kept."""


class Origin(Struct, kw_only=True):
    """Where a definition was written down."""

    source: str
    """The file's path, or what stands for it: `environment`, `catalogue`, `code`."""
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
    transport: Transport


class ServerSpec(_Named, kw_only=True):
    """One server as it is wanted: how to reach it, and the rules that hold for it."""

    # Whether and when it runs
    enabled: bool = True
    required: bool = False
    """Whether start-up fails if this server cannot be reached."""
    lazy: bool = False
    """Whether it is started at its first call only."""
    reconnect: bool = True
    replacement: Literal["start-first", "stop-first"] = "start-first"
    """When its configuration changes: prove the new one before the old one goes, or stop first."""
    # Time
    timeouts: Timeouts = field(default_factory=Timeouts)
    health_check_interval: float | None = None
    """Seconds between probes of an idle connection; the settings' value unless given."""
    # Tools
    allowed_tools: Sequence[str] | None = None
    """Names and globs; `None` means every tool, an empty sequence none."""
    denied_tools: Sequence[str] = ()
    """Names and globs; wins over `allowed_tools`."""
    max_concurrency: int | None = None
    share: bool | None = None
    """Who may share one process of it, if their entries are the same. `True`: also the users of one program
    (`McpManager.as_user`). `False`: each client of the daemon has its own. Unless given, clients of the
    daemon share it, and users do not."""
    parallel: bool = False
    """Whether an agent may run several calls to this server at once."""
    coerce_arguments: bool | None = None
    """Whether arguments that nearly fit are corrected before a call; the application decides unless given."""
    attribution: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where an answer names its sources: JSON pointers in which `*` is any key, under `ATTRIBUTION_KEYS`.
    `updated` may also be the name of a field, or a date for sources without one."""
    sources_in_text: bool | None = None
    """Whether the text of a result ends with its sources; the settings decide unless given. They are in
    `result.provenance` either way, and an agent's model always reads them."""
    naming: str | None = None
    """A template such as `{server}__{tool}`; the settings' scheme unless given."""
    fallback: Sequence[str] | Mapping[str, str | Sequence[str]] = ()
    """What answers while this server is unavailable, in order: servers and local tools, or these by tool.

    A server answers with its tool of the same name. A local tool answers for the tool of the same name, or
    for the one that the mapping gives to it. The key `*` stands for every tool without a key."""
    # Trust
    auth: Auth | None = None
    trust: Literal["warn", "ask", "strict", "off"] | None = None
    """What happens with tools that are not as they were pinned: they are offered and flagged, withheld until
    they are approved (`ask`, `strict`), or not looked at; `warn` unless given, and `ask` at a terminal."""
    trust_annotations: bool = False
    """Whether the server's own hints (read-only, idempotent) may permit a retry."""
    # The wire
    wire: Literal["dragoman", "sdk"] = "dragoman"
    """Whose framing is used below the SDK's session: ours, or the SDK's own transports."""
    max_message_bytes: int | None = None
    """The largest message that is taken from the server; 16 MiB unless given."""
    limits: Mapping[str, float] = field(default_factory=dict[str, float])
    """How much of other things it may send or get, by the names of `trust.limits.Limits`."""
    protocol: Literal["auto", "legacy", "modern"] = "auto"
    """The protocol generation: `legacy` shakes hands by `initialize`, `modern` is 2026-07-28 on."""
    unset_variables: Literal["error", "keep", "empty"] = "error"
    """What a `${VAR}` without a value becomes."""
    # For people
    title: str = ""
    description: str = ""
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
