"""Requests to servers as OpenTelemetry spans and metrics, by the semantic conventions for MCP.

Each request that is sent makes one span and one measurement: a call that is sent twice has two, one that is
refused before it is sent has none. The span is current during the request, and the configured propagators put
its context into `params._meta` for the server (SEP-414).

Nothing happens unless the application has set up an OpenTelemetry SDK before a server is connected: else
`find` returns `None` and imports nothing.

Arguments and results are never recorded. A server's error message is masked and cut.
Reported as `error.type`: the JSON-RPC code where the server answered with one, `tool_error`, `timeout`,
`cancelled`, our own stable codes, else the exception's name.

https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md, as of 2026.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, cast

from dragoman.errors import DragomanError, ProtocolError
from dragoman.model import Stdio
from dragoman.struct import Struct, field
from dragoman.trust.addresses import split_url
from dragoman.trust.masking import excerpt, mask_text
from dragoman.trust.redaction import current_redactor
from dragoman.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from types import TracebackType

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

    from dragoman.model import Transport

logger = logging.getLogger("dragoman")

SCOPE = "dragoman"
BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Seconds; the boundaries that the conventions name for every duration."""
MAX_MESSAGE_CHARS = 300
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
            about |= {"network.transport": "tcp", "network.protocol.name": "http", **_place(transport.url)}
        return cls(attributes=about, session_id=session_id)


def _place(url: str) -> dict[str, Any]:
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
    providers = (trace and trace.get_tracer_provider(), metrics and metrics.get_meter_provider())
    if not any(one is not None and _is_real(one) for one in providers):
        return None
    redactor = current_redactor.get()
    return Telemetry(mask=mask_text if redactor is None else redactor.mask)


