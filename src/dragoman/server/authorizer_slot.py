"""Holds the authorizer of one server over all of its connections."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dragoman.model import Stdio
from dragoman.server.late_import import late_import_module

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.errors import AuthRequiredError
    from dragoman.model import Auth, Handler, LoginUI, Transport
    from dragoman.server.oauth.authorizer import Authorizer


class AuthorizerSlot:
    """Holds the `Authorizer` of one server, and replaces it when the transport or `auth` changes."""

    def __init__(
        self,
        server: str,
        handler: Handler | None,
        *,
        on_needed: Callable[[AuthRequiredError], None],
        on_granted: Callable[[], None],
        on_secrets: Callable[[set[str]], None],
        user: str = "",
    ) -> None:
        """Remember the callbacks; the authorizer is made when a connection needs it.

        Args:
            server: The server's name.
            handler: The application's login handler; it gets the address that a person has to open.
            on_needed: Called when the server cannot be used until a person has logged in.
            on_granted: Called when a person has logged in.
            on_secrets: Called with tokens and keys that must not be shown.
            user: Who logs in, in a program with many users.
        """
        self._server = server
        self._user = user
        self._handler = handler
        self._on_needed = on_needed
        self._on_granted = on_granted
        self._on_secrets = on_secrets
        self._authorizer: Authorizer | None = None
        self._made_of: tuple[Transport, Auth | None] | None = None
        self._making = asyncio.Lock()

    async def authorizer(self, transport: Transport, auth: Auth | None) -> Authorizer | None:
        """Return the authorizer for these expanded settings, or `None` if the server does not use OAuth."""
        made_of = (transport, auth)
        if isinstance(transport, Stdio) or made_of == self._made_of:
            return self._authorizer
        module = await late_import_module("dragoman.server.oauth.authorizer")
        # A connection and a login command may get here at the same time: both must get the same authorizer.
        async with self._making:
            if made_of == self._made_of:
                return self._authorizer
            await self.close()
            made: Authorizer | None = await module.open_authorizer(
                self._server, transport, auth, handler=self._handler, user=self._user
            )
            if made is not None:
                made.on_needed = self._on_needed
                made.on_granted = self._on_granted
                made.on_secrets = self._on_secrets
            self._authorizer, self._made_of = made, made_of
        return made

    @property
    def has_login(self) -> bool:
        """Whether requests carry a token."""
        return self._authorizer is not None and self._authorizer.has_login

    @property
    def is_asking(self) -> bool:
        """Whether a login waits for a person."""
        return self._authorizer is not None and self._authorizer.is_asking

    async def begin_login(self, transport: Transport, auth: Auth | None) -> str:
        """Begin a login, and return the address that a person has to open.

        Raises:
            ConfigError: The server does not use OAuth.
            AuthRequiredError: The login was refused.
        """
        return await (await self._existing(transport, auth)).begin()

    async def complete_login(self, address: str) -> bool:
        """Take the address that a login ended at; return False if it is not of the one in progress here.

        Raises:
            AuthRequiredError: The login was refused.
        """
        return self._authorizer is not None and await self._authorizer.complete(address)

    def allow_asking(self) -> None:
        """Let requests ask a person for a login again."""
        if self._authorizer is not None:
            self._authorizer.asks_person = True

    async def login(self, transport: Transport, auth: Auth | None, ui: LoginUI) -> None:
        """Have a person log in.

        Raises:
            ConfigError: The server does not use OAuth.
            AuthRequiredError: The login was refused, or took too long.
        """
        await (await self._existing(transport, auth)).login(ui)

    async def _existing(self, transport: Transport, auth: Auth | None) -> Authorizer:
        authorizer = await self.authorizer(transport, auth)
        if authorizer is None:
            module = await late_import_module("dragoman.server.oauth.authorizer")
            raise module.no_oauth_error(self._server, transport, auth)
        return authorizer

    async def logout(self, transport: Transport, auth: Auth | None) -> bool:
        """Forget the login, and return whether there was one."""
        authorizer = await self.authorizer(transport, auth)
        return authorizer is not None and await authorizer.logout()

    async def close(self) -> None:
        """Cancel a login in progress."""
        if self._authorizer is not None:
            await self._authorizer.close()
