"""Notices for a model: servers that are lost or back, tools that changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.events import StateChanged, ToolsChanged
from dragoman.languages import fill
from dragoman.model import ServerState, Texts
from dragoman.trust.sanitizing import for_model

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dragoman.events import Event
    from dragoman.manager.manager import McpManager
    from dragoman.model import ServerStatus
    from dragoman.observe.bus import Subscription

MAX_NAMES = 8
MAX_REASON = 500

_LOST = frozenset({ServerState.BACKOFF, ServerState.FAILED, ServerState.NEEDS_AUTH, ServerState.CLOSED})


class Notices:
    """Collects a manager's events between two requests to the model, as one line for each server and kind."""

    def __init__(self, words: Texts | None = None) -> None:
        self._words = words or Texts()
        self._events: Subscription | None = None
        self._lost: set[str] = set()

    def listen(self, manager: McpManager) -> None:
        """Collect events from now on."""
        self._events = manager.events()

    def forget(self) -> None:
        """Drop the events so far."""
        self.take()

    def take(self, seen: Mapping[str, str] | None = None) -> list[str]:
        """Return the notices since the last call, and clear them.

        Args:
            seen: The tools that the model knows, each with its server, if others must not be mentioned.
        """
        return self.read(self._events.take() if self._events is not None else (), seen)

    def read(self, events: Iterable[Event], seen: Mapping[str, str] | None = None) -> list[str]:
        """Return the notices that events give reason for; `seen` as for `take`."""
        states: dict[str, StateChanged] = {}
        changes: dict[str, list[ToolsChanged]] = {}
        servers = None if seen is None else set(seen.values())
        for event in events:
            if isinstance(event, StateChanged) and (servers is None or event.server in servers):
                states[event.server] = event
            elif isinstance(event, ToolsChanged) and (told := _known_part(event, seen)) is not None:
                changes.setdefault(event.server, []).append(told)
        said = [text for server in sorted(states) if (text := self._moved(states[server]))]
        return said + [_changed(server, changes[server], self._words) for server in sorted(changes)]

    def _moved(self, event: StateChanged) -> str:
        if event.after in _LOST:
            if event.server in self._lost:
                return ""
            self._lost.add(event.server)
            return _lost(event.server, event.reason, self._words)
        if event.after is ServerState.READY and event.server in self._lost:
            self._lost.discard(event.server)
            return fill(self._words.server_back, server=event.server)
        return ""


def lost_servers(statuses: Mapping[str, ServerStatus], words: Texts) -> list[str]:
    """Return a notice for each server that is not available now."""
    return [
        _lost(name, status.last_error or "", words)
        for name, status in sorted(statuses.items())
        if status.state in _LOST and status.state is not ServerState.CLOSED
    ]


def _lost(server: str, why: str, words: Texts) -> str:
    # The reason of a crash may quote the server, so it is sanitized for the model.
    reason = f": {for_model(why, MAX_REASON)}" if why else ""
    return fill(words.server_lost, server=server, reason=reason)


def _known_part(event: ToolsChanged, seen: Mapping[str, str] | None) -> ToolsChanged | None:
    """Return the part of a change that is about tools the model knows; `None` if there is none."""
    if seen is None:
        return event
    kinds = (event.added, event.removed, event.changed)
    added, removed, changed = (tuple(name for name in names if name in seen) for names in kinds)
    if not (added or removed or changed):
        return None
    return ToolsChanged(server=event.server, added=added, removed=removed, changed=changed)


def _changed(server: str, changes: list[ToolsChanged], words: Texts) -> str:
    kinds = {
        words.tools_added: dict.fromkeys(name for change in changes for name in change.added),
        words.tools_removed: dict.fromkeys(name for change in changes for name in change.removed),
        words.tools_altered: dict.fromkeys(name for change in changes for name in change.changed),
    }
    parts = [fill(kind, names=_few(list(names), words)) for kind, names in kinds.items() if names]
    return fill(words.tools_changed, server=server, changes="; ".join(parts))


def _few(names: list[str], words: Texts) -> str:
    shown = for_model(", ".join(names[:MAX_NAMES]))
    if len(names) <= MAX_NAMES:
        return shown
    return fill(words.more_names, names=shown, count=len(names) - MAX_NAMES)
