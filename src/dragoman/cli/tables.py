"""Tables and views for `rich`: servers, tools, results. The caller prints them."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dragoman.cli.arguments import pieces
from dragoman.cli.options import typed
from dragoman.cli.output import NO_SERVERS, cut, indented, one_line, safe
from dragoman.diagnosis.explain import explain, explain_status, state_word
from dragoman.diagnosis.fleet import broken_entries
from dragoman.tools.result.render import describe, is_carried

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType

    from dragoman.diagnosis.doctor import Diagnosis
    from dragoman.diagnosis.explain import Explanation
    from dragoman.events import ConfigReloaded
    from dragoman.model import ServerSpec, ServerStatus, Settings, ToolDef, ToolResult
    from dragoman.observe.metrics import ServerMetrics

LONGEST_NAME = 24
_FIGURES = 4
"""The first column with numbers, which are aligned right."""
LONGEST_ABOUT = 160
"""Columns for the description in a list of tools; some servers write a page."""
SHORT_DATA = 200
"""Structured data up to this many characters is shown in addition to text."""

_STATES = {
    "idle": ("dim", "○"),
    "connecting": ("yellow", "◐"),
    "ready": ("green", "●"),
    "degraded": ("yellow", "●"),
    "backoff": ("yellow", "◌"),
    "needs_auth": ("magenta", "◉"),
    "failed": ("red", "✗"),
    "closed": ("dim", "○"),
}


def status_table(statuses: Iterable[ServerStatus]) -> Table:
    """Return a table of servers: state, transport, protocol, tools, last error."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("server", "state", "transport", "protocol", "tools"):
        table.add_column(name, no_wrap=True, justify="right" if name == "tools" else "left")
    table.add_column("", overflow="fold")
    for status in statuses:
        style, mark = _STATES[status.state.value]
        version = " ".join(part for part in (status.server_name, status.server_version) if part)
        found = explain_status(status)
        note = (
            Text(safe(found.cause), style="red")
            if found and status.last_error
            else Text(safe(version), "dim")
        )
        table.add_row(
            Text(safe(status.name), style="bold"),
            Text(f"{mark} {state_word(status)}", style=style),
            status.transport,
            status.protocol_version or "",
            str(status.tools) if status.tools else "",
            note,
        )
    return table


def servers_view(
    statuses: Iterable[ServerStatus], metrics: Mapping[str, ServerMetrics], settings: Settings | None = None
) -> RenderableType:
    """Return the servers with their calls and latency, and the cause below each that is not ready.

    Args:
        statuses: The servers.
        metrics: Their calls.
        settings: Their configuration, for exact causes; its broken entries are shown at the end.
    """
    rows = [(status, metrics.get(status.name)) for status in statuses]
    broken = broken_view(settings) if settings is not None else []
    if not rows and broken:
        return Group(*broken)
    if not rows:
        return Text(NO_SERVERS, style="dim")
    heads = ("server", "state", "transport", "protocol", "tools", "calls", "errors", "p50", "p95")
    cells = [_server_cells(status, metered) for status, metered in rows]
    widths = [max(cell_len(line[at]) for line in [heads, *cells]) for at in range(len(heads))]
    # Long names are cut, so that the numbers stay on one line.
    lines: list[RenderableType] = [
        Text(_aligned(heads, widths), style="dim", no_wrap=True, overflow="ellipsis")
    ]
    for (status, _), line in zip(rows, cells, strict=True):
        text = Text(_aligned(line, widths), no_wrap=True, overflow="ellipsis")
        text.stylize("bold", 0, len(line[0]))
        text.stylize(_STATES[status.state.value][0], widths[0] + 2, widths[0] + 2 + len(line[1]))
        lines.append(text)
        spec = settings.server(status.name) if settings is not None else None
        lines += [Padding(note, (0, 0, 0, 2)) for note in _notes(status, spec)]
    return Group(*lines, *broken)


def broken_view(settings: Settings) -> list[RenderableType]:
    """Return a line for each entry of the configuration that is not a server."""
    found: list[RenderableType] = []
    for name, problem in broken_entries(settings).items():
        one = explain(problem)
        one = one.replace(next_step=typed(one.next_step))
        found.append(Text.assemble((one_line(name), "bold"), "  ", (safe(str(one)), "red")))
    return found


def _server_cells(status: ServerStatus, metered: ServerMetrics | None) -> tuple[str, ...]:
    mark = _STATES[status.state.value][1]
    latency = metered.latency if metered is not None and metered.latency.count else None
    return (
        cut(one_line(status.name), LONGEST_NAME),
        f"{mark} {state_word(status)}",
        status.transport if status.sandbox in ("", "off") else f"{status.transport} ({status.sandbox})",
        status.protocol_version or "",
        str(status.tools) if status.tools else "",
        str(metered.calls) if metered is not None and metered.calls else "",
        str(metered.failed) if metered is not None and metered.failed else "",
        "" if latency is None else duration(latency.p50),
        "" if latency is None else duration(latency.p95),
    )


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        " " * (width - cell_len(cell)) + cell if at >= _FIGURES else cell + " " * (width - cell_len(cell))
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()


class _Cause:
    """Why a server is not ready, and the command to run, which stays whole: it is copied."""

    def __init__(self, found: Explanation) -> None:
        self._found = found

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[RenderableType]:
        whole = safe(str(self._found))
        run = safe(f"Run: {self._found.next_step}")
        fits = cell_len(whole) <= options.max_width
        lines = [whole] if fits else [whole.removesuffix(run).rstrip(), run]
        yield from (Text(line, style="red") for line in lines)


