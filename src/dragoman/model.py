"""The data model: servers and their states, tools, resources, prompts, and results of calls.

All are frozen dataclasses with no behaviour beyond small properties. Text that may contain `${…}` is a
template: it is kept as written and expanded when a connection is opened (`config/templates.py`). Fields that
may contain a literal secret are left out of every `repr`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeAlias, TypedDict, cast

from dragoman.errors import DragomanError
from dragoman.struct import HIDDEN, Struct, asdict, field, field_names, force_setattr, is_equal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

# ── Resources, prompts, results of calls, and the application's handlers


class Part(Struct, kw_only=True):
    """One piece of a result: a text, an image, a sound, a link, a resource, or data."""

    kind: Literal["text", "image", "audio", "link", "resource", "structured"]
    text: str = ""
    """The text itself, or what stands for the piece where only text can go."""
    data: bytes = b""
    mime_type: str = ""
    uri: str = ""
    value: Any = None
    """Structured data."""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __repr__(self) -> str:
        # Only the fields that are set, and never the bytes of an image.
        shown = {"data": f"<{len(self.data):,} bytes>"}
        names = (
            name
            for name in field_names(self)
            if name == "kind" or getattr(self, name) not in ("", b"", None, {})
        )
        return (
            f"Part({', '.join(f'{name}={shown.get(name) or repr(getattr(self, name))}' for name in names)})"
        )


class Resource(Struct, kw_only=True):
    """Something that a server lets be read, or a template for many such things."""

    server: str
    uri: str
    """Its address; that of a template has `{…}` in it."""
    name: str = ""
    title: str = ""
    description: str = ""
    mime_type: str = ""
    size: int | None = None
    """Its size in bytes, if the server says."""
    is_template: bool = False
    annotations: Mapping[str, Any] = field(default_factory=dict[str, Any])
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Its `_meta`, as the server sent it."""


class SkillFile(Struct, kw_only=True):
    """A file of a skill, as its server lists it."""

    uri: str
    digest: str
    """`sha256:` and 64 hexadecimal digits."""
    size: int


class Skill(Struct, kw_only=True):
    """Instructions for agents that a server publishes; its identity is its server and its URI."""

    server: str
    uri: str
    """The URI of its `SKILL.md`."""
    name: str
    """A label; several skills may have the same."""
    description: str = ""
    frontmatter: Annotated[Mapping[str, Any], HIDDEN] = field(default_factory=dict[str, Any])
    files: Annotated[Sequence[SkillFile], HIDDEN] = ()
    is_dynamic: bool = False
    """Whether its files are made on demand and cannot be verified."""
    is_approved: bool = False
    """Whether the user has approved it with exactly these files."""
    problem: str = ""
    """Why it cannot be used; empty if it can."""

    @property
    def root(self) -> str:
        """The URI of its folder."""
        return self.uri.removesuffix("/SKILL.md")


class Prompt(Struct, kw_only=True):
    """A message, or several, that a server has prepared for a person to use."""

    server: str
    name: str
    title: str = ""
    description: str = ""
    arguments: Sequence[Mapping[str, Any]] = ()
    """What it takes: name, description, whether it is required."""


ProgressHandler: TypeAlias = "Callable[[float, float | None, str | None], Any]"
"""Given progress, total and message as a server reports them; may be async."""
Handler: TypeAlias = "Callable[[str, dict[str, Any]], Any]"
"""Given a server's name and its request; returns the answer, or an awaitable of it."""
RootsProvider: TypeAlias = "Callable[[str], Sequence[str] | None]"
"""Given a server's name; returns URIs, or nothing if the server is not to know that there are any."""
ApprovalHandler: TypeAlias = "Callable[[CallRequest], bool | Awaitable[bool]]"
"""Given a call that a policy wants confirmed; returns whether it may be made, or an awaitable of that."""
Audience: TypeAlias = Literal["model", "app"]
"""Who calls a tool: a model, or the app of the tool's own server."""
HeaderProvider: TypeAlias = "Callable[[str], Mapping[str, str] | Awaitable[Mapping[str, str]]]"
"""Given a server's name; returns headers, or an awaitable of them."""


