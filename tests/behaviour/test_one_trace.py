"""One trace from the agent through the gateway to the server: the commands of the terminal, and a real collector."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests import warm
from tests.behaviour.test_gateway import served
from tests.servers.model_api import ModelApi
from tests.servers.otlp_collector import Collector
from tests.unit.cli.program import configure

from dragoman.agent.tracing import SECONDS_BUCKETS, TOKEN_BUCKETS
from dragoman.observe.telemetry import BUCKETS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.servers.otlp_collector import Point, Span

SERVER = """
import anyio
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("tracing", log_level="ERROR")


@server.tool()
async def parent(city: str, token: str, context: Context) -> str:
    return str((context.request_context.meta or {}).get("traceparent"))


anyio.run(server.run_stdio_async)
"""
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
CANARY = "sk-" + "Q7w8" * 8


def only(found: Sequence[Any]) -> Any:
    assert len(found) == 1, found
    return found[0]


@pytest.mark.timeout(120)
async def test_the_agent_the_gateway_and_the_server_are_one_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "server.py"
    script.write_text(SERVER, "utf-8")
    behind = tmp_path / "behind.json"
    entry = {"command": sys.executable, "args": [str(script)]}
    behind.write_text(json.dumps({"mcpServers": {"tracing": entry}}), "utf-8")
    calls = [{"name": "mcp_gate_mcp_tracing_parent", "arguments": {"city": "Bern", "token": CANARY}}]
    turns = [{"calls": calls}, {"text": "There it is."}]
    async with Collector() as collector, ModelApi(turns) as api:
        monkeypatch.setenv(ENDPOINT, collector.url)
        monkeypatch.setenv(CONTENT, "true")
        command = ["-m", "dragoman", "serve", "--config", str(behind), "--http", "0", "--no-token"]
        async with served(command) as url:
            path = configure(gate={"url": url})
            rules = [{"action": "allow", "server": "gate"}]
            path.write_text(
                json.dumps({**json.loads(path.read_text("utf-8")), "mcp": {"policy": {"rules": rules}}}),
                "utf-8",
            )
            done = await asyncio.to_thread(
                warm.run,
                ["chat", "--model", "openai:tiny"],
                stdin="Where am I?\n",
                environment={
                    **os.environ,
                    "OPENAI_API_KEY": "an-odd-key-4711",
                    "OPENAI_BASE_URL": api.base_url("openai"),
                },
                timeout=60,
            )
            assert done.returncode == 0, done.stderr
            assert "There it is." in done.stdout
    agent = only(collector.named("dragoman-chat", "invoke_agent"))
    executed = only(collector.named("dragoman-chat", "execute_tool mcp_gate_mcp_tracing_parent"))
    first, second = collector.named("dragoman-chat", "chat tiny")
    gate = only([span for span in collector.spans if span.name == "tools/call mcp_tracing_parent"])
    sent = only(collector.named("dragoman-gateway", "tools/call parent"))
    # One trace, and one span for each hop: the client of the agent has added itself to `execute_tool`.
    assert {one.trace for one in (executed, first, second, gate, sent)} == {agent.trace}
    assert (executed.parent, first.parent, second.parent) == (agent.id, agent.id, agent.id)
    assert (gate.service, gate.parent, sent.parent) == ("dragoman-gateway", executed.id, gate.id)
    traceparent = api.requests[1].body["messages"][-1]["content"]
    assert traceparent.split("-")[1:3] == [agent.trace, sent.id]
    assert [span.kind for span in (agent, executed, first, gate, sent)] == [
        *("INTERNAL", "INTERNAL", "CLIENT", "SERVER", "CLIENT"),
    ]
    check_agent(agent, first, executed, api)
    check_gateway(gate, sent)
    check_metrics(collector)
    said = "".join(str(span) for span in collector.spans)
    assert CANARY not in said
    assert "an-odd-key-4711" not in said


def check_agent(agent: Span, chat: Span, executed: Span, api: ModelApi) -> None:
    assert agent.attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "tiny",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 200,
        "gen_ai.usage.output_tokens": 40,
        "gen_ai.usage.cache_read.input_tokens": 120,
    }
    assert chat.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "tiny",
        "gen_ai.response.model": "tiny",
        "gen_ai.response.finish_reasons": ["tool_calls"],
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "server.address": "127.0.0.1",
        "server.port": int(api.url.rpartition(":")[2]),
    }
    attributes = executed.attributes
    assert attributes["gen_ai.operation.name"] == "execute_tool"
    assert attributes["gen_ai.tool.name"] == "mcp_gate_mcp_tracing_parent"
    assert attributes["gen_ai.tool.type"] == "extension"
    assert attributes["gen_ai.tool.call.id"]
    assert "Bern" in attributes["gen_ai.tool.call.arguments"]
    assert "00-" in attributes["gen_ai.tool.call.result"]
    # Of the request to the server.
    assert attributes["mcp.method.name"] == "tools/call"
    assert attributes["network.protocol.version"] == "1.1"
    assert attributes["server.address"] == "127.0.0.1"
    assert {"mcp.protocol.version", "jsonrpc.request.id", "server.port"} <= set(attributes)


def check_gateway(gate: Span, sent: Span) -> None:
    expected = {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "mcp_tracing_parent",
        "client.address": "127.0.0.1",
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "network.protocol.version": "1.1",
    }
    assert {key: gate.attributes.get(key) for key in expected} == expected
    keys = {"client.port", "mcp.protocol.version", "jsonrpc.request.id", "gen_ai.tool.call.arguments"}
    assert keys <= set(gate.attributes)
    assert sent.attributes["network.transport"] == "pipe"
    assert not any(span.is_error for span in (gate, sent))


def check_metrics(collector: Collector) -> None:
    def kinds(points: Sequence[Point], key: str) -> set[Any]:
        return {point.attributes.get(key) for point in points}

    for service, name in (
        ("dragoman-chat", "mcp.client.operation.duration"),
        ("dragoman-gateway", "mcp.client.operation.duration"),
        ("dragoman-gateway", "mcp.server.operation.duration"),
        ("dragoman-chat", "mcp.client.session.duration"),
        ("dragoman-gateway", "mcp.client.session.duration"),
    ):
        points = collector.measured(service, name)
        assert points, name
        assert {(point.unit, point.bounds) for point in points} == {("s", BUCKETS)}
        assert not [key for point in points for key in point.attributes if key.startswith("client.")]
        assert not [key for point in points for key in point.attributes if ".call." in key]
    answered = collector.measured("dragoman-gateway", "mcp.server.operation.duration")
    assert {"tools/call", "tools/list"} <= kinds(answered, "mcp.method.name")
    tokens = collector.measured("dragoman-chat", "gen_ai.client.token.usage")
    assert {(point.unit, point.bounds) for point in tokens} == {("{token}", TOKEN_BUCKETS)}
    assert kinds(tokens, "gen_ai.token.type") == {"input", "output"}
    assert kinds(tokens, "gen_ai.response.model") == {"tiny"}
    seconds = collector.measured("dragoman-chat", "gen_ai.client.operation.duration")
    assert {(point.unit, point.bounds) for point in seconds} == {("s", SECONDS_BUCKETS)}
    assert [point.count for point in seconds] == [2]


ASKING = """
import asyncio, sys
from dragoman import McpManager
from dragoman.model import Handlers
from dragoman.observe.otlp import exporting


