"""Whose request this is: set by the HTTP entry after it has checked the token."""

from __future__ import annotations

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import principal_components


def principal() -> str:
    """Return who makes the current request; empty on connections without authentication, such as stdio."""
    token = get_access_token()
    if token is None:
        return ""
    return "/".join(part for part in principal_components(token) if part)
