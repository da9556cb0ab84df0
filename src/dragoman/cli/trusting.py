"""`dragoman trust show | approve | revoke | pin`: what is trusted, what is in question, a person's yes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dragoman.cli import output
from dragoman.cli.completing import SERVERS
from dragoman.cli.exits import Exit, code_of, together
from dragoman.cli.known import in_question, named, refused
from dragoman.cli.options import Options, common_options, timeout_option
from dragoman.errors import CallDeniedError, DragomanError
from dragoman.trust.layers import SETTINGS, settings_summary, settings_text
from dragoman.trust.layers import in_question as every_in_question

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from dragoman.cli.approving import Approver
    from dragoman.cli.reviewing import Review
    from dragoman.cli.shapes import ApprovalShape, TrustReport
    from dragoman.model import ServerSpec, Settings
    from dragoman.trust_store import Approvals

_COLOURS = {"approved": "green", "changed": "yellow", "new": "yellow", "forgotten": None}
_SHOWN = 200
"""Characters of one setting of a project; `approve --settings` shows it whole."""
_LABEL = 10
"""Columns for what a line of a review is about."""


@click.group()
@common_options
def trust() -> None:
    """Show what is trusted, approve it, take that back, pin versions.

    A file that came with a project may start any program, and a server may change what it offers. The first
    needs your yes before anything is started; the second is compared with what was pinned.
    """


@trust.command()
@common_options
@timeout_option
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=SERVERS)
@click.option("--refresh", is_flag=True, help="Ask the servers what they offer now; else nothing is started.")
@click.pass_obj
def show(options: Options, names: tuple[str, ...], *, refresh: bool) -> None:
    """Show approvals, pins and what changed, suspicious definitions, and versions of packages.

    Without `--refresh` it says what is known from the last connection, which has no prompts and instructions.
    """
    from dragoman.cli.reviewing import finding_json, look_alikes, review_json

    settings = options.load()
    specs = [named(settings, name) for name in dict.fromkeys(names)] or list(settings.servers)
    rows = [row for row in _rows(settings, _approvals()) if not names or row["server"] in names]
    own = None if names else _settings_row(settings, _approvals())
    reviews = _reviews(options, settings, specs, refresh=refresh, named=bool(names))
    alike = look_alikes(reviews)
    if options.json:
        report: TrustReport = {
            "servers": rows,
            "reviews": [review_json(one) for one in reviews],
            "look_alikes": [finding_json(finding) for finding in alike],
            "settings": own,
        }
        output.say_json(report)
    else:
        _show_all(rows, reviews, {spec.name for spec in settings.unapproved})
        if own is not None:
            _show_settings(own, settings)
        for finding in alike:
            output.say(f"look at {finding}", fg="yellow")
    raise click.exceptions.Exit(together(code_of(one.error) for one in reviews if one.error))


@trust.command()
@common_options
@timeout_option
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=SERVERS)
@click.option("--all", "everything", is_flag=True, help="Every server of the project, one after the other.")
@click.option("--settings", "the_settings", is_flag=True, help="What its files say beside their servers.")
@click.option(
    "--tools", multiple=True, metavar="TOOL", help="Approve the change of this tool only; repeatable."
)
@click.option("--project", "in_project", is_flag=True, help="Write the project's dragoman.lock, too.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask: somebody has looked at it.")
@click.pass_obj
def approve(
    options: Options,
    names: tuple[str, ...],
    *,
    everything: bool,
    the_settings: bool,
    tools: tuple[str, ...],
    in_project: bool,
    yes: bool,
) -> None:
    """Show what a server would run and what it offers otherwise than before, and approve it if you say so.

    A project's server is approved as its file has it, and started only then. Where something of a server is
    pinned, it is connected and what changed is shown; the yes pins what it offers now. Without a terminal
    nothing is approved but with `--yes`.

    With `--settings` it is about the project's switches, names and limits, which have no effect on your own
    servers before, and about the wording of its rules, which ask and deny from the start.
    """
    from dragoman.cli.approving import Approver, Wish
    from dragoman.cli.reviewing import review_json

    if (bool(names) + everything + the_settings) != 1:
        msg = "name the servers, or say --all or --settings"
        raise click.UsageError(msg)
    if tools and len(names) != 1:
        msg = "--tools are those of one server: name it alone"
        raise click.UsageError(msg)
    settings = options.load()
    store, root = _approvals(), _root(settings)
    if everything:
        theirs = every_in_question(settings)
        specs = [spec for spec in theirs if not store.is_approved(spec, root, settings.inputs)]
    else:
        specs = [in_question(settings, name) for name in dict.fromkeys(names)]
    wish = Wish(tools=tools, in_project=in_project, yes=yes)
    approver = Approver(options, settings, root, wish)
    if the_settings:
        _approve_settings(options, settings, approver)
        return
    done: list[str] = []
    failed: list[Exit] = []
    for spec in specs:
        try:
            done += [spec.name] if approver.approve(spec) else []
        except DragomanError as error:
            if len(specs) == 1:
                raise
            output.warn(f"{spec.name}: {' '.join(str(error).split())}")
            failed.append(code_of(error))
    if options.json:
        rows = [row for row in _rows(settings, store) if row["server"] in done]
        report: TrustReport = {"servers": rows, "reviews": [review_json(one) for one in approver.reviews]}
        output.say_json(report)
    elif not specs:
        output.say("There is nothing to approve.")
    if failed:
        raise click.exceptions.Exit(together(failed))
    if len(done) < len(specs):
        msg = f"{len(specs) - len(done)} of {len(specs)} not approved"
        raise CallDeniedError(msg)


@trust.command()
@common_options
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=SERVERS)
@click.option("--settings", "the_settings", is_flag=True, help="What its files say beside their servers.")
@click.pass_obj
def revoke(options: Options, names: tuple[str, ...], *, the_settings: bool) -> None:
    """Take the approval of a project's servers back, or that of its settings."""
    if not names and not the_settings:
        msg = "name the servers, or say --settings"
        raise click.UsageError(msg)
    settings = options.load()
    store = _approvals()
    root = _root(settings)
    gone: list[str] = []
    if the_settings:
        taken = store.revoke(SETTINGS, root)
        said = "are not approved any more" if taken else "were not approved"
        output.warn(f"the project's settings {said}")
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