async def elicit(server, params):
    return {"action": "accept", "content": {"seats": 3}}


async def sample(server, params):
    raise RuntimeError("not for you")


async def main():
    handlers = Handlers(elicitation=elicit, sampling=sample, roots=["file:///srv"])
    for protocol in ("legacy", "auto"):
        spec = {"command": sys.executable, "args": [sys.argv[1]], "protocol": protocol}
        async with McpManager({"all": spec}, handlers=handlers, cache=False) as mcp:
            await mcp.wait_ready(timeout=40)
            for tool in ("form", "sample", "roots"):
                print((await mcp.call("mcp_all_" + tool)).success)


async def traced():
    async with exporting("questions"):
        await main()

asyncio.run(traced())
"""


@pytest.mark.timeout(120)
async def test_what_a_server_asks_is_traced_in_both_protocols(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Path(__file__).parents[1] / "servers/all_features.py"
    async with Collector() as collector:
        monkeypatch.setenv(ENDPOINT, collector.url)
        code = ASKING.replace("sys.argv[1]", repr(str(server)))
        done = await asyncio.to_thread(warm.run, [], code=code, environment=os.environ, timeout=90)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "False", "True"] * 2
    for method, fails in (
        ("elicitation/create", False),
        ("sampling/createMessage", True),
        ("roots/list", False),
    ):
        asked = collector.named("questions", method)
        assert [(span.kind, span.is_error) for span in asked] == [("SERVER", fails)] * 2
        assert {span.attributes["network.transport"] for span in asked} == {"pipe"}
        assert len({span.attributes["mcp.protocol.version"] for span in asked}) == 2
        assert [span.attributes.get("error.type") for span in asked] == ["-32603" if fails else None] * 2
    points = collector.measured("questions", "mcp.server.operation.duration")
    assert sum(point.count for point in points) == 6
    # A manager checks the SDK by a session with itself, which is no one's business.
    assert all("network.transport" in span.attributes for span in collector.spans)


@pytest.mark.timeout(120)
async def test_a_question_goes_through_the_gateway_in_one_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Path(__file__).parents[1] / "servers/all_features.py"
    behind = tmp_path / "behind.json"
    entry = {"command": sys.executable, "args": [str(server)], "protocol": "legacy"}
    behind.write_text(json.dumps({"mcpServers": {"all": entry}}), "utf-8")
    command = ["-m", "dragoman", "serve", "--config", str(behind), "--http", "0", "--no-token"]
    async with Collector() as collector:
        monkeypatch.setenv(ENDPOINT, collector.url)
        async with served(command) as url:
            spec = '{"command": sys.executable, "args": [sys.argv[1]], "protocol": protocol}'
            assert spec in ASKING
            code = ASKING.replace(spec, f'{{"url": {url!r}, "protocol": protocol}}')
            code = code.replace('"mcp_all_"', '"mcp_all_mcp_all_"').replace(
                '"form", "sample", "roots"', '"form",'
            )
            done = await asyncio.to_thread(warm.run, [], code=code, environment=os.environ, timeout=90)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "True"]
    asked = [span for span in collector.spans if span.name == "elicitation/create"]
    # The older client is asked by a request, with a span at both ends; the modern one by a result.
    of_client = [span for span in asked if span.service == "questions"]
    of_gateway = {span.id: span for span in asked if span.service == "dragoman-gateway"}
    assert len(of_client) == 2
    older = only([span for span in of_client if span.parent in of_gateway])
    assert (older.kind, of_gateway[older.parent].kind) == ("SERVER", "CLIENT")
    assert of_gateway[older.parent].attributes["mcp.session.id"]
    session = only(collector.measured("dragoman-gateway", "mcp.server.session.duration"))
    assert session.attributes["network.transport"] == "tcp"
    assert (session.unit, session.bounds, session.count) == ("s", BUCKETS, 1)
    assert not [key for key in session.attributes if key.startswith("client.")]


QUIET = """
import asyncio, sys
from dragoman.observe.otlp import exporting

