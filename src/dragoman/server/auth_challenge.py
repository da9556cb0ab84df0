"""Reading what a refusal says about logging in (`WWW-Authenticate`), and what the refused request had."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.server.http_client import HttpAnswer

_PARAMETER = re.compile(r'([A-Za-z_]+)\s*=\s*(?:"([^"\\]{0,4096})"|([^\s,"]{1,4096}))')


def challenge_fields(answer: HttpAnswer) -> dict[str, str]:
    """Read the parameters of a challenge (RFC 9110 §11.6.1); the first of a name counts."""
    found: dict[str, str] = {}
    headers = ", ".join(value for name, value in answer.headers.items() if name.lower() == "www-authenticate")
    for name, quoted, bare in _PARAMETER.findall(headers):
        found.setdefault(name.lower(), quoted or bare)
    return found


def header(headers: Mapping[str, str], wanted: str) -> str:
    """Return a header by its name in small letters; nothing if it is not there."""
    return next((value for name, value in headers.items() if name.lower() == wanted), "")


def token_in(headers: Mapping[str, str]) -> str:
    """Return the token that a request was sent with."""
    return header(headers, "authorization").partition(" ")[2]


def version_in(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the header with the protocol's version, if a request was sent with one."""
    version = header(headers, "mcp-protocol-version")
    return {"mcp-protocol-version": version} if version else {}
