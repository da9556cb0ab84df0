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
    last_error: str | None
    error_code: str | None
    login_url: str
    retry_in: float | None
    crash_loop: bool
    origin: dict[str, Any]
    """The file, line and scope of its definition, as in `config show`."""


class StatusReport(TypedDict):
    """`dragoman status --json`."""

    connected: bool
    """Whether servers were connected for this, which `--no-connect` prevents."""
    servers: list[StatusShape]
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


class DoctorReport(TypedDict):
    """`dragoman doctor --json`."""

    ok: bool
    servers: list[ExaminationShape]
    problems: list[dict[str, Any]]
    """What is wrong in configuration files, as in `config check`."""


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


class TrustReport(TypedDict):
    """`dragoman trust show --json`; `approve` and `revoke` print the servers that they changed."""

    servers: list[ApprovalShape]


class LoginReport(TypedDict):
    """`dragoman login --json` and `logout --json`."""

    server: str
    logged_in: bool
    changed: bool
