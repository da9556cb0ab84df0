"""What happens when a server cannot answer: its fallback does, and what is safe is sent again."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from dragoman import McpManager, ServerSpec, Stdio, ToolDef, ToolRegistry
from dragoman.events import StateChanged

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[..., ServerSpec]

SERVERS = Path(__file__).resolve().parents[1] / "servers"


def mortal(folder: Path, name: str, **more: Any) -> ServerSpec:
    """Make a server that cannot be started again once its script is gone."""
    folder.mkdir()
    for script in ("plain.py", "jsonrpc.py"):
        shutil.copy(SERVERS / script, folder)
    return ServerSpec(name, Stdio(sys.executable, [str(folder / "plain.py")]), **more)


async def kill_for_good(mcp: McpManager, name: str, folder: Path) -> None:
    shutil.rmtree(folder)
    events = mcp.events()
    os.kill(mcp.status()[name].pid or 0, signal.SIGKILL)
    async for event in events:
        if isinstance(event, StateChanged) and event.server == name and event.after == "backoff":
            return


@pytest.mark.requirement("legal-config.health")
async def test_unavailable_server_is_replaced_by_its_fallback_and_the_answer_says_so(
    server: Make, tmp_path: Path
) -> None:
    first = mortal(tmp_path / "first", "first", fallback=["second"])
    with anyio.fail_after(30):
        async with McpManager([first, server("second", "plain.py")]) as mcp:
            await mcp.wait_ready()
            await kill_for_good(mcp, "first", tmp_path / "first")
            result = await mcp.call("mcp_first_echo", {"text": "hello"})
            assert result.success
            assert "hello" in result.text
            assert "answered by `second`" in result.text
            assert result.provenance is not None
            assert result.provenance.server == "second"


@pytest.mark.requirement("legal-client.failure")
async def test_local_function_stands_in_for_a_server_that_is_gone(tmp_path: Path) -> None:
    def local_echo(text: str) -> str:
        return f"local {text}"

    registry = ToolRegistry()
    schema: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}}
    registry.register(
        ToolDef(name="local_echo", description="", input_schema=schema, func=local_echo, source="builtin")
    )
    only = mortal(tmp_path / "only", "only", fallback=["local_echo"])
    with anyio.fail_after(30):
        async with McpManager([only], registry=registry) as mcp:
            await mcp.wait_ready()
            await kill_for_good(mcp, "only", tmp_path / "only")
            result = await mcp.call("mcp_only_echo", {"text": "hello"})
            assert result.success
            assert "local hello" in result.text


async def test_call_that_may_have_run_is_neither_sent_again_nor_handed_over(server: Make) -> None:
    first = server("first", "plain.py", fallback=["second"])
    with anyio.fail_after(30):
        async with McpManager([first, server("second", "plain.py")]) as mcp:
            await mcp.wait_ready()
            pid = mcp.status()["second"].pid
            result = await mcp.call("mcp_first_exit")
            assert not result.success
            assert "may have run" in (result.error or "")
            assert mcp.status()["second"].pid == pid