@trust.command()
@common_options
@timeout_option
@click.argument("name", shell_complete=SERVERS)
@click.option("--version", default="", metavar="VERSION", help="This one; else the one on this machine.")
@click.option("--write", "writes", is_flag=True, help="Write; nothing is written unless given.")
@click.pass_obj
def pin(options: Options, name: str, *, version: str, writes: bool) -> None:
    """Name the exact version of the package that `npx`, `uvx` or the like starts for a server.

    The version is looked for where the runner keeps its packages. One word of the entry is changed, in the
    file where it stands.
    """
    from dragoman.cli import pinning

    settings = options.load()
    pinning.pin(options, settings, named(settings, name), version=version, writes=writes)


def _approvals() -> Approvals:
    from dragoman.trust_store import Approvals

    return Approvals()


def _root(settings: Settings) -> str:
    return settings.root or str(Path.cwd())


def _approve_settings(options: Options, settings: Settings, approver: Approver) -> None:
    agreed = approver.approve_settings()
    if options.json:
        report: TrustReport = {"servers": [], "settings": _settings_row(settings, _approvals())}
        output.say_json(report)
    if not agreed:
        msg = "the project's settings are not approved"
        raise CallDeniedError(msg)


def _settings_row(settings: Settings, store: Approvals) -> ApprovalShape | None:
    """Return the approval of the project's settings, as `shapes` has it."""
    from dragoman.trust_store import project_root

    root = project_root(_root(settings))
    found = next((one for one in store.all() if (one.root, one.server) == (root, SETTINGS)), None)
    if not settings.project:
        return None
    trusted = store.trusts_settings(settings.project, root)
    return {
        "server": SETTINGS,
        "root": root,
        "state": "approved" if trusted else "new" if found is None else "changed",
        "summary": settings_summary(settings.project),
        "approved_at": found.at if found else None,
        "changes": [],
        "programs": {},
        "files": [],
    }


def _show_settings(row: ApprovalShape, settings: Settings) -> None:
    click.echo(click.style("the project's settings", bold=True))
    text = {
        "approved": "approved for this project",
        "changed": "changed since they were approved: `dragoman trust approve --settings` asks again",
        "new": "not approved: `dragoman trust approve --settings` shows them whole and asks",
    }.get(row["state"], row["state"])
    _line("approval", text, _COLOURS[row["state"]])
    for one in settings.project:
        place = f"{one.source}:{one.line}" if one.line else one.source
        shown = settings_text(one, _SHOWN).replace(place, output.shorten_path(place), 1)
        _line("setting", shown, None)


def _reviews(
    options: Options, settings: Settings, specs: Sequence[ServerSpec], *, refresh: bool, named: bool
) -> list[Review]:
    from dragoman.cli.reviewing import remember, remembered, review

    if not refresh:
        known = remembered(settings, specs)
        return [review(spec, settings, known.get(spec.name)) for spec in specs]
    from dragoman.cli.doctor import examine

    # What is not approved or off is shown as it is, which is no failure.
    unapproved = refused(settings, specs)
    asked = [spec for spec in specs if spec.name not in unapproved and (named or spec.enabled)]
    found = {one.spec.name: one for one in examine(options, settings, asked)}
    reviews: list[Review] = []
    for spec in specs:
        one = found.get(spec.name)
        offered = one.offered if one else None
        if offered is not None:
            remember(settings, spec, offered)
        reviews.append(review(spec, settings, offered, error=one.cause if one and offered is None else None))
    return reviews


