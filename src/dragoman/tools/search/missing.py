"""Say which configured servers cannot show their tools now, so that a search is not taken for complete."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from dragoman.model import ServerState
from dragoman.trust.sanitizing import for_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.model import ServerStatus

MAX_SERVERS = 8
MAX_REASON = 200
_BROKEN = frozenset({ServerState.BACKOFF, ServerState.FAILED})


def missing_servers(statuses: Mapping[str, ServerStatus]) -> list[str]:
    """Return a line for each server that is broken or needs a login."""
    lines: list[str] = []
    for name, status in sorted(statuses.items()):
        if status.state is ServerState.NEEDS_AUTH:
            lines.append(f"- `{name}`: needs a login (`dragoman login {shlex.quote(name)}`)")
        elif status.state in _BROKEN or (status.state is ServerState.CONNECTING and status.last_error):
            # Between two attempts and during one: what a model reads does not change with each attempt.
            why = for_model(status.last_error or "", MAX_REASON).splitlines()
            lines.append(f"- `{name}`: not available{f': {why[0]}' if why else ''}")
    if len(lines) > MAX_SERVERS:
        lines[MAX_SERVERS:] = [f"- and {len(lines) - MAX_SERVERS} more"]
    return lines
