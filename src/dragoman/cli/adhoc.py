"""A server from the command line: it is used without being configured, and kept if the user likes it.

Everything after `--` is its command; a URL in the place of a server's name is its address.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli import output
from dragoman.cli.options import Options
from dragoman.model import ServerSpec, Stdio
from dragoman.trust.addresses import split_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.model import Transport

HOW_TO_TRY = "A URL instead of a name, or a command after `--`, is a server that is not configured."
_AFFIX = re.compile(r"^(?:mcp[-_]server[-_]|server[-_]|mcp[-_])|(?:[-_]mcp[-_]server|[-_]mcp|[-_]server)$")
_COMMON_LABELS = frozenset({"mcp", "www", "api"})
_SCRIPTS = (".py", ".js", ".mjs", ".cjs", ".ts", ".sh")


class AdHocCommand(click.Command):
    """A command that takes the command of a server after `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set the command after `--` aside."""
        if "--" in args:
            at = args.index("--")
            command, args = args[at + 1 :], args[:at]
            if not command and not ctx.resilient_parsing:
                msg = "Missing the command of the server after `--`."
                raise click.UsageError(msg, ctx)
            if command:
                from dragoman.server.process.environment import with_sandbox

                stdio = with_sandbox(Stdio(command[0], command[1:]), is_foreign=True)
                ctx.ensure_object(Options).server = spec_of(stdio)
        return super().parse_args(ctx, args)


def is_url(word: str) -> bool:
    """Return whether a word is the address of a server."""
    return word.lower().startswith(("http://", "https://"))


def take_url(options: Options, words: Sequence[str]) -> tuple[str, ...]:
    """Use a URL at the start of the words as the server; return the other words.

    Raises:
        click.UsageError: A command is given too.
    """
    if not words or not is_url(words[0]):
        return tuple(words)
    if options.server is not None:
        msg = "Use either a URL or a command after `--`, not both."
        raise click.UsageError(msg)
    from dragoman.config.dialects import dialect
    from dragoman.config.export import read_back

    found = read_back("server", {"url": words[0]}, dialect("dragoman"))
    options.server = spec_of(found.transport)
    return tuple(words[1:])


def take_servers(options: Options, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of configured servers; a URL is used instead of them.

    Raises:
        click.UsageError: There are names beside a server from the command line.
    """
    left = take_url(options, names)
    if options.server is not None and left:
        msg = f"Unexpected `{left[0]}` beside a URL or a command after `--`."
        raise click.UsageError(msg)
    return left


def spec_of(transport: Transport) -> ServerSpec:
    """Return a server under a name made from its package, script or host."""
    return ServerSpec(name_for(transport), transport)


def name_for(transport: Transport) -> str:
    """Return a short name for a server."""
    from dragoman.config.packages import package_of

    if isinstance(transport, Stdio):
        words = [transport.command, *transport.args]
        package = package_of(transport)
        scripts = [word for word in words if word.endswith(_SCRIPTS)]
        modules = [after.rpartition(".")[2] for word, after in itertools.pairwise(words) if word == "-m"]
        text = package.name if package else next(iter([*modules, *scripts]), words[0])
        text = Path(text.rpartition("/")[2]).stem if package is None else text.rpartition("/")[2]
    else:
        parts = split_url(transport.url)
        host = parts.host if parts is not None else ""
        labels = [label for label in host.split(".") if label not in _COMMON_LABELS]
        is_address = host.replace(".", "").isdecimal() or ":" in host
        text = host if is_address else labels[-2] if len(labels) > 1 else next(iter(labels), host)
    short = _AFFIX.sub("", _AFFIX.sub("", text.lower()))
    return re.sub(r"[^a-z0-9_-]+", "-", short or text.lower()).strip("-") or "server"


def offer_to_keep(options: Options) -> None:
    """Ask at a terminal whether to add the server of the command line to the configuration."""
    spec = options.server
    if spec is None or options.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    from dragoman.cli.commands.edit import target_of
    from dragoman.config import write

    options = options.replace(server=None, alone=True)
    present = {one.name: one for one in options.load().servers}
    if any(one.transport == spec.transport for one in present.values()):
        return
    name, number = spec.name, 2
    while name in present:
        name, number = f"{spec.name}-{number}", number + 1
    if not click.confirm(f"Keep it as `{name}`?", default=False, err=True):
        return
    target = target_of(options)
    write.put(target, [spec.replace(name=name, transport=_anchored(spec.transport))], replaces=False)
    click.echo(f"Added `{name}` to {output.shorten_path(str(target.path))}", err=True)


def _anchored(transport: Transport) -> Any:
    """Return a command that means the same in every directory."""
    if not isinstance(transport, Stdio):
        return transport
    words = [transport.command, *transport.args]
    is_relative = any(
        ("/" in word or "." in word) and not Path(word).is_absolute() and Path(word).exists()
        for word in words
    )
    return transport.replace(cwd=os.getcwd()) if is_relative else transport  # noqa: PTH109 -- a text
