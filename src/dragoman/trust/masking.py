"""Mask text that looks like a secret.

Values of variables and headers are masked whole, under any name, except for references (`${TOKEN}`): they
only say where a secret comes from. The default in a reference is masked like any value, and the words of a
command like arguments. Tokens of well-known formats are masked everywhere.

In a URL, these are masked: user name and password, the values of the query, the fragment, and segments of the
path that look random (`/s/9fK2…/sse`, a UUID) or follow a sensitive name (`/token/X`). The host stays: a
person must see where a connection goes.

Among arguments, these are masked:

- values of sensitive names: `--token X`, `--api-key=X`, `/password:X`, `API_KEY=X`,
  `X-Api-Key: X`, `Server=db;Password=X;`, `host=db password=X`, `{"apiKey": "X"}`;
- values of all variables (`-e NAME=X`) and headers (`-H "Name: X"`), as in the entry's own `env`;
- `name:X` after `-u` or before an `@`; `-pX` unless it is a port or a word; `-k=X`, and `-t=X`, `-t X` and
  the like unless X is a word, a number or a place;
- random-looking words of 20 characters and more.

UUIDs outside of URLs, digests after `sha256:`, commits after `@` or `#`, ports, versions, packages and paths
stay.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from dragoman.model import ServerSpec, Stdio

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LONGEST_LOOK = 2_000
"""Characters of a word that are checked."""

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")
_RUN = re.compile(r"[A-Za-z0-9]+")
_NUMBERS = re.compile(r"[0-9]+")
_NUMBER = re.compile(r"[0-9]{1,5}")
_KINDS = str.maketrans(
    {chr(code): "a" for code in range(ord("a"), ord("z") + 1)}
    | {chr(code): "A" for code in range(ord("A"), ord("Z") + 1)}
    | dict.fromkeys("0123456789", "0")
)
_CHANGE = re.compile(r"(?=aA|Aa|a0|0a|A0|0A)")
_MARKS = str.maketrans("", "", "+/-_~.%")
_VERSION = re.compile(r"v?\d{1,8}(?:[.-]\d{1,8}){0,4}(?:[-.]?[a-z]{1,10}\d{0,6})?")
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_BRANCH = re.compile(r"[\w./=&-]{1,100}")


def looks_random(word: str, *, least: int = 20) -> bool:
    """Return whether a word, or a part of it between punctuation, looks random.

    Words, packages and versions rarely change between letters and digits, or between upper and lower case;
    keys do so all the time.

    Args:
        word: A word without blanks.
        least: Shortest run of letters and digits to consider.
    """
    word = word[:LONGEST_LOOK]
    for run in _RUN.findall(word):
        if len(run) < least:
            continue
        if _HEX.fullmatch(run) and not run.isdigit():
            return True
        is_one_case = run.isalpha() and (run.islower() or run.isupper())
        if is_one_case and len(run) >= 28 and len(set(run)) >= 8:
            return True
        changes = len(_CHANGE.findall(run.translate(_KINDS)))
        # A word may contain one number; a key contains several.
        if changes >= len(run) / 2.6 or (changes >= len(run) / 5 and len(_NUMBERS.findall(run)) > 1):
            return True
    # The punctuation of base64 cuts a key into short parts.
    bare = word.rstrip("=").translate(_MARKS)
    kinds = bare.translate(_KINDS)
    is_mixed = all(kind in kinds for kind in "aA0") and len(_CHANGE.findall(kinds)) >= len(bare) / 3
    return bare != word and len(bare) >= least + 4 and is_mixed


def has_uuid(word: str) -> bool:
    """Return whether a word contains a UUID."""
    return bool(_UUID.search(word[:LONGEST_LOOK]))


def is_uuid(word: str) -> bool:
    """Return whether a word is a UUID and nothing else."""
    return bool(_UUID.fullmatch(word))


def is_login(word: str) -> bool:
    """Return whether a word is `name:password` in base64, as in HTTP basic authentication."""
    if not 12 <= len(word) <= 500 or not word.isascii():
        return False
    marks = b"-_" if "-" in word or "_" in word else None
    try:
        import base64  # late: few words look like that

        text = base64.b64decode(word + "=" * (-len(word) % 4), altchars=marks, validate=True)
    except ValueError:
        return False
    name, colon, password = text.partition(b":")
    return bool(name and colon and password) and all(0x21 <= letter < 0x7F for letter in text)


def is_version(word: str) -> bool:
    """Return whether a word is a version or a date: `v1`, `2025-06-18`, `1.2.3-rc1`."""
    return bool(_VERSION.fullmatch(word))


def is_revision(word: str) -> bool:
    """Return whether a word is a commit, or may be a branch or a tag."""
    return bool(_COMMIT.fullmatch(word) or (_BRANCH.fullmatch(word) and not looks_random(word)))


MASK = "•••"
MAX_DEPTH = 20
"""Depth to which a call's arguments are shown."""

