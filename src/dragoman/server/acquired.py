"""The use of a connection by one request."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dragoman.server.connection import Connection


class Acquired:
    """The connection of a server for one request; `Supervisor.acquire` makes it.

    It is a class because every call passes here: `asynccontextmanager` takes three times as long.
    """

    __slots__ = ("_give_back", "_taken")

    def __init__(
        self, taken: Awaitable[Connection], give_back: Callable[[type[BaseException] | None], None]
    ) -> None:
        self._taken = taken
        self._give_back = give_back

    def __aenter__(self) -> Awaitable[Connection]:
        """Wait for the connection."""
        return self._taken

    async def __aexit__(self, kind: type[BaseException] | None, exc: object, traceback: object) -> None:
        """Give the connection back."""
        self._give_back(kind)
