"""`dragoman status`: connect the servers, and show each as soon as it is ready or failed."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import click

from dragoman.cli import exits, output
from dragoman.cli.adhoc import HOW_TO_TRY, AdHocCommand, offer_to_keep, take_servers
from dragoman.cli.discover import find_servers, no_servers
from dragoman.cli.exits import Exit, run, together
from dragoman.cli.known import broken_entries, known_tools, named
from dragoman.cli.options import SERVERS, Options, common_options, typed, wait_option, yes_option
from dragoman.cli.remote import divert
from dragoman.errors import DragomanError
from dragoman.trust.layers import rivalry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dragoman.cli.connect import Connected
    from dragoman.cli.json_shapes import BrokenShape, LoggedShape, StatusReport, StatusShape
    from dragoman.diagnosis.explain import Explanation
    from dragoman.model import ServerSpec, ServerStatus, Settings

LOGGED_SECONDS = 7 * 86_400.0
"""The period for which calls are counted."""
LONGEST_NAME = 24
"""Columns for the names of servers; longer ones push their line to the right."""
_MODERN = "2026-07-28"
_COLOURS = {"ready": "green", "degraded": "yellow"}


@click.command(cls=AdHocCommand, epilog=HOW_TO_TRY)
@common_options
@wait_option
@yes_option
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=SERVERS)
@click.option("--no-connect", is_flag=True, help="Start no servers; show configuration and cache.")
@click.option("--of", "gateway", metavar="URL", help="Ask a running gateway (token: DRAGOMAN_TOKEN).")
@click.pass_obj
def status(options: Options, names: tuple[str, ...], no_connect: bool, gateway: str | None) -> None:
    """Show servers: state, transport, protocol, tools and latency; and why a server is not ready.

    Servers are started for this, once each, and stopped afterwards. A server is shown as soon as it is ready,
    the others at the end. Without `--wait`, the `timeouts.connect` of each server is the limit. The exit code
    is 0 if every enabled server is ready.
    """
    if gateway is not None:
        raise click.exceptions.Exit(run(_ask(options, gateway, names)))
    names = take_servers(options, names)
    settings = find_servers(options)
    exits.insist(settings)
    divert(options, settings)
    specs = [named(settings, name) for name in dict.fromkeys(names)] or list(settings.servers)
    broken = [] if names else _broken(settings)
    logged = _logged()
    show = (
        None
        if options.json
        else _Lines(
            {spec.name: spec.enabled for spec in specs},
            logged,
            [one["name"] for one in broken],
            connects=not no_connect,
        )
    )
    if no_connect:
        known = known_tools(settings, specs)
        rows = [_unconnected(spec, len(known[spec.name]) if spec.name in known else None) for spec in specs]
        codes: list[Exit] = []
    else:
        rows, codes = run(_connect(options, settings, specs, show))
        codes += [Exit.CONFIG for _ in broken]
    for row in rows:
        row["logged"] = logged.get(row["name"])
    theirs = [spec for spec in settings.unapproved if not names or spec.name in names]
    if show is None:
        report: StatusReport = {
            "connected": not no_connect,
            "servers": rows,
            "broken": broken,
            "unapproved": [{"name": spec.name, "origin": output.origin_json(spec.origin)} for spec in theirs],
            "problems": len(settings.problems),
        }
        output.say_json(report)
    else:
        if not rows and not broken:
            output.say(no_servers(options))
        show.finish(rows, broken, connected=not no_connect)
        for spec in theirs:
            output.warn(rivalry(spec))
        if not names:
            exits.remark(settings, but_for=len(broken))
    code = together(codes)
    if code is Exit.DONE:
        offer_to_keep(options)
    raise click.exceptions.Exit(code)


async def _connect(
    options: Options, settings: Settings, specs: Sequence[ServerSpec], show: _Lines | None
) -> tuple[list[StatusShape], list[Exit]]:
    from dragoman.cli.connect import connected

    on = {spec.name: spec for spec in specs if spec.enabled and settings.enabled}
    rows = {spec.name: _unconnected(spec, None) for spec in specs}
    codes: list[Exit] = []

    async def on_settled(live: Connected, name: str) -> None:
        found = live.mcp.status([name])[name]
        latency = await live.latency(name) if found.state == "ready" else None
        found = live.mcp.status([name])[name]
        explanation = None if found.state == "ready" else live.explain(name)
        row = rows[name] = _row(on[name], found, latency, explanation)
        codes.append(live.code(found))
        if show is not None and explanation is None:
            live.show.clear()
            show.print(row)

    if on:
        async with connected(options, settings, list(on.values()), once=True, on_settled=on_settled):
            pass
    return list(rows.values()), codes


async def _ask(options: Options, gateway: str, names: Sequence[str]) -> Exit:
    """Show the servers of a running gateway, which starts none."""
    from dragoman.gateway.status import read_status
    from dragoman.model import Origin

    found = await read_status(gateway, os.environ.get("DRAGOMAN_TOKEN", ""))
    rows: list[StatusShape] = []
    for one in found:
        if names and one.get("name") not in names:
            continue
        version, error = one.get("protocol_version"), one.get("last_error")
        rows.append(
            {
                "name": str(one.get("name")),
                "state": str(one.get("state")),
                "enabled": one.get("state") != "closed",
                "transport": str(one.get("transport") or ""),
                "protocol_version": version,
                "era": None if version is None else "modern" if version >= _MODERN else "legacy",
                "server_name": one.get("server_name"),
                "server_version": one.get("server_version"),
                "pid": None,
                "tools": one.get("tools"),
                "latency": None,
                "logged": None,
                "cause": error,
                "next_step": None,
                "last_error": error,
                "error_code": one.get("error_code"),
                "login_url": "",
                "retry_in": one.get("retry_in"),
                "crash_loop": False,
                "origin": output.origin_json(Origin(source=gateway)),
            }
        )
    if options.json:
        report: StatusReport = {
            "connected": True,
            "servers": rows,
            "broken": [],
            "unapproved": [],
            "problems": 0,
        }
        output.say_json(report)
    else:
        lines = _Lines({row["name"]: row["enabled"] for row in rows}, {}, [], connects=True)
        lines.finish(rows, [], connected=True)
    return Exit.DONE if all(row["state"] == "ready" for row in rows if row["enabled"]) else Exit.UNREACHABLE


def _row(
    spec: ServerSpec, status: ServerStatus, latency: float | None, explanation: Explanation | None
) -> StatusShape:
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
        "cause": explanation.cause if explanation else None,
        "next_step": explanation.next_step if explanation else None,
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
        "cause": None,
        "next_step": None,
        "last_error": None,
        "error_code": None,
        "login_url": "",
        "retry_in": None,
        "crash_loop": False,
        "origin": output.origin_json(spec.origin),
    }


def _broken(settings: Settings) -> list[BrokenShape]:
    from dragoman.diagnosis.explain import explain

    found: list[BrokenShape] = []
    for name, problem in broken_entries(settings).items():
        one = explain(problem)
        found.append({"name": name, "cause": one.cause, "next_step": typed(one.next_step)})
    return found


def _logged() -> dict[str, LoggedShape]:
    """Return statistics of the recorded calls, by server; empty without a call log."""
    from dragoman.observe.call_log import default_path

    if not default_path().exists():
        return {}
    from dragoman.observe.call_history import CallHistory

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


class _Lines:
    """Prints the servers that are ready as they come, then the others with their cause, then a total."""

    def __init__(
        self,
        servers: Mapping[str, bool],
        logged: Mapping[str, LoggedShape],
        broken: Sequence[str],
        *,
        connects: bool,
    ) -> None:
        names = [output.one_line(name) for name in (*servers, *broken)]
        calls = any(name in logged for name in servers)
        self._logged = logged
        self._heads = ["server", "state", "transport", "protocol", "tools", "latency"]
        self._heads += ["calls", "p95"] if calls else []
        width = min(LONGEST_NAME, max(map(output.width_of, names), default=0))
        # Only these words stand in the table: what has trouble is not in it.
        words = {"ready": 5, "disabled": 8, "not started": 11}
        state = words["ready" if all(servers.values()) else "disabled"]
        state = state if connects else words["not started"]
        self._widths = [max(width, 6), state, 9, 10, 5, 7, 12, 7][: len(self._heads)]
        self._is_begun = False
        self._shown: set[str] = set()

    def print(self, row: StatusShape) -> None:
        """Print one server that has no trouble."""
        if not self._is_begun:
            click.secho(_joined(self._heads, self._widths), dim=True)
            self._is_begun = True
        self._shown.add(row["name"])
        state = _state(row)
        line = [
            output.one_line(row["name"]),
            state,
            *_facts({**row, "logged": self._logged.get(row["name"])}),
        ]
        text = _joined(line[: len(self._heads)], self._widths)
        width = output.columns()
        text = text if width is None else output.cut(text, width)
        click.echo(text.replace(f"  {state}", f"  {click.style(state, fg=_COLOURS.get(row['state']))}", 1))

    def finish(self, rows: Sequence[StatusShape], broken: Sequence[BrokenShape], *, connected: bool) -> None:
        """Print the servers that are left: those that were not started, and those with trouble."""
        for row in rows:
            if row["cause"] is None and row["name"] not in self._shown:
                self.print(row)
        bad = [
            *((row["name"], row["cause"], row["next_step"] or "") for row in rows if row["cause"]),
            *((one["name"], one["cause"], one["next_step"]) for one in broken),
        ]
        click.echo("\n" * (bool(bad) and self._is_begun), nl=False)
        for name, cause, step in bad:
            self._complain(name, cause, step)
        if connected and (rows or broken):
            self._sum_up(rows, len(broken))

    def _complain(self, name: str, cause: str, step: str) -> None:
        indent = self._widths[0] + 2
        shown = output.one_line(name)
        head = shown + " " * max(2, indent - output.width_of(shown))
        pieces = told(output.safe(cause), output.safe(step), indent)
        for index, piece in enumerate(pieces):
            before = click.style(head, bold=True) if not index else " " * indent
            click.echo(before + click.style(piece, fg="red"))

    def _sum_up(self, rows: Sequence[StatusShape], broken: int) -> None:
        on = [row for row in rows if row["enabled"]]
        ready = sum(row["state"] == "ready" for row in on)
        total = len(on) + broken
        if total > 1 or ready < total:
            said = f"{ready} of {total} server{'s' * (total != 1)} ready"
            click.secho(f"\n{said}", fg="green" if ready == total else "yellow")


def told(cause: str, step: str, indent: int) -> list[str]:
    """Return a cause and the next step as lines that fit into the terminal; the command is not broken."""
    width = output.columns()
    whole = f"{cause} → {step}" if step else cause
    if width is None or output.width_of(whole) <= width - indent:
        return [whole]
    return [*output.wrapped(cause, max(30, width - indent)), *([f"→ {step}"] if step else [])]


def _state(row: StatusShape) -> str:
    from dragoman.diagnosis.explain import STATE_WORDS

    return "disabled" if not row["enabled"] else STATE_WORDS[row["state"]]


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


def _joined(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell + " " * (width - output.width_of(cell)) for cell, width in zip(cells, widths, strict=True)]
    return "  ".join(padded).rstrip()