class CallRequest(Struct, kw_only=True):
    """A call, or a look at a resource or a prompt, that a person has to confirm before it is made."""

    server: str
    """Empty for a built-in tool."""
    tool: str
    """The exposed name; the address of a resource, or the name of a prompt."""
    original_name: str
    """What the server calls it, which is what rules are about."""
    arguments: Annotated[Mapping[str, Any], HIDDEN]
    """As they will be sent; a copy: what is changed in it is not sent."""
    kind: Literal["tool", "resource", "prompt", "skill"] = "tool"
    rule: str = ""
    """The rule that wants it confirmed; empty where the policy's default does."""
    reason: str = ""
    """What the rule says about itself."""
    user: str = ""
    """Whose call it is, in a program with many users."""


class Handlers(Struct, kw_only=True):
    """What the application answers when a server asks, or a policy."""

    sampling: Handler | None = None
    """Gets the parameters of `sampling/createMessage`; returns its result: role, content, model."""
    elicitation: Handler | None = None
    """Gets the parameters of `elicitation/create`; returns `{"action": "accept", "content": {…}}`."""
    elicitation_complete: Handler | None = None
    """Gets the parameters of `notifications/elicitation/complete`: a person is done at an address."""
    roots: Sequence[str] | RootsProvider | None = None
    """The URIs of the directories that servers may look at, or what gives them."""
    list_roots: Handler | None = None
    """Answers `roots/list` itself, in place of `roots`: returns `{"roots": [{"uri": …}]}`."""
    logging: Handler | None = None
    """Gets each log message: level, logger, data."""
    headers: HeaderProvider | None = None
    """Gives more headers for each HTTP request."""
    approval: ApprovalHandler | None = None
    """Asks a person whether a call may be made; without it what would be asked is denied. No deadline runs
    meanwhile, and a plain function is run in a thread."""
    durable_questions: bool = False
    """Whether to tell servers that questions can be answered although `elicitation` is not set: calls with
    `on_input="return"` hand them to the caller."""
    login: Handler | None = None
    """Gets `{"url": …}`, which a person has to open to log in; may return the address it ended at. For a
    user of `as_user`, `user` says who has to."""


MAX_USER_CHARS = 1024
"""Of the id of a user."""


class UserLimits(Struct, kw_only=True):
    """How many users of one program have connections at a time; see `McpManager.as_user`."""

    open: int = 200
    """How many users may be connected. The one who was idle for longest makes room for the next; who is busy
    is never disconnected."""
    idle: float = 600.0
    """Seconds without use after which a user is disconnected."""
    alone: bool = False
    """Whether servers run for users alone: the manager itself starts none."""

    def __post_init__(self) -> None:
        if self.open < 1 or self.idle <= 0:
            msg = "`open` is at least 1, and `idle` is more than 0 seconds"
            raise ValueError(msg)


class UserStatus(Struct, kw_only=True):
    """A user of a program, as `McpManager.users` shows it."""

    user: str
    is_open: bool
    """Whether the user may have connections."""
    is_waiting: bool
    """Whether the user waits for others to make room."""
    idle: float | None
    """Seconds since the user was last active; `None` for one who is not connected."""


class LoginUI(Struct, kw_only=True):
    """How the caller of `login()` reaches the person who logs in."""

    open_url: Callable[[str], Any] | None = None
    """Gets the address to open; may be async. If it returns an address, that counts as pasted."""
    paste: Callable[[], Awaitable[str]] | None = None
    """Asks for the address that the browser ended at. An error that it raises ends the login."""
    on_refused: Callable[[str], Any] | None = None
    """Gets the reason why a pasted address cannot be used, before `paste` is called again."""


class SourceRef(Struct, kw_only=True):
    """Where a piece of an answer comes from, and how fresh it is."""

    title: str
    locator: str = ""
    url: str = ""
    updated: str = ""


class Provenance(Struct, kw_only=True):
    """Which server and tool an answer comes from, when, and on which sources it rests."""

    server: str
    tool: str
    server_version: str = ""
    at: float = 0.0
    """Seconds since the epoch, when the answer came."""
    sources: Sequence[SourceRef] = ()


