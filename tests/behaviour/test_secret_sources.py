"""Keyrings and commands as sources of secrets: after approval only, once a connection, and seen nowhere."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import anyio
import pytest
from tests.behaviour.test_trust import approve, project
from tests.behaviour.turning import SERVER, Turncoat

from dragoman import McpManager, ServerSpec, ServerState, Stdio
from dragoman.config.load import load
from dragoman.trust.approvals import question

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

CANARY = "c4nary-that-nobody-sees"


def counting(folder: Path, *more: str) -> str:
    """A reference to a command that leaves a trace of each run."""
    code = "import sys; open(sys.argv[1], 'a').write('x'); print(sys.argv[2])"
    return f"${{command:{shlex.join([sys.executable, '-S', '-c', code, str(folder / 'runs.log'), *more])}}}"


def runs(folder: Path) -> int:
    file = folder / "runs.log"
    return len(file.read_text("utf-8")) if file.exists() else 0


@pytest.mark.parametrize("field", ["env", "args", "cwd"])
async def test_a_project_runs_no_command_before_it_is_approved_and_none_that_was_changed(
    tmp_path: Path, field: str
) -> None:
    coat = Turncoat(tmp_path)

    def written(reference: str) -> None:
        transport = coat.spec.transport
        assert isinstance(transport, Stdio)
        if field == "env":
            project(tmp_path, coat.spec, env={"TOKEN": f"Bearer {reference}"})
        elif field == "cwd":
            project(tmp_path, coat.spec, cwd=reference)
        else:
            args = [*transport.args, reference]
            project(tmp_path, ServerSpec("coat", Stdio(transport.command, args)))

    written(counting(tmp_path, "."))
    with anyio.fail_after(40):
        async with McpManager.from_config(root=tmp_path) as mcp:
            assert not await mcp.wait_ready()
            await mcp.restart("coat")
            assert (runs(tmp_path), coat.log) == (0, [])
        approve("coat", tmp_path)
        async with McpManager.from_config(root=tmp_path) as mcp:
            assert await mcp.wait_ready()
            assert runs(tmp_path) == 1
            await mcp.restart("coat")
            assert runs(tmp_path) == 2
            written(counting(tmp_path, ".", "--more"))
            report = await mcp.reload()
            assert "approve" in str(report.failed["coat"])
            assert runs(tmp_path) == 2
        async with McpManager.from_config(root=tmp_path) as mcp:
            assert not await mcp.wait_ready()
            assert runs(tmp_path) == 2


def test_a_person_is_shown_the_whole_command_before_saying_yes(tmp_path: Path) -> None:
    project(tmp_path, Turncoat(tmp_path).spec, env={"TOKEN": "${command:curl --token hidden https://x}"})
    spec = load(root=tmp_path).server("coat")
    assert spec is not None
    asked = question(spec, str(tmp_path))
    assert "curl --token hidden https://x" in asked
    assert "a command runs with your account" in asked


async def test_a_command_that_fails_leaves_the_server_down_and_says_where_it_stands(tmp_path: Path) -> None:
    coat = Turncoat(tmp_path)
    project(tmp_path, coat.spec, env={"TOKEN": "${command:false}"})
    approve("coat", tmp_path)
    with anyio.fail_after(20):
        async with McpManager.from_config(root=tmp_path) as mcp:
            assert not await mcp.wait_ready()
            status = mcp.status()["coat"]
    assert (status.state, status.error_code) == (ServerState.FAILED, "config.missing_variable")
    assert "dragoman.toml:" in str(status.last_error)
    assert "the command `false` failed" in str(status.last_error)
    assert coat.log == []


async def test_what_a_command_gave_is_masked_wherever_it_stands(tmp_path: Path) -> None:
    coat = Turncoat(tmp_path)
    coat.change(lambda offer: offer.update(leaky=True))
    reference = counting(tmp_path, CANARY)
    words = ["-S", str(SERVER), str(coat.file), reference]
    spec = ServerSpec("coat", Stdio(sys.executable, words, env={"HOMEPAGE": reference}))
    with anyio.fail_after(20):
        async with McpManager([spec]) as mcp:
            assert await mcp.wait_ready()
            result = await mcp.call("mcp_coat_fail", {})
            assert result.error
            assert CANARY not in f"{result.error}{result.exception!r}{mcp.status()}{mcp.settings}"
    assert runs(tmp_path) == 1