_SENSITIVE = re.compile(
    r"(?:^|[^a-z])(?:auth|authorization|bearer|cookie|cred|jwt|mnemonic|otp|pass(?!-?(?:through|env))|pat|private|pw|"
    r"pwd|session|sid|sig|signature|"
    r"(?:api|access|account|admin|app|auth|client|deploy|encryption|license|master|private|secret|service|shared|"
    r"signing|storage|user)?[-_ ]?key)s?(?:$|[^a-z])"
    # These also count in the middle of a word: `PGPASSWORD`, `authtoken`, `clientsecret`.
    r"|(?:credential|passw(?:or)?d|passcode|passphrase|secret|token|apikey|sess(?:ion)?id|userpwd)s?(?:$|[^a-z])",
    re.IGNORECASE,
)
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Nothing may follow an unbounded repetition: then each character of any text is read once.
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:sk-[A-Za-z0-9_-]{16,}|[rs]k_(?:live|test)_[A-Za-z0-9]{16,}|gh[opsur]_[A-Za-z0-9]{20,}|"
    r"github_pat_\w{20,}|gl(?:pat|oas|dt|rt|cbt|ptt|soat)-[\w.-]{16,}|xox[abceoprs](?:\.[\w-]+)?-[\w-]{10,}|"
    r"xapp-[\w-]{10,}|A(?:KIA|SIA|BIA|CCA)[0-9A-Z]{16}|AIza[\w-]{30,}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{20,}|"
    # A signed token starts with an encoded `{"`; an encrypted one has five parts.
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
# Two of the schemes are also plain English words: `Basic Memory`, `token limit`, `token tools/call`.
_PROSE = (
    r"(?!(?-i:\s+[A-Za-z][a-z]{1,14}(?:/[a-z]{2,14}(?:[A-Z][a-z]{1,9})?){0,2})(?=[\s,;:!?)\"'`]|\.?\s|\.?$))"
)
_BEARER = re.compile(rf"\b(Bearer|Basic{_PROSE}|Token{_PROSE})(\s+)([^\s\"',]+)", re.IGNORECASE)
_SCHEME = re.compile(r"\s*(?:Bearer|Basic|Token)\b\s*", re.IGNORECASE)
# A longer default counts as literal text, so that the cost stays linear.
_REFERENCE = re.compile(
    r"(?<!\$)(\$\{(?:(?:env:)?[A-Za-z_][A-Za-z0-9_]*+|input:[\w.-]++|/"
    r"|keyring:(?!-)[^}$]{1,500}|command:(?P<words>(?!-)[^}$]{1,2000})))(?:(:?-)([^}$]{0,200}))?\}"
)
_OPTION = re.compile(r"(?:--?|/)[A-Za-z][\w.-]*")
_CLEAR_OPTION = re.compile(r"--[A-Za-z][\w.-]*|-[A-Za-z]")
_BARE_NAME = re.compile(r"[A-Za-z][\w.-]*")
_PAIR = re.compile(r"((?:-{0,2}|/)[A-Za-z_][\w.-]*+)(\s*+[:=]\s*+)(.+)", re.DOTALL)
_VARIABLES = frozenset({"-e", "--env", "--env-var", "--environment", "--build-arg", "--set-env"})
_HEADERS = frozenset({"-H", "--header", "--headers", "--http-header", "--request-header"})
_LOGINS = frozenset({"-u", "--user", "--login", "--proxy-user", "--userinfo", "-U"})
_PLAIN_HEADERS = frozenset(
    {"accept", "accept-encoding", "accept-language", "content-type", "user-agent", "host"}
)
_ATTACHED = re.compile(
    r"(-(?:e(?=[A-Z_][A-Z0-9_]{0,99}=)|H(?=[A-Z][\w-]{0,99}:)|u(?=[^\s:=]{1,99}:)))(.+)", re.DOTALL
)
"""`-eNAME=X`, `-HName: X` and `-uname:X`, without a blank."""
_DASH_P = re.compile(r"(-p)(?!=)(.+)", re.DOTALL)
_SHORT_PAIR = re.compile(r"(-[kKpPsStT])([=:])(.+)", re.DOTALL)
"""Short options for a key, a password, a secret or a token, with their value."""
_SHORT_SECRETS = frozenset({"-k", "-K", "-P", "-s", "-S", "-t", "-T"})
MIN_SHORT = 6
"""Shortest secret that may follow one of these, except `-k`."""
_PLAIN_VALUE = re.compile(r"@?(?:[A-Z]?[a-z]++|v?\d++)(?:[-_./@:\\](?:[A-Z]?[a-z]++|v?\d++))*")
"""Words and numbers with signs between them: a file, a package, a host and port."""
_PLAIN_P = re.compile(
    # A port, and options of one dash that start like it
    r"[\d.:\[\]-]+(?:/(?:tcp|udp))?|p?(?:a(?:ckage|ge|ges|rallel|rams|rent|th|tch|tern)|ersist|id|ipe|lain|latform|"
    r"lugins?|olicy|ool|ort|orts|osition|refix|reset|retty|review|rint|riority|rivileged|rocess|rod|rofile|rogress|"
    r"roject|rompt|roto|rotocol|rovider|roxy|thread|ublic|ublish|ull|ush|y|ython)(?:[-_=:.].*)?",
    re.DOTALL,
)
_WORDS = re.compile(r"""(?:"[^"]*+"|'[^']*+'|[^\s"'])++|["']""")
_FIELD = re.compile(
    # One `name=value` of a connection string: up to its separator, or in quotes or braces
    r"""([;,&:/|?]|^|(?<!\s)\s)(\s*+[A-Za-z_][\w.-]*+(?: (?:id|key|name|token|password))?)(\s?=\s?)"""
    r"""("[^"]*+"?|'[^']*+'?|\{[^}]*+\}?|[^;,&\s"'{][^;,&\s]*+)""",
    re.IGNORECASE,
)
_SEMICOLON_FIELD = re.compile(
    r"""(;|^)(\s*+[A-Za-z][\w. -]*+)(=)("[^"]*+"?|'[^']*+'?|\{[^}]*+\}?|[^;"'{][^;]*+)""", re.IGNORECASE
)
_LOGIN = re.compile(
    r"(?<![^\s=,;\"'(\[@])([^\s:@/=,;\"']{1,100}+):(?!//|\\)([^\s@\"']{1,200})@(?!sha(?:256|512):)"
)
_NO_LOGIN = re.compile(
    r"(?:npm|jsr|file|link|git|github|gitlab|bitbucket|gist|workspace|mailto|urn|pypi|oci|docker|http|https|data|"
    r"pkg|cargo|gem|sip|acct|[A-Za-z])",
    re.IGNORECASE,
)
"""Words before a colon that are not user names."""
_LOOSE_PAIR = re.compile(r"""(?<![\w.-])([A-Za-z_][\w.-]{0,99})(\s{0,9}[:=]\s{0,9})("[^"]*+"?|'[^']*+'?)""")
"""As in JSON5, YAML and TOML."""
_POINTING = re.compile(r".*[-_.](?:file|path|dir|env|var|name|stdin|store|provider|ref)", re.IGNORECASE)
"""Names for the place of a secret, not for the secret itself."""
_ANNOUNCED = re.compile(r"([A-Za-z]{2,20})([-_:.])(.{4,})")
_QUOTED_PAIR = re.compile(
    r"""(["'])([\w.-]++)\1(\s*+:\s*+)(["'])((?:\\.|(?!\4)[^\\])*+)(?:\4|\Z)"""
    r"""|(\\["'])([\w.-]++)\6(\s*+:\s*+)(\\["'])((?:(?!\9).)*+)(?:\9|\Z)""",
    re.DOTALL,
)
_PLAIN_WORD = re.compile(r"[A-Za-z]?[a-z]*(?:[-_.][a-z]+)*")
MAX_CHARS = 16_384
"""Characters of an argument or a URL that are shown; the rest is masked."""
# No scheme is longer; without a bound, matching a text of dots and letters would take quadratic time.
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{0,30}://[^\s\"'<>]+", re.IGNORECASE)
# A name before a colon without a port after it is a user name: the password may contain any character.
_USER = re.compile(r"[^/?#:@]*:(?!\d+(?:[/?#]|\Z)).*@|[^/?#]*@", re.DOTALL)