class App(Struct, kw_only=True):
    """The user interface that a server has for one of its tools, for a front end to show in a sandbox.

    `McpManager.open_app` reads it, and gives a proxy through which it may call its own server.
    """

    server: str
    uri: str
    """The `ui://` resource that holds the page."""
    tool: str = ""
    """The server's own name of the tool that was called."""
    html: Annotated[str, HIDDEN] = ""
    """The page; empty until it is read."""
    csp: Mapping[str, Sequence[str]] = field(default_factory=dict[str, "Sequence[str]"])
    """The origins that the page may reach: `connectDomains`, `resourceDomains`, `frameDomains` and
    `baseUriDomains`. Entries that are not plain origins are left out."""
    permissions: Sequence[str] = ()
    """What the page asks the browser for: `camera`, `microphone`, `geolocation`, `clipboardWrite`."""
    domain: str = ""
    """The origin that the page asks to run under; a front end may ignore it."""
    prefers_border: bool | None = None

    def content_security_policy(self) -> str:
        """Return the header value that lets the page reach the declared origins and nothing else."""
        resources = " ".join(self.csp.get("resourceDomains", ()))
        inline = f"'self' 'unsafe-inline' {resources}".strip()
        media = f"'self' data: {resources}".strip()
        rules = {
            "default-src": "'none'",
            "script-src": inline,
            "style-src": inline,
            "img-src": media,
            "font-src": media,
            "media-src": media,
            "connect-src": " ".join(self.csp.get("connectDomains", ())) or "'none'",
            "frame-src": " ".join(self.csp.get("frameDomains", ())) or "'none'",
            "object-src": "'none'",
            "base-uri": " ".join(self.csp.get("baseUriDomains", ())) or "'none'",
        }
        return "; ".join(f"{name} {value}" for name, value in rules.items())


class Task(Struct, kw_only=True):
    """A call that its server goes on with after its answer; `McpManager.resume` waits for the result."""

    id: str
    """Our own id; it is not a secret."""
    server: str
    tool: str
    """The exposed name."""
    status: str = "working"
    """`working`, `input_required`, `completed`, `failed` or `cancelled`, when the server last said it."""
    message: str = ""
    """What the server says about it."""
    created: float = 0.0
    """Seconds since the epoch."""
    ttl: float | None = None
    """Seconds after which the server may drop it; `None` for never."""


class Continuation(Struct, kw_only=True):
    """A call that waits for a person: everything needed to go on with it, in any process of the same user.

    It holds the arguments of the call: store it where you would store those. It is signed, and can be used
    once.
    """

    id: str
    server: str
    server_key: str
    """The fingerprint of the server's entry."""
    tool: str
    """The exposed name."""
    arguments: Annotated[Mapping[str, Any], HIDDEN]
    questions: Mapping[str, Mapping[str, Any]]
    """The parameters of `elicitation/create` by key, in the order in which the server asks."""
    state: Annotated[str | None, HIDDEN] = None
    """The server's own state, which is sent back unchanged."""
    answers: Annotated[Mapping[str, Any], HIDDEN] = field(default_factory=dict[str, Any])
    """The answers that are known already."""
    meta: Annotated[Mapping[str, Any] | None, HIDDEN] = None
    signature: Annotated[str, HIDDEN] = ""

    @property
    def open_questions(self) -> list[str]:
        """The keys of the questions without an answer, in order."""
        return [key for key in self.questions if key not in self.answers]

    def to_json(self) -> str:
        """Return the continuation as a text that `from_json` reads."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a continuation; `McpManager.resume` checks its signature.

        Raises:
            ValueError: The text is not a continuation.
        """
        raw: object = json.loads(text)
        if not isinstance(raw, dict):
            msg = "not a continuation"
            raise ValueError(msg)  # noqa: TRY004 -- it is about the text
        try:
            return cls(**cast("dict[str, Any]", raw))
        except TypeError as exc:
            msg = "not a continuation"
            raise ValueError(msg) from exc


