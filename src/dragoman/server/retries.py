"""Whether a failed call is sent again, and when. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.errors import ConnectionLostError, HttpStatusError, ToolUnavailableError

if TYPE_CHECKING:
    from dragoman.errors import ServerError, ServerNotReadyError
    from dragoman.model import ServerSpec, ToolDef

RETRY_PAUSE = 1.0
FORWARDED_WAIT = 5.0
"""How long a forwarded call waits for the next attempt to connect a server that was lost."""
LEAST_PAUSE = 0.02
RETRIED_STATUSES = frozenset({421, 425, 429, 503})
"""HTTP statuses that may change within a second; a retry of any other gets the same answer."""


def pause_before_retry(exc: ServerError, tool: ToolDef, spec: ServerSpec) -> float | None:
    """Return how long to wait before a retry; `None` if a retry is unsafe or pointless.

    A retry is safe if the call certainly did not run: it was never sent, or the server refused it. A call
    that may have run is repeated only if the tool declares itself read-only or idempotent and the spec trusts
    these annotations.
    """
    if isinstance(exc, HttpStatusError):
        return (exc.retry_after or RETRY_PAUSE) if exc.status in RETRIED_STATUSES else None
    if not isinstance(exc, ConnectionLostError):
        return None
    harmless = tool.annotations.get("readOnlyHint") is True or tool.annotations.get("idempotentHint") is True
    return 0.0 if not exc.may_have_run or (spec.trust_annotations and harmless) else None


def pause_of_gateway(exc: ServerNotReadyError, tool: ToolDef, spec: ServerSpec) -> float | None:
    """Return how long to wait for a server that is connected again soon; `None` if that takes long."""
    has_other = bool(spec.fallbacks_of(tool.original_name))
    soon = exc.retry_in is not None and exc.retry_in <= FORWARDED_WAIT and not has_other
    return max(exc.retry_in or 0.0, LEAST_PAUSE) if soon else None


def unavailable(tool: ToolDef, exc: ServerError) -> ToolUnavailableError:
    """Return the error of a call whose server cannot be used; it says whether the tool may have run."""
    ran = isinstance(exc, ConnectionLostError) and exc.may_have_run
    # A server that fails with an HTTP 5xx may have run the tool before it failed.
    ran = ran or (isinstance(exc, HttpStatusError) and not exc.refused_unrun)
    msg = f"`{tool.name}` is not available: {exc}"
    hint = "it may have run: check before you repeat it" if ran else ""
    return ToolUnavailableError(msg, tool=tool.name, server=tool.server, may_have_run=ran, hint=hint)
