"""Requests to servers as OpenTelemetry spans and metrics, by the semantic conventions for MCP.

Each request that is sent makes one span and one measurement: a call that is sent twice has two, one that is
refused before it is sent has none. The span is current during the request, and the configured propagators put
its context into `params._meta` for the server (SEP-414).

Requests that are served, by the gateway or by a client that a server asks, are in `served_request.py`.

Nothing happens unless the application has set up an OpenTelemetry SDK before a server is connected: else
`find` returns `None` and imports nothing.

Inside the span of another instrumentation that already traces the execution of the tool, a call makes no
second span: its attributes are added to that one.

Arguments and results are recorded only if `CONTENT` is set. They and a server's error message are masked and
cut.
Reported as `error.type`: the JSON-RPC code where the server answered with one, `tool_error`, `timeout`,
`cancelled`, our own stable codes, else the exception's name.

https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md, as of 2026.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from functools import cache
from typing import TYPE_CHECKING, Any, Self

from dragoman.errors import DragomanError, ProtocolError
from dragoman.model import Stdio
from dragoman.struct import Struct, field
from dragoman.trust.addresses import split_url
from dragoman.trust.masking import excerpt, mask_text
from dragoman.trust.redaction import current_redactor
from dragoman.version import VERSION
from dragoman.visible import visible_part

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from opentelemetry.metrics import Histogram, MeterProvider
    from opentelemetry.trace import Span, TracerProvider

    from dragoman.model import Transport

logger = logging.getLogger("dragoman")

SCOPE = "dragoman"
BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Seconds; the boundaries that the conventions name for every duration."""
MAX_MESSAGE_CHARS = 300
MAX_CONTENT_CHARS = 8_192
MAX_NAME_CHARS = 200
MAX_URI_CHARS = 2_000
MAX_CODE = 1_000
"""The largest code of an error that is a value of its own, besides the reserved ones of JSON-RPC."""
_RESERVED_CODES = range(-32_768, -31_999)
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The variable that turns the recording of arguments and results on."""
EXECUTE_TOOL = "execute_tool"
_OPERATION, _TOOL, _METHOD = "gen_ai.operation.name", "gen_ai.tool.name", "mcp.method.name"
_PROMPT = "gen_ai.prompt.name"
_DEFAULT_PORTS = {"http": 80, "https": 443}


class TracedServer(Struct, kw_only=True):
    """The server at the other end of a connection; made once for each connection."""

    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    """Attributes for spans and measurements."""
    session_id: str = ""
    """For spans only; it is different for each session."""

    @classmethod
    def of(
        cls,
        transport: Transport,
        *,
        protocol_version: str = "",
        session_id: str = "",
    ) -> TracedServer:
        """Describe the server behind a transport.

        Args:
            transport: With its variables replaced; only host and port of an address are recorded.
            protocol_version: The negotiated version of MCP.
            session_id: The session of Streamable HTTP, if there is one.
        """
        about: dict[str, Any] = {}
        if protocol_version:
            about["mcp.protocol.version"] = protocol_version
        if isinstance(transport, Stdio):
            about["network.transport"] = "pipe"
        else:
            about |= {
                "network.transport": "tcp",
                "network.protocol.name": "http",
                "network.protocol.version": "1.1",
                **place_of(transport.url),
            }
        return cls(attributes=about, session_id=session_id)


def place_of(url: str) -> dict[str, Any]:
    """Return the host and the port of an address, as attributes."""
    parts = split_url(url)
    if parts is None or not parts.host:
        return {}
    port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    return {"server.address": parts.host, **({} if port is None else {"server.port": port})}


def find() -> Telemetry | None:
    """Return a recorder if the application has set up an OpenTelemetry SDK.

    Such an application has imported the API, so `sys.modules` shows it without an import.
    """
    trace, metrics = sys.modules.get("opentelemetry.trace"), sys.modules.get("opentelemetry.metrics")
    # The SDK imports `trace` alone; importing `metrics` here would block the event loop for nothing.
    providers: list[object] = [trace.get_tracer_provider()] if trace is not None else []
    providers += [metrics.get_meter_provider()] if metrics is not None else []
    if not any(_is_real(type(provider)) for provider in providers):
        return None
    redactor = current_redactor.get()
    return Telemetry(mask=mask_text if redactor is None else redactor.mask)


def records_content() -> bool:
    """Return whether arguments and results are recorded; the values are those of other instrumentations."""
    return os.environ.get(CONTENT, "").strip().lower() in {"true", "1", "span_only", "span_and_event"}


@cache
def _is_real(kind: type) -> bool:
    """Return whether a provider is real; those of the API itself are placeholders."""
    return not kind.__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics"))


class Telemetry:
    """Records requests and sessions, from any task."""

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        mask: Callable[[str], str] = mask_text,
    ) -> None:
        """Record with the given providers, by default the global ones; `mask` removes secrets."""
        from opentelemetry import context, metrics, propagate, trace

        self.mask = mask
        self.has_content = records_content()
        self.api_context, self.api_propagate, self.api_trace = context, propagate, trace
        self.tracer = trace.get_tracer(SCOPE, VERSION, tracer_provider=tracer_provider)
        meter = metrics.get_meter(SCOPE, VERSION, meter_provider=meter_provider)

        def seconds(name: str, about: str) -> Histogram:
            return meter.create_histogram(
                name, unit="s", description=about, explicit_bucket_boundaries_advisory=BUCKETS
            )

        self.operations = seconds(
            "mcp.client.operation.duration", "The time from sending an MCP request until its answer came"
        )
        self._sessions = seconds("mcp.client.session.duration", "The time that an MCP session lasted")
        self.served = seconds(
            "mcp.server.operation.duration",
            "The time from receiving an MCP request until its result was ready",
        )
        self._served_sessions = seconds(
            "mcp.server.session.duration", "The time that an MCP session of a client lasted"
        )

    def request(
        self,
        method: str,
        peer: TracedServer,
        *,
        tool: str = "",
        prompt: str = "",
        resource: str = "",
        arguments: object = None,
    ) -> TracedRequest:
        """Return a context manager around sending one request.

        Args:
            method: As the protocol spells it: `tools/call`.
            peer: The server.
            tool: The server's name of the tool, if one is called.
            prompt: The prompt, if one is requested.
            resource: The URI of the resource; recorded in the span only, not in its name.
            arguments: Of the tool; recorded in the span only, and only if that is turned on.
        """
        about = {_METHOD: method, **peer.attributes}
        if tool:
            about |= {_TOOL: cut(tool), _OPERATION: EXECUTE_TOOL}
        if prompt:
            about[_PROMPT] = cut(prompt)
        details: dict[str, Any] = {}
        if resource:
            details["mcp.resource.uri"] = excerpt(resource, MAX_URI_CHARS, self.mask).text
        if self.has_content and tool:
            details["gen_ai.tool.call.arguments"] = self.content(arguments)
        if peer.session_id:
            details["mcp.session.id"] = cut(peer.session_id)
        name = f"{method} {target}" if (target := cut(tool or prompt)) else method
        return TracedRequest(self, name, about, details)

    def session_ended(self, peer: TracedServer, seconds: float, error: BaseException | None = None) -> None:
        """Record how long a session lasted, and the error that ended it, if any."""
        about = dict(peer.attributes)
        if error is not None:
            about["error.type"] = error_type(error)
        self._sessions.record(seconds, about)

    def served_session_ended(self, about: Mapping[str, Any], seconds: float) -> None:
        """Record how long the session of a client lasted."""
        self._served_sessions.record(seconds, about)

    def content(self, value: object, mask: Callable[[str], str] | None = None) -> str:
        """Return arguments or a result as JSON, masked and cut."""
        text = json.dumps({} if value is None else value, ensure_ascii=False, default=str)
        return excerpt(text, MAX_CONTENT_CHARS, mask or self.mask).text


class TracedRequest:
    """One request; a context manager, entered and left by the task that sends it."""

    __slots__ = (
        "_about",
        "_began",
        "_details",
        "_error",
        "_name",
        "_owns_span",
        "_span",
        "_telemetry",
        "_token",
    )

    def __init__(
        self, telemetry: Telemetry, name: str, about: dict[str, Any], details: dict[str, Any]
    ) -> None:
        self._telemetry = telemetry
        self._name = name
        self._about = about
        """For the span and the measurement."""
        self._details = details
        """For the span only: there are too many different values for a metric."""
        self._span: Span | None = None
        self._owns_span = True
        self._token: Any = None
        self._began = 0.0
        self._error = ""

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        with harmless():
            self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = time.perf_counter() - self._began
        with harmless():
            self._close(exc, seconds)

    def _open(self) -> None:
        trace, context = self._telemetry.api_trace, self._telemetry.api_context
        if self._about.get(_OPERATION) == EXECUTE_TOOL:
            outer = trace.get_current_span()
            if outer.is_recording() and is_execution(outer, self._about[_TOOL]):
                added = {**self._about, **self._details}
                del added[_OPERATION], added[_TOOL]
                outer.set_attributes(added)
                self._span, self._owns_span = outer, False
                return
        span = self._telemetry.tracer.start_span(
            self._name, kind=trace.SpanKind.CLIENT, attributes={**self._about, **self._details}
        )
        self._span = span
        self._token = context.attach(trace.set_span_in_context(span))

    def _close(self, exc: BaseException | None, seconds: float) -> None:
        if self._token is not None:
            self._telemetry.api_context.detach(self._token)
        if exc is not None and not isinstance(exc, DragomanError):
            # The cause says more than the error that the SDK's session raises for it.
            exc = exc.__cause__ if isinstance(exc.__cause__, DragomanError | TimeoutError) else exc
        if exc is not None:
            self.failed(error_type(exc), message_of(exc, self._telemetry.mask))
            if isinstance(exc, ProtocolError) and exc.rpc_code is not None:
                self._tell("rpc.response.status_code", code_of(exc.rpc_code))
        measured = self._about
        if "rpc.response.status_code" in measured:
            # There may be no such prompt: a client of the gateway must not be able to make new series.
            measured = {key: value for key, value in measured.items() if key != _PROMPT}
        context = None
        if self._span is not None:
            # Exemplars link the measurement to its span, which is not current at this point.
            context = self._telemetry.api_trace.set_span_in_context(self._span)
            if self._owns_span:
                self._span.end()
        self._telemetry.operations.record(seconds, measured, context=context)

    def meta(self) -> dict[str, str] | None:
        """Return the `_meta` with which the server continues the trace; `None` if it is empty."""
        carrier: dict[str, str] = {}
        if self._span is not None:
            with harmless():
                self._telemetry.api_propagate.inject(carrier)
        return carrier or None

    def answered(self, outcome: Mapping[str, Any]) -> None:
        """Record the answer, and whether the tool reported an error."""
        if outcome.get("isError") is True:
            self.failed("tool_error")
        elif self._telemetry.has_content and self._span is not None and _TOOL in self._about:
            self._span.set_attribute("gen_ai.tool.call.result", self._telemetry.content(result_of(outcome)))

    def numbered(self, request_id: int | str) -> None:
        """Record the JSON-RPC id of the request."""
        if self._span is not None:
            self._span.set_attribute("jsonrpc.request.id", str(request_id))

    def failed(self, error_type: str, message: str = "") -> None:
        """Record that it failed, and how; only the first call counts."""
        if self._error:
            return
        self._error = error_type
        self._tell("error.type", error_type)
        if self._span is not None and self._owns_span:
            self._span.set_status(self._telemetry.api_trace.StatusCode.ERROR, message or None)

    def _tell(self, key: str, value: str) -> None:
        self._about[key] = value
        # How a span of another instrumentation ends is for that to say: the call may be sent once more.
        if self._span is not None and self._owns_span:
            self._span.set_attribute(key, value)


def is_execution(span: Span, tool: str) -> bool:
    """Return whether a span of another instrumentation is that of this tool's execution.

    A program that calls several tools is executed as one: only the tool that the span names counts, under its
    own or a longer name, and only its first request.
    """
    known: Mapping[str, Any] = getattr(span, "attributes", None) or {}
    if known.get(_OPERATION) != EXECUTE_TOOL or _METHOD in known:
        return False
    named = str(known.get(_TOOL, ""))
    return not named or _plain(named).endswith(_plain(tool))


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


def result_of(outcome: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a result is recorded."""
    return {key: outcome[key] for key in ("content", "structuredContent") if key in outcome}