class ToolResult(Struct, kw_only=True):  # noqa: PLW1641 -- its mappings have no hash
    """What a call gave, whether it went well or not."""

    success: bool
    text: str = ""
    """Everything as one string, for a model or a terminal."""
    error: str | None = None
    exception: DragomanError | None = None
    """The typed error of a failed call."""
    structured: Any = None
    parts: Sequence[Part] = ()
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    provenance: Provenance | None = None
    duration: float = 0.0
    call_id: str = ""
    app: App | None = None
    """The tool's user interface, if it has one."""
    task: Task | None = None
    """The task that the call has become, if the caller did not want to wait."""
    input_required: Continuation | None = None
    """What the server asks a person, if the caller wanted to have the questions itself."""
    raw: Annotated[Mapping[str, Any] | None, HIDDEN] = None
    """The server's own answer to a call that was forwarded for another client; it has no parts then."""

    @property
    def output(self) -> str:
        """The text of a call that went well, else nothing."""
        return self.text if self.success else ""

    def __eq__(self, other: object) -> bool:
        return is_equal(self, other, ignored="raw")

    def raise_for_error(self) -> ToolResult:
        """Raise the call's error, if it has one; else return the result itself."""
        if self.exception is not None:
            raise self.exception
        return self

    def _repr_html_(self) -> str:
        """Show the result in a notebook: its text or table, its images, its sources."""
        from dragoman.display import result_html  # Only notebooks need it.

        return result_html(self)


# ── Servers, settings, states and tools


__all__ = [
    "ATTRIBUTION_KEYS",
    "CODE",
    "DEFAULT_CALL_TIMEOUT",
    "DEFAULT_CONNECT_TIMEOUT",
    "App",
    "ApprovalHandler",
    "Audience",
    "Auth",
    "CallRequest",
    "Continuation",
    "Handler",
    "Handlers",
    "HeaderProvider",
    "Http",
    "Input",
    "JsonObject",
    "Layers",
    "Note",
    "Origin",
    "Part",
    "ProgressHandler",
    "Prompt",
    "Provenance",
    "ReadyReport",
    "Resource",
    "ServerSpec",
    "ServerState",
    "ServerStatus",
    "Settings",
    "Skill",
    "SkillFile",
    "Source",
    "SourceRef",
    "Sse",
    "Statement",
    "Stdio",
    "Task",
    "Timeouts",
    "Tls",
    "ToolDef",
    "ToolResult",
    "Transport",
    "UserLimits",
    "UserStatus",
]
"""The public names of the data model."""

JsonObject: TypeAlias = dict[str, Any]


def json_object(value: object) -> JsonObject:
    """Return a value out of a JSON text if it is an object, and an empty one if it is something else."""
    return cast("JsonObject", value) if isinstance(value, dict) else {}


DEFAULT_CONNECT_TIMEOUT = 30.0
DEFAULT_CALL_TIMEOUT = 30.0
ATTRIBUTION_KEYS = ("source", "title", "locator", "url", "updated")

_SCHEMAS = ("input_schema", "output_schema")


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
    # The connection
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


class Input(Struct, kw_only=True):
    """A value that a person is asked for when a connection needs it (`${input:id}`)."""

    id: str
    description: str = ""
    secret: bool = False
    default: str | None = None
    choices: Sequence[str] = ()
    scope: Literal["session", "local", "project", "user", "system", "code"] = "code"
    """Whose file asks for it; a project's input is for the project's servers alone."""


class Source(Struct, kw_only=True):
    """A place where configuration was looked for, and what was found there."""

    path: str
    """The file's path, or what stands for it: `environment`."""
    dialect: str
    scope: Literal["session", "local", "project", "user", "system", "code"]
    status: Literal["absent", "loaded", "hidden", "broken"]
    """`hidden`: it exists, but a nearer file is the only one that this profile reads."""
    servers: int = 0


class Statement(Struct, kw_only=True):  # noqa: PLW1641 -- what a file says has no hash
    """What one file says about one matter beside its servers: a switch, a list, a policy, limits."""

    source: str
    scope: Literal["session", "local", "project", "user", "system", "code"]
    data: Any
    """As it stands in the file."""
    key: str = ""
    """The matter, by the name that it has in `Settings`; also `only_servers` and `without_servers`."""
    pointer: str = ""
    line: int | None = None
    rule_lines: Sequence[int | None] = ()
    """Of a policy: the line of each rule."""

    def __eq__(self, other: object) -> bool:
        return is_equal(self, other, ignored="rule_lines")


