"""`dragoman config hosts | show | check | paths | schema`: show apps, servers, problems and files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli import exits, known, output
from dragoman.cli.exits import Exit
from dragoman.cli.options import Options, common_options, typed
from dragoman.cli.output import ProblemReport
from dragoman.errors import ConfigError, MissingVariableError
from dragoman.model import Stdio
from dragoman.struct import Report
from dragoman.suggest import suggest
from dragoman.trust.layers import inputs_of, settings_text, without_effect
from dragoman.trust.masking import mask_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.model import ServerSpec, Settings, Statement

_LONGEST = 200
"""Characters shown of one setting."""


class HostRow(Report, kw_only=True):
    """Another app on this machine."""

    app: str
    title: str
    use: bool | None
    """Whether its servers are used; null until you decide."""
    files: Sequence[str]
    servers: Sequence[str]


class HostsReport(Report, kw_only=True):
    """`dragoman config hosts --json`."""

    hosts: Sequence[HostRow]


class SettingRow(Report, kw_only=True):
    """A setting of the project that has no effect."""

    source: str
    line: int | None
    pointer: str
    key: str


class ConfigReport(Report, kw_only=True):
    """`dragoman config show --json`."""

    profile: str
    root: str
    enabled: bool
    auto_reload: bool
    call_log: bool | None
    daemon: bool
    health_check_interval: float
    naming: str
    servers: Sequence[Mapping[str, Any]]
    unapproved: Sequence[Mapping[str, Any]]
    """Definitions of the project that are not in effect."""
    without_effect: Sequence[SettingRow]
    problems: Sequence[ProblemReport]


class CheckReport(Report, kw_only=True):
    """`dragoman config check --json`."""

    ok: bool
    problems: Sequence[ProblemReport]
    warnings: Sequence[ProblemReport]


@click.group()
@common_options
def config() -> None:
    """Show, check and locate the configuration.

    No server is started, and secrets are masked.
    """


@config.command()
@common_options
@click.option("--use", "use", flag_value="yes", help="Use the servers of these apps, after your own.")
@click.option("--ignore", "use", flag_value="no", help="Do not use them, and do not ask.")
@click.argument("names", nargs=-1, metavar="[APP]...")
@click.pass_obj
def hosts(options: Options, names: tuple[str, ...], use: str | None) -> None:
    """Show other apps on this machine that have servers, and choose whether to use them.

    Without APPS, `--use` and `--ignore` apply to all that were found. Their files are read each time, and
    never changed.
    """
    from dragoman.config.hosts import find_hosts, ignored, in_use, remember

    found = {host.name: host for host in find_hosts()}
    for name in names:
        if name not in found:
            near = suggest(name, found, count=1)
            hint = f"did you mean `{near[0]}`?" if near else f"found: {', '.join(found) or 'none'}"
            msg = f"no servers of `{name}` found"
            raise ConfigError(msg, hint=hint)
    if use is not None:
        remember(names or found, use=use == "yes")
    used, unwanted = in_use(), ignored()
    rows = [
        HostRow.of(
            host,
            app=host.name,
            use=True if host.name in used else False if host.name in unwanted else None,
            servers=[spec.name for spec in host.servers],
        )
        for host in found.values()
        if not names or host.name in names
    ]
    if options.json:
        output.say_json(HostsReport(hosts=rows))
        return
    if not rows:
        output.say("No other app with servers found.")
    for host in found.values() if rows else ():
        if names and host.name not in names:
            continue
        state = "in use" if host.name in used else "ignored" if host.name in unwanted else "not in use"
        files = ", ".join(map(output.shorten_path, host.files))
        click.echo(f"{click.style(output.safe(host.title), bold=True)}  {state}  {output.safe(files)}")
        for spec in host.servers:
            output.say(f"  {spec.name}  {output.command_line(spec.transport)}")


@config.command()
@common_options
@click.argument("names", nargs=-1)
@click.pass_obj
def show(options: Options, names: tuple[str, ...]) -> None:
    """Show the configured servers and where each is defined.

    Shows all servers unless NAMES are given.
    """
    settings = options.load()
    shown = [known.named(settings, name) for name in names] or settings.servers
    theirs = [spec for spec in settings.unapproved if not names or spec.name in names]
    idle = [] if names else without_effect(settings)
    if options.json:
        output.say_json(
            ConfigReport.of(
                settings,
                servers=[output.spec_json(spec) for spec in shown],
                unapproved=[output.spec_json(spec) for spec in theirs],
                without_effect=[SettingRow.of(one) for one in idle],
                problems=[ProblemReport.of(problem) for problem in settings.problems],
            )
        )
        return
    if not settings.enabled:
        output.say("MCP is disabled ([mcp] enabled = false); no server is started.", fg="yellow")
    for spec in shown:
        _show_server(spec)
    for spec in theirs:
        _show_server(spec, "not approved (no effect)")
    for one in idle:
        output.say(f"Not approved (no effect): {_shortened_setting(one)}", fg="yellow")
    if idle:
        output.say(f"Review these settings of the project: {typed('dragoman trust approve --settings')}")
    if not settings.servers:
        output.say(f"{output.NO_SERVERS}. Files: dragoman config paths")
    for warning in settings.warnings:
        output.warn(f"warning: {_shortened(warning)}")
    if settings.problems:
        output.warn(f"{exits.problem_count(settings)}: {exits.CHECK}")


def _shortened_setting(one: Statement) -> str:
    text = settings_text(one, _LONGEST)
    return text.replace(one.source, output.shorten_path(one.source), 1)


def _show_server(spec: ServerSpec, note: str = "") -> None:
    state = "" if spec.enabled else click.style("  disabled", fg="yellow")
    state += click.style(f"  {note}", fg="yellow") if note else ""
    click.echo(click.style(output.safe(spec.name), bold=True) + f"  {spec.kind}" + state)

    def row(label: str, text: str) -> None:
        if text:
            click.echo(f"  {click.style(f'{label:<9}', dim=True)} {output.safe(text)}")

    transport = spec.transport
    row("command" if isinstance(transport, Stdio) else "url", output.command_line(transport))
    values = transport.env if isinstance(transport, Stdio) else transport.headers
    separator, label = ("=", "env") if isinstance(transport, Stdio) else (": ", "headers")
    masked = mask_values(values)
    row(
        label,
        ", ".join(f"{name} unset" if v is None else f"{name}{separator}{v}" for name, v in masked.items()),
    )
    if isinstance(transport, Stdio):
        row("cwd", transport.cwd or "")
    row("timeouts", ", ".join(f"{name} {value:g} s" for name, value in spec.timeouts.items()))
    row(
        "allows", ", ".join(spec.allowed_tools or ()) or ("nothing" if spec.allowed_tools is not None else "")
    )
    row("denies", ", ".join(spec.denied_tools))
    for tool in spec.fallback if isinstance(spec.fallback, Mapping) else ():
        row("fallback", f"{tool}: {', '.join(spec.fallbacks_of(tool))}")
    row("fallback", "" if isinstance(spec.fallback, Mapping) else ", ".join(spec.fallback))
    row("from", f"{output.place(spec.origin)} ({spec.origin.scope}, {spec.origin.dialect})")
    for origin in spec.shadowed:
        row("overrides", f"{output.place(origin)} ({origin.scope}, {origin.dialect})")
    for one in spec.notes:
        message = one.message.replace("dragoman trust approve", typed("dragoman trust approve"))
        row("note", f"{one.key}: {message}" if one.key else message)


@config.command()
@common_options
@click.option("--strict", is_flag=True, help="Fail on warnings too.")
@click.pass_obj
def check(options: Options, *, strict: bool) -> None:
    """Report all problems; the exit code is 3 if there are any."""
    settings = options.load()
    warnings = [*settings.warnings, *_warnings(settings)]
    if options.json:
        output.say_json(
            CheckReport(
                ok=not settings.problems,
                problems=[ProblemReport.of(problem) for problem in settings.problems],
                warnings=[ProblemReport.of(problem) for problem in warnings],
            )
        )
    else:
        for problem in settings.problems:
            output.say(f"error: {_shortened(problem)}", fg="red")
        for warning in warnings:
            output.say(f"warning: {_shortened(warning)}", fg="yellow")
        loaded = [source for source in settings.sources if source.status == "loaded"]
        servers = len(settings.servers)
        output.say(
            f"{servers} server{'s' * (servers != 1)} in {len(loaded)} source{'s' * (len(loaded) != 1)}: "
            f"{len(settings.problems)} error{'s' * (len(settings.problems) != 1)}, "
            f"{len(warnings)} warning{'s' * (len(warnings) != 1)}"
        )
    if settings.problems or (strict and warnings):
        raise click.exceptions.Exit(Exit.CONFIG)


def _shortened(problem: object) -> str:
    text = str(problem)
    source = getattr(problem, "source", "")
    return (
        text.replace(source, output.shorten_path(source), 1) if source and text.startswith(source) else text
    )


def _warnings(settings: Settings) -> list[ConfigError]:
    """Find entries that are valid but will not work here: unset variables, unknown fallbacks."""
    from dragoman.config.templates import ExpansionContext, expand_auth, expand_transport

    home = os.path.expanduser("~")  # noqa: PTH111 -- a string is needed, and `pathlib` costs start-up time
    names = {spec.name for spec in settings.servers}
    found = [_idle(one) for one in without_effect(settings)]
    for spec in settings.servers:
        inputs = {item.id: item.default or "" for item in inputs_of(spec, settings).values()}
        expansion = ExpansionContext(env=os.environ, root=settings.root, home=home, inputs=inputs)
        for expanded in (expand_transport, expand_auth):
            try:
                expanded(spec, expansion)
            except MissingVariableError as error:
                found.append(error)
        for name in spec.fallback_names:
            if name not in names:
                msg = f"the fallback `{name}` of server `{spec.name}` is not a configured server"
                hint = "ignore this if it is a local tool of the application"
                found.append(
                    ConfigError(
                        msg,
                        source=spec.origin.source,
                        pointer=spec.origin.pointer,
                        line=spec.origin.line,
                        hint=hint,
                    )
                )
    return found


def _idle(one: Statement) -> ConfigError:
    msg = "this setting of the project is not approved and has no effect"
    hint = f"review it with `{typed('dragoman trust approve --settings')}`"
    return ConfigError(msg, source=one.source, pointer=one.pointer, line=one.line, hint=hint)


@config.command()
@common_options
@click.pass_obj
def paths(options: Options) -> None:
    """List the configuration files in order of precedence, and what was found."""
    settings = options.load()
    if options.json:
        output.say_json(settings.sources)
        return
    colours = {"loaded": "green", "broken": "red", "hidden": "yellow", "absent": None}
    width = max((len(output.shorten_path(source.path)) for source in settings.sources), default=0)
    for source in settings.sources:
        found = f"{source.servers} server{'s' * (source.servers != 1)}" if source.status == "loaded" else ""
        status = click.style(f"{source.status:<7}", fg=colours[source.status])
        where = output.safe(f"{output.shorten_path(source.path):<{min(width, 60)}}")
        click.echo(f"{status} {where}  {source.scope:<8} {found}".rstrip())


@config.command()
@common_options
@click.option("--policy", "of_policy", is_flag=True, help="Of a file that is a policy alone.")
def schema(*, of_policy: bool) -> None:
    """Print the JSON Schema of configuration files, with which editors complete and check keys.

    Save it, and name the file under `$schema` in mcp.json, or as `#:schema FILE` in the first line of a TOML
    file.
    """
    from dragoman.config.json_schema import config_schema, policy_schema

    click.echo(json.dumps(policy_schema() if of_policy else config_schema(), ensure_ascii=False, indent=2))
