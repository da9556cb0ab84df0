"""Where logins are kept: a file for each server, for its owner's eyes only, or the system's keyring.

What is kept belongs to one server (its name and its address: the same name in another project is another
server) and, inside, to one issuer: a token or a client id is never offered to another. Whoever changes it
holds a lock that other processes respect, reads again what is there now, and writes the whole anew.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast
from urllib.parse import urlsplit, urlunsplit

from dragoman.private import private_folder, private_temporary

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

logger = logging.getLogger("dragoman")

VERSION = 1
EARLY_SECONDS = 60.0
"""A token is renewed so long before it expires, or in the last tenth of its life if that is shorter."""
MAX_BYTES = 1024 * 1024
LOCK_SECONDS = 60.0
"""More than a request to an authorization server ever takes."""
POLL_SECONDS = 0.02
SERVICE = "dragoman"
"""The name of our entries in a keyring."""


class StoreError(Exception):
    """Logins cannot be kept, or not be read; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """What one issuer gave us for one server."""

    issuer: str = ""
    client: Mapping[str, Any] | None = field(default=None, repr=False)
    """The client as it is registered there; its secret included."""
    access_token: str = field(default="", repr=False)
    scheme: Literal["Bearer", "DPoP"] = "Bearer"
    refresh_token: str = field(default="", repr=False)
    expires_at: float | None = None
    """Seconds since the epoch; `None` if the server did not say."""
    lifetime: float | None = None
    scope: str = ""
    key: str = field(default="", repr=False)
    """The private key (PEM) that the token is bound to, if it is."""
    metadata: Mapping[str, Any] | None = field(default=None, repr=False)
    """What the authorization server says of itself: where to refresh."""
    resource: Mapping[str, Any] | None = field(default=None, repr=False)
    """What the server says of itself: what to ask for."""
    reaches: tuple[str, ...] = ()
    """Classes of addresses that may be reached for it besides public ones."""

    def secrets(self) -> set[str]:
        """Return what nobody may see of it."""
        secret = (self.client or {}).get("client_secret")
        found = {self.access_token, self.refresh_token, self.key, secret if isinstance(secret, str) else ""}
        return found - {""}

    def is_expired(self, now: float) -> bool:
        """Tell whether the token is of no use any more."""
        return self.expires_at is not None and self.expires_at <= now

    def is_stale(self, now: float) -> bool:
        """Tell whether the token ought to be renewed; without a way to do so, it is good until its end."""
        if self.expires_at is None:
            return False
        early = EARLY_SECONDS if self.lifetime is None else min(EARLY_SECONDS, self.lifetime / 10)
        return self.expires_at - (early if self.refresh_token else 0.0) <= now

    def is_better_than(self, token: str, now: float) -> bool:
        """Tell whether this has another token than that one, and a good one."""
        return bool(self.access_token) and self.access_token != token and not self.is_stale(now)

    @classmethod
    def read(cls, data: object) -> Self | None:
        """Read a login as it is kept; nothing if it is not one."""
        if not isinstance(data, dict):
            return None
        fields = cast("dict[str, Any]", data)
        try:
            found = cls(**fields)
        except TypeError:
            return None
        texts: list[Any] = [found.issuer, found.access_token, found.refresh_token, found.scope, found.key]
        if not all(isinstance(text, str) for text in texts) or found.scheme not in ("Bearer", "DPoP"):
            return None
        return replace(found, reaches=tuple(found.reaches))


