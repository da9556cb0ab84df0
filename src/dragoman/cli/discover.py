"""Find servers for a user who has configured none: those of the other apps on this machine.

They are used after one question. The answer is kept in the user's data, app by app. An app's files are read
each time, so nothing is copied; the rules of trust are those of any file.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, cast

import click

from dragoman.cli import output
from dragoman.config.dialects import HOSTS, dialect
from dragoman.errors import ConfigError
from dragoman.storage.files import StoredFile, data_folder
from dragoman.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dragoman.cli.options import Options
    from dragoman.model import ServerSpec, Settings


class Host(Struct):
    """An app on this machine that has servers."""

    name: str
    title: str
    files: Sequence[str]
    servers: Sequence[ServerSpec]


def in_use() -> list[str]:
    """Return the apps whose servers the user wants to use."""
    return _answers("use")


def ignored() -> list[str]:
    """Return the apps whose servers the user does not want to use."""
    return _answers("ignore")


def remember(names: Iterable[str], *, use: bool) -> None:
    """Remember whether to use the servers of these apps.

    Raises:
        ConfigError: The file cannot be written.
    """
    chosen = list(names)
    keys = ("use", "ignore") if use else ("ignore", "use")

    def change(old: dict[str, list[str]]) -> dict[str, list[str]]:
        yes = dict.fromkeys([*old.get(keys[0], ()), *chosen])
        no = [name for name in old.get(keys[1], ()) if name not in chosen]
        return {keys[0]: sorted(yes), keys[1]: no}

    _file().change(change)


def _answers(key: str) -> list[str]:
    found = _file().content() or {}
    return [name for name in found.get(key, ()) if name in HOSTS]


def _file() -> StoredFile[dict[str, list[str]]]:
    return StoredFile(data_folder() / "hosts.json", _read, json.dumps, dict)


def _read(text: str) -> dict[str, list[str]]:
    found: object = json.loads(text)
    table = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    return {
        key: [str(name) for name in cast("list[object]", names)]
        for key, names in table.items()
        if isinstance(names, list)
    }


def hosts() -> list[Host]:
    """Return the apps on this machine that have servers, in the usual order; nothing is started."""
    from dragoman.config.load import load

    found: list[Host] = []
    for name in HOSTS:
        settings = load(name, log_problems=False)
        if settings.servers:
            files = dict.fromkeys(spec.origin.source for spec in settings.servers)
            found.append(Host(name, dialect(name).title, list(files), settings.servers))
    return found


def find_servers(options: Options) -> Settings:
    """Load the configuration; if it has no servers, offer those of other apps.

    Raises:
        ConfigError: Other apps have servers, but there is no terminal to ask at.
    """
    settings = options.load()
    if settings.servers or settings.unapproved or settings.problems or not options.may_discover():
        return settings
    left_out = ignored()
    found = [host for host in hosts() if options.yes or host.name not in left_out]
    if not found:
        return settings
    about = _about(found)
    if not options.yes:
        if options.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise _unasked(options, found, about)
        click.echo(about, err=True)
        many = len(found) > 1 or len(found[0].servers) > 1
        agreed = click.confirm(f"Use {'them' if many else 'it'}?", default=True, err=True)
    else:
        click.echo(about, err=True)
        agreed = True
    remember([host.name for host in found], use=agreed)
    return options.load() if agreed else settings


def _about(found: Sequence[Host]) -> str:
    count = len({spec.name for host in found for spec in host.servers})
    listed = [f"{host.title} ({', '.join(map(output.shorten_path, host.files))})" for host in found]
    servers = f"{count} server{'s' * (count != 1)}"
    return output.safe(f"Found {servers} of {_joined(listed)}.")


def _joined(texts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


def _unasked(options: Options, found: Sequence[Host], about: str) -> ConfigError:
    """List the servers, and return the error that names the command to run."""
    if not options.json:
        for host in found:
            click.echo(output.safe(host.title))
            for spec in host.servers:
                click.echo(output.safe(f"  {spec.name}  {output.command_line(spec.transport)}"))
    hint = "to use them: `dragoman config hosts --use`; to copy them: `dragoman import --all --write`"
    msg = f"no servers configured. {about.rstrip('.')}; none was started"
    return ConfigError(msg, hint=hint)


def no_servers(options: Options) -> str:
    """Return the line for a configuration without servers."""
    if options.may_discover() and (left_out := [name for name in ignored() if name in HOSTS]):
        return f"{output.NO_SERVERS}.\nIgnored: {', '.join(left_out)} (dragoman config hosts --use)"
    return output.NO_SERVERS
