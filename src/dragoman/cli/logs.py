"""`dragoman logs`: what a server wrote to its standard error, from its log file or from a start just now."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dragoman.cli import broken, output
from dragoman.cli.completing import SERVERS
from dragoman.cli.known import named, refused
from dragoman.cli.options import Options, common_options, timeout_option
from dragoman.cli.running import run
from dragoman.errors import ConfigError, DragomanError
from dragoman.model import Stdio

if TYPE_CHECKING:
    from dragoman.cli.shapes import LogsReport
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

    They come from its `log_file`. A server without one is started and connected once, and what it says then
    is shown. Secrets that the server is given are masked.
    """
    settings = options.load()
    broken.insist(settings)
    spec = named(settings, name)
    if not isinstance(spec.transport, Stdio):
        msg = f"server `{name}` runs elsewhere, and its log with it"
        raise DragomanError(msg, hint="look where it runs; `dragoman doctor` says whether it answers")
    if (refusal := refused(settings, [spec]).get(name)) is not None:
        raise refusal  # An entry that is not approved could name any file.
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
        output.note("It was started just now for this; `log_file` in its entry keeps what it says.")


def _log_file(spec: ServerSpec, settings: Settings) -> Path | None:
    from dragoman.config.expand import Surroundings, expand_transport

    if not isinstance(spec.transport, Stdio) or spec.transport.log_file is None:
        return None
    surroundings = Surroundings(env=os.environ, root=settings.root or str(Path.cwd()), home=str(Path.home()))
    transport = expand_transport(spec, surroundings)
    return Path(transport.log_file) if isinstance(transport, Stdio) and transport.log_file else None


def _tail(path: Path, lines: int) -> list[str]:
    """Return the last lines of a log, going back to the file before it if need be."""
    found: list[str] = []
    try:
        for part in (path, path.with_name(f"{path.name}.1"), path.with_name(f"{path.name}.2")):
            if len(found) < lines and (part == path or part.is_file()):
                found = [*_last_lines(part, lines - len(found)), *found]
    except FileNotFoundError:
        return []
    except OSError as error:
        msg = f"the log cannot be read: {error.strerror}"
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
    from dragoman.cli.examining import Examiner, counting_junk
    from dragoman.cli.progress import Progress

    async with Progress(f"starting {spec.name}"):
        with counting_junk():
            examined = await Examiner(spec, settings, seconds=options.timeout, keep=10_000).run()
    if not examined.stderr and examined.cause is not None:
        raise examined.cause
    return examined.stderr.splitlines()
