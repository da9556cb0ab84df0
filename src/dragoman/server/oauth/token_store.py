"""Stores logins: one file for each server, readable only by its owner, or the system's keyring.

A store belongs to one server, identified by name and address (the same name in another project is another
server). Inside, each login belongs to one issuer: a token or a client id is never sent to another. To change
it, take a lock that other processes respect, read the current content, and write the whole file again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast
from urllib.parse import urlencode

from dragoman.server.oauth.safe_fetch import FetchError, ForbiddenTargetError
from dragoman.storage.files import private_folder, read_regular, user_data_folder, write_atomically
from dragoman.struct import HIDDEN, Struct, asdict
from dragoman.trust.addresses import split_url

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from pathlib import Path

    from dragoman.server.oauth.safe_fetch import Fetcher

logger = logging.getLogger("dragoman")

VERSION = 1
EARLY_SECONDS = 60.0
"""A token is renewed this long before it expires, or in the last tenth of its lifetime if that is shorter."""
MAX_BYTES = 1024 * 1024
LOCK_SECONDS = 60.0
"""Longer than any request to an authorization server takes."""
POLL_SECONDS = 0.02
SERVICE = "dragoman"
"""The name of our entries in a keyring."""


class StoreError(Exception):
    """A login cannot be stored or read; the message says why."""


class Login(Struct, kw_only=True):
    """The login of one issuer for one server."""

    issuer: str = ""
    client: Annotated[Mapping[str, Any] | None, HIDDEN] = None
    """The registered client, including its secret."""
    access_token: Annotated[str, HIDDEN] = ""
    scheme: Literal["Bearer", "DPoP"] = "Bearer"
    refresh_token: Annotated[str, HIDDEN] = ""
    expires_at: float | None = None
    """Seconds since the epoch; `None` if unknown."""
    lifetime: float | None = None
    scope: str = ""
    key: Annotated[str, HIDDEN] = ""
    """The private key (PEM) that the token is bound to, if it is."""
    metadata: Annotated[Mapping[str, Any] | None, HIDDEN] = None
    """The metadata of the authorization server, for a refresh."""
    resource: Annotated[Mapping[str, Any] | None, HIDDEN] = None
    """The resource metadata of the server."""
    reaches: tuple[str, ...] = ()
    """Classes of IP addresses that are allowed for it besides public ones."""

    def secrets(self) -> set[str]:
        """Return the values that must not be shown."""
        secret = (self.client or {}).get("client_secret")
        found = {self.access_token, self.refresh_token, self.key, secret if isinstance(secret, str) else ""}
        return found - {""}

    def is_expired(self, now: float) -> bool:
        """Return whether the token has expired."""
        return self.expires_at is not None and self.expires_at <= now

    def is_stale(self, now: float) -> bool:
        """Return whether to renew the token; without a refresh token it is used until it expires."""
        if self.expires_at is None:
            return False
        early = EARLY_SECONDS if self.lifetime is None else min(EARLY_SECONDS, self.lifetime / 10)
        return self.expires_at - (early if self.refresh_token else 0.0) <= now

    def is_better_than(self, token: str, now: float) -> bool:
        """Return whether this has a valid token that differs from `token`."""
        return bool(self.access_token) and self.access_token != token and not self.is_stale(now)

    @classmethod
    def read(cls, data: object) -> Self | None:
        """Parse a stored login; return `None` if it is not valid."""
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
        return found.replace(reaches=tuple(found.reaches))


class TokenStore:
    """The logins of one server."""

    def __init__(
        self, server: str, url: str, *, folder: Path | None = None, keyring: bool = False, user: str = ""
    ) -> None:
        """Open no file yet.

        Args:
            server: The server's name.
            url: Its address.
            folder: Where logins are stored; the user's own folder by default.
            keyring: Whether the secrets are in the system's keyring.
            user: Whose logins these are, in a program with many users.
        """
        self.server = server
        self._url = canonical(url)
        self._folder = default_folder(user) if folder is None else folder
        self._keyring = keyring
        # The user is in the key too: a keyring has no folders.
        owner = f"\n{user}" if user else ""
        text = f"{server}\n{self._url}{owner}"
        self._key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]
        self._path = self._folder / f"{self._key}.json"

    @property
    def path(self) -> Path:
        """The file; with a keyring it only shows that something changed."""
        return self._path

    def stamp(self) -> int:
        """Return a number that differs after every change; 0 if there is no file."""
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
        """Return the login of one issuer."""
        return (await self._read())[1].get(issuer)

    async def save(self, login: Login) -> None:
        """Store a login and make it the one in use; the caller holds the lock.

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
        """Lock the store against other processes and tasks.

        Raises:
            StoreError: Another process holds the lock for too long, or the folder cannot be used.
        """
        from filelock import FileLock, Timeout

        self._make_folder()
        lock = FileLock(self._folder / f"{self._key}.lock", thread_local=False, mode=0o600)
        until = asyncio.get_running_loop().time() + LOCK_SECONDS
        while True:
            try:
                # Poll: waiting for the lock in a thread could not be cancelled.
                lock.acquire(blocking=False)
                break
            except Timeout:
                if asyncio.get_running_loop().time() > until:
                    msg = f"another process has locked the login to `{self.server}`"
                    raise StoreError(msg) from None
                await asyncio.sleep(POLL_SECONDS)
            except OSError as exc:
                msg = f"cannot lock the login to `{self.server}`: {exc.strerror}"
                raise StoreError(msg) from exc
        try:
            yield
        finally:
            lock.release()

    async def _read(self) -> tuple[str, dict[str, Login]]:
        try:
            content = read_regular(self._path, MAX_BYTES)
        except FileNotFoundError:
            return "", {}
        except OSError as exc:
            msg = f"cannot read the login to `{self.server}`: {exc.strerror}"
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
            write_atomically(self._path, json.dumps(document).encode())
        except OSError as exc:
            msg = f"cannot store the login to `{self.server}`: {exc.strerror}"
            raise StoreError(msg) from exc

    def _make_folder(self) -> None:
        try:
            private_folder(self._folder)
        except OSError as exc:
            msg = f"cannot create the folder for the login to `{self.server}`: {exc.strerror}"
            raise StoreError(msg) from exc


