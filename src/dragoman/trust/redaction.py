"""Mask the known secret values of the running servers wherever they appear.

`masking` recognises what looks like a secret; a `Redactor` knows the actual values: those that a server is
given, collected by `secret_values` after variables are expanded. It masks them as they are and in every
encoding in which they travel: escapes of JSON, Python, HTML, URLs and mails, also of every single character;
hexadecimal in any case, base32, and base64 at any offset (`Basic` logins contain `user:password`), also
broken into lines or groups; see `readings`. Each value is searched for once in each reading and overlapping
matches are masked together, so the work is linear in the text and no half of a secret remains. A truncated
text, such as the last lines of a log, may start or end within a secret: beginnings and ends of secrets are
masked too, from half of the secret or `LONGEST_FRAGMENT` characters on.

Not masked, because it would make texts unreadable and hide nothing: values shorter than 6 characters (4 if
their name is sensitive), words in `COMMON`, numbers below 8 digits, paths that exist or whose name says that
they are one (`TOKEN_FILE`), and, under names that are not sensitive, any path, URL, host and media type.
Base64 is searched for values of 9 bytes and more.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import os
import re
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple, NoReturn
from urllib.parse import quote, quote_plus, unquote_plus

from dragoman.model import Stdio
from dragoman.model.keys import texts_of
from dragoman.trust.masking import (
    CAMEL,
    MASK,
    is_sensitive_name,
    looks_random,
    mask_args,
    mask_text,
    mask_url,
    mask_value,
)
from dragoman.trust.readings import digits_text, packed_text, readings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from dragoman.model import ServerSpec, Transport
    from dragoman.trust.readings import Kind

MIN_CHARS = 6
MIN_TOLD_CHARS = 4
"""Shortest value that is masked if its name is sensitive."""
MIN_BASE64_BYTES = 9
MIN_FRAGMENT = 6
LONGEST_FRAGMENT = 12
MIN_LINE_CHARS = 16
"""Values of several lines, such as private keys, are also masked line by line."""
MAX_CHARS = 16_384
MAX_MEMO = 1024
MEMO_CHARS = 2_000
"""Texts up to this length are cached with their masked form: when a server dies, thousands of calls fail with
the same message."""
MAX_PASSING = 64
"""Temporary values, from the headers of calls; each one slows down all masking."""
COMMON = frozenset(
    """true false none null yes off auto default enabled disabled always never info debug warn warning error
    critical notset trace verbose quiet silent test tests testing dev develop development prod production
    stage staging local localhost localdomain main master public private admin root user guest basic bearer
    token secret password passwd changeme stdio http https json text utf8 utf-8 en_us.utf-8 c.utf-8 posix
    standard minimal strict latest stable file memory sqlite postgres postgresql mysql redis example
    anonymous undefined""".split()
)

_PATH = re.compile(r"[~.]{0,2}[/\\]|[A-Za-z]:[/\\]|\.{1,2}$|~$")
_MIME = re.compile(r"(?:application|audio|font|image|model|multipart|text|video|\*)/[\w.+*-]+(?:[;,].*)?")
_HOST = re.compile(r"(?=.{1,253}$)(?:[a-z0-9-]{1,63}\.)+[a-z]{2,24}(?::\d{1,5})?/?", re.IGNORECASE)


SYSTEM_VARIABLES = frozenset(
    {
        *("PWD", "OLDPWD", "SSH_AUTH_SOCK", "XAUTHORITY", "TERM_SESSION_ID", "SESSION_MANAGER", "GDMSESSION"),
        *(
            "XDG_SESSION_ID",
            "XDG_SESSION_TYPE",
            "XDG_SESSION_CLASS",
            "XDG_SESSION_DESKTOP",
            "DESKTOP_SESSION",
        ),
        "DBUS_SESSION_BUS_ADDRESS",
    }
)
"""Variables of shells and desktops that only sound like secrets: folders and sockets."""


def is_secret(value: str, name: str = "", *, on_disk: bool = True) -> bool:
    """Return whether a value is worth masking, given its name.

    Args:
        value: The value.
        name: The name of its variable or header.
        on_disk: Whether to look whether a value under a sensitive name is the path of a file.
    """
    told = bool(name) and is_sensitive_name(name)
    plain = value.strip()
    if len(plain) < (MIN_TOLD_CHARS if told else MIN_CHARS) or plain.lower() in COMMON:
        return False
    if plain.isdigit() and len(plain) < 8 and not (told and len(plain) >= MIN_CHARS):
        return False
    if told:
        return not is_path(plain, name, on_disk=on_disk)
    is_place = _PATH.match(plain) or _HOST.fullmatch(plain) or _is_address(plain) or "://" in plain
    return not (is_place or _MIME.fullmatch(plain))


_PLACE_NAME = re.compile(r"(?:.*[-_])?(?:file|path|dir|credentials)", re.IGNORECASE)
_ROOT = re.compile(r"~|\.{0,2}|[A-Za-z]:")
_PATH_PART = re.compile(r"[\w .@+~()-]{1,255}")
_FILE_ENDING = re.compile(
    r".*\.(?:json|jsonc|pem|key|txt|crt|cer|der|p12|pfx|ppk|pub|jks|gpg|asc|enc|jwt|token|secret|ya?ml|toml|ini|"
    r"conf|cfg|env|xml|properties)",
    re.IGNORECASE,
)
MAX_PATH = 4096


def is_path(value: str, name: str = "", *, on_disk: bool = True) -> bool:
    """Return whether a value under a sensitive name says where a secret is, and is none itself.

    It is a path if that path exists, or if the name says so and the value looks like one. Where a path was
    taken for a secret, its folders would be masked in every error of every server.
    """
    plain = value.strip()
    # On Windows, a look at a share (`\\host\share`) would log in there.
    if not 1 < len(plain) <= MAX_PATH or plain.startswith(("//", "\\\\")) or "://" in plain:
        return False
    if _PLACE_NAME.fullmatch(CAMEL.sub("-", name)) and _looks_like_path(plain):
        return True
    has_folder = "/" in plain or os.sep in plain
    return on_disk and has_folder and os.path.exists(os.path.expanduser(plain))  # noqa: PTH110, PTH111 -- `Path` raises for some texts


def _looks_like_path(text: str) -> bool:
    root, *parts = re.split(r"[/\\]", text)
    is_rooted = bool(parts) and bool(_ROOT.fullmatch(root))
    names = [part for part in (parts if is_rooted else [root, *parts]) if part]
    if not names or not all(_PATH_PART.fullmatch(one) and not looks_random(one, least=16) for one in names):
        return False
    return bool(_FILE_ENDING.fullmatch(names[-1])) or (is_rooted and len(names) > 1)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return False
    return True


def secret_values(
    transport: Transport, env: Mapping[str, str] | None = None, *, on_disk: bool = True
) -> set[str]:
    """Return the secrets that a server is given.

    Args:
        transport: Its transport, with variables expanded.
        env: The inherited environment; only values of sensitive names count.
        on_disk: Whether to look which values are paths that exist.
    """
    found: set[str] = set()
    if isinstance(transport, Stdio):
        found.update(_inherited_values(env) if env else ())
        for name, value in transport.env.items():
            found.update(_value_parts(value or "", name, on_disk=on_disk))
        for arg, masked in zip(transport.args, mask_args(transport.args), strict=True):
            parts = hidden_parts(arg, masked)
            parts += [part.partition(":")[2] for part in parts] if "://" in arg else []
            found.update(part for part in parts if is_secret(part, "token", on_disk=on_disk))
    else:
        found.update(header_values(transport.headers), _url_parts(transport.url))
    return found


_inherited: tuple[object, frozenset[str]] = (None, frozenset())
"""The secrets of the environment that was looked at last: that of the next server is mostly the same."""


def _inherited_values(env: Mapping[str, str]) -> frozenset[str]:
    global _inherited  # noqa: PLW0603 -- the environment of this process
    items = frozenset(env.items())
    if items != _inherited[0]:
        found: set[str] = set()
        for name, value in items:
            if is_sensitive_name(name) and name not in SYSTEM_VARIABLES:
                found.update(_value_parts(value, name))
            # Addresses of proxies and package indexes may hold passwords, whatever their names are; a list of
            # indexes has several.
            for word in value.split() if "@" in value else ():
                found.update(_password_parts(word))
        _inherited = (items, frozenset(found))
    return _inherited[1]


def header_values(headers: Mapping[str, str]) -> set[str]:
    """Return the secrets in headers whose variables are expanded."""
    found: set[str] = set()
    for name, value in headers.items():
        parts = [value, *hidden_parts(value, mask_value(value))]
        found.update(part for part in parts if is_secret(part, name, on_disk=False))
    return found


def spec_values(spec: ServerSpec, *, on_disk: bool = True) -> set[str]:
    """Return the secrets written literally in a spec, without expanding variables.

    For use before a connection, when the values of variables are not known yet.

    Args:
        spec: The spec.
        on_disk: Whether to look which values are paths that exist; not for a spec that is not approved.
    """
    found = secret_values(spec.transport, on_disk=on_disk)
    if spec.auth is not None:
        for value in texts_of(spec.auth, secret=True).values():
            found.update(hidden_parts(value, mask_value(value)))
    for rules in spec.tools.values():
        for name, rule in rules.arguments.items():
            for value in (rule.value, rule.default):
                if isinstance(value, str) and is_sensitive_name(name):
                    found.update(_value_parts(value, name, on_disk=on_disk))
    return {value for value in found if "${" not in value}


def _value_parts(value: str, name: str, *, on_disk: bool = True) -> list[str]:
    is_told = is_sensitive_name(name)
    if "://" in value:
        parts = _url_parts(value)
        return [*parts, value] if is_told else parts
    if is_told and is_path(value, name, on_disk=on_disk):
        return []
    # The words of a path that does not exist are no paths because one of them does.
    parts = [value, *value.split()] if is_told else [value]
    return [part for part in parts if is_secret(part, name, on_disk=False)]


def _password_parts(url: str) -> list[str]:
    """Return the password in an address, as it is written and decoded; a proxy may have no scheme."""
    user, at, _ = url.rpartition("://")[2].partition("/")[0].rpartition("@")
    password = user.partition(":")[2] if at else ""
    return [form for form in (password, unquote_plus(password)) if is_secret(form, "password", on_disk=False)]


def _url_parts(url: str) -> list[str]:
    address, _, rest = url.partition("?")
    found: list[str] = []
    for part in hidden_parts(address, mask_url(address)):
        for piece in (part, part.partition(":")[2]):
            forms = (piece, unquote_plus(piece))
            found += [form for form in forms if is_secret(form, "password", on_disk=False)]
    for pair in rest.replace("#", "&").split("&"):
        name, equals, value = pair.partition("=")
        value, name = (value, name) if equals else (name, "")
        forms = (value, unquote_plus(value))
        found += [form for form in forms if is_secret(form, name, on_disk=False)]
    return found


_QUOTED = re.compile(r"""(["'])((?:\\.|(?!\1)[^\\])*+)(?:\1|\Z)""", re.DOTALL)


def hidden_parts(text: str, masked: str) -> list[str]:
    """Return the texts that were replaced by the mask; those in quotes also without them."""
    parts = _aligned(text, masked)
    if parts is None:
        # JSON is masked as data and written again, with other blanks.
        shown = set(_in_quotes(masked))
        return [text, *(word for word in _in_quotes(text) if word not in shown)]
    return [*parts, *(word for part in parts for word in _in_quotes(part))]


def _aligned(text: str, masked: str) -> list[str] | None:
    parts: list[str] = []
    pieces = masked.split(MASK)
    if not text.startswith(pieces[0]):
        return None
    start = len(pieces[0])
    for index, piece in enumerate(pieces[1:], 2):
        end = text.find(piece, start) if piece and index < len(pieces) else len(text) - len(piece)
        if end < start or not text.startswith(piece, end):
            return None
        parts.append(text[start:end])
        start = end + len(piece)
    return parts


def _in_quotes(text: str) -> Iterator[str]:
    for _, inner in _QUOTED.findall(text):
        yield inner
        if "\\" in inner:
            try:
                yield json.loads(f'"{inner}"')
            except ValueError:
                continue


class Redactor:
    """Masks known values, and text that looks like a secret.

    Values are added as servers start; none is forgotten, since a log may show an old one late. Temporary
    values of calls are kept too, the last `MAX_PASSING` of them. A redactor never shows its values.

    The redactor of one user masks what the program's own does, and the secrets of this user, which end with
    it.
    """

    __slots__ = ("_forms", "_memo", "_memo_of", "_passing", "_program", "_seen", "_values")

    def __init__(self, values: Iterable[str] = (), *, program: Redactor | None = None) -> None:
        self._program = program
        self._memo_of: object = None
        """The memo of the program's redactor that ours is based on; it is replaced with every new value."""
        self._values: set[str] = set()
        self._forms: dict[tuple[Kind, str], WrittenForm] = {}
        self._seen = 0, _sorted(())
        """The number of forms of the values, and all of them by kind; computed when a text is masked."""
        self._memo: dict[str, str] = {}
        self._passing: dict[str, dict[Kind, tuple[WrittenForm, ...]] | None] = {}
        self.add(values)

    def add(self, values: Iterable[str]) -> None:
        """Mask these values from now on; trivial values are skipped."""
        new = self._unknown(values)
        if not new:
            return
        # Several threads may add at once: shared data only grows, each time in one atomic step.
        self._forms.update({(form.kind, form.text): form for value in new for form in _forms(value)})
        self._values |= new
        # A new dictionary, so that a thread that is masking now cannot put a stale entry into it.
        self._memo = {}

    def add_passing(self, values: Iterable[str]) -> None:
        """Mask these values temporarily, until `MAX_PASSING` others were added."""
        new = self._unknown(values)
        if not new:
            return
        passing = {value: forms for value, forms in self._passing.items() if value not in new}
        passing |= {value: self._passing.get(value) for value in sorted(new)}
        is_known = len(passing) == len(self._passing)
        for value in list(passing)[:-MAX_PASSING]:
            del passing[value]
        # New objects, as in `add`; encoded forms are computed only when a text is masked.
        self._passing = passing
        if not is_known:
            self._memo = {}

    def _unknown(self, values: Iterable[str]) -> set[str]:
        known = self._values if self._program is None else self._values | self._program._values  # noqa: SLF001 -- of this class
        return {value for value in values if value not in known and is_secret(value, "token", on_disk=False)}

    def mask(self, text: str) -> str:
        """Mask the known values and everything that looks like a secret."""
        if self._program is not None and self._program._memo is not self._memo_of:  # noqa: SLF001 -- of this class
            self._memo, self._memo_of = {}, self._program._memo  # noqa: SLF001 -- of this class
        memo = self._memo
        if (known := memo.get(text)) is not None:
            return known
        masked = mask_text(self.mask_known(text))
        if len(text) <= MEMO_CHARS and len(memo) < MAX_MEMO:
            memo[text] = masked
        return masked

    def mask_known(self, text: str, *, own: bool = False) -> str:
        """Mask the known values only.

        Args:
            text: The text.
            own: Whether the program's redactor has masked it already.
        """
        forms = self._own_forms if own else self._all_forms
        spans = _spans(text, forms("text"))
        for kind, reading in readings(text):
            if found := _spans(reading.text, forms(kind)):
                spans += reading.origins(found)
        if not spans:
            return text
        pieces: list[str] = []
        end = 0
        for start, stop in sorted(spans):
            if start > end or not pieces:
                pieces += [text[end:start], MASK]
            end = max(end, stop)
        return "".join([*pieces, text[end:]])

    def holds(self, text: str) -> bool:
        """Return whether a text contains a known value, for texts that must not be stored then."""
        if not any(True for kind in self._seen[1] for _ in self._all_forms(kind)):
            return False
        return any(form.text in text for form in self._all_forms("text")) or any(
            form.text in reading.text for kind, reading in readings(text) for form in self._all_forms(kind)
        )

    def _all_forms(self, kind: Kind) -> Iterator[WrittenForm]:
        if self._program is not None:
            yield from self._program._all_forms(kind)  # noqa: SLF001 -- of this class
        yield from self._own_forms(kind)

    def _own_forms(self, kind: Kind) -> Iterator[WrittenForm]:
        count, seen = self._seen
        if count != len(self._forms):
            # Copying is atomic; iterating could clash with another thread that adds.
            forms = self._forms.copy()
            seen = _sorted(forms.values())
            self._seen = len(forms), seen
        yield from seen[kind]
        passing = self._passing
        for value, known in list(passing.items()):
            if known is None:
                known = passing[value] = _sorted(_forms(value))
            yield from known[kind]

    def __len__(self) -> int:
        return len(self._values) + len(self._passing)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} values)"

    def __reduce__(self) -> NoReturn:
        msg = "a Redactor contains secrets and cannot be pickled"
        raise TypeError(msg)


