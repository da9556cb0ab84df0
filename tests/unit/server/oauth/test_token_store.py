from __future__ import annotations

import asyncio
import os
import stat
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import keyring
import pytest
from keyring.backend import KeyringBackend

from dragoman.server.oauth.token_store import Login, StoreError, TokenStore, canonical, stores_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.anyio
URL = "https://law.example/mcp"
LOGIN = Login(
    issuer="https://as.example",
    access_token="at-canary",
    refresh_token="rt-canary",
    scope="a b",
    key="pem-canary",
)


class Drawer(KeyringBackend):
    """A keyring in memory."""

    priority = 1  # type: ignore[assignment]

    def __init__(self, *, works: bool = True) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}
        self.works = works

    def get_password(self, service: str, username: str) -> str | None:
        if not self.works:
            raise RuntimeError("locked")
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        if not self.works:
            raise RuntimeError(f"no room for {password}")
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


@pytest.fixture
def drawer() -> Iterator[Drawer]:
    before = keyring.get_keyring()
    made = Drawer()
    keyring.set_keyring(made)
    yield made
    keyring.set_keyring(before)


async def save(store: TokenStore, login: Login) -> None:
    async with store.locked():
        await store.save(login)


async def test_login_is_kept_for_its_server_and_address_alone(tmp_path: Path) -> None:
    await save(TokenStore("law", URL, folder=tmp_path), LOGIN)
    assert await TokenStore("law", URL + "?key=1#x", folder=tmp_path).load() == LOGIN
    assert await TokenStore("law", "https://evil.example/mcp", folder=tmp_path).load() is None
    assert await TokenStore("law", "http://law.example/mcp", folder=tmp_path).load() is None
    assert await TokenStore("other", URL, folder=tmp_path).load() is None


@pytest.mark.requirement("users-login")
@pytest.mark.parametrize("in_keyring", [False, True])
async def test_login_is_kept_for_its_user_alone_even_in_one_folder(
    tmp_path: Path, drawer: Drawer, *, in_keyring: bool
) -> None:
    def store(user: str) -> TokenStore:
        return TokenStore("law", URL, folder=tmp_path, keyring=in_keyring, user=user)

    await save(store("alice"), LOGIN)
    assert await store("alice").load() == LOGIN
    assert [await store(user).load() for user in ("bob", "")] == [None, None]


async def test_issuers_are_kept_apart_and_the_latest_is_in_use(tmp_path: Path) -> None:
    store = TokenStore("law", URL, folder=tmp_path)
    other = Login(issuer="https://new.example", access_token="x")
    await save(store, LOGIN)
    await save(store, other)
    assert await store.load() == other
    assert await store.load_issuer(LOGIN.issuer) == LOGIN
    assert await store.load_issuer("https://nobody.example") is None


async def test_file_is_for_its_owner_alone_and_left_whole(tmp_path: Path) -> None:
    os.umask(0o000)
    try:
        store = TokenStore("law", URL, folder=tmp_path / "logins")
        await save(store, LOGIN)
        await save(store, LOGIN)
    finally:
        os.umask(0o022)
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700
    found = {path.suffix: stat.S_IMODE(path.stat().st_mode) for path in store.path.parent.iterdir()}
    assert found == {".json": 0o600, ".lock": 0o600}


async def test_stamp_differs_after_every_change(tmp_path: Path) -> None:
    store = TokenStore("law", URL, folder=tmp_path)
    stamps = [store.stamp()]
    for _ in range(5):
        await save(store, LOGIN)
        stamps.append(store.stamp())
    assert stamps[0] == 0
    assert all(before != after for before, after in pairwise(stamps))


HOLD = """
import sys
from filelock import FileLock
with FileLock(sys.argv[1], thread_local=False):
    print("held", flush=True)
    sys.stdin.readline()
"""


async def test_lock_of_another_process_is_waited_for(tmp_path: Path) -> None:
    store = TokenStore("law", URL, folder=tmp_path)
    lock = store.path.with_suffix(".lock")
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    holder = await asyncio.create_subprocess_exec(sys.executable, "-c", HOLD, str(lock), **pipes)
    assert holder.stdout is not None
    assert await holder.stdout.readline() == b"held\n"
    waiting = asyncio.create_task(save(store, LOGIN))
    done, _ = await asyncio.wait({waiting}, timeout=0.2)
    assert not done
    async with asyncio.timeout(20):
        await holder.communicate(b"\n")
        await waiting
    assert await store.load() == LOGIN


async def test_wait_for_a_lock_can_be_cancelled(tmp_path: Path) -> None:
    store = TokenStore("law", URL, folder=tmp_path)
    async with store.locked():
        waiting = asyncio.create_task(save(store, LOGIN))
        await asyncio.wait({waiting}, timeout=0.1)
        waiting.cancel()
        await asyncio.wait({waiting})
    await save(store, LOGIN)
    assert await store.load() == LOGIN


async def test_keyring_holds_the_secrets_and_the_file_none(tmp_path: Path, drawer: Drawer) -> None:
    store = TokenStore("law", URL, folder=tmp_path, keyring=True)
    await save(store, LOGIN)
    assert await store.load() == LOGIN
    assert "canary" not in store.path.read_text("utf-8")
    assert len(drawer.kept) == 1
    (found,) = stores_of("law", folder=tmp_path)
    assert await found.load() == LOGIN
    await found.remove()
    assert not drawer.kept
    assert await store.load() is None


async def test_keyring_in_trouble_shows_no_secret(tmp_path: Path, drawer: Drawer) -> None:
    store = TokenStore("law", URL, folder=tmp_path, keyring=True)
    await save(store, LOGIN)
    drawer.works = False
    with pytest.raises(StoreError) as caught:
        await save(store, LOGIN)
    assert "canary" not in repr(caught.value)
    with pytest.raises(StoreError):
        await store.load()


async def test_place_that_cannot_be_used_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", "utf-8")
    store = TokenStore("law", URL, folder=tmp_path / "file")
    with pytest.raises(StoreError):
        await save(store, LOGIN)


async def test_pipe_in_the_place_of_a_login_is_not_waited_for(tmp_path: Path) -> None:
    store = TokenStore("law", URL, folder=tmp_path)
    os.mkfifo(store._path)
    with pytest.raises(StoreError, match="not a regular file"):
        await store.load()
    assert stores_of("law", folder=tmp_path) == []


def test_repr_shows_no_secret() -> None:
    assert "canary" not in repr(LOGIN)


@pytest.mark.parametrize(
    ("left", "lifetime", "refresh", "expected"),
    [
        (None, None, "r", (False, False)),
        (3000.0, 3600.0, "r", (False, False)),
        (50.0, 3600.0, "r", (True, False)),
        (50.0, 3600.0, "", (False, False)),
        (50.0, 60.0, "r", (False, False)),
        (5.0, 60.0, "r", (True, False)),
        (-1.0, 60.0, "", (True, True)),
    ],
)
def test_token_is_stale_before_it_is_expired(
    left: float | None, lifetime: float | None, refresh: str, expected: Any
) -> None:
    expires_at = None if left is None else 1000.0 + left
    login = Login(access_token="t", refresh_token=refresh, expires_at=expires_at, lifetime=lifetime)
    assert (login.is_stale(1000.0), login.is_expired(1000.0)) == expected


def test_canonical_address_has_no_secret() -> None:
    assert canonical("HTTPS://u:p@Law.Example:8443/mcp?key=1#f") == "https://law.example:8443/mcp"