@lru_cache(maxsize=4096)
def is_sensitive_name(name: str) -> bool:
    """Return whether a name belongs to a secret: `api_key`, `X-Auth-Token`, `clientSecret`."""
    # The words that matter are at the beginning or the end.
    name = name if len(name) <= 400 else f"{name[:200]} {name[-200:]}"
    return bool(_SENSITIVE.search(CAMEL.sub("-", name)))


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
    """Mask the user's name and password, secret segments, the values of the query, and the fragment."""
    if len(url) > MAX_CHARS:
        return f"{mask_url(url[:MAX_CHARS])}{MASK}"
    scheme, slashes, rest = url.partition("://") if "://" in url else ("", "", url)
    shown = scheme + slashes
    user = _USER.match(rest)
    if user and any(mark in user[0] for mark in "/?#"):
        # It is impossible to say where such a password ends and the host begins.
        return shown + MASK
    if user:
        shown += f"{mask_value(user[0][:-1])}@"
        rest = rest[user.end() :]
    rest, hash_, fragment = rest.partition("#")
    path, mark, query = rest.partition("?")
    pairs = "&".join(_query_pair(pair) for pair in query.split("&")) if query else ""
    path = _mask_path(_mask_tokens(shown + path))
    if fragment and not (scheme.startswith("git+") and is_revision(fragment)):
        fragment = mask_value(fragment)
    return path + mark + pairs + hash_ + fragment


