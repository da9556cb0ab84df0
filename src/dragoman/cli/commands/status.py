"""`dragoman status`: connect the servers, and show each as soon as it is ready or failed."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Literal

import click

from dragoman.cli import exits, output
from dragoman.cli.adhoc import HOW_TO_TRY, AdHocCommand, offer_to_keep, take_servers
from dragoman.cli.discover import find_servers, no_servers
from dragoman.cli.exits import Exit, overall_exit, run
from dragoman.cli.known import known_tools, named
from dragoman.cli.options import SERVERS, Options, common_options, typed, wait_option, yes_option
from dragoman.cli.remote import divert
from dragoman.errors import DragomanError
from dragoman.model import Origin
from dragoman.struct import Report
from dragoman.trust.layers import name_conflict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dragoman.cli.connect import Connected
    from dragoman.diagnosis.explain import Explanation
    from dragoman.model import ServerSpec, ServerStatus, Settings

LOGGED_SECONDS = 7 * 86_400.0
"""The period for which calls are counted."""
LONGEST_NAME = 24
"""Columns for the names of servers; longer ones push their line to the right."""
_MODERN = "2026-07-28"
_COLOURS = {"ready": "green", "degraded": "yellow"}


class LoggedCalls(Report, kw_only=True):
    """Statistics of the recorded calls of one server."""

    calls: int
    failed: int
    errors: Mapping[str, int]
    """The number of failed calls, by code."""
    p50: float | None
    """Median duration in seconds; null without answered calls."""
    p95: float | None
    p99: float | None


class StatusRow(Report, kw_only=True):
    """One server of `status`."""

    name: str
    state: str
    """`idle`, `connecting`, `ready`, `degraded`, `backoff`, `needs_auth`, `failed` or `closed`."""
    enabled: bool = True
    transport: str
    """`stdio`, `http` or `sse`."""
    protocol_version: str | None = None
    era: Literal["legacy", "modern"] | None = None
    """`modern` if `protocol_version` is 2026-07-28 or later; for scripts written for 0.2."""
    server_name: str | None = None
    """The name that the server reports."""
    server_version: str | None = None
    pid: int | None = None
    tools: int | None
    """The number of tools; null if unknown."""
    latency: float | None = None
    """The duration of one request in seconds; null without an answer."""
    logged: LoggedCalls | None = None
    """Recorded calls of the last seven days; null without any."""
    cause: str | None = None
    """Why it is not ready, in one line of at most 100 characters; null if it is, or was not started."""
    next_step: str | None = None
    """The command to run next; null without a cause."""
    last_error: str | None = None
    """The error in full."""
    error_code: str | None = None
    login_url: str = ""
    retry_in: float | None = None
    crash_loop: bool = False
    sandbox: str = ""
    """`off`, `credentials`, `strict`, `network`, `container` or `unavailable`; empty with a URL."""
    origin: Origin
    """The file, line and scope of its definition, as in `config show`."""


class BrokenEntry(Report, kw_only=True):
    """An entry that cannot be used."""

    name: str
    cause: str
    next_step: str


class UnapprovedEntry(Report, kw_only=True):
    """A project's definition that is not approved."""

    name: str
    origin: Origin


