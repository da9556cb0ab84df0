"""The values that are secret here and now, masked wherever they turn up.

`redact` knows what secrets look like; a `Redactor` knows which ones there are: the values that a server is
given, collected by `secret_values` once its variables are replaced. It masks them as they are and in the
dress in which they travel: JSON and Python escapes, HTML, percent-encoding, hexadecimal, and base64 at any
offset (`Basic` logins hold `user:password`). Every value is sought once over the text and overlapping finds
are masked as one, so the work is linear in the text and no half of a secret stays. What somebody cut, such as
the last lines of a log, may begin or end within a secret: its beginning and its end are masked too, from half
of it or `LONGEST_FRAGMENT` characters on.

Not masked is what would make texts unreadable and hides nothing: values shorter than 6 characters (4 where
their name announces a secret), words of `COMMON`, numbers below 8 digits, and, under names that announce
nothing, paths, addresses, hosts and media types. Base64 is sought for values of 9 bytes and more.
"""

from __future__ import annotations

import base64
import html
import ipaddress
import json
import re
from contextvars import ContextVar
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import quote, quote_plus, unquote_plus

from dragoman.model import Stdio
from dragoman.trust.redact import MASK, is_telling, mask_args, mask_text, mask_url, mask_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dragoman.model import ServerSpec, Transport

MIN_CHARS = 6
MIN_TOLD_CHARS = 4
"""For values whose name announces a secret."""
MIN_BASE64_BYTES = 9
MIN_FRAGMENT = 6
LONGEST_FRAGMENT = 12
MIN_LINE_CHARS = 16
"""The lines of a private key turn up one by one."""
MAX_CHARS = 16_384
MAX_MEMO = 1024
MEMO_CHARS = 2_000
"""Texts up to this length are remembered with their masked form: when a server dies, thousands of calls fail
with the same words."""
MAX_PASSING = 64
"""Values that come and go with calls; each one takes time from every text that is masked."""
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
"""What shells and desktops set under names that sound like secrets: folders and sockets."""


def is_secret(value: str, name: str = "") -> bool:
    """Tell whether a value is worth masking, given what it is called."""
    told = bool(name) and is_telling(name)
    plain = value.strip()
    if len(plain) < (MIN_TOLD_CHARS if told else MIN_CHARS) or plain.lower() in COMMON:
        return False
    if plain.isdigit() and len(plain) < 8 and not (told and len(plain) >= MIN_CHARS):
        return False
    if told:
        return True
    is_place = _PATH.match(plain) or _HOST.fullmatch(plain) or _is_address(plain) or "://" in plain
    return not (is_place or _MIME.fullmatch(plain))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return False
    return True


def secret_values(transport: Transport, env: Mapping[str, str] | None = None) -> set[str]:
    """Return what a server is given that nobody else may see.

    Args:
        transport: With its variables replaced.
        env: What a child inherits; only values under telling names count.
    """
    found: set[str] = set()
    if isinstance(transport, Stdio):
        inherited = {
            name: value
            for name, value in (env or {}).items()
            if is_telling(name) and name not in SYSTEM_VARIABLES
        }
        for name, value in {**inherited, **transport.env}.items():
            found.update(_value_parts(value or "", name))
        for arg, masked in zip(transport.args, mask_args(transport.args), strict=True):
            parts = hidden_parts(arg, masked)
            parts += [part.partition(":")[2] for part in parts] if "://" in arg else []
            found.update(part for part in parts if is_secret(part, "token"))
    else:
        found.update(header_values(transport.headers), _url_parts(transport.url))
    return found


def header_values(headers: Mapping[str, str]) -> set[str]:
    """Return what nobody else may see of headers, their variables replaced."""
    found: set[str] = set()
    for name, value in headers.items():
        parts = [value, *hidden_parts(value, mask_value(value))]
        found.update(part for part in parts if is_secret(part, name))
    return found


def spec_values(spec: ServerSpec) -> set[str]:
    """Return the secrets that are written into a spec itself, its variables left as they are.

    For the time before a connection: what stands behind a variable is not known yet.
    """
    found = secret_values(spec.transport)
    if spec.auth is not None:
        for name in ("client_secret", "private_key"):
            value = getattr(spec.auth, name, None)
            found.update(hidden_parts(value, mask_value(value)) if isinstance(value, str) else ())
    return {value for value in found if "${" not in value}