def _notes(status: ServerStatus, spec: ServerSpec | None) -> list[RenderableType]:
    notes: list[RenderableType] = []
    found = explain_status(status, spec)
    if found is not None and status.last_error:
        step = in_session(typed(found.next_step))
        notes.append(_Cause(found.replace(next_step=step)))
    # As in `read_server`.
    if status.retry_in is not None and status.state.value != "needs_auth":
        often = " (failed repeatedly)" if status.crash_loop else ""
        notes.append(Text(f"Retrying in {duration(status.retry_in)}{often}.", style="yellow"))
    return notes


_INSIDE = re.compile(
    r"\bdragoman (?:--[a-z]{1,20} [^\s`]{1,99} ){0,4}(login|doctor) (?!--)('[^']*'|[^\s`]+)(?: --with-token)?"
)


def in_session(text: str) -> str:
    """Return a text for the session and the dashboard, with their own commands where they have one."""
    return _INSIDE.sub(lambda found: f"/mcp {found[1]} {''.join(shlex.split(found[2]))}", text)


def diagnosis_view(one: Diagnosis) -> RenderableType:
    """Return the result of a diagnosis: the cause, the end of standard error, and what to do."""
    if one.explanation is None:
        return Text(f"{safe(one.spec.name)} works.", style="green")
    said = [Text(f"  {safe(line)}", style="dim") for line in one.stderr.splitlines()[-5:]]
    hints = [Text(f"→ {safe(in_session(hint))}", style="cyan") for hint in one.hints]
    return Group(Text(f"{safe(one.spec.name)}: {safe(one.explanation.cause)}", style="red"), *said, *hints)


def duration(seconds: float) -> str:
    """Format a duration in a few characters."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.001 else "<1 ms"
    if seconds < 99.5:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5970 else f"{seconds / 3600:.0f} h"


def offers_view(rows: Sequence[tuple[str, str, str]], what: str) -> RenderableType:
    """Return resources or prompts grouped by server, each with a description."""
    if not rows:
        return Text(f"No {what}.", style="dim")
    lines: list[RenderableType] = []
    for server in dict.fromkeys(server for server, _, _ in rows):
        lines.append(Text(one_line(server), style="bold"))
        for name, about in ((name, about) for owner, name, about in rows if owner == server):
            lines.append(Padding(Text(one_line(name), style="cyan"), (0, 0, 0, 2)))
            if about:
                text = Text(one_line(about), style="dim", no_wrap=True, overflow="ellipsis")
                lines.append(Padding(text, (0, 0, 0, 6)))
    return Group(*lines)


def reload_view(report: ConfigReloaded) -> RenderableType:
    """Return what changed for each server when the configuration was reloaded."""
    lines = [
        Text.assemble((f"{what}: ", "dim"), safe(", ".join(names)))
        for what in ("started", "replaced", "stopped", "kept")
        if (names := getattr(report, what))
    ]
    lines += [Text(safe(f"✗ {name}: {error}"), style="red") for name, error in report.failed.items()]
    lines += [Text(safe(f"! {problem}"), style="yellow") for problem in report.problems]
    return Group(*lines) if lines else Text(NO_SERVERS, style="dim")


def tools_table(tools: Iterable[ToolDef]) -> Table:
    """Return tools as Python-like signatures, each with the first line of its description."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(ratio=1, overflow="fold")
    table.add_column(ratio=1, overflow="fold", style="dim")
    for tool in tools:
        table.add_row(signature(tool), Text(cut(one_line(tool.description), LONGEST_ABOUT)))
    return table


def signature(tool: ToolDef) -> Text:
    """Return a tool as a signature: `mcp_files_read(path: str, head: int = null)`."""
    styles = {"name": "cyan", "type": "dim"}
    return Text.assemble(*((text, styles.get(kind, "")) for text, kind in pieces(tool, tool.name)))


def result_view(result: ToolResult, *, limit: int = 2000) -> RenderableType:
    """Return a result for display: text, data if there is no text, and sources; or the error."""
    if not result.success:
        return Text(f"✗ {safe(result.error or 'failed')}", style="red")
    text = _shortened_text(result, limit)
    lines = [Text(safe(text))]
    for source in result.provenance.sources if result.provenance else ():
        # Many servers name their sources in the text too.
        if all(part in text for part in (source.title, source.locator, source.updated)):
            continue
        name = ", ".join(part for part in (source.title, source.locator) if part)
        date = f", updated {source.updated}" if source.updated else ", date unknown"
        lines.append(Text(safe(f"source: {name}{date}"), style="magenta"))
    return Group(*lines, Text(f"✓ {duration(result.duration)}", style="dim green"))


def shown_text(result: ToolResult) -> str:
    """Return the text of a result; data is included if the text does not contain it and it is short."""
    shown = [describe(part) for part in result.parts if part.kind != "structured"]
    if result.structured is not None and not is_carried(result.structured, shown):
        data = json.dumps(result.structured, ensure_ascii=False)
        shown += [data] if not any(shown) or len(data) <= SHORT_DATA else []
    return "\n".join(text for text in shown if text)


def _shortened_text(result: ToolResult, limit: int) -> str:
    text = indented(shown_text(result))
    return text if len(text) <= limit else f"{text[:limit]}\n… ({len(text)} characters)"
