from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import context, trace
from opentelemetry.trace import SpanKind, StatusCode
from tests.unit.observe.test_telemetry import CANARY, PIPE, Recorder

from dragoman.errors import ProtocolError
from dragoman.model import Http
from dragoman.observe.served_request import ServedRequest, served
from dragoman.observe.telemetry import BUCKETS, CONTENT, TracedServer
from dragoman.server.protocol.envelope import MCPError
from dragoman.trust.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
PLACE = {
    "mcp.protocol.version": "2026-07-28",
    "network.transport": "tcp",
    "network.protocol.name": "http",
    "network.protocol.version": "1.1",
    "client.address": "10.1.2.80",
    "client.port": 65123,
}


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    yield recorder
    recorder.close()


def serve(
    recorder: Recorder, method: str = "tools/call", params: Mapping[str, Any] | None = None, **how: Any
) -> ServedRequest:
    how.setdefault("about", PLACE)
    return ServedRequest(recorder.telemetry, method, params or {"name": "find"}, request_id=7, **how)


def measured(recorder: Recorder) -> dict[str, Any]:
    (point,) = recorder.points("mcp.server.operation.duration")
    assert point.explicit_bounds == BUCKETS
    return dict(point.attributes)


def test_a_call_is_a_server_span_with_the_attributes_of_the_convention(recorder: Recorder) -> None:
    request = serve(recorder, session_id="session-1")
    assert trace.get_current_span().get_span_context().is_valid
    request.end({"content": []}, None)
    assert not trace.get_current_span().get_span_context().is_valid
    span = recorder.span()
    common = {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "find",
        **{key: value for key, value in PLACE.items() if not key.startswith("client.")},
    }
    assert (span.name, span.kind, span.status.status_code) == (
        "tools/call find",
        SpanKind.SERVER,
        StatusCode.UNSET,
    )
    assert dict(span.attributes or {}) == {
        **common,
        "client.address": "10.1.2.80",
        "client.port": 65123,
        "mcp.session.id": "session-1",
        "jsonrpc.request.id": "7",
    }
    assert measured(recorder) == common


def test_it_continues_the_trace_of_the_client_and_links_the_ambient_span(recorder: Recorder) -> None:
    ambient = recorder.telemetry.tracer.start_span("POST /mcp")
    token = context.attach(trace.set_span_in_context(ambient))
    try:
        serve(recorder, params={"name": "find", "_meta": {"traceparent": PARENT}}).end({}, None)
    finally:
        context.detach(token)
    ambient.end()
    span = recorder.spans()[0]
    assert span.parent is not None
    assert trace.format_trace_id(span.parent.trace_id) == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert trace.format_span_id(span.parent.span_id) == "00f067aa0ba902b7"
    assert [link.context.span_id for link in span.links] == [ambient.get_span_context().span_id]


@pytest.mark.parametrize(
    "meta",
    [None, {}, [], "x", 3, {"traceparent": 3}, {"traceparent": "00-zz"}, {"traceparent": None}],
    ids=str,
)
def test_a_context_that_is_none_leaves_the_ambient_span_as_parent(recorder: Recorder, meta: Any) -> None:
    ambient = recorder.telemetry.tracer.start_span("POST /mcp")
    token = context.attach(trace.set_span_in_context(ambient))
    try:
        serve(recorder, params={"name": "find", "_meta": meta}).end({}, None)
    finally:
        context.detach(token)
    ambient.end()
    span = recorder.spans()[0]
    assert span.parent == ambient.get_span_context()
    assert not span.links


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ProtocolError("junk"), {"error.type": "tool.protocol"}),
        (asyncio.CancelledError(), {"error.type": "cancelled"}),
        (TimeoutError(), {"error.type": "timeout"}),
        (ZeroDivisionError("x"), {"error.type": "ZeroDivisionError"}),
    ],
)
def test_every_end_has_an_error_type(
    recorder: Recorder, error: BaseException, expected: dict[str, str]
) -> None:
    serve(recorder).end(None, error)
    attributes = recorder.span().attributes or {}
    assert {key: attributes[key] for key in expected} == expected
    assert measured(recorder)["error.type"] == expected["error.type"]
    assert recorder.span().status.status_code is StatusCode.ERROR


