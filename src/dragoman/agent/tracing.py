"""The work of an agent as OpenTelemetry spans and metrics, by the semantic conventions for generative AI.

A question is `invoke_agent`; below it, each request to the model is `chat` and each tool call `execute_tool`,
to which the MCP client adds what it knows of the request to the server. Nothing happens without an SDK.

https://github.com/open-telemetry/semantic-conventions-genai/tree/main/docs/gen-ai, as of 2026.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Self

from dragoman.errors import ModelError
from dragoman.observe.telemetry import (
    EXECUTE_TOOL,
    SCOPE,
    Telemetry,
    cut,
    error_type,
    find,
    harmless,
    message_of,
    place_of,
)
from dragoman.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from opentelemetry.trace import Span

    from dragoman.agent.messages import Answer, Answered, ModelRequest, Provider, ToolCall, Usage
    from dragoman.model import ToolDef, ToolResult

MOST_MODELS = 20
"""Names of models in answers that are values of their own in metrics: whoever answers chooses them."""
TOKEN_BUCKETS = tuple(float(4**power) for power in range(14))
"""The boundaries that the conventions name for numbers of tokens."""
SECONDS_BUCKETS = tuple(0.01 * 2**power for power in range(14))
"""And for the duration of requests to a model."""
PROVIDERS = {
    "responses": "openai",
    "azure": "azure.ai.openai",
    "gemini": "gcp.gemini",
    "kimi": "moonshot_ai",
    "kimi-intl": "moonshot_ai",
}
"""The names of the conventions for ours, where they differ."""


class AgentTracing:
    """Makes the spans of one agent."""

    def __init__(self, mask: Callable[[str], str] | None = None) -> None:
        """Trace nothing until an SDK is found; `mask` removes secrets."""
        self._mask = mask
        self._found: tuple[Telemetry, Any, Any] | None = None
        self._models: set[str] = set()

    def question(self, provider: Provider) -> AgentSpan | nullcontext[None]:
        """Return the span of one question."""
        return self._span("invoke_agent", provider, kind="INTERNAL")

    def chat(self, provider: Provider, request: ModelRequest) -> AgentSpan | nullcontext[None]:
        """Return the span of one request to the model."""
        if self._find() is None:
            return nullcontext()
        asked: dict[str, Any] = {
            "gen_ai.request.max_tokens": request.max_tokens,
            "gen_ai.request.temperature": request.temperature,
            "gen_ai.request.stop_sequences": list(request.stop) or None,
        }
        details = {key: value for key, value in asked.items() if value is not None}
        return self._span("chat", provider, kind="CLIENT", name=f"chat {provider.model}", details=details)

    def tool(self, call: ToolCall, name: str, tool: ToolDef | None) -> AgentSpan | nullcontext[None]:
        """Return the span of one tool call, by the tool's exposed name; the model may make names up."""
        found = self._find()
        if found is None:
            return nullcontext()
        name = cut(name)
        about: dict[str, Any] = {
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": cut(call.id),
            "gen_ai.tool.type": "extension" if tool is not None and tool.server else "function",
        }
        if found[0].has_content:
            about["gen_ai.tool.call.arguments"] = found[0].content(call.arguments)
        return self._span(EXECUTE_TOOL, None, kind="INTERNAL", name=f"{EXECUTE_TOOL} {name}", details=about)

    def _span(
        self,
        operation: str,
        provider: Provider | None,
        *,
        kind: str,
        name: str = "",
        details: Mapping[str, Any] | None = None,
    ) -> AgentSpan | nullcontext[None]:
        found = self._find()
        if found is None:
            return nullcontext()
        about: dict[str, Any] = {"gen_ai.operation.name": operation}
        if provider is not None:
            own = getattr(provider, "provider", "") or provider.api
            about["gen_ai.provider.name"] = PROVIDERS.get(own, own)
            about["gen_ai.request.model"] = provider.model
            if kind == "CLIENT":
                about |= place_of(getattr(provider, "base_url", ""))
        return AgentSpan(found, name or operation, about, details or {}, kind=kind, models=self._models)

    def _find(self) -> tuple[Telemetry, Any, Any] | None:
        """Return what records spans, tokens and durations; an SDK may be set up late."""
        if self._found is None and (telemetry := find()) is not None:
            if self._mask is not None:
                telemetry.mask = self._mask
            from opentelemetry import metrics

            meter = metrics.get_meter(SCOPE, VERSION)
            tokens = meter.create_histogram(
                "gen_ai.client.token.usage",
                unit="{token}",
                description="Tokens that a model read or wrote in one request",
                explicit_bucket_boundaries_advisory=TOKEN_BUCKETS,
            )
            seconds = meter.create_histogram(
                "gen_ai.client.operation.duration",
                unit="s",
                description="The duration of one request to a model",
                explicit_bucket_boundaries_advisory=SECONDS_BUCKETS,
            )
            self._found = (telemetry, tokens, seconds)
        return self._found


