"""The shapes of what `--json` prints: documented, checked, and kept from one version to the next.

Keys are added, never renamed or taken away. Durations are seconds. `docs/cli.md` is written from here.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class ErrorShape(TypedDict):
    """What went wrong."""

    code: str
    """Stable, as `server.connect` or `tool.timeout`; decide by this."""
    message: str
    """For people."""
    hint: str
    """What to do about it; may be empty."""
    problems: NotRequired[list[str]]
    """Each thing that is wrong, where there may be many: arguments that do not fit, keys of an entry."""


class FailureShape(TypedDict):
    """What any command prints that could not do its work at all."""

    error: ErrorShape


class StatusShape(TypedDict):
    """One server of `status`."""

    name: str
    state: str
    """`idle`, `connecting`, `ready`, `degraded`, `backoff`, `needs_auth`, `failed` or `closed`."""
    enabled: bool
    transport: str
    """`stdio`, `http` or `sse`."""
    protocol_version: str | None
    era: Literal["legacy", "modern"] | None
    """The protocol's generation: `modern` is 2026-07-28 and later."""
    server_name: str | None
    """What the server calls itself."""
    server_version: str | None
    pid: int | None
    tools: int | None
    """How many tools it has; null if that is not known."""
    latency: float | None
    """Seconds that one request to the connected server took, and its answer; null without one."""
    logged: LoggedShape | None
    """Its calls of the last seven days, where calls are written down."""
    last_error: str | None
    error_code: str | None
    login_url: str
    retry_in: float | None
    crash_loop: bool
    origin: dict[str, Any]
    """The file, line and scope of its definition, as in `config show`."""


class UnapprovedShape(TypedDict):
    """A project's definition that is not approved."""

    name: str
    origin: dict[str, Any]


class StatusReport(TypedDict):
    """`dragoman status --json`."""

    connected: bool
    """Whether servers were connected for this, which `--no-connect` prevents."""
    servers: list[StatusShape]
    unapproved: list[UnapprovedShape]
    """A project's definitions that are not in effect, because yours of the same name serves."""
    problems: int
    """How many problems the configuration has; `config check` shows them."""


class ToolShape(TypedDict, total=False):
    """One tool of `tools`; the schemas are there with `--schema`, the tokens with `--tokens`."""

    name: str
    """The exposed name: what a model says."""
    tool: str
    """What the server calls it."""
    title: str
    description: str
    signature: str
    annotations: dict[str, Any]
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    tokens: int


class ServerToolsShape(TypedDict, total=False):
    """One server of `tools`."""

    server: str
    source: Literal["cache", "server"] | None
    """Where the list comes from: the last connection, or one made now; null if it is not known."""
    error: ErrorShape | None
    tools: list[ToolShape]
    tokens: int
    """With `--tokens`: about how much of a model's context these tools take."""


class ToolsReport(TypedDict):
    """`dragoman tools --json`."""

    servers: list[ServerToolsShape]


class ExportReport(TypedDict):
    """`dragoman tools --format API --json`; without `--json` it is the array under `tools` alone."""

    api: str
    tools: list[dict[str, Any]]
    """What goes into a request to that API."""
    names: dict[str, str]
    """What the model says, and the exposed name that stands for."""
    left_out: dict[str, str]
    """Tools that the API cannot express, by exposed name, and why."""


class PartShape(TypedDict, total=False):
    """One piece of a result or of a resource."""

    kind: Literal["text", "image", "audio", "link", "resource", "structured"]
    text: str
    mime_type: str
    uri: str
    size: int
    """Bytes, of what is no text."""
    data: str
    """Base64, unless it was saved."""
    file: str
    """Where `--save` put it."""
    value: Any
    """Structured data."""


class CallReport(TypedDict):
    """`dragoman call --json`."""

    server: str
    tool: str
    """The exposed name."""
    success: bool
    text: str
    error: ErrorShape | None
    structured: Any
    parts: list[PartShape]
    sources: list[dict[str, str]]
    """What the answer rests on: title, locator, url, updated."""
    duration: float
    call_id: str


