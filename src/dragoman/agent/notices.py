"""What a model has to know about its tools that it cannot see: servers lost, back, changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.events import StateChanged, ToolsChanged
from dragoman.model import ServerState
from dragoman.trust.sanitize import for_model

if TYPE_CHECKING:
    from dragoman.manager import McpManager
    from dragoman.observe.bus import Subscription

MAX_NAMES = 8
MAX_REASON = 500

_LOST = frozenset({ServerState.BACKOFF, ServerState.FAILED, ServerState.NEEDS_AUTH, ServerState.CLOSED})


class Notices:
    """Gathers a manager's events between two questions to the model; one line a server and kind."""

    def __init__(self) -> None:
        self._events: Subscription | None = None
        self._lost: set[str] = set()

    def listen(self, manager: McpManager) -> None:
        """Hear what happens from now on."""
        self._events = manager.events()

    def forget(self) -> None:
        """Drop what has happened so far."""
        self.take()

    def take(self) -> list[str]:
        """Return what is new, in words, and forget it."""
        states: dict[str, StateChanged] = {}
        changes: dict[str, list[ToolsChanged]] = {}
        for event in self._events.take() if self._events is not None else ():
            if isinstance(event, StateChanged):
                states[event.server] = event
            elif isinstance(event, ToolsChanged):
                changes.setdefault(event.server, []).append(event)
        said = [text for server in sorted(states) if (text := self._moved(states[server]))]
        return said + [_changed(server, changes[server]) for server in sorted(changes)]

    def _moved(self, event: StateChanged) -> str:
        if event.after in _LOST:
            if event.server in self._lost:
                return ""
            self._lost.add(event.server)
            # Of a crash, the reason has words of the server's own.
            reason = f": {for_model(event.reason, MAX_REASON)}" if event.reason else ""
            return f"server `{event.server}` is not available{reason}; its tools may fail until it is back"
        if event.after is ServerState.READY and event.server in self._lost:
            self._lost.discard(event.server)
            return f"server `{event.server}` is available again"
        return ""


def _changed(server: str, changes: list[ToolsChanged]) -> str:
    kinds = {
        "new": dict.fromkeys(name for change in changes for name in change.added),
        "gone": dict.fromkeys(name for change in changes for name in change.removed),
        "changed": dict.fromkeys(name for change in changes for name in change.changed),
    }
    parts = [f"{kind}: {_few(list(names))}" for kind, names in kinds.items() if names]
    return f"the tools of server `{server}` have changed ({'; '.join(parts)})"


def _few(names: list[str]) -> str:
    shown = ", ".join(names[:MAX_NAMES])
    shown = for_model(shown)
    return f"{shown} and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else shown
