"""`dragoman logs`: show a server's standard error, from its log file or from one start."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dragoman.cli import exits, output
from dragoman.cli.exits import run
from dragoman.cli.known import named
from dragoman.cli.options import SERVERS, Options, common_options, timeout_option
from dragoman.config.load import refused
from dragoman.errors import ConfigError, DragomanError
from dragoman.model import Stdio

if TYPE_CHECKING:
    from dragoman.cli.json_shapes import LogsReport
    from dragoman.model import ServerSpec, Settings

_BLOCK = 64 * 1024


@click.command()
@common_options
@timeout_option
@click.argument("name", shell_complete=SERVERS)
@click.option("--lines", "-n", default=50, show_default=True, help="How many of the last lines.")
@click.pass_obj
def logs(options: Options, name: str, lines: int) -> None:
    """Show the last lines that a server wrote to its standard error.

    They come from its `log_file`. A server without one is started and connected once, and its output is
    shown. The server's secrets are masked.
    """
    settings = options.load()
    exits.insist(settings)
    spec = named(settings, name)
    if not isinstance(spec.transport, Stdio):
        msg = f"server `{name}` is remote; its log is not on this machine"
        raise DragomanError(msg, hint=f"Check that it answers: dragoman doctor {name}")
    if (refusal := refused(settings, [spec]).get(name)) is not None:
        raise refusal  # An unapproved entry could name any file as its log.
    path = _log_file(spec, settings)
    found = _tail(path, lines) if path is not None else run(_start(options, settings, spec))[-lines:]
    if options.json:
        report: LogsReport = {"server": name, "file": None if path is None else str(path), "lines": found}
        output.say_json(report)
        return
    for line in found:
        output.say(line)
    if not found:
        output.warn(f"`{name}` wrote nothing to its standard error")
    if path is None:
        output.note("The server was started for this. Set `log_file` in its entry to keep its output.")


def _log_file(spec: ServerSpec, settings: Settings) -> Path | None:
    from dragoman.config.templates import ExpansionContext, expand_transport

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
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        data = b""
        while size and data.count(b"\n") <= lines:
            step = min(_BLOCK, size)
            size -= step
            file.seek(size)
            data = file.read(step) + data
    return data.decode("utf-8", "replace").splitlines()[-lines:]


async def _start(options: Options, settings: Settings, spec: ServerSpec) -> list[str]:
    from dragoman.cli.commands.doctor import quiet_log
    from dragoman.cli.connect import Progress
    from dragoman.diagnosis.doctor import diagnose

    async with Progress(f"starting {spec.name}"):
        with quiet_log():
            found = await diagnose(spec, settings, timeout=options.timeout, stderr_lines=10_000)
    if not found.stderr and found.error is not None:
        raise found.error
    return found.stderr.splitlines()
