"""What `dragoman add` is asked for becomes a spec: a command, a URL, or a name of the catalogue."""

from __future__ import annotations

import shlex
from dataclasses import replace as replaced
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli import output
from dragoman.cli.known import near
from dragoman.model import Http, ServerSpec, Sse, Stdio

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dragoman.cli.options import Options
    from dragoman.config.catalogue import Item
    from dragoman.model import Transport


def list_catalogue(options: Options) -> None:
    """Show the well-known servers."""
    from dragoman.config.catalogue import catalogue

    items = catalogue().values()
    if options.json:
        shown = [
            {
                "name": item.name,
                "description": item.description,
                "needs": item.needs,
                "command": in_full(item.spec().transport),
                "takes": item.takes,
                "variables": item.variables(),
            }
            for item in items
        ]
        output.say_json(shown)
        return
    width = max(len(item.name) for item in items)
    for item in items:
        needs = "" if not item.needs else f" [{item.needs}]"
        keys = f" (set {', '.join(item.variables())})" if item.variables() else ""
        output.say(f"{item.name:<{width}}  {item.description}{keys}{needs}")


def known(name: str, arguments: Sequence[str]) -> Item:
    """Return a server of the catalogue, or say how to add one that is not in it."""
    from dragoman.config.catalogue import catalogue

    items = catalogue()
    if name in items:
        return items[name]
    words = shlex.join(arguments) if arguments else "COMMAND …"
    others = [f"`{other}`" for other in near(name, items)]
    guess = f"did you mean {' or '.join(others)}? " if others else ""
    msg = f"`{name}` is no well-known server: {guess}Say what it is:\n"
    msg += f"  dragoman add {name} -- {words}\n  dragoman add {name} --url URL"
    raise click.UsageError(msg)


def spec_of(
    name: str, command: list[str] | None, item: Item | None, arguments: Sequence[str], given: dict[str, Any]
) -> ServerSpec:
    """Return the server itself, before the options are applied."""
    if item is not None:
        try:
            return item.spec(arguments=arguments)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
    if command is not None and given["url"]:
        msg = "a server has a command or a URL, not both"
        raise click.UsageError(msg)
    if command is not None:
        if not command:
            msg = f"the command is missing: dragoman add {name} -- COMMAND …"
            raise click.UsageError(msg)
        return ServerSpec(name, Stdio(command[0], command[1:]))
    return ServerSpec(name, _remote(name, given))


def _remote(name: str, given: dict[str, Any]) -> Transport:
    """Check the address as reading a file would, and guess the kind the same way."""
    from dragoman.config.dialects import dialect
    from dragoman.config.export import read_back

    entry = {"url": given["url"]} | ({"transport": given["kind"]} if given["kind"] else {})
    return read_back(name, entry, dialect("dragoman")).transport


def with_options(spec: ServerSpec, given: dict[str, Any]) -> ServerSpec:
    """Return the server with what the options say about it."""
    from dragoman.config.durations import seconds

    transport = spec.transport
    if isinstance(transport, Stdio):
        if given["headers"] or given["kind"]:
            msg = "`--header`, `--http` and `--sse` are for servers with a `--url`"
            raise click.UsageError(msg)
        env = {**transport.env, **_pairs(given["env"], "=", "--env NAME=VALUE")}
        transport = replaced(transport, env=env, cwd=given["cwd"])
    else:
        if given["env"] or given["cwd"]:
            msg = "`--env` and `--cwd` are for servers that are started by a command"
            raise click.UsageError(msg)
        headers = {**transport.headers, **_pairs(given["headers"], ":", '--header "NAME: VALUE"')}
        transport = replaced(transport, headers=headers)
    spec = replaced(spec, transport=transport, allowed_tools=given["allowed"] or None)
    if given["timeout"]:
        try:
            return replaced(spec, timeouts={"call": seconds(given["timeout"], "s")})
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--timeout") from None
    return spec


def _pairs(texts: Iterable[str], separator: str, form: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, mark, value = text.partition(separator)
        if not mark or not name.strip():
            msg = f"write it as {form}"
            raise click.UsageError(msg)
        found[name.strip()] = value.strip() if separator == ":" else value
    return found


def in_full(transport: Transport) -> str:
    """Return the very command that will be run, or the address; nothing is masked."""
    match transport:
        case Stdio():
            return shlex.join([transport.command, *transport.args])
        case Http() | Sse():
            return transport.url