class Texts(Struct, kw_only=True):
    """The words for what users and a model read; an application may have its own.

    The words for models and readers, from `sources` on, are in the language of `Settings.language`.
    """

    image: str = ""
    """What stands for an image in the text of a result; the image itself stays in `result.parts`."""
    resource: str = ""
    """What stands for an embedded resource."""
    call_failed: str = ""
    """The error of a call that got no answer; `{error}` is the reason."""
    connected: str = "{server}: connected with {count} tools"
    """The line of the log when a server is connected; `{server}` is its name, `{count}` its tools."""
    loaded: str = ""
    """A second line after that one."""
    not_connected: str = "{server}: {error}"
    """The line of the log when a server could not be connected."""
    not_listed: str = "{server}: {error}"
    """The line of the log when a connected server could not list its tools."""
    closed: str = "{server}: closed"
    """The line of the log when a server that was connected is closed."""
    sources: str = "Sources:"
    """The line above the sources of a result."""
    updated: str = "(updated {date})"
    """How fresh a source is."""
    undated: str = "(date unknown)"
    answered_by: str = "[answered by `{name}`, since `{server}` is not available]"
    """The first line of a result that a fallback gave."""
    server_lost: str = "server `{server}` is not available{reason}; its tools may fail until it is back"
    """The notice for a model; `{reason}` begins with a colon, or is empty."""
    server_back: str = "server `{server}` is available again"
    tools_changed: str = "the tools of server `{server}` have changed ({changes})"
    tools_added: str = "new: {names}"
    tools_removed: str = "gone: {names}"
    tools_altered: str = "changed: {names}"
    more_names: str = "{names} and {count} more"


class Layers(Struct, kw_only=True):
    """What the files say, before it is decided what of a project's is in effect."""

    servers: Sequence[ServerSpec] = ()
    """As they are with the project's files."""
    own: Sequence[ServerSpec] = ()
    """As they are without them."""
    statements: Sequence[Statement] = ()
    """Every setting of every file, the strongest file first."""
    naming: str = "mcp_{server}_{tool}"
    first_only: bool = False
    """Whether the first file hides all others."""
    problems: Sequence[DragomanError] = ()
    warnings: Sequence[DragomanError] = ()


class Settings(Struct, kw_only=True):
    """Everything that the configuration says, merged."""

    servers: Sequence[ServerSpec] = ()
    enabled: bool = True
    """The global switch; when off, no server is started."""
    auto_reload: bool = False
    call_log: bool | None = None
    """Whether calls and stderr are kept; if no file says, the program does and the library does not."""
    daemon: bool = False
    """Whether commands of the terminal start a daemon that keeps the servers running."""
    health_check_interval: float = 30.0
    naming: str = "mcp_{server}_{tool}"
    collisions: Literal["rename", "skip"] = "rename"
    """An exposed name that tools of several servers want: each gets an unambiguous one instead, or the server
    that is configured first has it and the others' tools are left out."""
    sources_in_text: bool = False
    """Whether the text of a result ends with its sources, for servers that do not say."""
    texts: Texts = field(default_factory=Texts)
    language: str = ""
    """The language of notices and notes: `en` or `zh`; that of the locale unless given."""
    failure_level: Literal["error", "warning"] = "error"
    """The level of the log for a server that fails; quieter while it fails in the same way."""
    inputs: Sequence[Input] = ()
    policy: Sequence[Statement] = ()
    """Which calls are allowed, asked about or denied, the strongest file first; `trust.policy` reads it."""
    limits: Sequence[Statement] = ()
    """How much servers may send or get, the strongest file first; `trust.limits` reads it."""
    by_field: bool = False
    """Whether a weaker file fills in what a stronger one leaves out of a server."""
    profile: str = "dragoman"
    root: str = ""
    """The project's directory, which relative paths and `${workspaceFolder}` refer to."""
    sources: Sequence[Source] = ()
    problems: Sequence[DragomanError] = ()
    """Everything that could not be used; each is a `ConfigError` with its place."""
    warnings: Sequence[DragomanError] = ()
    """Keys that have no effect and were probably meant as others; each is a `ConfigError` with its place."""
    layers: Layers | None = None
    """What each file says, until `trust.layers.effective` has decided what of a project's counts."""
    unapproved: Sequence[ServerSpec] = ()
    """A project's definitions that are not in effect, because the user's own of that name serves instead."""
    project: Sequence[Statement] = ()
    trusts_project: bool = False
    """Whether the settings in `project` are in effect; else only what is stricter in them is."""

    def server(self, name: str) -> ServerSpec | None:
        """Return the server of that name, if there is one."""
        return next((spec for spec in self.servers if spec.name == name), None)


