"""Call metadata and apps (`io.modelcontextprotocol/ui`) against a real process."""

from __future__ import annotations

import json
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dragoman import CallDeniedError, DragomanError, InvalidArgumentsError, McpManager, ServerSpec, Stdio
from dragoman.agent.offer import ToolLimit, ToolOffer
from dragoman.blocking import McpManager as BlockingManager
from dragoman.manager.caller import caller_of
from dragoman.model import App
from dragoman.tools.result.budget import TextBudget

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

pytestmark = pytest.mark.anyio

SERVERS = Path(__file__).resolve().parents[1] / "servers"
APPS = ("ollama", "openai", "anthropic")


def modern(name: str = "m", *arguments: str, **more: Any) -> ServerSpec:
    return ServerSpec(name, Stdio(sys.executable, [str(SERVERS / "modern.py"), *arguments]), **more)


@asynccontextmanager
async def managed(*specs: ServerSpec, **more: Any) -> AsyncGenerator[McpManager]:
    async with McpManager(specs or [modern()], cache=False, **more) as mcp:
        assert await mcp.wait_ready()
        yield mcp


# ── `_meta` of a call

TRACE = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "com.example/run": {"id": 7},
}


@pytest.mark.usefixtures("pipes")
async def test_meta_of_a_call_reaches_the_server_over_stdio() -> None:
    async with managed(modern()) as mcp:
        sent = json.loads((await mcp.call("mcp_m_meta", meta=TRACE)).text)
        by_caller = json.loads((await caller_of(mcp)("mcp_m_meta", meta=TRACE)).text)
    for meta in (sent, by_caller):
        assert meta["com.example/run"] == {"id": 7}
        assert meta["traceparent"] == TRACE["traceparent"]
        assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"


def test_meta_of_a_call_reaches_the_server_without_await() -> None:
    with BlockingManager([modern()], cache=False) as mcp:
        mcp.wait_ready()
        assert json.loads(mcp.call("mcp_m_meta", meta=TRACE).text)["com.example/run"] == {"id": 7}


