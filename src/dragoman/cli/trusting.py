"""`dragoman trust show | approve | revoke`: a person's yes to the servers that a project's files define.

What would run is shown whole before anybody is asked. Without a terminal nobody can be asked, so nothing is
approved unless `--yes` says that somebody has looked.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dragoman.cli import output
from dragoman.cli.completing import SERVERS
from dragoman.cli.known import named, of_project
from dragoman.cli.options import Options, common_options
from dragoman.errors import CallDeniedError, DragomanError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.cli.shapes import ApprovalShape, TrustReport
    from dragoman.model import ServerSpec, Settings
    from dragoman.trust_store import Approvals

_COLOURS = {"approved": "green", "changed": "yellow", "new": "yellow", "forgotten": None}


@click.group()
@common_options
def trust() -> None:
    """Approve the servers of a project, or take that back.

    A file that came with a project may start any program. What it defines is used only after you said yes to
    that very content; `dragoman help trust` says more.
    """


@trust.command()
@common_options
@click.pass_obj
def show(options: Options) -> None:
    """List the project's servers, and whether they are approved."""
    settings = options.load()
    rows = _rows(settings, _approvals())
    if options.json:
        report: TrustReport = {"servers": rows}
        output.say_json(report)
        return
    if not rows:
        output.say("No server comes from a file of this project: there is nothing to approve.")
    width = output.columns()
    for row in rows:
        state = click.style(f"{row['state']:<9}", fg=_COLOURS[row["state"]])
        text = f"{output.one_line(row['server'])}  {output.one_line(row['summary'])}"
        click.echo(f"{state}  {text if width is None else output.cut(text, width - 11)}")
    waiting = [row["server"] for row in rows if row["state"] in ("new", "changed")]
    if waiting:
        output.note(f"`dragoman trust approve {output.one_line(waiting[0])}` shows it whole and asks.")


@trust.command()
@common_options
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=SERVERS)
@click.option("--all", "everything", is_flag=True, help="Every server of the project, one after the other.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask: somebody has looked at it.")
@click.pass_obj
def approve(options: Options, names: tuple[str, ...], *, everything: bool, yes: bool) -> None:
    """Show what a project's server would do, in full, and approve it if you say so."""
    if bool(names) == everything:
        msg = "name the servers, or say --all"
        raise click.UsageError(msg)
    settings = options.load()
    store = _approvals()
    root = _root(settings)
    if everything:
        specs = [spec for spec in of_project(settings, settings.servers) if not store.is_approved(spec, root)]
    else:
        specs = [_project_server(settings, name) for name in dict.fromkeys(names)]
    done = [spec for spec in specs if _agreed(options, spec, root, store, yes=yes)]
    if options.json:
        _say_rows(settings, store, done)
    elif not specs:
        output.say("There is nothing to approve.")
    if len(done) < len(specs):
        msg = f"{len(specs) - len(done)} of {len(specs)} not approved"
        raise CallDeniedError(msg)


@trust.command()
@common_options
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=SERVERS)
@click.pass_obj
def revoke(options: Options, names: tuple[str, ...]) -> None:
    """Take the approval of a project's servers back."""
    settings = options.load()
    store = _approvals()
    root = _root(settings)
    gone: list[str] = []
    for name in dict.fromkeys(names):
        if store.revoke(name, root):
            gone.append(name)
        elif not options.json:
            output.warn(f"`{name}` was not approved for this project")
    if options.json:
        rows = [row for row in _rows(settings, store) if row["server"] in gone]
        report: TrustReport = {"servers": rows}
        output.say_json(report)
        return
    for name in gone:
        output.say(f"`{name}` is not approved any more")


def _approvals() -> Approvals:
    from dragoman.trust_store import Approvals

    return Approvals()


def _root(settings: Settings) -> str:
    return settings.root or str(Path.cwd())


def _project_server(settings: Settings, name: str) -> ServerSpec:
    spec = named(settings, name)
    if spec not in of_project(settings, settings.servers):
        msg = f"server `{name}` comes from {output.place(spec.origin)}, which is yours: it needs no approval"
        raise DragomanError(msg)
    return spec


def _agreed(options: Options, spec: ServerSpec, root: str, store: Approvals, *, yes: bool) -> bool:
    """Show a server whole; remember the yes, if there is one."""
    from dragoman.trust.approval import question

    if not yes and not sys.stdin.isatty():
        msg = f"nobody is here to agree to server `{spec.name}`"
        hint = f"look at it with `dragoman config show {spec.name}`; `--yes` approves it without asking"
        raise CallDeniedError(msg, hint=hint)
    # The question is for people, so it keeps out of what programs read.
    click.echo(question(spec, root), err=options.json)
    if not yes and not click.confirm("Approve it?", default=False, err=options.json):
        return False
    store.approve(spec, root)
    if not options.json:
        output.say(f"`{spec.name}` is approved for {output.shorten_path(root)}")
    return True


def _rows(settings: Settings, store: Approvals) -> list[ApprovalShape]:
    from dragoman.trust.approval import fingerprint, summary
    from dragoman.trust_store import project_root

    root = project_root(_root(settings))
    known = {one.server: one for one in store.all() if one.root == root}
    rows: list[ApprovalShape] = []
    for spec in of_project(settings, settings.servers):
        found = known.pop(spec.name, None)
        rows.append(
            {
                "server": spec.name,
                "root": root,
                "state": "new"
                if found is None
                else "approved"
                if found.fingerprint == fingerprint(spec)
                else "changed",
                "summary": summary(spec),
                "approved_at": found.at if found else None,
            }
        )
    gone: list[ApprovalShape] = [
        {
            "server": one.server,
            "root": root,
            "state": "forgotten",
            "summary": one.summary,
            "approved_at": one.at,
        }
        for one in known.values()
    ]
    return rows + gone


def _say_rows(settings: Settings, store: Approvals, specs: Sequence[ServerSpec]) -> None:
    names = {spec.name for spec in specs}
    report: TrustReport = {"servers": [row for row in _rows(settings, store) if row["server"] in names]}
    output.say_json(report)
