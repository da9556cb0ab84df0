"""What servers offered last time is there at once; what they offer now takes its place."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import anyio
import pytest

from dragoman import McpManager, ServerSpec, ServerState, Settings, Stdio, ToolUnavailableError
from dragoman.events import ToolsChanged
from dragoman.tools.registry import finished

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    Make = Callable[..., ServerSpec]

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("legal-discovery.cache", "legal-error.lost")]

LISTED = """
import os, sys
sys.path.insert(0, {servers!r})
from jsonrpc import serve, text, tool
names = os.environ["NAMES"].split()
serve({{"tools/list": lambda _: {{"tools": [tool(n, title=os.environ.get("API_TOKEN", "")) for n in names]}},
       "tools/call": lambda *_: text("ok")}})
"""

SPEAKING = """
import json, os, sys
sys.path.insert(0, {servers!r})
from pathlib import Path
import jsonrpc
asked, version, only = Path(os.environ["ASKED"]), os.environ["VERSION"], os.environ["ONLY"]

def noted(method, answer):
    def handler(params):
        with asked.open("a") as file:
            file.write(method + "\\n")
        return answer(params)
    return handler

def initialize(params):
    if only == "modern":
        raise jsonrpc.RefusalError(-32022, "Unsupported", {{"supported": ["2026-07-28"], "requested": ""}})
    return jsonrpc.initialize(params) | {{"serverInfo": {{"name": "plain", "version": version}}}}

def discover(params):
    if only == "legacy":
        raise jsonrpc.RefusalError(-32601, "Method not found")
    said = {{"supportedVersions": ["2026-07-28"], "capabilities": {{"tools": {{}}}}, "ttlMs": 0, "cacheScope": "public"}}
    return {{"resultType": "complete", "serverInfo": {{"name": "plain", "version": version}}, **said}}

whole = {{"resultType": "complete", "ttlMs": 0, "cacheScope": "public"}} if only == "modern" else {{}}
methods = {{"initialize": initialize, "server/discover": discover,
           "tools/list": lambda _: {{"tools": [jsonrpc.tool("a")], **whole}}}}
