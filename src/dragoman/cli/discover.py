"""Find servers for a user who has configured none: those of the other apps on this machine.

They are used after one question. The answer is kept in the user's data, app by app. An app's files are read
each time, so nothing is copied; the rules of trust are those of any file.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from dragoman.cli import output
from dragoman.config.dialects import HOSTS
from dragoman.config.hosts import about, find_hosts, ignored, remember
from dragoman.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.cli.options import Options
    from dragoman.config.hosts import Host
    from dragoman.model import Settings


def find_servers(options: Options) -> Settings:
    """Load the configuration; if it has no servers, offer those of other apps.

    Raises:
        ConfigError: Other apps have servers, but there is no terminal to ask at.
    """
    settings = options.load()
    if settings.servers or settings.unapproved or settings.problems or not options.may_discover():
        return settings
    left_out = ignored()
    found = [host for host in find_hosts() if options.yes or host.name not in left_out]
    if not found:
        return settings
    told = output.safe(about(found, output.shorten_path))
    if not options.yes:
        if options.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise _unasked(options, found, told)
        click.echo(told, err=True)
        many = len(found) > 1 or len(found[0].servers) > 1
        agreed = click.confirm(f"Use {'them' if many else 'it'}?", default=True, err=True)
    else:
        click.echo(told, err=True)
        agreed = True
    remember([host.name for host in found], use=agreed)
    return options.load() if agreed else settings


def _unasked(options: Options, found: Sequence[Host], told: str) -> ConfigError:
    """List the servers, and return the error that names the command to run."""
    if not options.json:
        for host in found:
            click.echo(output.safe(host.title))
            for spec in host.servers:
                click.echo(output.safe(f"  {spec.name}  {output.command_line(spec.transport)}"))
    hint = "to use them: `dragoman config hosts --use`; to copy them: `dragoman import --all --write`"
    msg = f"no servers configured. {told.rstrip('.')}; none was started"
    return ConfigError(msg, hint=hint)


def no_servers(options: Options) -> str:
    """Return the line for a configuration without servers."""
    if options.may_discover() and (left_out := [name for name in ignored() if name in HOSTS]):
        return f"{output.NO_SERVERS}.\nIgnored: {', '.join(left_out)} (dragoman config hosts --use)"
    return output.NO_SERVERS
