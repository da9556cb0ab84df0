"""`dragoman status`: connect the servers and show their states."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import click

from dragoman.cli import exits, output
from dragoman.cli.adhoc import HOW_TO_TRY, AdHocCommand, offer_to_keep, take_servers
from dragoman.cli.discover import find_servers, no_servers
from dragoman.cli.exits import Exit, run, together
from dragoman.cli.known import known_tools, named
from dragoman.cli.options import SERVERS, Options, common_options, timeout_option, yes_option
from dragoman.errors import DragomanError
from dragoman.trust.layers import rivalry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.cli.json_shapes import LoggedShape, StatusReport, StatusShape
    from dragoman.model import ServerSpec, ServerStatus, Settings

LOGGED_SECONDS = 7 * 86_400.0
"""The period for which calls are counted."""
_MODERN = "2026-07-28"
_COLOURS = {
    "ready": "green",
    "degraded": "yellow",
    "connecting": "yellow",
    "backoff": "yellow",
    "needs_auth": "magenta",
    "failed": "red",
}


@click.command(cls=AdHocCommand, epilog=HOW_TO_TRY)
@common_options
@timeout_option
@yes_option
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=SERVERS)
@click.option("--no-connect", is_flag=True, help="Start no servers; show configuration and cache.")
@click.pass_obj
def status(options: Options, names: tuple[str, ...], no_connect: bool) -> None:
    """Show servers: state, transport, protocol, tools, latency and last error.

    Servers are started for this and stopped afterwards. The exit code is 0 if every enabled server is ready.
    """
    names = take_servers(options, names)
    settings = find_servers(options)
    exits.insist(settings)
    specs = [named(settings, name) for name in dict.fromkeys(names)] or list(settings.servers)
    if no_connect:
        known = known_tools(settings, specs)
        rows = [_unconnected(spec, len(known[spec.name]) if spec.name in known else None) for spec in specs]
        code = Exit.DONE
    else:
        rows, code = run(_connect(options, settings, specs))
    logged = _logged()
    for row in rows:
        row["logged"] = logged.get(row["name"])
    theirs = [spec for spec in settings.unapproved if not names or spec.name in names]
    report: StatusReport = {
        "connected": not no_connect,
        "servers": rows,
        "unapproved": [{"name": spec.name, "origin": output.origin_json(spec.origin)} for spec in theirs],
        "problems": len(settings.problems),
    }
    if options.json:
        output.say_json(report)
    else:
        if not rows:
            output.say(no_servers(options))
        _show(rows)
        for spec in theirs:
            output.warn(rivalry(spec))
        exits.remark(settings)
    if code is Exit.DONE:
        offer_to_keep(options)
    raise click.exceptions.Exit(code)


async def _connect(
    options: Options, settings: Settings, specs: Sequence[ServerSpec]
) -> tuple[list[StatusShape], Exit]:
    from dragoman.cli.connect import connected

    on = [spec for spec in specs if spec.enabled and settings.enabled]
    found: dict[str, ServerStatus] = {}
    codes: list[Exit] = []
    latencies: dict[str, float | None] = {}
    if on:
        async with connected(options, settings, on) as servers:
            ready = [one.name for one in servers.status() if one.state == "ready"]
            latencies = dict(zip(ready, await asyncio.gather(*map(servers.latency, ready)), strict=True))
            found = {one.name: one for one in servers.status()}
            codes = [servers.code(one) for one in found.values()]
    rows = [
        _row(spec, found[spec.name], latencies.get(spec.name))
        if spec.name in found
        else _unconnected(spec, None)
        for spec in specs
    ]
    return rows, together(codes)


def _row(spec: ServerSpec, status: ServerStatus, latency: float | None) -> StatusShape:
    version = status.protocol_version
    return {
        "name": spec.name,
        "state": status.state.value,
        "enabled": True,
        "transport": status.transport,
        "protocol_version": version,
        "era": None if version is None else "modern" if version >= _MODERN else "legacy",
        "server_name": status.server_name,
        "server_version": status.server_version,
        "pid": status.pid,
        "tools": status.tools,
        "latency": None if latency is None else round(latency, 3),
        "logged": None,
        "last_error": status.last_error,
        "error_code": status.error_code,
        "login_url": status.login_url,
        "retry_in": None if status.retry_in is None else round(status.retry_in, 1),
        "crash_loop": status.crash_loop,
        "origin": output.origin_json(spec.origin),
    }


def _unconnected(spec: ServerSpec, tools: int | None) -> StatusShape:
    return {
        "name": spec.name,
        "state": "idle" if spec.enabled else "closed",
        "enabled": spec.enabled,
        "transport": spec.kind,
        "protocol_version": None,
        "era": None,
        "server_name": None,
        "server_version": None,
        "pid": None,
        "tools": tools,
        "latency": None,
        "logged": None,
        "last_error": None,
        "error_code": None,
        "login_url": "",
        "retry_in": None,
        "crash_loop": False,
        "origin": output.origin_json(spec.origin),
    }


def _logged() -> dict[str, LoggedShape]:
    """Return statistics of the recorded calls, by server; empty without a call log."""
    from dragoman.observe.call_log import default_path

    if not default_path().exists():
        return {}
    from dragoman.observe.call_log import CallHistory

    try:
        found = CallHistory().metrics(since=time.time() - LOGGED_SECONDS)
    except DragomanError as error:
        output.warn(str(error))
        return {}
    return {
        name: {
            "calls": one.calls,
            "failed": one.failed,
            "errors": dict(one.errors),
            "p50": round(one.latency.p50, 6) if one.latency.count else None,
            "p95": round(one.latency.p95, 6) if one.latency.count else None,
            "p99": round(one.latency.p99, 6) if one.latency.count else None,
        }
        for name, one in found.items()
    }


def _show(rows: Sequence[StatusShape]) -> None:
    """Print a table; errors go below their row, so that columns keep their width."""
    if not rows:
        return
    heads = ["server", "state", "transport", "protocol", "tools", "latency"]
    heads += ["calls", "p95"] if any(row["logged"] for row in rows) else []
    lines = [[output.one_line(row["name"]), _state(row), *_facts(row)][: len(heads)] for row in rows]
    widths = [max(output.width_of(line[at]) for line in [heads, *lines]) for at in range(len(heads))]
    click.secho(_joined(heads, widths), dim=True)
    width = output.columns()
    for row, line in zip(rows, lines, strict=True):
        text = _joined(line, widths)
        text = text if width is None else output.cut(text, width)
        state = line[1]
        colored = click.style(state, fg=_COLOURS.get(row["state"]))
        click.echo(text.replace(f"  {state}", f"  {colored}", 1))
        for note in _notes(row):
            for piece in [note] if width is None else output.wrapped(note, width - 2):
                click.secho(f"  {piece}", fg="red" if row["last_error"] else None)


def _state(row: StatusShape) -> str:
    return "disabled" if not row["enabled"] else row["state"].replace("_", " ")


def _facts(row: StatusShape) -> list[str]:
    tools, latency, logged = row["tools"], row["latency"], row["logged"]
    failed = f" ({logged['failed']} failed)" if logged and logged["failed"] else ""
    return [
        row["transport"],
        output.one_line(row["protocol_version"] or ""),
        "" if tools is None else str(tools),
        _duration(latency),
        f"{logged['calls']}{failed}" if logged else "",
        _duration(logged["p95"]) if logged else "",
    ]


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds >= 0.9995:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.001 else "<1 ms"


def _notes(row: StatusShape) -> list[str]:
    notes: list[str] = []
    if row["last_error"]:
        notes.append(output.safe(" ".join(row["last_error"].split())))
    if row["login_url"]:
        notes.append(f"Log in: dragoman login {output.one_line(row['name'])}")
    if row["retry_in"] is not None:
        often = " (failed repeatedly)" if row["crash_loop"] else ""
        notes.append(f"Retrying in {row['retry_in']:.0f} s{often}.")
    return notes


def _joined(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell + " " * (width - output.width_of(cell)) for cell, width in zip(cells, widths, strict=True)]
    return "  ".join(padded).rstrip()
