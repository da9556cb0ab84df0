"""`dragoman doctor`: every server examined stage by stage, side by side, with the cause and what to do."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import click

from dragoman.cli import output
from dragoman.cli.completing import SERVERS
from dragoman.cli.exits import Exit, together
from dragoman.cli.known import named
from dragoman.cli.options import Options, common_options, timeout_option
from dragoman.cli.running import run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.cli.examining import Examination, Stage
    from dragoman.cli.reviewing import Review
    from dragoman.cli.shapes import DoctorReport, ExaminationShape
    from dragoman.model import ServerSpec, Settings

AT_ONCE = 8
_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "red"), "skipped": ("-", None)}
_LABELS = {
    "config": "configuration",
    "start": "started",
    "connect": "connected",
    "command": "command found",
    "address": "host found",
}
_NAMED = max(len(label) for label in _LABELS.values())


@click.command()
@common_options
@timeout_option
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=SERVERS)
@click.option("--verbose", "-v", is_flag=True, help="Show every stage and the log of servers that work, too.")
@click.pass_obj
def doctor(options: Options, names: tuple[str, ...], verbose: bool) -> None:
    """Find out, stage by stage, why a server does not work, and what to do about it.

    Each server is started or reached once and goes through: configuration, variables, the command or the
    host, the start or the connection, the handshake, the listing, its schemas, and a probe. Servers that are
    off are examined only if they are named.

    What is worth a look is added as advice, which fails nothing: definitions that changed or read like an
    attack, names that look alike, packages without an exact version.
    """
    from dragoman.cli.reviewing import finding_json, look_alikes, review

    settings = options.load()
    specs = [named(settings, name) for name in dict.fromkeys(names)]
    specs = specs or [spec for spec in settings.servers if spec.enabled]
    found = examine(options, settings, specs)
    reviews = [review(one.spec, settings, one.offered) for one in found]
    alike = look_alikes(reviews)
    problems = [] if names else list(settings.problems)
    code = together([*(one.code for one in found), *(Exit.CONFIG for _ in problems)])
    if options.json:
        report: DoctorReport = {
            "ok": code is Exit.DONE,
            "servers": [_json(one, looked) for one, looked in zip(found, reviews, strict=True)],
            "problems": [output.problem_json(problem) for problem in problems],
            "look_alikes": [finding_json(finding) for finding in alike],
        }
        output.say_json(report)
    else:
        for index, (one, looked) in enumerate(zip(found, reviews, strict=True)):
            click.echo("\n" * bool(index), nl=False)
            _show(one, looked, verbose=verbose)
        for finding in alike:
            output.say(f"\nadvice: {finding}", fg="yellow")
        for problem in problems:
            output.say(f"error: {problem}", fg="red")
        _sum_up(found, problems=len(problems))
    raise click.exceptions.Exit(code)


def examine(options: Options, settings: Settings, specs: Sequence[ServerSpec]) -> list[Examination]:
    """Examine servers side by side, with progress shown."""
    return run(_examine(options, settings, specs)) if specs else []


async def _examine(options: Options, settings: Settings, specs: Sequence[ServerSpec]) -> list[Examination]:
    from dragoman.cli.examining import Examiner, counting_junk
    from dragoman.cli.progress import Progress
    from dragoman.server.reach import connection_module

    places = asyncio.Semaphore(AT_ONCE)
    busy: list[str] = []
    async with Progress("loading") as show:
        # A second of CPU that is no server's fault, and that no server's time is to contain.
        await connection_module()

        async def examine(spec: ServerSpec) -> Examination:
            async with places:
                busy.append(spec.name)
                show.text = f"examining {', '.join(busy)}"
                examiner = Examiner(spec, settings, seconds=options.timeout)
                try:
                    return await examiner.run(junk=lambda: junk.get(spec.name, 0))
                finally:
                    busy.remove(spec.name)
                    show.text = f"examining {', '.join(busy)}" if busy else ""

        with counting_junk() as junk:
            return list(await asyncio.gather(*map(examine, specs)))


def _json(one: Examination, looked: Review) -> ExaminationShape:
    from dragoman.cli.reviewing import review_json

    return {
        "name": one.spec.name,
        "ok": one.ok,
        "transport": one.spec.kind,
        "stages": [
            {
                "stage": stage.name,
                "outcome": stage.outcome,
                "seconds": round(stage.seconds, 6),
                "detail": stage.detail,
            }
            for stage in one.stages
        ],
        "cause": None
        if one.cause is None
        else {"code": one.cause.code, "message": one.stages[-1].detail, "hint": ""},
        "exit_code": one.exit_code,
        "stderr": one.stderr.splitlines(),
        "hints": one.hints,
        "review": review_json(looked),
    }


def _show(one: Examination, looked: Review, *, verbose: bool) -> None:
    from dragoman.cli.reviewing import advice

    width = shutil.get_terminal_size().columns if output.columns() else 10_000
    head = f"{output.one_line(one.spec.name)}  {output.one_line(output.command_line(one.spec.transport))}"
    name, _, rest = output.cut(head, width).partition("  ")
    click.echo(f"{click.style(name, bold=True)}  {click.style(rest, dim=True)}")
    for stage in one.stages:
        _show_stage(stage, width, one.spec.origin.source)
    if one.stderr and (verbose or not one.ok):
        click.secho("  its last words:", dim=True)
        for line in output.safe(one.stderr).splitlines():
            click.secho(f"    {output.cut(line, width - 4)}", dim=True)
    for hint in one.hints:
        _say_wrapped("  → ", output.safe(hint), width, fg="cyan")
    for text in advice(looked):
        _say_wrapped("  advice: ", output.safe(text), width, fg="yellow")


def _show_stage(stage: Stage, width: int, file: str) -> None:
    mark, colour = _MARKS[stage.outcome]
    label = _LABELS.get(stage.name, stage.name)
    took = _took(stage.seconds)
    detail = output.safe(" ".join(stage.detail.split())).replace(file, output.shorten_path(file), 1)
    line = f"  {click.style(mark, fg=colour)} {label:<{_NAMED}}  {took:>8}  "
    indent = _NAMED + 16
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


def _sum_up(found: Sequence[Examination], *, problems: int) -> None:
    if not found:
        output.say("No servers to examine: `dragoman add NAME` sets one up.")
        return
    bad = sum(not one.ok for one in found)
    good = len(found) - bad
    said = f"{good} of {len(found)} server{'s' * (len(found) != 1)} in order"
    if problems:
        said += f", {problems} problem{'s' * (problems != 1)} in files"
    click.secho(f"\n{said}", fg="green" if not bad and not problems else "yellow")
