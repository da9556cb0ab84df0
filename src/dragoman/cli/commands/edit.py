"""`dragoman add | remove | enable | disable`: change one server in a configuration file.

`add` writes an entry only if reading it back gives the same server. A server from the catalog is shown in
full and confirmed first. The other commands change the file that defines the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from dragoman.cli import output
from dragoman.cli.known import unknown
from dragoman.cli.options import Options, common_options, typed
from dragoman.config.dialects import dialect
from dragoman.config.files import read
from dragoman.config.load import refused
from dragoman.config.profiles import profile_named
from dragoman.config.templates import ExpansionContext
from dragoman.config.values import seconds
from dragoman.errors import ConfigError, DragomanError, ServerError
from dragoman.model import Http, ServerSpec, Sse, Stdio
from dragoman.struct import Report
from dragoman.suggest import suggest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dragoman.cli.options import Options
    from dragoman.config.write import Item, Target
    from dragoman.model import Origin, Settings, Transport


class CatalogEntry(Report, kw_only=True):
    """One server of `dragoman add --list --json`."""

    name: str
    description: str
    needs: str
    """What has to be installed: `node` or `uv`; empty for a remote server."""
    command: str
    takes: str
    """What its arguments are; empty if it takes none."""
    variables: Sequence[str]
    """The environment variables that it requires."""


class AddReport(Report, kw_only=True):
    """`dragoman add --json`."""

    added: str
    file: str
    in_effect: bool
    server: Mapping[str, Any]
    """As in `config show`."""


class RemoveReport(Report, kw_only=True):
    """`dragoman remove --json`."""

    removed: str
    file: str
    still_defined: Sequence[Origin]
    """Where else it is defined."""


class SwitchReport(Report, kw_only=True):
    """`dragoman enable --json` and `disable --json`."""

    server: str
    enabled: bool
    changed: bool
    file: str


def list_catalog(options: Options) -> None:
    """Print the servers of the catalog."""
    from dragoman.config.write import catalog

    items = catalog().values()
    if options.json:
        shown = [
            CatalogEntry.of(item, command=full_command(item.spec().transport), variables=item.variables())
            for item in items
        ]
        output.say_json(shown)
        return
    width = max(len(item.name) for item in items)
    for item in items:
        needs = "" if not item.needs else f" [{item.needs}]"
        keys = f" (set {', '.join(item.variables())})" if item.variables() else ""
        output.say(f"{item.name:<{width}}  {item.description}{keys}{needs}")


def catalog_item(name: str) -> Item:
    """Return a server of the catalog, or raise an error that shows how to add another one."""
    from dragoman.config.write import catalog

    items = catalog()
    if name in items:
        return items[name]
    others = [f"`{other}`" for other in suggest(name, items)]
    guess = f"Did you mean {' or '.join(others)}? " if others else ""
    if _is_url(name):
        msg = f"Missing NAME for the server: dragoman add NAME {name}"
        raise click.UsageError(msg)
    msg = f"`{name}` is not in the catalog. {guess}Add a command or a URL: dragoman add {name} COMMAND …"
    raise click.UsageError(msg)


def _absolute(argument: str) -> str:
    """Return a relative path as an absolute one; other arguments stay as they are."""
    is_path = argument.startswith((".", "~")) or Path(argument).exists()
    return os.path.abspath(Path(argument).expanduser()) if is_path else argument  # noqa: PTH100 -- keeps links


def spec_of(
    name: str, command: list[str] | None, item: Item | None, arguments: Sequence[str], given: dict[str, Any]
) -> ServerSpec:
    """Return the server, before the options are applied."""
    if item is not None:
        try:
            return item.spec(arguments=arguments)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
    if command is not None and given["url"]:
        msg = "Use either a command or `--url`, not both."
        raise click.UsageError(msg)
    if command is not None:
        if not command:
            msg = f"Missing command: dragoman add {name} COMMAND …"
            raise click.UsageError(msg)
        return ServerSpec(name, Stdio(command[0], command[1:]))
    return ServerSpec(name, _remote(name, given))


def _remote(name: str, given: dict[str, Any]) -> Transport:
    """Check the URL and guess its transport in the same way as for a file."""
    from dragoman.config.export import read_back

    entry = {"url": given["url"]} | ({"transport": given["kind"]} if given["kind"] else {})
    return read_back(name, entry, dialect("dragoman")).transport


def with_options(spec: ServerSpec, given: dict[str, Any]) -> ServerSpec:
    """Return the server with the options applied."""
    transport = spec.transport
    if isinstance(transport, Stdio):
        if given["headers"] or given["kind"]:
            msg = "`--header`, `--http` and `--sse` require `--url`."
            raise click.UsageError(msg)
        env = {**transport.env, **_pairs(given["env"], "=", "--env NAME=VALUE")}
        transport = transport.replace(env=env, cwd=given["cwd"])
    else:
        if given["env"] or given["cwd"]:
            msg = "`--env` and `--cwd` cannot be used with `--url`."
            raise click.UsageError(msg)
        headers = {**transport.headers, **_pairs(given["headers"], ":", '--header "NAME: VALUE"')}
        transport = transport.replace(headers=headers)
    spec = spec.replace(transport=transport, allowed_tools=given["allowed"] or None)
    if given["timeout"]:
        try:
            return spec.replace(timeouts={"call": seconds(given["timeout"], "s")})
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--timeout") from None
    return spec


def _pairs(texts: Iterable[str], separator: str, form: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, mark, value = text.partition(separator)
        if not mark or not name.strip():
            msg = f"Invalid value `{text}`. Expected: {form}"
            raise click.UsageError(msg)
        found[name.strip()] = value.strip() if separator == ":" else value
    return found


def full_command(transport: Transport) -> str:
    """Return the exact command or the URL; nothing is masked."""
    match transport:
        case Stdio():
            return shlex.join([transport.command, *transport.args])
        case Http() | Sse():
            return transport.url


_COMMAND = "dragoman.command"
_WORDS = "dragoman.words"
_RUNNERS = frozenset({"npx", "node", "bunx", "deno", "uvx", "uv", "pipx", "python", "python3", "docker"})
"""Programs that usually start servers; they count as programs even if they are not installed here."""
_PROGRAMS = {"node": "Node.js", "uv": "uv"}


class _AddCommand(click.Command):
    """A command that keeps the command of the server separate from its own arguments.

    The command starts after `--`, or with the second word that is not an option; nothing after it is an
    option of `add`. After a URL or a name of the catalog, options are still those of `add`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_WORDS] = list(args)
        name, at = self._second_word(args)
        if at is not None and args[at] == "--":
            ctx.meta[_COMMAND] = args[at + 1 :]
            args = args[:at]
        elif at is not None and _is_url(args[at]):
            args = [*args[:at], "--url", *args[at:]]
        elif at is not None and _is_command(name, args[at]):
            ctx.meta[_COMMAND] = args[at:]
            args = args[:at]
        elif "--" in args:
            cut = args.index("--")
            ctx.meta[_COMMAND] = args[cut + 1 :]
            args = args[:cut]
        return super().parse_args(ctx, args)

    def _second_word(self, args: Sequence[str]) -> tuple[str, int | None]:
        """Return the first word that is not an option, and the position of the second one or of `--`."""
        options = [param for param in self.params if isinstance(param, click.Option)]
        takes_value = {name for option in options if not option.is_flag for name in option.opts}
        name, at = "", 0
        while at < len(args):
            word = args[at]
            if word == "--" or (name and not word.startswith("-")):
                return name, at
            if not word.startswith("-"):
                name = word
            at += 2 if word in takes_value else 1
        return name, None


