"""A collector of OpenTelemetry over HTTP, which keeps what it gets: `async with Collector() as collector`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

KINDS = {1: "INTERNAL", 2: "SERVER", 3: "CLIENT"}


@dataclass(frozen=True)
class Span:
    """One span."""

    service: str
    name: str
    kind: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    is_error: bool


@dataclass(frozen=True)
class Point:
    """One series of a histogram."""

    service: str
    name: str
    unit: str
    count: int
    bounds: tuple[float, ...]
    attributes: dict[str, Any]


class Collector:
    """Listens on this machine; `spans` and `points` have all that came."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.points: list[Point] = []
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/v1/traces", self._take_traces)
        app.router.add_post("/v1/metrics", self._take_metrics)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    def named(self, service: str, name: str) -> list[Span]:
        """Return the spans of a service with this name."""
        return [span for span in self.spans if (span.service, span.name) == (service, name)]

    def measured(self, service: str, name: str) -> list[Point]:
        """Return the series of a metric."""
        return [point for point in self.points if (point.service, point.name) == (service, name)]

    async def _take_traces(self, request: web.Request) -> web.Response:
        sent = ExportTraceServiceRequest.FromString(await request.read())
        for resource in sent.resource_spans:
            service = read(resource.resource.attributes)["service.name"]
            for scope in resource.scope_spans:
                self.spans += [
                    Span(
                        service,
                        span.name,
                        KINDS.get(span.kind, ""),
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        read(span.attributes),
                        span.status.code == 2,
                    )
                    for span in scope.spans
                ]
        return web.Response(content_type="application/x-protobuf")

    async def _take_metrics(self, request: web.Request) -> web.Response:
        sent = ExportMetricsServiceRequest.FromString(await request.read())
        for resource in sent.resource_metrics:
            service = read(resource.resource.attributes)["service.name"]
            for scope in resource.scope_metrics:
                self.points += [
                    Point(
                        service,
                        metric.name,
                        metric.unit,
                        point.count,
                        tuple(point.explicit_bounds),
                        read(point.attributes),
                    )
                    for metric in scope.metrics
                    for point in metric.histogram.data_points
                ]
        return web.Response(content_type="application/x-protobuf")


def read(attributes: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in attributes:
        kind = one.value.WhichOneof("value")
        value = getattr(one.value, kind) if kind else None
        found[one.key] = [item.string_value for item in value.values] if kind == "array_value" else value
    return found
