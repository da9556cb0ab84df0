"""Requests that are served, as OpenTelemetry spans and metrics: of the gateway's clients, and of servers.

The span continues the trace whose context is in `params._meta`, and links the span that is current, such as
that of the HTTP request. Nothing happens without an OpenTelemetry SDK; see `telemetry.find`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self, cast

from dragoman.observe.telemetry import (
    EXECUTE_TOOL,
    MAX_MESSAGE_CHARS,
    MAX_URI_CHARS,
    code_of,
    cut,
    error_type,
    harmless,
    result_of,
)
from dragoman.trust.masking import excerpt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from opentelemetry.trace import Span

    from dragoman.observe.telemetry import Telemetry, TracedServer

ASKED = frozenset({"elicitation/create", "sampling/createMessage", "roots/list", "ping"})
"""What a server may ask a client; other methods have no place in a metric."""
_TOOL_CALL = "tools/call"


class ServedRequest:
    """One request; a context manager, entered and left by the task that answers it."""

    __slots__ = ("_about", "_began", "_error", "_mask", "_span", "_telemetry", "_token")

    def __init__(
        self,
        telemetry: Telemetry,
        method: str,
        params: Mapping[str, Any],
        *,
        request_id: object,
        about: Mapping[str, Any],
        session_id: str = "",
        label: str = "",
        mask: Callable[[str], str] | None = None,
    ) -> None:
        """Begin a span.

        Args:
            telemetry: Records it.
            method: As the protocol spells it.
            params: The parameters of the request; not trusted.
            request_id: Its JSON-RPC id.
            about: Attributes of the connection and of the one who asks.
            session_id: The session, if there is one.
            label: The method in names and measurements, where the method is anyone's word.
            mask: Removes the secrets of those who are asked; that of `telemetry` unless given.
        """
        self._telemetry = telemetry
        self._mask = mask or telemetry.mask
        self._error = ""
        self._began = time.perf_counter()
        self._span: Span | None = None
        self._token: Any = None
        self._about: dict[str, Any] = {"mcp.method.name": label or method}
        details: dict[str, Any] = {"jsonrpc.request.id": cut(str(request_id))}
        for key, value in about.items():
            # There are too many clients for a metric.
            (details if key.startswith("client.") else self._about)[key] = value
        if session_id:
            details["mcp.session.id"] = cut(session_id)
        with harmless():
            self._open(method, params, details)

    def _open(self, method: str, params: Mapping[str, Any], details: dict[str, Any]) -> None:
        telemetry = self._telemetry
        trace, name = telemetry.api_trace, params.get("name")
        target = cut(name) if isinstance(name, str) else ""
        if method == _TOOL_CALL:
            self._about |= {"gen_ai.operation.name": EXECUTE_TOOL, "gen_ai.tool.name": target}
            if telemetry.has_content:
                details["gen_ai.tool.call.arguments"] = telemetry.content(params.get("arguments"), self._mask)
        elif method == "prompts/get":
            self._about["gen_ai.prompt.name"] = target
        else:
            target = ""
        uri: object = params.get("uri")
        if isinstance(uri, str) and uri:
            details["mcp.resource.uri"] = excerpt(uri, MAX_URI_CHARS, self._mask).text
        meta: object = params.get("_meta")
        # Only the keys of the propagators are read; whatever else a client writes there is not ours.
        carrier = _texts(cast("dict[str, Any]", meta)) if isinstance(meta, dict) else {}
        remote = telemetry.api_propagate.extract(carrier) if carrier else None
        ambient = trace.get_current_span().get_span_context()
        parent = None if remote is None else trace.get_current_span(remote).get_span_context()
        is_continued = parent is not None and parent.is_valid and parent.span_id != ambient.span_id
        label = self._about["mcp.method.name"]
        self._span = telemetry.tracer.start_span(
            f"{label} {target}" if target else label,
            context=remote if is_continued else None,
            kind=trace.SpanKind.SERVER,
            links=[trace.Link(ambient)] if is_continued and ambient.is_valid else (),
            attributes={**self._about, **details},
        )
        context = trace.set_span_in_context(self._span, remote if is_continued else None)
        self._token = telemetry.api_context.attach(context)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(None, exc)

    def end(self, result: Mapping[str, Any] | None, error: BaseException | None) -> None:
        """Record how the request ended; only the first call counts."""
        if self._token is None and self._span is None:
            return
        with harmless():
            self._close(result, error)

    def _close(self, result: Mapping[str, Any] | None, error: BaseException | None) -> None:
        span, token, telemetry = self._span, self._token, self._telemetry
        self._span = self._token = None
        if token is not None:
            telemetry.api_context.detach(token)
        told: dict[str, str] = {}
        message = ""
        if error is not None:
            code = getattr(error, "code", None)
            is_rpc = isinstance(code, int)
            told["error.type"] = code_of(code) if is_rpc else error_type(error)
            if is_rpc:
                told["rpc.response.status_code"] = told["error.type"]
            message = excerpt(str(error), MAX_MESSAGE_CHARS, self._mask).text
        elif result is not None and result.get("isError") is True:
            told["error.type"] = "tool_error"
        self._about |= told
        context = None
        if span is not None:
            span.set_attributes(told)
            if told:
                span.set_status(telemetry.api_trace.StatusCode.ERROR, message or None)
            elif result is not None and telemetry.has_content and "gen_ai.tool.name" in self._about:
                span.set_attribute(
                    "gen_ai.tool.call.result", telemetry.content(result_of(result), self._mask)
                )
            context = telemetry.api_trace.set_span_in_context(span)
            span.end()
        if "rpc.response.status_code" in told:
            # The tool may not exist: a client must not be able to make new series.
            for name in ("gen_ai.tool.name", "gen_ai.prompt.name"):
                self._about.pop(name, None)
        telemetry.served.record(time.perf_counter() - self._began, self._about, context=context)


def served(
    telemetry: Telemetry,
    peer: TracedServer,
    method: str,
    params: Mapping[str, Any] | None,
    request_id: object,
) -> ServedRequest:
    """Return the trace of a question that a server asks its client."""
    about = {key: value for key, value in peer.attributes.items() if not key.startswith("server.")}
    label = method if method in ASKED else "other"
    return ServedRequest(
        telemetry,
        method,
        params or {},
        request_id=request_id,
        about=about,
        session_id=peer.session_id,
        label=label,
    )


def _texts(meta: dict[str, Any]) -> dict[str, str]:
    known = ((key, meta.get(key)) for key in ("traceparent", "tracestate", "baggage"))
    return {key: value for key, value in known if isinstance(value, str)}
