"""TrustDecisions: what `McpManager.trust` is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.manager.pool import find_server

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.manager.parts import Parts
    from dragoman.trust.pin_checker import Changes


class TrustDecisions:
    """What a person decides about the definitions of servers: tools, prompts and instructions."""

    def __init__(self, parts: Parts) -> None:
        """Use the servers and the pins in `parts`."""
        self._parts = parts

    def changes(self, name: str) -> Changes:
        """Return how a server's definitions differ from their pins; empty until they were checked.

        Its `fingerprint` approves exactly these changes: `approve(name, fingerprint=…)`.

        Raises:
            UnknownServerError: No server has this name.
        """
        find_server(self._parts.supervisors, name)
        return self._parts.gate.pin_checker.changes(name)

    async def approve(
        self,
        name: str,
        *,
        tools: Iterable[str] | None = None,
        in_project: bool = False,
        fingerprint: str | None = None,
    ) -> None:
        """Pin a server's definitions as the last `DefinitionsChanged` or `changes` reported them.

        Args:
            name: The server.
            tools: Which of its tools to pin, by the server's own names; by default everything.
            in_project: Whether to write the project's `dragoman.lock` too, even if it does not exist yet.
            fingerprint: The one of the event, or of `changes`, that was shown to a person; needed if there
                are changes. If the definitions have changed since, nothing is approved.

        Raises:
            UnknownServerError: No server has this name.
            DragomanError: The server has not listed anything, the fingerprint is missing, its definitions
                have changed since they were shown, or a lock file cannot be written.
        """
        supervisor = self._parts.open_server(name)
        await self._parts.gate.pin_checker.approve(
            supervisor.spec, tools=tools, in_project=in_project, fingerprint=fingerprint
        )
        await self._parts.pool.recheck_pins(supervisor)
