"""Disable and enable servers, and read their logs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import anyio
import pytest

from dragoman import McpManager, ServerSpec, ServerState, Stdio
from dragoman.errors import UnknownServerError

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[..., ServerSpec]

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement("excel-2.6", "otter-p1.health", "kode-lifecycle.health"),
]


async def test_disabled_server_is_stopped_and_its_tools_go_until_it_is_enabled(server: Make) -> None:
    async with McpManager([server("fs", "plain.py"), server("other", "plain.py")]) as mcp:
        with anyio.fail_after(30):
            assert await mcp.wait_ready()
            pid, other = mcp.status()["fs"].pid, mcp.status()["other"].pid
            assert pid is not None
            await mcp.disable("fs")
            assert mcp.status()["fs"].state is ServerState.CLOSED
            assert {tool.server for tool in mcp.tools()} == {"other"}
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
            result = await mcp.call("mcp_fs_echo", {"text": "x"})
            assert not result.success
            await mcp.enable("fs")
            assert mcp.status()["fs"].state is ServerState.READY
            assert (await mcp.call("mcp_fs_echo", {"text": "x"})).text == "x"
            assert mcp.status()["other"].pid == other


async def test_enabling_and_disabling_twice_changes_nothing(server: Make) -> None:
    async with McpManager([server("fs", "plain.py")]) as mcp:
        with anyio.fail_after(30):
            assert await mcp.wait_ready()
            pid = mcp.status()["fs"].pid
            await mcp.enable("fs")
            assert mcp.status()["fs"].pid == pid
            await mcp.disable("fs")
            await mcp.disable("fs")
            assert mcp.status()["fs"].state is ServerState.CLOSED
            with pytest.raises(UnknownServerError, match="`sf`"):
                await mcp.enable("sf")


async def test_logs_are_the_last_lines_of_a_server_also_after_it_died_and_without_secrets() -> None:
    secret = "canary-71c0ffee19"
    script = "import os, sys; print('one\\ntoken', os.environ['API_TOKEN'], file=sys.stderr); sys.exit(3)"
    stdio = Stdio(sys.executable, ["-c", script], env={"API_TOKEN": secret})
    async with McpManager([ServerSpec("fs", stdio)]) as mcp:
        with anyio.fail_after(30):
            await mcp.wait_ready()
        lines = mcp.logs("fs")
        assert lines[-2] == "one"
        assert lines[-1].startswith("token ")
        assert secret not in lines[-1]
        assert mcp.logs("fs", 1) == lines[-1:]
        assert mcp.logs("fs", 0) == []
