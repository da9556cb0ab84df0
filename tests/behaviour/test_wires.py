"""One behaviour over every transport, and over both kinds of pipes to a child."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.behaviour.conftest import SERVERS, listening
from tests.servers.http_faults import FaultServer
from tests.warm import server_command

from dragoman import (
    CallTimeoutError,
    Http,
    McpManager,
    ProtocolError,
    ServerSpec,
    ServerState,
    Sse,
    Stdio,
    ToolFailedError,
    ToolUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.anyio


@pytest.fixture
def wired(official: ServerSpec, pipes: None) -> ServerSpec:
    """The official SDK's server over each transport, and over each kind of pipes."""
    del pipes
    return official


async def test_tools_calls_failures_time_outs_and_closing(wired: ServerSpec) -> None:
    with anyio.fail_after(40):
        async with McpManager([wired]) as mcp:
            assert await mcp.wait_ready()
            assert {tool.original_name for tool in mcp.tools()} == {"echo", "add", "fail", "slow", "exit"}
            texts = await asyncio.gather(
                *(mcp.call("mcp_official_echo", {"text": f"{number}"}) for number in range(20))
            )
            assert [result.text for result in texts] == [f"{number}" for number in range(20)]
            assert (await mcp.call("mcp_official_add", {"a": 2, "b": 3})).structured == {"sum": 5}
            failed = await mcp.call("mcp_official_fail")
            assert isinstance(failed.exception, ToolFailedError)
            assert failed.error == "the disk is full"
            late = await mcp.call("mcp_official_slow", timeout=0.2)
            assert isinstance(late.exception, CallTimeoutError)
            assert (await mcp.call("mcp_official_echo", {"text": "on"})).text == "on"
        assert mcp.status()["official"].state is ServerState.CLOSED


async def test_cancelled_call_ends_its_caller_and_nothing_else(wired: ServerSpec) -> None:
    with anyio.fail_after(40):
        async with McpManager([wired]) as mcp:
            assert await mcp.wait_ready()
            slow = asyncio.create_task(mcp.call("mcp_official_slow"))
            assert (await mcp.call("mcp_official_echo", {"text": "beside"})).text == "beside"
            slow.cancel()
            with pytest.raises(asyncio.CancelledError):
                await slow
            assert (await mcp.call("mcp_official_echo", {"text": "after"})).text == "after"
            assert mcp.status()["official"].state is ServerState.READY


@pytest.mark.parametrize("protocol", ["legacy", "auto"])
@pytest.mark.usefixtures("pipes")
async def test_server_is_told_of_calls_that_were_given_up(protocol: Any) -> None:
    stdio = Stdio(sys.executable, [str(SERVERS / "plain.py")])
    with anyio.fail_after(40):
        async with McpManager([ServerSpec("plain", stdio, protocol=protocol)]) as mcp:
            assert await mcp.wait_ready()
            assert (await mcp.call("mcp_plain_slow", timeout=0.1)).exception
            told = await mcp.call("mcp_plain_cancelled", timeout=20)
            assert told.success


async def test_death_of_the_server_ends_its_calls(wired: ServerSpec) -> None:
    with anyio.fail_after(40):
        async with McpManager([wired.replace(reconnect=False)]) as mcp:
            assert await mcp.wait_ready()
            begun = asyncio.Semaphore(0)
            others = [
                asyncio.ensure_future(mcp.call("mcp_official_slow", on_progress=lambda *_: begun.release()))
                for _ in range(3)
            ]
            for _ in others:
                await begun.acquire()
            result = await mcp.call("mcp_official_exit")
            for ended in [result, *await asyncio.gather(*others)]:
                assert isinstance(ended.exception, ToolUnavailableError)
                assert ended.exception.may_have_run


