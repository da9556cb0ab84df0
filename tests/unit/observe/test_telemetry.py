from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from dragoman.agent.messages import Answered, Message, Usage
from dragoman.agent.tracing import MOST_MODELS, AgentSpan
from dragoman.errors import CallTimeoutError, ConnectionLostError, ProtocolError
from dragoman.model import Http, Sse, Stdio
from dragoman.observe.telemetry import BUCKETS, CONTENT, Telemetry, TracedServer, find

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Span

CANARY = "sk-" + "Q7w8" * 8
PIPE = TracedServer.of(Stdio("python"), protocol_version="2025-11-25")


class Recorder:
    """A telemetry with an SDK of its own behind it."""

    def __init__(self, *processors: SpanProcessor) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self._tracers = TracerProvider()
        self._meters = MeterProvider(metric_readers=[self.reader])
        for processor in (*processors, SimpleSpanProcessor(self.exporter)):
            self._tracers.add_span_processor(processor)
        self.telemetry = Telemetry(tracer_provider=self._tracers, meter_provider=self._meters)

    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def span(self) -> ReadableSpan:
        (span,) = self.spans()
        return span

    def points(self, name: str = "mcp.client.operation.duration") -> list[Any]:
        found = self.reader.get_metrics_data()
        if found is None:
            return []
        return [
            point
            for resource in found.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def close(self) -> None:
        self._tracers.shutdown()
        self._meters.shutdown()


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    yield recorder
    recorder.close()


def fail(recorder: Recorder, error: BaseException) -> ReadableSpan:
    with pytest.raises(type(error)), recorder.telemetry.request("tools/call", PIPE, tool="t"):
        raise error
    return recorder.span()


def test_call_is_a_client_span_with_the_attributes_of_the_convention(recorder: Recorder) -> None:
    peer = TracedServer.of(
        Http("https://user:pw@law.example/mcp?key=1"), protocol_version="2025-11-25", session_id="session-1"
    )
    with recorder.telemetry.request("tools/call", peer, tool="find_law") as request:
        request.numbered(7)
        request.answered({"content": []})
    span = recorder.span()
    common = {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2025-11-25",
        "gen_ai.tool.name": "find_law",
        "gen_ai.operation.name": "execute_tool",
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "network.protocol.version": "1.1",
        "server.address": "law.example",
        "server.port": 443,
    }
    assert (span.name, span.kind, span.status.status_code) == (
        "tools/call find_law",
        SpanKind.CLIENT,
        StatusCode.UNSET,
    )
    assert dict(span.attributes or {}) == {
        **common,
        "mcp.session.id": "session-1",
        "jsonrpc.request.id": "7",
    }
    (point,) = recorder.points()
    assert dict(point.attributes) == common
    assert point.explicit_bounds == BUCKETS
    assert (point.count, point.sum >= 0) == (1, True)


@pytest.mark.parametrize(
    ("transport", "expected"),
    [
        (Stdio("x", ["--token", "y"], env={"A": "b"}), {"network.transport": "pipe"}),
        (Sse("http://[::1]:8000/sse"), {"server.address": "::1", "server.port": 8000}),
        (Http("http://h/mcp"), {"server.address": "h", "server.port": 80}),
        (Http("unix:/x"), {}),
        (Http("http://h:99999999/mcp"), {}),
    ],
    ids=["stdio", "sse", "default port", "no host", "bad port"],
)
def test_peer_tells_where_a_server_is_and_nothing_else(
    transport: Stdio | Http | Sse, expected: dict[str, Any]
) -> None:
    about = TracedServer.of(transport).attributes
    if not isinstance(transport, Stdio):
        http = {"network.protocol.name": "http", "network.protocol.version": "1.1"}
        expected = {"network.transport": "tcp", **http, **expected}
    assert about == expected


def test_prompt_names_the_span_and_resource_does_not(recorder: Recorder) -> None:
    with recorder.telemetry.request("prompts/get", PIPE, prompt="summary"):
        pass
    with recorder.telemetry.request("resources/read", PIPE, resource=f"db://x?key={CANARY}"):
        pass
    with recorder.telemetry.request("tools/list", PIPE):
        pass
    prompt, resource, listing = recorder.spans()
    assert (prompt.name, (prompt.attributes or {})["gen_ai.prompt.name"]) == (
        "prompts/get summary",
        "summary",
    )
    assert resource.name == "resources/read"
    assert str((resource.attributes or {})["mcp.resource.uri"]).startswith("db://x?key=")
    assert CANARY not in str(resource.attributes)
    assert listing.name == "tools/list"
    assert all("mcp.resource.uri" not in point.attributes for point in recorder.points())


def test_failure_that_the_tool_reports_is_a_tool_error(recorder: Recorder) -> None:
    with recorder.telemetry.request("tools/call", PIPE, tool="t") as request:
        request.answered({"isError": True})
    assert (recorder.span().attributes or {})["error.type"] == "tool_error"
    assert recorder.span().status.status_code is StatusCode.ERROR
    assert recorder.points()[0].attributes["error.type"] == "tool_error"


def test_refusal_of_the_server_tells_its_code_and_its_masked_message(recorder: Recorder) -> None:
    span = fail(recorder, ProtocolError(f"bad {CANARY} " + "x" * 1000, rpc_code=-32602))
    attributes = span.attributes or {}
    assert attributes["error.type"] == attributes["rpc.response.status_code"] == "-32602"
    assert CANARY not in str(span.status.description)
    assert len(str(span.status.description)) <= 300
    assert not span.events
    assert recorder.points()[0].attributes["rpc.response.status_code"] == "-32602"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (CallTimeoutError("slow", seconds=1.0), "timeout"),
        (TimeoutError(), "timeout"),
        (asyncio.CancelledError(), "cancelled"),
        (ConnectionLostError("gone", server="s", may_have_run=True), "server.lost"),
        (ProtocolError("junk"), "tool.protocol"),
        (ZeroDivisionError(CANARY), "ZeroDivisionError"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_every_end_has_an_error_type(recorder: Recorder, error: BaseException, expected: str) -> None:
    span = fail(recorder, error)
    assert (span.attributes or {})["error.type"] == expected
    assert CANARY not in span.to_json()


def test_span_is_current_and_is_a_child_of_the_callers(recorder: Recorder) -> None:
    outer = recorder.telemetry.tracer.start_span("agent")
    token = context.attach(trace.set_span_in_context(outer))
    try:
        with recorder.telemetry.request("tools/call", PIPE, tool="t"):
            inner = trace.get_current_span().get_span_context()
        assert trace.get_current_span() is outer
    finally:
        context.detach(token)
    span = recorder.span()
    assert span.parent == outer.get_span_context()
    assert span.context == inner
    outer.end()


def test_server_gets_the_trace_context_and_the_baggage(recorder: Recorder) -> None:
    token = context.attach(baggage.set_baggage("user", "alice"))
    try:
        with recorder.telemetry.request("tools/call", PIPE, tool="t") as request:
            meta = request.meta()
    finally:
        context.detach(token)
    assert meta is not None
    assert set(meta) == {"traceparent", "baggage"}
    assert meta["baggage"] == "user=alice"
    remote = trace.get_current_span(propagate.extract(meta)).get_span_context()
    ours = recorder.span().get_span_context()
    assert ours is not None
    assert (remote.trace_id, remote.span_id) == (ours.trace_id, ours.span_id)


def test_what_the_session_is_told_is_named_by_what_it_was_made_of(recorder: Recorder) -> None:
    refusal = RuntimeError("for the session")
    refusal.__cause__ = ProtocolError("no such tool", rpc_code=-32602)
    attributes = fail(recorder, refusal).attributes or {}
    assert (attributes["error.type"], attributes["rpc.response.status_code"]) == ("-32602", "-32602")


def test_session_is_measured_when_it_ends(recorder: Recorder) -> None:
    recorder.telemetry.session_ended(PIPE, 12.0)
    recorder.telemetry.session_ended(PIPE, 3.0, ConnectionLostError("gone", server="s", may_have_run=True))
    points = recorder.points("mcp.client.session.duration")
    assert {(point.sum, point.attributes.get("error.type")) for point in points} == {
        (12.0, None),
        (3.0, "server.lost"),
    }


@pytest.mark.parametrize("moment", ["on_start", "on_end"])
def test_request_goes_on_when_the_applications_processor_fails(
    moment: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(SpanProcessor):
        def on_start(self, span: object, parent_context: object = None) -> None:
            if moment == "on_start":
                raise RuntimeError("broken")

        def on_end(self, span: object) -> None:
            if moment == "on_end":
                raise RuntimeError("broken")

    recorder = Recorder(Broken())
    before = context.get_current()
    with recorder.telemetry.request("tools/call", PIPE, tool="t") as request:
        request.meta()
        request.answered({"isError": True})
    assert context.get_current() == before
    assert "OpenTelemetry failed" in caplog.text
    recorder.close()


async def test_requests_of_one_loop_do_not_see_each_others_spans(recorder: Recorder) -> None:
    barrier = asyncio.Barrier(5)

    async def send(number: int) -> str:
        with recorder.telemetry.request("tools/call", PIPE, tool=f"t{number}") as request:
            await barrier.wait()
            meta = request.meta()
            assert meta is not None
            return meta["traceparent"]

    parents = await asyncio.gather(*(send(number) for number in range(5)))
    assert len(set(parents)) == 5
    assert all(span.parent is None for span in recorder.spans())


@pytest.fixture
def with_content(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    monkeypatch.setenv(CONTENT, "true")
    recorder = Recorder()
    yield recorder
    recorder.close()


def test_arguments_and_results_are_recorded_on_demand_and_masked(
    recorder: Recorder, with_content: Recorder
) -> None:
    result = {"content": [{"type": "text", "text": f"sent with {CANARY}"}], "isError": False}
    for one in (recorder, with_content):
        arguments = {"city": "Paris", "password": "hunter2-and-more", "key": CANARY}
        with one.telemetry.request("tools/call", PIPE, tool="t", arguments=arguments) as request:
            request.answered(result)
    assert not [key for key in recorder.span().attributes or {} if key.startswith("gen_ai.tool.call")]
    attributes = with_content.span().attributes or {}
    assert json.loads(str(attributes["gen_ai.tool.call.arguments"]))["city"] == "Paris"
    assert "sent with" in str(attributes["gen_ai.tool.call.result"])
    assert CANARY not in with_content.span().to_json()
    assert "hunter2" not in with_content.span().to_json()
    # Not in a measurement: there are too many different values.
    (point,) = with_content.points()
    assert not [key for key in point.attributes if key.startswith("gen_ai.tool.call")]


def test_a_result_that_is_an_error_is_not_recorded(with_content: Recorder) -> None:
    with with_content.telemetry.request("tools/call", PIPE, tool="t") as request:
        request.answered({"content": [{"type": "text", "text": "secret stack"}], "isError": True})
    assert "gen_ai.tool.call.result" not in (with_content.span().attributes or {})


def executing(recorder: Recorder, **about: Any) -> Span:
    attributes = {"gen_ai.operation.name": "execute_tool", **about}
    return recorder.telemetry.tracer.start_span("execute_tool", attributes=attributes)


@pytest.mark.parametrize(
    ("outer", "shared"),
    [
        ({"gen_ai.tool.name": "mcp_law_find"}, True),
        ({"gen_ai.tool.name": "find"}, True),
        ({}, True),
        ({"gen_ai.tool.name": "run_code"}, False),
        ({"gen_ai.tool.name": "find", "mcp.method.name": "tools/call"}, False),
        ({"gen_ai.tool.name": "find", "gen_ai.operation.name": "chat"}, False),
    ],
    ids=str,
)
def test_a_call_inside_the_span_of_its_execution_makes_no_second_span(
    recorder: Recorder, outer: dict[str, Any], *, shared: bool
) -> None:
    span = executing(recorder, **outer)
    token = context.attach(trace.set_span_in_context(span))
    try:
        with recorder.telemetry.request("tools/call", PIPE, tool="find") as request:
            request.numbered(7)
            meta = request.meta()
            request.answered({"isError": True})
        assert trace.get_current_span() is span
    finally:
        context.detach(token)
    span.end()
    spans = recorder.spans()
    assert len(spans) == (1 if shared else 2)
    outermost = spans[-1]
    attributes = outermost.attributes or {}
    assert outermost.name == "execute_tool"
    # The server continues the span that there is.
    assert meta is not None
    where = spans[0].get_span_context()
    assert where is not None
    assert meta["traceparent"].split("-")[2] == trace.format_span_id(where.span_id)
    if shared:
        assert attributes["mcp.method.name"] == "tools/call"
        assert attributes["jsonrpc.request.id"] == "7"
        assert attributes.get("gen_ai.tool.name") == outer.get("gen_ai.tool.name")
        # How it ended is for the instrumentation to say whose span it is.
        assert "error.type" not in attributes
        assert outermost.status.status_code is StatusCode.UNSET
    assert recorder.points()[0].attributes["error.type"] == "tool_error"


def test_other_requests_inside_an_execution_have_their_own_spans(recorder: Recorder) -> None:
    span = executing(recorder)
    token = context.attach(trace.set_span_in_context(span))
    try:
        with recorder.telemetry.request("initialize", PIPE):
            pass
    finally:
        context.detach(token)
    span.end()
    assert [one.name for one in recorder.spans()] == ["initialize", "execute_tool"]


FIND = """
import sys
from dragoman.observe.telemetry import find
assert find() is None
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
from opentelemetry import metrics, trace
assert find() is None
if sys.argv[1] == "traces":
    from opentelemetry.sdk.trace import TracerProvider
    trace.set_tracer_provider(TracerProvider())
elif sys.argv[1] == "metrics":
    from opentelemetry.sdk.metrics import MeterProvider
    metrics.set_meter_provider(MeterProvider())
else:
    trace.set_tracer_provider(trace.NoOpTracerProvider())
print(find() is not None)
"""


@pytest.mark.parametrize(
    ("configured", "expected"), [("traces", "True"), ("metrics", "True"), ("off", "False")]
)
def test_nothing_is_recorded_or_imported_unless_an_sdk_is_set_up(configured: str, expected: str) -> None:
    # The global providers can be set once in a process.
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FIND, configured],
        capture_output=True,
        text=True,
        env=dict(os.environ),
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == (expected, "")


def test_without_an_sdk_there_is_nothing_to_find() -> None:
    assert find() is None


@pytest.mark.parametrize(
    ("code", "said"),
    [(-32602, "-32602"), (-32000, "-32000"), (7, "7"), (404_404, "other"), (-(10**9), "other")],
)
def test_a_server_makes_no_new_series_with_its_codes(recorder: Recorder, code: int, said: str) -> None:
    with (
        pytest.raises(ProtocolError),
        recorder.telemetry.request("tools/call", PIPE, tool="find"),
    ):
        raise ProtocolError("no", rpc_code=code)
    (point,) = recorder.points()
    assert point.attributes["error.type"] == said
    assert point.attributes["rpc.response.status_code"] == said


def test_names_that_others_choose_are_cut_and_have_no_unseen_characters(recorder: Recorder) -> None:
    long = "a\x1b[31m\u202e" + "x" * 10_000
    peer = PIPE.replace(session_id=long)
    with recorder.telemetry.request("tools/call", peer, tool=long):
        pass
    with recorder.telemetry.request("resources/read", peer, resource=f"x:{long}"):
        pass
    call, read = recorder.spans()
    for span in (call, read):
        texts = [span.name, *map(str, (span.attributes or {}).values())]
        assert max(map(len, texts)) <= 2_000
    for text in (
        call.name,
        (call.attributes or {})["gen_ai.tool.name"],
        (call.attributes or {})["mcp.session.id"],
    ):
        assert "\x1b" not in str(text)
        assert "\u202e" not in str(text)


def test_a_model_makes_no_new_series_with_its_names(recorder: Recorder) -> None:
    meter = MeterProvider(metric_readers=[reader := InMemoryMetricReader()]).get_meter("m")
    found = (recorder.telemetry, meter.create_histogram("tokens"), meter.create_histogram("seconds"))
    models: set[str] = set()
    for number in range(3 * MOST_MODELS):
        with AgentSpan(found, "chat m", {}, {}, kind="CLIENT", models=models) as span:
            usage = Usage(input_tokens=1, output_tokens=1)
            message = Message(role="assistant", text="x")
            span.answered(
                Answered(message=message, finish="stop", usage=usage, model=f"m{number}" + "y" * 9_000)
            )
    data = reader.get_metrics_data()
    assert data is not None
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        named = {point.attributes.get("gen_ai.response.model") for point in metric.data.data_points}
        assert len(named) == MOST_MODELS + 1
    told = {(span.attributes or {})["gen_ai.response.model"] for span in recorder.spans()}
    assert len(told) == 3 * MOST_MODELS
    assert all(len(str(one)) == 200 for one in told)


def test_a_prompt_that_a_server_refuses_makes_no_series(recorder: Recorder) -> None:
    for number in range(3):
        with (
            pytest.raises(ProtocolError),
            recorder.telemetry.request("prompts/get", PIPE, prompt=f"made up {number}"),
        ):
            raise ProtocolError("no such prompt", rpc_code=-32602)
    (point,) = recorder.points()
    assert "gen_ai.prompt.name" not in point.attributes
    assert (recorder.spans()[0].attributes or {})["gen_ai.prompt.name"] == "made up 0"
    with recorder.telemetry.request("prompts/get", PIPE, prompt="plan"):
        pass
    assert "plan" in {point.attributes.get("gen_ai.prompt.name") for point in recorder.points()}
