"""A call on its way to the server, as one argument through every layer; and what may come back."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Literal

from dragoman.struct import MutableStruct, Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dragoman.model import ProgressHandler
    from dragoman.server.protocol.deadlines import Deadline


class Traffic:
    """The bytes of messages sent and received for one call."""

    __slots__ = ("received", "sent")

    def __init__(self) -> None:
        self.sent = 0
        self.received = 0


class RoundOptions(Struct):
    """How the rounds of a call differ from the usual ones."""

    pauses: bool = False
    """Whether the call ends when a person is asked, instead of waiting for the answers."""
    responses: Mapping[str, Any] | None = None
    """Answers for the first round, if the call was paused before."""
    state: str | None = None
    """The state of the paused call."""


class Outgoing(MutableStruct):
    """A call of a tool, from the pipeline down to the session."""

    tool: str
    """The server's own name for it."""
    arguments: Mapping[str, Any]
    deadline: Deadline
    """When it must end, waiting, connecting and every retry included."""
    meta: Mapping[str, Any] | None = None
    """The `_meta` field of the request."""
    on_progress: ProgressHandler | None = None
    """Called with progress; each report starts the time limit again."""
    inputs: Mapping[str, Any] | None = None
    """For a forwarded call: its `inputResponses` and `requestState`, if it has them. The answer may then be a
    request for input."""
    rounds: RoundOptions | None = None
    """How the questions of the server are handled, if not as usual."""
    on_task: Callable[[Mapping[str, Any]], None] | None = None
    """Called at once when the call has become a task; it must not fail."""
    traffic: Traffic | None = None
    """Counts the bytes of the call."""

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Take a report of progress."""
        self.deadline.renew()
        if self.on_progress is not None:
            outcome = self.on_progress(progress, total, message)
            if inspect.isawaitable(outcome):
                await outcome


class Unfinished(Struct):
    """The answer to a call that is not its result: the server asks a person, or goes on with a task."""

    kind: Literal["input_required", "task"]
    data: Mapping[str, Any]
    """The raw answer."""
    answered: Mapping[str, Any] | None = None
    """Answers that the application's handlers gave without a person: models and roots."""
