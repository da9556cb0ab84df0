"""One call of a tool: its pipeline, its context, its result, and calls that go on later."""

from dragoman.call.context import CallContext, CallMode, Forwarded, ToolCaller, unrecorded
from dragoman.call.pipeline import make_caller, run, summary
from dragoman.call.unfinished import as_task, follow_task, signature_of

__all__ = [
    "CallContext",
    "CallMode",
    "Forwarded",
    "ToolCaller",
    "as_task",
    "follow_task",
    "make_caller",
    "run",
    "signature_of",
    "summary",
    "unrecorded",
]
