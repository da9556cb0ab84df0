"""Masking: what looks like a secret is never shown.

Values of variables and headers are masked whole, whatever they are called, except for parts that are
references (`${TOKEN}`), which say where a secret comes from and are none; the default in a reference is
masked like any value, and the words of a command like arguments. In URLs the user's name and password, the
values of the query and the fragment are masked; among arguments those that follow or belong to a telling name
(`--token X`, `--api-key=X`, `API_KEY=X`, `X-Api-Key: X`, `{"apiKey": "X"}`); everywhere what has the shape of
a well-known token.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

MASK = "•••"
MAX_DEPTH = 20
"""How deep a call's arguments are followed; what lies below is not shown."""

_TELLING = re.compile(
    r"(?:^|[^a-z])(?:auth|authorization|bearer|cookie|pat|private|pwd|session|signature|"
    r"(?:api|access|private|secret|signing|encryption)?[-_ ]?key)s?(?:$|[^a-z])"
    # These say it in the middle of a word too: `PGPASSWORD`, `authtoken`, `clientsecret`.
    r"|(?:credential|passw(?:or)?d|passphrase|secret|token|apikey)s?(?:$|[^a-z])",
    re.IGNORECASE,
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Nothing may follow what repeats without an end: then each character is looked at once, whatever the text is.
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:sk-[A-Za-z0-9_-]{16,}|[rs]k_(?:live|test)_[A-Za-z0-9]{16,}|gh[opsur]_[A-Za-z0-9]{20,}|"
    r"github_pat_\w{20,}|gl(?:pat|oas|dt|rt|cbt|ptt|soat)-[\w.-]{16,}|xox[abceoprs](?:\.[\w-]+)?-[\w-]{10,}|"
    r"xapp-[\w-]{10,}|A(?:KIA|SIA|BIA|CCA)[0-9A-Z]{16}|AIza[\w-]{30,}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{20,}|"
    # A signed token begins with the encoded `{"`; one that is encrypted has five parts.
    r"eyJ[\w-]{16,}(?:\.[\w-]*){0,4}|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{30,}|tvly-[\w-]{16,}|"
    r"SG\.[\w-]{16,}(?:\.[\w-]*)?|ATATT[\w=-]{20,}|dop_v1_[a-f0-9]{32,}|shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32,}|"
    r"whsec_[\w+/=-]{16,}|lin_api_\w{20,}|ntn_\w{20,}|figd_[\w-]{20,}|sntry[su]_[\w+/=-]{20,}|"
    r"dckr_pat_[\w-]{20,}|r8_\w{30,}|gsk_\w{20,}|xai-[\w-]{20,}|pplx-\w{20,}|nvapi-[\w-]{20,}|"
    r"AGE-SECRET-KEY-1\w{20,}|\d{8,10}:AA[\w-]{32,})"
)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:[^-]|-(?!----))*"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"
)
# Two of the schemes are words of plain English too: `Basic Memory`, `token limit`.
_PROSE = r"(?!(?-i:\s+[A-Za-z][a-z]{1,14})(?=[\s,;:!?)\"'`]|\.?\s|\.?$))"
_BEARER = re.compile(rf"\b(Bearer|Basic{_PROSE}|Token{_PROSE})(\s+)([^\s\"',]+)", re.IGNORECASE)
_SCHEME = re.compile(r"\s*(?:Bearer|Basic|Token)\b\s*", re.IGNORECASE)
# A default beyond the bound is taken as a literal, so that no text costs more than its length.
_REFERENCE = re.compile(
    r"(?<!\$)(\$\{(?:(?:env:)?[A-Za-z_][A-Za-z0-9_]*|input:[\w.-]++|/"
    r"|keyring:(?!-)[^}]{1,500}|command:(?P<words>(?!-)[^}]{1,2000})))(?:(:?-)([^}]{0,200}))?\}"
)
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
_CLEAR_OPTION = re.compile(r"--[A-Za-z][\w.-]*|-[A-Za-z]")
_PAIR = re.compile(r"(-{0,2}[A-Za-z_][\w.-]*)(\s*[:=]\s*)(.+)", re.DOTALL)
_QUOTED_PAIR = re.compile(
    r"""(["'])([\w.-]+)\1(\s*:\s*)(["'])((?:\\.|(?!\4)[^\\])*)\4"""
    r"""|(\\["'])([\w.-]+)\6(\s*:\s*)(\\["'])(.*?)\9""",
    re.DOTALL,
)
# No scheme is longer, and without a bound a text of dots and letters would be read again from each of them.
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{0,30}://[^\s\"'<>]+", re.IGNORECASE)
# A name with a colon behind it that no port follows is a user's: the password may hold any character.
_USER = re.compile(r"[^/?#:@]*:(?!\d+(?:[/?#]|\Z)).*@|[^/?#]*@", re.DOTALL)