current_redactor: ContextVar[Redactor | None] = ContextVar("in_use", default=None)
"""The redactor for the connection that the current task opens, used by code that records its output."""


class WrittenForm(NamedTuple):
    """A value as it may be written, in one kind of reading."""

    kind: Kind
    text: str
    period: int
    """The smallest distance at which it can overlap itself."""
    head: str
    """Its beginning, of the length from which a fragment is masked."""
    tail: str
    """Its end, of the same length; empty if no fragment is masked."""


def _form(kind: Kind, text: str, least: int | None = None) -> WrittenForm:
    if least is None:
        # The folders of a path are in many texts.
        least = len(text) if _looks_like_path(text) else _least(text)
    tail = text[-least:] if least < len(text) else ""
    return WrittenForm(kind, text, _period(text), text[:least], "" if _is_word(tail) else tail)


def _sorted(forms: Iterable[WrittenForm]) -> dict[Kind, tuple[WrittenForm, ...]]:
    found: dict[Kind, list[WrittenForm]] = {"text": [], "packed": [], "digits": []}
    for form in forms:
        found[form.kind].append(form)
    return {kind: tuple(some) for kind, some in found.items()}


def _spans(text: str, forms: Iterable[WrittenForm]) -> list[tuple[int, int]]:
    """Return the places where a text has one of the forms, or a fragment of one."""
    spans: list[tuple[int, int]] = []
    for _, form, period, head, tail in forms:
        # Almost no text contains a given value: search for its beginning and its end first.
        if head in text:
            at = start = text.find(form)
            while at >= 0:
                stop = at + len(form)
                # A value can overlap itself only at multiples of its period.
                at = text.find(form, at + period)
                if at < 0 or at > stop:
                    spans.append((start, stop))
                    start = at
            if len(head) < len(form) and not _is_word(head):
                spans += _beginnings(text, form, head)
        if tail and tail in text:
            spans += _ends(text, form, tail)
    return spans


