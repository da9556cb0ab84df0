"""What happened, as frozen data: the only thing listeners, metrics and logs are built from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.model import ServerState


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanged:
    """A server went from one state to another."""

    server: str
    before: ServerState
    after: ServerState
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsChanged:
    """A server's listing differs from what was known of it."""

    server: str
    added: Sequence[str] = ()
    removed: Sequence[str] = ()
    changed: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStarted:
    """A call is about to be sent."""

    server: str
    tool: str
    call_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFinished:
    """A call has ended, one way or the other."""

    server: str
    tool: str
    call_id: str
    success: bool
    duration: float
    error_code: str = ""
    """The stable code of the error, empty where there is none."""


Event: TypeAlias = StateChanged | ToolsChanged | CallStarted | CallFinished
