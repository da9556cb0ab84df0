"""What a supervisor tells those above it, and asks them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dragoman.errors import DragomanError
    from dragoman.events import Event
    from dragoman.server.supervisor import Supervisor


class Room(Protocol):
    """The place that a user takes up among all users of a program."""

    async def enter(self, on_wait: Callable[[DragomanError], None]) -> None:
        """Wait until the user may have connections.

        Args:
            on_wait: Called with the reason if the user has to wait.
        """
        ...

    def released(self) -> None:
        """Note that a server of the user is not in use any more."""
        ...


class Observer(Protocol):
    """What its manager is told by a supervisor, and asked."""

    def on_event(self, supervisor: Supervisor, event: Event) -> None:
        """Handle a change of state, or of what the server offers."""

    def on_tools(self, supervisor: Supervisor, listing: Sequence[dict[str, Any]]) -> int:
        """Offer the tools of a raw listing, or none; return how many are exposed."""
        ...

    async def read_ahead(self, supervisor: Supervisor, listing: Sequence[dict[str, Any]]) -> None:
        """Prepare a listing before it is offered, without blocking the event loop."""
