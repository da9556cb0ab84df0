"""The shapes of `--json` output, stable across versions.

Keys are added, never renamed or removed. Durations are in seconds. `docs/cli.md` is generated from this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

if TYPE_CHECKING:
    from dragoman.diagnosis.review import Review
    from dragoman.errors import DragomanError
    from dragoman.trust.findings import Finding
    from dragoman.trust.pins import PinChange


class ErrorShape(TypedDict):
    """An error."""

    code: str
    """Stable, e.g. `server.connect` or `tool.timeout`; check this in scripts."""
    message: str
    """The text of the error; may change."""
    hint: str
    """How to fix it; may be empty."""
    problems: NotRequired[list[str]]
    """Details, if there are several: invalid arguments, keys of an entry."""


class FailureShape(TypedDict):
    """The output of a command that failed."""

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
    """The protocol era: `modern` is 2026-07-28 and later."""
    server_name: str | None
    """The name that the server reports."""
    server_version: str | None
    pid: int | None
    tools: int | None
    """The number of tools; null if unknown."""
    latency: float | None
    """The duration of one request in seconds; null without an answer."""
    logged: LoggedShape | None
    """Recorded calls of the last seven days; null without any."""
    cause: str | None
    """Why it is not ready, in one line of at most 100 characters; null if it is, or was not started."""
    next_step: str | None
    """The command to run next; null without a cause."""
    last_error: str | None
    """The error in full."""
    error_code: str | None
    login_url: str
    retry_in: float | None
    crash_loop: bool
    origin: dict[str, Any]
    """The file, line and scope of its definition, as in `config show`."""


class BrokenShape(TypedDict):
    """An entry that cannot be used."""

    name: str
    cause: str
    next_step: str


class UnapprovedShape(TypedDict):
    """A project's definition that is not approved."""

    name: str
    origin: dict[str, Any]


class StatusReport(TypedDict):
    """`dragoman status --json`."""

    connected: bool
    """Whether servers were started; false with `--no-connect`."""
    servers: list[StatusShape]
    broken: list[BrokenShape]
    """Entries of configuration files that describe no server."""
    unapproved: list[UnapprovedShape]
    """Definitions of the project that have no effect, because you have a server with the same name."""
    problems: int
    """The number of problems in the configuration; see `config check`."""


class ToolShape(TypedDict, total=False):
    """One tool of `tools`; `--schema` adds the schemas, `--tokens` the tokens."""

    name: str
    """The exposed name, which a model uses."""
    tool: str
    """The server's own name of the tool."""
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
    """Where the list comes from; null if it is unknown."""
    error: ErrorShape | None
    tools: list[ToolShape]
    tokens: int
    """With `--tokens`: the approximate number of tokens."""


class ApiCostShape(TypedDict):
    """What all tools cost in one model API, in `tools --tokens`."""

    api: str
    tokens: int
    """The approximate number of tokens of all definitions."""
    with_search: int
    """The same if the model gets a search instead."""


class ToolsReport(TypedDict, total=False):
    """`dragoman tools --json`."""

    servers: list[ServerToolsShape]
    apis: list[ApiCostShape]
    """With `--tokens`."""


class FoundShape(TypedDict):
    """One tool that `tools --search` found."""

    name: str
    server: str
    tool: str
    description: str
    signature: str
    weak: bool
    """Whether it probably does not do what was asked for."""


class SearchReport(TypedDict):
    """`dragoman tools --search TEXT --json`."""

    found: list[FoundShape]
    """The best first."""
    missing: list[str]
    """Servers whose tools are not known."""


class ExportReport(TypedDict):
    """`dragoman tools --format API --json`; without `--json` only the array `tools` is printed."""

    api: str
    tools: list[dict[str, Any]]
    """The tools for a request to this API."""
    names: dict[str, str]
    """The exposed name for each name that the model uses."""
    left_out: dict[str, str]
    """Tools that the API does not support, by exposed name, with the reason."""


class StubModuleShape(TypedDict):
    """One file that `dragoman stubs` has written."""

    module: str
    """The name of the Python module, and of the file without `.pyi`."""
    server: str
    functions: dict[str, str]
    """The exposed name of the tool for each function."""


class StubsReport(TypedDict):
    """`dragoman stubs DIR --json`."""

    folder: str
    modules: list[StubModuleShape]


