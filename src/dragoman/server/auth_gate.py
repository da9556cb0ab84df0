"""The authorizer of one server, over all of its connections.

It is made when it is first needed, and made anew when what it stands on has changed. Importing this costs
nothing: the rest of OAuth comes with the first server behind a URL.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from dragoman.errors import ConfigError
from dragoman.model import Stdio
from dragoman.server.late import late_import_module

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dragoman.errors import AuthRequiredError
    from dragoman.model import Auth, Handler, Transport
    from dragoman.server.auth import Authorizer


class Gate:
    """Where a server's login is kept while it is supervised."""

    def __init__(
        self,
        server: str,
        handler: Handler | None,
        *,
        on_needed: Callable[[AuthRequiredError], None],
        on_granted: Callable[[], None],
        on_secrets: Callable[[set[str]], None],
    ) -> None:
        """Keep the gate of a server.

        Args:
            server: Its name.
            handler: The application's, told of the address that a person has to open.
            on_needed: Told that the server is of no use until a person has logged in.
            on_granted: Told that a person has logged in.
            on_secrets: Told what nobody may see.
        """
        self._server = server
        self._handler = handler
        self._on_needed = on_needed
        self._on_granted = on_granted
        self._on_secrets = on_secrets
        self._authorizer: Authorizer | None = None
        self._made_of: tuple[Transport, Auth | None] | None = None
        self._making = asyncio.Lock()

    async def authorizer(self, transport: Transport, auth: Auth | None) -> Authorizer | None:
        """Return what logs in, for a transport and settings that are expanded; nothing where nobody does."""
        made_of = (transport, auth)
        if isinstance(transport, Stdio) or made_of == self._made_of:
            return self._authorizer
        logins = await late_import_module("dragoman.server.logins")
        # A connection and a person may ask at the same moment: both get the same one.
        async with self._making:
            if made_of == self._made_of:
                return self._authorizer
            await self.close()
            made: Authorizer | None = await logins.open_authorizer(
                self._server, transport, auth, handler=self._handler
            )
            if made is not None:
                made.on_needed = self._on_needed
                made.on_granted = self._on_granted
                made.on_secrets = self._on_secrets
            self._authorizer, self._made_of = made, made_of
        return made

    async def login(
        self,
        transport: Transport,
        auth: Auth | None,
        *,
        open_url: Callable[[str], Any] | None = None,
        paste: Callable[[], Awaitable[str]] | None = None,
        on_refused: Callable[[str], Any] | None = None,
    ) -> None:
        """Have a person log in; the arguments are those of `Authorizer.login`.

        Raises:
            ConfigError: It is no server that one logs in to.
            AuthRequiredError: It was refused, or nobody logged in.
        """
        authorizer = await self.authorizer(transport, auth)
        if authorizer is None:
            msg = f"server `{self._server}` is not logged in to with OAuth"
            raise ConfigError(msg, hint="it needs a `url`, no `Authorization` header, and no `auth: none`")
        await authorizer.login(open_url=open_url, paste=paste, on_refused=on_refused)

    async def logout(self, transport: Transport, auth: Auth | None) -> bool:
        """Forget the login; returns whether there was one."""
        authorizer = await self.authorizer(transport, auth)
        return authorizer is not None and await authorizer.logout()

    async def close(self) -> None:
        """End a login that is under way."""
        if self._authorizer is not None:
            await self._authorizer.close()
