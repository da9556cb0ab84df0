"""Metrics, telemetry and the call log, on calls to real servers."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from dragoman import McpManager, ServerSpec
from dragoman.observe.call_history import CallHistory
from dragoman.observe.calllog import CallLog
from dragoman.observe.metrics import Metrics
from dragoman.trust.redactor import Redactor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dragoman import ToolResult

    Make = Callable[..., ServerSpec]

pytestmark = pytest.mark.anyio

CANARY = "canary-7f3a9b2c51"


@pytest.mark.requirement("otter-p2.metrics")
async def test_counts_and_durations_of_calls_are_kept(server: Make) -> None:
    metrics = Metrics()
    async with McpManager([server("fs", "plain.py")]) as mcp:
        events = mcp.events()
        metrics.watch("fs", mcp.status()["fs"].state, time.monotonic())
        with anyio.fail_after(20):
            assert await mcp.wait_ready()
            for number in range(5):
                assert (await mcp.call("mcp_fs_echo", {"text": str(number)})).success
            assert not (await mcp.call("mcp_fs_echo", {"wrong": 1})).success
            assert not (await mcp.call("mcp_fs_no_such_tool")).success
            await mcp.restart("fs")
        for event in events.take():
            metrics.take(event, time.monotonic())
        found = metrics.read(time.monotonic())
    echo = found["fs"].tools["mcp_fs_echo"]
    assert (echo.calls, echo.in_flight, echo.errors) == (6, 0, {"tool.invalid_arguments": 1})
    assert echo.latency.count == 5
    assert 0 < echo.latency.p50 <= echo.latency.p95 <= echo.latency.p99 <= echo.latency.longest
    assert found[""].errors == {"tool.unknown": 1}
    assert found["fs"].restarts == 1
    assert {"connecting", "ready"} <= set(found["fs"].states)


async def test_calls_are_logged_and_one_can_be_run_again(server: Make, tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite3"
    redactor = Redactor([CANARY])
    async with McpManager([server("fs", "plain.py")]) as mcp:
        with anyio.fail_after(30), closing(CallLog(path, mask=redactor.mask)) as log:
            assert await mcp.wait_ready()
            for arguments in ({"text": "again"}, {"text": f"my {CANARY}"}, {"wrong": CANARY}):
                note(log, await mcp.call("mcp_fs_echo", arguments), "mcp_fs_echo", arguments)
            assert await asyncio.to_thread(log.flush)
            history = CallHistory(path)
            refused, secret, plain = await asyncio.to_thread(history.list)
            assert (plain.obstacle, plain.result) == ("", "again")
            again = await mcp.call(plain.tool, plain.arguments)
            assert again.text == plain.result
            assert secret.obstacle == "not all of its arguments were kept: `/text` (redacted)"
            assert refused.error_code == "tool.invalid_arguments"
    assert CANARY.encode() not in contents(tmp_path)


def contents(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


def note(log: CallLog, result: ToolResult, tool: str, arguments: dict[str, Any]) -> None:
    exc = result.exception
    log.note(
        server="fs",
        tool=tool,
        call_id=result.call_id,
        arguments=arguments,
        duration=result.duration,
        text=result.text,
        code=exc.code if exc else "",
    )


TRACED = '''
import asyncio, json, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from dragoman import McpManager, ServerSpec, Stdio
from dragoman.observe.telemetry import Peer, find

SERVER = """
import anyio
from mcp.server.mcpserver import Context, MCPServer
server = MCPServer("tracing", log_level="ERROR")

@server.tool()
async def parent(context: Context) -> str:
    return str((context.request_context.meta or {}).get("traceparent"))

anyio.run(server.run_stdio_async)
"""

async def main(wire):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    telemetry = find()
    spec = ServerSpec("tracing", Stdio(sys.executable, ["-c", SERVER]), wire=wire)
    async with McpManager([spec], cache=False) as mcp:
        assert await mcp.wait_ready(timeout=40)
        exporter.clear()

        async def send(connection, left):
            session = connection.session
            peer = Peer.of(
                spec.transport, protocol_version=session.protocol_version, traced_below=not session.direct
            )
            with telemetry.request("tools/call", peer, tool="parent") as request:
                answer = await connection.call_tool("parent", {}, left, meta=request.meta())
                request.answered(is_error=answer.is_error)
                return answer

        answer = await mcp._supervisors["tracing"].request(send, seconds=20)
    calls = [span for span in exporter.get_finished_spans() if "tools/call" in span.name]
    told = answer.parts[0].text
    print(json.dumps({
        "names": [span.name for span in calls],
        "told": told,
        "sent": [trace.format_span_id(span.context.span_id) for span in calls],
    }))

asyncio.run(main(sys.argv[1]))
'''


@pytest.mark.parametrize(
    ("wire", "name"), [("dragoman", "tools/call parent"), ("sdk", "MCP send tools/call parent")]
)
async def test_server_continues_the_trace_of_the_one_span_of_a_call(wire: str, name: str) -> None:
    # A process of its own: the global provider, which the MCP SDK uses, can be set once.
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", TRACED, wire, stdout=asyncio.subprocess.PIPE, env=dict(os.environ)
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
    assert found["names"] == [name]
    assert found["told"].split("-")[2] == found["sent"][0]
