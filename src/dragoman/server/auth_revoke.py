"""Logging out: a login is forgotten here, and the authorization server is told (RFC 7009), if it listens."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from dragoman.server.auth_fetch import FetchError, ForbiddenTargetError
from dragoman.server.auth_store import StoreError

if TYPE_CHECKING:
    from dragoman.server.auth_fetch import Fetcher
    from dragoman.server.auth_store import Login, TokenStore

logger = logging.getLogger("dragoman")


async def forget(store: TokenStore, fetcher: Fetcher) -> bool:
    """Forget the logins of one server; tells whether there was one."""
    async with store.locked():
        try:
            login = await store.load()
        except StoreError:
            login = None
        await store.remove()
    endpoint = str(((login.metadata if login else None) or {}).get("revocation_endpoint", ""))
    had_token = login is not None and bool(login.access_token or login.refresh_token)
    if login is not None and had_token and endpoint:
        fetcher.recall(login.reaches)
        await _revoke(login, endpoint, fetcher)
    return had_token


async def _revoke(login: Login, endpoint: str, fetcher: Fetcher) -> None:
    client = login.client or {}
    form = {"token": login.refresh_token or login.access_token, "client_id": str(client.get("client_id", ""))}
    if client.get("client_secret"):
        form["client_secret"] = str(client["client_secret"])
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    try:
        await fetcher.fetch("POST", endpoint, headers=headers, body=urlencode(form).encode())
    except (FetchError, ForbiddenTargetError) as exc:
        logger.debug("%s: a token was not revoked: %s", fetcher.server, exc)
