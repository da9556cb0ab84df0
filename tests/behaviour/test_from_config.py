"""A manager made of configuration files, and what a reload changes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from dragoman import DragomanError, McpManager, ServerSpec, ServerState, Stdio

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[..., ServerSpec]

pytestmark = pytest.mark.anyio


def write(file: Path, *specs: ServerSpec) -> None:
    servers: dict[str, Any] = {}
    for spec in specs:
        assert isinstance(spec.transport, Stdio)
        servers[spec.name] = {"command": spec.transport.command, "args": list(spec.transport.args)}
    file.write_text(json.dumps({"mcpServers": servers}, indent=2))


async def test_manager_starts_what_the_project_file_says(server: Make, tmp_path: Path) -> None:
    write(tmp_path / "mcp.json", server("pages", "paging.py", "1"))
    with anyio.fail_after(20):
        async with McpManager.from_config(root=tmp_path, trust_project=True) as mcp:
            assert await mcp.wait_ready()
            assert [tool.name for tool in mcp.tools()] == ["mcp_pages_t0"]
            assert mcp.status()["pages"].origin.source == str(tmp_path / "mcp.json")


async def test_reload_touches_only_what_changed(server: Make, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    write(file, server("kept", "plain.py"), server("changed", "paging.py", "1"), server("gone", "plain.py"))
    with anyio.fail_after(20):
        async with McpManager.from_config(config=file, trust_project=True) as mcp:
            assert await mcp.wait_ready()
            pid = mcp.status()["kept"].pid
            write(
                file,
                server("new", "paging.py", "1"),
                server("kept", "plain.py"),
                server("changed", "paging.py", "2"),
            )
            await mcp.reload()
            assert mcp.status()["kept"].pid == pid
            assert {name: status.state for name, status in mcp.status().items()} == dict.fromkeys(
                ("kept", "changed", "new"), ServerState.READY
            )
            assert [tool.name for tool in mcp.tools() if tool.server != "kept"] == [
                "mcp_changed_t0",
                "mcp_changed_t1",
                "mcp_new_t0",
            ]


async def test_manager_without_files_has_nothing_to_reload() -> None:
    async with McpManager([]) as mcp:
        with pytest.raises(DragomanError, match="no file to read again"):
            await mcp.reload()


async def test_no_file_at_all_gives_a_manager_without_servers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with McpManager.from_config(root=tmp_path) as mcp:
        assert await mcp.wait_ready()
        assert mcp.status() == {}
    assert caplog.records == []


async def test_unapproved_server_says_how_a_program_trusts_the_project(tmp_path: Path) -> None:
    entry = {"command": sys.executable, "args": ["-c", ""]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"files": entry}}), "utf-8")
    async with McpManager.from_config(root=tmp_path) as mcp:
        said = mcp.status()["files"].last_error or ""
        assert "run `dragoman trust approve files`" in said
        assert said.endswith("a program that trusts the project's files passes `trust_project=True`)")


@pytest.mark.requirement("kode-config.project")
async def test_advice_of_the_library_names_the_profile_and_the_file_that_it_has_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entry = {"type": "stdio", "command": sys.executable, "args": ["-c", ""]}
    own = tmp_path / "the project" / ".kode.json"
    own.parent.mkdir()
    own.write_text(json.dumps({"mcpServers": {"files": entry}}), "utf-8")
    async with McpManager.from_config("kode", root=own.parent) as mcp:
        assert "run `dragoman --profile kode trust approve files`" in (mcp.status()["files"].last_error or "")
        await mcp.restart("files")
        await mcp.wait_ready()
        assert "run `dragoman --profile kode trust approve files`" in (mcp.status()["files"].last_error or "")
    home = Path.home() / ".kode.json"
    home.write_text(json.dumps({"mcpServers": {"files": {**entry, "args": ["-c", "pass"]}}}), "utf-8")
    async with McpManager.from_config("kode", root=own.parent) as mcp:
        assert mcp.settings.unapproved
    assert "Review: dragoman --profile kode trust approve files" in caplog.text
