"""Logins: what `McpManager.auth` is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dragoman.errors import DragomanError
from dragoman.model import LoginUI

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dragoman.manager.parts import Parts


class Logins:
    """The logins of a person to the servers."""

    def __init__(self, parts: Parts) -> None:
        """Use the servers in `parts`."""
        self._parts = parts

    async def login(
        self,
        name: str,
        *,
        open_url: Callable[[str], Any] | None = None,
        paste: Callable[[], Awaitable[str]] | None = None,
        on_refused: Callable[[str], Any] | None = None,
        token: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        """Log a person in to a server; wait until it is ready or has failed.

        Args:
            name: The server.
            open_url: Called with the URL that the person has to open; may be async.
            paste: Asks the person for the URL that the browser ended at; for machines without a browser.
            on_refused: Called with the reason why a pasted URL is not usable, before asking again.
            token: Asks the person for a token, if the server offers no login by OAuth.

        Raises:
            AuthRequiredError: The login was refused or not completed.
            ConfigError: The server does not use OAuth.
        """
        supervisor = self._parts.open_server(name)
        await supervisor.login(LoginUI(open_url=open_url, paste=paste, on_refused=on_refused, token=token))
        await supervisor.wait_settled()

    async def begin(self, name: str) -> str:
        """Begin a login to a server, and return the address to send the person's browser to.

        The login goes on by itself until the person is done, for ten minutes at most. It ends with `complete`
        if the application is the `redirect_uri` of the server's `auth`, and otherwise at a page on this
        machine. Calls made meanwhile say that the server requires login.

        Raises:
            UnknownServerError: No server has this name.
            ConfigError: The server does not use OAuth.
            AuthRequiredError: The server, or its authorization server, refuses.
        """
        return await self._parts.open_server(name).begin_login()

    async def complete(self, address: str) -> str:
        """Go on with the login that ended at an address; return the server once it is ready or has failed.

        Call it on the manager of the user who is signed in to the application, so that the login of another
        person is not accepted.

        Args:
            address: The whole address of the request to the `redirect_uri`, with its `code` and `state`.

        Raises:
            DragomanError: No login of this manager waits for it.
            AuthRequiredError: The login was refused.
        """
        self._parts.check_open()
        for name, supervisor in list(self._parts.supervisors.items()):
            if await supervisor.complete_login(address):
                return name
        msg = "no login in progress belongs to this address"
        raise DragomanError(msg, hint="begin the login again; it may be over, or another user's")

    async def logout(self, name: str) -> bool:
        """Forget the login of a server; return whether there was one."""
        return await self._parts.open_server(name).logout()
