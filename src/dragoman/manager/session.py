"""SessionRequests: what `McpManager.session` is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dragoman.manager.resources import Resources
    from dragoman.manager.subscriptions import LogLevel, Subscriptions


class SessionRequests:
    """What few applications ask of a session: completions, the level of log messages, roots."""

    def __init__(self, resources: Resources, subscriptions: Subscriptions) -> None:
        """Ask the servers of `resources`; `subscriptions` asks again after a reconnection."""
        self._resources = resources
        self._subscriptions = subscriptions

    async def complete(self, ref: Mapping[str, str], argument: str, value: str, *, server: str) -> list[str]:
        """Propose values for an argument of a prompt (`{"name": …}`) or of a template (`{"uri": …}`).

        Raises:
            CallDeniedError: The policy does not allow that prompt or template.
            DragomanError: The server does not answer.
        """
        return await self._resources.complete(ref, argument, value, server=server)

    async def set_log_level(self, level: LogLevel, server: str | None = None) -> None:
        """Set the lowest level of the log messages that one server, or all, send to `Handlers.logging`.

        Raises:
            UnknownServerError: No server has this name.
        """
        await self._subscriptions.set_log_level(level, server, self._resources.connected(server))

    async def set_roots(self, roots: Iterable[str], server: str | None = None) -> None:
        """Set the directories, by their URIs, that one server, or all, may use.

        A server that was connected while there were no roots gets them with its next connection.

        Raises:
            UnknownServerError: No server has this name.
        """
        await self._subscriptions.set_roots(roots, server, self._resources.connected(server))