class PartShape(TypedDict, total=False):
    """One part of a result or of a resource."""

    kind: Literal["text", "image", "audio", "link", "resource", "structured"]
    text: str
    mime_type: str
    uri: str
    size: int
    """The size of binary data in bytes."""
    data: str
    """Base64, unless it was saved to a file."""
    file: str
    """The file written by `--save`."""
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
    """The sources of the answer: title, locator, url, updated."""
    duration: float
    call_id: str


class MapReport(TypedDict):
    """`dragoman map --json`."""

    server: str
    tool: str
    """The exposed name."""
    rows: int
    ok: int
    failed: int
    unknown: int
    """Rows that were sent without a recorded answer."""
    open: int
    """Rows without an outcome, which the next run would send."""
    earlier: int
    """Rows whose outcome an earlier run recorded."""
    unknown_rows: list[int]
    """Their numbers, counted from 1."""
    out: str
    journal: str
    seconds: float


class RowProblemShape(TypedDict):
    """A row that cannot be sent."""

    row: int
    problem: str


class MapPlanReport(TypedDict):
    """`dragoman map --dry-run --json`."""

    server: str
    tool: str
    rows: int
    done: int
    """Rows with a recorded outcome."""
    calls: int
    """Calls that the run would make."""
    invalid: int
    problems: list[RowProblemShape]
    """The first of the invalid rows."""
    unknown_rows: list[int]
    repeats_unknown: bool
    """Whether the run would send those again."""
    sample: Any
    """The arguments of the first call."""
    concurrency: int
    rate: float | None
    seconds_per_call: float | None
    """The median of recorded calls; null without any."""
    seconds: float | None
    """The estimated time; null if it is not known."""


class CallRecordShape(TypedDict):
    """One call of `calls`, and what `calls show` prints."""

    number: int
    """The number in the log."""
    call_id: str
    at: float
    """The start of the call, in seconds since the epoch."""
    server: str
    tool: str
    """The exposed name."""
    duration: float
    error_code: str
    """Empty if the call succeeded."""
    arguments: Any
    """As they were sent, without the values listed in `missing`."""
    missing: dict[str, str]
    """Values that were not recorded, by JSON pointer: `redacted` or `cut`."""
    result: str
    """The result, masked and cut."""
    result_chars: int
    """The full length of the result."""


class CallsReport(TypedDict):
    """`dragoman calls --json`."""

    file: str
    calls: list[CallRecordShape]


class LoggedShape(TypedDict):
    """Statistics of the recorded calls of one server."""

    calls: int
    failed: int
    errors: dict[str, int]
    """The number of failed calls, by code."""
    p50: float | None
    """Median duration in seconds; null without answered calls."""
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
    size: int | None
    """In bytes; null if the server does not say."""
    template: bool


class ResourcesReport(TypedDict):
    """`dragoman resources --json`."""

    resources: list[ResourceShape]
    errors: dict[str, str]
    """Servers that could not be queried, with the reason."""


class SkillShape(TypedDict):
    """A skill of a server."""

    server: str
    uri: str
    name: str
    description: str
    files: list[str]
    approved: bool
    problem: str
    """Why it cannot be used; empty if it can."""


class SkillsReport(TypedDict):
    """`dragoman skills --json`."""

    skills: list[SkillShape]
    errors: dict[str, str]
    """Servers that could not be queried, with the reason."""


class TaskShape(TypedDict):
    """A call that a server goes on with."""

    id: str
    server: str
    tool: str
    status: str
    message: str
    created: float
    """Seconds since the epoch."""
    ttl: float | None
    """Seconds after which the server may drop it."""


class TasksReport(TypedDict):
    """`dragoman tasks --json`."""

    tasks: list[TaskShape]


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
    """Name, description, and whether it is required."""


class PromptsReport(TypedDict):
    """`dragoman prompts --json`."""

    prompts: list[PromptShape]
    errors: dict[str, str]


class PromptReport(TypedDict):
    """`dragoman prompt --json`."""

    server: str
    name: str
    messages: list[dict[str, Any]]
    """Role and content, as sent by the server."""


class DaemonProcessShape(TypedDict):
    """A process of a server that the daemon keeps."""

    server: str
    pid: int | None
    users: int
    """How many workspaces share it."""
    calls: int
    """Requests in progress."""


class DaemonWorkspaceShape(TypedDict):
    """What the clients of one folder and configuration share."""

    root: str
    profile: str
    servers: dict[str, dict[str, Any]]
    """By name: `state`, `pid` and `tools` of each server that was used."""


