"""Events, as frozen data: the only input of listeners, metrics and logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from dragoman.struct import Struct, field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dragoman.errors import DragomanError
    from dragoman.model import PendingApproval, ServerState


class StateChanged(Struct, kw_only=True):
    """A server went from one state to another."""

    server: str
    before: ServerState
    after: ServerState
    reason: str = ""


class ToolsChanged(Struct, kw_only=True):
    """A server's listing differs from what was known of it."""

    server: str
    added: Sequence[str] = ()
    removed: Sequence[str] = ()
    changed: Sequence[str] = ()


class NameContested(Struct, kw_only=True):
    """Tools of several servers have the same or a similar exposed name; none of them gets it."""

    name: str
    """The name, as one of them wants it."""
    server: str = ""
    """Empty: this is about several of them."""
    servers: Sequence[str] = ()
    offered: Sequence[str] = ()
    """The unambiguous names under which the tools are offered instead."""


class DefinitionsChanged(Struct, kw_only=True):
    """A server's tools, prompts or instructions differ from their pins, until the change is approved."""

    server: str
    tools: Sequence[str] = ()
    """The tools in question, as the server calls them; prompts or instructions may have changed too."""
    withheld: Sequence[str] = ()
    """The tools that are withheld until they are approved, because of the server's `trust`."""
    changes: Sequence[str] = ()
    """Each difference as lines for a person, safe to print and without secrets."""
    fingerprint: str = ""
    """Pass this to `McpManager.trust.approve` to approve exactly these changes."""


class ResourceChanged(Struct, kw_only=True):
    """A resource that is subscribed to has changed, or may have while its server was away."""

    server: str
    uri: str
    """That of the subscription, or of something below it."""


class ResourcesChanged(Struct, kw_only=True):
    """A server says that it offers other resources than before."""

    server: str


class PromptsChanged(Struct, kw_only=True):
    """A server says that it offers other prompts than before."""

    server: str


class CallStarted(Struct, kw_only=True):
    """A call is about to be sent."""

    server: str
    tool: str
    call_id: str


class CallFinished(Struct, kw_only=True):
    """A call has ended, successfully or not."""

    server: str
    tool: str
    call_id: str
    success: bool
    duration: float
    error_code: str = ""
    """The stable code of the error, empty where there is none."""


class ApprovalRequested(Struct, kw_only=True):
    """A call of this program waits in the inbox for a person; `McpManager.trust.answer` answers it."""

    server: str
    approval: PendingApproval


class ApprovalAnswered(Struct, kw_only=True):
    """A call of this program waits no longer: it was answered, ran out of time, or was given up."""

    server: str
    approval: PendingApproval
    """As it is now: `state`, `answered_by`."""


class ConfigReloaded(Struct, kw_only=True):
    """The configuration was read again, and this is what became of every server, by name."""

    server: str = ""
    """Empty: this is about all of them."""
    kept: Sequence[str] = ()
    """Nothing changed, or what changed could be changed without touching the server."""
    started: Sequence[str] = ()
    replaced: Sequence[str] = ()
    stopped: Sequence[str] = ()
    failed: Mapping[str, DragomanError] = field(default_factory=dict[str, "DragomanError"])
    """Did not get ready as it is configured now; where one was running before, that one still is."""
    problems: Sequence[DragomanError] = ()
    """What is wrong in the files; servers of a broken one are kept."""


OfferChanged: TypeAlias = ResourceChanged | ResourcesChanged | PromptsChanged
"""Something beside the tools is not what it was."""
Event: TypeAlias = (
    StateChanged
    | ToolsChanged
    | NameContested
    | DefinitionsChanged
    | OfferChanged
    | CallStarted
    | CallFinished
    | ApprovalRequested
    | ApprovalAnswered
    | ConfigReloaded
)


def offer_changed(server: str, what: str) -> OfferChanged:
    """Return what to tell of a change: of the `resources`, of the `prompts`, or of a resource by its URI."""
    match what:
        case "resources":
            return ResourcesChanged(server=server)
        case "prompts":
            return PromptsChanged(server=server)
        case uri:
            return ResourceChanged(server=server, uri=uri)