class ServerState(StrEnum):
    """Where a server is in its life."""

    IDLE = "idle"
    CONNECTING = "connecting"
    READY = "ready"
    DEGRADED = "degraded"
    BACKOFF = "backoff"
    NEEDS_AUTH = "needs_auth"
    FAILED = "failed"
    CLOSED = "closed"


class ServerStatus(Struct, kw_only=True):
    """A reading of one server at one moment."""

    name: str
    state: ServerState
    transport: str
    """`stdio`, `http` or `sse`: what is in use, or what is configured while nothing is."""
    protocol_version: str | None = None
    server_name: str | None = None
    """What the server calls itself; for show only."""
    server_version: str | None = None
    pid: int | None = None
    tools: int = 0
    last_error: str | None = None
    error_code: str | None = None
    """The stable code of the last error."""
    error: Annotated[DragomanError | None, HIDDEN] = None
    """The last error itself, with its fields."""
    login_url: Annotated[str, HIDDEN] = ""
    """The address that a person has to open, while the server waits for that."""
    retry_in: float | None = None
    """Seconds until the next try to connect, where one is planned."""
    crash_loop: bool = False
    """Whether it failed so often that it is tried once a minute only."""
    origin: Origin = CODE

    def __eq__(self, other: object) -> bool:
        return is_equal(self, other, ignored="error")

    def __hash__(self) -> int:
        return hash((self.name, self.state, self.last_error))


class ReadyReport(Struct, kw_only=True):
    """Which servers are ready, and why others are not; true if all of them are."""

    ready: Sequence[str] = ()
    not_ready: Mapping[str, str] = field(default_factory=dict[str, str])
    """The reason, by the name of the server."""

    def __bool__(self) -> bool:
        return not self.not_ready

    def __str__(self) -> str:
        if not self.not_ready:
            return f"{len(self.ready)} of {len(self.ready)} servers ready"
        count = f"{len(self.ready)} of {len(self.ready) + len(self.not_ready)} servers ready"
        return "; ".join([count, *(f"`{name}`: {why}" for name, why in self.not_ready.items())])


class RemoteTool:
    """The way to a server's tool; its method `call` is the tool's `func`.

    It finds the tool by server and own name, so it follows the tool when its exposed name changes. A pickled
    or deep copy has lost its manager and says so when it is run.
    """

    __slots__ = ("_run", "server", "tool")

    def __init__(self, server: str, tool: str, run: Callable[..., Any] | None = None) -> None:
        """Run a tool with `run(server, tool, arguments, timeout=…)`, which may be async."""
        self.server = server
        self.tool = tool
        self._run = run

    def execute(self, arguments: Mapping[str, Any] | None, *, timeout: float | None = None) -> Any:
        """Return what `run` returns: a result, or a coroutine of one."""
        if self._run is None:
            msg = f"tool `{self.tool}` of server `{self.server}` is a copy without a manager"
            raise DragomanError(msg, hint="take the tool from `mcp.tools()`, or use `mcp.call`")
        return self._run(self.server, self.tool, arguments, timeout=timeout)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.server!r}, {self.tool!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.server, self.tool)