class CallRecordShape(TypedDict):
    """One call of `calls`, and what `calls show` prints."""

    number: int
    """Counts the calls of the log."""
    call_id: str
    at: float
    """Seconds since the epoch, when the call began."""
    server: str
    tool: str
    """The exposed name."""
    duration: float
    error_code: str
    """Empty if it went well."""
    arguments: Any
    """As they were sent, but for what `missing` names."""
    missing: dict[str, str]
    """What of the arguments was not kept, by JSON pointer: `redacted` or `cut`."""
    result: str
    """What the caller was told, masked and cut."""
    result_chars: int
    """How long the result really was."""


class CallsReport(TypedDict):
    """`dragoman calls --json`."""

    file: str
    calls: list[CallRecordShape]


class LoggedShape(TypedDict):
    """The calls of one server that were written down, added up."""

    calls: int
    failed: int
    errors: dict[str, int]
    """How many failed, by code."""
    p50: float | None
    """Seconds that half of the calls took at most; null if none was answered."""
    p95: float | None
    p99: float | None


class ResourceShape(TypedDict):
    """One resource or template of `resources`."""

    server: str
    uri: str
    name: str
    title: str
    description: str
    mime_type: str
    template: bool


class ResourcesReport(TypedDict):
    """`dragoman resources --json`."""

    resources: list[ResourceShape]
    errors: dict[str, str]
    """Servers that could not be asked, and why."""


class ReadReport(TypedDict):
    """`dragoman read --json`."""

    uri: str
    parts: list[PartShape]


class PromptShape(TypedDict):
    """One prompt of `prompts`."""

    server: str
    name: str
    title: str
    description: str
    arguments: list[dict[str, Any]]
    """Name, description, whether it is required."""


class PromptsReport(TypedDict):
    """`dragoman prompts --json`."""

    prompts: list[PromptShape]
    errors: dict[str, str]


class PromptReport(TypedDict):
    """`dragoman prompt --json`."""

    server: str
    name: str
    messages: list[dict[str, Any]]
    """Role and content, as the server gives them."""


class LogsReport(TypedDict):
    """`dragoman logs --json`."""

    server: str
    file: str | None
    """The log file; null if the server was started to see what it says."""
    lines: list[str]


class ChangeShape(TypedDict):
    """One thing that a server offers otherwise than it was pinned."""

    kind: Literal["tool", "prompt", "instructions"]
    name: str
    """What the server calls it; empty for the instructions."""
    what: Literal["added", "removed", "renamed", "changed"]
    before: str
    """The name that it had, where only that changed."""
    withheld: bool
    """Whether it is not offered until it is approved."""
    lines: list[str]
    """The difference, for people: `-` was, `+` is."""


class PinsShape(TypedDict):
    """What is pinned of a server, and what is different now."""

    state: Literal["pinned", "changed", "new", "unknown", "off"]
    """`new`: nothing is pinned yet; `unknown`: what it offers now is not known; `off`: its `trust` is off."""
    tools: int
    prompts: int | None
    """How many are pinned; null if they were never listed."""
    instructions: bool
    files: list[str]
    """The lock files that know it."""
    changes: list[ChangeShape]


class FindingShape(TypedDict):
    """Something in a definition that is worth a look; advice, which blocks nothing."""

    kind: str
    """`override`, `secrecy`, `exfiltration`, `hidden-text`, `look-alike` …"""
    subject: str
    """The tool or the prompt; empty for instructions."""
    field: str
    excerpt: str
    why: str


