"""Folders and files of ours are for their owner alone, whatever the umask is."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dragoman.private import is_ours, private_folder, private_opener, private_temporary

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    number, name = private_temporary(folder, ".new")
    os.close(number)
    assert mode(folder / "file") == mode(Path(name)) == 0o600


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
    assert not is_ours(folder)


def test_file_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError, match=r".+"):
            private_folder(folder)


def test_link_in_the_place_of_our_folder_leads_nobody_to_change_its_target(
    home: Path, tmp_path: Path
) -> None:
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
from dragoman.agent.transcript import Transcript
from dragoman.agent.messages import Message
from dragoman.cli.session.history import LineHistory
from dragoman.cli.session.logbook import logbook, state_folder
from dragoman.server.auth_store import TokenStore
from dragoman.trust_store import Approvals
import logging

async def main():
    stdio = Stdio(sys.executable, [sys.argv[2]], log_file="logs/deep/s.log")
    async with McpManager([ServerSpec("s", stdio, trust="strict")], call_log=True) as mcp:
        await mcp.wait_ready()
        await mcp.approve("s")
        result = await mcp.call("mcp_s_echo", {"text": "x" * 200_000})
        assert result.success, result.error
    Approvals().approve(ServerSpec("s", stdio), ".")
    async with TokenStore("s", "https://example.org/").locked():
        pass
    LineHistory(state_folder() / "history").store_string("hello")
    with logbook(state_folder() / "session.log", print):
        logging.getLogger("dragoman").warning("something")

asyncio.run(main())
"""


@pytest.mark.parametrize("umask", ["0", "22", "77", "277"])
def test_everything_that_is_kept_is_private_under_any_umask(home: Path, tmp_path: Path, umask: str) -> None:
    server = Path(__file__).resolve().parents[1] / "servers" / "plain.py"
    done = subprocess.run(
        [sys.executable, "-c", USE, umask, str(server)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    kept = [path for base in (home, tmp_path / "logs") for path in (base, *base.rglob("*")) if path != home]
    assert len([path for path in kept if path.is_file()]) > 5
    loose = {str(path): oct(mode(path)) for path in kept if mode(path) != (0o700 if path.is_dir() else 0o600)}
    assert loose == {}
