"""`dragoman add | remove | enable | disable`: one server at a time, in the file where it belongs.

`add` writes what reads back as the very same server, or nothing. What comes from the catalogue is shown in
full and asked for first. The other three change the file in which the definition in effect stands.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from dragoman.cli import adding, output
from dragoman.cli.known import refused, unknown
from dragoman.cli.options import Options, common_options
from dragoman.errors import ConfigError, DragomanError, ServerError
from dragoman.model import Stdio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.config.catalogue import Item
    from dragoman.config.write import Target
    from dragoman.model import ServerSpec, Settings

_COMMAND = "dragoman.command"
_WORDS = "dragoman.words"
_PROGRAMS = {"node": "Node.js", "uv": "uv"}


class _AddCommand(click.Command):
    """A command that keeps what follows `--` apart from its own arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_WORDS] = list(args)
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


@click.command(cls=_AddCommand, options_metavar="[OPTIONS]", epilog="COMMAND and its arguments follow `--`.")
@common_options
@click.argument("name", required=False)
@click.argument("arguments", nargs=-1)
@click.option("--list", "lists", is_flag=True, help="List the well-known servers.")
@click.option("--url", help="The address of a server that runs elsewhere.")
@click.option(
    "--http", "kind", flag_value="http", help="It speaks Streamable HTTP; both are tried unless given."
)
@click.option("--sse", "kind", flag_value="sse", help="It speaks legacy SSE.")
@click.option(
    "--header", "headers", multiple=True, metavar='"NAME: VALUE"', help="A header to send; repeatable."
)
@click.option("--env", "env", multiple=True, metavar="NAME=VALUE", help="A variable to set; repeatable.")
@click.option("--cwd", metavar="DIRECTORY", help="Where the command runs.")
@click.option("--timeout", metavar="DURATION", help="How long a call may take: 30, 30s, 2m.")
@click.option("--allow", "allowed", multiple=True, metavar="TOOL", help="Offer these tools only; repeatable.")
@click.option("--scope", type=click.Choice(["user", "project"]), help="Whose file: yours, or the project's.")
@click.option("--replace", is_flag=True, help="Replace a server of the same name.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.pass_obj
@click.pass_context
def add(
    context: click.Context,
    options: Options,
    *,
    name: str | None,
    arguments: tuple[str, ...],
    lists: bool,
    scope: Literal["user", "project"] | None,
    replace: bool,
    yes: bool,
    **given: Any,
) -> None:
    """Add a server: by its command, by its URL, or by a well-known name.

    \b
    dragoman add NAME -- COMMAND ARGUMENTS…
    dragoman add NAME --url URL
    dragoman add filesystem ~/papers       `dragoman add --list` has the names

    Write '${NAME}' for a value that comes from the environment when the server starts.
    """  # noqa: D301 -- click wants the backspace itself
    if lists:
        adding.list_catalogue(options)
        return
    if not name:
        msg = "NAME is missing: how shall the server be called? `dragoman add --list` has well-known ones."
        raise click.UsageError(msg)
    command: list[str] | None = context.meta.get(_COMMAND)
    item = None if command is not None or given["url"] else adding.known(name, arguments)
    if arguments and item is None:
        msg = f"`{shlex.join(arguments)}` belongs nowhere: the whole command follows `--`"
        raise click.UsageError(msg)
    spec = adding.with_options(adding.spec_of(name, command, item, arguments, given), given)
    target = target_of(options, scope=scope)
    _check_new(options, target, spec, replace=replace, guessed=not given["kind"])
    if item is not None and not yes:
        _ask(options, item, spec, target, context.meta[_WORDS])
    _write(options, target, spec, replace=replace)


@click.command()
@common_options
@click.argument("name")
@click.pass_obj
def remove(options: Options, name: str) -> None:
    """Remove a server from the file in which it stands."""
    from dragoman.config import write

    settings = options.load()
    spec = settings.server(name)
    target = write.target_of_spec(spec, settings.root) if spec else _broken_entry(settings, name)
    if target is None:
        raise unknown(settings, name)
    write.remove(target, name, spec.origin.pointer if spec else "")
    left = options.load().server(name)
    if options.json:
        others = [output.origin_json(left.origin)] if left else []
        output.say_json({"removed": name, "file": str(target.path), "still_defined": others})
        return
    output.say(f"removed `{name}` from {output.shorten_path(str(target.path))}")
    if left is not None:
        output.say(f"it is still defined in {output.place(left.origin)}, which is now in effect", fg="yellow")


@click.command()
@common_options
@click.argument("name")
@click.pass_obj
def enable(options: Options, name: str) -> None:
    """Switch a server on."""
    _switch(options, name, on=True)


@click.command()
@common_options
@click.argument("name")
@click.pass_obj
def disable(options: Options, name: str) -> None:
    """Switch a server off; its definition stays."""
    _switch(options, name, on=False)


def target_of(
    options: Options, *, config: str | None = None, scope: Literal["user", "project"] | None = None
) -> Target:
    """Return the file that these options make changes go to."""
    from dragoman.config.expand import Surroundings
    from dragoman.config.profiles import profile_named
    from dragoman.config.write import target

    home = os.path.expanduser("~")  # noqa: PTH111 -- a text is needed
    surroundings = Surroundings(env=os.environ, root=os.getcwd(), home=home)  # noqa: PTH109 -- as `discover.load`
    return target(profile_named(options.profile), surroundings, config=config or options.config, scope=scope)


def _check_new(options: Options, target: Target, spec: ServerSpec, *, replace: bool, guessed: bool) -> None:
    """Refuse a name that is taken, and a server that the file's dialect cannot say in full."""
    from dragoman.config.export import entry

    present = options.load().server(spec.name) if _may_load(options) else None
    theirs = present is not None and bool(refused(options.load(), [present]))
    # A project's entry that is not approved does not take a name away.
    if present is not None and not replace and not theirs:
        msg = f"a server called `{spec.name}` exists already, in {output.place(present.origin)}"
        raise ServerError(msg, server=spec.name, hint="`--replace` replaces it")
    _, losses = entry(spec, target.dialect, format=target.format)
    lost = [str(loss) for loss in losses if not (guessed and loss.key == "transport")]
    if lost:
        msg = f"server `{spec.name}` cannot be written in full: {'; '.join(lost)}"
        raise ConfigError(msg, source=str(target.path), hint="leave that out, or choose another file")


def _may_load(options: Options) -> bool:
    """Tell whether the configuration is more than a file that `add` is about to make."""
    return options.config is None or Path(options.config).expanduser().exists()


def _ask(options: Options, item: Item, spec: ServerSpec, target: Target, words: Sequence[str]) -> None:
    """Show what would be written, in full, and go on only if a person says so."""
    command = adding.in_full(spec.transport)
    if not sys.stdin.isatty():
        again = shlex.join([*options.program(), "add", "--yes", *words])
        msg = f"nobody is here to agree to `{command}`"
        raise DragomanError(msg, hint=f"this adds it without asking: {again}")
    about = output.one_line(item.description)
    click.echo(f"{click.style(output.one_line(spec.name), bold=True)}  {about}", err=options.json)
    rows = {"runs" if item.command else "url": command}
    if isinstance(spec.transport, Stdio):
        rows["with"] = ", ".join(f"{key}={value}" for key, value in spec.transport.env.items())
    else:
        rows["headers"] = ", ".join(f"{key}: {value}" for key, value in spec.transport.headers.items())
    rows["goes to"] = output.shorten_path(str(target.path))
    if item.command and shutil.which(item.command) is None:
        rows["missing"] = f"{_PROGRAMS.get(item.needs, item.needs)}: `{item.command}` is not on your PATH"
    unset = [name for name in item.variables() if name not in os.environ]
    rows["unset"] = ", ".join(unset) and f"{', '.join(unset)}: set it before the server is used"
    for label, text in rows.items():
        if text:
            click.echo(f"  {label:<8} {output.safe(text)}", err=options.json)
    click.confirm("Add it?", abort=True, err=options.json)


def _write(options: Options, target: Target, spec: ServerSpec, *, replace: bool) -> None:
    from dragoman.config import write

    write.put(target, [spec], replaces=replace)
    written = options.load().server(spec.name)
    in_effect = written is not None and _same_file(written.origin.source, target.path)
    if options.json:
        shown = output.spec_json(written if written is not None and in_effect else spec)
        output.say_json(
            {"added": spec.name, "file": str(target.path), "in_effect": in_effect, "server": shown}
        )
        return
    output.say(f"added `{spec.name}` to {output.shorten_path(str(target.path))}")
    if not in_effect:
        by = (
            f"`{spec.name}` in {output.place(written.origin)} hides it"
            if written
            else "another file hides it"
        )
        output.warn(f"it is not in effect here: {by}")


def _switch(options: Options, name: str, *, on: bool) -> None:
    from dragoman.config import write

    settings = options.load()
    spec = settings.server(name)
    if spec is None:
        raise unknown(settings, name)
    target = write.target_of_spec(spec, settings.root)
    elsewhere = [note.message for note in spec.notes if note.message.startswith("off: ")]
    if on and elsewhere:
        msg = f"server `{name}` is switched {elsewhere[0]}"
        raise ConfigError(msg, source=str(target.path), hint="change that list")
    changed = spec.enabled != on
    if changed:
        write.switch(target, name, spec.origin.pointer, on=on)
    if options.json:
        output.say_json({"server": name, "enabled": on, "changed": changed, "file": str(target.path)})
        return
    where = output.shorten_path(str(target.path))
    state = "on" if on else "off"
    output.say(
        f"`{name}` is {state} now, in {where}" if changed else f"`{name}` is {state} already, in {where}"
    )


def _broken_entry(settings: Settings, name: str) -> Target | None:
    """Find a server that is written down but cannot be used, so that it can be removed too."""
    from dragoman.config.edit import entry_named
    from dragoman.config.files import read
    from dragoman.config.write import target_at

    for source in settings.sources:
        if source.status != "loaded" or not Path(source.path).is_file():
            continue
        target = target_at(Path(source.path), source.dialect, settings.root)
        with contextlib.suppress(ConfigError, OSError):
            if entry_named(read(target.path), target.dialect, settings.root, name) is not None:
                return target
    return None


def _same_file(one: str, other: Path) -> bool:
    return Path(one).resolve() == other.resolve()