def _show_all(rows: Sequence[ApprovalShape], reviews: Sequence[Review], rivals: Collection[str]) -> None:
    states = {row["server"]: row for row in rows}
    for one in reviews:
        _show_review(one, states.pop(one.spec.name, None), is_rivalled=one.spec.name in rivals)
    for row in states.values():
        name = click.style(output.one_line(row["server"]), bold=True)
        click.echo(f"{name}  {output.one_line(row['summary'])}")
        _line("approval", "approved, but not configured any more", None)
    if not rows and not reviews:
        output.say("No servers: `dragoman add NAME` sets one up.")


def _show_review(one: Review, row: ApprovalShape | None, *, is_rivalled: bool) -> None:
    from dragoman.cli.reviewing import package_text, pins_text

    width = output.columns()
    head = f"{output.one_line(one.spec.name)}  {output.one_line(output.command_line(one.spec.transport))}"
    name, _, rest = (head if width is None else output.cut(head, width)).partition("  ")
    click.echo(f"{click.style(name, bold=True)}  {click.style(rest, dim=True)}")
    if row is not None:
        again = f": `dragoman trust approve {one.spec.name}` shows it whole and asks"
        text = {
            "approved": "approved for this project",
            "changed": f"changed since it was approved{again}",
            "new": f"not approved{again}",
        }.get(row["state"], row["state"])
        if is_rivalled:
            theirs = f"the project's own `{output.one_line(row['summary'])}` is not in effect"
            text = f"{theirs}, it is {text}"
        _line("approval", text, _COLOURS[row["state"]])
        for change in row["changes"]:
            _line("", change, _COLOURS[row["state"]])
        for path in row["programs"].values():
            _line("program", path, None)
        for file in row["files"]:
            link = f" -> {file['target']}" if file["target"] else ""
            _line("covers", f"{file['path']}{link}  {file['sha256'][:12]}, {file['size']:,} bytes", None)
    if one.error is not None:
        _line("error", " ".join(str(one.error).split()), "red")
    changed = one.state == "changed"
    _line("pins", pins_text(one), "yellow" if changed else None)
    if changed and one.verdict is not None:
        for change in one.verdict.changes:
            for line in one.texts(change):
                _line("", line, {"-": "red", "+": "green"}.get(line.strip()[:1]))
        _line("", f"`dragoman trust approve {one.spec.name}` asks, and pins what it offers now", None)
    for finding in one.findings:
        _line("look at", str(finding), "yellow")
    if one.package is not None:
        _line("package", package_text(one), "yellow" if one.has_floating_package else None)
    if one.offered is not None and one.offered.source == "cache":
        output.note(f"{one.spec.name}: as its tools were listed last; `--refresh` asks it now")


def _line(label: str, text: str, colour: str | None) -> None:
    width = output.columns()
    indent = " " * (_LABEL + 2)
    shown = output.safe(text)
    inner = " " * (len(shown) - len(shown.lstrip(" ")))
    inner += "  " if shown.lstrip(" ").startswith(("- ", "+ ")) else ""
    pieces = [shown] if width is None else output.wrapped(shown, max(20, width - len(indent)), inner)
    for index, piece in enumerate(pieces):
        click.echo((f"  {label:<{_LABEL}}" if not index else indent) + click.style(piece, fg=colour))


def _rows(settings: Settings, store: Approvals) -> list[ApprovalShape]:
    from dragoman.trust.approval import summary
    from dragoman.trust_store import project_root

    root = project_root(_root(settings))
    known = {one.server: one for one in store.all() if one.root == root and one.server != SETTINGS}
    rows: list[ApprovalShape] = []
    for spec in every_in_question(settings):
        known.pop(spec.name, None)
        look = store.look(spec, root, settings.inputs)
        rows.append(
            {
                "server": spec.name,
                "root": root,
                "state": "approved" if look.error is None else "new" if look.approval is None else "changed",
                "summary": summary(spec),
                "approved_at": look.approval.at if look.approval else None,
                "changes": list(look.changes),
                "programs": {word: path for word, path in look.evidence.programs.items() if path},
                "files": [
                    {"path": one.path, "sha256": one.digest, "size": one.size, "target": one.target}
                    for one in look.evidence.files
                ],
            }
        )
    gone: list[ApprovalShape] = [
        {
            "server": one.server,
            "root": root,
            "state": "forgotten",
            "summary": one.summary,
            "approved_at": one.at,
            "changes": [],
            "programs": {},
            "files": [],
        }
        for one in known.values()
    ]
    return rows + gone
