"""Folders and files of ours are for their owner alone, whatever the umask is."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.warm import interpreter

from dragoman.observe.call_log import default_path as call_log
from dragoman.server.oauth import token_store
from dragoman.server.process import orphans
from dragoman.storage import manifests, results
from dragoman.storage.files import (
    data_folder,
    move_old_files,
    private_folder,
    private_opener,
    state_folder,
    write_atomically,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="rights are others there")


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o277, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_new_folders_and_files_are_private_under_any_umask(tmp_path: Path, umask: int) -> None:
    folder = tmp_path / "a" / "b" / "c"
    private_folder(folder)
    assert [mode(one) for one in (folder, *folder.parents[:2])] == [0o700] * 3
    os.close(private_opener(folder / "file", os.O_WRONLY | os.O_CREAT))
    write_atomically(folder / "whole", b"x")
    assert mode(folder / "file") == mode(folder / "whole") == 0o600


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other folders")
@pytest.mark.parametrize(
    ("find", "variable", "usual", "name"),
    [
        (data_folder, "XDG_DATA_HOME", ".local/share", ""),
        (token_store.default_folder, "XDG_DATA_HOME", ".local/share", "logins"),
        (state_folder, "XDG_STATE_HOME", ".local/state", ""),
        (orphans.default_folder, "XDG_STATE_HOME", ".local/state", "children"),
        (call_log, "XDG_STATE_HOME", ".local/state", "calls.sqlite3"),
        (manifests.default_folder, "XDG_CACHE_HOME", ".cache", "manifests"),
        (results.default_folder, "XDG_CACHE_HOME", ".cache", "results"),
    ],
)
def test_folders_are_the_xdg_ones_on_linux(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    find: Callable[[], Path],
    variable: str,
    usual: str,
    name: str,
) -> None:
    monkeypatch.setenv(variable, "/x")
    assert find() == Path("/x/dragoman", name)
    for given in ("", "relative"):
        monkeypatch.setenv(variable, given)
        assert find() == home / usual / "dragoman" / name
    monkeypatch.delenv(variable)
    assert find() == home / usual / "dragoman" / name


def tree(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".move.guard"]
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def fill(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


OLD = {
    "approvals.json": "old",
    "logins/a.json": "old",
    "logins/b.json": "old",
    "pins/a.lock": "old",
    "calls.sqlite3": "old",
    "calls.sqlite3-wal": "old",
}


def test_old_files_are_moved_and_nothing_is_left(tmp_path: Path) -> None:
    old, new = tmp_path / "old" / "dragoman", tmp_path / "new" / "dragoman"
    fill(old, OLD)
    move_old_files(old, new)
    assert tree(new) == OLD
    assert mode(new) == 0o700
    assert not old.exists()
    move_old_files(old, new)
    assert tree(new) == OLD


def test_moving_old_files_never_replaces_a_new_one(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    fill(old, OLD)
    fill(new, {"logins/a.json": "new", "calls.sqlite3": "new"})
    move_old_files(old, new)
    assert tree(new) == {
        "approvals.json": "old",
        "logins/a.json": "new",
        "logins/b.json": "old",
        "pins/a.lock": "old",
        "calls.sqlite3": "new",
    }
    # The journal of the old database would damage the new one.
    assert tree(old) == {"logins/a.json": "old", "calls.sqlite3": "old", "calls.sqlite3-wal": "old"}


def test_several_may_move_the_same_old_files_at_once(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    many = {f"logins/{number}.json": str(number) for number in range(100)}
    fill(old, many)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: move_old_files(old, new), range(8)))
    assert tree(new) == many
    assert not old.exists()


def test_old_files_that_cannot_be_moved_stay_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = tmp_path / "old"
    fill(old, OLD)
    (tmp_path / "new").write_text("a file, not a folder")
    move_old_files(old, tmp_path / "new")
    assert tree(old) == OLD
    assert f"{old} could not be moved to {tmp_path / 'new'}" in caplog.text


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"one")
    assert (path.read_bytes(), mode(path)) == (b"one", 0o600)
    path.chmod(0o640)
    write_atomically(path, b"two", like=path.stat())
    assert (path.read_bytes(), mode(path)) == (b"two", 0o640)
    write_atomically(tmp_path / "open", b"", mode=None)
    assert mode(tmp_path / "open") == 0o666 & ~umask
    with pytest.raises(TypeError):
        write_atomically(path, "no bytes")  # pyright: ignore[reportArgumentType]
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    with pytest.raises(OSError, match="folder"):
        write_atomically(tmp_path / "folder", b"three")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "folder", "open"]
    assert path.read_bytes() == b"two"


def test_our_own_folders_are_closed_and_those_above_stay(home: Path) -> None:
    folder = home / ".local" / "state" / "dragoman" / "children"
    folder.mkdir(parents=True)
    for one in (folder, *folder.parents[:3]):
        one.chmod(0o777)
    private_folder(folder)
    assert mode(folder) == mode(folder.parent) == 0o700
    assert mode(folder.parents[1]) == mode(folder.parents[2]) == 0o777


@pytest.mark.parametrize("name", ["chosen", "dragoman", "dragoman/children"])
def test_folder_that_the_user_chose_stays_as_it_is(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    private_folder(folder)
    assert mode(folder) == 0o755


def test_file_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError, match=r".+"):
            private_folder(folder)


def test_link_in_the_place_of_our_folder_does_not_change_its_target(home: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    target.chmod(0o755)
    folder = home / ".cache" / "dragoman"
    folder.parent.mkdir(parents=True)
    folder.symlink_to(target)
    private_folder(folder)
    assert mode(target) == 0o755


USE = """
import asyncio, os, sys
os.umask(int(sys.argv[1], 8))
from pathlib import Path
from dragoman import McpManager, ServerSpec, Stdio
from dragoman.agent.messages import Transcript
from dragoman.agent.messages import Message
from dragoman.cli.session.session import LineHistory
from dragoman.cli.session.log import logbook
from dragoman.storage.files import state_folder
from dragoman.server.oauth.token_store import TokenStore
from dragoman.config.load import approvals
import logging

