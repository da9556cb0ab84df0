"""`dragoman import`: show the servers of other apps, and import them with `--write`.

Nothing is started. Only `--write` changes a file, and only the file of dragoman.
"""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from dragoman.cli import output
from dragoman.cli.commands.edit import target_of
from dragoman.cli.exits import Exit
from dragoman.cli.known import unknown_among
from dragoman.cli.options import Options, common_options
from dragoman.cli.output import ProblemReport
from dragoman.config.dialects import HOSTS, SEEDS, dialect
from dragoman.config.load import refused
from dragoman.config.merge import TemplateReference, pieces
from dragoman.config.profiles import BUILT_IN
from dragoman.errors import ConfigError, InvalidSpecError
from dragoman.model import Stdio
from dragoman.struct import MutableStruct, Report, field
from dragoman.suggest import suggest
from dragoman.trust.layers import inputs_of, of_project
from dragoman.trust.masking import mask_values
from dragoman.trust.own_gateway import is_own_gateway

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dragoman.config.export import Loss
    from dragoman.config.write import Target
    from dragoman.model import ServerSpec, Settings


class _Found(MutableStruct):
    """One server of another app, and what happens to it."""

    spec: ServerSpec
    status: Literal["new", "replaces", "taken", "refused", "left"] = "new"
    why: str = ""
    """The reason why it is not imported."""
    losses: list[Loss] = field(default_factory=list["Loss"])


class _Host(MutableStruct):
    """The servers found in the files of one app, or in one file."""

    title: str
    settings: Settings
    servers: list[_Found] = field(default_factory=list[_Found])


class ImportedServer(Report, kw_only=True):
    """One server of another app."""

    host: str
    status: Literal["new", "replaces", "taken", "refused", "left"]
    why: str
    """The reason why it is not imported."""
    losses: Sequence[Loss]
    """What dragoman's format cannot express."""
    server: Mapping[str, Any]
    """As in `config show`."""


class ImportReport(Report, kw_only=True):
    """`dragoman import --json`."""

    target: str
    dialect: str
    written: bool
    servers: Sequence[ImportedServer]
    problems: Sequence[ProblemReport]


@click.command(
    "import",
    epilog="\b\n" + textwrap.fill(f"Apps: {', '.join([*HOSTS, *SEEDS])}.", 76, break_on_hyphens=False),
)
@common_options
@click.argument("source", required=False, metavar="[APP|FILE]")
@click.option("--all", "everything", is_flag=True, help="Import from all known apps.")
@click.option("--only", "names", multiple=True, metavar="NAME", help="Import only this server; repeatable.")
@click.option("--replace", is_flag=True, help="Replace servers with the same name.")
@click.option("--include-project", is_flag=True, help="Import servers of project files without asking.")
@click.option("--to", metavar="FILE", help="Write to this file.")
@click.option("--write", "writes", is_flag=True, help="Write the file (default: only show).")
@click.pass_obj
def import_(
    options: Options,
    source: str | None,
    *,
    everything: bool,
    names: tuple[str, ...],
    replace: bool,
    include_project: bool,
    to: str | None,
    writes: bool,
) -> None:
    """Import servers from Claude Code, Cursor, VS Code and other apps.

    Without `--write`, only show what would be imported. FILE is any file with MCP servers. The exit code is 3
    if a file has problems; its valid servers are imported anyway.

    Imported servers are available in all your projects. A server from a file of the current project is
    imported only after you confirm it, or with `--include-project`.
    """
    if bool(source) == everything:
        msg = "Specify an APP, a FILE, or `--all`."
        raise click.UsageError(msg)
    hosts = [_one(options, source)] if source else list(_all(options))
    target = target_of(options, config=to)
    _judge(hosts, target, _present(options, to), names=names, replace=replace)
    if writes and not include_project:
        _ask_about_project(options, hosts)
    chosen = [found.spec for host in hosts for found in host.servers if found.status in ("new", "replaces")]
    if writes and chosen:
        from dragoman.config import write

        write.put(target, chosen, replaces=replace)
    _show(options, hosts, target, written=writes)
    if any(host.settings.problems for host in hosts):
        raise click.exceptions.Exit(Exit.CONFIG)


