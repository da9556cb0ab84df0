"""`dragoman web`: the console in a browser, for the configured servers or the demo servers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import click

from dragoman.cli.exits import Exit, run
from dragoman.cli.options import Options, common_options

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from dragoman.console.app import ConsoleApp


@click.command()
@common_options
@click.option("--demo", is_flag=True, help="Use the bundled demo servers.")
@click.option(
    "--listen", metavar="[HOST:]PORT", default="0", help="Where to listen; by default any port of 127.0.0.1."
)
@click.option("--allow-host", multiple=True, metavar="NAME", help="A host name of this console.")
@click.option("--read-only", is_flag=True, help="Change nothing and call no tool.")
@click.pass_obj
def web(options: Options, *, demo: bool, listen: str, allow_host: tuple[str, ...], read_only: bool) -> int:
    """Watch servers, tools and calls in a browser; call tools, restart servers, approve changes.

    It prints a link that works once, within ten minutes. The servers are stopped when you press Ctrl-C.
    """
    if options.json:
        msg = "`dragoman web` does not support --json; `dragoman status --json` is the same for programs"
        raise click.UsageError(msg)
    return run(_web(options, demo=demo, listen=listen, hosts=allow_host, read_only=read_only))


async def _web(options: Options, *, demo: bool, listen: str, hosts: tuple[str, ...], read_only: bool) -> int:
    from dragoman.cli.commands.serve import bind_address, own_hosts
    from dragoman.cli.commands.top import watched_manager
    from dragoman.model import Handlers
    from dragoman.server.late_import import late_import_module

    # Imported in a thread while the servers start.
    importing = asyncio.create_task(late_import_module("dragoman.console.app"))
    async with AsyncExitStack() as stack:
        serving = await late_import_module("dragoman.gateway.serve")
        listener: socket.socket = bind_address(serving, listen)
        stack.callback(listener.close)
        mcp = await watched_manager(stack, options, Handlers(), demo=demo)
        console = await importing
        gateway = await late_import_module("dragoman.gateway.app")
        guard = gateway.Guard(None, hosts=[*hosts, *own_hosts(listener)], origins=())
        app: ConsoleApp = console.ConsoleApp(mcp, guard, read_only=read_only)
        await serving.serve_http(app, listener, on_ready=lambda: announce(app, listener, hosts=hosts))
    return Exit.DONE


def announce(app: ConsoleApp, listener: socket.socket, *, hosts: Sequence[str]) -> None:
    """Say where the console is, with a link that works once."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104 -- compared, not bound
        host = next((name for name in hosts if name != "*"), "127.0.0.1")
    origin = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    click.echo(f"console: {app.link(origin)}", err=True)
