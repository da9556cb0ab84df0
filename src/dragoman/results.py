"""The nouns of what servers give: contents, resources, prompts, results of calls; and of who answers them.

A part of `model.py`, which has them all; frozen like the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence  # noqa: TC003 -- users resolve the fields' type hints
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from dragoman.errors import DragomanError


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Something that a server lets be read, or a template for many such things."""

    server: str
    uri: str
    """Its address; that of a template has `{…}` in it."""
    name: str = ""
    title: str = ""
    description: str = ""
    mime_type: str = ""
    is_template: bool = False
    annotations: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
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
HeaderProvider: TypeAlias = "Callable[[str], Mapping[str, str] | Awaitable[Mapping[str, str]]]"
"""Given a server's name; returns headers, or an awaitable of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """A call, or a look at a resource or a prompt, that a person has to confirm before it is made."""

    server: str
    """Empty for a built-in tool."""
    tool: str
    """The exposed name; the address of a resource, or the name of a prompt."""
    original_name: str
    """What the server calls it, which is what rules are about."""
    arguments: Mapping[str, Any] = field(repr=False)
    """As they will be sent; a copy: what is changed in it is not sent."""
    kind: Literal["tool", "resource", "prompt"] = "tool"
    rule: str = ""
    """The rule that wants it confirmed; empty where the policy's default does."""
    reason: str = ""
    """What the rule says about itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """What the application answers when a server asks, or a policy."""

    sampling: Handler | None = None
    """Gets the parameters of `sampling/createMessage`; returns its result: role, content, model."""
    elicitation: Handler | None = None
    """Gets the parameters of `elicitation/create`; returns `{"action": "accept", "content": {…}}`."""
    roots: Sequence[str] | RootsProvider | None = None
    """The URIs of the directories that servers may look at, or what gives them."""
    logging: Handler | None = None
    """Gets each log message: level, logger, data."""
    headers: HeaderProvider | None = None
    """Gives more headers for each HTTP request."""
    approval: ApprovalHandler | None = None
    """Asks a person whether a call may be made; without it what would be asked is denied. No deadline runs
    meanwhile, and a plain function is run in a thread."""
    login: Handler | None = None
    """Gets `{"url": …}`, which a person has to open to log in; may return the address it ended at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRef:
    """Where a piece of an answer comes from, and how fresh it is."""

    title: str
    locator: str = ""
    url: str = ""
    updated: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Which server and tool an answer comes from, when, and on which sources it rests."""

    server: str
    tool: str
    server_version: str = ""
    at: float = 0.0
    """Seconds since the epoch, when the answer came."""
    sources: Sequence[SourceRef] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
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

    @property
    def output(self) -> str:
        """The text of a call that went well, else nothing."""
        return self.text if self.success else ""

    def raise_for_error(self) -> ToolResult:
        """Raise the call's error, if it has one; else return the result itself."""
        if self.exception is not None:
            raise self.exception
        return self
