"""`dragoman trust show | approve | revoke | pin`: approvals, pins and package versions."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Literal

import click

from dragoman.cli import output
from dragoman.cli.exits import Exit, code_of, overall_exit
from dragoman.cli.known import in_question, named
from dragoman.cli.options import SERVERS, Options, common_options, timeout_option, typed
from dragoman.cli.reviews import PackageReport, ReviewReport, package_report, review_report
from dragoman.config.files import read
from dragoman.config.load import approvals, refused
from dragoman.config.packages import pinned
from dragoman.diagnosis.review import (
    OWN_WORD,
    package_text,
    pins_now,
    pins_text,
    remember,
    remembered,
    review,
)
from dragoman.errors import CallDeniedError, DragomanError, UnknownToolError
from dragoman.model import Stdio
from dragoman.storage.files import project_root
from dragoman.struct import UNSET, Report, Struct, UnsetType, field
from dragoman.suggest import suggest
from dragoman.trust.layers import (
    SETTINGS,
    project_servers,
    settings_question,
    settings_summary,
    settings_text,
)
from dragoman.trust.layers import in_question as every_in_question
from dragoman.trust.pin_store import Pins

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dragoman.cli.options import Options
    from dragoman.config.documents import Document
    from dragoman.config.packages import Package
    from dragoman.config.write import Target
    from dragoman.diagnosis.review import Review
    from dragoman.model import ServerSpec, Settings
    from dragoman.trust.approval_store import Approvals, Look
    from dragoman.trust.findings import Finding
    from dragoman.trust.pins import PinChange, ServerPins

_COLOURS = {"approved": "green", "changed": "yellow", "new": "yellow", "forgotten": None}
_SHOWN = 200
"""The most characters of one setting; `approve --settings` shows all."""
_LABEL = 10
"""The width of a line's label."""


class CoveredFile(Report, kw_only=True):
    """A file or folder that is part of an approval."""

    path: str
    """Relative to the project, if it is inside."""
    sha256: str
    """The hash of the content, or a word such as `absent`."""
    size: int
    target: str
    """The target, if it is a link."""


class ApprovalRow(Report, kw_only=True):
    """One server of `trust show`, `trust approve` and `trust revoke`."""

    server: str
    root: str
    """The project."""
    state: Literal["approved", "changed", "new", "forgotten"]
    """`changed`: approved with other content; `forgotten`: approved, but not configured."""
    summary: str
    """The command or URL, with secrets masked."""
    approved_at: float | None
    """Seconds since the epoch."""
    changes: Sequence[str] = ()
    """Changes since the approval."""
    programs: Mapping[str, str] = field(default_factory=dict[str, str])
    """The path of each program that it starts, by the name in the command."""
    files: Sequence[CoveredFile] = ()
    """The files whose content is part of the approval."""


class TrustReport(Report, kw_only=True):
    """`dragoman trust show --json`; `approve` and `revoke` print the changed servers."""

    servers: Sequence[ApprovalRow]
    """Servers that are defined or changed by a file of the project."""
    reviews: Sequence[ReviewReport] | UnsetType = UNSET
    """Only `show` and `approve`: the review of each server."""
    look_alikes: Sequence[Finding] | UnsetType = UNSET
    """Only `show`: different names that look the same."""
    settings: ApprovalRow | UnsetType | None = UNSET
    """The approval of the project's settings, with an empty name; null without settings."""


class PinReport(Report, kw_only=True):
    """`dragoman trust pin --json`."""

    server: str
    package: PackageReport | None
    """The package before the change."""
    version: str
    """The exact version."""
    before: str
    """The old word in the command."""
    after: str
    file: str
    written: bool
    needs_approval: bool
    """Whether the new command needs approval, because it is in a file of the project."""


@click.group()
@common_options
def trust() -> None:
    """Show, approve and revoke trust in servers, and pin package versions.

    A project's files may start any program, so its servers start only after you approve them. A server may
    change its tools, so they are compared with the pinned ones.
    """


