"""What the current task carries besides arguments: four context variables, and what each is for.

The headers of a call reach every request that it causes, also those of another server's login. The claims of
the client for whom a call is made are there when its arguments are completed. The deadline
of a job reaches all of its requests, however many it makes. The time at which a question was received passes
the SDK's frames, which have no parameter for it. A call's own deadline is an argument: see `outgoing.py`.

A task that a connection starts for itself inherits the context of the call that opened it, so it first calls
`no_call_context`.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from typing import Any

    from dragoman.server.protocol.deadlines import Deadline

current_deadline: ContextVar[Deadline | None] = ContextVar("deadline", default=None)
"""The deadline of the job that the current task does on a session, for all of its requests."""

received_at: ContextVar[float | None] = ContextVar("received_at", default=None)
"""When the question or the notification that the current task handles was received, on the loop's clock."""

_caller: ContextVar[Mapping[str, str] | None] = ContextVar("caller", default={})  # noqa: B039 -- never changed

_claims: ContextVar[Mapping[str, Any] | None] = ContextVar("claims", default=None)


@contextmanager
def with_headers(headers: Mapping[str, str]) -> Generator[None]:
    """Add headers to every HTTP request that the calls inside this block cause."""
    token = _caller.set(dict(headers))
    try:
        yield
    finally:
        _caller.reset(token)


def no_call_context() -> None:
    """Detach the current task, and the tasks it starts, from the call whose context it inherited."""
    _caller.set(None)
    _claims.set(None)


def caller_headers() -> Mapping[str, str] | None:
    """Return the headers of the current call; `None` outside of a call."""
    return _caller.get()


@contextmanager
def with_claims(claims: Mapping[str, Any]) -> Generator[None]:
    """Make the calls inside this block for the client whose access token says this about it."""
    token = _claims.set(claims)
    try:
        yield
    finally:
        _claims.reset(token)


def caller_claims() -> Mapping[str, Any] | None:
    """Return what is known about the client of the current call; `None` if there is no such client."""
    return _claims.get()