@pytest.mark.parametrize(
    "meta",
    [
        {"progressToken": 1},
        {"io.modelcontextprotocol/clientCapabilities": {}},
        {"dev.mcp/x": 1},
        {"com.example/x": float("nan")},
        {"com.example/x": object()},
        {3: 1},
    ],
)
async def test_reserved_keys_of_meta_are_refused_and_nothing_is_sent(meta: Any, tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with managed(modern("m", str(state))) as mcp:
        result = await mcp.call("mcp_m_meta", meta=meta)
        allowed = await mcp.call("mcp_m_meta", meta={"com.example.mcp/x": 1})
    assert isinstance(result.exception, InvalidArgumentsError)
    assert allowed.success
    assert state.with_suffix(".log").read_text().count("tools/call") == 1


# ── Apps


async def test_must_declare_the_extension_with_its_mime_types() -> None:
    async with managed() as mcp:
        meta = json.loads((await mcp.call("mcp_m_meta")).text)
    declared = meta["io.modelcontextprotocol/clientCapabilities"]["extensions"]
    assert declared["io.modelcontextprotocol/ui"] == {"mimeTypes": ["text/html;profile=mcp-app"]}


async def test_must_not_offer_tools_without_model_in_their_visibility_to_a_model() -> None:
    hidden = {"mcp_m_refresh", "mcp_m_nothing"}
    async with managed() as mcp:
        names = {tool.name for tool in mcp.tools()}
        exported = {one["function"]["name"] for one in mcp.registry.to_openai_schema()}
        exported |= {one["name"] for one in mcp.registry.to_anthropic()}
        viewed = {tool.name for tool in mcp.registry.view()}
        offer = ToolOffer(mcp.registry, "openai", ToolLimit(count=1))
        answer = (await offer.search(["refresh", "nothing", "report"], 20)).text
        found = {name for name in (*hidden, "mcp_m_report") if name in answer}
        offer.close()
        for_apps = {tool.name for tool in mcp.tools(audience="app")}
    assert {"mcp_m_show", "mcp_m_report"} <= names & exported & viewed
    assert "mcp_m_report" in found
    for offered in (names, exported, viewed, found):
        assert not offered & hidden
    assert "mcp_m_refresh" in for_apps
    assert "mcp_m_report" not in for_apps


async def test_a_model_cannot_call_an_app_only_tool_by_guessing_its_name(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with managed(modern("m", str(state))) as mcp:
        results = [await mcp.call("mcp_m_refresh"), await caller_of(mcp)("mcp_m_refresh")]
        with pytest.raises(CallDeniedError, match="for the app of server `m` only"):
            await mcp.registry.call("mcp_m_refresh")
        assert all(isinstance(result.exception, CallDeniedError) for result in results)
        assert not state.with_suffix(".log").exists()
        assert (await mcp.call("mcp_m_refresh", audience="app")).text == "refresh ran"


async def test_result_names_the_app_and_a_front_end_reads_its_page() -> None:
    async with managed() as mcp:
        result = await mcp.call("mcp_m_show")
        assert result.app == App(server="m", uri="ui://panel/main", tool="show")
        opened = (await mcp.apps.open(result)).app
        assert (await mcp.call("mcp_m_report")).app is None
    assert "<title>panel</title>" in opened.html
    assert opened.csp == {
        "connectDomains": ("https://api.example.com",),
        "resourceDomains": ("https://*.cdn.example.com",),
    }
    assert opened.permissions == ("camera",)
    assert opened.prefers_border is True


async def test_must_not_loosen_the_content_security_policy() -> None:
    plain = App(server="m", uri="ui://x").content_security_policy()
    assert "default-src 'none'" in plain
    assert "connect-src 'none'" in plain
    async with managed() as mcp:
        opened = (await mcp.apps.open(await mcp.call("mcp_m_show"))).app.content_security_policy()
    assert "connect-src https://api.example.com;" in opened
    assert "script-src *" not in opened


async def test_must_let_an_app_call_only_app_tools_of_its_own_server(tmp_path: Path) -> None:
    other = tmp_path / "other"
    async with managed(modern("m"), modern("n", str(other))) as mcp:
        proxy = await mcp.apps.open(await mcp.call("mcp_m_show"))
        assert (await proxy.call("refresh")).text == "refresh ran"
        refused = [
            await proxy.call("report"),
            await proxy.call("nothing"),
            await proxy.call("mcp_n_refresh"),
            await proxy.call("n:refresh"),
        ]
        with pytest.raises(DragomanError):
            await proxy.read("ui://elsewhere")
    assert all(isinstance(result.exception, CallDeniedError) for result in refused)
    assert not other.with_suffix(".log").exists()


def test_an_app_calls_its_own_server_without_await() -> None:
    with BlockingManager([modern()], cache=False) as mcp:
        assert mcp.wait_ready()
        proxy = mcp.apps.open(mcp.call("mcp_m_show"))
        assert "<title>panel</title>" in proxy.app.html
        assert proxy.call("refresh").text == "refresh ran"
        assert isinstance(proxy.call("report").exception, CallDeniedError)
        assert proxy.read("ui://panel/main")


async def test_a_resource_of_another_type_is_not_a_page() -> None:
    async with managed() as mcp:
        with pytest.raises(DragomanError, match="is not a page for apps"):
            await mcp.apps.open(App(server="m", uri="ui://panel/plain"))
        with pytest.raises(DragomanError, match="has no app"):
            await mcp.apps.open(await mcp.call("mcp_m_report"))


async def test_meta_of_tools_and_resources_is_kept_also_in_the_cache(tmp_path: Path) -> None:
    async with McpManager([modern()], cache=tmp_path) as mcp:
        await mcp.wait_ready()
        (resource,) = await mcp.resources("m")
    assert resource.meta == {"a": 1}
    async with McpManager([modern(lazy=True)], cache=tmp_path) as mcp:
        tools = {tool.original_name: tool for tool in mcp.tools()}
    assert "refresh" not in tools
    assert tools["show"].app_uri == "ui://panel/main"
    assert tools["long"].meta == {"anthropic/maxResultSizeChars": 5_000}


async def test_a_tool_may_ask_for_longer_results() -> None:
    async with managed() as mcp:
        call = caller_of(mcp, budget=TextBudget(limit=1_000))
        assert len((await call("mcp_m_long")).text) == 4_000
        assert len((await call("mcp_m_short")).text) <= 1_000