@trust.command()
@common_options
@timeout_option
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=SERVERS)
@click.option("--refresh", is_flag=True, help="Query the servers; without it nothing is started.")
@click.pass_obj
def show(options: Options, names: tuple[str, ...], *, refresh: bool) -> None:
    """Show approvals, pins and what changed, suspicious definitions, and versions of packages.

    Without `--refresh` it shows the cached tools of the last connection, without prompts and instructions.
    """
    from dragoman.diagnosis.review import look_alikes

    settings = options.load()
    specs = [named(settings, name) for name in dict.fromkeys(names)] or list(settings.servers)
    rows = [row for row in _rows(settings, approvals()) if not names or row.server in names]
    own = None if names else _settings_row(settings, approvals())
    reviews = _reviews(options, settings, specs, refresh=refresh, named=bool(names))
    alike = look_alikes(reviews)
    if options.json:
        shown = [review_report(one) for one in reviews]
        output.say_json(TrustReport(servers=rows, reviews=shown, look_alikes=alike, settings=own))
    else:
        _show_all(rows, reviews, {spec.name for spec in settings.unapproved})
        if own is not None:
            _show_settings(own, settings)
        for finding in alike:
            output.say(f"look at {finding}", fg="yellow")
    raise click.exceptions.Exit(overall_exit(code_of(one.error) for one in reviews if one.error))


@trust.command()
@common_options
@timeout_option
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=SERVERS)
@click.option("--all", "everything", is_flag=True, help="Every server of the project, one by one.")
@click.option("--settings", "the_settings", is_flag=True, help="The settings in the project's files.")
@click.option(
    "--tools", multiple=True, metavar="TOOL", help="Approve the change of this tool only; repeatable."
)
@click.option("--project", "in_project", is_flag=True, help="Write the project's dragoman.lock, too.")
@click.option("--yes", "-y", is_flag=True, help="Approve without asking.")
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
    """Show what a server runs and what changed in its tools, and approve it if you agree.

    A project's server starts only after you approve its entry. If a server has pins, it is connected and the
    changes are shown; approving pins its current tools. Without a terminal, use `--yes`.

    `--settings` approves the project's switches, names and limits, which do not affect your own servers
    before, and the texts of its rules, which ask and deny in any case.
    """
    if (bool(names) + everything + the_settings) != 1:
        msg = "name the servers, or say --all or --settings"
        raise click.UsageError(msg)
    if tools and len(names) != 1:
        msg = "--tools are those of one server: name it alone"
        raise click.UsageError(msg)
    settings = options.load()
    store, root = approvals(), _root(settings)
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
        rows = [row for row in _rows(settings, store) if row.server in done]
        output.say_json(TrustReport(servers=rows, reviews=[review_report(one) for one in approver.reviews]))
    elif not specs:
        output.say("There is nothing to approve.")
    if failed:
        raise click.exceptions.Exit(overall_exit(failed))
    if len(done) < len(specs):
        msg = f"{len(specs) - len(done)} of {len(specs)} not approved"
        raise CallDeniedError(msg)


@trust.command()
@common_options
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=SERVERS)
@click.option("--settings", "the_settings", is_flag=True, help="The settings in the project's files.")
@click.pass_obj
def revoke(options: Options, names: tuple[str, ...], *, the_settings: bool) -> None:
    """Revoke the approval of a project's servers, or of its settings."""
    if not names and not the_settings:
        msg = "name the servers, or say --settings"
        raise click.UsageError(msg)
    settings = options.load()
    store = approvals()
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
        rows = [row for row in _rows(settings, store) if row.server in gone]
        output.say_json(TrustReport(servers=rows))
        return
    for name in gone:
        output.say(f"`{name}` is not approved any more")


@trust.command()
@common_options
@timeout_option
@click.argument("name", shell_complete=SERVERS)
@click.option("--version", default="", metavar="VERSION", help="The version; the installed one unless given.")
@click.option("--write", "writes", is_flag=True, help="Write the change; without it nothing is written.")
@click.pass_obj
def pin(options: Options, name: str, *, version: str, writes: bool) -> None:
    """Pin the exact version of the package that `npx`, `uvx` or a similar runner starts for a server.

    The version is looked up in the runner's folders. Only one word of the entry is changed, in its file.
    """
    settings = options.load()
    pin_version(options, settings, named(settings, name), version=version, writes=writes)


def _root(settings: Settings) -> str:
    return settings.root or str(Path.cwd())


