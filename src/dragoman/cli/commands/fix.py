"""`dragoman doctor --fix`: carry out the advice that is a `dragoman set` command, after showing the diff."""

from __future__ import annotations

import re
import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli import output
from dragoman.cli.commands.set_ import mask_diff, parse_values, show_diff, target_for
from dragoman.cli.options import typed
from dragoman.errors import ConfigError
from dragoman.struct import Report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.cli.options import Options
    from dragoman.diagnosis.doctor import Diagnosis

_COMMAND = re.compile(r"`dragoman set ([^`]+)`")


class FixReport(Report, kw_only=True):
    """One change of `dragoman doctor --fix`."""

    server: str
    file: str
    diff: str
    """Masked."""
    written: bool
    """Whether the user agreed, or `--yes` did."""


def fix(options: Options, found: Sequence[Diagnosis]) -> list[FixReport]:
    """Write what the doctor advises, server by server, after the user agreed; return what was done."""
    from dragoman.config import write

    done: list[FixReport] = []
    for one in found:
        name = one.spec.name
        values, profile = _advised(one)
        if not values:
            continue
        try:
            spec, target = target_for(options.replace(profile=profile or options.profile), name)
            diff = write.preview_values(target, name, spec.origin.pointer, values)
        except ConfigError as error:
            output.warn(f"{name}: {error}")
            continue
        if not diff:
            continue
        agreed = _ask(options, name, diff, opens_sandbox="sandbox" in values)
        if agreed:
            write.change_values(target, name, spec.origin.pointer, values)
        shown = mask_diff(diff)
        done.append(FixReport(server=name, file=str(target.path), diff=shown, written=agreed))
        if agreed and not options.json:
            where = output.shorten_path(str(target.path))
            again = typed(f"dragoman doctor {shlex.quote(name)}")
            output.say(f"Wrote {where}. Check again: {again}", fg="green")
    if not done and not options.json:
        output.say("Nothing that --fix can write.")
    left = [one.server for one in done if not one.written]
    if left and not options.json and not _can_ask():
        output.warn(f"Not written. To write it: {typed(f'dragoman doctor --fix --yes {shlex.join(left)}')}")
    return done


def _ask(options: Options, name: str, diff: str, *, opens_sandbox: bool) -> bool:
    if not options.json:
        click.echo(f"\nFix for `{output.one_line(name)}`:")
        show_diff(diff)
    # What a server printed must not open its sandbox without a person.
    if options.yes and not opens_sandbox:
        return True
    return not options.json and _can_ask() and click.confirm("Write it?", default=False)


def _can_ask() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _advised(one: Diagnosis) -> tuple[dict[str, Any], str]:
    """Return the values that the hints of a diagnosis say to set, and the app whose file has the server.

    The first hint about a key wins. A value that only the user knows is asked for.
    """
    found: dict[str, Any] = {}
    profile = ""
    for hint in one.hints:
        for command in _COMMAND.findall(hint):
            name, *words = shlex.split(command)
            if "--profile" in words:
                *words, _, profile = words
            if name == one.spec.name:
                chosen = [word for word in words if "=" in word or _can_ask()]
                found = parse_values(chosen, one.spec) | found
    return found, profile