class TokenStore:
    """The logins of one server."""

    def __init__(self, server: str, url: str, *, folder: Path | None = None, keyring: bool = False) -> None:
        self.server = server
        self._url = canonical(url)
        self._folder = default_folder() if folder is None else folder
        self._keyring = keyring
        self._key = hashlib.sha256(f"{server}\n{self._url}".encode()).hexdigest()[:40]
        self._path = self._folder / f"{self._key}.json"

    @property
    def path(self) -> Path:
        """The file; with a keyring it only says that something changed."""
        return self._path

    def stamp(self) -> int:
        """Return something that differs after every change."""
        try:
            found = self._path.stat()
        except OSError:
            return 0
        return hash((found.st_mtime_ns, found.st_ino)) or 1

    async def load(self) -> Login | None:
        """Return the login in use.

        Raises:
            StoreError: There may be one, but it cannot be read.
        """
        current, logins = await self._read()
        return logins.get(current)

    async def load_issuer(self, issuer: str) -> Login | None:
        """Return what is known of one issuer."""
        return (await self._read())[1].get(issuer)

    async def save(self, login: Login) -> None:
        """Keep a login and make it the one in use; the caller holds the lock.

        Raises:
            StoreError: It cannot be written.
        """
        _, logins = await self._read()
        logins[login.issuer] = login
        await self._write(login.issuer, logins)

    async def remove(self) -> None:
        """Forget every login of this server."""
        if self._keyring:
            await asyncio.to_thread(_keyring_delete, self._key)
        with suppress(FileNotFoundError):
            self._path.unlink()

    @asynccontextmanager
    async def locked(self) -> AsyncGenerator[None]:
        """Keep other processes, and other tasks, from changing it.

        Raises:
            StoreError: Somebody else holds it for too long, or there is nowhere to keep logins.
        """
        from filelock import FileLock, Timeout

        self._make_folder()
        lock = FileLock(self._folder / f"{self._key}.lock", thread_local=False, mode=0o600)
        until = asyncio.get_running_loop().time() + LOCK_SECONDS
        while True:
            try:
                # Trying and waiting in turn: a wait in a thread could not be cancelled.
                lock.acquire(blocking=False)
                break
            except Timeout:
                if asyncio.get_running_loop().time() > until:
                    msg = f"another process holds the login of server `{self.server}`"
                    raise StoreError(msg) from None
                await asyncio.sleep(POLL_SECONDS)
            except OSError as exc:
                msg = f"the login of server `{self.server}` cannot be locked: {exc.strerror}"
                raise StoreError(msg) from exc
        try:
            yield
        finally:
            lock.release()

    async def _read(self) -> tuple[str, dict[str, Login]]:
        try:
            with self._path.open("rb") as file:
                content = file.read(MAX_BYTES)
        except FileNotFoundError:
            return "", {}
        except OSError as exc:
            msg = f"the login of server `{self.server}` cannot be read: {exc.strerror}"
            raise StoreError(msg) from exc
        document = _document(content)
        if self._keyring and document.get("keyring"):
            document = _document(await asyncio.to_thread(_keyring_get, self._key))
        found = cast("dict[str, Any]", document.get("logins")) if type(document.get("logins")) is dict else {}
        logins = {issuer: login for issuer, data in found.items() if (login := Login.read(data)) is not None}
        return str(document.get("current", "")), logins

    async def _write(self, current: str, logins: Mapping[str, Login]) -> None:
        about: dict[str, Any] = {"version": VERSION, "server": self.server, "url": self._url}
        secret = {"current": current, "logins": {issuer: asdict(login) for issuer, login in logins.items()}}
        if self._keyring:
            await asyncio.to_thread(_keyring_set, self._key, json.dumps(secret))
            document = {**about, "keyring": True}
        else:
            document = {**about, **secret}
        try:
            self._make_folder()
            _replace(self._path, json.dumps(document).encode())
        except OSError as exc:
            msg = f"the login of server `{self.server}` cannot be kept: {exc.strerror}"
            raise StoreError(msg) from exc

    def _make_folder(self) -> None:
        try:
            private_folder(self._folder)
        except OSError as exc:
            msg = f"there is nowhere to keep the login of server `{self.server}`: {exc.strerror}"
            raise StoreError(msg) from exc


def default_folder(env: Mapping[str, str] | None = None) -> Path:
    """Return where logins are kept unless somebody says otherwise."""
    base = (os.environ if env is None else env).get("XDG_DATA_HOME", "")
    folder = Path(base) if base and Path(base).is_absolute() else Path.home() / ".local" / "share"
    return folder / "dragoman" / "logins"


def stores_of(server: str, *, folder: Path | None = None) -> list[TokenStore]:
    """Find the logins of every server that bears a name, whatever its address was."""
    found: list[TokenStore] = []
    folder = default_folder() if folder is None else folder
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        try:
            document = _document(path.read_bytes()[:MAX_BYTES])
        except OSError:
            continue
        if document.get("server") == server:
            in_keyring = bool(document.get("keyring"))
            found.append(TokenStore(server, str(document.get("url", "")), folder=folder, keyring=in_keyring))
    return found


def canonical(url: str) -> str:
    """Return the address that a login belongs to: no user, no query, which may hold secrets, no fragment."""
    parts = urlsplit(url)
    # Cut out of the text: a port that is none is for whoever connects to complain of.
    host = parts.netloc.rpartition("@")[2].lower()
    return urlunsplit((parts.scheme.lower(), host, parts.path, "", ""))


def _document(content: bytes | str) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if type(found) is dict else {}


def _replace(path: Path, content: bytes) -> None:
    """Write a file as a whole, for its owner alone from the first byte on."""
    handle, name = private_temporary(path.parent, ".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _keyring_get(key: str) -> str:
    try:
        return _keyring().get_password(SERVICE, key) or ""
    except StoreError:
        raise
    except Exception as exc:  # noqa: BLE001 -- every backend has errors of its own
        msg = f"the keyring did not give a login ({type(exc).__name__})"
        raise StoreError(msg) from None


def _keyring_set(key: str, secret: str) -> None:
    try:
        _keyring().set_password(SERVICE, key, secret)
    except StoreError:
        raise
    except Exception as exc:  # noqa: BLE001 -- every backend has errors of its own
        # None of them may show what was to be kept.
        msg = f"the keyring did not keep a login ({type(exc).__name__})"
        raise StoreError(msg) from None


def _keyring_delete(key: str) -> None:
    with suppress(Exception):
        _keyring().delete_password(SERVICE, key)


def _keyring() -> Any:
    try:
        import keyring
    except ImportError as exc:
        msg = "logins are to be kept in a keyring, which needs `pip install dragoman[keyring]`"
        raise StoreError(msg) from exc
    return keyring
