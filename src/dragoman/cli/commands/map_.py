"""`dragoman map`: call a tool for every row of a table; a killed run goes on where it was."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from contextlib import nullcontext, redirect_stdout
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli import arguments, exits, output
from dragoman.cli.adhoc import AdHocCommand, take_url
from dragoman.cli.commands.call import ToolTarget, confirmed, find_connected, review_changes, split_words
from dragoman.cli.connect import connected
from dragoman.cli.discover import find_servers, no_servers
from dragoman.cli.exits import Exit, run
from dragoman.cli.known import known_registry
from dragoman.cli.options import CALL_WORDS, Options, common_options, timeout_option
from dragoman.errors import BulkError, UnknownServerError
from dragoman.model import Handlers
from dragoman.struct import Report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.bulk import BulkPlan, BulkProgress, BulkReport, BulkRun
    from dragoman.bulk.run import Executor
    from dragoman.bulk.tables import Table
    from dragoman.cli.connect import Connected
    from dragoman.model import CallRequest, Settings, ToolDef

TICK = 0.2
SHOWN_FAILURES = 3
DRAIN_SECONDS = 10.0
"""How long Ctrl-C waits for the answers of calls that were sent."""
BAR = 20
MAX_RANGES = 12


class MapReport(Report, kw_only=True):
    """`dragoman map --json`."""

    server: str
    tool: str
    """The exposed name."""
    rows: int
    ok: int
    failed: int
    unknown: int
    """Rows that were sent without a recorded answer."""
    open: int
    """Rows without an outcome, which the next run would send."""
    earlier: int
    """Rows whose outcome an earlier run recorded."""
    unknown_rows: Sequence[int]
    """Their numbers, counted from 1."""
    out: str
    journal: str
    seconds: float


class RowProblem(Report, kw_only=True):
    """A row that cannot be sent."""

    row: int
    problem: str


class MapPlanReport(Report, kw_only=True):
    """`dragoman map --dry-run --json`."""

    server: str
    tool: str
    rows: int
    done: int
    """Rows with a recorded outcome."""
    calls: int
    """Calls that the run would make."""
    invalid: int
    problems: Sequence[RowProblem]
    """The first of the invalid rows."""
    unknown_rows: Sequence[int]
    repeats_unknown: bool
    """Whether the run would send those again."""
    sample: Any
    """The arguments of the first call."""
    concurrency: int
    rate: float | None
    seconds_per_call: float | None
    """The median of recorded calls; null without any."""
    seconds: float | None
    """The estimated time; null if it is not known."""


@click.command("map", cls=AdHocCommand, epilog="See docs/how-to/bulk.md for examples.")
@common_options
@timeout_option
@click.argument("words", nargs=-1, metavar="[SERVER] TOOL ROWS", shell_complete=CALL_WORDS)
@click.option(
    "--arg", "-a", "given", multiple=True, metavar="KEY=VALUE", help="An argument; {COLUMN} is a cell."
)
@click.option("--out", "-o", type=click.Path(path_type=Path), metavar="FILE", help="The table of results.")
@click.option("--dry-run", is_flag=True, help="Check all rows and estimate the time; call nothing.")
@click.option(
    "--concurrency", "-c", type=click.IntRange(1, 1000), default=8, show_default=True, help="Calls at once."
)
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Calls per second at most.")
@click.option("--limit", type=click.IntRange(0), help="Only the first rows; a later run does the rest.")
@click.option(
    "--retries",
    type=click.IntRange(0),
    default=2,
    show_default=True,
    help="For tools that are safe to repeat.",
)
@click.option("--repeat-failed", is_flag=True, help="Send rows again that failed in an earlier run.")
@click.option("--repeat-unknown", is_flag=True, help="Send rows again whose outcome is unknown.")
@click.option("--skip-invalid", is_flag=True, help="Record invalid rows as failed instead of stopping.")
@click.option("--overwrite", is_flag=True, help="Forget earlier outcomes and begin again.")
@click.option("--sheet", metavar="NAME", help="The sheet of a workbook.")
@click.option("--encoding", default="utf-8-sig", metavar="NAME", help="Of a CSV file, e.g. gb18030.")
@click.option("--on", type=click.Choice(["ray"]), help="Make the calls on a Ray cluster (extra `ray`).")
@click.option("--workers", type=click.IntRange(1), help="Workers on the cluster; one per machine by default.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def map_(
    options: Options,
    *,
    words: tuple[str, ...],
    given: tuple[str, ...],
    out: Path | None,
    dry_run: bool,
    concurrency: int,
    rate: float | None,
    limit: int | None,
    retries: int,
    repeat_unknown: bool,
    repeat_failed: bool,
    skip_invalid: bool,
    overwrite: bool,
    sheet: str | None,
    encoding: str,
    on: str | None,
    workers: int | None,
    yes: bool,
) -> None:
    """Call a tool once for every row of a table, and write the table with the results.

    ROWS and the output are .csv, .tsv, .xlsx or .jsonl files. Without --arg, columns that are named like
    parameters of the tool are its arguments.

    \b
    dragoman map files.read_text_file files.csv --arg path={file} --out texts.xlsx
    dragoman map legal.search_law questions.xlsx --arg query={question} --out answers.xlsx --dry-run

    All rows are checked before the first call. A journal beside the output records what was sent and every
    outcome: after a crash, the same command goes on. A row that was sent without a recorded answer has the
    outcome `unknown`; it is listed, and sent again only with --repeat-unknown, or if the tool is known to be
    safe to repeat.
    """  # noqa: D301 -- click wants the backspace itself
    words = take_url(options, words)
    least = 1 if options.server is not None else 2
    if len(words) < least + (options.server is not None):
        msg = "Missing TOOL or ROWS: dragoman map TOOL rows.csv --out results.csv"
        raise click.UsageError(msg)
    if out is None and not dry_run:
        msg = "Missing --out FILE, or use --dry-run."
        raise click.UsageError(msg)
    from dragoman.bulk.tables import Table, format_of, load_openpyxl

    table = Table(words[-1], sheet=sheet, encoding=encoding)
    if not table.path.is_file():
        msg = f"{table.path} does not exist"
        raise BulkError(msg)
    if "xlsx" in (table.kind, format_of(out) if out else ""):
        load_openpyxl()
    job = _MapJob(table, given, out, overwrite=overwrite)
    job.check_output(dry_run=dry_run)
    options.yes |= yes
    settings = find_servers(options)
    exits.require_settings(settings)
    if not settings.servers:
        raise UnknownServerError(no_servers(options), server=words[0])
    if options.server is not None:
        asked = ToolTarget([options.server], words[0], is_own=True)
    else:
        asked, rest = split_words(settings, words[:-1])
        if rest:
            msg = f"Unexpected `{rest[0]}`; write --arg {rest[0]} for an argument."
            raise click.UsageError(msg)
    how = {
        "concurrency": concurrency,
        "rate": rate,
        "limit": limit,
        "retries": retries,
        "repeat_unknown": repeat_unknown,
        "repeat_failed": repeat_failed,
        "on": _cluster(workers) if on else None,
        "timeout": options.timeout,
    }
    code = run(_run(options, settings, asked, job, how, dry_run=dry_run, skip_invalid=skip_invalid))
    raise click.exceptions.Exit(code)


def _cluster(workers: int | None) -> Executor:
    try:
        from dragoman.adapters.ray import RayCluster
    except ModuleNotFoundError as exc:
        raise BulkError(str(exc)) from exc

    logging.getLogger("ray.data").setLevel(logging.ERROR)  # the progress is ours
    return RayCluster(workers=workers)


class _MapJob:
    """The files of a job, and its arguments as typed."""

    def __init__(self, table: Table, given: Sequence[str], out: Path | None, *, overwrite: bool) -> None:
        self.table = table
        self.out = out
        self.journal = None if out is None else out.with_name(f"{out.name}.journal")
        self.overwrite = overwrite
        self._given = given

    def check_output(self, *, dry_run: bool) -> None:
        """Check that the output can be written, and that nothing is replaced by accident."""
        if self.out is None or self.journal is None:
            return
        if self.out.resolve() == self.table.path.resolve():
            msg = "the output is the input"
            raise BulkError(msg, hint="choose another --out")
        if not self.out.parent.is_dir():
            msg = f"the folder of {self.out} does not exist"
            raise BulkError(msg, hint="create it, or choose another --out")
        if self.out.exists() and not self.journal.exists() and not self.overwrite and not dry_run:
            msg = f"{self.out} exists, and it has no journal to go on with"
            raise BulkError(msg, hint="choose another --out, or replace it with --overwrite")

    def template(self, tool: ToolDef) -> dict[str, Any]:
        """Return the arguments with placeholders."""
        schema = tool.input_schema
        if self._given:
            try:
                return arguments.parse(self._given, schema, load=arguments.load_file)
            except arguments.ArgumentError as error:
                raise click.UsageError(str(error)) from None
        columns = self.table.columns()
        found = {name: f"{{{name}}}" for name in arguments.properties_of(schema) if name in columns}
        if not found:
            wanted = ", ".join(arguments.properties_of(schema)) or "none"
            msg = f"no column is named like a parameter of `{tool.own_name}`"
            hint = f"parameters: {wanted}; columns: {', '.join(columns)}; use --arg PARAMETER={{COLUMN}}"
            raise BulkError(msg, hint=hint)
        return found


async def _run(
    options: Options,
    settings: Settings,
    asked: ToolTarget,
    job: _MapJob,
    how: dict[str, Any],
    *,
    dry_run: bool,
    skip_invalid: bool,
) -> Exit:
    asking = _AskOnce(options)
    is_terminal = sys.stdin.isatty() and not options.json
    async with connected(
        options,
        settings,
        asked.specs,
        handlers=Handlers(approval=asking),
        default_trust="ask" if is_terminal else "warn",
        briefly=asked.briefly,
    ) as live:
        asking.live = live
        if is_terminal:
            await review_changes(live)
        tool = find_connected(live, asked, [] if options.server else list(known_registry(settings)[0]))
        live.raise_unless_ready(tool.server, needs_listing=True)
        how["arguments"] = await asyncio.to_thread(job.template, tool)
        live.show.text = "checking rows"
        planned = live.mcp.map(tool.name, job.table, journal=None if job.overwrite else job.journal, **how)
        plan = await planned.plan()
        live.show.text = ""
        live.show.clear()
        if dry_run:
            _show_plan(options, plan)
            return Exit.USAGE if plan.invalid and not skip_invalid else Exit.DONE
        if plan.invalid and not skip_invalid:
            raise _invalid(plan)
        _announce(options, plan)
        asking.calls = plan.calls
        if job.overwrite and job.journal is not None:
            from dragoman.bulk.journal import discard

            discard(job.journal)
        work = live.mcp.map(tool.name, job.table, journal=job.journal, **how)
        # Ray prints about its workers on standard output, where the report goes.
        with redirect_stdout(sys.stderr) if how["on"] is not None else nullcontext():
            report = await _watched(work, live, plan)
        return await _finish(options, tool, job, work, report)


async def _watched(work: BulkRun, live: Connected, plan: BulkPlan) -> BulkReport:
    """Run the job and show its progress; Ctrl-C waits for the answers of calls that were sent."""
    task = asyncio.ensure_future(work.wait())
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=TICK)
            live.show.text = _bar(work.progress(), plan.rows)
    except asyncio.CancelledError:
        work.stop()
        live.show.text = "waiting for the answers of calls that were sent"
        await asyncio.wait({task}, timeout=DRAIN_SECONDS)
        task.cancel()
        await asyncio.wait({task})
        live.show.clear()
        done = work.progress().done
        output.warn(f"{done:,} of {plan.rows:,} rows have an outcome; the same command goes on with the rest")
        raise
    live.show.text = ""
    live.show.clear()
    return task.result()


async def _finish(options: Options, tool: ToolDef, job: _MapJob, work: BulkRun, report: BulkReport) -> Exit:
    """Write the table and print the report."""
    from dragoman.bulk.tables import write_results

    if job.out is not None:
        await asyncio.to_thread(write_results, job.out, job.table, work.outcomes())
    if options.json:
        output.say_json(
            MapReport.of(
                report,
                server=tool.server,
                tool=tool.name,
                out=str(job.out),
                journal=str(job.journal),
                seconds=round(report.seconds, 3),
            )
        )
    else:
        parts = [f"{report.ok:,} ok", f"{report.failed:,} failed"]
        parts += [f"{report.unknown:,} unknown"] if report.unknown else []
        parts += [f"{report.open:,} open"] if report.open else []
        output.say(f"{report.rows:,} rows: {', '.join(parts)} ({_time(report.seconds)})")
        output.say(f"results: {job.out}")
    if report.failed:
        await asyncio.to_thread(_warn_of_failures, work)
    if report.unknown:
        output.warn(
            f"unknown outcome: {rows_text(report.unknown_rows)}. They were sent without a recorded answer; "
            "check them, or send them again with --repeat-unknown"
        )
    if report.unknown or report.open:
        return Exit.FAILED
    return Exit.TOOL if report.failed else Exit.DONE


def _warn_of_failures(work: BulkRun) -> None:
    """Say why the first rows failed, and how to call them again."""
    rows = (one for one in work.outcomes() if one is not None and one.status == "failed")
    for one in islice(rows, SHOWN_FAILURES):
        output.warn(f"row {one.row}: {output.one_line(one.error)}")
    output.warn("to send failed rows again: the same command with --repeat-failed")


class _AskOnce:
    """Asks once for all rows, if a rule requires confirmation."""

    def __init__(self, options: Options) -> None:
        self.live: Connected | None = None
        self.calls = 0
        self._yes = options.yes
        self._answer: asyncio.Task[bool] | None = None

    async def __call__(self, request: CallRequest) -> bool:
        """Return whether the calls may be made."""
        if self._answer is None:
            self._answer = asyncio.ensure_future(self._ask(request))
        return await asyncio.shield(self._answer)

    async def _ask(self, request: CallRequest) -> bool:
        if self.live is None:
            return False
        if not self._yes and sys.stdin.isatty():
            self.live.show.clear()
            click.echo(f"The answer counts for all {self.calls:,} calls.", err=True)
        # One answer for every row: where no one can be asked, a thousand rows do not wait for one each.
        return await confirmed(request, self.live, yes=self._yes) is True


def _announce(options: Options, plan: BulkPlan) -> None:
    """Say on stderr what an earlier run left, and what this one costs."""
    if plan.done:
        output.warn(f"{plan.done:,} of {plan.rows:,} rows have an outcome already")
    if plan.unknown_rows:
        where = rows_text(plan.unknown_rows)
        what = "they are sent again" if plan.repeats_unknown else "they are not sent again"
        output.warn(f"sent by an earlier run without a recorded answer: {where}; {what}")
    if not options.json:
        output.note(f"{plan.calls:,} calls of {plan.tool}, {_estimate(plan)}")


def _show_plan(options: Options, plan: BulkPlan) -> None:
    if options.json:
        problems = [RowProblem(row=row, problem=problem) for row, problem in plan.problems]
        output.say_json(MapPlanReport.of(plan, problems=problems))
        return
    output.say(f"{plan.calls:,} calls of {plan.tool}, {plan.concurrency} at once, {_estimate(plan)}")
    if plan.sample is not None:
        output.say(f"  first call: {json.dumps(plan.sample, ensure_ascii=False, default=str)}")
    if plan.done:
        output.say(f"  done: {plan.done:,} of {plan.rows:,} rows have a recorded outcome")
    if plan.unknown_rows:
        what = "sent again" if plan.repeats_unknown else "not sent again without --repeat-unknown"
        output.say(f"  unknown outcome: {rows_text(plan.unknown_rows)}, {what}")
    output.say(f"  invalid: {plan.invalid:,} of {plan.rows:,} rows")
    for row, problem in plan.problems:
        output.say(f"    row {row}: {output.one_line(problem)}")
    output.say("Nothing was called.")


def _invalid(plan: BulkPlan) -> BulkError:
    shown = "; ".join(f"row {row}: {problem}" for row, problem in plan.problems[:5])
    more = plan.invalid - min(5, len(plan.problems))
    msg = f"{plan.invalid:,} of {plan.rows:,} rows are invalid, and nothing was called: {shown}"
    msg += f"; and {more:,} more" if more > 0 else ""
    return BulkError(msg, hint="fix them, or use --skip-invalid")


def _estimate(plan: BulkPlan) -> str:
    if plan.seconds is None:
        return "time not known yet: no call of it is recorded"
    basis = f" ({_time(plan.seconds_per_call)} a call)" if plan.seconds_per_call is not None else ""
    return f"about {_time(plan.seconds)}{basis}"


def _bar(progress: BulkProgress, total: int) -> str:
    """Return the progress as one line: bar, rows, rate, time left, failures."""
    is_utf = "utf" in (sys.stderr.encoding or "").lower()
    full, empty = ("█", "░") if is_utf else ("#", "-")
    progress = progress.replace(total=total)
    filled = BAR * progress.done // total if total else BAR
    parts = [f"{full * filled}{empty * (BAR - filled)} {progress.done:,}/{total:,}"]
    if progress.done > progress.earlier:
        parts.append(f"{progress.rate:,.0f}/s" if progress.rate >= 10 else f"{progress.rate:.1f}/s")
    if progress.seconds_left is not None:
        parts.append(f"{_time(progress.seconds_left)} left")
    for count, word in ((progress.failed, "failed"), (progress.unknown, "unknown")):
        if count:
            parts.append(f"{count:,} {word}")
    return "  ".join(parts)


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} h" if hours else f"{minutes}:{rest:02} min"


def rows_text(rows: Sequence[int]) -> str:
    """Return numbers of rows as text: `rows 3, 7-9`."""
    ranges: list[list[int]] = []
    for row in rows:
        if ranges and row == ranges[-1][1] + 1:
            ranges[-1][1] = row
        else:
            ranges.append([row, row])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in ranges[:MAX_RANGES]]
    more = len(ranges) - len(shown)
    end = f" and {more:,} more ranges" if more else ""
    return f"{'row' if len(rows) == 1 else 'rows'} {', '.join(shown)}{end}"
