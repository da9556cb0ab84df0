"""`dragoman login | logout`: a person logs in to a server behind a URL, or has that forgotten."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dragoman.cli import output
from dragoman.cli.completing import SERVERS
from dragoman.cli.known import named
from dragoman.cli.options import Options, common_options, timeout_option
from dragoman.errors import AuthRequiredError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dragoman.cli.shapes import LoginReport
    from dragoman.model import ServerSpec, Settings


@click.command()
@common_options
@timeout_option
@click.argument("name", shell_complete=SERVERS)
@click.option(
    "--paste", is_flag=True, help="Ask for the address that the browser ended at: it runs elsewhere."
)
@click.option("--no-browser", is_flag=True, help="Only print the address that has to be opened.")
@click.pass_obj
def login(options: Options, name: str, *, paste: bool, no_browser: bool) -> None:
    """Log in to a server: its address opens in a browser, and is printed.

    On a machine without a browser use `--paste`: open the address anywhere, and paste the one it ends at.
    """
    settings = options.load()
    spec = named(settings, name)
    if paste and not sys.stdin.isatty():
        msg = "`--paste` needs a terminal to paste into"
        raise click.UsageError(msg)
    options.quiet_logs()
    asyncio.run(_login(options, settings, spec, paste=paste, browser=not (no_browser or paste)))
    _report(options, name, logged_in=True, changed=True, text=f"logged in to `{name}`")


@click.command()
@common_options
@click.argument("name", shell_complete=SERVERS)
@click.pass_obj
def logout(options: Options, name: str) -> None:
    """Forget the login to a server, and tell the server that gave it."""
    from dragoman.server.logins import logout as forget

    named(options.load(), name)
    options.quiet_logs()
    found = asyncio.run(forget(name))
    said = f"logged out of `{name}`" if found else f"there was no login to `{name}`"
    _report(options, name, logged_in=False, changed=found, text=said)


async def _login(
    options: Options, settings: Settings, spec: ServerSpec, *, paste: bool, browser: bool
) -> None:
    from dragoman.config.expand import Surroundings, expand_auth, expand_transport
    from dragoman.server import logins

    surroundings = Surroundings(env=os.environ, root=settings.root or str(Path.cwd()), home=str(Path.home()))

    def open_url(url: str) -> None:
        click.echo(f"Open this address to log in to `{output.one_line(spec.name)}`:\n", err=True)
        click.echo(f"  {output.safe(url)}\n", err=True)
        if browser:
            import webbrowser

            webbrowser.open(url)

    try:
        async with asyncio.timeout(options.timeout):
            await logins.login(
                spec.name,
                expand_transport(spec, surroundings),
                expand_auth(spec, surroundings),
                open_url=open_url,
                paste=_paster() if paste else None,
            )
    except TimeoutError as error:
        msg = f"nobody logged in to server `{spec.name}` within {options.timeout:g} s"
        raise AuthRequiredError(msg, server=spec.name, hint="try again, with a longer `--timeout`") from error


def _paster() -> Callable[[], Awaitable[str]]:
    async def paste() -> str:
        return await asyncio.to_thread(
            click.prompt, "The address that the browser ended at", type=str, err=True
        )

    return paste


def _report(options: Options, name: str, *, logged_in: bool, changed: bool, text: str) -> None:
    if options.json:
        report: LoginReport = {"server": name, "logged_in": logged_in, "changed": changed}
        output.say_json(report)
    else:
        output.say(text)