class DaemonReport(TypedDict):
    """`dragoman daemon start|stop|status --json`."""

    running: bool
    pid: NotRequired[int]
    version: NotRequired[str]
    started: NotRequired[bool]
    """`start`: whether this command started it."""
    stopped: NotRequired[bool]
    """`stop`: whether one was running."""
    since: NotRequired[float]
    """`status`, as all below: when it started, in seconds since the epoch."""
    clients: NotRequired[int]
    """How many clients are connected, this command included."""
    served: NotRequired[int]
    idle_seconds: NotRequired[float]
    """After how many seconds without clients it ends."""
    processes: NotRequired[list[DaemonProcessShape]]
    workspaces: NotRequired[list[DaemonWorkspaceShape]]


class LogsReport(TypedDict):
    """`dragoman logs --json`."""

    server: str
    file: str | None
    """The log file; null if the server was started to read its output."""
    lines: list[str]


class ChangeShape(TypedDict):
    """One difference from the pinned definitions."""

    kind: Literal["tool", "prompt", "instructions"]
    name: str
    """The server's own name; empty for the instructions."""
    what: Literal["added", "removed", "renamed", "changed"]
    before: str
    """The old name, if only the name changed."""
    withheld: bool
    """Whether it is blocked until it is approved."""
    lines: list[str]
    """The difference as text: `-` old, `+` new."""


class PinsShape(TypedDict):
    """The pinned definitions of a server, and the differences."""

    state: Literal["pinned", "changed", "new", "unknown", "off"]
    """`new`: nothing is pinned yet; `unknown`: the current definitions are unknown; `off`: `trust` is off."""
    tools: int
    prompts: int | None
    """The number of pinned prompts; null if they were never listed."""
    instructions: bool
    files: list[str]
    """The lock files with pins of this server."""
    changes: list[ChangeShape]


class FindingShape(TypedDict):
    """A suspicious text in a definition; a warning that blocks nothing."""

    kind: str
    """`override`, `secrecy`, `exfiltration`, `hidden-text`, `look-alike` …"""
    subject: str
    """The tool or prompt; empty for the instructions."""
    field: str
    excerpt: str
    why: str


class PackageShape(TypedDict):
    """The package that a command such as `npx` or `uvx` runs."""

    registry: Literal["npm", "pypi"]
    name: str
    version: str | None
    """The version in the command; null without one."""
    exact: bool
    """Whether the command runs exactly this version."""
    installed: str | None
    """A known version; the next start may use another one."""
    found_in: str
    """The source of this version: a folder of the runner, or the server itself."""
    pin: str
    """The command that pins the version; empty if it is pinned."""


class ReviewShape(TypedDict):
    """The trust review of one server."""

    server: str
    trust: Literal["warn", "ask", "strict", "off"] | None
    """As configured; by default `ask` in a terminal, and `warn` elsewhere."""
    source: Literal["server", "cache"] | None
    """Where the definitions come from; null if they are unknown."""
    pins: PinsShape
    findings: list[FindingShape]
    package: PackageShape | None
    error: ErrorShape | None
    """Why the server could not be queried."""


class StageShape(TypedDict):
    """One stage of a diagnosis."""

    stage: str
    """`config`, `approval`, `variables`, `command` or `address`, `start` or `connect`, `handshake`,
    `listing`, `schemas`, `probe`."""
    outcome: Literal["ok", "warning", "failed"]
    seconds: float
    detail: str


class DiagnosisShape(TypedDict):
    """One server of `doctor`."""

    name: str
    ok: bool
    transport: str
    stages: list[StageShape]
    cause: ErrorShape | None
    exit_code: int | None
    """The exit code of the server, if it ended by itself."""
    stderr: list[str]
    """The last stderr lines of the server; secrets are masked."""
    hints: list[str]
    review: ReviewShape
    """Advice; it does not change `ok` or the exit code."""


class FixShape(TypedDict):
    """One change of `dragoman doctor --fix`."""

    server: str
    file: str
    diff: str
    """Masked."""
    written: bool
    """Whether the user agreed, or `--yes` did."""


class DoctorReport(TypedDict):
    """`dragoman doctor --json`."""

    ok: bool
    servers: list[DiagnosisShape]
    problems: list[dict[str, Any]]
    """Problems in configuration files, as in `config check`."""
    look_alikes: list[FindingShape]
    """Names of servers, or of tools of different servers, that look the same."""
    fixes: NotRequired[list[FixShape]]
    """With `--fix`."""


