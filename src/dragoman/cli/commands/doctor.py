"""`dragoman doctor`: diagnose servers in parallel; show their stages, what failed and what to do."""

from __future__ import annotations

import asyncio
import logging
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import click

from dragoman.cli import output
from dragoman.cli.adhoc import HOW_TO_TRY, AdHocCommand, offer_to_keep, take_servers
from dragoman.cli.connect import Progress
from dragoman.cli.discover import find_servers, no_servers
from dragoman.cli.exits import Exit, code_of, overall_exit, run
from dragoman.cli.known import named
from dragoman.cli.options import SERVERS, Options, common_options, timeout_option, yes_option
from dragoman.cli.output import ErrorReport, ProblemReport
from dragoman.cli.reviews import ReviewReport, review_report
from dragoman.struct import UNSET, Report, UnsetType

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from dragoman.cli.commands.fix import FixReport
    from dragoman.diagnosis.doctor import Diagnosis, Stage
    from dragoman.diagnosis.review import Review
    from dragoman.model import ServerSpec, Settings
    from dragoman.trust.findings import Finding

AT_ONCE = 8
_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "red")}


class StageReport(Report, kw_only=True):
    """One stage of a diagnosis."""

    stage: str
    """`config`, `approval`, `variables`, `command` or `address`, `start` or `connect`, `handshake`,
    `listing`, `schemas`, `probe`."""
    outcome: Literal["ok", "warning", "failed"]
    seconds: float
    detail: str


class DiagnosisReport(Report, kw_only=True):
    """One server of `doctor`."""

    name: str
    ok: bool
    transport: str
    stages: Sequence[StageReport]
    cause: ErrorReport | None
    exit_code: int | None
    """The exit code of the server, if it ended by itself."""
    stderr: Sequence[str]
    """The last stderr lines of the server; secrets are masked."""
    hints: Sequence[str]
    review: ReviewReport
    """Advice; it does not change `ok` or the exit code."""


class DoctorReport(Report, kw_only=True):
    """`dragoman doctor --json`."""

    ok: bool
    servers: Sequence[DiagnosisReport]
    problems: Sequence[ProblemReport]
    """Problems in configuration files, as in `config check`."""
    look_alikes: Sequence[Finding]
    """Names of servers, or of tools of different servers, that look the same."""
    fixes: Sequence[FixReport] | UnsetType = UNSET
    """With `--fix`."""


