"""The same behaviour over every transport, against the official SDK's server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import anyio
import pytest
from tests.behaviour.conftest import listening
from tests.conftest import command_line

from dragoman import (
    AuthRequiredError,
    CallTimeoutError,
    Http,
    McpManager,
    ServerSpec,
    ServerState,
    Sse,
    ToolFailedError,
    ToolUnavailableError,
)
from dragoman.server.transports.http_exchange import MovedError

if TYPE_CHECKING:
    import logging

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement(
        "kode-connect.stdio",
        "kode-connect.sse",
        "excel-2.2",
        "excel-2.3",
        "otter-p0.stdio",
        "otter-p1.sse",
        "legal-client.sse",
        "legal-client.stdio",
        "rrclaw-transport.http",
    ),
]


@pytest.mark.requirement("excel-2.2")
@pytest.mark.requirement("excel-2.3")
@pytest.mark.requirement("kode-connect.stdio")
@pytest.mark.requirement("kode-connect.sse")
@pytest.mark.requirement("otter-p0.methods")
@pytest.mark.requirement("kode-call.send")
async def test_tools_are_listed_and_called_over_every_transport(official: ServerSpec) -> None:
    with anyio.fail_after(30):
        mcp = await McpManager.connect_all([official])
        try:
            assert mcp.status()["official"].state is ServerState.READY
            assert mcp.status()["official"].transport == official.kind
            pid = mcp.status()["official"].pid
            assert (pid is not None) == (official.kind == "stdio")
            if pid is not None:
                assert "official.py stdio" in command_line(pid)
            names = {tool.original_name for tool in mcp.tools()}
            assert names == {"echo", "add", "fail", "slow", "exit"}
            result = await mcp.call("mcp_official_echo", {"text": "salam"})
            assert (result.success, result.text) == (True, "salam")
            total = await mcp.call("mcp_official_add", {"a": 2, "b": 3})
            assert total.structured == {"sum": 5}
        finally:
            await mcp.shutdown()


@pytest.mark.requirement("kode-call.error")
async def test_failure_and_time_out_over_every_transport_leave_the_connection_usable(
    official: ServerSpec,
) -> None:
    with anyio.fail_after(30):
        mcp = await McpManager.connect_all([official])
        try:
            failed = await mcp.call("mcp_official_fail")
            assert isinstance(failed.exception, ToolFailedError)
            assert failed.error == "the disk is full"
            late = await mcp.call("mcp_official_slow", timeout=0.2)
            assert isinstance(late.exception, CallTimeoutError)
            assert (await mcp.call("mcp_official_echo", {"text": "on"})).text == "on"
        finally:
            await mcp.shutdown()


async def test_server_that_dies_under_a_call_ends_that_call_and_never_cancels_the_caller(
    official: ServerSpec,
) -> None:
    with anyio.fail_after(30):
        mcp = await McpManager.connect_all([official])
        try:
            others = [asyncio.ensure_future(mcp.call("mcp_official_slow")) for _ in range(3)]
            result = await mcp.call("mcp_official_exit")
            assert isinstance(result.exception, ToolUnavailableError)
            assert result.exception.may_have_run
            for other in await asyncio.gather(*others):
                assert isinstance(other.exception, ToolUnavailableError)
            current = asyncio.current_task()
            assert current is not None
            assert current.cancelling() == 0
        finally:
            await mcp.shutdown()


@pytest.mark.parametrize("moved", ["request", "connection"])
async def test_calls_work_where_aiohttp_has_other_internals(
    moved: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with anyio.fail_after(30):
        async with listening("http") as url, McpManager([ServerSpec("official", Http(url))]) as mcp:
            await mcp.wait_ready()
            # aiohttp's own sessions keep the class that they were made with; only our shortcut looks it up.
            monkeypatch.setattr("dragoman.server.transports.http_exchange.Exchange.post", _moved)
            if moved == "request":
                monkeypatch.setattr("aiohttp.ClientRequest", None)
                await mcp.restart("official")
            for text in ("salam", "again"):
                assert (await mcp.call("mcp_official_echo", {"text": text})).text == text


async def _moved(*_args: object) -> object:
    raise MovedError


@pytest.mark.requirement("kode-config.sse")
@pytest.mark.parametrize("transport", ["http", "sse"])
@pytest.mark.requirement("otter-p1.sse")
async def test_headers_are_sent_and_a_refusal_asks_for_a_login(
    transport: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kind = Http if transport == "http" else Sse
    monkeypatch.setenv("MY_TOKEN", "abc123")
    caplog.set_level("DEBUG", "dragoman")
    with anyio.fail_after(30):
        async with listening(transport, token="abc123") as url:
            headers = {"Authorization": "Bearer ${MY_TOKEN}"}
            specs = [ServerSpec("in", kind(url, headers=headers)), ServerSpec("out", kind(url))]
            mcp = await McpManager.connect_all(specs)
            try:
                assert mcp.status()["in"].state is ServerState.READY
                assert mcp.status()["out"].state is ServerState.NEEDS_AUTH
                assert isinstance(mcp.status()["out"].error, AuthRequiredError)
            finally:
                await mcp.shutdown()
    assert "abc123" not in "".join(one.getMessage() for one in ours(caplog))


@pytest.mark.requirement("rrclaw-transport.http")
@pytest.mark.parametrize("speaks", ["http", "sse"])
@pytest.mark.parametrize("first", [Http, Sse])
async def test_alternate_transport_is_tried_when_the_first_is_refused(
    speaks: str, first: type[Http | Sse]
) -> None:
    with anyio.fail_after(30):
        async with listening(speaks) as url:
            mcp = await McpManager.connect_all([ServerSpec("either", first(url, alternate=True))])
            try:
                assert mcp.status()["either"].state is ServerState.READY
                assert mcp.status()["either"].transport == speaks
                assert (await mcp.call("mcp_either_echo", {"text": "x"})).text == "x"
            finally:
                await mcp.shutdown()


async def test_when_both_transports_are_refused_the_error_has_both_causes() -> None:
    with anyio.fail_after(30):
        async with listening("http") as url:
            wrong = url.replace("/mcp", "/nowhere")
            mcp = await McpManager.connect_all([ServerSpec("neither", Http(wrong, alternate=True))])
            try:
                error = mcp.status()["neither"].last_error or ""
                assert "(http, handshake)" in error
                assert "(sse, " in error
                assert error.count("HTTP 404") == 2
            finally:
                await mcp.shutdown()


async def test_unreachable_address_is_not_tried_with_the_other_transport() -> None:
    with anyio.fail_after(30):
        mcp = await McpManager.connect_all(
            [ServerSpec("gone", Http("http://127.0.0.1:9/mcp", alternate=True))]
        )
        try:
            error = mcp.status()["gone"].last_error or ""
            assert "connect" in error
            assert "before that" not in error
        finally:
            await mcp.shutdown()


def ours(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "dragoman"]
