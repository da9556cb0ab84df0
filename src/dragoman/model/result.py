"""Results of calls: their parts and sources, and what a call that is not over becomes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence  # noqa: TC003 -- the hints of a noun can be resolved
from typing import Annotated, Any, Literal, Self, cast

from dragoman.errors import DragomanError  # noqa: TC001 -- as above
from dragoman.struct import HIDDEN, Struct, asdict, field, field_names, is_equal


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

    `McpManager.apps.open` reads it, and gives a proxy through which it may call its own server.
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
    """A call that its server goes on with after its answer; `mcp.tasks.resume` waits for its result."""

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
        """Read a continuation; `McpManager.tasks.resume` checks its signature.

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
