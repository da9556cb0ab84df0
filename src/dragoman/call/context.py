"""What a call needs, what it may be told, and what all calls share."""

from __future__ import annotations

import itertools
import secrets
import time
from typing import TYPE_CHECKING, Any, Protocol

from dragoman.call.transforms import TransformValues
from dragoman.model import Continuation, Texts, ToolResult
from dragoman.observe.metrics import Metrics
from dragoman.observe.turns import CallThrottle, FailureLog
from dragoman.server.protocol.outgoing import Traffic
from dragoman.storage.tasks import TaskStore
from dragoman.struct import Struct, field
from dragoman.tools.schema.validate import Validators
from dragoman.trust.gate import Gate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from dragoman.events import Event
    from dragoman.model import ApprovalHandler, Audience, ProgressHandler, ServerSpec
    from dragoman.observe.call_log import CallLog
    from dragoman.server.supervisor import Supervisor
    from dragoman.storage.results import ResultStore
    from dragoman.tools.names import Pair
    from dragoman.tools.registry import ToolRegistry
    from dragoman.tools.result.budget import TextBudget
    from dragoman.tools.schema.coerce import ArgumentChange
    from dragoman.tools.view import ToolView

_RUN = secrets.token_hex(4)
_NUMBERS = itertools.count(1)


class CallContext(Struct, kw_only=True):
    """What a call needs: the tools, the servers, and the rules."""

    registry: ToolRegistry | ToolView
    """The tools that can be called."""
    supervisors: Mapping[str, Supervisor]
    publish: Callable[[Event], None]
    has_listeners: Callable[[], bool] = lambda: True
    """Return whether the events have a subscriber; without one, no events of calls are created."""
    validators: Validators = field(default_factory=Validators)
    transform_values: TransformValues = field(default_factory=TransformValues)
    coerce: bool = False
    """Whether arguments of the wrong type are coerced, for servers whose spec does not say."""
    sources_in_text: bool = False
    """Whether texts end with their sources, for servers whose spec does not say."""
    for_model: bool = False
    """Whether a model reads the results: their texts end with their sources, whatever a spec says."""
    texts: Texts = field(default_factory=Texts)
    """The application's own words."""
    budget: TextBudget | None = None
    """The limit for the text of a result; unlimited by default."""
    spill: ResultStore | None = None
    """Keeps results over the budget, and binary parts."""
    failures: FailureLog = field(default_factory=FailureLog)
    throttle: CallThrottle = field(default_factory=CallThrottle)
    gate: Gate = field(default_factory=Gate)
    """Decides whether a call is made; the default allows every call."""
    metrics: Metrics = field(default_factory=Metrics)
    log: CallLog | None = None
    tasks: TaskStore = field(default_factory=TaskStore)
    names_server: Callable[[ServerSpec, str | Pair], bool] = lambda _spec, _name: False
    """Return whether the name of a tool that is not known is one of this server's."""
    server_key: Callable[[ServerSpec], str] = lambda spec: spec.name
    """Returns the fingerprint of a server's entry, without its secrets."""
    user: str = ""
    """Whose calls these are, in a program with many users."""
    audience: Audience = "model"
    """For whom the call is made; a tool may be for a model, for the server's app, or for both."""
    ask: bool | ApprovalHandler = False
    """Whether a call that no rule decides needs a yes, unless the tool is read-only; a function is asked
    instead of `Handlers.approval`."""
    while_asking: Callable[[], AbstractAsyncContextManager[None]] | None = None
    """Entered before a person is asked about a call, and left before the call is sent."""


def unrecorded(context: CallContext, registry: ToolRegistry) -> CallContext:
    """Return a context for other tools by the same rules; its calls are not counted, logged or published."""
    return context.replace(registry=registry, metrics=Metrics(), log=None, has_listeners=lambda: False)


class Forwarded(Struct, kw_only=True):
    """What another client sent with a call that is forwarded for it; the result has the raw answer."""

    inputs: Mapping[str, Any] | None = None
    """Its `inputResponses` and `requestState`, empty in the first round; `None` if our handlers are asked."""
    meta: Mapping[str, Any] | None = None
    """The `_meta` of its request that goes on to the server."""
    takes_tasks: bool = False
    """Whether it follows tasks itself: then the raw answer may be one."""
    renders: bool = False
    """Whether sources and notes are added as blocks of their own, where the library adds them to the text."""


class ToolCaller(Protocol):
    """A function that calls a tool like `McpManager.call`."""

    async def __call__(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressHandler | None = None,
        headers: Mapping[str, str] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> ToolResult:
        """Call the tool."""
        ...


class CallMode(Struct, kw_only=True):
    """How a call differs from one that waits for its result."""

    detach: bool = False
    """Whether a call that becomes a task ends with that task."""
    pauses: bool = False
    """Whether a call that asks a person ends with the questions."""
    paused: Continuation | None = None
    """The call that goes on, with all answers."""


class Call:
    """One call in progress."""

    __slots__ = (
        "approved",
        "arguments",
        "began",
        "changes",
        "fields",
        "forwarded",
        "id",
        "meta",
        "mode",
        "name",
        "on_progress",
        "shown",
        "timeout",
        "traffic",
        "waited",
    )

    def __init__(
        self,
        name: str,
        arguments: object,
        timeout: float | None,
        on_progress: ProgressHandler | None,
        forwarded: Forwarded | None,
        meta: Mapping[str, Any] | None,
        mode: CallMode | None,
    ) -> None:
        self.name = name
        self.forwarded = forwarded
        self.meta = meta
        self.mode = mode
        self.arguments = arguments
        self.timeout = timeout
        self.on_progress = on_progress
        self.id = f"{_RUN}-{next(_NUMBERS)}"
        self.began = time.monotonic()
        self.fields: dict[str, Any] = {}
        """The arguments that are sent: validated, and coerced if need be."""
        self.shown: dict[str, Any] | None = None
        """The same as the caller knows them, if the configuration of the server changes them."""
        self.changes: Sequence[ArgumentChange] = ()
        self.approved = False
        """Whether a person has said yes to it."""
        self.traffic = Traffic()
        self.waited = 0.0
        """How long it waited until its tool was known."""

    @property
    def passes_tasks_on(self) -> bool:
        """Whether its client follows tasks itself."""
        return self.forwarded is not None and self.forwarded.takes_tasks

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.monotonic() - self.began
