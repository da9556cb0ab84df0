"""What happens when a server cannot answer: its fallback does, and what is safe is sent again."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.behaviour.test_gateway_parity import call, gateway

from dragoman import McpManager, ServerSpec, Stdio, ToolDef, ToolRegistry, tool
from dragoman.agent.engine import AgentEngine
from dragoman.agent.providers import Say, ScriptedProvider
from dragoman.config.load import load
from dragoman.errors import CallTimeoutError
from dragoman.events import StateChanged
from dragoman.manager.manager import parts_of
from dragoman.model import ServerState
from dragoman.server import connection as connections
from dragoman.server.sharing import SharedConnections
from dragoman.testing import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman import ToolResult
    from dragoman.tools.local import LocalTool

    Make = Callable[..., ServerSpec]

pytestmark = pytest.mark.requirement("legal-client.failure", "legal-config.health")

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
    number = mcp.status()[name].pid
    assert number
    os.kill(number, signal.SIGKILL)
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


@pytest.mark.requirement("legal-config.health")
async def test_silent_server_is_found_out_by_its_checks_and_replaced_by_its_fallback(
    server: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "PROBE_SECONDS", 0.5)
    first = server("first", "plain.py", fallback=["second"], health_check_interval=0.1)
    with anyio.fail_after(30):
        async with McpManager([first, server("second", "plain.py")]) as mcp:
            await mcp.wait_ready()
            events, pid = mcp.events(), mcp.status()["first"].pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            async for event in events:
                if isinstance(event, StateChanged) and event.server == "first":
                    assert (event.after, "did not answer 3 probes" in event.reason) == ("backoff", True)
                    break
            # It may come back meanwhile: until then the other one answers.
            result = await mcp.call("mcp_first_echo", {"text": "hello"})
            assert result.success
            assert "hello" in result.text


ECHO = ("mcp_first_echo", {"text": "hello"})


def write_servers(path: Path, **rules: Any) -> None:
    command = {"command": sys.executable, "args": [str(SERVERS / "plain.py")]}
    path.write_text(json.dumps({"mcpServers": {"first": {**command, **rules}, "second": command}}))


@pytest.mark.requirement("legal-config.health")
@pytest.mark.parametrize("shared", [True, False])
async def test_hung_server_is_replaced_from_the_second_call_on_until_it_answers(
    tmp_path: Path, *, shared: bool
) -> None:
    write_servers(tmp_path / "servers.json")
    connections = SharedConnections() if shared else None
    with anyio.fail_after(40):
        made = McpManager(tmp_path / "servers.json", connections=connections)
        async with made as mcp, gateway(mcp) as client:
            await mcp.wait_ready()
            # A fallback that is configured later counts as well, without a new connection.
            write_servers(tmp_path / "servers.json", fallback={"echo": "second"})
            await mcp.reload()
            pid = mcp.status()["first"].pid
            assert pid is not None
            for _ in range(2):
                os.kill(pid, signal.SIGSTOP)
                lost = await mcp.call(*ECHO, timeout=0.3)
                assert isinstance(lost.exception, CallTimeoutError)
                for _ in range(2):
                    second = await mcp.call(*ECHO)
                    assert second.text == "[answered by `second`, since `first` is not available]\nhello"
                passed_on = await call(client, *ECHO)
                assert passed_on["_meta"]["dragoman/fallback"] == "second"
                os.kill(pid, signal.SIGCONT)
                # This tool has no fallback: it waits for the server.
                assert (await mcp.call("mcp_first_pair")).success
                back = await mcp.call(*ECHO)
                assert back.text == "hello"
            assert mcp.status()["first"].pid == pid


@pytest.mark.requirement("legal-config.health")
async def test_idle_server_that_misses_one_probe_is_replaced_before_a_call_times_out(server: Make) -> None:
    first = server("first", "plain.py", fallback=["second"], health_check_interval=1)
    with anyio.fail_after(40):
        async with McpManager([first, server("second", "plain.py")]) as mcp:
            await mcp.wait_ready()
            pid, connection = mcp.status()["first"].pid, parts_of(mcp).supervisors["first"]
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            while await connection.why_switch() is None:  # noqa: ASYNC110 -- a missed probe has no event
                await asyncio.sleep(0)
            assert mcp.status()["first"].state is ServerState.READY
            assert (await mcp.call(*ECHO)).meta["dragoman/fallback"] == "second"


@pytest.mark.requirement("legal-config.health", "legal-call.timeout")
async def test_slow_tool_of_a_healthy_server_is_no_reason_to_switch(server: Make) -> None:
    first = server("first", "plain.py", fallback=["second"])
    with anyio.fail_after(30):
        async with McpManager([first, server("second", "plain.py")]) as mcp:
            await mcp.wait_ready()
            for _ in range(2):
                slow = await mcp.call("mcp_first_slow", timeout=0.2)
                assert isinstance(slow.exception, CallTimeoutError)
                assert (await mcp.call(*ECHO)).text == "hello"


@pytest.mark.requirement("legal-config.health")
async def test_call_does_not_wait_for_a_lost_server_that_has_a_fallback() -> None:
    may_connect, tried = asyncio.Event(), asyncio.Event()
    may_connect.set()

    async def on_connect() -> None:
        if not may_connect.is_set():
            tried.set()
        await may_connect.wait()

    first, second = ScriptedServer("first", on_connect=on_connect), ScriptedServer("second")
    for one in (first, second):
        one.add(
            ToolDef(name="who", description="", input_schema={"type": "object"}, func=lambda n=one: n.name)
        )
        one.add(ToolDef(name="own", description="", input_schema={"type": "object"}, func=lambda: "own"))
    second.remove("own")
    with anyio.fail_after(15):
        async with McpManager([first.spec(fallback=["second"]), second.spec()], cache=False) as mcp:
            await mcp.wait_ready()
            assert (await mcp.call("mcp_first_who")).text == "first"
            may_connect.clear()
            first.crash()
            await tried.wait()
            assert mcp.status()["first"].state is ServerState.CONNECTING
            assert (await mcp.call("mcp_first_who")).meta["dragoman/fallback"] == "second"
            # What the fallback does not have is worth waiting for.
            waiting = asyncio.create_task(mcp.call("mcp_first_own"))
            may_connect.set()
            assert (await waiting).text == "own"
            assert (await mcp.call("mcp_first_who")).text == "first"


@pytest.mark.requirement("legal-config.health", "legal-config.env")
def test_interval_of_the_health_checks_is_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("", "DESK_"):
        monkeypatch.setenv(f"LEGAL_MCP_{name}SERVER_URL", "https://law.example.org/mcp")
    monkeypatch.setenv("LEGAL_MCP_HEALTH_INTERVAL", "5000")
    monkeypatch.setenv("LEGAL_MCP_DESK_HEALTH_INTERVAL", "1500")
    settings = load("legal")
    assert settings.problems == []
    assert {one.name: one.health_check_interval for one in settings.servers} == {"legal": 5.0, "desk": 1.5}


class Law:
    """A scripted server with statutes and cases that can be lost, beside an application with local tools."""

    def __init__(self, *local: LocalTool[Any, Any], **rules: Any) -> None:
        self.server = ScriptedServer("law")
        self.registry = ToolRegistry()
        for function in local:
            self.registry.register(function)

        @self.server.tool
        def search_cases(query: str, limit: int = 5) -> str:
            return f"cases about {query}, {limit} at most"

        @self.server.tool
        def search_statutes(query: str) -> str:
            return f"statutes about {query}"

        self.spec = self.server.spec(**rules)

    async def lost_call(self, name: str, *others: ServerSpec, **arguments: Any) -> ToolResult:
        """Call a tool while the server is lost."""
        with anyio.fail_after(30):
            async with McpManager([self.spec, *others], registry=self.registry) as mcp:
                await mcp.wait_ready()
                self.server.stop()
                return await mcp.call(name, arguments)


@tool
def local_statutes(query: str) -> str:
    """Search the statutes on this machine."""
    return f"local statutes about {query}"


@tool
def local_cases(query: str) -> str:
    """Search the cases on this machine."""
    return f"local cases about {query}"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "fallback" in one.getMessage()]


@pytest.mark.requirement("legal-client.failure")
async def test_local_function_stands_in_for_the_tool_that_it_is_given_to() -> None:
    law = Law(
        local_statutes,
        local_cases,
        fallback={"search_cases": "local_cases", "search_statutes": "local_statutes"},
    )
    result = await law.lost_call("mcp_law_search_cases", query="rent")
    assert result.success
    assert "local cases about rent" in result.text
    assert "answered by `local_cases`" in result.text
    assert result.meta["dragoman/fallback"] == "local_cases"


@pytest.mark.requirement("legal-error.schema")
async def test_arguments_that_do_not_fit_the_fallback_are_not_sent_to_it() -> None:
    law, desk = Law(fallback=["desk"]), ScriptedServer("desk")

    @desk.tool
    def search_cases(query: int) -> str:
        return f"cases about {query}"

    result = await law.lost_call("mcp_law_search_cases", desk.spec(), query="rent")
    assert (result.success, desk.calls) == (False, [])


@pytest.mark.requirement("legal-client.failure")
async def test_agent_whose_connection_fails_uses_the_local_tool_and_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    law = Law(local_cases, fallback={"search_cases": "local_cases"})
    model = ScriptedProvider([Say(calls=[("mcp_law_search_cases", {"query": "rent"})]), "That is the case."])
    with anyio.fail_after(30):
        async with McpManager([law.spec], registry=law.registry) as mcp:
            await mcp.wait_ready()
        caplog.clear()
        law.server.stop()
        async with AgentEngine(model, McpManager([law.spec], registry=law.registry)) as agent:
            assert (await agent.run("Which case is it?")).text == "That is the case."
    (answer,) = (message for message in model.requests[-1].messages if message.role == "tool")
    assert not answer.is_error
    assert "local cases about rent" in answer.text
    (line,) = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
    assert line.startswith("law: cannot connect to server `law`")


@pytest.mark.requirement("legal-client.failure")
async def test_local_function_never_answers_for_another_tool(caplog: pytest.LogCaptureFixture) -> None:
    law = Law(local_statutes, fallback=["local_statutes"])
    result = await law.lost_call("mcp_law_search_cases", query="rent")
    assert not result.success
    assert "local statutes" not in result.text
    (warning,) = warnings(caplog)
    assert "`local_statutes` is not used for `search_cases`" in warning
    assert 'fallback = {search_cases = "local_statutes"}' in warning


@pytest.mark.requirement("rrclaw-policy")
async def test_a_fallback_that_a_rule_denies_does_not_answer() -> None:
    ran: list[str] = []
    desk = ScriptedServer("desk")

    @desk.tool
    def search_statutes(query: str) -> str:
        ran.append(query)
        return "statutes of the desk"

    law = Law(fallback=["desk"])
    policy = [{"action": "deny", "server": "desk"}]
    with anyio.fail_after(30):
        async with McpManager([law.spec, desk.spec()], registry=law.registry, policy=policy) as mcp:
            await mcp.wait_ready()
            law.server.stop()
            result = await mcp.call("mcp_law_search_statutes", {"query": "rent"})
    assert not result.success
    assert ran == []


async def test_local_function_with_the_name_of_the_tool_stands_in_for_it_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool
    def search_cases(query: str, limit: int = 5) -> str:
        return f"{limit} local cases about {query}"

    result = await Law(search_cases, fallback=["search_cases"]).lost_call(
        "mcp_law_search_cases", query="rent"
    )
    assert result.success
    assert "5 local cases about rent" in result.text
    other = await Law(search_cases, fallback=["search_cases"]).lost_call(
        "mcp_law_search_statutes", query="rent"
    )
    assert not other.success
    assert warnings(caplog) == []


async def test_other_tools_go_to_the_fallback_under_the_star() -> None:
    desk = ScriptedServer("desk")

    @desk.tool
    def search_statutes(query: str) -> str:
        return f"statutes of the desk about {query}"

    law = Law(local_cases, fallback={"search_cases": "local_cases", "*": "desk"})
    result = await law.lost_call("mcp_law_search_statutes", desk.spec(), query="rent")
    assert result.success
    assert "statutes of the desk about rent" in result.text


async def test_fallback_that_does_not_fit_is_skipped_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    def paged_cases(query: str, page: int) -> str:
        return f"page {page} of {query}"

    law = Law(paged_cases, local_cases, fallback={"search_cases": ["paged_cases", "local_cases"]})
    result = await law.lost_call("mcp_law_search_cases", query="rent")
    assert result.success
    assert "local cases about rent" in result.text
    (warning,) = warnings(caplog)
    assert "`paged_cases`" in warning
    assert "page" in warning
    assert "\n" not in warning
    assert not any(one.exc_info for one in caplog.records)


async def test_fallback_that_names_nothing_known_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    result = await Law(fallback=["dsk"]).lost_call("mcp_law_search_cases", query="rent")
    assert not result.success
    (warning,) = warnings(caplog)
    assert "`dsk` is neither a server nor a tool" in warning


async def test_fallback_that_may_have_run_is_not_followed_by_another() -> None:
    desk, ran = ScriptedServer("desk"), list[str]()

    @desk.tool
    def search_cases(query: str) -> str:
        ran.append(query)
        desk.stop()
        return "lost on its way"

    law = Law(local_cases, fallback={"search_cases": ["desk", "local_cases"]})
    result = await law.lost_call("mcp_law_search_cases", desk.spec(), query="rent")
    assert ran == ["rent"]
    assert not result.success


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