@click.command(cls=AdHocCommand, epilog=HOW_TO_TRY)
@common_options
@timeout_option
@yes_option
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=SERVERS)
@click.option("--verbose", "-v", is_flag=True, help="Show stages and stderr of servers that work, too.")
@click.option("--fix", "fixes", is_flag=True, help="Write what it advises, after showing the diff.")
@click.pass_obj
def doctor(options: Options, names: tuple[str, ...], *, verbose: bool, fixes: bool) -> None:
    """Find out why a server does not work, and what to do about it.

    Each server is started or connected once, and checked in stages: configuration, variables, the command
    or the host, the start or the connection, the handshake, the tool list, the schemas, and a ping. A server
    that works is one line; `-v` shows its stages. Disabled servers are checked only if you name them.

    `--fix` carries out the `dragoman set` commands that it advises, after you have seen the diff and agreed.

    Advice does not change the exit code. It covers changed definitions, definitions that look like an
    attack, names that look alike, and packages without an exact version.
    """
    from dragoman.cli.commands.fix import fix
    from dragoman.diagnosis.explain import explain
    from dragoman.diagnosis.fleet import broken_entries
    from dragoman.diagnosis.review import look_alikes, review

    names = take_servers(options, names)
    settings = find_servers(options)
    specs = [named(settings, name) for name in dict.fromkeys(names)]
    specs = specs or [spec for spec in settings.servers if spec.enabled]
    found = diagnose_all(options, settings, specs)
    reviews = [review(one.spec, settings, one.listing) for one in found]
    alike = look_alikes(reviews)
    problems = [] if names else list(settings.problems)
    code = overall_exit(
        [
            *(code_of(one.error) for one in found if one.error),
            *(Exit.CONFIG for _ in problems),
        ]
    )
    if options.json:
        output.say_json(
            DoctorReport(
                ok=code is Exit.DONE,
                servers=[_report(options, one, looked) for one, looked in zip(found, reviews, strict=True)],
                problems=[ProblemReport.of(problem) for problem in problems],
                look_alikes=alike,
                fixes=fix(options, found) if fixes else UNSET,
            )
        )
    else:
        before = ""
        # The servers that work come first, so that what needs attention stands at the end.
        for one, looked in sorted(zip(found, reviews, strict=True), key=lambda pair: not pair[0].ok):
            folded = one.ok and not verbose
            click.echo("\n" * bool(before and not (folded and before == "folded")), nl=False)
            before = "folded" if folded else "whole"
            _show(options, one, looked, verbose=verbose)
        for finding in alike:
            output.say(f"\nadvice: {finding}", fg="yellow")
        broken = broken_entries(settings) if not names else {}
        for name, problem in broken.items():
            click.echo(f"\n{click.style(output.one_line(name), bold=True)}")
            one = explain(problem)
            _say_wrapped("  ", output.safe(one.cause), shutil.get_terminal_size().columns, fg="red")
            place = f"line {problem.line} of " if problem.line else ""
            where = f"Correct {place}{output.shorten_path(problem.source)}."
            _say_wrapped("  → ", output.safe(where), shutil.get_terminal_size().columns, fg="cyan")
        for problem in problems:
            if problem not in broken.values():
                output.say(f"error: {problem}", fg="red")
        _sum_up(options, found, problems=len(problems))
        if fixes:
            fix(options, found)
    if code is Exit.DONE:
        offer_to_keep(options)
    raise click.exceptions.Exit(code)


def diagnose_all(options: Options, settings: Settings, specs: Sequence[ServerSpec]) -> list[Diagnosis]:
    """Diagnose servers in parallel, and show progress."""
    return run(_diagnose_all(options, settings, specs)) if specs else []


@contextmanager
def quiet_log() -> Generator[None]:
    """Keep log records off the terminal: a diagnosis shows what is wrong in its own words."""
    logger = logging.getLogger("dragoman")
    before = (logger.propagate, logger.disabled)
    logger.propagate, logger.disabled = False, False
    nowhere = logging.NullHandler()  # without any handler, logging writes to the terminal
    logger.addHandler(nowhere)
    try:
        yield
    finally:
        logger.propagate, logger.disabled = before
        logger.removeHandler(nowhere)


async def _diagnose_all(options: Options, settings: Settings, specs: Sequence[ServerSpec]) -> list[Diagnosis]:
    from dragoman.diagnosis.doctor import diagnose
    from dragoman.server.prepare import connection_module

    places = asyncio.Semaphore(AT_ONCE)
    busy: list[str] = []
    async with Progress("loading") as show:
        # Importing the SDK takes a second; do it first, so that no server's stages include it.
        await connection_module()

        async def check(spec: ServerSpec) -> Diagnosis:
            async with places:
                busy.append(spec.name)
                show.text = f"checking {', '.join(busy)}"
                try:
                    return await diagnose(spec, settings, timeout=options.timeout)
                finally:
                    busy.remove(spec.name)
                    show.text = f"checking {', '.join(busy)}" if busy else ""

        with quiet_log():
            return list(await asyncio.gather(*map(check, specs)))


def _report(options: Options, one: Diagnosis, looked: Review) -> DiagnosisReport:
    cause = None
    if one.error is not None and one.explanation is not None:
        hint = options.with_program(one.hint)
        cause = ErrorReport(code=one.error.code, message=one.explanation.cause, hint=hint)
    return DiagnosisReport.of(
        one,
        name=one.spec.name,
        transport=one.spec.kind,
        stages=[
            StageReport.of(stage, stage=stage.name, seconds=round(stage.seconds, 6)) for stage in one.stages
        ],
        cause=cause,
        stderr=one.stderr.splitlines(),
        hints=[options.with_program(hint) for hint in one.hints],
        review=review_report(looked),
    )


