"""What each seed's users read: the words of results and of the log, names, sources and their dates."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from dragoman import DragomanError, Http, McpManager, ServerSpec, Sse, Stdio, ToolRegistry, tool
from dragoman.agent.engine import AgentEngine
from dragoman.agent.providers import Say, ScriptedProvider
from dragoman.config.load import load_given
from dragoman.events import NameContested, StateChanged
from dragoman.testing import InstantClock, ScriptedServer
from dragoman.testing.servers import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dragoman.testing.servers import MemoryWire

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement(
        "rrclaw-result.text",
        "rrclaw-result.failure",
        "rrclaw-description.default",
        "rrclaw-manager.shutdown",
    ),
]

SERVERS = Path(__file__).resolve().parents[1] / "servers"


def entry(name: str, script: str, *args: str) -> str:
    words = json.dumps([str(SERVERS / script), *args])
    return f'[mcp.servers.{name}]\ntransport = "stdio"\ncommand = "{sys.executable}"\nargs = {words}\n'


def lines(caplog: pytest.LogCaptureFixture, level: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == level]


# RRClaw


@pytest.mark.requirement("rrclaw-result.text", "rrclaw-result.failure", "rrclaw-manager.shutdown")
async def test_rrclaw_reads_its_own_words_in_results_and_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "config.toml").write_text(entry("p", "plain.py"), "utf-8")
    caplog.set_level(logging.INFO, "dragoman")
    with anyio.fail_after(30):
        async with McpManager.from_config("rrclaw", trust_project=True) as mcp:
            assert await mcp.wait_ready()
            image = await mcp.call("mcp_p_image")
            assert image.text == "[图片内容]"
            assert image.parts[0].data.startswith(b"\x89PNG")
            mixed = await mcp.call("mcp_p_mixed")
            assert mixed.text == "before\n[图片内容]\n[资源内容]\nafter"
            assert [part.text for part in mixed.parts if part.kind == "resource"] == ["the whole note"]
            failed = await mcp.call("mcp_p_fail")
            assert (failed.success, failed.error) == (False, "the disk is full")
            refused = await mcp.call("mcp_p_refuse")
            assert (refused.error or "").startswith("MCP 调用失败: ")
            late = await mcp.call("mcp_p_slow", timeout=0.1)
            assert (late.error or "").startswith("MCP 调用失败: `mcp_p_slow` did not answer within 0.1 s")
            lost = await mcp.call("mcp_p_exit")
            assert (lost.success, lost.output) == (False, "")
            assert (lost.error or "").startswith("MCP 调用失败: `mcp_p_exit` is not available: ")
    assert "MCP Server 'p' 已关闭" in lines(caplog, "INFO")


def by_serde(*arguments: str, allowed: list[str] | None = None) -> dict[str, object]:
    """Return an entry of RRClaw's map as Rust writes it: every field, also the empty ones."""
    return {
        "transport": "stdio",
        "command": sys.executable,
        "args": [str(SERVERS / arguments[0]), *arguments[1:]],
        "env": {},
        "allowed_tools": allowed or [],
    }


@pytest.mark.requirement("rrclaw-manager.connect_all", "rrclaw-config.allowed", "rrclaw-result.text")
@pytest.mark.parametrize("shape", ["profile", "document", "recognised", "recognised document"])
async def test_rrclaws_map_is_read_by_its_own_rules(shape: str) -> None:
    servers: dict[str, Any] = {"p": by_serde("plain.py"), "few": by_serde("plain.py", allowed=["echo"])}
    if not shape.startswith("recognised"):
        for one in servers.values():
            del one["env"]
    given = {"mcp": {"servers": servers}} if shape.endswith("document") else servers
    profile = None if shape.startswith("recognised") else "rrclaw"
    with anyio.fail_after(30):
        mcp = await McpManager.connect_all(given, profile=profile, cache=False)
        try:
            assert mcp.status()["p"].tools > 10
            assert [one.name for one in mcp.tools() if one.server == "few"] == ["mcp_few_echo"]
            assert (await mcp.call("mcp_p_image")).text == "[图片内容]"
            assert (await mcp.call("mcp_p_refuse")).error.startswith("MCP 调用失败: ")
        finally:
            await mcp.shutdown()


@pytest.mark.requirement("rrclaw-transport.http", "rrclaw-manager.connect_all")
def test_sse_in_rrclaws_map_tries_streamable_http_first() -> None:
    entry: dict[str, Any] = {"transport": "sse", "url": "https://example.com/mcp", "headers": {}}
    for given, profile in (({**entry, "allowed_tools": []}, None), (entry, "rrclaw")):
        (spec,) = McpManager({"remote": given}, profile=profile).settings.servers
        assert isinstance(spec.transport, Http)
        assert spec.transport.alternate
        assert spec.allowed_tools is None
    (spec,) = McpManager({"remote": {**entry, "allowed_tools": []}}, profile="dragoman").settings.servers
    assert isinstance(spec.transport, Sse)
    assert spec.allowed_tools == ()


