"""Logging in and out from outside: who gets an authorizer, and what `dragoman login|logout` calls."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dragoman.errors import ConfigError
from dragoman.model import Auth, Sse, Stdio, Tls
from dragoman.server.auth import Authorizer
from dragoman.server.auth_fetch import Fetcher
from dragoman.server.auth_revoke import forget
from dragoman.server.auth_store import stores_of
from dragoman.server.http_route import endpoint, tls_context

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from dragoman.model import Handler, Transport


def authorizer_for(
    server: str,
    transport: Transport,
    auth: Auth | None,
    *,
    handler: Handler | None = None,
    tls: ssl.SSLContext | bool = True,
    folder: Path | None = None,
) -> Authorizer | None:
    """Return what logs in to a server, or nothing where that is not ours to do.

    Args:
        server: Its name.
        transport: How it is reached, expanded.
        auth: How it wants to be logged in to, expanded.
        handler: The application's, told of the address that a person has to open.
        tls: Whom authorization servers have to be.
        folder: Where logins are kept.

    Raises:
        ConnectError: The address cannot be used.
    """
    auth = auth or Auth()
    if isinstance(transport, Stdio) or auth.mode == "none":
        return None
    endpoint(transport.url, server)
    given = any(name.lower() == "authorization" for name in transport.headers)
    if auth.mode != "oauth" and (given or urlsplit(transport.url).username):
        return None
    streams = isinstance(transport, Sse)
    return Authorizer(server, transport.url, auth, handler=handler, tls=tls, folder=folder, streams=streams)


async def open_authorizer(
    server: str, transport: Transport, auth: Auth | None, *, handler: Handler | None = None
) -> Authorizer | None:
    """Return the same, with the authority that the server's own certificate is checked against.

    Raises:
        ConnectError: The address cannot be used, or that authority not be read.
    """
    own = None if isinstance(transport, Stdio) else transport.tls
    if own is None or own.ca is None:
        return authorizer_for(server, transport, auth, handler=handler)
    # Neither our own certificate nor a check that is switched off is meant for other servers.
    tls = await asyncio.to_thread(tls_context, Tls(ca=own.ca), server)
    return authorizer_for(server, transport, auth, handler=handler, tls=tls)


async def login(
    server: str,
    transport: Transport,
    auth: Auth | None,
    *,
    open_url: Callable[[str], Any] | None = None,
    paste: Callable[[], Awaitable[str]] | None = None,
    on_refused: Callable[[str], Any] | None = None,
) -> None:
    """Log in to a server from outside of any manager, as `dragoman login` does.

    Args:
        server: Its name.
        transport: How it is reached, expanded.
        auth: How it wants to be logged in to, expanded.
        open_url: As for `Authorizer.login`; so are `paste` and `on_refused`.
        paste: Asks the person for the address that the browser ended at.
        on_refused: Told why what was pasted is of no use.

    Raises:
        ConfigError: It is no server that one logs in to in this way.
        AuthRequiredError: It was refused, or nobody logged in.
    """
    authorizer = await open_authorizer(server, transport, auth)
    if authorizer is None:
        msg = f"server `{server}` is not logged in to with OAuth"
        hint = 'it is a child process, has an `Authorization` header, or says `auth = "none"`'
        raise ConfigError(msg, hint=hint)
    try:
        await authorizer.login(open_url=open_url, paste=paste, on_refused=on_refused)
    finally:
        await authorizer.close()


async def logout(server: str, *, folder: Path | None = None) -> bool:
    """Forget every login under a server's name, whatever its address was; tells whether there was one."""
    found = stores_of(server, folder=folder)
    return any([await forget(store, Fetcher(server)) for store in found])