def _ask_about_project(options: Options, hosts: Sequence[_Host]) -> None:
    """Show each server of the project in full, and skip it unless the user agrees."""
    from dragoman.trust.approvals import question

    for host in hosts:
        for found in host.servers:
            if found.status not in ("new", "replaces") or not of_project(found.spec, host.settings):
                continue
            agreed = False
            if sys.stdin.isatty():
                click.echo(output.safe(question(found.spec, host.settings.root)), err=options.json)
                agreed = click.confirm("Import it for all your projects?", default=False, err=options.json)
            if not agreed:
                found.status = "left"
                found.why = "it comes from a project file; use `--include-project` to import it"


def _one(options: Options, source: str) -> _Host:
    """Read the files of one app, or one file."""
    if source in HOSTS or source in BUILT_IN:
        title = dialect(source).title if source in HOSTS else source
        return _Host(title, _load(options, source))
    path = Path(source).expanduser()
    if not path.exists():
        alike = suggest(source, [*HOSTS, *BUILT_IN])
        hint = f"did you mean {' or '.join(alike)}?" if alike else f"known apps: {', '.join(HOSTS)}"
        msg = f"`{source}` is not a known app or an existing file"
        raise ConfigError(msg, hint=hint)
    return _Host(output.shorten_path(os.path.abspath(path)), _load(options, "dragoman", str(path)))  # noqa: PTH100


def _all(options: Options) -> Iterable[_Host]:
    for name in HOSTS:
        settings = _load(options, name)
        if name != options.profile and any(
            source.status in ("loaded", "broken") for source in settings.sources
        ):
            yield _Host(dialect(name).title, settings)


def _load(options: Options, profile: str, config: str | None = None) -> Settings:
    """Load the configuration of an app; its problems are shown here, not logged."""
    return Options(profile=profile, config=config, debug=options.debug, alone=True).load()


def _present(options: Options, to: str | None) -> dict[str, str]:
    """Return the servers that are already configured, with their location."""
    file = to or options.config
    if file is not None and not Path(file).expanduser().exists():
        return {}
    settings = _load(options, options.profile, file)
    unapproved = refused(settings, settings.servers)
    return {spec.name: output.place(spec.origin) for spec in settings.servers if spec.name not in unapproved}


def _judge(
    hosts: Sequence[_Host], target: Target, present: dict[str, str], *, names: Sequence[str], replace: bool
) -> None:
    """Set the status of each server, and what would be lost."""
    taken: dict[str, str] = {}
    pairs = [(host, spec) for host in hosts for spec in (*host.settings.servers, *host.settings.unapproved)]
    # The user's servers come first, so that a project cannot take their names.
    pairs.sort(key=lambda pair: of_project(pair[1], pair[0].settings))
    for host, spec in pairs:
        if names and spec.name not in names:
            continue
        found = _Found(spec)
        host.servers.append(found)
        if is_own_gateway(spec.transport):
            found.status, found.why = "refused", "it is dragoman's own gateway"
            continue
        _measure(found, host.settings, target)
        if found.status == "refused":
            continue
        if spec.name in taken:
            found.status, found.why = "taken", f"{taken[spec.name]} has a server with the same name"
        elif spec.name in present and not replace:
            found.status = "taken"
            found.why = f"already configured in {present[spec.name]}; use --replace to replace it"
        else:
            found.status = "replaces" if spec.name in present else "new"
            taken[spec.name] = host.title
    known = [spec.name for host in hosts for spec in host.settings.servers]
    for name in names:
        if name not in known:
            raise unknown_among(known, name, f"unknown server `{name}`")


