"""What the owner of a connection is told, and asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.errors import DragomanError
    from dragoman.events import OfferChanged
    from dragoman.server.attempt import ConnectionEnd
    from dragoman.server.connection import Connection


class ConnectionEvents:
    """Receives what happens to a connection, and decides two things for it; here every method does nothing.

    Each method gets the connection: its owner may have replaced it, and then ignores what comes late from it.
    """

    async def admit(self, connection: Connection) -> None:
        """Approve the server right before each start; raise `ConnectError` to refuse it."""

    async def check_listing(
        self, connection: Connection, listing: Sequence[dict[str, Any]], instructions: str
    ) -> None:
        """Check a listing of tools before it is used; raise to reject it."""

    def on_stage(self, stage: str) -> None:
        """Handle that an attempt to connect has reached a stage."""

    def on_ready(self, connection: Connection) -> None:
        """Handle that the connection is open and its tools are listed."""

    def on_listing(self, connection: Connection, error: DragomanError | None) -> None:
        """Handle a listing after the first one, with its error if it failed."""

    def on_changed(self, connection: Connection, event: OfferChanged) -> None:
        """Handle a change of something other than the tools."""

    def on_timed_out(self, connection: Connection, error: DragomanError) -> None:
        """Handle that the connection could not be opened in time; it is closed after this."""

    def on_lost(self, connection: Connection, end: ConnectionEnd) -> None:
        """Handle that the connection ended and that `close` was not the reason."""
