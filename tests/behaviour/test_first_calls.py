"""The first call of a program, right after its start: a server that connects is waited for, and one that downloads."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.servers.package_registry import PackageRegistry

from dragoman import ConfigError, McpManager, ServerSpec, ServerState, Stdio, ToolDef
from dragoman.config.hosts import remember
from dragoman.diagnosis.explain import explain_status, state_word
from dragoman.errors import UnknownToolError

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[..., ServerSpec]

pytestmark = pytest.mark.anyio
SILENT = ServerSpec("silent", Stdio(sys.executable, ["-c", "import sys; sys.stdin.read()"]))


@pytest.mark.parametrize("name", ["mcp_pages_t0", "pages:t0", "pages.t0", "mcp_PAGES_t0"])
async def test_a_call_waits_for_the_first_connection_of_the_server_that_its_name_has(
    name: str, server: Make
) -> None:
    with anyio.fail_after(20):
        async with McpManager([server("pages", "paging.py", "1")], cache=False) as mcp:
            assert mcp.status()["pages"].state is ServerState.CONNECTING
            result = await mcp.call(name, {})
    known = name != "mcp_PAGES_t0"
    assert result.success == known, result.error
    assert known or isinstance(result.exception, UnknownToolError)


async def test_a_call_starts_a_lazy_server_whose_tools_are_not_known(server: Make) -> None:
    with anyio.fail_after(20):
        async with McpManager([server("pages", "paging.py", "1").replace(lazy=True)], cache=False) as mcp:
            assert mcp.status()["pages"].state is ServerState.IDLE
            assert (await mcp.call("mcp_pages_t0", {})).success


async def test_a_misspelt_name_and_a_server_that_failed_before_are_not_waited_for(server: Make) -> None:
    broken = ServerSpec("broken", Stdio("no-such-program", []))
    with anyio.fail_after(20):
        async with McpManager([SILENT, broken, server("pages", "paging.py", "1")], cache=False) as mcp:
            await mcp.wait_ready(["broken", "pages"])
            for name in ("mcp_silence_x", "t1", "mcp_broken_x", "broken:x"):
                result = await mcp.call(name, {}, timeout=3600)
                assert isinstance(result.exception, UnknownToolError), name
            assert mcp.status()["silent"].state is ServerState.CONNECTING


async def test_the_wait_ends_with_the_timeout_of_the_call_and_counts_against_it() -> None:
    with anyio.fail_after(20):
        async with McpManager([SILENT], cache=False) as mcp:
            result = await mcp.call("mcp_silent_x", {}, timeout=0.05)
            assert isinstance(result.exception, UnknownToolError)
            assert "server `silent` is not ready: it is connecting" in str(result.exception)


async def test_an_own_tool_with_the_prefix_of_a_server_is_not_delayed() -> None:
    with anyio.fail_after(20):
        async with McpManager([SILENT], cache=False) as mcp:
            here = ToolDef(name="mcp_silent_local", description="", input_schema={}, func=lambda: "here")
            mcp.registry.register(here)
            assert (await mcp.call("mcp_silent_local", {}, timeout=3600)).text == "here"


async def test_a_first_start_that_downloads_says_so_and_has_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    entry = {"command": "npx", "args": ["-y", "law-desk"]}
    with anyio.fail_after(50):
        async with PackageRegistry() as registry:
            monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{registry.port}/")
            registry.may_download.clear()
            async with McpManager({"desk": entry}, cache=False) as mcp:
                early = await mcp.call("mcp_desk_environment", {}, timeout=0.5)
                status = mcp.status()["desk"]
                said = explain_status(status)
                assert status.downloading == "law-desk"
                assert said is not None
                assert (state_word(status), said.cause) == ("downloading", "downloading `law-desk`")
                assert "downloading `law-desk`" in str(early.exception)
                registry.may_download.set()
                assert (await mcp.call("mcp_desk_environment", {}, timeout=30)).success
                assert mcp.status()["desk"].downloading == ""
            async with McpManager({"desk": entry}, cache=False) as mcp:
                assert await mcp.wait_ready(["desk"], timeout=0) is not None
                states = {mcp.status()["desk"].downloading}
                await mcp.wait_ready()
                assert states == {""}, "it is in the cache of npx now"


def claude_code(home: Path) -> None:
    plain = Path(__file__).resolve().parents[1] / "servers/plain.py"
    servers: dict[str, Any] = {"notes": {"command": sys.executable, "args": [str(plain)]}}
    (home / ".claude.json").write_text(json.dumps({"mcpServers": servers}))


def names(mcp: McpManager) -> list[str]:
    return [spec.name for spec in mcp.settings.servers]


async def test_a_program_without_servers_is_told_once_where_some_were_found(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    claude_code(home)
    caplog.set_level(logging.INFO, "dragoman")
    assert names(McpManager.from_config()) == []
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert "Found 1 server of Claude Code" in record.getMessage()
    assert 'hosts=["claude-code"]' in record.getMessage()
    caplog.clear()
    for profile in ("excelmanus", "legal", "otter", "kode", "rrclaw"):
        assert names(McpManager.from_config(profile)) == []
    assert not caplog.records, "an application with a profile has its own files"


async def test_a_program_uses_the_hosts_that_it_names_or_that_the_user_has_approved(home: Path) -> None:
    claude_code(home)
    assert names(McpManager.from_config(hosts=["claude-code"])) == ["notes"]
    assert names(McpManager.from_config(hosts=["cursor"])) == []
    assert names(McpManager.from_config(hosts=True)) == []
    remember(["claude-code"], use=True)
    assert names(McpManager.from_config(hosts=True)) == ["notes"]
    assert names(McpManager.from_config()) == []
    with pytest.raises(ConfigError, match="did you mean `claude-code`"):
        McpManager.from_config(hosts=["claude_code"])