class _Harmless:
    """Logs errors of the application's samplers, processors and propagators; the call goes on."""

    # Without state, so that one serves all: a generator for each use would cost more than most spans.

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(exc, Exception):
            return False
        logger.error("OpenTelemetry failed to record a request", exc_info=exc)
        return True


_HARMLESS = _Harmless()


def harmless() -> _Harmless:
    """Return a context manager that logs errors of OpenTelemetry instead of raising them."""
    return _HARMLESS


def cut(text: str) -> str:
    """Return a name as an attribute has it: servers, models and clients choose it."""
    return visible_part(text[:MAX_NAME_CHARS])


def code_of(code: int) -> str:
    """Return the code of an error as an attribute: whoever answers must not be able to make new series."""
    return str(code) if code in _RESERVED_CODES or abs(code) <= MAX_CODE else "other"


def error_type(error: BaseException) -> str:
    """Return the class of an error, as the conventions want it."""
    match error:
        case ProtocolError(rpc_code=int() as code):
            return code_of(code)
        case TimeoutError():
            return "timeout"
        case asyncio.CancelledError():
            return "cancelled"
        case DragomanError():
            return error.code
        case _:
            return type(error).__qualname__


def message_of(error: BaseException, mask: Callable[[str], str]) -> str:
    """Return an error's message, masked and cut: it may quote a server."""
    return excerpt(error.message, MAX_MESSAGE_CHARS, mask).text if isinstance(error, DragomanError) else ""
