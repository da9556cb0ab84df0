"""SessionRequests: what `McpManager.session` is."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from dragoman.errors import DragomanError
from dragoman.manager.subscriptions import LogLevel
from dragoman.trust.addresses import split_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dragoman.manager.resources import Resources
    from dragoman.manager.subscriptions import Subscriptions


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
            DragomanError: The server does not answer, or `ref` is of another form.
        """
        if ("name" in ref) == ("uri" in ref):
            msg = "a completion is about one prompt or one template"
            raise DragomanError(msg, hint='give `{"name": PROMPT}` or `{"uri": TEMPLATE}`')
        return await self._resources.complete(ref, argument, value, server=server)

    async def set_log_level(self, level: LogLevel, server: str | None = None) -> None:
        """Set the lowest level of the log messages that one server, or all, send to `Handlers.logging`.

        Raises:
            UnknownServerError: No server has this name.
            DragomanError: This is not a level.
        """
        if level not in get_args(LogLevel):
            msg = f"`{level}` is not a level of log messages"
            raise DragomanError(msg, hint=f"levels: {', '.join(get_args(LogLevel))}")
        await self._subscriptions.set_log_level(level, server, self._resources.connected(server))

    async def set_roots(self, roots: Iterable[str], server: str | None = None) -> None:
        """Set the directories, by their URIs, that one server, or all, may use.

        A server that was connected while there were no roots gets them with its next connection.

        Raises:
            UnknownServerError: No server has this name.
            DragomanError: One of them is not a URI.
        """
        # A text is an iterable of its letters, none of which is a URI.
        given = list(roots)
        wrong = [root for root in given if (parts := split_url(root)) is None or not parts.scheme]
        if wrong:
            msg = f"`{roots if isinstance(roots, str) else wrong[0]}` is not a URI in a list of roots"
            raise DragomanError(msg, hint="give a list such as `[Path(folder).as_uri()]`")
        await self._subscriptions.set_roots(given, server, self._resources.connected(server))
