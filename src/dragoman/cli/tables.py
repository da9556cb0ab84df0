"""What the terminal draws with `rich`: servers and their states, tools as signatures, results.

Everything here turns nouns into renderables; printing is the caller's.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from dragoman.cli.output import safe
from dragoman.cli.signatures import pieces
from dragoman.tools.rendering import describe

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from dragoman.events import ConfigReloaded
    from dragoman.model import ServerStatus, ToolDef, ToolResult

SHORT_DATA = 200
"""Structured data up to this many characters is shown beside a text."""

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
    """Draw the servers: state, transport, protocol, tools, and what went wrong."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("server", "state", "transport", "protocol", "tools"):
        table.add_column(name, no_wrap=True, justify="right" if name == "tools" else "left")
    table.add_column("", overflow="fold")
    for status in statuses:
        style, mark = _STATES[status.state.value]
        version = " ".join(part for part in (status.server_name, status.server_version) if part)
        note = (
            Text(safe(status.last_error or ""), style="red")
            if status.last_error
            else Text(safe(version), "dim")
        )
        table.add_row(
            Text(safe(status.name), style="bold"),
            Text(f"{mark} {status.state.value}", style=style),
            status.transport,
            status.protocol_version or "",
            str(status.tools) if status.tools else "",
            note,
        )
    return table


def reload_view(report: ConfigReloaded) -> RenderableType:
    """Draw what became of every server when the configuration was read again."""
    lines = [
        Text.assemble((f"{what}: ", "dim"), safe(", ".join(names)))
        for what in ("started", "replaced", "stopped", "kept")
        if (names := getattr(report, what))
    ]
    lines += [Text(safe(f"✗ {name}: {error}"), style="red") for name, error in report.failed.items()]
    lines += [Text(safe(f"! {problem}"), style="yellow") for problem in report.problems]
    return Group(*lines) if lines else Text("no server is configured", style="dim")


def tools_table(tools: Iterable[ToolDef]) -> Table:
    """Draw tools as Python-like signatures, each with the first line of its description."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(ratio=1, overflow="fold")
    table.add_column(ratio=1, overflow="fold", style="dim")
    for tool in tools:
        first_line = tool.description.strip().partition("\n")[0]
        table.add_row(signature(tool), Text(safe(first_line)))
    return table


def signature(tool: ToolDef) -> Text:
    """Write a tool as a signature: `mcp_files_read(path: str, head: int = null)`."""
    styles = {"name": "cyan", "type": "dim"}
    return Text.assemble(*((text, styles.get(kind, "")) for text, kind in pieces(tool, tool.name)))


def result_view(result: ToolResult, *, limit: int = 2000) -> RenderableType:
    """Draw a result for a person: its text, its data where there is no text, its sources, or its error."""
    if not result.success:
        return Text(f"✗ {safe(result.error or 'failed')}", style="red")
    lines = [Text(safe(_people_text(result, limit)))]
    for source in result.provenance.sources if result.provenance else ():
        named = ", ".join(part for part in (source.title, source.locator) if part)
        dated = f", updated {source.updated}" if source.updated else ""
        lines.append(Text(safe(f"source: {named}{dated}"), style="magenta"))
    return Group(*lines, Text(f"✓ {result.duration * 1000:.0f} ms", style="dim green"))


def _people_text(result: ToolResult, limit: int) -> str:
    """Return what a person wants to read first: the text; data only where it is short or alone."""
    text = "\n".join(describe(part) for part in result.parts if part.kind != "structured")
    data = json.dumps(result.structured, ensure_ascii=False) if result.structured is not None else ""
    if data and (not text or len(data) <= SHORT_DATA) and data not in text:
        text = f"{text}\n{data}".strip()
    return text if len(text) <= limit else f"{text[:limit]}\n… ({len(text)} characters)"