def _query_pair(pair: str) -> str:
    name, equals, value = pair.partition("=")
    return f"{_mask_tokens(name)}={mask_value(value)}" if equals else mask_value(name)


def _mask_path(address: str) -> str:
    """Mask the path segments of a URL that contain a secret."""
    start = address.find("/", address.find("://") + 3 if "://" in address else 0)
    if start < 0:
        return address
    segments = address[start:].split("/")
    masked: list[str] = []
    before = ""
    for segment in segments:
        masked.append(_mask_segment(segment, before) if segment and MASK not in segment else segment)
        before = segment
    return address[:start] + "/".join(masked)


def _mask_segment(segment: str, before: str) -> str:
    if "${" in segment:
        return mask_value(segment) if looks_random(segment, least=16) else segment
    name, equals, value = segment.partition("=")
    if equals and value and is_sensitive_name(name):
        return f"{name}={mask_value(value)}"
    word, at, revision = segment.rpartition("@")
    if at and word and is_revision(revision):
        return segment
    announced = _ANNOUNCED.fullmatch(segment)
    if announced and is_sensitive_name(announced[1]) and _is_odd(announced[3]):
        return f"{announced[1]}{announced[2]}{MASK}"
    if is_sensitive_name(before) and len(segment) >= 6 and _is_odd(segment):
        return MASK
    # `/s/…`: the shorter the word in front, the likelier a key follows.
    least = 10 if len(before) <= 2 and before.isalpha() else 16
    return MASK if looks_random(segment, least=least) or has_uuid(segment) or is_login(segment) else segment


def _is_odd(word: str) -> bool:
    """Return whether a word is not one that people use."""
    return not _PLAIN_WORD.fullmatch(word) and not is_version(word)