def _value_parts(value: str, name: str) -> list[str]:
    if "://" in value:
        parts = _url_parts(value)
        return [*parts, value] if is_telling(name) else parts
    parts = [value, *value.split()] if is_telling(name) else [value]
    return [part for part in parts if is_secret(part, name)]


def _url_parts(url: str) -> list[str]:
    address, _, rest = url.partition("?")
    found: list[str] = []
    for part in hidden_parts(address, mask_url(address)):
        for piece in (part, part.partition(":")[2]):
            found += [form for form in (piece, unquote_plus(piece)) if is_secret(form, "password")]
    for pair in rest.replace("#", "&").split("&"):
        name, equals, value = pair.partition("=")
        value, name = (value, name) if equals else (name, "")
        found += [form for form in (value, unquote_plus(value)) if is_secret(form, name)]
    return found


def hidden_parts(text: str, masked: str) -> list[str]:
    """Return what the mask stands for in a text that was masked."""
    parts: list[str] = []
    pieces = masked.split(MASK)
    if not text.startswith(pieces[0]):
        return [text]
    start = len(pieces[0])
    for index, piece in enumerate(pieces[1:], 2):
        end = text.find(piece, start) if piece and index < len(pieces) else len(text) - len(piece)
        if end < start or not text.startswith(piece, end):
            return [text]
        parts.append(text[start:end])
        start = end + len(piece)
    return parts


class Redactor:
    """Masks known values, and what looks like a secret, in any text.

    Values are added while servers come; none is forgotten, since a log may show an old one late. Those that
    come and go with calls are remembered too, the last `MAX_PASSING` of them. It shows none of them itself.
    """

    __slots__ = ("_forms", "_memo", "_passing", "_seen", "_values")

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: set[str] = set()
        self._forms: dict[str, int] = {}
        self._seen: tuple[tuple[str, int], ...] = ()
        """The forms as they were when a text was masked last."""
        self._memo: dict[str, str] = {}
        self._passing: dict[str, tuple[tuple[str, int], ...] | None] = {}
        self.add(values)

    def add(self, values: Iterable[str]) -> None:
        """Mask these values from now on; trivial ones are passed over."""
        new = {value for value in values if is_secret(value, "token")} - self._values
        if not new:
            return
        # Several threads may add at once: what they share is only ever added to, each time by one step.
        self._forms.update({form: period for value in new for form, period in _sought(value)})
        self._values |= new
        # Another dictionary, so that a thread that is masking now cannot put an old form into the new one.
        self._memo = {}

    def add_passing(self, values: Iterable[str]) -> None:
        """Mask these values for a while: until so many others have passed."""
        new = {value for value in values if is_secret(value, "token")} - self._values
        if not new:
            return
        passing = {value: forms for value, forms in self._passing.items() if value not in new}
        passing |= {value: self._passing.get(value) for value in sorted(new)}
        is_known = len(passing) == len(self._passing)
        for value in list(passing)[:-MAX_PASSING]:
            del passing[value]
        # Others, as in `add`; what a value looks like is found out when a text is masked, if ever.
        self._passing = passing
        if not is_known:
            self._memo = {}

    def mask(self, text: str) -> str:
        """Mask the known values and everything that looks like a secret."""
        memo = self._memo
        if (known := memo.get(text)) is not None:
            return known
        masked = mask_text(self.mask_known(text))
        if len(text) <= MEMO_CHARS and len(memo) < MAX_MEMO:
            memo[text] = masked
        return masked

    def mask_known(self, text: str) -> str:
        """Mask the known values only."""
        spans = self._spans(text)
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
        """Tell whether a text shows a known value: for what must not be written down at all."""
        return any(form in text for form, _ in self._all_forms())

    def _all_forms(self) -> Iterator[tuple[str, int]]:
        if len(self._seen) != len(self._forms):
            # A copy is made in one step; walking through could meet another thread that adds.
            self._seen = tuple(self._forms.copy().items())
        yield from self._seen
        passing = self._passing
        for value, forms in list(passing.items()):
            if forms is None:
                forms = passing[value] = tuple(_sought(value))
            yield from forms

    def _spans(self, text: str) -> list[tuple[int, int]]:
        spans: list[tuple[int, int]] = []
        for form, period in self._all_forms():
            # Nearly every value is absent from nearly every text: its beginning and its end are sought first,
            # and the whole only where both are.
            least = _least(form)
            if form[:least] not in text:
                if least < len(form):
                    spans += _ends(text, form, least)
                continue
            at = text.find(form)
            while at >= 0:
                spans.append((at, at + len(form)))
                # A value overlaps itself by whole periods only.
                at = text.find(form, at + period)
            spans += _fragments(text, form)
        return spans

    def __len__(self) -> int:
        return len(self._values) + len(self._passing)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} values)"

    def __reduce__(self) -> NoReturn:
        msg = "a Redactor holds secrets and is not to be stored"
        raise TypeError(msg)


