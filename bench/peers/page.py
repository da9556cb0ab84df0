"""Generate `docs/performance.md` from a result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.peers.field import BY_NAME, FLOOR, OURS
from bench.peers.result import Figure, shown

if TYPE_CHECKING:
    from bench.peers.result import Result, Row

HEAD = """\
---
summary: dragoman compared with the SDK and other clients - import, start, calls, memory, failures.
read_when: You want to know what dragoman costs, or you change the path of a call or a start.
---
# Performance

<!-- Written by `make bench ARGS=peers` from its own run; do not edit. -->

Every client does the same work with the same small servers, alternately in one run, each in its own
environment with its newest release. The best round counts. Machines differ, so compare the ratios.

![Bars of CPU, time and memory for each client](images/performance.svg)
"""
TITLES = {
    "import": "Import",
    "start": "Start to all tools",
    "calls-stdio": "A call over stdio",
    "calls-http": "A call over Streamable HTTP",
    "memory": "Memory",
    "conduct": "Failures",
}
TEXTS = {
    "import": """\
CPU of the import alone, in a new interpreter. dragoman defers the import of the SDK until the first
connection; *from a new process* below includes it.
""",
    "start": """\
Time until the tools of all servers can be used, over stdio, after the libraries are imported, and until all
are closed. A slow server responds after 1.5 s, a dead one exits at once; these rows measure the other
servers. *From a new process* counts from the start of the interpreter.

dragoman runs as it is installed. It remembers servers, so it has two columns of each: one for servers that it
has started before, and one for *the first time*. For the others each start is as the first, and both columns
have the same figure. *Until their tools can be offered* is the time until all definitions are known, with
dragoman from the last listing while the servers start.
""",
    "calls-stdio": """\
CPU of the client per call of a tool that echoes five letters, and the time: the median of sequential calls,
or the time per call with 32 concurrent calls.
""",
    "calls-http": "The same over HTTP, with JSON responses.\n",
    "memory": """\
Memory of a new process that is connected to 20 servers with 50 tools each, keeps their tool lists and has
made one call. PSS counts shared pages proportionally.
""",
    "conduct": """\
