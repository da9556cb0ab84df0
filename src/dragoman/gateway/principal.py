"""Whose request this is: set by the HTTP entry after it has checked the token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import principal_components

if TYPE_CHECKING:
    from mcp.server.auth.provider import AccessToken


def principal() -> str:
    """Return who makes the current request; empty on connections without authentication, such as stdio."""
    token = get_access_token()
    if token is None:
        return ""
    return "/".join(part for part in principal_components(token) if part)


def user_of(token: AccessToken) -> str:
    """Return the user that a token stands for: its subject, or its client if it stands for no person."""
    return token.client_id if token.subject is None else token.subject