async def main():
    async with exporting("quiet"):
        pass

asyncio.run(main())
print([name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))])
"""


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {ENDPOINT: "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
        {ENDPOINT: "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"},
    ],
    ids=["nothing set", "disabled", "no exporter"],
)
async def test_nothing_is_imported_unless_something_is_exported(variables: dict[str, str]) -> None:
    # Not a warm one: that has imported more.
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", QUIET, stdout=asyncio.subprocess.PIPE, env={**os.environ, **variables}
    )
    said, _ = await child.communicate()
    child._transport.close()  # type: ignore[attr-defined]
    assert said.decode().strip() == "[]"


MISSING = """
import asyncio, logging, sys
sys.modules["opentelemetry.exporter"] = None
from dragoman.observe.otlp import exporting
logging.basicConfig(format="%(message)s", stream=sys.stdout)

async def main():
    async with exporting("x"):
        print("it goes on")

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "`OTEL_EXPORTER_OTLP_ENDPOINT` is set, but nothing is exported: the packages are not installed"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "`OTEL_EXPORTER_OTLP_PROTOCOL=grpc` is not supported"),
    ],
)
async def test_what_cannot_be_exported_is_said_and_the_program_goes_on(
    variables: dict[str, str], said: str
) -> None:
    environment = {**os.environ, ENDPOINT: "http://127.0.0.1:1", **variables}
    done = await asyncio.to_thread(warm.run, [], code=MISSING, environment=environment, timeout=50)
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    assert said in first
    assert last == "it goes on"


GONE = """
import asyncio, time
from opentelemetry import trace
from dragoman.observe.otlp import exporting

async def main():
    async with exporting("x"):
        trace.get_tracer("x").start_span("lost").end()
        began = time.monotonic()
    print(time.monotonic() - began)

asyncio.run(main())
"""


async def test_a_collector_that_is_gone_does_not_hold_the_end_up() -> None:
    environment = {**os.environ, ENDPOINT: "http://127.0.0.1:1"}
    done = await asyncio.to_thread(warm.run, [], code=GONE, environment=environment, timeout=50)
    assert done.returncode == 0, done.stderr
    # The exporter alone tries for a minute.
    assert float(done.stdout) < 30