def _approve_settings(options: Options, settings: Settings, approver: Approver) -> None:
    agreed = approver.approve_settings()
    if options.json:
        output.say_json(TrustReport(servers=[], settings=_settings_row(settings, approvals())))
    if not agreed:
        msg = "the project's settings are not approved"
        raise CallDeniedError(msg)


def _settings_row(settings: Settings, store: Approvals) -> ApprovalRow | None:
    """Return the approval of the project's settings."""
    root = project_root(_root(settings))
    found = next((one for one in store.all() if (one.root, one.server) == (root, SETTINGS)), None)
    if not settings.project:
        return None
    trusted = store.trusts_settings(settings.project, root)
    return ApprovalRow(
        server=SETTINGS,
        root=root,
        state="approved" if trusted else "new" if found is None else "changed",
        summary=settings_summary(settings.project),
        approved_at=found.at if found else None,
    )


def _show_settings(row: ApprovalRow, settings: Settings) -> None:
    click.echo(click.style("the project's settings", bold=True))
    command = typed("dragoman trust approve --settings")
    text = {
        "approved": "approved for this project",
        "changed": f"changed since they were approved: `{command}` asks again",
        "new": f"not approved: `{command}` shows them whole and asks",
    }.get(row.state, row.state)
    _line("approval", text, _COLOURS[row.state])
    for one in settings.project:
        place = f"{one.source}:{one.line}" if one.line else one.source
        shown = settings_text(one, _SHOWN).replace(place, output.shorten_path(place), 1)
        _line("setting", shown, None)


def _reviews(
    options: Options, settings: Settings, specs: Sequence[ServerSpec], *, refresh: bool, named: bool
) -> list[Review]:
    if not refresh:
        known = remembered(settings, specs)
        return [review(spec, settings, known.get(spec.name)) for spec in specs]
    from dragoman.cli.commands.doctor import diagnose_all

    # Unapproved and disabled servers are shown without connecting; that is not a failure.
    unapproved = refused(settings, specs)
    asked = [spec for spec in specs if spec.name not in unapproved and (named or spec.enabled)]
    found = {one.spec.name: one for one in diagnose_all(options, settings, asked)}
    reviews: list[Review] = []
    for spec in specs:
        one = found.get(spec.name)
        offered = one.listing if one else None
        if offered is not None:
            remember(settings, spec, offered)
        reviews.append(review(spec, settings, offered, error=one.error if one and offered is None else None))
    return reviews


def _show_all(rows: Sequence[ApprovalRow], reviews: Sequence[Review], rivals: Collection[str]) -> None:
    states = {row.server: row for row in rows}
    for one in reviews:
        _show_review(one, states.pop(one.spec.name, None), is_rivalled=one.spec.name in rivals)
    for row in states.values():
        name = click.style(output.one_line(row.server), bold=True)
        click.echo(f"{name}  {output.one_line(row.summary)}")
        _line("approval", "approved, but not configured any more", None)
    if not rows and not reviews:
        output.say(output.NO_SERVERS)


def _show_review(one: Review, row: ApprovalRow | None, *, is_rivalled: bool) -> None:
    width = output.columns()
    head = f"{output.one_line(one.spec.name)}  {output.one_line(output.command_line(one.spec.transport))}"
    name, _, rest = (head if width is None else output.cut(head, width)).partition("  ")
    click.echo(f"{click.style(name, bold=True)}  {click.style(rest, dim=True)}")
    if row is not None:
        again = f": `{typed(f'dragoman trust approve {quote(one.spec.name)}')}` shows it whole and asks"
        text = {
            "approved": "approved for this project",
            "changed": f"changed since it was approved{again}",
            "new": f"not approved{again}",
        }.get(row.state, row.state)
        if is_rivalled:
            theirs = f"the project's own `{output.one_line(row.summary)}` is not in effect"
            text = f"{theirs}, it is {text}"
        _line("approval", text, _COLOURS[row.state])
        for change in row.changes:
            _line("", change, _COLOURS[row.state])
        for path in row.programs.values():
            _line("program", path, None)
        for file in row.files:
            link = f" -> {file.target}" if file.target else ""
            _line("covers", f"{file.path}{link}  {file.sha256[:12]}, {file.size:,} bytes", None)
    if one.error is not None:
        _line("error", " ".join(str(one.error).split()), "red")
    changed = one.state == "changed"
    _line("pins", pins_text(one), "yellow" if changed else None)
    if changed and one.verdict is not None:
        for change in one.verdict.changes:
            for line in one.texts(change):
                _line("", line, {"-": "red", "+": "green"}.get(line.strip()[:1]))
        _line(
            "",
            f"`{typed(f'dragoman trust approve {quote(one.spec.name)}')}` asks, and pins what it offers now",
            None,
        )
    for finding in one.findings:
        _line("look at", str(finding), "yellow")
    if one.package is not None:
        _line("package", package_text(one), "yellow" if one.has_floating_package else None)
    if one.offered is not None and one.offered.source == "cache":
        output.note(f"{one.spec.name}: cached list. Use --refresh to query the server.")


