"""What the gateway shows of itself: an access log with masked arguments, metrics, and spans."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dragoman.call import summary
from dragoman.observe.served_request import ServedRequest
from dragoman.observe.telemetry import TracedServer, find, harmless
from dragoman.server.protocol.envelope import MCPError
from dragoman.trust.masking import mask_text
from dragoman.trust.sanitizing import for_log

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from dragoman.gateway.connection import ClientConnection
    from dragoman.gateway.request import ClientRequest
    from dragoman.manager.manager import McpManager
    from dragoman.observe.telemetry import Telemetry

access = logging.getLogger("dragoman.access")

SHOWN_CHARS = 200
"""How much of a name or a URI a line of the access log has."""
OTHER = "other"
"""The label of methods that are not known: a client must not be able to make new ones."""
_SUBJECTS = ("name", "uri", "ref")
_COUNTERS = {"calls": "Calls of a server's tools.", "failed": "Calls that failed."}


class Seen:
    """How a request ended."""

    __slots__ = ("began", "error", "result", "traced")

    def __init__(self, traced: ServedRequest | None) -> None:
        self.began = time.monotonic()
        self.traced = traced
        self.result: Mapping[str, Any] | None = None
        self.error: Exception | None = None

    @property
    def outcome(self) -> str:
        """`ok`, `error` for a failed call, `refused` with its code, or `cancelled`."""
        if self.error is not None:
            return f"refused {self.error.code}" if isinstance(self.error, MCPError) else "refused"
        if self.result is None:
            return "cancelled"
        return "error" if self.result.get("isError") is True else "ok"


class RequestObserver:
    """Counts and logs every request."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str]] = Counter()
        """By method and outcome."""
        self._seconds: Counter[str] = Counter()
        self.in_progress = 0
        self._idle = asyncio.Event()
        self.refused: Counter[str] = Counter()
        """HTTP requests that were refused, by reason."""
        self._ended: Counter[tuple[str, str]] = Counter()
        """What was counted for users who have ended, by counter and server: a counter never falls."""
        self._telemetry: Telemetry | None = None

    def begin(
        self, request: ClientRequest, *, is_known: bool, mask: Callable[[str], str] = mask_text
    ) -> Seen:
        """Begin to count a request.

        Args:
            request: The request.
            is_known: Whether its method is one that is answered.
            mask: Removes the secrets of the servers.
        """
        self.in_progress += 1
        telemetry = self.telemetry
        if telemetry is None:
            return Seen(None)
        traced = ServedRequest(
            telemetry,
            request.method,
            request.params,
            request_id=request.id,
            about={"mcp.protocol.version": request.version, **request.place},
            session_id=request.client.key if request.client is not None else "",
            label="" if is_known else OTHER,
            mask=mask,
        )
        return Seen(traced)

    @property
    def telemetry(self) -> Telemetry | None:
        """What records spans and measurements; `None` without an OpenTelemetry SDK."""
        if self._telemetry is None:
            self._telemetry = find()
        return self._telemetry

    @contextmanager
    def asking(self, method: str, client: ClientConnection, number: str) -> Generator[Mapping[str, str]]:
        """Trace a question to a client; yields what its parameters carry in `_meta`."""
        telemetry = self.telemetry
        if telemetry is None:
            yield {}
            return
        peer = TracedServer(attributes=_connection(client), session_id=client.key)
        with telemetry.request(method, peer) as traced:
            traced.numbered(number)
            yield traced.meta() or {}

    def session_ended(self, client: ClientConnection) -> None:
        """Measure how long a client stayed."""
        if (telemetry := self.telemetry) is not None and client.version:
            with harmless():
                telemetry.served_session_ended(_connection(client), time.monotonic() - client.began)

    def end(self, request: ClientRequest, seen: Seen, *, is_known: bool) -> None:
        """Count how it ended.

        Args:
            request: The request.
            seen: What `begin` returned, with its result or its error.
            is_known: Whether its method is one that is answered.
        """
        if seen.traced is not None:
            is_cancelled = seen.result is None and seen.error is None
            seen.traced.end(seen.result, asyncio.CancelledError() if is_cancelled else seen.error)
        self.in_progress -= 1
        if not self.in_progress:
            self._idle.set()
        seconds, outcome = time.monotonic() - seen.began, seen.outcome
        method = request.method if is_known else OTHER
        self._requests[method, outcome.partition(" ")[0]] += 1
        self._seconds[method] += seconds  # pyright: ignore[reportArgumentType] -- a counter of seconds
        if access.isEnabledFor(logging.INFO):
            access.info("%s", _line(request, method, outcome, seconds))

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

    def keep(self, manager: McpManager) -> None:
        """Keep the counters of a user's manager that is about to end."""
        for name, read in manager.metrics().items():
            for key in _COUNTERS:
                self._ended[key, name] += getattr(read, key)

    def metrics(self, managers: Iterable[McpManager]) -> str:
        """Return all metrics in the text format of Prometheus, with those of these managers' servers."""
        requests = (
            (_labels(method=method, outcome=outcome), count)
            for (method, outcome), count in sorted(self._requests.items())
        )
        seconds = (
            (_labels(method=method), f"{spent:.6f}") for method, spent in sorted(self._seconds.items())
        )
        refused = ((_labels(reason=reason), count) for reason, count in sorted(self.refused.items()))
        return "".join(
            [
                _family("gateway_requests_total", "Requests of clients, by method and outcome.", requests),
                _family("gateway_request_seconds_total", "Time spent on requests, by method.", seconds),
                _family("gateway_requests_in_progress", "Requests in progress.", [("", self.in_progress)]),
                _family("gateway_refused_total", "HTTP requests that were refused, by reason.", refused),
                server_metrics(managers, self._ended),
            ]
        )