in_use: ContextVar[Redactor | None] = ContextVar("in_use", default=None)
"""What knows the secrets of the connection that the current task opens: for whatever records its words."""


def _fragments(text: str, form: str) -> Iterator[tuple[int, int]]:
    """Find where a text has the beginning or the end of a form, long enough to matter."""
    least = _least(form)
    if len(form) <= least:
        return
    head = form[:least]
    at = -1 if _is_word(head) else text.find(head)
    while at >= 0:
        stop = at + least
        while stop - at < len(form) and text[stop : stop + 1] == form[stop - at]:
            stop += 1
        yield at, stop
        at = text.find(head, stop)
    yield from _ends(text, form, least)


def _least(form: str) -> int:
    """Return how much of a form has to be there to matter."""
    return min(len(form), LONGEST_FRAGMENT, max(MIN_FRAGMENT, len(form) // 2))


def _ends(text: str, form: str, least: int) -> Iterator[tuple[int, int]]:
    """Find where a text has the end of a form."""
    tail = form[-least:]
    at = -1 if _is_word(tail) else text.rfind(tail)
    while at >= 0:
        start, stop = at, at + least
        while stop - start < len(form) and start and text[start - 1] == form[start - 1 - stop]:
            start -= 1
        yield start, stop
        at = text.rfind(tail, 0, start)


def _sought(value: str) -> Iterator[tuple[str, int]]:
    return ((form, _period(form)) for form in _forms(value))


def _is_word(fragment: str) -> bool:
    """Tell whether a fragment may be an ordinary word: `production-7` must not hide `production`."""
    return fragment.isalpha() and (fragment.islower() or fragment.isupper() or fragment.istitle())


def _forms(value: str) -> set[str]:
    value = value.strip()[:MAX_CHARS]
    plain = {value, *(line.strip() for line in value.splitlines() if len(line.strip()) >= MIN_LINE_CHARS)}
    forms: set[str] = set()
    for text in plain:
        escaped = {text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1]}
        # A text inside JSON inside JSON, as tools that log requests write it.
        escaped |= {json.dumps(form)[1:-1] for form in escaped} | {
            html.escape(text),
            html.escape(text, quote=False),
        }
        data = text.encode("utf-8", "surrogatepass")
        for percent in (quote(data, safe=""), quote(data), quote_plus(data), quote(data, safe=_URL_SAFE)):
            escaped |= {percent, re.sub(r"%[0-9A-F]{2}", lambda match: match[0].lower(), percent)}
        forms |= escaped
        if len(data) >= MIN_BASE64_BYTES:
            forms |= _encodings(data)
    return {form for form in forms if len(form) >= MIN_TOLD_CHARS}


_URL_SAFE = "!$&'()*+,;=:@/?-._~"
"""What URL libraries leave as it is inside a query."""


def _encodings(data: bytes) -> set[str]:
    forms = {data.hex(), data.hex().upper()}
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + data).decode()
        # The first characters hold bits of what stands before, the last ones of what follows.
        whole = (offset + len(data)) * 8 // 6
        core = encoded[-(-offset * 8 // 6) : whole]
        forms |= {core, core.translate(_URL_ALPHABET)}
    return forms


_URL_ALPHABET = str.maketrans("+/", "-_")


def _period(text: str) -> int:
    """Return the least distance at which a text can overlap itself."""
    borders = [0] * len(text)
    length = 0
    for index in range(1, len(text)):
        while length and text[index] != text[length]:
            length = borders[length - 1]
        length += text[index] == text[length]
        borders[index] = length
    return len(text) - borders[-1] if text else 1
