"""A project's server that was approved is started as it was approved, or not at all."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import threading
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.behaviour.test_trust import approve
from tests.behaviour.turning import SERVER, Turncoat

from dragoman import McpManager, ServerState
from dragoman.trust.approval_store import Approvals

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("otter-safety")]


class Project:
    """A project that brings its server along."""

    def __init__(self, root: Path, **entry: Any) -> None:
        self.root = root
        self.coat = Turncoat(root)
        self.script = root / "server.py"
        shutil.copy(SERVER, self.script)
        shutil.copy(SERVER.with_name("jsonrpc.py"), root)
        self.entry = {"command": sys.executable, "args": ["-S", "server.py", "coat.json"], **entry}
        self.write()

    def write(self, **changes: Any) -> None:
        self.entry |= changes
        (self.root / ".mcp.json").write_text(json.dumps({"mcpServers": {"coat": self.entry}}), "utf-8")

    def spoil(self) -> None:
        """Change the script, which still works."""
        self.script.write_text(f"{self.script.read_text('utf-8')}\n# and more\n", "utf-8")

    @property
    def starts(self) -> int:
        return self.coat.log.count("start")


def manager(project: Project) -> McpManager:
    return McpManager.from_config(root=project.root)


def why(mcp: McpManager) -> str:
    status = mcp.status()["coat"]
    assert status.state is ServerState.FAILED
    return str(status.last_error)


@pytest.mark.usefixtures("pipes")
async def test_a_script_that_changed_is_not_started_again(tmp_path: Path) -> None:
    project = Project(tmp_path)
    approve("coat", tmp_path)
    with anyio.fail_after(40):
        async with manager(project) as mcp:
            assert await mcp.wait_ready()
            project.spoil()
            # What runs is what was approved, and goes on.
            assert mcp.status()["coat"].state is ServerState.READY
            await mcp.restart("coat")
            assert "the file `server.py` changed" in why(mcp)
            assert "dragoman trust approve coat" in why(mcp)
            assert project.starts == 1
            approve("coat", tmp_path)
            await mcp.restart("coat")
            assert mcp.status()["coat"].state is ServerState.READY
        project.spoil()
        async with manager(project) as mcp:
            assert not await mcp.wait_ready()
            assert "the file `server.py` changed" in why(mcp)
            assert mcp.tools() == []
    assert project.starts == 2


async def test_a_script_that_changed_is_not_started_after_a_crash(tmp_path: Path) -> None:
    project = Project(tmp_path)
    approve("coat", tmp_path)
    with anyio.fail_after(40):
        async with manager(project) as mcp:
            assert await mcp.wait_ready()
            project.spoil()
            events = mcp.events()
            await mcp.call("mcp_coat_die")
            async for event in events:
                if getattr(event, "after", None) is ServerState.FAILED:
                    break
            assert "the file `server.py` changed" in why(mcp)
    assert project.starts == 1


async def test_what_a_lazy_server_offered_is_not_shown_once_its_script_changed(tmp_path: Path) -> None:
    project = Project(tmp_path)
    approve("coat", tmp_path)
    with anyio.fail_after(40):
        async with manager(project) as mcp:
            assert await mcp.wait_ready()
        project.write(lazy=True)
        async with manager(project) as mcp:
            assert len(mcp.tools()) == 5
        project.spoil()
        async with manager(project) as mcp:
            assert mcp.tools() == []
            assert not (await mcp.call("mcp_coat_read", {"path": "x"})).success
    assert project.starts == 1


async def test_a_change_right_before_the_start_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check is made again when its turn has come, not only when it is decided to connect."""
    project = Project(tmp_path)
    approve("coat", tmp_path)
    import dragoman.server.connection as connections

    taken = connections.Connection._take_slot

    is_due = True

    async def spoil_and_take(self: Any) -> Any:
        if is_due:
            project.spoil()
        return await taken(self)

    monkeypatch.setattr(connections.Connection, "_take_slot", spoil_and_take)
    monkeypatch.setattr("dragoman.server.supervisor.is_imported", lambda: True)
    with anyio.fail_after(40):
        async with manager(project) as mcp:
            assert not await mcp.wait_ready()
            assert "the file `server.py` changed" in why(mcp)
            assert project.starts == 0
            # The same holds for a server that was ready before.
            is_due = False
            approve("coat", tmp_path)
            await mcp.restart("coat")
            assert mcp.status()["coat"].state is ServerState.READY
            is_due = True
            await mcp.restart("coat")
            assert "the file `server.py` changed" in why(mcp)
    assert project.starts == 1