jsonrpc.serve({{name: noted(name, answer) for name, answer in methods.items()}})
"""


@pytest.fixture
def asked(tmp_path: Path, server: Make) -> Callable[..., Awaitable[list[str]]]:
    """Start a server that speaks one protocol, and return what it was asked, up to its listing."""
    plain = server("x", "plain.py").transport
    assert isinstance(plain, Stdio)
    script, file = tmp_path / "speaking.py", tmp_path / "asked"
    script.write_text(SPEAKING.format(servers=plain.args[0].removesuffix("/plain.py")))

    async def start(only: str, version: str) -> list[str]:
        file.write_text("")
        env = {"ASKED": str(file), "ONLY": only, "VERSION": version}
        spec = ServerSpec("s", Stdio(sys.executable, [str(script)], env=dict[str, str | None](env)))
        async with McpManager([spec]) as mcp:
            assert await mcp.wait_ready()
        said = file.read_text().split()
        return said[: said.index("tools/list")]

    return start


@pytest.fixture
def listed(tmp_path: Path, server: Make) -> Make:
    """Make the spec of a server whose tools are named by a variable, which no fingerprint knows."""
    plain = server("x", "plain.py").transport
    assert isinstance(plain, Stdio)
    script = tmp_path / "listed.py"
    script.write_text(LISTED.format(servers=plain.args[0].removesuffix("/plain.py")))

    def make(name: str, names: str, *, token: str | None = None, **more: object) -> ServerSpec:
        env: dict[str, str | None] = {"NAMES": names, "API_TOKEN": token}
        return ServerSpec(name, Stdio(sys.executable, [str(script)], env=env), **more)

    return make


async def run_once(*specs: ServerSpec) -> None:
    mcp = await McpManager.connect_all(specs)
    await mcp.shutdown()


def manifests_in(folder: Path) -> list[Path]:
    return list(folder.rglob("*.manifest"))


def changes(events: list[object]) -> list[ToolsChanged]:
    return [event for event in events if isinstance(event, ToolsChanged)]


@pytest.mark.requirement("legal-discovery.cache")
async def test_tools_of_the_last_run_are_there_before_any_connection(server: Make) -> None:
    spec = server("plain", "plain.py")
    with anyio.fail_after(20):
        await run_once(spec)
        async with McpManager([spec]) as mcp:
            assert mcp.status()["plain"].state is ServerState.CONNECTING
            known = mcp.tools()
            assert len(known) == 16 == mcp.status()["plain"].tools
            events = mcp.events()
            assert (await mcp.call("mcp_plain_echo", {"text": "waits for its server"})).success
            assert await mcp.wait_ready()
            assert all(now is then for now, then in zip(mcp.tools(), known, strict=True))
        assert changes([event async for event in events])[:-1] == []


async def test_cached_definition_says_the_same_as_the_listed_one(server: Make) -> None:
    spec = server("plain", "plain.py")
    with anyio.fail_after(20):
        async with McpManager([spec]) as mcp:
            await mcp.wait_ready()
            live = mcp.tools()
            schema = mcp.registry.to_openai_schema()
        async with McpManager([spec]) as mcp:
            assert mcp.registry.to_openai_schema() == schema
            assert mcp.tools() == live
            assert repr(mcp.tools()) == repr(live)


async def test_first_listing_that_differs_is_an_event(listed: Make) -> None:
    with anyio.fail_after(20):
        await run_once(listed("s", "kept gone"))
        async with McpManager([listed("s", "kept new")]) as mcp:
            events = mcp.events()
            known = {tool.original_name: tool for tool in mcp.tools()}
            assert list(known) == ["gone", "kept"]
            await mcp.wait_ready()
            assert [tool.original_name for tool in mcp.tools()] == ["kept", "new"]
            assert mcp.tools()[0] is known["kept"]
        change = changes([event async for event in events])[0]
        assert change == ToolsChanged(server="s", added=("mcp_s_new",), removed=("mcp_s_gone",))
        async with McpManager([listed("s", "kept new")]) as mcp:
            assert [tool.original_name for tool in mcp.tools()] == ["kept", "new"]


@pytest.mark.requirement("legal-error.lost")
async def test_cached_definitions_serve_while_the_server_cannot_be_reached(
    listed: Make, tmp_path: Path
) -> None:
    spec = listed("s", "a b")
    with anyio.fail_after(20):
        await run_once(spec)
        (tmp_path / "listed.py").rename(tmp_path / "away.py")
        async with McpManager([spec]) as mcp:
            assert not await mcp.wait_ready()
            assert mcp.status()["s"].state is ServerState.BACKOFF
            assert [tool.original_name for tool in mcp.tools()] == ["a", "b"]
            result = await mcp.call("mcp_s_a", timeout=0.2)
            assert isinstance(result.exception, ToolUnavailableError)
            (tmp_path / "away.py").rename(tmp_path / "listed.py")
            await mcp.restart("s")
            assert (await mcp.call("mcp_s_a")).text == "ok"


@pytest.mark.requirement("legal-error.lost")
async def test_connection_that_was_lost_comes_back_and_its_tools_are_known_meanwhile(server: Make) -> None:
    with anyio.fail_after(20):
        async with McpManager([server("plain", "plain.py")]) as mcp:
            await mcp.wait_ready()
            known = mcp.tools()
            await mcp.call("mcp_plain_exit")
            status = mcp.status()["plain"]
            assert (status.state, status.tools) == (ServerState.BACKOFF, 16)
            assert status.retry_in is not None
            assert mcp.tools() == known
            assert (await mcp.call("mcp_plain_echo", {"text": "back"})).text == "back"


async def test_lazy_server_is_known_from_the_last_run_and_started_by_a_call(listed: Make) -> None:
    spec = listed("s", "a", lazy=True)
    with anyio.fail_after(20):
        async with McpManager([spec]) as mcp:
            assert (mcp.tools(), mcp.status()["s"].tools) == ([], 0)
            await mcp.restart("s")
        async with McpManager([spec]) as mcp:
            assert await mcp.wait_ready()
            assert (mcp.status()["s"].state, mcp.status()["s"].tools) == (ServerState.IDLE, 1)
            assert (await mcp.call("mcp_s_a")).text == "ok"
            assert mcp.status()["s"].state is ServerState.READY


async def test_filters_and_naming_of_today_hold_for_tools_of_yesterday(listed: Make) -> None:
    with anyio.fail_after(20):
        await run_once(listed("s", "a b c", denied_tools=["a"]))
        spec = listed("s", "a b c", denied_tools=["b"], lazy=True)
        async with McpManager(Settings(servers=[spec], naming="{tool}@{server}")) as mcp:
            assert [tool.name for tool in mcp.tools()] == ["a@s", "c@s"]


async def test_server_that_is_switched_off_offers_nothing(listed: Make) -> None:
    with anyio.fail_after(20):
        await run_once(listed("s", "a"))
        async with McpManager([listed("s", "a", enabled=False)]) as mcp:
            assert mcp.tools() == []
        async with McpManager(Settings(servers=[listed("s", "a")], enabled=False)) as mcp:
            assert mcp.tools() == []


async def test_failed_listing_is_not_remembered_as_none(server: Make, listed: Make) -> None:
    with anyio.fail_after(20):
        await run_once(server("unlisted", "unlisted.py", "refuse"))
        async with McpManager([server("unlisted", "unlisted.py", "refuse")]) as mcp:
            spec = mcp._parts.supervisors["unlisted"].spec
            assert finished(mcp._parts.catalog._recalling(spec, "{tool}", starts=True)) is None


async def test_tool_that_was_rejected_is_not_remembered(server: Make) -> None:
    spec = server("s", "unlisted.py", "malformed")
    with anyio.fail_after(20):
        await run_once(spec)
        async with McpManager([spec]) as mcp:
            assert [tool.original_name for tool in mcp.tools()] == ["good"]


async def test_no_secret_of_a_server_reaches_the_disk(listed: Make, home: Path) -> None:
    with anyio.fail_after(20):
        spec = listed("s", "a b", token="hunter2-hunter2")
        await run_once(spec)
        assert list(manifests_in(home)) == []
        # A part of the listing would make the other tools unknown.
        async with McpManager([spec]) as mcp:
            assert await mcp.wait_ready()
            assert len(mcp.tools()) == 2


async def test_cache_may_be_elsewhere_or_nowhere(listed: Make, home: Path, tmp_path: Path) -> None:
    spec = listed("s", "a")
    with anyio.fail_after(20):
        async with McpManager([spec], cache=tmp_path / "own") as mcp:
            await mcp.wait_ready()
        for cache in (None, False):
            async with McpManager([spec], cache=cache) as mcp:
                assert mcp.tools() == []
                await mcp.wait_ready()
        async with McpManager([spec], cache=tmp_path / "own") as mcp:
            assert len(mcp.tools()) == 1
    assert not manifests_in(home)


async def test_broken_manifest_costs_a_warning_and_the_server_works(
    listed: Make, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = listed("s", "a")
    with anyio.fail_after(20):
        await run_once(spec)
        (file,) = manifests_in(home)
        file.write_bytes(file.read_bytes()[:-5])
        async with McpManager([spec]) as mcp:
            assert mcp.tools() == []
            assert await mcp.wait_ready()
            assert len(mcp.tools()) == 1
        assert [record.getMessage() for record in caplog.records if "damaged" in record.getMessage()]
        async with McpManager([spec]) as mcp:
            assert len(mcp.tools()) == 1


async def test_server_of_the_older_protocol_is_asked_for_it_once_and_again_after_a_new_version(
    asked: Callable[..., Awaitable[list[str]]],
) -> None:
    both = ["server/discover", "initialize"]
    with anyio.fail_after(30):
        assert await asked("legacy", "1") == both
        assert await asked("legacy", "1") == ["initialize"]
        assert await asked("legacy", "1") == ["initialize"]
        assert await asked("legacy", "2") == ["initialize"]
        assert await asked("legacy", "2") == both
        assert await asked("legacy", "2") == ["initialize"]


async def test_server_that_gave_up_the_older_protocol_is_asked_in_the_same_start(
    asked: Callable[..., Awaitable[list[str]]],
) -> None:
    with anyio.fail_after(30):
        await asked("legacy", "1")
        assert await asked("modern", "2") == ["initialize", "server/discover"]
        assert await asked("modern", "2") == ["server/discover"]
        assert await asked("legacy", "1") == ["server/discover", "initialize"]