class PackageShape(TypedDict):
    """The package that a command like `npx` or `uvx` starts."""

    registry: Literal["npm", "pypi"]
    name: str
    version: str | None
    """As the command has it; null where it names none."""
    exact: bool
    """Whether the command starts this version and no other."""
    installed: str | None
    """A version that is known, which need not be the next one to be started."""
    found_in: str
    """Where it is known from: a folder of the runner's, or the word of the server itself."""
    pin: str
    """The command that writes an exact version down; empty where one is named."""


class ReviewShape(TypedDict):
    """What there is to know about trusting one server."""

    server: str
    trust: Literal["warn", "ask", "strict", "off"] | None
    """As its entry has it; without it, it is `ask` where a person can be asked, and `warn` elsewhere."""
    source: Literal["server", "cache"] | None
    """Where its definitions come from: a connection made now, or the last one; null if none are known."""
    pins: PinsShape
    findings: list[FindingShape]
    package: PackageShape | None
    error: ErrorShape | None
    """Why it could not be asked."""


class StageShape(TypedDict):
    """One stage of an examination."""

    stage: str
    """`config`, `approval`, `variables`, `command` or `address`, `start` or `connect`, `handshake`,
    `listing`, `schemas`, `probe`."""
    outcome: Literal["ok", "warning", "failed", "skipped"]
    seconds: float
    detail: str


class ExaminationShape(TypedDict):
    """One server of `doctor`."""

    name: str
    ok: bool
    transport: str
    stages: list[StageShape]
    cause: ErrorShape | None
    exit_code: int | None
    """Of the server's process, where it ended by itself."""
    stderr: list[str]
    """The last lines that the server wrote to its standard error; secrets are masked."""
    hints: list[str]
    review: ReviewShape
    """Advice: it changes neither `ok` nor the exit code."""


class DoctorReport(TypedDict):
    """`dragoman doctor --json`."""

    ok: bool
    servers: list[ExaminationShape]
    problems: list[dict[str, Any]]
    """What is wrong in configuration files, as in `config check`."""
    look_alikes: list[FindingShape]
    """Different names of servers, or of tools of different servers, that look the same."""


class ApprovalShape(TypedDict):
    """One server of `trust show`, `trust approve` and `trust revoke`."""

    server: str
    root: str
    """The project."""
    state: Literal["approved", "changed", "new", "forgotten"]
    """`changed`: approved with other content; `forgotten`: approved, but not configured any more."""
    summary: str
    """What it would run or connect to, secrets masked."""
    approved_at: float | None
    """Seconds since the epoch."""
    changes: list[str]
    """What is not as it was approved."""
    programs: dict[str, str]
    """The path of each program that it would start, by the word that names it."""
    files: list[CoveredShape]
    """The files whose content is part of the approval."""


class CoveredShape(TypedDict):
    """A file, or all files of a folder, as an approval covers them."""

    path: str
    """Relative to the project where it lies in it."""
    sha256: str
    """Of its content; a word such as `absent` where it has none."""
    size: int
    target: str
    """Where it really lies, if a link leads there."""


class TrustReport(TypedDict):
    """`dragoman trust show --json`; `approve` and `revoke` print the servers that they changed."""

    servers: list[ApprovalShape]
    """Those in which a file of the project has a say."""
    reviews: NotRequired[list[ReviewShape]]
    """Of `show` and `approve`: what is known of each server that was asked about."""
    look_alikes: NotRequired[list[FindingShape]]
    """Of `show`: different names that look the same."""
    settings: NotRequired[ApprovalShape | None]
    """The project's settings, as one more approval with an empty name; null where it has none."""


class PinReport(TypedDict):
    """`dragoman trust pin --json`."""

    server: str
    package: PackageShape
    """As it is written before."""
    version: str
    """The exact version."""
    before: str
    """The word of the command that names the package."""
    after: str
    file: str
    written: bool
    needs_approval: bool
    """Whether the new command has to be approved, since it stands in a file of the project."""


class LoginReport(TypedDict):
    """`dragoman login --json` and `logout --json`."""

    server: str
    logged_in: bool
    changed: bool