class ToolDef(Struct, kw_only=True):  # noqa: PLW1641 -- its schemas have no hash
    """One tool as an agent sees it."""

    name: str
    """The exposed name: what the model says."""
    description: str
    input_schema: JsonObject
    func: Callable[..., Awaitable[Any]] | Callable[..., Any] | None = None
    """Runs the tool; takes its arguments as keywords. A server's tool that a manager offers has one too: it
    calls the tool through the manager, returns the text, and raises `ToolExecutionError`. It is async, or
    blocks if the manager is from `dragoman.blocking`."""
    server: str = ""
    original_name: str = ""
    """What the server calls it."""
    title: str = ""
    output_schema: JsonObject | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict[str, Any])
    source: Literal["builtin", "mcp"] = "mcp"
    """Where it runs: in this process (always, if it has a `func` and no `server`), or on its server."""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Its `_meta`, as the server sent it."""
    _schemas: Annotated[str, HIDDEN] = ""
    """Both schemas as JSON, until one of them is asked for."""

    def __post_init__(self) -> None:
        if self.func is not None and not self.server:
            force_setattr(self, "source", "builtin")

    def execute(
        self, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> Coroutine[Any, Any, ToolResult]:
        """Run a server's tool like `McpManager.call`: by the same rules, and a failed call is a result.

        A tool of `dragoman.blocking` returns the result itself, without `await`.

        Args:
            arguments: The tool's arguments.
            timeout: Seconds; by default the server's `timeouts.call`.

        Raises:
            DragomanError: The manager is not started, or closed; or no manager offers the tool.
        """
        remote = getattr(self.func, "__self__", None)
        if isinstance(remote, RemoteTool):
            return remote.execute(arguments, timeout=timeout)
        if self.source == "builtin":
            msg, hint = f"`{self.name}` is a built-in tool", f"use `await mcp.call({self.name!r}, …)`"
        else:
            msg, hint = f"no manager offers the tool `{self.name}`", "take the tool from `mcp.tools()`"
        raise DragomanError(msg, hint=hint)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ToolDef) or other.__class__ is not self.__class__:
            return NotImplemented
        return _compared(self) == _compared(other)

    @classmethod
    def undecoded(cls, schemas: str, **fields: Any) -> Self:
        """Make a tool whose two schemas, a JSON array, are decoded at their first use."""
        tool = cls(input_schema={}, **fields)
        force_setattr(tool, "_schemas", schemas)
        tool.unset_schemas()
        return tool

    def unset_schemas(self) -> None:
        """Leave both schemas to `__getattr__`, which decodes them when one is asked for."""
        for name in _SCHEMAS:
            getattr(ToolDef, name).__delete__(self)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values for some fields."""
        return super(ToolDef, self._decoded()).replace(**changes)

    def __copy__(self) -> Self:
        return super(ToolDef, self._decoded()).replace()

    def __reduce__(self) -> str | tuple[Any, ...]:
        return super(ToolDef, self._decoded()).__reduce__()

    def _decoded(self) -> Self:
        # What `msgspec` does with a struct reads its fields without `__getattr__`.
        _ = self.input_schema, self.output_schema
        return self

    @property
    def audience(self) -> Sequence[str]:
        """Who may call it: a model, the server's own app, or both."""
        ui = self.meta.get("ui") if self.meta else None
        if not isinstance(ui, dict) or "visibility" not in ui:
            return ("model", "app")
        visibility: object = cast("dict[str, object]", ui)["visibility"]
        named = cast("list[object]", visibility) if isinstance(visibility, list) else []
        return tuple(one for one in ("model", "app") if one in named)

    @property
    def app_uri(self) -> str:
        """The `ui://` resource that shows its results; empty if it has none."""
        ui = self.meta.get("ui") if self.meta else None
        found = cast("dict[str, object]", ui).get("resourceUri") if isinstance(ui, dict) else None
        # The flat key is the older form.
        found = found or (self.meta.get("ui/resourceUri") if self.meta else None)
        return found if isinstance(found, str) and found.startswith("ui://") else ""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name not in _SCHEMAS:
                msg = f"{type(self).__name__!r} object has no attribute {name!r}"
                raise AttributeError(msg, name=name, obj=self)
            for key, schema in zip(_SCHEMAS, json.loads(self._schemas), strict=True):
                force_setattr(self, key, schema)
            return getattr(self, name)


def _compared(tool: ToolDef) -> tuple[object, ...]:
    """Return what makes two tools equal; the way to a server's tool is not part of its definition."""
    return (
        tool.name,
        tool.server,
        tool.original_name,
        tool.source,
        tool.description,
        tool.title,
        tool.meta,
        tool.input_schema,
        tool.output_schema,
        tool.annotations,
        tool.func if tool.source == "builtin" else None,
    )
