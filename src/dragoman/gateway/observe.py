"""What the gateway shows of itself: an access log with masked arguments, and metrics for Prometheus."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from dragoman.call import summary
from dragoman.gateway.principal import principal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

    from dragoman.manager.manager import McpManager

access = logging.getLogger("dragoman.access")

_SUBJECTS = ("name", "uri", "ref")


class Observer:
    """A middleware of the SDK's server that counts and logs every request."""

    def __init__(self, mcp: McpManager) -> None:
        self._mcp = mcp
        self._requests: Counter[tuple[str, str]] = Counter()
        """By method and outcome."""
        self._seconds: Counter[str] = Counter()
        self.in_progress = 0
        self._idle = asyncio.Event()
        self.refused: Counter[str] = Counter()
        """HTTP requests that were refused, by reason."""

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Handle one request or notification."""
        if ctx.request_id is None:
            return await call_next(ctx)
        began, outcome = time.monotonic(), "cancelled"
        self.in_progress += 1
        try:
            result = await call_next(ctx)
            outcome = "error" if isinstance(result, dict) and result.get("isError") is True else "ok"
            return result
        except Exception as exc:
            outcome = f"refused {getattr(exc, 'code', '')}".strip()
            raise
        finally:
            self.in_progress -= 1
            if not self.in_progress:
                self._idle.set()
            seconds = time.monotonic() - began
            self._requests[ctx.method, outcome.partition(" ")[0]] += 1
            self._seconds[ctx.method] += seconds  # pyright: ignore[reportArgumentType] -- a counter of seconds
            if access.isEnabledFor(logging.INFO):
                access.info("%s", _line(ctx, outcome, seconds))

    def refuse(self, reason: str, client: Any) -> None:
        """Count and log an HTTP request that was not let in."""
        reason = reason.partition(":")[0]
        self.refused[reason] += 1
        access.warning("refused a request of %s: %s", client[0] if client else "-", reason)

    async def wait_idle(self) -> None:
        """Wait until no request is in progress."""
        while self.in_progress:
            self._idle.clear()
            await self._idle.wait()

    def metrics(self) -> str:
        """Return all metrics in the text format of Prometheus."""
        return "\n".join([*self._own(), *_of_servers(self._mcp), ""])

    def _own(self) -> Iterator[str]:
        yield "# HELP dragoman_gateway_requests_total Requests of clients, by method and outcome."
        yield "# TYPE dragoman_gateway_requests_total counter"
        for (method, outcome), count in sorted(self._requests.items()):
            yield f"dragoman_gateway_requests_total{_labels(method=method, outcome=outcome)} {count}"
        yield "# HELP dragoman_gateway_request_seconds_total Time spent on requests, by method."
        yield "# TYPE dragoman_gateway_request_seconds_total counter"
        for method, seconds in sorted(self._seconds.items()):
            yield f"dragoman_gateway_request_seconds_total{_labels(method=method)} {seconds:.6f}"
        yield "# HELP dragoman_gateway_requests_in_progress Requests in progress."
        yield "# TYPE dragoman_gateway_requests_in_progress gauge"
        yield f"dragoman_gateway_requests_in_progress {self.in_progress}"
        yield "# HELP dragoman_gateway_refused_total HTTP requests that were refused, by reason."
        yield "# TYPE dragoman_gateway_refused_total counter"
        for reason, count in sorted(self.refused.items()):
            yield f"dragoman_gateway_refused_total{_labels(reason=reason)} {count}"


def _of_servers(mcp: McpManager) -> Iterator[str]:
    yield "# HELP dragoman_server_up Whether a server is ready."
    yield "# TYPE dragoman_server_up gauge"
    for name, status in sorted(mcp.status().items()):
        up = int(status.state.value in ("ready", "degraded"))
        yield f"dragoman_server_up{_labels(server=name)} {up}"
    metrics = sorted(mcp.metrics().items())
    for key, about in (("calls", "Calls of a server's tools."), ("failed", "Calls that failed.")):
        yield f"# HELP dragoman_server_{key}_total {about}"
        yield f"# TYPE dragoman_server_{key}_total counter"
        for name, read in metrics:
            yield f"dragoman_server_{key}_total{_labels(server=name)} {getattr(read, key)}"


def _labels(**labels: str) -> str:
    shown = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{shown}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _line(ctx: ServerRequestContext[Any, Any], outcome: str, seconds: float) -> str:
    params: Mapping[str, Any] = ctx.params or {}
    subject = next((str(params[key]) for key in _SUBJECTS if key in params), "")
    arguments = summary(params["arguments"]) if params.get("arguments") else ""
    facts = (principal() or "-", ctx.method, subject, arguments, outcome, f"{seconds * 1000:.1f} ms")
    return " ".join(fact.replace("\n", " ") for fact in facts if fact)