def test_profile_is_for_what_has_to_be_read() -> None:
    with pytest.raises(TypeError, match="`profile` says how to read a mapping or a file"):
        McpManager([ServerSpec("p", Stdio("x"))], profile="rrclaw")


@pytest.mark.requirement("rrclaw-config.allowed")
async def test_filter_that_leaves_no_tool_is_a_warning_once(caplog: pytest.LogCaptureFixture) -> None:
    here: dict[str, Any] = {"command": sys.executable, "args": [str(SERVERS / "plain.py")]}
    servers = {
        "none": {**here, "allowed_tools": []},
        "wrong": {**here, "allowed_tools": ["Echo"]},
        "all": here,
    }
    with anyio.fail_after(30):
        async with McpManager(servers, cache=False) as mcp:
            assert await mcp.wait_ready()
            await mcp.restart("wrong")
            await mcp.wait_ready()
            assert [one.server for one in mcp.tools() if one.server != "all"] == []
    warned = sorted(line for line in lines(caplog, "WARNING") if "0 of " in line)
    assert [line.split(" (")[0] for line in warned] == [
        f"{name}: 0 of 16 tools are offered: `allowed_tools` or `denied_tools` leaves out all"
        for name in ("none", "wrong")
    ]
    assert 'profile="rrclaw"' in warned[0]