def _show(options: Options, one: Diagnosis, looked: Review, *, verbose: bool) -> None:
    from dragoman.diagnosis.review import advice

    width = shutil.get_terminal_size().columns if output.columns() else 10_000
    head = f"{output.one_line(one.spec.name)}  {output.one_line(output.command_line(one.spec.transport))}"
    if one.ok and not verbose:
        _show_folded(one, width)
    else:
        name, _, rest = output.cut(head, width).partition("  ")
        click.echo(f"{click.style(name, bold=True)}  {click.style(rest, dim=True)}")
    if one.explanation is not None:
        _say_wrapped("  ", output.safe(one.explanation.cause), width, fg="red")
    for stage in one.stages:
        if one.ok and not verbose and stage.outcome == "ok":
            continue
        _show_stage(stage, width, one.spec.origin.source)
    if one.stderr and (verbose or not one.ok):
        click.secho("  Last stderr lines:", dim=True)
        for line in output.safe(one.stderr).splitlines():
            click.secho(f"    {output.cut(line, width - 4)}", dim=True)
    for hint in one.hints:
        _say_wrapped("  → ", output.safe(options.with_program(hint)), width, fg="cyan")
    # A server that does not work has other worries than the version of its package.
    for text in advice(looked) if one.ok else ():
        _say_wrapped("  advice: ", output.safe(options.with_program(text)), width, fg="yellow")


def _show_folded(one: Diagnosis, width: int) -> None:
    """Print a server that works on one line."""
    facts = [stage.detail for stage in one.stages if stage.name in ("listing", "handshake") and stage.detail]
    took = _took(sum(stage.seconds for stage in one.stages))
    line = output.cut(f"{output.one_line(one.spec.name)}  {', '.join([*reversed(facts), took])}", width - 2)
    name, _, rest = line.partition("  ")
    click.echo(
        f"{click.style('✓', fg='green')} {click.style(name, bold=True)}  {click.style(rest, dim=True)}"
    )


def _show_stage(stage: Stage, width: int, file: str) -> None:
    from dragoman.diagnosis.doctor import STAGES

    mark, colour = _MARKS[stage.outcome]
    label, column = STAGES[stage.name], max(map(len, STAGES.values()))
    took = _took(stage.seconds)
    detail = output.safe(" ".join(stage.detail.split())).replace(file, output.shorten_path(file), 1)
    line = f"  {click.style(mark, fg=colour)} {label:<{column}}  {took:>8}  "
    indent = column + 16
    if not detail:
        click.echo(line.rstrip())
        return
    bright = stage.outcome in ("failed", "warning")
    pieces = output.wrapped(detail, max(20, width - indent))
    shown = pieces if bright else [output.cut(detail, max(20, width - indent))]
    for index, piece in enumerate(shown):
        text = output.cut(piece, max(20, width - indent))
        styled = click.style(text, fg=colour) if bright else click.style(text, dim=True)
        click.echo((line if not index else " " * indent) + styled)


def _took(seconds: float) -> str:
    if seconds < 0.001:
        return ""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _say_wrapped(mark: str, text: str, width: int, *, fg: str) -> None:
    for index, piece in enumerate(output.wrapped(text, max(20, width - len(mark)))):
        click.secho((mark if not index else " " * len(mark)) + piece, fg=fg)


def _sum_up(options: Options, found: Sequence[Diagnosis], *, problems: int) -> None:
    if not found:
        output.say(no_servers(options))
        return
    bad = sum(not one.ok for one in found)
    good = len(found) - bad
    said = f"{good} of {len(found)} servers OK"
    if problems:
        said += f", {problems} problem{'s' * (problems != 1)} in files"
    click.secho(f"\n{said}", fg="green" if not bad and not problems else "yellow")