class RefusalError(Exception):
    code = -32602


def test_a_refusal_has_its_code_and_no_name_of_a_client_in_the_metric(recorder: Recorder) -> None:
    serve(recorder, params={"name": "made-up-17"}).end(None, RefusalError(f"no such tool {CANARY}"))
    attributes = recorder.span().attributes or {}
    assert attributes["error.type"] == attributes["rpc.response.status_code"] == "-32602"
    assert CANARY not in str(recorder.span().status.description)
    assert "gen_ai.tool.name" not in measured(recorder)


def test_a_failed_tool_is_an_error(recorder: Recorder) -> None:
    serve(recorder).end({"isError": True}, None)
    assert measured(recorder)["error.type"] == "tool_error"


def test_a_method_that_is_not_known_is_no_series_of_its_own(recorder: Recorder) -> None:
    serve(recorder, "made/up", {}, label="other").end(None, RefusalError("?"))
    assert recorder.span().name == "other"
    assert measured(recorder)["mcp.method.name"] == "other"


def test_arguments_and_results_are_recorded_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CONTENT, "true")
    recorder = Recorder()
    params = {"name": "find", "arguments": {"city": "Paris", "key": CANARY}}
    serve(recorder, params=params).end({"content": [{"type": "text", "text": "sunny"}]}, None)
    attributes = recorder.span().attributes or {}
    assert "Paris" in str(attributes["gen_ai.tool.call.arguments"])
    assert "sunny" in str(attributes["gen_ai.tool.call.result"])
    assert CANARY not in recorder.span().to_json()
    recorder.close()


@pytest.mark.parametrize("method", ["sampling/createMessage", "elicitation/create", "roots/list", "made/up"])
def test_what_a_server_asks_is_a_server_span_of_the_client(recorder: Recorder, method: str) -> None:
    peer = TracedServer.of(Http("https://law.example/mcp"), protocol_version="2025-11-25", session_id="s-1")
    with served(recorder.telemetry, peer, method, {"_meta": {"traceparent": PARENT}}, 3):
        pass
    span = recorder.span()
    label = "other" if method == "made/up" else method
    assert (span.name, span.kind) == (label, SpanKind.SERVER)
    assert dict(span.attributes or {}) == {
        "mcp.method.name": label,
        "mcp.protocol.version": "2025-11-25",
        "mcp.session.id": "s-1",
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "network.protocol.version": "1.1",
        "jsonrpc.request.id": "3",
    }
    assert span.parent is not None


def test_a_question_that_fails_is_an_error(recorder: Recorder) -> None:
    with pytest.raises(RefusalError), served(recorder.telemetry, PIPE, "roots/list", None, 3):
        raise RefusalError("no roots")
    assert measured(recorder)["error.type"] == "-32602"


def test_a_session_of_a_client_is_measured(recorder: Recorder) -> None:
    recorder.telemetry.served_session_ended({"network.transport": "pipe"}, 12.0)
    (point,) = recorder.points("mcp.server.session.duration")
    assert (point.sum, dict(point.attributes)) == (12.0, {"network.transport": "pipe"})


def test_the_secrets_of_the_servers_are_masked_and_long_names_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CONTENT, "true")
    recorder = Recorder()
    params = {"name": "x" * 10_000, "arguments": {"word": "plain-looking"}, "uri": "db://" + "y" * 10_000}
    request = serve(recorder, params=params, mask=Redactor(["plain-looking"]).mask)
    request.end({"content": [{"type": "text", "text": "plain-looking"}]}, None)
    span = recorder.span()
    assert "plain-looking" not in span.to_json()
    assert len(span.to_json()) < 6_000
    recorder.close()


def test_an_id_and_a_code_of_anyone_are_cut(recorder: Recorder) -> None:
    request = ServedRequest(
        recorder.telemetry, "tools/call", {"name": "a\u202eb"}, request_id="9" * 10_000, about=PLACE
    )
    request.end(None, MCPError(code=123_456, message="no"))
    about = recorder.span().attributes or {}
    assert len(str(about["jsonrpc.request.id"])) == 200
    assert about["gen_ai.tool.name"] == "ab"
    assert measured(recorder)["error.type"] == "other"