def _measure(found: _Found, settings: Settings, target: Target) -> None:
    from dragoman.config.export import Loss, entry

    try:
        _, losses = entry(found.spec, target.dialect, format=target.format)
    except InvalidSpecError as error:
        found.status, found.why = "refused", "; ".join(error.problems)
        return
    known = {"", *found.spec.extras, *(loss.key for loss in losses)}
    for note in found.spec.notes:
        if note.code in ("unused", "unknown") and note.key not in known:
            losses.append(Loss(note.key, note.message))
    known_inputs = inputs_of(found.spec, settings)
    for name in _inputs(found.spec):
        if name in known_inputs and target.dialect.name != found.spec.origin.dialect:
            losses.append(Loss(f"inputs.{name}", "the description of this input is not imported"))
    found.losses = losses


def _inputs(spec: ServerSpec) -> list[str]:
    """Return the inputs that a server asks the user for."""
    transport = spec.transport
    texts: list[str | None] = (
        [transport.command, *transport.args, *transport.env.values()]
        if isinstance(transport, Stdio)
        else [transport.url, *transport.headers.values()]
    )
    parts = [piece for text in texts if text for piece in pieces(text)]
    return list(
        dict.fromkeys(p.name for p in parts if isinstance(p, TemplateReference) and p.kind == "input")
    )


def _show(options: Options, hosts: Sequence[_Host], target: Target, *, written: bool) -> None:
    if options.json:
        output.say_json(_report(hosts, target, written=written))
        return
    for host in hosts:
        files = [source.path for source in host.settings.sources if source.status in ("loaded", "broken")]
        shown = ", ".join(output.shorten_path(path) for path in files)
        where = f"  {output.safe(shown)}" if shown not in ("", host.title) else ""
        click.echo(click.style(output.safe(host.title), bold=True) + where)
        for found in host.servers:
            _show_server(found, target)
        if not host.servers:
            output.say("  No servers.")
        for problem in host.settings.problems:
            output.warn(f"  Problem: {problem}")
    count = sum(found.status in ("new", "replaces") for host in hosts for found in host.servers)
    others = sum(len(host.servers) for host in hosts) - count
    where = output.shorten_path(str(target.path))
    rest = f", {others} skipped" if others else ""
    servers = f"{count} server{'s' * (count != 1)}"
    if not hosts:
        output.say("No configuration of another app found.")
    elif written:
        output.say(f"Imported {servers} into {where}{rest}")
    else:
        again = " Use --write to import." if count else ""
        output.say(f"Would import {servers} into {where}{rest}.{again}")


def _show_server(found: _Found, target: Target) -> None:
    spec, transport = found.spec, found.spec.transport
    off = "" if spec.enabled else "  (disabled)"
    output.say(f"  {spec.name}  {spec.kind}  {output.command_line(transport)}{off}")
    theirs = "" if spec.origin.scope != "project" else ", review it before importing"
    output.say(f"      {'from':<8} {output.place(spec.origin)} ({spec.origin.scope}{theirs})")
    is_stdio = isinstance(transport, Stdio)
    values = mask_values(transport.env if is_stdio else transport.headers)
    separator = "=" if is_stdio else ": "
    if values:
        shown = ", ".join(f"{name}{separator}{value or ''}" for name, value in values.items())
        output.say(f"      {'env' if is_stdio else 'headers':<8} {shown}")
    match found.status:
        case "new" | "replaces":
            instead = ", replacing the existing server" if found.status == "replaces" else ""
            output.say(f"      {'to':<8} {output.shorten_path(str(target.path))}{instead}")
            for loss in found.losses:
                output.say(f"      {'lost':<8} {loss}")
        case "taken":
            output.say(f"      {'skipped':<8} {found.why}")
        case "refused":
            output.say(f"      {'refused':<8} {found.why}")
        case "left":
            output.say(f"      {'skipped':<8} {found.why}")


def _report(hosts: Sequence[_Host], target: Target, *, written: bool) -> ImportReport:
    return ImportReport(
        target=str(target.path),
        dialect=target.dialect.name,
        written=written,
        servers=[
            ImportedServer.of(found, host=host.title, server=output.spec_json(found.spec))
            for host in hosts
            for found in host.servers
        ],
        problems=[ProblemReport.of(problem) for host in hosts for problem in host.settings.problems],
    )
