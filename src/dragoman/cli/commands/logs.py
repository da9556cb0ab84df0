"""`dragoman logs`: show what a server wrote to its standard error, from its log; starts nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from dragoman.cli import exits, output
from dragoman.cli.known import named
from dragoman.cli.options import SERVERS, Options, common_options, typed
from dragoman.config.load import refused
from dragoman.config.templates import ExpansionContext, expand_transport
from dragoman.errors import ConfigError, DragomanError
from dragoman.model import Stdio
from dragoman.server.process.stderr_log import kept_files
from dragoman.storage.files import open_regular
from dragoman.struct import Report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.model import ServerSpec, Settings

_BLOCK = 64 * 1024


class LogsReport(Report, kw_only=True):
    """`dragoman logs --json`."""

    server: str
    file: str | None
    """The log file; null if the server was started to read its output."""
    lines: Sequence[str]


class KeptLog(Report, kw_only=True):
    """One server of `dragoman logs --json` without a name."""

    server: str
    file: str
    bytes: int
    changed: float
    """When it was last written, in seconds since the epoch."""


class KeptLogsReport(Report, kw_only=True):
    """`dragoman logs --json` without a name."""

    servers: Sequence[KeptLog]


@click.command()
@common_options
@click.argument("name", required=False, shell_complete=SERVERS)
@click.option("--lines", "-n", default=50, show_default=True, help="How many of the last lines.")
@click.pass_obj
def logs(options: Options, name: str | None, lines: int) -> None:
    """Show the last lines that a server wrote to its standard error; without a name, list the logs.

    They come from its `log_file`, or from the log that is kept for seven days; no server is started. Secrets
    are masked. `call_log = false` in the `[mcp]` table of the configuration turns the kept log off.
    """
    settings = options.load()
    exits.require_settings(settings)
    if name is None:
        _list(options, settings)
        return
    spec = named(settings, name)
    if not isinstance(spec.transport, Stdio):
        msg = f"server `{name}` is remote; its log is not on this machine"
        raise DragomanError(msg, hint=f"check that it answers: `dragoman doctor {quote(name)}`")
    if (refusal := refused(settings, [spec]).get(name)) is not None:
        raise refusal  # An unapproved entry could name any file as its log.
    own = _log_file(spec, settings)
    paths = [own] if own is not None else kept_files(spec)
    found: list[str] = []
    for path in reversed(paths):
        if len(found) < lines:
            found = [*_tail(path, lines - len(found)), *found]
    if options.json:
        output.say_json(LogsReport(server=name, file=str(paths[-1]) if paths else None, lines=found))
        return
    for line in found:
        output.say(line)
    if not found:
        off = own is None and settings.call_log is False
        why = "; `call_log = false` turns the log off" if off else ""
        start = typed(f"dragoman doctor -v {quote(name)}")
        output.warn(f"No stderr output of `{name}` is kept{why}. To see it: {start}")


def _list(options: Options, settings: Settings) -> None:
    """List the logs that can be shown, the latest first."""
    unapproved = refused(settings, settings.servers)
    found: list[KeptLog] = []
    for spec in settings.servers:
        if not isinstance(spec.transport, Stdio) or spec.name in unapproved:
            continue
        own = _log_file(spec, settings)
        path = own if own is not None else next(iter(kept_files(spec)[-1:]), None)
        if path is not None and path.is_file():
            about = path.stat()
            log = KeptLog(server=spec.name, file=str(path), bytes=about.st_size, changed=about.st_mtime)
            found.append(log)
    found.sort(key=lambda one: one.changed, reverse=True)
    if options.json:
        output.say_json(KeptLogsReport(servers=found))
        return
    width = max((output.width_of(output.one_line(one.server)) for one in found), default=0)
    for one in found:
        name = output.one_line(one.server)
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.changed))
        output.say(f"{name}{' ' * (width - output.width_of(name))}  {moment}  {one.bytes:>9,} bytes")
    if found:
        output.warn(f"Show one: {typed(f'dragoman logs {quote(found[0].server)}')}")
    else:
        output.say(f"No stderr output of a server is kept. To see it: {typed('dragoman doctor -v')}")


def _log_file(spec: ServerSpec, settings: Settings) -> Path | None:
    if not isinstance(spec.transport, Stdio) or spec.transport.log_file is None:
        return None
    expansion = ExpansionContext(env=os.environ, root=settings.root or str(Path.cwd()), home=str(Path.home()))
    transport = expand_transport(spec, expansion)
    return Path(transport.log_file) if isinstance(transport, Stdio) and transport.log_file else None


def _tail(path: Path, lines: int) -> list[str]:
    """Return the last lines of a log, including its rotated files if needed."""
    found: list[str] = []
    try:
        for part in (path, path.with_name(f"{path.name}.1"), path.with_name(f"{path.name}.2")):
            if len(found) < lines and (part == path or part.is_file()):
                found = [*_last_lines(part, lines - len(found)), *found]
    except FileNotFoundError:
        return []
    except OSError as error:
        msg = f"cannot read the log: {error.strerror}"
        raise ConfigError(msg, source=str(path)) from error
    return found


def _last_lines(path: Path, lines: int) -> list[str]:
    with open_regular(path) as file:
        size = file.seek(0, os.SEEK_END)
        data = b""
        while size and data.count(b"\n") <= lines:
            step = min(_BLOCK, size)
            size -= step
            file.seek(size)
            data = file.read(step) + data
    return data.decode("utf-8", "replace").splitlines()[-lines:]