def mask_command(command: str) -> str:
    """Mask a command; users may write a whole command line into it, including secrets."""
    return " ".join(mask_args(command.split(" ")))


def mask_args(args: Sequence[str]) -> list[str]:
    """Mask the values of sensitive names, and arguments that look like a secret."""
    return _mask_words(args, depth=2)


def _mask_words(args: Sequence[str], *, depth: int) -> list[str]:
    masked: list[str] = []
    before = ""
    for arg in args:
        masked.append(_mask_after(before, arg, depth=depth))
        before = arg
    return masked


def _mask_after(before: str, arg: str, *, depth: int) -> str:
    """Mask an argument, given the one in front of it."""
    before = before.strip()
    if len(arg) > MAX_CHARS:
        return f"{_mask_after(before, arg[:MAX_CHARS], depth=depth)}{MASK}"
    if _CLEAR_OPTION.fullmatch(arg) and not (is_sensitive_name(before) and looks_random(arg, least=10)):
        return arg
    if before.startswith(("-", "/")) and _OPTION.fullmatch(before):
        if before in _VARIABLES:
            return _mask_variable(arg)
        if before in _HEADERS:
            return _mask_header(arg, depth=depth)
        if before in _LOGINS and ":" in arg:
            return _mask_login(arg, depth=depth)
        if is_sensitive_name(before):
            return _mask_tokens(arg) if _POINTING.fullmatch(before) else mask_value(arg)
        if before == "-p" and not _is_plain_p(arg):
            return mask_value(arg)
        if before in _SHORT_SECRETS and not _is_plain_short("-t", arg) and _may_follow(before, arg):
            return mask_value(arg)
        if before in ("-b", "--cookie-jar") and "=" in arg:
            return mask_value(arg)
        if before.lower().endswith(("rev", "commit", "sha", "ref", "digest", "checksum", "hash", "tag")):
            return _mask_tokens(arg)
    elif _BARE_NAME.fullmatch(before) and is_sensitive_name(before) and not _PLAIN_WORD.fullmatch(arg):
        # `config set api_key X`
        return arg if arg.startswith(("-", "/", ".")) or _is_name(arg) else mask_value(arg)
    return _mask_arg(arg, depth=depth)


def _is_name(arg: str) -> bool:
    return "@" in arg or "://" in arg or is_version(arg)


def _is_plain_p(value: str) -> bool:
    """Return whether what follows `-p` is a port, a path, a package or a word, and not a password."""
    return bool(_PLAIN_P.fullmatch(value) or _PLAIN_WORD.fullmatch(value) or set(value) & set("/\\.@"))


def _is_plain_short(option: str, value: str) -> bool:
    """Return whether the value of a short option can be shown: a place, or for `-t` and the like any word."""
    bare = value.strip("\"'")
    if "://" in bare or bare.startswith(("/", "./", "../", "~/")) or _NUMBER.fullmatch(bare):
        return True
    return option.lower() != "-k" and bool(_PLAIN_VALUE.fullmatch(bare) or is_version(bare))


def _may_follow(option: str, arg: str) -> bool:
    """Return whether a short option may have this secret: what follows `-t` is often a type or a time."""
    return option == "-k" or (len(arg) >= MIN_SHORT and any(map(str.isdigit, arg)))


def _mask_variable(arg: str) -> str:
    name, equals, value = arg.partition("=")
    return f"{name}={mask_value(value)}" if equals else _mask_arg(arg, depth=0)


def _mask_header(arg: str, *, depth: int) -> str:
    name, colon, value = arg.partition(":")
    is_header = colon and value.strip() and not value.startswith("//") and not value.strip().isdigit()
    if not is_header or name.strip().lower() in _PLAIN_HEADERS or not _BARE_NAME.fullmatch(name.strip()):
        return _mask_arg(arg, depth=depth)
    blank = value[: len(value) - len(value.lstrip())]
    return f"{name}:{blank}{mask_value(value.lstrip())}"