def _connection(client: ClientConnection) -> dict[str, Any]:
    """Return the attributes of a connection; there are too many clients for the address to be one."""
    about = {"mcp.protocol.version": client.version, **client.place}
    return {key: value for key, value in about.items() if not key.startswith("client.")}


def server_metrics(managers: Iterable[McpManager], ended: Mapping[tuple[str, str], int] | None = None) -> str:
    """Return metrics of servers in the text format of Prometheus.

    Args:
        managers: Whose servers.
        ended: What managers have counted that are no more, by counter and server.
    """
    up: dict[str, int] = {}
    total: Counter[tuple[str, str]] = Counter(ended or {})
    for manager in managers:
        for name, status in manager.status().items():
            up[name] = max(up.get(name, 0), int(status.state.value in ("ready", "degraded")))
        for name, read in manager.metrics().items():
            for key in _COUNTERS:
                total[key, name] += getattr(read, key)
    states = ((_labels(server=name), value) for name, value in sorted(up.items()))
    families = [_family("server_up", "Whether a server is ready, for one user at least.", states)]
    for key, about in _COUNTERS.items():
        counts = (
            (_labels(server=name), value)
            for (counted, name), value in sorted(total.items())
            if counted == key
        )
        families.append(_family(f"server_{key}_total", about, counts))
    return "".join(families)


def _family(name: str, about: str, rows: Iterable[tuple[str, object]]) -> str:
    """Return all values of one metric; a name that ends with `_total` is one of a counter."""
    kind = "counter" if name.endswith("_total") else "gauge"
    lines = [f"# HELP dragoman_{name} {about}", f"# TYPE dragoman_{name} {kind}"]
    return "\n".join([*lines, *(f"dragoman_{name}{labels} {value}" for labels, value in rows), ""])


def _labels(**labels: str) -> str:
    shown = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{shown}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _line(request: ClientRequest, method: str, outcome: str, seconds: float) -> str:
    params = request.params
    subject = next((str(params[key]) for key in _SUBJECTS if key in params), "")
    arguments = summary(params["arguments"]) if params.get("arguments") else ""
    facts = [method, for_log(subject, SHOWN_CHARS), arguments, outcome, f"{seconds * 1000:.1f} ms"]
    if request.principal:
        facts.append(f"by {for_log(request.principal, SHOWN_CHARS)}")
    return " ".join(fact.replace("\n", " ") for fact in facts if fact)