def _line(label: str, text: str, colour: str | None) -> None:
    width = output.columns()
    indent = " " * (_LABEL + 2)
    shown = output.safe(text)
    inner = " " * (len(shown) - len(shown.lstrip(" ")))
    inner += "  " if shown.lstrip(" ").startswith(("- ", "+ ")) else ""
    pieces = [shown] if width is None else output.wrapped(shown, max(20, width - len(indent)), inner)
    for index, piece in enumerate(pieces):
        click.echo((f"  {label:<{_LABEL}}" if not index else indent) + click.style(piece, fg=colour))


def _rows(settings: Settings, store: Approvals) -> list[ApprovalRow]:
    from dragoman.trust.approvals import summary

    root = project_root(_root(settings))
    known = {one.server: one for one in store.all() if one.root == root and one.server != SETTINGS}
    rows: list[ApprovalRow] = []
    for spec in every_in_question(settings):
        known.pop(spec.name, None)
        look = store.look(spec, root, settings.inputs)
        rows.append(
            ApprovalRow(
                server=spec.name,
                root=root,
                state="approved" if look.error is None else "new" if look.approval is None else "changed",
                summary=summary(spec),
                approved_at=look.approval.at if look.approval else None,
                changes=look.changes,
                programs={word: path for word, path in look.evidence.programs.items() if path},
                files=[CoveredFile.of(one, sha256=one.digest) for one in look.evidence.files],
            )
        )
    gone = [ApprovalRow.of(one, root=root, state="forgotten", approved_at=one.at) for one in known.values()]
    return rows + gone


class Wish(Struct, kw_only=True):
    """The options of `approve`."""

    tools: Sequence[str] = ()
    """Only these tools; all of them unless given."""
    in_project: bool = False
    yes: bool = False