def _is_url(word: str) -> bool:
    return word.lower().startswith(("http://", "https://"))


def _is_command(name: str, word: str) -> bool:
    """Return whether a word starts a command: always, unless the name before it is in the catalog.

    After a name of the catalog that takes arguments, the words are these arguments, unless the first one is
    a program and not a file.
    """
    from dragoman.config.write import catalog

    item = catalog().get(name)
    if item is None or not item.takes:
        return True
    return not Path(word).exists() and (word in _RUNNERS or shutil.which(word) is not None)


@click.command(
    cls=_AddCommand,
    options_metavar="[OPTIONS]",
    epilog="Options of `add` go before the command of the server.",
)
@common_options
@click.argument("name", required=False)
@click.argument("arguments", nargs=-1, metavar="[COMMAND... | URL | ARGUMENTS...]")
@click.option("--list", "lists", is_flag=True, help="List the servers of the catalog.")
@click.option("--url", help="URL of a remote server.")
@click.option("--http", "kind", flag_value="http", help="Use Streamable HTTP (default: try both).")
@click.option("--sse", "kind", flag_value="sse", help="Use legacy SSE.")
@click.option(
    "--header", "headers", multiple=True, metavar='"NAME: VALUE"', help="HTTP header to send; repeatable."
)
@click.option("--env", "env", multiple=True, metavar="NAME=VALUE", help="Environment variable; repeatable.")
@click.option("--cwd", metavar="DIRECTORY", help="Working directory of the command.")
@click.option("--timeout", metavar="DURATION", help="Time limit of a call, e.g. 30, 30s, 2m.")
@click.option("--allow", "allowed", multiple=True, metavar="TOOL", help="Allow only this tool; repeatable.")
@click.option("--scope", type=click.Choice(["user", "project"]), help="Your file or the project's.")
@click.option("--replace", is_flag=True, help="Replace a server with the same name.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
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
    """Add a server by command, by URL, or by a name of the catalog.

    \b
    dragoman add NAME COMMAND ARGUMENTS…
    dragoman add NAME URL
    dragoman add filesystem ~/papers       (dragoman add --list shows the names)

    Write '${NAME}' for an environment variable; it is read when the server starts.
    """  # noqa: D301 -- click wants the backspace itself
    if lists:
        list_catalog(options)
        return
    if not name:
        msg = "Missing NAME for the server. Run `dragoman add --list` for the catalog."
        raise click.UsageError(msg)
    command: list[str] | None = context.meta.get(_COMMAND)
    item = None if command is not None or given["url"] else catalog_item(name)
    if arguments and item is None:
        msg = f"Unexpected `{shlex.join(arguments)}`. Write the whole command at the end."
        raise click.UsageError(msg)
    target = target_of(options, scope=scope)
    if item is not None and scope != "project":
        # The entry is for every project, so a path has to mean the same file in each of them.
        arguments = tuple(_absolute(one) for one in arguments or item.arguments)
    spec = with_options(spec_of(name, command, item, arguments, given), given)
    _check_new(options, target, spec, replace=replace, guessed=not given["kind"])
    if item is not None and not yes:
        _ask(options, item, spec, target, context.meta[_WORDS])
    _write(options, target, spec, replace=replace)
    if sys.stdout.isatty() and not options.json:
        _show_card(spec)


def _show_card(spec: ServerSpec) -> None:
    """Show what a server with a URL says about itself; only to a person, since it is not verified."""
    if isinstance(spec.transport, Stdio) or "${" in spec.transport.url:
        return
    from dragoman.server.card import fetch_card

    if (card := asyncio.run(fetch_card(spec.transport.url, spec.name))) is None:
        return
    output.say(f"Its server card (not verified): {card}")
    if missing := [
        name for name in card.headers if name.lower() not in map(str.lower, spec.transport.headers)
    ]:
        output.say(f"It needs the header {' and '.join(f'`{name}`' for name in missing)}.")


@click.command()
@common_options
@click.argument("name")
@click.pass_obj
def remove(options: Options, name: str) -> None:
    """Remove a server from its configuration file."""
    from dragoman.config import write

    settings = own_settings(options, name)
    spec = settings.server(name)
    target = write.target_of_spec(spec, settings.root) if spec else _broken_entry(settings, name)
    if target is None:
        raise unknown(settings, name)
    write.remove(target, name, spec.origin.pointer if spec else "")
    left = options.load().server(name)
    if options.json:
        others = [left.origin] if left else []
        output.say_json(RemoveReport(removed=name, file=str(target.path), still_defined=others))
        return
    output.say(f"Removed `{name}` from {output.shorten_path(str(target.path))}")
    if left is not None:
        output.say(f"It is also defined in {output.place(left.origin)}, which is now in effect.", fg="yellow")


@click.command()
@common_options
@click.argument("name")
@click.pass_obj
def enable(options: Options, name: str) -> None:
    """Enable a server."""
    _switch(options, name, on=True)


@click.command()
@common_options
@click.argument("name")
@click.pass_obj
def disable(options: Options, name: str) -> None:
    """Disable a server; its entry stays in the file."""
    _switch(options, name, on=False)


def target_of(
    options: Options, *, config: str | None = None, scope: Literal["user", "project"] | None = None
) -> Target:
    """Return the file to write to, according to the options."""
    from dragoman.config.write import target

    home = os.path.expanduser("~")  # noqa: PTH111 -- a text is needed
    expansion = ExpansionContext(env=os.environ, root=os.getcwd(), home=home)  # noqa: PTH109 -- as `discover.load`
    return target(profile_named(options.profile), expansion, config=config or options.config, scope=scope)


def own_settings(options: Options, name: str) -> Settings:
    """Load the configuration without the files of other apps, which are changed only if the user names them.

    Raises:
        ConfigError: The server is defined by another app.
    """
    settings = options.replace(alone=True).load()
    if any(spec.name == name for spec in (*settings.servers, *settings.unapproved)):
        return settings
    every = options.load()
    if (theirs := every.server(name)) is not None:
        host = theirs.origin.dialect
        msg = f"server `{name}` belongs to another app, in {output.place(theirs.origin)}"
        hint = (
            f"add `--profile {host}` to change that file, "
            f"or copy it first: `dragoman import {host} --only {shlex.quote(name)} --write`"
        )
        raise ConfigError(msg, hint=hint)
    return every


def _check_new(options: Options, target: Target, spec: ServerSpec, *, replace: bool, guessed: bool) -> None:
    """Reject a name that is in use, and a server that the file format cannot fully express."""
    from dragoman.config.export import entry

    settings = options.replace(alone=True).load() if _may_load(options) else None
    present = settings.server(spec.name) if settings is not None else None
    theirs = settings is not None and present is not None and bool(refused(settings, [present]))
    # An unapproved entry of the project does not reserve its name.
    if present is not None and not replace and not theirs:
        msg = f"server `{spec.name}` already exists in {output.place(present.origin)}"
        raise ServerError(msg, server=spec.name, hint="use `--replace` to replace it")
    _, losses = entry(spec, target.dialect, format=target.format)
    lost = [str(loss) for loss in losses if not (guessed and loss.key == "transport")]
    if lost:
        msg = f"the format of this file cannot express server `{spec.name}`: {'; '.join(lost)}"
        raise ConfigError(msg, source=str(target.path), hint="omit these options, or choose another file")


def _may_load(options: Options) -> bool:
    """Return whether the configuration exists; `add` may be about to create the file."""
    return options.config is None or Path(options.config).expanduser().exists()


def _ask(options: Options, item: Item, spec: ServerSpec, target: Target, words: Sequence[str]) -> None:
    """Show the full entry and ask for confirmation."""
    command = full_command(spec.transport)
    if not sys.stdin.isatty():
        again = shlex.join([*options.program(), "add", "--yes", *words])
        msg = f"adding `{command}` needs confirmation, but there is no terminal"
        raise DragomanError(msg, hint=f"to skip the question, run: {again}")
    about = output.one_line(item.description)
    click.echo(f"{click.style(output.one_line(spec.name), bold=True)}  {about}", err=options.json)
    rows = {"command" if item.command else "url": command}
    if isinstance(spec.transport, Stdio):
        rows["env"] = ", ".join(f"{key}={value}" for key, value in spec.transport.env.items())
    else:
        rows["headers"] = ", ".join(f"{key}: {value}" for key, value in spec.transport.headers.items())
    rows["file"] = output.shorten_path(str(target.path))
    if item.command and shutil.which(item.command) is None:
        rows["missing"] = f"{_PROGRAMS.get(item.needs, item.needs)}: `{item.command}` is not on your PATH"
    # Arguments of the user replace those of the catalog, and their variables.
    replaced_by = isinstance(spec.transport, Stdio) and not set(item.arguments) <= set(spec.transport.args)
    needed = item.replace(arguments=()).variables() if replaced_by else item.variables()
    unset = [name for name in needed if name not in os.environ]
    rows["unset"] = ", ".join(unset) and f"{', '.join(unset)} (set before using the server)"
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
        output.say_json(AddReport(added=spec.name, file=str(target.path), in_effect=in_effect, server=shown))
        return
    output.say(f"Added `{spec.name}` to {output.shorten_path(str(target.path))}")
    if not in_effect:
        by = (
            f"`{spec.name}` in {output.place(written.origin)} overrides it"
            if written
            else "another file overrides it"
        )
        output.warn(f"Not in effect here: {by}.")
    elif isinstance(spec.transport, Stdio) and _is_missing(spec.transport):
        step = typed(f"dragoman doctor {shlex.quote(spec.name)}")
        output.warn(f"The program `{spec.transport.command}` was not found. Run: {step}")


def _is_missing(transport: Stdio) -> bool:
    """Return whether the program is not there; one that depends on a variable or a folder may be."""
    command = transport.command
    is_sure = "$" not in command and (Path(command).is_absolute() or not re.search(r"[/\\]", command))
    return is_sure and shutil.which(command, path=transport.env.get("PATH")) is None


def _switch(options: Options, name: str, *, on: bool) -> None:
    from dragoman.config import write

    settings = own_settings(options, name)
    spec = settings.server(name)
    if spec is None:
        raise unknown(settings, name)
    target = write.target_of_spec(spec, settings.root)
    elsewhere = [note.message for note in spec.notes if note.message.startswith("off: ")]
    if on and elsewhere:
        msg = f"server `{name}` is disabled ({elsewhere[0].removeprefix('off: ')})"
        raise ConfigError(msg, source=str(target.path), hint="change that list")
    changed = spec.enabled != on
    if changed:
        write.switch(target, name, spec.origin.pointer, on=on)
    if options.json:
        output.say_json(SwitchReport(server=name, enabled=on, changed=changed, file=str(target.path)))
        return
    where = output.shorten_path(str(target.path))
    state = "enabled" if on else "disabled"
    output.say(
        f"{state.capitalize()} `{name}` in {where}" if changed else f"`{name}` is already {state} in {where}"
    )


def _broken_entry(settings: Settings, name: str) -> Target | None:
    """Find an entry that cannot be used, so that it can be removed too."""
    from dragoman.config.edit import entry_named
    from dragoman.config.write import target_at

    for source in settings.sources:
        if source.status != "loaded" or not Path(source.path).is_file():
            continue
        target = target_at(Path(source.path), source.dialect, settings.root, source.scope)
        with contextlib.suppress(ConfigError, OSError):
            if entry_named(read(target.path), target.dialect, settings.root, name) is not None:
                return target
    return None


def _same_file(one: str, other: Path) -> bool:
    return Path(one).resolve() == other.resolve()