class ApprovalShape(TypedDict):
    """One server of `trust show`, `trust approve` and `trust revoke`."""

    server: str
    root: str
    """The project."""
    state: Literal["approved", "changed", "new", "forgotten"]
    """`changed`: approved with other content; `forgotten`: approved, but not configured."""
    summary: str
    """The command or URL, with secrets masked."""
    approved_at: float | None
    """Seconds since the epoch."""
    changes: list[str]
    """Changes since the approval."""
    programs: dict[str, str]
    """The path of each program that it starts, by the name in the command."""
    files: list[CoveredShape]
    """The files whose content is part of the approval."""


class CoveredShape(TypedDict):
    """A file or folder that is part of an approval."""

    path: str
    """Relative to the project, if it is inside."""
    sha256: str
    """The hash of the content, or a word such as `absent`."""
    size: int
    target: str
    """The target, if it is a link."""


class TrustReport(TypedDict):
    """`dragoman trust show --json`; `approve` and `revoke` print the changed servers."""

    servers: list[ApprovalShape]
    """Servers that are defined or changed by a file of the project."""
    reviews: NotRequired[list[ReviewShape]]
    """Only `show` and `approve`: the review of each server."""
    look_alikes: NotRequired[list[FindingShape]]
    """Only `show`: different names that look the same."""
    settings: NotRequired[ApprovalShape | None]
    """The approval of the project's settings, with an empty name; null without settings."""


class PinReport(TypedDict):
    """`dragoman trust pin --json`."""

    server: str
    package: PackageShape
    """The package before the change."""
    version: str
    """The exact version."""
    before: str
    """The old word in the command."""
    after: str
    file: str
    written: bool
    needs_approval: bool
    """Whether the new command needs approval, because it is in a file of the project."""


class MoveShape(TypedDict):
    """One server of an app into which dragoman is installed."""

    server: str
    outcome: Literal["copied", "known", "kept"]
    """It goes to dragoman, dragoman has it already, or it stays in the app."""
    why: str
    """The reason why it stays."""


class InstallReport(TypedDict):
    """`dragoman install --json`."""

    host: str
    file: str
    """The app's file that gets the gateway."""
    servers: list[MoveShape]
    written: bool


class UndoReport(TypedDict):
    """`dragoman install --undo --json`."""

    host: str
    restored: list[str]
    """The app's files that are as they were before."""


class LoginReport(TypedDict):
    """`dragoman login --json` and `logout --json`."""

    server: str
    logged_in: bool
    changed: bool


# ── Trust reviews as JSON


def review_json(one: Review) -> ReviewShape:
    """Return a review for `--json`."""
    return {
        "server": one.spec.name,
        "trust": one.spec.trust,
        "source": one.offered.source if one.offered else None,
        "pins": _pins_json(one),
        "findings": [finding_json(finding) for finding in one.findings],
        "package": package_json(one),
        "error": _error_json(one.error),
    }


def _error_json(error: DragomanError | None) -> ErrorShape | None:
    return None if error is None else {"code": error.code, "message": error.message, "hint": error.hint}


def finding_json(finding: Finding) -> FindingShape:
    """Return a finding for `--json`."""
    return {
        "kind": finding.kind,
        "subject": finding.subject,
        "field": finding.field,
        "excerpt": finding.excerpt,
        "why": finding.why,
    }


def package_json(one: Review) -> PackageShape | None:
    """Return a server's package for `--json`."""
    from dragoman.diagnosis.review import pin_command

    package = one.package
    if package is None:
        return None
    return {
        "registry": "npm" if package.registry == "npm" else "pypi",
        "name": package.name,
        "version": package.version or None,
        "exact": package.is_pinned,
        "installed": one.version.version if one.version else None,
        "found_in": one.version.where if one.version else "",
        "pin": "" if package.is_pinned else pin_command(one),
    }


def _pins_json(one: Review) -> PinsShape:
    from dragoman.trust.pins import ServerPins

    pins = next(iter(one.known.values()), ServerPins())
    return {
        "state": one.state,
        "tools": len(pins.tools),
        "prompts": None if pins.prompts is None else len(pins.prompts),
        "instructions": pins.instructions is not None,
        "files": [str(path) for path in one.known],
        "changes": [_change_json(one, change) for change in (one.verdict.changes if one.verdict else ())],
    }


def _change_json(one: Review, change: PinChange) -> ChangeShape:
    held = one.verdict is not None and one.verdict.standing(change.name, change.kind) == "withheld"
    return {
        "kind": change.kind,
        "name": change.name,
        "what": change.what,
        "before": change.before,
        "withheld": held and change.what != "removed",
        "lines": one.texts(change)[1:],
    }