class Approver:
    """Asks the user about servers, one by one."""

    def __init__(self, options: Options, settings: Settings, root: str, wish: Wish) -> None:
        """Prepare to ask.

        Args:
            options: What was asked for globally.
            settings: What the configuration says.
            root: The project's directory.
            wish: The options of `approve`.
        """
        self._options = options
        self._settings = settings
        self._root = root
        self._wish = wish
        self._pins = Pins(root)
        self.reviews: list[Review] = []
        """The reviews of the connected servers, after the approval."""

    def approve(self, spec: ServerSpec) -> bool:
        """Ask about a server's entry and its tools, as far as needed; return whether all is approved.

        Raises:
            CallDeniedError: There is no terminal to ask at.
            DragomanError: The server cannot be asked what it offers, or nothing of it is pinned.
        """
        is_theirs = bool(project_servers(self._settings, [spec]))
        store = approvals()
        look = store.look(spec, self._root, self._settings.inputs) if is_theirs else None
        is_new = look is not None and look.error is not None
        if look is not None and is_new and not self._entry_agreed(look, store):
            return False
        wants_pins = bool(self._wish.tools) or self._wish.in_project
        if spec.trust == "off" and wants_pins:
            msg = f"nothing of server `{spec.name}` is pinned: its `trust` is off"
            raise DragomanError(msg, hint='write `trust = "warn"` or `"strict"` into its entry')
        # A project's server that was never used is pinned at first use, so it is not started now.
        if spec.trust != "off" and (wants_pins or not is_theirs or self._pins.known(spec)):
            return self._offer_agreed(spec)
        if not is_new:
            why = "approved already" if is_theirs else "yours, and its `trust` is off"
            self._say(f"`{spec.name}` is {why}: there is nothing to approve")
        return True

    def approve_settings(self) -> bool:
        """Ask about the project's settings; return whether they are approved.

        Raises:
            CallDeniedError: There is no terminal to ask at.
        """
        statements = self._settings.project
        if not statements or self._settings.trusts_project:
            why = "are approved already" if statements else "do not exist"
            self._say(f"settings of the project {why}: there is nothing to approve")
            return True
        if not self._can_ask:
            msg = "the project's settings need your approval, and there is no terminal to ask at"
            raise CallDeniedError(msg, hint="look at them with `dragoman config show`; `--yes` approves them")
        self._show(settings_question(statements, self._root))
        if not self._said_yes("Let them count?"):
            return False
        approvals().approve_settings(statements, self._root)
        self._say(f"the project's settings are approved for {output.shorten_path(self._root)}")
        return True

    # The entry

    def _entry_agreed(self, look: Look, store: Approvals) -> bool:
        from dragoman.trust.approvals import question

        spec = look.spec
        if not self._can_ask:
            msg = f"server `{spec.name}` needs your approval, and there is no terminal to ask at"
            raise self._denied(msg, spec, f"look at it with `dragoman config show {quote(spec.name)}`")
        self._show(question(spec, self._root, look.evidence, look.changes))
        if not self._said_yes("Approve it?"):
            return False
        # Approve exactly what was shown, even if a file has changed since.
        store.approve(spec, self._root, look.evidence)
        self._say(f"`{spec.name}` is approved for {output.shorten_path(self._root)}")
        return True

    # What it offers

    def _offer_agreed(self, spec: ServerSpec) -> bool:
        from dragoman.cli.commands.doctor import diagnose_all

        (found,) = diagnose_all(self._options, self._settings, [spec])
        if found.listing is None:
            raise found.error or DragomanError(f"server `{spec.name}` does not say what it offers")
        remember(self._settings, spec, found.listing)
        looked = review(spec, self._settings, found.listing)
        now = pins_now(found.listing)
        changes = self._chosen(looked, now)
        if not changes and not self._is_new(looked):
            self._say(f"`{spec.name}` offers what was pinned: there is nothing to approve")
            self.reviews.append(looked)
            return True
        self._show_offer(looked, now, changes)
        if not self._can_ask:
            msg = f"the tools of server `{spec.name}` need your approval, and there is no terminal to ask at"
            raise self._denied(
                msg, spec, f"look at it with `dragoman trust show {quote(spec.name)} --refresh`"
            )
        if not self._said_yes("Approve these definitions?"):
            self.reviews.append(looked)
            return False
        names = list(self._wish.tools) or None
        self._pins.approve(spec, now, tools=names, in_project=self._wish.in_project)
        after = review(spec, self._settings, found.listing)
        self.reviews.append(after)
        files = ", ".join(output.shorten_path(str(path)) for path in after.known)
        self._say(f"`{spec.name}`: what it offers is pinned in {files}")
        return True

    def _chosen(self, looked: Review, now: ServerPins) -> list[PinChange]:
        """Return the selected changes; an unknown tool is an error."""
        changes = list(looked.verdict.changes) if looked.verdict else []
        if not self._wish.tools:
            return changes
        tools = [change for change in changes if change.kind == "tool"]
        known = {*now.tools, *(change.name for change in tools)}
        for name in self._wish.tools:
            if name not in known:
                server, alike = looked.spec.name, suggest(name, sorted(known))
                hint = (
                    f"did you mean {' or '.join(alike)}?"
                    if alike
                    else f"`dragoman trust show {quote(server)} --refresh` lists what changed"
                )
                msg = f"server `{server}` has no tool `{name}`"
                raise UnknownToolError(msg, server=server, tool=name, suggestions=alike, hint=hint)
        return [change for change in tools if change.name in self._wish.tools]

    def _is_new(self, looked: Review) -> bool:
        """Return whether a lock file lacks the server."""
        return not looked.known or (self._wish.in_project and self._pins.project_path not in looked.known)

    def _show_offer(self, looked: Review, now: ServerPins, changes: Sequence[PinChange]) -> None:
        name = looked.spec.name
        if not looked.known:
            self._show(f"`{name}` was never used; now it offers {len(now.tools)} tools:")
            self._show("\n".join(f"  {output.one_line(tool)}" for tool in sorted(now.tools)))
        elif not changes:
            self._show(
                f"`{name}` offers what you have pinned; {self._pins.project_path.name} is to have it too"
            )
        else:
            self._show(f"`{name}` offers something else than was pinned:")
            for change in changes:
                self._show("\n".join(f"  {line}" for line in looked.texts(change)))
        for finding in looked.findings:
            if not self._wish.tools or finding.subject in self._wish.tools:
                self._show(f"  ! {finding}")

    # The person

    @property
    def _can_ask(self) -> bool:
        return self._wish.yes or sys.stdin.isatty()

    def _said_yes(self, question: str) -> bool:
        return self._wish.yes or click.confirm(question, default=False, err=self._options.json)

    def _show(self, text: str) -> None:
        # With --json, what the user reads goes to stderr, so that stdout holds only JSON.
        click.echo(output.safe(text), err=self._options.json)

    def _say(self, text: str) -> None:
        if not self._options.json:
            output.say(text)

    def _denied(self, msg: str, spec: ServerSpec, look: str) -> CallDeniedError:
        words = [*self._options.program(), "trust", "approve", spec.name]
        words += [word for tool in self._wish.tools for word in ("--tools", tool)]
        words += ["--project"] if self._wish.in_project else []
        again = shlex.join([*words, "--yes"])
        return CallDeniedError(msg, server=spec.name, hint=f"{look}; `{again}` approves it without asking")


