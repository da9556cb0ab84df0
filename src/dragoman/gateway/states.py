"""States: what a modern client carries between two rounds of one request, sealed.

A client sees nothing of a state, and can use it only for what it was made for: the same endpoint, method,
target, arguments and principal. Replicas with the same keys open the states of each other. A state that
carries the approval of a person is used up by its first use, in this process.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING, Any, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dragoman.errors import ConfigError
from dragoman.server.protocol.envelope import INVALID_PARAMS, MCPError
from dragoman.server.protocol.rounds import HOLD_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dragoman.gateway.request import ClientRequest
    from dragoman.model import CallRequest

logger = logging.getLogger("dragoman")

SHORTEST_KEY = 32
_NONCE = 12
_PURPOSE = b"dragoman request state"
_INVALID = "Invalid or expired requestState"
_USED_UP = "this approval was used already: send the request again without its state"


class State(NamedTuple):
    """What is inside a state."""

    asked: str = ""
    """The call that the person at the client is asked to approve."""
    approved: Sequence[str] = ()
    """The calls that the person has approved: the one that was asked for, and those of its fallbacks."""
    server: str | None = None
    """The state of the server behind the gateway, passed on."""
    held: str = ""
    """The key of a request that waits in a process."""


class States:
    """Seals and opens states."""

    def __init__(self, keys: Sequence[str | bytes]) -> None:
        """Use these keys.

        Args:
            keys: Secrets of at least 32 bytes: the first seals, all open.

        Raises:
            ConfigError: A key is too short.
        """
        secrets = [key.encode() if isinstance(key, str) else key for key in keys] or [os.urandom(32)]
        if any(len(secret) < SHORTEST_KEY for secret in secrets):
            msg = f"a state key must have at least {SHORTEST_KEY} bytes"
            raise ConfigError(msg, hint='make one: python3 -c "import secrets; print(secrets.token_hex(32))"')
        self.secrets = secrets
        self._ciphers = [AESGCM(hmac.digest(secret, _PURPOSE, "sha256")) for secret in secrets]
        self._used: dict[bytes, float] = {}
        """States that are used up, with the time when they expire; the oldest first."""

    def seal(self, state: State, request: ClientRequest, only: str | None) -> str:
        """Return a state that this request alone can come back with."""
        nonce = os.urandom(_NONCE)
        expiry = time.time() + HOLD_SECONDS
        text = json.dumps([expiry, *state], separators=(",", ":")).encode()
        return urlsafe_b64encode(
            nonce + self._ciphers[0].encrypt(nonce, text, _bound(request, only))
        ).decode()

    def open(self, sealed: object, request: ClientRequest, only: str | None) -> State:
        """Return what is inside; an approval is used up by that.

        Raises:
            MCPError: It is not ours, has expired, was made for another request, or is used up.
        """
        try:
            raw = _decoded(str(sealed))
            nonce, found = raw[:_NONCE], self._decrypted(raw, _bound(request, only))
            expiry, *fields = json.loads(found)
            state = State(*fields)
        except (ValueError, TypeError, InvalidTag) as exc:
            logger.warning("a request state was refused: %s", type(exc).__name__)
            raise _refused(_INVALID) from None
        now = time.time()
        if expiry < now:
            raise _refused(_INVALID)
        if state.asked or state.approved:
            self._use_up(nonce, expiry, now)
        return state

    def _decrypted(self, raw: bytes, bound: bytes) -> bytes:
        nonce, sealed = raw[:_NONCE], raw[_NONCE:]
        for cipher in self._ciphers[:-1]:
            try:
                return cipher.decrypt(nonce, sealed, bound)
            except InvalidTag:
                continue
        return self._ciphers[-1].decrypt(nonce, sealed, bound)

    def _use_up(self, nonce: bytes, expiry: float, now: float) -> None:
        while self._used and next(iter(self._used.values())) < now:
            del self._used[next(iter(self._used))]
        if nonce in self._used:
            raise _refused(_USED_UP)
        # Others may expire earlier, and then stay until this one does.
        self._used[nonce] = expiry


def subject_of(call: CallRequest) -> str:
    """Return what an approval is about: one tool, resource or prompt of one server, and the arguments."""
    about = [call.kind, call.server, call.original_name, call.arguments]
    return hashlib.sha256(json.dumps(about, sort_keys=True, default=repr).encode()).hexdigest()


def _decoded(text: str) -> bytes:
    """Return the bytes of a state; only the very text that was given out has any."""
    raw = urlsafe_b64decode(text.encode())
    if urlsafe_b64encode(raw).decode() != text:
        # The decoder passes over characters and bits that mean nothing.
        msg = "not the text that was sealed"
        raise ValueError(msg)
    return raw


def _bound(request: ClientRequest, only: str | None) -> bytes:
    """Return what a state belongs to."""
    params: Mapping[str, Any] = request.params
    target = str(params.get("uri") if request.method == "resources/read" else params.get("name"))
    arguments = json.dumps(params.get("arguments") or {}, sort_keys=True, separators=(",", ":")).encode()
    parts = (only or "", request.method, target, request.principal)
    text = json.dumps([only is None, *parts], separators=(",", ":")).encode()
    return hashlib.sha256(text).digest() + hashlib.sha256(arguments).digest()


def _refused(message: str) -> MCPError:
    return MCPError(code=INVALID_PARAMS, message=message, data={"reason": "invalid_request_state"})
