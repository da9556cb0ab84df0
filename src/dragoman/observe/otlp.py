"""Send spans and metrics of the program to a collector, if the usual variables of OpenTelemetry say where.

For the commands of the terminal: an application sets its own SDK up. The SDK and the exporter are the extra
`otel`; they are imported in a thread, and only if they are wanted.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dragoman.observe.telemetry import find
from dragoman.version import VERSION, install_command

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
SIGNALS = ("TRACES", "METRICS")
FLUSH_SECONDS = 3.0
"""How long the end of the program waits for a collector."""

logger = logging.getLogger("dragoman")


def wanted_signals(env: Mapping[str, str]) -> list[str]:
    """Return which of `SIGNALS` the variables send somewhere."""
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    return [
        signal
        for signal in SIGNALS
        if (env.get(ENDPOINT) or env.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"))
        and env.get(f"OTEL_{signal}_EXPORTER", "otlp").strip().lower() == "otlp"
    ]


@asynccontextmanager
async def exporting(service: str, env: Mapping[str, str] | None = None) -> AsyncGenerator[None]:
    """Export what happens inside, if the environment says where; send what is left at the end.

    Args:
        service: The name of the service, unless `OTEL_SERVICE_NAME` or a resource attribute has another.
        env: The environment of this process; for tests.
    """
    signals = wanted_signals(os.environ if env is None else env)
    stop: Callable[[], None] | None = None
    if signals and find() is None:
        stop = await asyncio.to_thread(_start, service, signals)
    try:
        yield
    finally:
        if stop is not None:
            # A thread that nothing waits for: a collector that does not answer must not hold the end up.
            ending = threading.Thread(target=stop, name="dragoman otlp", daemon=True)
            ending.start()
            await asyncio.to_thread(ending.join, FLUSH_SECONDS)


def _start(service: str, signals: list[str]) -> Callable[[], None] | None:
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    if protocol != "http/protobuf":
        logger.warning("`OTEL_EXPORTER_OTLP_PROTOCOL=%s` is not supported: use `http/protobuf`", protocol)
        return None
    if find_spec("opentelemetry.sdk") is None or find_spec("opentelemetry.exporter") is None:
        told = "`%s` is set, but nothing is exported: the packages are not installed (%s)"
        logger.warning(told, ENDPOINT, install_command("otel"))
        return None
    from opentelemetry import metrics, trace
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    theirs = logging.getLogger("opentelemetry")
    theirs.addHandler(_OwnLog(logging.WARNING))
    theirs.propagate = False
    about = {"service.name": service, "service.version": VERSION}
    # What the variables say wins over our own words.
    resource = Resource(about).merge(Resource.create())
    if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": service}))
    providers: list[Any] = []
    if "TRACES" in signals:
        tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(tracers)
        providers.append(tracers)
    if "METRICS" in signals:
        reader = PeriodicExportingMetricReader(OTLPMetricExporter())
        meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        metrics.set_meter_provider(meters)
        providers.append(meters)

    def stop() -> None:
        for provider in providers:
            provider.shutdown()

    return stop


class _OwnLog(logging.Handler):
    """Writes what OpenTelemetry says to our log: standard error may be a terminal in use."""

    def emit(self, record: logging.LogRecord) -> None:
        logger.warning("OpenTelemetry: %s", record.getMessage())
