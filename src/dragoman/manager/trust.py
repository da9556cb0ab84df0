"""TrustDecisions: what `McpManager.trust` is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dragoman.manager.parts import program_name
from dragoman.manager.pool import find_server

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.manager.parts import Parts
    from dragoman.model import Always, PendingApproval
    from dragoman.storage.inbox import InboxStore
    from dragoman.trust.pin_checker import Changes


class TrustDecisions:
    """What a person decides: about calls that wait in the inbox, and about the definitions of servers."""

    def __init__(self, parts: Parts) -> None:
        """Use the servers and the pins in `parts`."""
        self._parts = parts

    def pending(self) -> list[PendingApproval]:
        """Return the calls that wait, the oldest first; also those of the user's other programs.

        It reads a file: a program with a busy event loop calls it in a thread.

        Raises:
            DragomanError: The inbox cannot be read.
        """
        with self._inbox() as store:
            return store.pending()

    async def answer(
        self, identifier: str, *, allow: bool, always: Always | None = None, by: str = ""
    ) -> PendingApproval:
        """Answer a call that waits; the first answer counts.

        Args:
            identifier: The `id` of the entry.
            allow: Whether it may be made; only a literal `True` is a yes.
            always: Also write the rule of the entry that covers the tool, these arguments or the server.
            by: Who answers, for the other side and for the record; the program by default.

        Returns:
            The entry as it was shown, with the answer.

        Raises:
            ApprovalError: The entry is unknown, or was decided already: the error names by whom.
            ConfigError: The rule cannot be written; the answer counts, and holds until this program ends.
        """
        from dragoman.config.rules import answer_pending  # With the writer of files, which few programs need.

        def work() -> PendingApproval:
            with self._inbox() as store:
                return answer_pending(store, identifier, allow=allow, always=always, by=by or program_name())

        return await asyncio.to_thread(work)

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

    def _inbox(self) -> InboxStore:
        from dragoman.storage.inbox import InboxStore  # With its database: few programs ask for it.

        return InboxStore(user=self._parts.user)
