"""`dragoman daemon`: start, stop and look at the process that keeps servers running."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import click

from dragoman.cli import output
from dragoman.cli.exits import Exit
from dragoman.cli.options import Duration, Options, common_options
from dragoman.errors import DragomanError
from dragoman.gateway import client
from dragoman.struct import UNSET, Report, UnsetType

STOP_SECONDS = 20.0


class StartReport(Report, kw_only=True):
    """`dragoman daemon start --json`."""

    running: bool
    pid: int
    version: str
    started: bool
    """Whether this command started it."""


class StopReport(Report, kw_only=True):
    """`dragoman daemon stop --json`, and `status` if none runs."""

    running: bool
    stopped: bool | UnsetType = UNSET
    """`stop`: whether one was running."""


@click.group()
def daemon() -> None:
    """Keep servers running between commands, for all of your shells and programs.

    While a daemon runs, `call`, `tools` and `status` use it by themselves; `--no-daemon` goes alone. With
    `daemon = true` in your configuration, or DRAGOMAN_DAEMON=1, they also start it.
    """


@daemon.command()
@common_options
@click.option(
    "--idle", type=Duration(), metavar="DURATION", help="End after this time without clients [30m]."
)
@click.option("--foreground", is_flag=True, help="Serve in this process, and log to stderr.")
@click.pass_obj
def start(options: Options, *, idle: float | None, foreground: bool) -> int:
    """Start the daemon, unless it runs."""
    _check_supported()
    if foreground:
        return _serve(options, idle)
    words = [] if idle is None else ["--idle", f"{idle:g}s"]
    try:
        found = client.start(options=words)
    except (client.DaemonError, OSError) as error:
        raise DragomanError(str(error), hint="see `dragoman daemon logs`") from error
    if options.json:
        pid, version, started = found["pid"], found["version"], found["started"]
        output.say_json(StartReport(running=True, pid=pid, version=version, started=started))
    else:
        what = "Daemon started" if found["started"] else "The daemon is already running"
        output.say(f"{what} (process {found['pid']}).")
    return Exit.DONE


@daemon.command()
@common_options
@click.pass_obj
def stop(options: Options) -> int:
    """Stop the daemon and its servers; requests in progress get a few seconds."""
    _check_supported()
    where = client.paths()
    found = _ask(where, "dragoman/stop")
    if found is not None:
        until = time.monotonic() + STOP_SECONDS
        while _is_locked(where.lock):
            if time.monotonic() > until:
                msg = f"the daemon (process {found['pid']}) did not end within {STOP_SECONDS:g} s"
                raise DragomanError(
                    msg, hint=f"end it with `kill -9 {found['pid']}`; its servers end with it"
                )
            time.sleep(0.02)
    if options.json:
        output.say_json(StopReport(running=False, stopped=found is not None))
    else:
        output.say("Daemon stopped." if found is not None else "No daemon is running.")
    return Exit.DONE


@daemon.command()
@common_options
@click.pass_obj
def status(options: Options) -> int:
    """Show whether the daemon runs, and which servers it keeps."""
    found = _ask(client.paths(), "dragoman/status") if client.is_supported() else None
    if options.json:
        output.say_json(found or StopReport(running=False))
        return Exit.DONE
    if found is None:
        output.say("No daemon is running. Start one: dragoman daemon start")
        return Exit.DONE
    hours, rest = divmod(int(time.time() - found["since"]), 3600)
    age = f"{hours}:{rest // 60:02}:{rest % 60:02}"
    output.say(f"Running for {age}: process {found['pid']}, version {found['version']}")
    output.say(f"Clients: {found['clients'] - 1} connected, {found['served'] - 1} served")
    for one in found["processes"]:
        calls = f", {one['calls']} calls in progress" if one["calls"] else ""
        output.say(f"Process {one['pid'] or '-'}: {one['server']}, shared by {one['users']}{calls}")
    for one in found["workspaces"]:
        output.say(f"{one['root']} ({one['profile']})")
        for name, server in one["servers"].items():
            tools = f", {server['tools']} tools" if server["tools"] else ""
            output.say(f"  {name}: {server.get('word', server['state'])}{tools}")
    return Exit.DONE


@daemon.command()
@common_options
@click.option("--lines", "-n", default=100, show_default=True, help="How many of the last lines.")
def logs(*, lines: int) -> int:
    """Show the last lines of the daemon's log."""
    path = Path(client.paths().log)
    if not path.is_file():
        output.say("No log yet. Start a daemon: dragoman daemon start")
        return Exit.DONE
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in deque(file, maxlen=max(0, lines)):
            output.say(line.rstrip("\n"))
    return Exit.DONE


def _check_supported() -> None:
    if not client.is_supported():
        msg = "the daemon needs Unix sockets, which this system does not have"
        raise DragomanError(msg, hint="commands work alone here")


def _ask(where: client.Paths, method: str) -> dict[str, Any] | None:
    """Return the daemon's answer; `None` if none runs."""
    try:
        channel = client.dial(where.socket, client.hello("/", {}))
    except client.NoDaemonError:
        return None
    except client.DaemonError as error:
        return None if error.may_be_replaced else _fail(str(error))
    try:
        channel.send({"id": 1, "method": method, "params": {}})
        answer = channel.receive(time.monotonic() + client.HELLO_SECONDS)
    except OSError:
        return None
    finally:
        channel.close()
    return None if answer is None else answer.get("result")


def _fail(message: str) -> dict[str, Any]:
    raise DragomanError(message, hint="end its process, and start it again")


def _is_locked(path: str) -> bool:
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def _serve(options: Options, idle: float | None) -> int:
    import asyncio

    from dragoman.cli import remote
    from dragoman.gateway.daemon import IDLE_SECONDS, AlreadyRunningError, Daemon
    from dragoman.observe.otlp import exporting

    _log(options)
    # Not that of the shell which happens to start it: servers of all clients inherit it.
    os.umask(0o077)
    where = client.paths()

    async def serve() -> None:
        served = Daemon(
            where,
            load=remote.load,
            run=remote.run,
            preload=tuple(remote.preloaded()),
            idle=IDLE_SECONDS if idle is None else idle,
        )
        async with exporting("dragoman-daemon"):
            await served.serve()

    remote.install_streams()
    try:
        asyncio.run(serve())
    except AlreadyRunningError:
        output.say("The daemon is already running.")
    except (client.DaemonError, OSError) as error:
        raise DragomanError(str(error)) from error
    return Exit.DONE


def _log(options: Options) -> None:
    """Log to standard error, which is the log file of a daemon in the background."""
    import logging

    from dragoman.cli.commands.serve import LogFormatter

    handler = logging.StreamHandler(sys.__stderr__)
    handler.setFormatter(LogFormatter())
    logger = logging.getLogger("dragoman")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if options.debug else logging.INFO)