def _mask_login(arg: str, *, depth: int) -> str:
    name, _, value = arg.partition(":")
    # `-u 1000:1000` is a user and a group.
    if "://" in arg or (name.isdigit() and value.isdigit()) or not value:
        return _mask_arg(arg, depth=depth)
    return f"{name}:{mask_value(value)}"


def _mask_arg(arg: str, *, depth: int = 2) -> str:
    if len(arg) < 12 and arg.isalnum():
        return arg
    if depth and arg.lstrip()[:1] in ("{", "[") and (shown := _mask_json(arg)) is not None:
        return shown
    if depth and (attached := _ATTACHED.fullmatch(arg)):
        option, value = attached.groups()
        return option + _mask_after(option, value, depth=depth - 1)
    if (password := _DASH_P.fullmatch(arg)) and not _PLAIN_P.fullmatch(password[2]):
        return f"-p{mask_value(password[2])}"
    if (short := _SHORT_PAIR.fullmatch(arg)) and not _is_plain_short(short[1], short[3]):
        return f"{short[1]}{short[2]}{mask_value(short[3])}"
    before, rest = "", arg
    for _ in range(3):  # `--env=API_KEY=X` and `--header=X-Api-Key: X` have a name inside the value
        pair = _PAIR.fullmatch(rest)
        if pair is None:
            break
        name, separator, value = pair.groups()
        if _is_secret_name(name) and not value.startswith("//"):
            return f"{before}{name}{separator}{mask_value(value)}"
        if separator.strip() != "=":
            break
        before, rest = f"{before}{name}{separator}", value
        if name in _VARIABLES | _HEADERS | _LOGINS:
            return before + _mask_after(name, rest, depth=depth)
        if depth and rest[:1] in ("{", "[") and (shown := _mask_json(rest)) is not None:
            return before + shown
    if depth and (len(arg.split(None, 1)) > 1 or arg != arg.strip()):
        return _mask_line(arg, depth=depth - 1)
    return _mask_shapes(arg)


def _is_secret_name(name: str) -> bool:
    """Return whether the value that belongs to an argument's name is a secret."""
    return (is_sensitive_name(name) and not _POINTING.fullmatch(CAMEL.sub("-", name))) or name.lower() in (
        "/p",
        "/pw",
    )


def _mask_line(line: str, *, depth: int) -> str:
    """Mask the words of an argument that is a command line or a sentence."""
    line = _mask_fields(line)
    found = list(_WORDS.finditer(line))
    bare = [
        word[0][1:-1] if word[0][0] in "\"'" and word[0][0] == word[0][-1:] and len(word[0]) > 1 else word[0]
        for word in found
    ]
    masked = [
        shown if (shown := _mask_after(before, word, depth=depth)) != word else word
        for before, word in zip(["", *bare], bare, strict=False)
    ]
    pieces: list[str] = []
    end = 0
    for match, word, shown in zip(found, bare, masked, strict=True):
        quote = match[0][0] if word != match[0] else ""
        pieces += line[end : match.start()], quote, shown, quote
        end = match.end()
    return _mask_shapes("".join([*pieces, line[end:]]))


def _mask_shapes(text: str) -> str:
    """Mask a text that is recognisable as a secret by itself."""
    text = _mask_fields(text)
    masked = mask_text(text)
    if "@" in masked and ":" in masked:
        masked = _LOGIN.sub(_login, masked)
    if len(masked) >= 12 and MASK not in masked:
        name, equals, value = masked.rpartition("=") if not masked.endswith("=") else ("", "", masked)
        if not _is_harmless(value) and (looks_random(value) or is_login(value)):
            return f"{name}{equals}{MASK}"
    return masked


def _mask_fields(text: str) -> str:
    """Mask the values of sensitive names in a connection string, and in any text of that form."""
    if "=" in text:
        text = (_SEMICOLON_FIELD if ";" in text and "://" not in text else _FIELD).sub(_field, text)
    if '"' in text or "'" in text:
        text = _LOOSE_PAIR.sub(
            lambda match: (
                f"{match[1]}{match[2]}{mask_value(match[3])}" if _is_secret_name(match[1]) else match[0]
            ),
            text,
        )
    return text