async def test_the_program_that_was_looked_at_is_the_one_that_is_started(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (tmp_path_factory.mktemp(name) for name in ("first", "second"))
    for folder in (first, second):
        (folder / "serve").write_text(
            f'#!/bin/sh\necho {folder.name} >> "$TRACE"\nexec {sys.executable} "$@"\n'
        )
        (folder / "serve").chmod(0o755)
    trace = tmp_path_factory.mktemp("trace") / "trace.log"
    project = Project(tmp_path, command="serve", env={"TRACE": str(trace)})
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", f"{first}:{second}:{path}")
    approve("coat", tmp_path)
    with anyio.fail_after(40):
        async with manager(project) as mcp:
            assert await mcp.wait_ready()
            monkeypatch.setenv("PATH", f"{second}:{first}:{path}")
            await mcp.restart("coat")
            assert f"`serve` is now another program: {second / 'serve'}" in why(mcp)
            monkeypatch.setenv("PATH", f"{first}:{path}")
            # An upgrade of the program itself asks no question.
            (first / "serve").write_text((first / "serve").read_text() + "# newer\n")
            await mcp.restart("coat")
            assert mcp.status()["coat"].state is ServerState.READY
    assert trace.read_text().split() == [first.name, first.name]


@pytest.mark.parametrize("relative", [True, False])
async def test_a_program_of_the_project_is_started_from_its_own_directory(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, relative: bool
) -> None:
    """Our own directory has a program of the same name, which is neither looked at nor started."""
    project = Project(tmp_path)
    for folder, text in (
        (tmp_path, f'exec {sys.executable} "$@"'),
        (tmp_path_factory.mktemp("own"), "exit 3"),
    ):
        (folder / "bin").mkdir()
        (folder / "bin" / "serve").write_text(f"#!/bin/sh\n{text}\n")
        (folder / "bin" / "serve").chmod(0o755)
    monkeypatch.chdir(folder)
    if relative:
        project.write(command="./bin/serve")
    else:
        project.write(command="serve", env={"PATH": f"bin:{os.environ['PATH']}"})
    approve("coat", tmp_path)
    with anyio.fail_after(40):
        async with manager(project) as mcp:
            assert await mcp.wait_ready(), mcp.status()["coat"].last_error
            (tmp_path / "bin" / "serve").write_text("#!/bin/sh\nexit 4\n")
            await mcp.restart("coat")
            assert "the file `bin/serve` changed" in why(mcp)


async def test_files_are_looked_at_beside_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project(tmp_path)
    approve("coat", tmp_path)
    loop_thread = threading.get_ident()
    looked: list[int] = []
    look = Approvals.look
    refused = Approvals.refused

    def noted(self: Approvals, *args: Any) -> Any:
        looked.append(threading.get_ident())
        return look(self, *args)

    def noted_all(self: Approvals, *args: Any) -> Any:
        looked.append(threading.get_ident())
        return refused(self, *args)

    monkeypatch.setattr(Approvals, "look", noted)
    monkeypatch.setattr(Approvals, "refused", noted_all)
    mcp = manager(project)
    assert looked == []
    with anyio.fail_after(40):
        async with mcp:
            assert await mcp.wait_ready()
            await mcp.reload()
            await mcp.restart("coat")
    assert looked
    assert loop_thread not in looked


async def test_a_pipe_in_the_place_of_a_script_does_not_block(tmp_path: Path) -> None:
    project = Project(tmp_path)
    approve("coat", tmp_path)
    project.script.unlink()
    os.mkfifo(project.script)
    with anyio.fail_after(20):
        async with manager(project) as mcp:
            assert not await asyncio.wait_for(mcp.wait_ready(), 15)
            assert "the file `server.py` changed" in why(mcp)


@pytest.mark.parametrize("line", ["exec ./bin/$NAME", "cd bin && exec ./$(echo serve)"])
async def test_a_program_whose_path_a_shell_computes_is_not_started_once_it_changed(
    tmp_path: Path, line: str
) -> None:
    project = Project(tmp_path, command="sh", args=["-c", line], env={"NAME": "serve"})
    program = tmp_path / "bin" / "serve"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncd {tmp_path}\nexec {sys.executable} -S server.py coat.json\n")
    program.chmod(0o755)
    approve("coat", tmp_path)
    with anyio.fail_after(40):
        async with manager(project) as mcp:
            assert await mcp.wait_ready(), mcp.status()["coat"].last_error
            program.write_text(f"{program.read_text()}# and more\n")
            await mcp.restart("coat")
            assert "the file `bin/serve` changed" in why(mcp)
    assert project.starts == 1
