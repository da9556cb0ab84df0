"""What the dashboard says of a server and of a call, as short texts; nothing is drawn here.

Everything that comes from a server or a file is made harmless and fits on one line.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text

from dragoman.cli.output import one_line, safe

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dragoman.model import ServerStatus
    from dragoman.observe.metrics import ServerMetrics

BARS = "▁▂▃▄▅▆▇█"
MODERN = "2026-07-28"
"""From this version of the protocol on, a connection needs no handshake."""

# Colour is never alone: the mark and the word say the same.
_STATES = {
    "idle": ("○", "idle", "dim"),
    "connecting": ("◐", "connecting", "yellow"),
    "ready": ("●", "ready", "green"),
    "degraded": ("◑", "degraded", "yellow"),
    "backoff": ("◌", "backoff", "yellow"),
    "needs_auth": ("◉", "needs login", "magenta"),
    "failed": ("✗", "failed", "red"),
    "closed": ("○", "closed", "dim"),
}
_OFF = ("○", "off", "dim")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReading:
    """One server as it is shown; every field is harmless text."""

    name: str
    state: Text
    transport: str
    era: str
    tools: str
    spark: str
    latency: str
    in_flight: str
    calls: str
    errors: str
    note: Text
    """What went wrong and what comes next, else who the server says it is."""


def read_server(
    status: ServerStatus, metrics: ServerMetrics | None, *, is_on: bool, bars: int = 10
) -> ServerReading:
    """Put a server's status and counts into words."""
    mark, word, style = _STATES[status.state.value] if is_on else _OFF
    version = status.protocol_version
    calls = metrics.calls if metrics else 0
    failed = metrics.failed if metrics else 0
    return ServerReading(
        name=one_line(status.name),
        state=Text(f"{mark} {word}", style),
        transport=status.transport,
        era="" if version is None else "modern" if version >= MODERN else "legacy",
        tools=str(status.tools) if status.tools else "",
        spark=spark(metrics.recent if metrics else (), bars),
        latency=took(metrics.latency.p50) if metrics and metrics.latency.count else "",
        in_flight=str(metrics.in_flight) if metrics and metrics.in_flight else "",
        calls=str(calls) if calls else "",
        errors=str(failed) if failed else "",
        note=note_of(status, is_on=is_on),
    )


def note_of(status: ServerStatus, *, is_on: bool = True) -> Text:
    """Say what is wrong with a server and when it is tried again, else who it is."""
    if not is_on:
        return Text("switched off: e switches it on", "dim")
    if status.state.value == "needs_auth":
        return Text("l logs in", "magenta")
    pieces: list[tuple[str, str]] = []
    if status.retry_in is not None:
        often = ", it keeps failing" if status.crash_loop else ""
        pieces.append((f"next try in {took(status.retry_in, coarse=True)}{often}", "yellow"))
    if status.last_error:
        pieces.append((one_line(status.last_error), "red"))
    if not pieces:
        named = " ".join(part for part in (status.server_name, status.server_version) if part)
        pieces.append((one_line(named), "dim"))
        if status.pid is not None:
            pieces.append((f"pid {status.pid}", "dim"))
    return Text(" · ").join(Text(text, style) for text, style in pieces if text)


def spark(durations: Sequence[float], bars: int) -> str:
    """Draw the latest durations as bars, the tallest for the longest of them; the newest is at the right."""
    shown = durations[-bars:]
    top = max(shown, default=0.0)
    if top <= 0:
        return BARS[0] * len(shown)
    return "".join(BARS[min(len(BARS) - 1, int(one / top * len(BARS)))] for one in shown)


def took(seconds: float, *, coarse: bool = False) -> str:
    """Write a duration in at most seven columns; coarse ones have no fractions, so that they tick."""
    if coarse:
        return f"{max(0, round(seconds))} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    if seconds < 0.001:
        return "<1 ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"


def clock_time(at: float) -> str:
    """Write a moment as the local time of day."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def arguments_line(arguments: Any) -> str:
    """Write arguments on one line, as a person would in a call: `a=1, b="x"`."""
    if arguments is None or arguments == {}:
        return ""
    if not isinstance(arguments, dict):
        return one_line(compact(arguments))
    fields: dict[str, Any] = arguments  # pyright: ignore[reportUnknownVariableType] -- it comes from JSON
    return safe(", ".join(f"{key}={compact(value)}" for key, value in fields.items()))


def compact(value: Any) -> str:
    """Write a value as JSON, on one line."""
    return " ".join(json.dumps(value, ensure_ascii=False, default=str).split())


def pretty(value: Any) -> str:
    """Write a value as JSON for a person, harmless for the terminal."""
    return safe(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def summary(statuses: Iterable[ServerStatus], metrics: Mapping[str, ServerMetrics]) -> str:
    """Say in one line how things stand."""
    states = [status.state.value for status in statuses]
    running = sum(one.in_flight for one in metrics.values())
    calls = sum(one.calls for one in metrics.values())
    failed = sum(one.failed for one in metrics.values())
    ready = states.count("ready")
    return " · ".join(
        (
            f"{ready} of {len(states)} server{'s' * (len(states) != 1)} ready",
            f"{running} running",
            f"{calls} call{'s' * (calls != 1)}",
            f"{failed} failed",
        )
    )