class _Plan(Struct, kw_only=True):
    """The planned change."""

    looked: Review
    package: Package
    version: str
    where: str
    """The source of the version."""
    before: Stdio
    after: Stdio

    @property
    def changes(self) -> bool:
        return self.before != self.after


def pin_version(
    options: Options, settings: Settings, spec: ServerSpec, *, version: str, writes: bool
) -> None:
    """Show the change that pins the version of a server's package, and write it if requested."""
    from dragoman.config import write

    plan = _plan(options, settings, spec, version)
    target = write.target_of_spec(spec, settings.root)
    # Check that the file can be changed even if nothing is written yet.
    _reworded(read(target.path), target, spec, plan)
    if writes and plan.changes:
        write.apply(target, lambda document: _reworded(document, target, spec, plan))
    written = writes and plan.changes
    asks_again = plan.changes and bool(project_servers(settings, [spec]))
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
        again = typed(f"dragoman trust approve {quote(spec.name)}")
        output.say(f"it is another command then: `{again}` approves it", fg="yellow")


def _plan(options: Options, settings: Settings, spec: ServerSpec, version: str) -> _Plan:
    looked = review(spec, settings, None)
    package, stdio = looked.package, spec.transport
    if package is None or not isinstance(stdio, Stdio):
        msg = f"server `{spec.name}` is not started by `npx`, `uvx` or the like: it has no package to pin"
        raise DragomanError(msg, hint="a script or an address has no version; look at what it runs")
    if version:
        if not package.replace(version=version).is_pinned:
            msg = f"`{version}` is not an exact version, such as 1.2.3"
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
    """Connect to the server for its reported version, which is only good enough for a hint."""
    from dragoman.cli.commands.doctor import diagnose_all

    (found,) = diagnose_all(options, settings, [spec])
    said = found.listing.version if found.listing else ""
    msg = f"no version of {package.registry} `{package.name}` is found on this machine"
    hint = "use `--version`"
    if said:
        hint = f"use `--version`; `{said}` is {OWN_WORD}"
    return DragomanError(msg, hint=hint)


def _reworded(document: Document, target: Target, spec: ServerSpec, plan: _Plan) -> Document:
    from dragoman.config.edit import reworded

    return reworded(
        document,
        target.dialect,
        target.root,
        spec.name,
        pointer=spec.origin.pointer,
        change=lambda stdio: pinned(stdio, plan.version),
    )


def _report(plan: _Plan, path: Path, *, written: bool, needs_approval: bool) -> PinReport:
    index = plan.package.index
    return PinReport.of(
        plan,
        server=plan.looked.spec.name,
        package=package_report(plan.looked),
        before=plan.before.args[index],
        after=plan.after.args[index],
        file=str(path),
        written=written,
        needs_approval=needs_approval,
    )