@lru_cache(maxsize=4096)
def is_telling(name: str) -> bool:
    """Tell whether a name announces a secret: `api_key`, `X-Auth-Token`, `clientSecret`."""
    return bool(_TELLING.search(_CAMEL.sub("-", name)))


def mask_value(value: str) -> str:
    """Mask everything but references: `Bearer ${TOKEN}` stays readable, `Bearer abc` does not."""
    masked: list[str] = []
    end = 0
    for match in _REFERENCE.finditer(value):
        opening, words, operator, default = match.groups(default="")
        opening = f"${{command:{' '.join(mask_args(words.split(' ')))}" if words else opening
        masked += [_literal(value[end : match.start()]), opening, operator, MASK if default else "", "}"]
        end = match.end()
    return "".join([*masked, _literal(value[end:])])


def _literal(piece: str) -> str:
    if not piece.strip():
        return piece
    scheme = _SCHEME.match(piece)
    if scheme:
        return scheme[0] + (MASK if piece[scheme.end() :] else "")
    return MASK


def mask_values(values: Mapping[str, str | None]) -> dict[str, str | None]:
    """Mask the values of an environment or of headers; the names stay."""
    return {name: None if value is None else mask_value(value) for name, value in values.items()}


def mask_url(url: str) -> str:
    """Mask the user's name and password, the values of the query, and the fragment."""
    scheme, slashes, rest = url.partition("://") if "://" in url else ("", "", url)
    shown = scheme + slashes
    user = _USER.match(rest)
    if user and any(mark in user[0] for mark in "/?#"):
        # Where such a password ends and the host begins cannot be told.
        return shown + MASK
    if user:
        shown += f"{mask_value(user[0][:-1])}@"
        rest = rest[user.end() :]
    rest, hash_, fragment = rest.partition("#")
    path, mark, query = rest.partition("?")
    pairs = "&".join(_query_pair(pair) for pair in query.split("&")) if query else ""
    return _mask_tokens(shown + path) + mark + pairs + hash_ + (mask_value(fragment) if fragment else "")


def _query_pair(pair: str) -> str:
    name, equals, value = pair.partition("=")
    return f"{_mask_tokens(name)}={mask_value(value)}" if equals else mask_value(name)


def mask_args(args: Sequence[str]) -> list[str]:
    """Mask arguments that carry, or follow, a telling name, and those that look like a token."""
    masked: list[str] = []
    hide_next = False
    for arg in args:
        masked.append(mask_value(arg) if hide_next and not _CLEAR_OPTION.fullmatch(arg) else _mask_arg(arg))
        hide_next = bool(_OPTION.fullmatch(arg)) and is_telling(arg)
    return masked


def _mask_arg(arg: str) -> str:
    before, rest = "", arg
    for _ in range(3):  # `--env=API_KEY=X` and `--header=X-Api-Key: X` have a name inside the value
        pair = _PAIR.fullmatch(rest)
        if pair is None:
            break
        name, separator, value = pair.groups()
        if is_telling(name):
            return f"{before}{name}{separator}{mask_value(value)}"
        if separator.strip() != "=":
            break
        before, rest = f"{before}{name}{separator}", value
    return before + mask_text(rest)


def mask_text(text: str) -> str:
    """Mask tokens of well-known shapes, URLs' secrets, and quoted values of telling names, in any text."""
    if "://" in text:
        text = _URL.sub(lambda match: mask_url(match[0]), text)
    return _mask_tokens(_QUOTED_PAIR.sub(_quoted_pair, text))


def _quoted_pair(match: re.Match[str]) -> str:
    opening, name, separator, quote, value = match.groups()[:5] if match[1] else match.groups()[5:]
    if not is_telling(name):
        return match[0]
    return f"{opening}{name}{opening}{separator}{quote}{mask_value(value)}{quote}"


def _mask_tokens(text: str) -> str:
    text = _BEARER.sub(lambda match: f"{match[1]}{match[2]}{mask_value(match[3])}", text)
    if "PRIVATE KEY" in text:
        text = _PRIVATE_KEY.sub(MASK, text)
    return _TOKEN.sub(MASK, text)


def mask_arguments(arguments: object, *, limit: int = 60, depth: int = MAX_DEPTH) -> Any:
    """Return a call's arguments for a log: telling keys masked, long texts shortened."""
    if isinstance(arguments, str):
        text = mask_text(arguments)
        return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
    if not isinstance(arguments, Mapping | list | tuple | set | frozenset | bytes | bytearray):
        return arguments
    if depth == 0:
        return "…"
    if isinstance(arguments, bytes | bytearray):
        return f"({len(arguments)} bytes)"
    if isinstance(arguments, Mapping):
        items = cast("Mapping[object, object]", arguments).items()
        return {
            mask_text(str(key)): MASK
            if is_telling(str(key)) and value is not None
            else mask_arguments(value, limit=limit, depth=depth - 1)
            for key, value in items
        }
    values = cast("Sequence[object]", arguments)
    return [mask_arguments(item, limit=limit, depth=depth - 1) for item in values]