async def main():
    path = Path(sys.argv[2])
    code = (
        f"import runpy, sys; print('hello', file=sys.stderr, flush=True); sys.path.insert(0, {str(path.parent)!r});"
        f"runpy.run_path({str(path)!r}, run_name='__main__')"
    )
    stdio = Stdio(sys.executable, ["-c", code], log_file="logs/deep/s.log")
    async with McpManager([ServerSpec("s", stdio, trust="strict")], call_log=True) as mcp:
        await mcp.wait_ready()
        await mcp.trust.approve("s")
        result = await mcp.call("mcp_s_echo", {"text": "x" * 200_000})
        assert result.success, result.error
    approvals().approve(ServerSpec("s", stdio), ".")
    async with TokenStore("s", "https://example.org/").locked():
        pass
    LineHistory(state_folder() / "history").store_string("hello")
    with logbook(state_folder() / "session.log", print):
        logging.getLogger("dragoman").warning("something")

asyncio.run(main())
"""


@pytest.mark.parametrize("umask", ["0", "22", "77", "277"])
def test_everything_that_is_kept_is_private_under_any_umask(home: Path, tmp_path: Path, umask: str) -> None:
    server = Path(__file__).resolve().parents[2] / "servers" / "plain.py"
    done = subprocess.run(
        [interpreter(), "-c", USE, umask, str(server)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    kept = [path for base in (home, tmp_path / "logs") for path in (base, *base.rglob("*")) if path != home]
    assert len([path for path in kept if path.is_file()]) > 5
    loose = {str(path): oct(mode(path)) for path in kept if mode(path) != (0o700 if path.is_dir() else 0o600)}
    assert loose == {}
