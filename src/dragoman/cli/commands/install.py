"""`dragoman install`: make the gateway the one server of another app, and undo that."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from dragoman.cli import output
from dragoman.cli.commands.edit import target_of
from dragoman.cli.options import Options, common_options
from dragoman.config.dialects import HOSTS, dialect
from dragoman.config.skill import FOLDERS, SHORT
from dragoman.model import Stdio
from dragoman.struct import Report

if TYPE_CHECKING:
    from collections.abc import Sequence

_OUTCOMES = {"copied": "goes to dragoman", "known": "dragoman has it already", "kept": "stays"}


class MoveRow(Report, kw_only=True):
    """One server of an app into which dragoman is installed."""

    server: str
    outcome: Literal["copied", "known", "kept"]
    """It goes to dragoman, dragoman has it already, or it stays in the app."""
    why: str
    """The reason why it stays."""


class InstallReport(Report, kw_only=True):
    """`dragoman install --json`."""

    host: str
    file: str
    """The app's file that gets the gateway."""
    servers: Sequence[MoveRow]
    written: bool


class UndoReport(Report, kw_only=True):
    """`dragoman install --undo --json`."""

    host: str
    restored: Sequence[str]
    """The app's files that are as they were before."""


class SkillFileRow(Report, kw_only=True):
    """One file of the skill."""

    agents: Sequence[str]
    """Whose folder it is in."""
    file: str
    outcome: Literal["written", "unchanged", "removed"]


class SkillReport(Report, kw_only=True):
    """`dragoman install --skill --json`."""

    files: Sequence[SkillFileRow]


@click.command()
@common_options
@click.argument("host", type=click.Choice(HOSTS), metavar="[APP]", required=False)
@click.option("--skill", is_flag=True, help="Teach coding agents the commands instead, by a skill.")
@click.option(
    "--for",
    "agents",
    multiple=True,
    type=click.Choice([*FOLDERS, *SHORT]),
    help="With --skill: the agent; those on this machine unless given.",
)
@click.option("--write", "writes", is_flag=True, help="Change the files (default: only show).")
@click.option("--undo", "undoes", is_flag=True, help="Restore the app's files as they were.")
@click.pass_obj
def install(
    options: Options,
    host: str | None,
    *,
    skill: bool,
    agents: tuple[str, ...],
    writes: bool,
    undoes: bool,
) -> None:
    """Make `dragoman serve` the one server of Claude Code, Cursor, VS Code and others.

    The servers of your own files in that app are copied into dragoman's configuration, and the gateway takes
    their place, so that all apps share the same servers. Files of projects stay as they are. Without
    `--write`, only show what would change.

    With `--skill`, coding agents learn to find and call the tools of all servers from the shell, and pay for
    a few lines only. The file is written at once; `--undo` removes it.
    """
    if skill:
        if host is not None or writes:
            msg = "`--skill` takes neither an app nor `--write`: name the agents by `--for`."
            raise click.UsageError(msg)
        _install_skill(options, [SHORT.get(name, name) for name in agents], undoes=undoes)
        return
    if host is None or agents:
        msg = f"Missing APP: {', '.join(HOSTS)}." if host is None else "`--for` needs `--skill`."
        raise click.UsageError(msg)
    from dragoman.config import install as installing

    if undoes:
        files = installing.undo(host)
        shown = [output.shorten_path(str(path)) for path in files]
        _say(options, UndoReport(host=host, restored=shown), [f"restored {path}" for path in shown])
        return
    theirs = Options(profile=host, debug=options.debug, alone=True)
    planned = installing.plan(
        host,
        theirs.load(),
        options.replace(alone=True).load(),
        target=target_of(theirs),
        own=target_of(options),
        command=_command(),
    )
    if writes and not planned.is_installed:
        installing.install(planned)
    moves = [MoveRow.of(move, server=move.spec.name) for move in planned.moves]
    report = InstallReport(host=host, file=str(planned.target.path), servers=moves, written=writes)
    title, place = dialect(host).title, output.shorten_path(str(planned.target.path))
    if planned.is_installed:
        _say(options, report, [f"{title} uses dragoman already ({place})"])
        return
    lines = [_line(move) for move in moves]
    done = "uses" if writes else "would use"
    lines.append(f"{title} {done} `dragoman serve` ({place})")
    if writes:
        lines.append(f"undo: dragoman install {host} --undo")
    else:
        how = (
            "to do it, paste this entry"
            if planned.target.format == "yaml"
            else (f"to do it: `dragoman install {host} --write`; or paste this entry yourself")
        )
        lines += [f"{how}:", installing.entry_text(planned)]
    _say(options, report, lines)


def _install_skill(options: Options, agents: Sequence[str], *, undoes: bool) -> None:
    from dragoman.config import skill

    if undoes:
        found = skill.remove_skill(agents)
    else:
        text = skill.skill_text(_program(), options.load())
        found = skill.write_skill(agents or skill.agents_here(), text)
    rows = [SkillFileRow(agents=one.agents, file=str(one.path), outcome=one.outcome) for one in found]
    lines = [f"{row.outcome}: {output.shorten_path(row.file)} {_listed(row.agents)}".rstrip() for row in rows]
    if rows and not undoes:
        lines.append("undo: dragoman install --skill --undo")
    _say(options, SkillReport(files=rows), lines or ["nothing to remove"])


def _listed(agents: Sequence[str]) -> str:
    return f"({', '.join(agents)})" if agents else ""


def _program() -> str:
    """Return what starts this very program in a shell: `dragoman` where that is it."""
    command = _command()
    found = shutil.which("dragoman")
    if found is not None and Path(found).resolve() == Path(command.command).resolve():
        return "dragoman"
    return shlex.join([command.command, *command.args[:-1]])


def _line(move: MoveRow) -> str:
    return f"{move.server}: {_OUTCOMES[move.outcome]}" + (f", since {move.why}" if move.why else "")


def _command() -> Stdio:
    """Return what starts this very program; never what `PATH` has, which may be a folder of a project."""
    program = Path(sysconfig.get_path("scripts"), "dragoman" if os.name == "posix" else "dragoman.exe")
    if program.is_file():
        return Stdio(str(program), ["serve"])
    # `-P`: the app's folder, which may be a project, is not searched for modules.
    return Stdio(sys.executable, ["-P", "-m", "dragoman", "serve"])


def _say(options: Options, report: Report, lines: list[str]) -> None:
    if options.json:
        output.say_json(report)
        return
    for line in lines:
        click.echo(output.safe(line))