@pytest.mark.usefixtures("pipes")
async def test_child_whose_words_go_to_a_file_says_nothing_elsewhere(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = "import sys, os; print('a secret:', os.environ['MY_TOKEN'], file=sys.stderr); sys.exit(3)"
    log = tmp_path / "logs" / "talks.log"
    env = {"MY_TOKEN": "hunter2-hunter2"}
    stdio = Stdio(sys.executable, ["-c", code], env=env, log_file=str(log))
    with anyio.fail_after(40):
        async with McpManager([ServerSpec("talks", stdio, reconnect=False)]) as mcp:
            assert not await mcp.wait_ready()
    assert log.read_text().startswith("a secret: ")
    assert "hunter2" not in log.read_text()
    assert capfd.readouterr().err == ""


# Headers


_user: ContextVar[str] = ContextVar("user", default="nobody")


def of_the_user(server: str) -> Mapping[str, str]:
    return {"X-User": _user.get(), "X-Server": server}


@pytest.fixture
async def faults() -> AsyncIterator[FaultServer]:
    async with FaultServer() as server:
        yield server


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_users_of_one_manager_have_headers_of_their_own(
    faults: FaultServer, kind: str, lazy: bool
) -> None:
    async def use(mcp: McpManager, number: int) -> None:
        _user.set(f"user {number}")
        arguments = {"number": number}
        result = await mcp.call("mcp_s_fault", arguments, headers={"X-Call": f"call {number}"})
        assert result.success

    transport = Http(faults.url("healthy")) if kind == "http" else Sse(faults.url("legacy-whole"))
    spec = ServerSpec("s", transport, protocol="legacy", health_check_interval=0.05)
    with anyio.fail_after(40):
        async with McpManager([spec], header_provider=of_the_user) as first:
            await first.wait_ready()
        faults.requests.clear()
        # What a lazy server offers is known from the first manager; the first user's call connects it.
        spec = spec.replace(lazy=lazy)
        async with McpManager([spec], header_provider=of_the_user) as mcp:
            await mcp.wait_ready()
            await asyncio.create_task(use(mcp, 0))
            await asyncio.gather(*(use(mcp, number) for number in range(1, 20)))
            await faults.until(lambda: len(faults.sent("ping")) >= 2)
    calls = faults.sent("tools/call")
    assert len(calls) == 20
    for request in calls:
        number = request.message["params"]["arguments"]["number"]
        assert request.headers["x-user"] == f"user {number}"
        assert request.headers["x-call"] == f"call {number}"
    others = [request for request in faults.requests if request not in calls]
    assert {request.rpc_method for request in others} >= {"initialize", "tools/list"}
    assert {request.headers["x-user"] for request in others} == {"nobody"}
    assert not any("x-call" in request.headers for request in others)
    assert {request.headers["x-server"] for request in faults.requests} == {"s"}


async def test_header_with_a_line_break_is_a_failed_call_and_is_never_shown(
    faults: FaultServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "dragoman")
    with anyio.fail_after(40):
        async with McpManager([ServerSpec("s", Http(faults.url("healthy")))]) as mcp:
            assert await mcp.wait_ready()
            result = await mcp.call("mcp_s_fault", headers={"X-User": "ada\r\nX-Admin: yes"})
            assert isinstance(result.exception, ToolUnavailableError)
            assert not result.exception.may_have_run
            assert "the header `X-User` cannot be sent to server `s`" in result.text
            assert (await mcp.call("mcp_s_fault", headers={"X-User": "ada"})).success
    assert not any("ada" in message for message in [result.text, *caplog.messages])
    assert len(faults.sent("tools/call")) == 1


# Sizes


@pytest.mark.usefixtures("pipes")
@pytest.mark.parametrize("kind", ["stdio", "http", "sse"])
async def test_message_beyond_the_limit_fails_its_call_and_names_the_setting(kind: str) -> None:
    with anyio.fail_after(40):
        async with serving(kind) as transport:
            spec = ServerSpec("s", transport, max_message_bytes=20_000)
            async with McpManager([spec]) as mcp:
                assert await mcp.wait_ready()
                assert len((await mcp.call("mcp_s_echo", {"text": "x" * 5_000})).text) == 5_000
                result = await mcp.call("mcp_s_echo", {"text": "x" * 30_000})
                assert isinstance(result.exception, ProtocolError)
                assert "`max_message_bytes` is 20000" in result.text
                assert (await mcp.call("mcp_s_echo", {"text": "on"})).text == "on"


@pytest.mark.usefixtures("pipes")
async def test_limit_can_be_raised() -> None:
    with anyio.fail_after(50):
        async with serving("stdio") as transport:
            spec = ServerSpec("s", transport, max_message_bytes=64 * 1024 * 1024, timeouts={"call": 40})
            async with McpManager([spec]) as mcp:
                assert await mcp.wait_ready()
                # The answer has the text twice, and so is beyond the usual 16 MiB.
                result = await mcp.call("mcp_s_echo", {"text": "x" * 9_000_000})
                assert len(result.text) == 9_000_000


@asynccontextmanager
async def serving(kind: str) -> AsyncIterator[Stdio | Http | Sse]:
    if kind == "stdio":
        command, *words = server_command(SERVERS / "official.py", "stdio")
        yield Stdio(command, words)
        return
    async with listening(kind) as url:
        yield Http(url) if kind == "http" else Sse(url)


# Silence


@pytest.mark.usefixtures("pipes")
async def test_frozen_idle_server_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from dragoman.server import connection

    monkeypatch.setattr(connection, "PROBE_SECONDS", 0.1)
    with anyio.fail_after(40):
        stdio = Stdio(sys.executable, [str(SERVERS / "plain.py")])
        async with McpManager([ServerSpec("s", stdio, health_check_interval=0.05)]) as mcp:
            assert await mcp.wait_ready()
            events, pid = mcp.events(), mcp.status()["s"].pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            async for event in events:
                if getattr(event, "after", None) is ServerState.BACKOFF:
                    break
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