Observed behaviour, each with a deadline. **Bold** is undesired behaviour. A helper is a process that a server
started and that outlives it.
""",
}
_ALONE = "All clients take about the same time for one server, mostly that of the server itself."
_FIRST = (
    "The first time, dragoman writes what it pins of each server and the listing that it offers next time."
)
_CPU = (
    "dragoman records and marks each process, makes sure that it ends with the client, and checks, "
    "compares and registers each tool list; [costs](costs.md) has the CPU of each part."
)
_SHARED = "The servers' own CPU is most of this time; the client's CPU has its own row."
WHY = {
    "start-1-all": _ALONE,
    "first-1-all": _ALONE,
    "start-5-all": _SHARED,
    "start-20-all": _SHARED,
    "first-5-all": _FIRST,
    "first-20-all": _FIRST,
    "start-20-cpu": _CPU,
    "first-20-cpu": f"{_CPU} {_FIRST}",
    "start-list-whole_cpu": (
        "dragoman checks each definition, gives it a name that no other server has, and compares the list "
        "with the one that was approved; see [costs](costs.md)."
    ),
    "first-list-whole_cpu": _FIRST,
    "cold-5": (
        "Most of it is the import of the SDK's session and models, of which dragoman leaves out the server "
        "half; it starts its servers meanwhile, and imports its own modules as well, about 0.1 s."
    ),
    "memory": (
        "dragoman loads the SDK's session and models (45 MiB; all of the SDK takes 64), its own modules "
        "(10 MiB), a schema validator (jsonschema-rs, 3 MiB) and, if needed, an HTTP client (aiohttp)."
    ),
    "left-crash": (
        "The next start of dragoman finds processes that a server has started by their marker, and ends them."
    ),
}
"""Explanations for rows or sections in which a peer is ahead or level."""


ABOVE_THE_FLOOR = (
    "A call costs more than the floor because dragoman validates arguments and results, handles "
    "deadlines and cancellation, and records events and metrics."
)


def page(result: Result) -> str:
    """Return the whole page."""
    parts = [HEAD, _goals(result), _behind(result)]
    for section, title in TITLES.items():
        rows = [row for row in result.rows if row.section == section]
        if rows:
            table = _conduct(rows, result) if section == "conduct" else _table(rows, result)
            parts.append(f"## {title}\n\n{TEXTS[section]}\n{table}")
    parts.append(_who(result))
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _goals(result: Result) -> str:
    lines = ["## Goals", "", "| goal | bound | measured | |", "| --- | ---: | ---: | --- |"]
    for goal in result.goals():
        measured = "—" if goal.ratio is None else f"{goal.ratio:.2f} ×"
        lines.append(
            f"| {goal.title} | {goal.bound:g} × | {measured} | {'met' if goal.met else '**missed**'} |"
        )
    behind = [row for row in result.rows if row.ahead()]
    rows = f"{len(result.rows) - len(behind)} of {len(result.rows)} rows"
    lines.append(
        f"| ahead of every peer, or level | every row | {rows} | {'**missed**' if behind else 'met'} |"
    )
    return "\n".join([*lines, "", ABOVE_THE_FLOOR])


def _behind(result: Result) -> str:
    lines = ["## Where dragoman is not ahead", ""]
    for row in result.rows:
        words = [
            f"{_title(peer)} needs {ratio:.2f} × of it"
            if ratio is not None
            else f"{_title(peer)} does better"
            for peer, ratio in row.ahead().items()
        ]
        words += [f"{_title(peer)} is level ({ratio:.2f} ×)" for peer, ratio in row.level().items()]
        if words:
            why = WHY.get(row.name) or WHY.get(row.section, "")
            lines.append(f"- {_named(row)}: {', '.join(words)}.{' ' + why if why else ''}")
    if len(lines) == 2:
        lines.append("Nowhere in this run.")
    return "\n".join(lines)


def _named(row: Row) -> str:
    return f"*{TITLES[row.section]}*, {row.title}"


def _table(rows: list[Row], result: Result) -> str:
    """Write peers down and rows across, with the ratios to dragoman and to the floor below each figure."""
    lines = [
        "| | " + " | ".join(row.title for row in rows) + " |",
        "| --- | " + " | ".join("---:" for _ in rows) + " |",
    ]
    for peer in result.versions:
        cells = [_cell(row, peer) for row in rows]
        lines.append(f"| {_title(peer)} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n\nBelow each figure: the ratio to dragoman and to the floor."


def _cell(row: Row, peer: str) -> str:
    figure = row.figures.get(peer, Figure())
    text = shown(figure, row.unit)
    if figure.value is None:
        return text
    ratios = [row.ratio(peer, other) for other in (OURS, FLOOR)]
    below = " · ".join("—" if ratio is None else f"{ratio:.2f} ×" for ratio in ratios)
    return f"**{text}**<br>{below}" if peer == OURS else f"{text}<br>{below}"


def _conduct(rows: list[Row], result: Result) -> str:
    lines = [
        "| | " + " | ".join(map(_title, result.versions)) + " |",
        "| --- | " + " | ".join("---" for _ in result.versions) + " |",
    ]
    for row in rows:
        cells = [row.figures.get(peer, Figure()) for peer in result.versions]
        texts = [f"**{cell.text}**" if cell.good is False else cell.text or "—" for cell in cells]
        lines.append(f"| {row.title} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def _who(result: Result) -> str:
    lines = ["## Clients and machine", "", "| | versions | used as |", "| --- | --- | --- |"]
    for peer, versions in result.versions.items():
        named = ", ".join(f"{name} {version}" for name, version in versions.items()) or "—"
        way = BY_NAME[peer].way if peer in BY_NAME else ""
        lines.append(f"| {_title(peer)} | {named} | {way or '`McpManager`'} |")
    lines += ["", "; ".join(f"{name}: {value}" for name, value in result.facts.items()) + "."]
    lines += [
        "",
        "Measure on your machine: `make bench ARGS=peers` (`ARGS='peers --quick'` for a short run).",
    ]
    return "\n".join(lines)


def _title(peer: str) -> str:
    return BY_NAME[peer].title if peer in BY_NAME else peer