def _beginnings(text: str, form: str, head: str) -> Iterator[tuple[int, int]]:
    """Yield the places where a text has the beginning of a form, long enough to matter."""
    at = text.find(head)
    while at >= 0:
        stop = at + len(head)
        while stop - at < len(form) and text[stop : stop + 1] == form[stop - at]:
            stop += 1
        yield at, stop
        at = text.find(head, stop)


def _ends(text: str, form: str, tail: str) -> Iterator[tuple[int, int]]:
    """Yield the places where a text has the end of a form, long enough to matter."""
    at = text.rfind(tail)
    while at >= 0:
        start, stop = at, at + len(tail)
        while stop - start < len(form) and start and text[start - 1] == form[start - 1 - stop]:
            start -= 1
        yield start, stop
        at = text.rfind(tail, 0, start)


def _least(form: str) -> int:
    """Return the length from which a fragment of a form is masked."""
    return min(len(form), LONGEST_FRAGMENT, max(MIN_FRAGMENT, len(form) // 2))


def _is_word(fragment: str) -> bool:
    """Return whether a fragment may be an ordinary word: `production-7` must not hide `production`."""
    return fragment.isalpha() and (fragment.islower() or fragment.isupper() or fragment.istitle())


def _forms(value: str) -> Iterator[WrittenForm]:
    """Yield what to look for in each kind of reading."""
    value = value.strip()[:MAX_CHARS]
    lines = (line.strip() for line in value.splitlines())
    for text in {value, *(line for line in lines if len(line) >= MIN_LINE_CHARS)}:
        data = text.encode("utf-8", "surrogatepass")
        for written in _spellings(text, data):
            if len(written) >= MIN_TOLD_CHARS:
                yield _form("text", written)
        if len(data) >= MIN_BASE64_BYTES:
            wide = _wide(text)
            for written in _base64(data).union(*map(_base64, wide)):
                yield _form("packed", written)
            for written in (data.hex(), *(one.hex() for one in wide), *_base32(data)):
                yield _form("digits", written)
            decimal = "".join(map(str, data))  # a list of bytes
            yield _form("digits", decimal, len(decimal))
    # A long value may be broken into lines or pieces, too; its words alone say nothing.
    packed = packed_text(value)
    if len(packed) >= MIN_LINE_CHARS:
        yield _form("packed", packed, len(packed))
    plain = digits_text(value)
    if len(plain) >= MIN_LINE_CHARS and not plain.isalpha():
        yield _form("digits", plain, len(plain))


def _spellings(text: str, data: bytes) -> set[str]:
    """Return a text in the usual escapes; those of single characters are a matter of `readings`."""
    found = {text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1]}
    # As `html.escape` does, whose module has a table of 2,000 characters.
    markup = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    quoted = markup.replace('"', "&quot;").replace("'", "&#x27;")
    # JSON inside JSON, as written by tools that log requests.
    found |= {json.dumps(form)[1:-1] for form in found} | {markup, quoted}
    for percent in (quote(data, safe=""), quote(data), quote_plus(data), quote(data, safe=_URL_SAFE)):
        found |= {percent, re.sub(r"%[0-9A-F]{2}", lambda match: match[0].lower(), percent)}
    if not text.isascii():
        # Escapes of single bytes, and of the two halves of a character, are read one by one.
        halves = text.encode("utf-16-le", "surrogatepass")
        pairs = zip(halves[::2], halves[1::2], strict=True)
        found |= {data.decode("latin-1"), "".join(chr(low + 256 * high) for low, high in pairs)}
    return found


_URL_SAFE = "!$&'()*+,;=:@/?-._~"
"""Characters that URL libraries do not encode inside a query."""


def _wide(text: str) -> list[bytes]:
    """Return a text in UTF-16, as Windows writes it, in both orders of the bytes."""
    found = [text.encode(f"utf-16-{order}", "surrogatepass") for order in ("le", "be")]
    # Of a text in Latin letters, either order contains this.
    return [found[0][:-1]] if max(text) <= "\xff" else found


def _base64(data: bytes) -> set[str]:
    forms = {_core(base64.b64encode, data, offset, 6) for offset in range(3)}
    return forms | {form.translate(_URL_ALPHABET) for form in forms}


def _base32(data: bytes) -> set[str]:
    return {_core(base64.b32encode, data, offset, 5).lower() for offset in range(5)}


def _core(encode: Callable[[bytes], bytes], data: bytes, offset: int, bits: int) -> str:
    """Return the characters that are the same whatever stands before and after the data."""
    # The first characters contain bits of the text before, the last ones of the text after.
    encoded = encode(b"\0" * offset + data).decode()
    return encoded[-(-offset * 8 // bits) : (offset + len(data)) * 8 // bits]


_URL_ALPHABET = str.maketrans("+/", "-_")


def _period(text: str) -> int:
    """Return the smallest distance at which a text can overlap itself."""
    borders = [0] * len(text)
    length = 0
    for index in range(1, len(text)):
        while length and text[index] != text[length]:
            length = borders[length - 1]
        length += text[index] == text[length]
        borders[index] = length
    return len(text) - borders[-1] if text else 1
