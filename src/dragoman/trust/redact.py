"""Masking: what looks like a secret is never shown.

Values of variables and headers are masked whole, whatever they are called, except for parts that are
references (`${TOKEN}`), which say where a secret comes from and are none. In URLs the user's name and
password and the values of the query are masked; among arguments those that follow a telling option
(`--token X`, `--api-key=X`) or have the shape of a well-known token.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit, urlunsplit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MASK = "•••"

_TELLING = re.compile(
    r"(?:^|[^a-z])(?:auth|authorization|bearer|cookie|credentials?|passw(?:or)?d|passphrase|pat|private|pwd|"
    r"secret|session|signature|token|(?:api|access|private|secret|signing|encryption)?[-_ ]?key)s?(?:$|[^a-z])",
    re.IGNORECASE,
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_TOKEN = re.compile(
    r"\b(?:sk-[A-Za-z0-9_-]{16,}|gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeoprs]-[\w-]{10,}|"
    r"AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{10,}\.[\w-]{5,}\.[\w-]*|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{30,}|"
    r"pypi-[\w-]{30,})"
)
_BEARER = re.compile(r"\b(Bearer|Basic|Token)\s+(?!\$\{)[^\s\"',]+", re.IGNORECASE)
_REFERENCE = re.compile(r"(\$\{[^}]*\})")
_OPTION = re.compile(r"(--?[A-Za-z][\w-]*)(=)(.+)", re.DOTALL)
_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s\"'<>]+", re.IGNORECASE)


def is_telling(name: str) -> bool:
    """Tell whether a name announces a secret: `api_key`, `X-Auth-Token`, `clientSecret`."""
    return bool(_TELLING.search(_CAMEL.sub("-", name)))


def mask_value(value: str) -> str:
    """Mask everything but references: `Bearer ${TOKEN}` stays readable, `Bearer abc` does not."""
    pieces = _REFERENCE.split(value)
    masked = [piece if _REFERENCE.fullmatch(piece) else _literal(piece) for piece in pieces]
    return "".join(masked)


def _literal(piece: str) -> str:
    if not piece.strip():
        return piece
    scheme = re.match(r"\s*(Bearer|Basic|Token)\b\s*", piece, re.IGNORECASE)
    if scheme:
        rest = piece[scheme.end() :]
        return scheme[0] + (MASK if rest else "")
    return MASK


def mask_values(values: Mapping[str, str | None]) -> dict[str, str | None]:
    """Mask the values of an environment or of headers; the names stay."""
    return {name: None if value is None else mask_value(value) for name, value in values.items()}


def mask_url(url: str) -> str:
    """Mask the user's name and password, and the values of the query."""
    if "@" not in url and "?" not in url and "#" not in url:
        return mask_text(url)
    try:
        parts = urlsplit(url)
    except ValueError:
        return MASK
    netloc = parts.netloc
    if "@" in netloc:
        netloc = f"{MASK}@{netloc.rpartition('@')[2]}"
    query = "&".join(_query_pair(pair) for pair in parts.query.split("&")) if parts.query else ""
    return _mask_tokens(urlunsplit((parts.scheme, netloc, parts.path, query, MASK if parts.fragment else "")))


def _query_pair(pair: str) -> str:
    name, equals, value = pair.partition("=")
    return f"{name}={mask_value(value)}" if equals else name


def mask_args(args: Sequence[str]) -> list[str]:
    """Mask arguments that are, or follow, a telling option, and those that look like a token."""
    masked: list[str] = []
    hide_next = False
    for arg in args:
        option = _OPTION.fullmatch(arg)
        if hide_next and not arg.startswith("-"):
            masked.append(mask_value(arg))
        elif option and is_telling(option[1]):
            masked.append(f"{option[1]}={mask_value(option[3])}")
        else:
            masked.append(mask_text(arg))
        hide_next = arg.startswith("-") and not option and is_telling(arg)
    return masked


def mask_text(text: str) -> str:
    """Mask tokens of well-known shapes, and passwords in URLs, in any text."""
    if "://" in text:
        text = _URL.sub(lambda match: _mask_credentials(match[0]), text)
    return _mask_tokens(text)


def _mask_credentials(url: str) -> str:
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    if "@" in authority:
        authority = f"{MASK}@{authority.rpartition('@')[2]}"
    return f"{scheme}://{authority}{slash}{path}"


def _mask_tokens(text: str) -> str:
    return _TOKEN.sub(MASK, _BEARER.sub(rf"\1 {MASK}", text))


def mask_arguments(arguments: object, *, limit: int = 60) -> Any:
    """Return a call's arguments for a log: telling keys masked, long texts shortened."""
    if isinstance(arguments, dict):
        items = cast("dict[str, object]", arguments).items()
        return {
            key: MASK if is_telling(key) and value is not None else mask_arguments(value, limit=limit)
            for key, value in items
        }
    if isinstance(arguments, list):
        return [mask_arguments(item, limit=limit) for item in cast("list[object]", arguments)]
    if isinstance(arguments, str):
        text = mask_text(arguments)
        return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
    return arguments