class AgentSpan:
    """One span; a context manager, entered and left by the same task."""

    __slots__ = ("_about", "_began", "_details", "_found", "_kind", "_models", "_name", "_span", "_token")

    def __init__(
        self,
        found: tuple[Telemetry, Any, Any],
        name: str,
        about: dict[str, Any],
        details: Mapping[str, Any],
        *,
        kind: str,
        models: set[str],
    ) -> None:
        self._models = models
        """The names of models that have answered."""
        self._found = found
        self._name = name
        self._about = about
        """For the span and the measurements."""
        self._details = details
        self._kind = kind
        self._span: Span | None = None
        self._token: Any = None
        self._began = 0.0

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        telemetry = self._found[0]
        trace = telemetry.api_trace
        with harmless():
            self._span = telemetry.tracer.start_span(
                self._name,
                kind=getattr(trace.SpanKind, self._kind),
                attributes={**self._about, **self._details},
            )
            self._token = telemetry.api_context.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = time.perf_counter() - self._began
        with harmless():
            self._close(exc, seconds)

    def _close(self, exc: BaseException | None, seconds: float) -> None:
        telemetry, _, durations = self._found
        if self._token is not None:
            telemetry.api_context.detach(self._token)
        if exc is not None:
            status = getattr(exc, "status", None) if isinstance(exc, ModelError) else None
            self._failed(str(status or error_type(exc)), message_of(exc, telemetry.mask))
        context = None
        if self._span is not None:
            context = telemetry.api_trace.set_span_in_context(self._span)
            self._span.end()
        if self._kind == "CLIENT":
            durations.record(seconds, self._about, context=context)

    def answered(self, said: Answered) -> None:
        """Record the answer of a model."""
        about = dict(self._about)
        if model := cut(said.model):
            about["gen_ai.response.model"] = model
            if len(self._models) < MOST_MODELS:
                self._models.add(model)
            if model in self._models:
                self._about["gen_ai.response.model"] = model
        self._tell({**about, "gen_ai.response.finish_reasons": [said.finish], **_counts(said.usage)})
        if said.usage.input_tokens or said.usage.output_tokens:
            with harmless():
                for kind in ("input", "output"):
                    about = {**self._about, "gen_ai.token.type": kind}
                    self._found[1].record(getattr(said.usage, f"{kind}_tokens"), about)

    def finished(self, answer: Answer) -> None:
        """Record the answer to a question."""
        self._tell({"gen_ai.response.finish_reasons": [answer.finish], **_counts(answer.usage)})

    def returned(self, result: ToolResult) -> None:
        """Record the result of a tool."""
        if not result.success:
            code = result.exception.code if result.exception is not None else "tool_error"
            self._failed(code, "")
        elif self._found[0].has_content:
            shown = result.structured if result.structured is not None else result.text
            self._tell({"gen_ai.tool.call.result": self._found[0].content(shown)})

    def _failed(self, error: str, message: str) -> None:
        self._about["error.type"] = error
        self._tell({"error.type": error})
        if self._span is not None:
            self._span.set_status(self._found[0].api_trace.StatusCode.ERROR, message or None)

    def _tell(self, about: Mapping[str, Any]) -> None:
        if self._span is not None:
            with harmless():
                self._span.set_attributes(dict(about))


def _counts(usage: Usage) -> dict[str, int]:
    counted = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.written_tokens,
    }
    return {key: value for key, value in counted.items() if value}