class StatusReport(Report, kw_only=True):
    """`dragoman status --json`."""

    connected: bool
    """Whether servers were started; false with `--no-connect`."""
    servers: Sequence[StatusRow]
    broken: Sequence[BrokenEntry] = ()
    """Entries of configuration files that describe no server."""
    unapproved: Sequence[UnapprovedEntry] = ()
    """Definitions of the project that have no effect, because you have a server with the same name."""
    problems: int = 0
    """The number of problems in the configuration; see `config check`."""


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
    exits.require_settings(settings)
    divert(options, settings)
    specs = [named(settings, name) for name in dict.fromkeys(names)] or list(settings.servers)
    broken = [] if names else _broken(settings)
    logged = _logged()
    show = (
        None
        if options.json
        else _StatusLines(
            {spec.name: spec.enabled for spec in specs},
            logged,
            [one.name for one in broken],
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
    rows = [row.replace(logged=logged.get(row.name)) for row in rows]
    theirs = [spec for spec in settings.unapproved if not names or spec.name in names]
    if show is None:
        output.say_json(
            StatusReport(
                connected=not no_connect,
                servers=rows,
                broken=broken,
                unapproved=[UnapprovedEntry(name=spec.name, origin=spec.origin) for spec in theirs],
                problems=len(settings.problems),
            )
        )
    else:
        if not rows and not broken:
            output.say(no_servers(options))
        show.finish(rows, broken, connected=not no_connect)
        for spec in theirs:
            output.warn(name_conflict(spec))
        if not names:
            exits.report_problems(settings, but_for=len(broken))
    code = overall_exit(codes)
    if code is Exit.DONE:
        offer_to_keep(options)
    raise click.exceptions.Exit(code)


async def _connect(
    options: Options, settings: Settings, specs: Sequence[ServerSpec], show: _StatusLines | None
) -> tuple[list[StatusRow], list[Exit]]:
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

    rows = [
        StatusRow.of(
            one,
            enabled=one.state != "closed",
            era=_era(one.protocol_version),
            cause=one.last_error,
            origin=Origin(source=gateway),
        )
        for one in await read_status(gateway, os.environ.get("DRAGOMAN_TOKEN", ""))
        if not names or one.name in names
    ]
    if options.json:
        output.say_json(StatusReport(connected=True, servers=rows))
    else:
        lines = _StatusLines({row.name: row.enabled for row in rows}, {}, [], connects=True)
        lines.finish(rows, [], connected=True)
    return Exit.DONE if all(row.state == "ready" for row in rows if row.enabled) else Exit.UNREACHABLE


def _row(
    spec: ServerSpec, status: ServerStatus, latency: float | None, explanation: Explanation | None
) -> StatusRow:
    return StatusRow.of(
        status,
        era=_era(status.protocol_version),
        latency=None if latency is None else round(latency, 3),
        cause=explanation.cause if explanation else None,
        next_step=explanation.next_step if explanation else None,
        retry_in=None if status.retry_in is None else round(status.retry_in, 1),
        origin=spec.origin,
    )


def _era(version: str | None) -> Literal["legacy", "modern"] | None:
    return None if version is None else "modern" if version >= _MODERN else "legacy"


def _unconnected(spec: ServerSpec, tools: int | None) -> StatusRow:
    return StatusRow(
        name=spec.name,
        state="idle" if spec.enabled else "closed",
        enabled=spec.enabled,
        transport=spec.kind,
        tools=tools,
        origin=spec.origin,
    )


def _broken(settings: Settings) -> list[BrokenEntry]:
    from dragoman.diagnosis.explain import explain
    from dragoman.diagnosis.fleet import broken_entries

    found = {name: explain(problem) for name, problem in broken_entries(settings).items()}
    return [
        BrokenEntry(name=name, cause=one.cause, next_step=typed(one.next_step)) for name, one in found.items()
    ]


def _logged() -> dict[str, LoggedCalls]:
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
        name: LoggedCalls.of(
            one,
            p50=round(one.latency.p50, 6) if one.latency.count else None,
            p95=round(one.latency.p95, 6) if one.latency.count else None,
            p99=round(one.latency.p99, 6) if one.latency.count else None,
        )
        for name, one in found.items()
    }


class _StatusLines:
    """Prints the servers that are ready as they come, then the others with their cause, then a total."""

    def __init__(
        self,
        servers: Mapping[str, bool],
        logged: Mapping[str, LoggedCalls],
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

    def print(self, row: StatusRow) -> None:
        """Print one server that has no trouble."""
        if not self._is_begun:
            click.secho(_joined(self._heads, self._widths), dim=True)
            self._is_begun = True
        self._shown.add(row.name)
        state = _state(row)
        line = [
            output.one_line(row.name),
            state,
            *_facts(row, self._logged.get(row.name)),
        ]
        text = _joined(line[: len(self._heads)], self._widths)
        width = output.columns()
        text = text if width is None else output.cut(text, width)
        click.echo(text.replace(f"  {state}", f"  {click.style(state, fg=_COLOURS.get(row.state))}", 1))

    def finish(self, rows: Sequence[StatusRow], broken: Sequence[BrokenEntry], *, connected: bool) -> None:
        """Print the servers that are left: those that were not started, and those with trouble."""
        for row in rows:
            if row.cause is None and row.name not in self._shown:
                self.print(row)
        bad = [
            *((row.name, row.cause, row.next_step or "") for row in rows if row.cause),
            *((one.name, one.cause, one.next_step) for one in broken),
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

    def _sum_up(self, rows: Sequence[StatusRow], broken: int) -> None:
        on = [row for row in rows if row.enabled]
        ready = sum(row.state == "ready" for row in on)
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


def _state(row: StatusRow) -> str:
    from dragoman.diagnosis.explain import STATE_WORDS

    return "disabled" if not row.enabled else STATE_WORDS[row.state]


def _facts(row: StatusRow, logged: LoggedCalls | None) -> list[str]:
    failed = f" ({logged.failed} failed)" if logged and logged.failed else ""
    return [
        row.transport,
        output.one_line(row.protocol_version or ""),
        "" if row.tools is None else str(row.tools),
        _duration(row.latency),
        f"{logged.calls}{failed}" if logged else "",
        _duration(logged.p95) if logged else "",
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
