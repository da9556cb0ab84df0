"""Who may use the console: links that work once, and sessions of a cookie and a key.

A cookie alone proves nothing: a browser sends it to every port of the same host. So a session has a second
half, the key, which the page keeps in the storage of its own origin and sends as a header.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import Counter
from hmac import compare_digest
from typing import TYPE_CHECKING

from dragoman.gateway.auth import Refused
from dragoman.struct import MutableStruct

if TYPE_CHECKING:
    from collections.abc import Callable

LINK_SECONDS = 600.0
"""How long a link works, unless it is used before."""
IDLE_SECONDS = 12 * 3600.0
"""How long a session lasts without a request."""
MOST_LINKS = 16
MOST_SESSIONS = 256
"""Of who has the most, the session that was idle for longest ends for a new one."""
TRIES = 20
"""Wrong tokens in a minute, after which none is checked until the minute is over."""


class Session(MutableStruct, kw_only=True):
    """A person who has logged in."""

    key: bytes
    """The hash of the second half."""
    user: str
    """Shown on the page; empty for the operator."""
    token: str | None = None
    """The token of the gateway by which the person came in; `None` for the operator."""
    used: float = 0.0

    @property
    def is_operator(self) -> bool:
        """Whether the person came by a link from the terminal of the program."""
        return self.token is None


class Sessions:
    """The links and sessions of one console."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Have no session; `clock` returns seconds."""
        self._clock = clock
        self._links: dict[bytes, float] = {}
        """When each ends, by the hash of its token."""
        self._sessions: dict[bytes, Session] = {}
        """By the hash of the cookie; the one that was used last comes last."""
        self._wrong: list[float] = []

    def new_link(self) -> str:
        """Return the token of a link that lets one person in as the operator."""
        token = secrets.token_urlsafe(32)
        while len(self._links) >= MOST_LINKS:
            self._links.pop(next(iter(self._links)))
        self._links[_hash(token)] = self._clock() + LINK_SECONDS
        return token

    def redeem(self, token: str) -> bool:
        """Return whether a token is that of a link; it is used up then."""
        until = self._links.pop(_hash(token), None)
        return until is not None and self._clock() < until

    def check_tries(self) -> None:
        """Check that there were not too many wrong tokens.

        Raises:
            Refused: There were.
        """
        now = self._clock()
        self._wrong = [at for at in self._wrong if now - at < 60.0]
        if len(self._wrong) >= TRIES:
            raise Refused(429, "too many wrong tokens: wait a minute")

    def note_wrong(self) -> None:
        """Count a wrong token."""
        self._wrong.append(self._clock())

    def open(self, user: str, token: str | None) -> tuple[str, str]:
        """Begin a session; return its cookie and its key."""
        while len(self._sessions) >= MOST_SESSIONS:
            # One of whoever has the most: nobody logs the others out by coming in again and again.
            count = Counter((one.is_operator, one.user) for one in self._sessions.values())
            ((most, _),) = count.most_common(1)
            idle = (key for key, one in self._sessions.items() if (one.is_operator, one.user) == most)
            del self._sessions[next(idle)]
        cookie, key = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._sessions[_hash(cookie)] = Session(key=_hash(key), user=user, token=token, used=self._clock())
        return cookie, key

    def find(self, cookie: str, key: str) -> Session:
        """Return the session of a cookie and its key.

        Raises:
            Refused: There is none.
        """
        place = _hash(cookie)
        session = self._sessions.get(place)
        if session is None or not compare_digest(session.key, _hash(key)):
            raise Refused(401, "no session")
        now = self._clock()
        del self._sessions[place]
        if now - session.used > IDLE_SECONDS:
            raise Refused(401, "the session is over")
        session.used = now
        self._sessions[place] = session
        return session

    def is_open(self, session: Session) -> bool:
        """Return whether a session was not ended meanwhile."""
        return any(one is session for one in self._sessions.values())

    def close(self, session: Session) -> None:
        """End a session."""
        self._sessions = {place: one for place, one in self._sessions.items() if one is not session}


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
