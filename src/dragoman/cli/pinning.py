"""`dragoman trust pin`: the exact version of a server's package, written into the entry that starts it.

Shown first, written only with `--write`, and then one word of one file. The version is one that is on this
machine, or one that was named: what a server says of itself is told, but never written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from dragoman.cli import output
from dragoman.cli.known import of_project
from dragoman.cli.reviewing import OWN_WORD, package_json, review
from dragoman.errors import DragomanError
from dragoman.model import Stdio
from dragoman.trust.packages import pinned

if TYPE_CHECKING:
    from pathlib import Path

    from dragoman.cli.options import Options
    from dragoman.cli.reviewing import Review
    from dragoman.cli.shapes import PinReport
    from dragoman.config.documents import Document
    from dragoman.config.write import Target
    from dragoman.model import ServerSpec, Settings
    from dragoman.trust.packages import Package


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What would be written."""

    looked: Review
    package: Package
    version: str
    where: str
    """Where the version is known from."""
    before: Stdio
    after: Stdio

    @property
    def changes(self) -> bool:
        return self.before != self.after


def pin(options: Options, settings: Settings, spec: ServerSpec, *, version: str, writes: bool) -> None:
    """Show what would be written to pin the version of a server's package, and write it if asked."""
    from dragoman.config import write
    from dragoman.config.files import read

    plan = _plan(options, settings, spec, version)
    target = write.target_of_spec(spec, settings.root)
    # Whether it can be written shows before anybody asks for it.
    _reworded(read(target.path), target, spec, plan)
    if writes and plan.changes:
        write.apply(target, lambda document: _reworded(document, target, spec, plan))
    written = writes and plan.changes
    asks_again = plan.changes and bool(of_project(settings, [spec]))
    if options.json:
        output.say_json(_report(plan, target.path, written=written, needs_approval=asks_again))
        return
    output.say(f"{spec.name}  {plan.package.registry} `{plan.package.name}`: {plan.version}, {plan.where}")
    if not plan.changes:
        output.say("It is named already: there is nothing to write.")
        return
    output.say(f"  before  {output.command_line(plan.before)}")
    output.say(f"  after   {output.command_line(plan.after)}")
    where = output.place(spec.origin)
    output.say(f"written to {where}" if written else f"nothing is written yet to {where}; `--write` does it")
    if asks_again:
        output.say(
            f"it is another command then: `dragoman trust approve {spec.name}` approves it", fg="yellow"
        )


def _plan(options: Options, settings: Settings, spec: ServerSpec, version: str) -> _Plan:
    looked = review(spec, settings, None)
    package, stdio = looked.package, spec.transport
    if package is None or not isinstance(stdio, Stdio):
        msg = f"server `{spec.name}` is not started by `npx`, `uvx` or the like: it has no package to pin"
        raise DragomanError(msg, hint="a script or an address has no version; look at what it runs")
    if version:
        if not replace(package, version=version).is_pinned:
            msg = f"`{version}` is no exact version, such as 1.2.3"
            raise click.UsageError(msg)
        found, where = version, "as you say"
    elif package.is_pinned:
        found, where = package.version, "as its command has it"
    elif looked.version is not None:
        found, where = looked.version.version, f"as it is in {looked.version.where}"
    else:
        raise _unknown(options, settings, spec, package)
    return _Plan(
        looked=looked,
        package=package,
        version=found,
        where=where,
        before=stdio,
        after=pinned(stdio, found),
    )


def _unknown(options: Options, settings: Settings, spec: ServerSpec, package: Package) -> DragomanError:
    """Ask the server itself, whose word is worth a hint but no entry."""
    from dragoman.cli.doctor import examine

    (examined,) = examine(options, settings, [spec])
    said = examined.offered.version if examined.offered else ""
    msg = f"no version of {package.registry} `{package.name}` is found on this machine"
    hint = "name one with `--version`"
    if said:
        hint = f"`--version` names one; `{said}` is {OWN_WORD}"
    return DragomanError(msg, hint=hint)


def _reworded(document: Document, target: Target, spec: ServerSpec, plan: _Plan) -> Document:
    from dragoman.config.rewording import reworded

    return reworded(
        document,
        target.dialect,
        target.root,
        spec.name,
        pointer=spec.origin.pointer,
        change=lambda stdio: pinned(stdio, plan.version),
    )


def _report(plan: _Plan, path: Path, *, written: bool, needs_approval: bool) -> PinReport:
    package = package_json(plan.looked)
    assert package is not None  # noqa: S101 -- there is no plan without one
    index = plan.package.index
    return {
        "server": plan.looked.spec.name,
        "package": package,
        "version": plan.version,
        "before": plan.before.args[index],
        "after": plan.after.args[index],
        "file": str(path),
        "written": written,
        "needs_approval": needs_approval,
    }
