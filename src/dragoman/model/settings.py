"""What the configuration says beside its servers, file by file and merged.

As in `server`, annotations are no texts here.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from dragoman.errors import DragomanError
from dragoman.model.keys import Key
from dragoman.model.server import ServerSpec
from dragoman.struct import Struct, field, is_equal


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
    connected: str = "{server}: connected with {tools}"
    """The line of the log when a server is connected: `{tools}` is `2 tools`, `{count}` the number."""
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
    enabled: Annotated[bool, Key("the global switch; when off, no server is started")] = True
    auto_reload: Annotated[bool, Key("apply changes of the files at once")] = False
    call_log: Annotated[
        bool | None,
        Key(
            "keep calls and the stderr of servers for `dragoman calls` and `dragoman logs`: "
            "[what is kept](trust.md#what-is-kept)",
            unless_given="the terminal program keeps them, the library does not",
        ),
    ] = None
    approvals: Annotated[
        Literal["inbox", "off"] | None,
        Key(
            "where a call waits that a rule asks about: in the [inbox](approvals.md), or nowhere (`off`); it "
            "is then denied if no person can be asked",
            unless_given="`inbox` for `serve`, the daemon and the session, `off` for the library",
        ),
    ] = None
    approval_timeout: Annotated[
        float, Key("seconds after which a call that nobody has answered is denied", unit="s")
    ] = 600.0
    approval_webhook: Annotated[
        Mapping[str, str] | None,
        Key(
            "`address`, `secret` and `public_url`: the [webhook](approvals.md#a-webhook) that is told of "
            "each call that waits",
            mask="value",
            is_users_own=True,
        ),
    ] = None
    daemon: Annotated[
        bool, Key("commands start a [daemon](how-to/daemon.md) that keeps the servers running")
    ] = False
    health_check_interval: Annotated[float, Key("seconds between probes of an idle connection", unit="s")] = (
        30.0
    )
    naming: Annotated[
        str, Key("the scheme of the tools' names, such as `{server}__{tool}`", contains="{tool}")
    ] = "mcp_{server}_{tool}"
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
    policy: Annotated[
        Sequence[Statement],
        Key(
            "which calls are allowed, asked about or denied: [policy](configuration.md#policy)",
            layers="every",
        ),
    ] = ()
    """The rules of every file, the strongest file first; `trust.policy` reads them."""
    limits: Annotated[
        Sequence[Statement],
        Key("how much servers may send: [limits](configuration.md#limits)", layers="every"),
    ] = ()
    """The limits of every file, the strongest file first; `trust.limits` reads them."""
    toolsets: Annotated[
        Sequence[Statement],
        Key("named selections of tools: [toolsets](configuration.md#toolsets)", layers="every"),
    ] = ()
    """The toolsets of every file, the strongest file first; `trust.toolsets` reads them."""
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
