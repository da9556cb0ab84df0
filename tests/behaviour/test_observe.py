"""Metrics, telemetry and the call log, on calls to real servers."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import anyio
import pytest

from dragoman import McpManager, ServerSpec
from dragoman.events import CallStarted
from dragoman.observe.call_history import CallHistory
from dragoman.observe.call_log import CallLog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Make = Callable[..., ServerSpec]

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("otter-p2.metrics", "excel-7.2", "excel-7.3")]

CANARY = "canary-7f3a9b2c51"


@pytest.mark.requirement("otter-p2.metrics")
async def test_counts_sizes_and_durations_of_calls_are_kept(server: Make) -> None:
    async with McpManager([server("fs", "plain.py")]) as mcp:
        with anyio.fail_after(20):
            assert await mcp.wait_ready()
            for number in range(5):
                assert (await mcp.call("mcp_fs_echo", {"text": str(number)})).success
            assert not (await mcp.call("mcp_fs_echo", {"wrong": 1})).success
            assert not (await mcp.call("mcp_fs_no_such_tool")).success
            await mcp.restart("fs")
        found = mcp.metrics()
    echo = found["fs"].tools["mcp_fs_echo"]
    assert (echo.calls, echo.in_flight, echo.errors) == (6, 0, {"tool.invalid_arguments": 1})
    assert echo.latency.count == 5
    assert 0 < echo.latency.p50 <= echo.latency.p95 <= echo.latency.p99 <= echo.latency.longest
    assert (echo.sent_bytes or 0) > 5 * len('{"jsonrpc":"2.0","method":"tools/call"}')
    assert (echo.received_bytes or 0) > 5 * len('{"jsonrpc":"2.0","id":1}')
    assert found[""].errors == {"tool.unknown": 1}
    assert found["fs"].restarts == 1
    assert {"idle", "connecting", "ready"} <= set(found["fs"].states)


async def test_larger_results_count_for_more_bytes(server: Make) -> None:
    async with McpManager([server("fs", "plain.py")]) as mcp:
        with anyio.fail_after(20):
            assert await mcp.wait_ready()
            await mcp.call("mcp_fs_echo", {"text": "x"})
            small = mcp.metrics()["fs"]
            await mcp.call("mcp_fs_echo", {"text": "x" * 100_000})
            large = mcp.metrics()["fs"]
    assert (large.sent_bytes or 0) - (small.sent_bytes or 0) > 100_000
    assert (large.received_bytes or 0) - (small.received_bytes or 0) > 100_000


async def test_cancelled_call_is_counted_and_logged_as_such(server: Make, tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite3"
    async with McpManager([server("fs", "plain.py")], call_log=path) as mcp:
        with anyio.fail_after(20):
            assert await mcp.wait_ready()
            events = mcp.events()
            call = asyncio.create_task(mcp.call("mcp_fs_slow", {}))
            assert isinstance(await anext(events), CallStarted)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        found = mcp.metrics()["fs"].tools["mcp_fs_slow"]
    assert (found.calls, found.in_flight, found.errors) == (1, 0, {"cancelled": 1})
    assert [(call.tool, call.error_code) for call in CallHistory(path).list()] == [
        ("mcp_fs_slow", "cancelled")
    ]


async def test_calls_are_logged_and_one_can_be_run_again(server: Make, tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite3"
    spec = server("fs", "plain.py", env={"API_TOKEN": CANARY})
    async with McpManager([spec], call_log=path) as mcp:
        with anyio.fail_after(30):
            assert await mcp.wait_ready()
            for arguments in ({"text": "again"}, {"text": f"my {CANARY}"}, {"wrong": CANARY}):
                await mcp.call("mcp_fs_echo", arguments)
            assert mcp.call_log is not None
            assert await asyncio.to_thread(mcp.call_log.flush)
            refused, secret, plain = await asyncio.to_thread(CallHistory(path).list)
            assert (plain.obstacle, plain.result) == ("", "again")
            again = await mcp.call(plain.tool, plain.arguments)
            assert again.text == plain.result
            assert secret.obstacle == "not all of its arguments were kept: `/text` (redacted)"
            assert refused.error_code == "tool.invalid_arguments"
    assert CANARY.encode() not in contents(tmp_path)
    assert len(CallHistory(path).list()) == 4


def contents(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


async def test_log_that_the_application_opened_stays_open(server: Make, tmp_path: Path) -> None:
    with closing(CallLog(tmp_path / "calls.sqlite3")) as log:
        for _ in range(2):
            async with McpManager([server("fs", "plain.py")], call_log=log) as mcp:
                with anyio.fail_after(20):
                    assert await mcp.wait_ready()
                    assert (await mcp.call("mcp_fs_echo", {"text": "x"})).success
        assert await asyncio.to_thread(log.flush)
        assert len(CallHistory(log.path).list()) == 2


TRACED = '''
import asyncio, json, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from dragoman import McpManager, ServerSpec, Stdio

SERVER = """
import anyio
from mcp.server.mcpserver import Context, MCPServer
server = MCPServer("tracing", log_level="ERROR")

@server.tool()
async def parent(context: Context) -> str:
    return str((context.request_context.meta or {}).get("traceparent"))

anyio.run(server.run_stdio_async)
"""

async def main():
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    spec = ServerSpec("tracing", Stdio(sys.executable, ["-c", SERVER]))
    async with McpManager([spec], cache=False) as mcp:
        assert await mcp.wait_ready(timeout=40)
        exporter.clear()
        result = await mcp.call("mcp_tracing_parent")
    calls = [span for span in exporter.get_finished_spans() if "tools/call" in span.name]
    print(json.dumps({
        "names": [span.name for span in calls],
        "told": result.text,
        "sent": [trace.format_span_id(span.context.span_id) for span in calls],
    }))

asyncio.run(main())
'''


async def test_server_continues_the_trace_of_the_one_span_of_a_call() -> None:
    # A process of its own: the global provider, which the MCP SDK uses, can be set once.
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", TRACED, stdout=asyncio.subprocess.PIPE, env=dict(os.environ)
    )
    try:
        with anyio.fail_after(50):
            output, _ = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
        child._transport.close()  # type: ignore[attr-defined]
    found = json.loads(output)
    assert found["names"] == ["tools/call parent"]
    assert found["told"].split("-")[2] == found["sent"][0]
