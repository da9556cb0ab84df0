"""`dragoman config show | check | paths`: what is configured, what is wrong with it, where it was sought."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from dragoman.cli import known, output
from dragoman.cli.exits import Exit
from dragoman.cli.options import Options, common_options
from dragoman.errors import ConfigError, MissingVariableError
from dragoman.trust.layers import inputs_of, settings_text, without_effect

if TYPE_CHECKING:
    from dragoman.model import ServerSpec, Settings, Statement

_LONGEST = 200
"""Characters of one setting that are shown."""


@click.group()
@common_options
def config() -> None:
    """Show, check and locate the configuration.

    Nothing is started and no secret is shown.
    """


@config.command()
@common_options
@click.argument("names", nargs=-1)
@click.pass_obj
def show(options: Options, names: tuple[str, ...]) -> None:
    """Show the servers in effect: where each comes from and what it hides.

    NAMES are the servers to show; all of them unless given.
    """
    settings = options.load()
    wanted = [known.named(settings, name) for name in names] or settings.servers
    theirs = [spec for spec in settings.unapproved if not names or spec.name in names]
    idle = [] if names else without_effect(settings)
    if options.json:
        output.say_json(
            {
                "profile": settings.profile,
                "root": settings.root,
                "enabled": settings.enabled,
                "auto_reload": settings.auto_reload,
                "call_log": settings.call_log,
                "health_check_interval": settings.health_check_interval,
                "naming": settings.naming,
                "servers": [output.spec_json(spec) for spec in wanted],
                "unapproved": [output.spec_json(spec) for spec in theirs],
                "without_effect": [_setting_json(one) for one in idle],
                "problems": [output.problem_json(problem) for problem in settings.problems],
            }
        )
        return
    if not settings.enabled:
        output.say("MCP is switched off ([mcp] enabled = false): no server is started.", fg="yellow")
    for spec in wanted:
        _show_server(spec)
    for spec in theirs:
        _show_server(spec, "not approved, not in effect")
    for one in idle:
        output.say(f"not approved, not in effect: {_shortened_setting(one)}", fg="yellow")
    if idle:
        output.say("`dragoman trust approve --settings` shows these settings of the project and asks.")
    if not settings.servers:
        output.say("No servers are configured. `dragoman config paths` says where they are looked for,")
        output.say(
            "`dragoman add NAME` sets one up, `dragoman import --all` takes them over from other programs."
        )
    if settings.problems:
        count = len(settings.problems)
        output.warn(f"{count} problem{'s' * (count > 1)}: `dragoman config check` shows them")


def _shortened_setting(one: Statement) -> str:
    text = settings_text(one, _LONGEST)
    return text.replace(one.source, output.shorten_path(one.source), 1)


def _setting_json(one: Statement) -> dict[str, object]:
    return {"source": one.source, "line": one.line, "pointer": one.pointer, "key": one.key}


def _show_server(spec: ServerSpec, remark: str = "") -> None:
    from dragoman.model import Stdio
    from dragoman.trust.redact import mask_values

    state = "" if spec.enabled else click.style("  off", fg="yellow")
    state += click.style(f"  {remark}", fg="yellow") if remark else ""
    click.echo(click.style(output.safe(spec.name), bold=True) + f"  {spec.kind}" + state)

    def row(label: str, text: str) -> None:
        if text:
            click.echo(f"  {click.style(f'{label:<9}', dim=True)} {output.safe(text)}")

    transport = spec.transport
    row("runs" if isinstance(transport, Stdio) else "url", output.command_line(transport))
    values = transport.env if isinstance(transport, Stdio) else transport.headers
    separator, label = ("=", "env") if isinstance(transport, Stdio) else (": ", "headers")
    masked = mask_values(values)
    row(
        label,
        ", ".join(f"{name} unset" if v is None else f"{name}{separator}{v}" for name, v in masked.items()),
    )
    if isinstance(transport, Stdio):
        row("in", transport.cwd or "")
    row("timeouts", ", ".join(f"{name} {value:g} s" for name, value in spec.timeouts.items()))
    row(
        "allows", ", ".join(spec.allowed_tools or ()) or ("nothing" if spec.allowed_tools is not None else "")
    )
    row("denies", ", ".join(spec.denied_tools))
    row("fallback", ", ".join(spec.fallback))
    row("from", f"{output.place(spec.origin)} ({spec.origin.scope}, {spec.origin.dialect})")
    for origin in spec.shadowed:
        row("hides", f"{output.place(origin)} ({origin.scope}, {origin.dialect})")
    for note in spec.notes:
        row("note", f"{note.key}: {note.message}" if note.key else note.message)


@config.command()
@common_options
@click.option("--strict", is_flag=True, help="Fail on warnings too.")
@click.pass_obj
def check(options: Options, *, strict: bool) -> None:
    """Report every problem at once; exits with 3 if there is one."""
    settings = options.load()
    warnings = _warnings(settings)
    if options.json:
        output.say_json(
            {
                "ok": not settings.problems,
                "problems": [output.problem_json(problem) for problem in settings.problems],
                "warnings": [output.problem_json(problem) for problem in warnings],
            }
        )
    else:
        for problem in settings.problems:
            output.say(f"error: {_shortened(problem)}", fg="red")
        for warning in warnings:
            output.say(f"warning: {_shortened(warning)}", fg="yellow")
        loaded = [source for source in settings.sources if source.status == "loaded"]
        servers = len(settings.servers)
        output.say(
            f"{servers} server{'s' * (servers != 1)} from {len(loaded)} place{'s' * (len(loaded) != 1)}: "
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
    """Find what is well written but will not work here: unset variables, unknown fallbacks."""
    from dragoman.config.expand import Surroundings, expand_auth, expand_transport

    home = os.path.expanduser("~")  # noqa: PTH111 -- a text is wanted, and `pathlib` costs start-up time
    names = {spec.name for spec in settings.servers}
    found = [_idle(one) for one in without_effect(settings)]
    for spec in settings.servers:
        inputs = {item.id: item.default or "" for item in inputs_of(spec, settings).values()}
        surroundings = Surroundings(env=os.environ, root=settings.root, home=home, inputs=inputs)
        for expanded in (expand_transport, expand_auth):
            try:
                expanded(spec, surroundings)
            except MissingVariableError as error:
                found.append(error)
        for name in spec.fallback:
            if name not in names:
                msg = f"the fallback `{name}` of server `{spec.name}` is no configured server"
                found.append(
                    ConfigError(
                        msg, source=spec.origin.source, pointer=spec.origin.pointer, line=spec.origin.line
                    )
                )
    return found


def _idle(one: Statement) -> ConfigError:
    msg = "this setting of the project is not approved and has no effect on your servers"
    hint = "`dragoman trust approve --settings` shows it and asks"
    return ConfigError(msg, source=one.source, pointer=one.pointer, line=one.line, hint=hint)


@config.command()
@common_options
@click.pass_obj
def paths(options: Options) -> None:
    """List the places that were looked at, the strongest first, and what was found there."""
    settings = options.load()
    if options.json:
        output.say_json(
            [
                {
                    "path": source.path,
                    "scope": source.scope,
                    "dialect": source.dialect,
                    "status": source.status,
                    "servers": source.servers,
                }
                for source in settings.sources
            ]
        )
        return
    colours = {"loaded": "green", "broken": "red", "hidden": "yellow", "absent": None}
    width = max((len(output.shorten_path(source.path)) for source in settings.sources), default=0)
    for source in settings.sources:
        found = f"{source.servers} server{'s' * (source.servers != 1)}" if source.status == "loaded" else ""
        status = click.style(f"{source.status:<7}", fg=colours[source.status])
        where = output.safe(f"{output.shorten_path(source.path):<{min(width, 60)}}")
        click.echo(f"{status} {where}  {source.scope:<8} {found}".rstrip())
