"""`dragoman tasks`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from dragoman.cli import output
from dragoman.cli.commands.call import print_text
from dragoman.cli.connect import connected
from dragoman.cli.discover import find_servers
from dragoman.cli.exits import code_of, run
from dragoman.cli.options import Options, common_options, timeout_option
from dragoman.errors import DragomanError, UnknownServerError
from dragoman.struct import Report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.model import ToolResult


class TaskRow(Report, kw_only=True):
    """A call that a server goes on with."""

    id: str
    server: str
    tool: str
    status: str
    message: str
    created: float
    """Seconds since the epoch."""
    ttl: float | None
    """Seconds after which the server may drop it."""


class TasksReport(Report, kw_only=True):
    """`dragoman tasks --json`."""

    tasks: Sequence[TaskRow]


@click.command()
@common_options
@timeout_option
@click.argument("task", required=False, metavar="[ID]")
@click.option("--cancel", is_flag=True, help="Cancel the task instead of waiting for it.")
@click.pass_obj
def tasks(options: Options, task: str | None, *, cancel: bool) -> None:
    """List the calls that servers go on with as tasks, or wait for the result of one.

    `dragoman call --detach` returns as soon as a call becomes a task. Listing starts no server.
    """
    if task is None:
        _list(options)
        return
    result = run(_finish(options, task, cancel=cancel))
    if result is None:
        click.echo(f"Cancelled task {task}.", err=True)
        return
    print_text(result.text, raw=False)
    if result.exception is not None:
        raise click.exceptions.Exit(code_of(result.exception))


def _list(options: Options) -> None:
    from dragoman.storage.tasks import TaskStore

    records = TaskStore().all()
    if options.json:
        rows = [TaskRow.of(one, tool=one.original_name) for one in records]
        output.say_json(TasksReport(tasks=rows))
        return
    if not records:
        click.echo("No tasks.")
    for one in records:
        age = f"{time.time() - one.created:.0f} s"
        said = f": {one.message}" if one.message else ""
        click.echo(output.safe(f"{one.id}  {one.server}  {one.original_name}  {one.status}  {age}{said}"))


async def _finish(options: Options, task: str, *, cancel: bool) -> ToolResult | None:
    from dragoman.storage.tasks import TaskStore

    record = TaskStore().get(task)
    if record is None:
        msg = f"unknown task `{task}`"
        raise DragomanError(msg, hint="`dragoman tasks` lists them")
    settings = find_servers(options)
    spec = settings.server(record.server)
    if spec is None:
        msg = f"task `{task}` belongs to server `{record.server}`, which is not configured"
        raise UnknownServerError(msg, server=record.server)
    async with connected(options, settings, [spec]) as live:
        live.show.text = f"waiting for {record.original_name}"
        if cancel:
            await live.mcp.tasks.cancel(task)
            return None
        return await live.mcp.tasks.resume(task, timeout=live.left)