def serving(method: str, params: Mapping[str, Any], *, version: str, request_id: object) -> ServerSpan | None:
    """Return a span for a request that a client made of us; `None` without an OpenTelemetry SDK."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or not _is_real(trace.get_tracer_provider()):
        return None
    return ServerSpan(method, params, version=version, request_id=request_id)


class ServerSpan:
    """The span of one request that is served, below the span of the client that made it."""

    def __init__(self, method: str, params: Mapping[str, Any], *, version: str, request_id: object) -> None:
        from opentelemetry import propagate, trace

        name: object = params.get("name")
        target = name if isinstance(name, str) else ""
        about: dict[str, Any] = {
            "mcp.method.name": method,
            "mcp.protocol.version": version,
            "jsonrpc.request.id": str(request_id),
        }
        if method == "tools/call":
            about |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": target}
        elif method == "prompts/get":
            about["gen_ai.prompt.name"] = target
        meta: object = params.get("_meta")
        self._status = trace.StatusCode.ERROR
        self._current = trace.get_tracer(SCOPE, VERSION).start_as_current_span(
            f"{method} {target}" if target else method,
            kind=trace.SpanKind.SERVER,
            attributes=about,
            context=propagate.extract(cast("Any", meta)) if isinstance(meta, dict) else None,
            record_exception=False,
            set_status_on_exception=False,
        )

    def __enter__(self) -> Self:
        self._span: Span = self._current.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._current.__exit__(kind, exc, traceback)

    def end(self, result: Mapping[str, Any] | None, error: Exception | None) -> None:
        """Record how the request ended."""
        if error is not None:
            code = getattr(error, "code", None)
            self._span.set_attribute("error.type", str(code or type(error).__qualname__))
            if code is not None:
                self._span.set_attribute("rpc.response.status_code", str(code))
            self._span.set_status(self._status, excerpt(str(error), MAX_MESSAGE_CHARS, mask_text).text)
        elif result is not None and result.get("isError") is True:
            self._span.set_attribute("error.type", "tool_error")
            self._span.set_status(self._status)


def _is_real(provider: object) -> bool:
    """Return whether a provider is real; those of the API itself are placeholders."""
    return not type(provider).__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics"))


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
        self.api_context, self.api_propagate, self.api_trace = context, propagate, trace
        self.tracer = trace.get_tracer(SCOPE, VERSION, tracer_provider=tracer_provider)
        meter = metrics.get_meter(SCOPE, VERSION, meter_provider=meter_provider)
        self.operations = meter.create_histogram(
            "mcp.client.operation.duration",
            unit="s",
            description="The time from sending an MCP request until its answer came",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        self._sessions = meter.create_histogram(
            "mcp.client.session.duration",
            unit="s",
            description="The time that an MCP session lasted",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )

    def request(
        self, method: str, peer: TracedServer, *, tool: str = "", prompt: str = "", resource: str = ""
    ) -> TracedRequest:
        """Return a context manager around sending one request.

        Args:
            method: As the protocol spells it: `tools/call`.
            peer: The server.
            tool: The server's name of the tool, if one is called.
            prompt: The prompt, if one is requested.
            resource: The URI of the resource; recorded in the span only, not in its name.
        """
        about = {"mcp.method.name": method, **peer.attributes}
        if tool:
            about |= {"gen_ai.tool.name": tool, "gen_ai.operation.name": "execute_tool"}
        if prompt:
            about["gen_ai.prompt.name"] = prompt
        details: dict[str, Any] = {}
        if resource:
            details["mcp.resource.uri"] = self.mask(resource)
        if peer.session_id:
            details["mcp.session.id"] = peer.session_id
        name = f"{method} {target}" if (target := tool or prompt) else method
        return TracedRequest(self, name, about, details)

    def session_ended(self, peer: TracedServer, seconds: float, error: BaseException | None = None) -> None:
        """Record how long a session lasted, and the error that ended it, if any."""
        about = dict(peer.attributes)
        if error is not None:
            about["error.type"] = _error_type(error)
        self._sessions.record(seconds, about)


class TracedRequest:
    """One request; a context manager, entered and left by the task that sends it."""

    __slots__ = (
        "_about",
        "_began",
        "_details",
        "_error",
        "_name",
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
        self._token: Any = None
        self._began = 0.0
        self._error = ""

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        with _harmless():
            self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = time.perf_counter() - self._began
        with _harmless():
            self._close(exc, seconds)

    def _open(self) -> None:
        trace, context = self._telemetry.api_trace, self._telemetry.api_context
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
            self.failed(_error_type(exc), _message(exc, self._telemetry.mask))
            if isinstance(exc, ProtocolError) and exc.rpc_code is not None:
                self._tell("rpc.response.status_code", str(exc.rpc_code))
        context = None
        if self._span is not None:
            # Exemplars link the measurement to its span, which is not current at this point.
            context = self._telemetry.api_trace.set_span_in_context(self._span)
            self._span.end()
        self._telemetry.operations.record(seconds, self._about, context=context)

    def meta(self) -> dict[str, str] | None:
        """Return the `_meta` with which the server continues the trace; `None` if it is empty."""
        carrier: dict[str, str] = {}
        if self._span is not None:
            with _harmless():
                self._telemetry.api_propagate.inject(carrier)
        return carrier or None

    def answered(self, *, is_error: bool) -> None:
        """Record whether the tool reported an error."""
        if is_error:
            self.failed("tool_error")

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
        if self._span is not None:
            self._span.set_status(self._telemetry.api_trace.StatusCode.ERROR, message or None)

    def _tell(self, key: str, value: str) -> None:
        self._about[key] = value
        if self._span is not None:
            self._span.set_attribute(key, value)


@contextmanager
def _harmless() -> Generator[None]:
    """Log errors of the application's samplers, processors and propagators; the call goes on."""
    try:
        yield
    except Exception:
        logger.exception("OpenTelemetry failed to record a request")


def _error_type(error: BaseException) -> str:
    match error:
        case ProtocolError(rpc_code=int() as code):
            return str(code)
        case TimeoutError():
            return "timeout"
        case asyncio.CancelledError():
            return "cancelled"
        case DragomanError():
            return error.code
        case _:
            return type(error).__qualname__


def _message(error: BaseException, mask: Callable[[str], str]) -> str:
    """Return an error's message, masked and cut: it may quote a server."""
    return excerpt(error.message, MAX_MESSAGE_CHARS, mask).text if isinstance(error, DragomanError) else ""