def _is_harmless(word: str) -> bool:
    """Return whether a long word is a path, a package with its commit or digest, a URL or a UUID."""
    return bool(
        "/" in word
        or "\\" in word
        or "@" in word
        or "#" in word
        or "${" in word
        or any(map(str.isspace, word))
    ) or bool(is_uuid(word) or word.startswith(("sha256:", "sha512:", "sha512-", "sha256-")))


def _field(match: re.Match[str]) -> str:
    separator, name, equals, value = match.groups()
    if not _is_secret_name(name.strip()):
        return match[0]
    return f"{separator}{name}{equals}{mask_value(value)}"


def _login(match: re.Match[str]) -> str:
    name, word = match.groups()
    port_and_path = word.partition("/")[0].isdigit() and "/" in word
    are_numbers = name.isdigit() and word.isdigit()
    if _NO_LOGIN.fullmatch(name) or port_and_path or are_numbers or MASK in word:
        return match[0]
    return f"{mask_value(name)}:{mask_value(word)}@"


def _mask_json(text: str) -> str | None:
    """Mask the values of sensitive names, variables and headers in JSON; `None` if it is not JSON."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    shown = _mask_tree(data, MAX_DEPTH, hides=False)
    return text if shown == data else json.dumps(shown, ensure_ascii=False)


def _mask_tree(value: object, depth: int, *, hides: bool) -> object:
    if depth == 0:
        return "…"
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        return {
            key: _mask_tree(
                item,
                depth - 1,
                hides=hides or is_sensitive_name(key) or key.lower() in ("env", "headers", "environment"),
            )
            for key, item in table.items()
        }
    if isinstance(value, list):
        items = cast("list[object]", value)
        if not hides and all(isinstance(item, str) for item in items):
            return _mask_words(cast("list[str]", items), depth=1)
        return [_mask_tree(item, depth - 1, hides=hides) for item in items]
    if hides:
        is_text = isinstance(value, str)
        return mask_value(value) if is_text else value if value is None or isinstance(value, bool) else MASK
    return _mask_arg(value, depth=1) if isinstance(value, str) else value


def mask_text(text: str) -> str:
    """Mask well-known tokens, secrets in URLs, and quoted values of sensitive names, in any text."""
    if "://" in text:
        text = _URL.sub(lambda match: mask_url(match[0]), text)
    return _mask_tokens(_QUOTED_PAIR.sub(_quoted_pair, text))


def _quoted_pair(match: re.Match[str]) -> str:
    opening, name, separator, quote, value = match.groups()[:5] if match[1] else match.groups()[5:]
    if not is_sensitive_name(name):
        return match[0]
    return f"{opening}{name}{opening}{separator}{quote}{mask_value(value)}{quote}"


def _mask_tokens(text: str) -> str:
    text = _BEARER.sub(lambda match: f"{match[1]}{match[2]}{mask_value(match[3])}", text)
    if "PRIVATE KEY" in text:
        text = _PRIVATE_KEY.sub(MASK, text)
    return _TOKEN.sub(MASK, text)


MAX_INTEGER_BITS = 1024
"""Python does not write integers of very many digits, and other parsers read this many as infinity."""
HUGE_INTEGER = "(a very large integer)"


def mask_arguments(arguments: object, *, limit: int = 60, depth: int = MAX_DEPTH) -> Any:
    """Return a call's arguments for a log: sensitive keys masked, long texts shortened."""
    if isinstance(arguments, str):
        text = mask_text(arguments)
        return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
    if isinstance(arguments, int) and arguments.bit_length() > MAX_INTEGER_BITS:
        return HUGE_INTEGER
    if not isinstance(arguments, Mapping | list | tuple | set | frozenset | bytes | bytearray):
        return arguments
    if depth == 0:
        return "…"
    if isinstance(arguments, bytes | bytearray):
        return f"({len(arguments)} bytes)"
    if isinstance(arguments, Mapping):
        items = cast("Mapping[object, object]", arguments).items()
        return {
            mask_text(name): MASK
            if is_sensitive_name(name) and value is not None
            else mask_arguments(value, limit=limit, depth=depth - 1)
            for name, value in ((_written(key), value) for key, value in items)
        }
    values = cast("Sequence[object]", arguments)
    return [mask_arguments(item, limit=limit, depth=depth - 1) for item in values]