@pytest.mark.requirement("rrclaw-manager.connect_all", "rrclaw-manager.log", "rrclaw-manager.shutdown")
async def test_rrclaws_log_has_its_own_words_for_every_step(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman")
    servers: dict[str, Any] = {
        "p": by_serde("plain.py", allowed=["echo", "add"]),
        "gone": by_serde("dying.py"),
    }
    with anyio.fail_after(30):
        mcp = await McpManager.connect_all(servers, cache=False)
        await mcp.shutdown()
    said = [line for line in lines(caplog, "INFO") if line.startswith("MCP Server")]
    assert said == ["MCP Server 'p' 连接成功", "MCP Server 'p' 加载了 2 个工具", "MCP Server 'p' 已关闭"]
    (failed,) = [line for line in lines(caplog, "WARNING") if "gone" in line]
    assert failed.startswith("MCP Server 'gone' 连接失败（跳过）: cannot connect to server `gone`")
    assert lines(caplog, "ERROR") == []


async def test_settings_that_a_program_gave_are_reloaded_with_new_ones() -> None:
    here: dict[str, Any] = {"command": sys.executable, "args": [str(SERVERS / "plain.py")]}
    first, both = load_given({"a": here}), load_given({"a": here, "b": {**here, "allowed_tools": ["echo"]}})
    with anyio.fail_after(30):
        mcp = await McpManager.connect_all(first, cache=False)
        try:
            with pytest.raises(
                DragomanError, match=r"`reload\(settings\)`; or make it with `from_config\(\)`"
            ):
                await mcp.reload()
            report = await mcp.reload(both)
            assert (report.kept, report.started) == (("a",), ("b",))
            assert (await mcp.call("mcp_b_echo", {"text": "hi"})).text == "hi"
            assert (await mcp.reload(first)).stopped == ("b",)
        finally:
            await mcp.shutdown()


@pytest.mark.requirement("rrclaw-manager.connect_all")
async def test_a_map_is_reloaded_by_the_rules_of_the_same_profile() -> None:
    here = {"transport": "stdio", "command": sys.executable, "args": [str(SERVERS / "plain.py")]}
    servers: dict[str, Any] = {"a": here}
    with anyio.fail_after(30):
        mcp = await McpManager.connect_all(servers, profile="rrclaw", cache=False)
        try:
            everything = len(mcp.tools())
            report = await mcp.reload(servers | {"b": {**here, "allowed_tools": []}})
            assert (report.kept, report.started) == (("a",), ("b",))
            await mcp.wait_ready()
            assert len(mcp.tools()) == 2 * everything > 0
            assert (await mcp.reload({})).stopped == ("a", "b")
            assert mcp.tools() == []
        finally:
            await mcp.shutdown()


async def test_other_profiles_keep_descriptions_and_plain_errors(
    server: Callable[..., ServerSpec], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman")
    with anyio.fail_after(30):
        async with McpManager([server("p", "plain.py")]) as mcp:
            await mcp.wait_ready()
            assert "[image: image/png, 64x32" in (await mcp.call("mcp_p_mixed")).text
            assert "the whole note" in (await mcp.call("mcp_p_mixed")).text
            assert "MCP" not in ((await mcp.call("mcp_p_refuse")).error or "")
    assert lines(caplog, "INFO").count("p: closed") == 1


# otter


@pytest.mark.requirement("otter-p0.toolset")
async def test_otter_offers_bare_names_and_prefixes_those_that_collide(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def listed(name: str, *tools: str) -> str:
        offer = json.dumps({"label": name, "tools": tools})
        return (
            f"[[mcp.servers]]\nname = '{name}'\ntransport = 'stdio'\ncommand = '{sys.executable}'\n"
            f"args = ['{SERVERS / 'offering.py'}', '{offer}']\n"
        )

    text = listed("a", "read", "push") + listed("b", "write", "push", "shell")
    (tmp_path / "otter.toml").write_text(text, "utf-8")
    registry = ToolRegistry()
    registry.register(tool(lambda: "here", name="shell", description="otter's own"))
    with anyio.fail_after(30):
        async with McpManager.from_config("otter", trust_project=True, registry=registry) as mcp:
            events = mcp.events()
            assert await mcp.wait_ready()
            names = sorted(one.name for one in mcp.tools())
            assert [name for name in names if name in ("read", "write")] == ["read", "write"]
            prefixed = {(one.server, one.original_name): one.name for one in mcp.tools()}
            assert prefixed["a", "push"].startswith("a_push_")
            assert prefixed["b", "push"].startswith("b_push_")
            assert prefixed["b", "shell"].startswith("b_shell_")
            assert "push" not in names
            assert (await mcp.call("write")).text == "b/write {}"
            assert (await mcp.call(prefixed["b", "shell"])).text == "b/shell {}"
            assert (await mcp.call("shell")).text == "here"
            told = [one async for one in _until_two(events)]
    assert {one.name for one in told} == {"push", "shell"}
    warned = "\n".join(lines(caplog, "WARNING"))
    assert "the name `push` is ambiguous, so no tool gets it" in warned
    assert "the name `shell` belongs to a built-in tool" in warned


async def _until_two(events: object):  # type: ignore[no-untyped-def]
    seen = 0
    async for event in events:  # type: ignore[attr-defined]
        if isinstance(event, NameContested):
            yield event
            seen += 1
            if seen == 2:
                return


# Sources, and their dates


@pytest.mark.requirement("excel-5.3")
async def test_a_result_stays_what_the_server_said_and_its_sources_stay_in_the_provenance(
    server: Callable[..., ServerSpec],
) -> None:
    specs = [server("p", "plain.py"), server("shown", "plain.py", sources_in_text=True)]
    with anyio.fail_after(30):
        async with McpManager(specs) as mcp:
            await mcp.wait_ready()
            plain, shown = await mcp.call("mcp_p_cited"), await mcp.call("mcp_shown_cited")
            assert json.loads(plain.text) == {"law": "Sample Act", "article": "4"}
            assert json.loads(await mcp.registry.call("mcp_p_cited")) == json.loads(plain.text)
            assert plain.provenance is not None
            assert [one.title for one in plain.provenance.sources] == ["Sample Act"]
            assert shown.text.endswith("\n\nSources:\n- Sample Act, 4 (date unknown)")


async def test_an_agents_model_reads_the_sources_whatever_the_server_says(
    server: Callable[..., ServerSpec],
) -> None:
    model = ScriptedProvider([Say(calls=[("mcp_p_cited", {})]), "done"])
    with anyio.fail_after(30):
        async with AgentEngine(model, [server("p", "plain.py", sources_in_text=False)]) as agent:
            await agent.run("What does the Act say?")
    (answer,) = (message for message in model.requests[-1].messages if message.role == "tool")
    assert answer.text.endswith("Sources:\n- Sample Act, 4 (date unknown)")


@pytest.mark.requirement("legal-law.attribution")
@pytest.mark.parametrize(
    ("updated", "shown"),
    [("2025-10-01", "2025-10-01"), ("in_force_since", "2026-03-01"), ("/in_force_since", "2026-03-01")],
)
async def test_the_legal_assistant_shows_sources_with_a_configured_date(
    monkeypatch: pytest.MonkeyPatch, updated: str, shown: str
) -> None:
    monkeypatch.setenv("LEGAL_MCP_LAW_SERVER_URL", f"{sys.executable} {SERVERS / 'plain.py'}")
    monkeypatch.setenv("LEGAL_MCP_LAW_TRANSPORT", "stdio")
    monkeypatch.setenv("LEGAL_MCP_LAW_UPDATED", updated)
    with anyio.fail_after(30):
        async with McpManager.from_config("legal", trust_project=True) as mcp:
            assert mcp.settings.problems == []
            assert await mcp.wait_ready()
            result = await mcp.call("mcp_law_cited", {"dated": True})
            assert result.text.endswith(f"\n\nSources:\n- Sample Act, 4 (updated {shown})")


@pytest.mark.parametrize("wrong", ["2025-13-01", "20250101x", "/a~2"])
def test_a_date_that_is_none_is_told(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setenv("LEGAL_MCP_SERVER_URL", "https://law.example.org/mcp")
    monkeypatch.setenv("LEGAL_MCP_UPDATED", wrong)
    (problem,) = McpManager.from_config("legal").settings.problems
    assert "LEGAL_MCP_UPDATED" in str(problem)
    assert "expected a date such as 2026-01-30, a field or a JSON pointer" in str(problem)


# The log


@pytest.mark.requirement("excel-2.4", "excel-7.3", "rrclaw-manager.connect_all")
def test_a_server_that_keeps_failing_is_an_error_once_until_something_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman")
    why = tmp_path / "why"
    why.write_text("license file missing")
    code = f"import os, sys; print(open({str(why)!r}).read(), os.getpid(), file=sys.stderr); sys.exit(3)"
    spec = ServerSpec("dies", Stdio(sys.executable, ["-S", "-c", code]), trust="off")

    async def tries(events: object, count: int) -> None:
        async for event in events:  # type: ignore[attr-defined]
            if isinstance(event, StateChanged) and event.after.value == "backoff":
                count -= 1
                if not count:
                    return

    async def main() -> None:
        async with McpManager([spec], cache=False) as mcp:
            events = mcp.events()
            await tries(events, 4)
            assert len(lines(caplog, "ERROR")) == 1
            assert len([line for line in lines(caplog, "INFO") if "license file missing" in line]) == 3
            why.write_text("disk full")
            await tries(events, 2)
            assert ["disk full" in line for line in lines(caplog, "ERROR")] == [False, True]
            await mcp.restart("dies")
            assert len(lines(caplog, "ERROR")) == 3

    InstantClock().run(asyncio.wait_for(main(), 600))


@pytest.mark.requirement("excel-7.3")
async def test_a_resource_or_a_prompt_that_fails_is_logged_as_an_error(
    offering: Callable[..., ServerSpec], caplog: pytest.LogCaptureFixture
) -> None:
    with anyio.fail_after(30):
        async with McpManager([offering("o", tools=["t"]), offering("two", tools=[])]) as mcp:
            await mcp.wait_ready()
            with pytest.raises(DragomanError):
                await mcp.read("x://none")
            with pytest.raises(DragomanError):
                await mcp.read("refuse://this", server="o")
            with pytest.raises(DragomanError):
                await mcp.prompt("refused", server="o")
            with pytest.raises(DragomanError):
                await mcp.session.complete({"name": "p"}, "refused", "v", server="o")
    logged = lines(caplog, "ERROR")
    assert logged[0].startswith("mcp: reading the resource `x://none` failed: no connected server lists")
    assert logged[1].startswith("o: reading the resource `refuse://this` failed: ")
    assert logged[2].startswith("o: getting the prompt `refused` failed: ")
    assert logged[3].startswith("o: completing the argument `refused` failed: ")
    assert "not this one" in logged[1]


class Locked(ScriptedServer):
    """A server whose list of resources cannot be read."""

    async def answer(self, wire: MemoryWire, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if method == "resources/list":
            raise Refusal(-32603, "the index is locked")
        return await super().answer(wire, method, params)


@pytest.mark.requirement("excel-7.3", "otter-p2.resources", "kode-resources.list")
async def test_server_whose_resources_cannot_be_listed_is_an_error_in_the_log_and_hides_no_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    servers = [Locked("law", resources={"law:1": "a"}), ScriptedServer("pages", resources={"p:1": "b"})]
    async with McpManager([one.spec() for one in servers], cache=False) as mcp:
        await mcp.wait_ready()
        assert [one.uri for one in await mcp.resources()] == ["p:1"]
    (line,) = lines(caplog, "ERROR")
    assert line.startswith("law: could not list its resources: ")
    assert "the index is locked" in line


class Toolless(ScriptedServer):
    """A server whose list of tools cannot be read."""

    async def answer(self, wire: MemoryWire, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if method == "tools/list":
            raise Refusal(-32603, "the index is locked")
        return await super().answer(wire, method, params)


@pytest.mark.requirement("otter-p2.resources", "kode-resources.list", "kode-discovery.failure")
async def test_server_whose_tools_cannot_be_listed_still_has_its_resources() -> None:
    law = Toolless("law", resources={"law:1": "the text"})
    async with McpManager([law.spec()], cache=False) as mcp:
        await mcp.wait_ready()
        status = mcp.status()["law"]
        assert status.state == "degraded"
        assert "the index is locked" in (status.last_error or "")
        assert [one.uri for one in await mcp.resources()] == ["law:1"]
        assert [part.text for part in await mcp.read("law:1")] == ["the text"]