def default_folder(user: str = "") -> Path:
    """Return the folder for logins: the program's own, or that of one of its users."""
    return user_data_folder(user) / "logins"


def stores_of(server: str, *, folder: Path | None = None) -> list[TokenStore]:
    """Return the stores of all servers with this name, whatever their address."""
    found: list[TokenStore] = []
    folder = default_folder() if folder is None else folder
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        try:
            document = _document(read_regular(path, MAX_BYTES))
        except OSError:
            continue
        if document.get("server") == server:
            in_keyring = bool(document.get("keyring"))
            found.append(TokenStore(server, str(document.get("url", "")), folder=folder, keyring=in_keyring))
    return found


def canonical(url: str) -> str:
    """Return the address that a login belongs to: without user, query (may hold secrets) and fragment."""
    parts = split_url(url)
    if parts is None:
        return ""  # nothing connects to it, so no login belongs to it
    return parts._replace(netloc=parts.netloc.rpartition("@")[2].lower()).unsplit()


def _document(content: bytes | str) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if type(found) is dict else {}


def _keyring_get(key: str) -> str:
    try:
        return _keyring().get_password(SERVICE, key) or ""
    except StoreError:
        raise
    except Exception as exc:  # noqa: BLE001 -- each backend has its own errors
        msg = f"cannot read the login from the keyring ({type(exc).__name__})"
        raise StoreError(msg) from None


def _keyring_set(key: str, secret: str) -> None:
    try:
        _keyring().set_password(SERVICE, key, secret)
    except StoreError:
        raise
    except Exception as exc:  # noqa: BLE001 -- each backend has its own errors
        # Do not show the error itself: it may contain the secret.
        msg = f"cannot store the login in the keyring ({type(exc).__name__})"
        raise StoreError(msg) from None


def _keyring_delete(key: str) -> None:
    with suppress(Exception):
        _keyring().delete_password(SERVICE, key)


def _keyring() -> Any:
    try:
        import keyring
    except ImportError as exc:
        msg = "storing logins in the keyring needs `pip install dragoman[keyring]`"
        raise StoreError(msg) from exc
    return keyring


async def forget(store: TokenStore, fetcher: Fetcher) -> bool:
    """Forget the logins of one server, and return whether there was one."""
    async with store.locked():
        try:
            login = await store.load()
        except StoreError:
            login = None
        await store.remove()
    endpoint = str(((login.metadata if login else None) or {}).get("revocation_endpoint", ""))
    had_token = login is not None and bool(login.access_token or login.refresh_token)
    if login is not None and had_token and endpoint:
        fetcher.recall(login.reaches)
        await _revoke(login, endpoint, fetcher)
    return had_token


async def _revoke(login: Login, endpoint: str, fetcher: Fetcher) -> None:
    client = login.client or {}
    form = {"token": login.refresh_token or login.access_token, "client_id": str(client.get("client_id", ""))}
    if client.get("client_secret"):
        form["client_secret"] = str(client["client_secret"])
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    try:
        await fetcher.fetch("POST", endpoint, headers=headers, body=urlencode(form).encode())
    except (FetchError, ForbiddenTargetError) as exc:
        logger.debug("%s: a token was not revoked: %s", fetcher.server, exc)