def _written(key: object) -> str:
    is_huge = isinstance(key, int) and key.bit_length() > MAX_INTEGER_BITS
    return HUGE_INTEGER if is_huge else str(key)


_MAX_DETAILS = 500
"""Characters of an error's details in its message; the whole is in `ProtocolError.data`."""
_MAX_DETAIL = 200
_DETAIL_ITEMS = 20


def details(data: object) -> str:
    """Return the `data` of an error as the end of its message: short, and with secrets masked."""
    if data is None or data in ("", {}, []):
        return ""
    text = json.dumps(mask_arguments(_few(data), limit=_MAX_DETAILS), ensure_ascii=False, default=repr)
    return f"; details: {text if len(text) <= _MAX_DETAILS else f'{text[:_MAX_DETAILS]}…'}"


def _few(data: object, depth: int = 4) -> object:
    """Return the beginning of some data: as much as fits into the details."""
    if isinstance(data, str):
        # Masked before it is cut to what is shown, so that no half of a secret is left over.
        text = mask_text(data[:_MAX_DETAILS])
        is_whole = len(text) <= _MAX_DETAIL and len(data) <= _MAX_DETAILS
        return text if is_whole else f"{text[:_MAX_DETAIL]}… ({len(data)} characters)"
    if isinstance(data, dict):
        pairs = islice(cast("dict[str, object]", data).items(), _DETAIL_ITEMS)
        return {str(name)[:_MAX_DETAIL]: _few(value, depth - 1) for name, value in pairs} if depth else "…"
    if isinstance(data, list):
        items = cast("list[object]", data)[:_DETAIL_ITEMS]
        return [_few(item, depth - 1) for item in items] if depth else "…"
    return data


MARGIN = 16_384
"""Characters that are masked beyond the end of the excerpt; no value in a `Redactor` is longer."""

_OPENING = re.compile(r"""(\\?["'])([\w.-]{1,200})\1\s{0,20}:\s{0,20}(\\?["'])""")


class Excerpt(NamedTuple):
    """The beginning of a text, masked."""

    text: str
    is_masked: bool = False
    is_cut: bool = False


def excerpt(text: str, limit: int, mask: Callable[[str], str] = mask_text, *, whole: bool = True) -> Excerpt:
    """Return at most so many characters of a text, masked.

    Args:
        text: Any text; only its beginning is read.
        limit: Characters to keep.
        mask: The masking function; takes linear time.
        whole: Whether this is the whole text, not the beginning of a longer one.
    """
    window = text[: limit + MARGIN]
    whole = whole and len(window) == len(text)
    masked = mask(window)
    if not whole:
        masked = _without_open_value(masked)
        kept = masked[: max(0, min(limit, len(masked) - MARGIN))]
    else:
        kept = masked[:limit]
    return Excerpt(kept, masked != window, not whole or len(kept) < len(masked))


def _without_open_value(text: str) -> str:
    """Mask the value of a sensitive name at the end of a text, where the closing quote was cut off."""
    last: re.Match[str] | None = None
    for found in _OPENING.finditer(text):
        last = found
    if last is None or not is_sensitive_name(last[2]):
        return text
    is_closed = re.search(rf"(?<!\\){re.escape(last[3])}", text[last.end() :])
    return text if is_closed else text[: last.end()] + MASK


def spec_key(spec: ServerSpec, root: str) -> str:
    """Return a hash of everything that determines a server's listing, without secrets: its manifest's key."""
    transport = spec.transport
    parts: dict[str, object] = {"name": spec.name, "kind": spec.kind, "protocol": spec.protocol}
    if isinstance(transport, Stdio):
        parts |= {
            "command": transport.command,
            "args": mask_args(transport.args),
            "cwd": transport.cwd,
            "env": sorted(transport.env),
            "root": root,
        }
    else:
        parts |= {
            "url": mask_url(transport.url),
            "headers": sorted(name.lower() for name in transport.headers),
        }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:40]
