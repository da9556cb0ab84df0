"""`dragoman login | logout`: a person logs in to a server behind a URL, or has that forgotten.

What the person has to read goes to standard error, so that the result on standard output is for programs too.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

import click

from dragoman.cli import output
from dragoman.cli.completing import SERVERS
from dragoman.cli.known import named
from dragoman.cli.options import Options, common_options, timeout_option
from dragoman.cli.running import run
from dragoman.errors import AuthRequiredError
from dragoman.trust.addresses import read_link

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from dragoman.cli.shapes import LoginReport
    from dragoman.model import ServerSpec, Settings

SECONDS = 600.0
"""How long a person may take, unless `--timeout` says otherwise."""


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

    On a machine without a browser use `--paste`: open the address anywhere, and paste the one it ends at. A
    server whose configuration has credentials of its own asks nobody.
    """
    settings = options.load()
    spec = named(settings, name)
    if paste and not sys.stdin.isatty():
        msg = "`--paste` needs a terminal to paste into"
        raise click.UsageError(msg)
    options.quiet_logs()
    person = _Person(spec.name, paste=paste, browser=not (no_browser or paste))
    run(_login(options, settings, spec, person))
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
    found = run(forget(name))
    said = f"logged out of `{name}`" if found else f"there was no login to `{name}`"
    _report(options, name, logged_in=False, changed=found, text=said)


async def _login(options: Options, settings: Settings, spec: ServerSpec, person: _Person) -> None:
    from dragoman.config.expand import Surroundings
    from dragoman.guard import Guard
    from dragoman.server import logins
    from dragoman.server.reach import reach

    root = settings.root or str(Path.cwd())
    surroundings = Surroundings(env=os.environ, root=root, home=str(Path.home()))
    # A project's server is told nothing before somebody has approved it.
    transport, auth = await reach(spec, surroundings, Guard(settings, root=root, trust_project=False))
    seconds = SECONDS if options.timeout is None else options.timeout
    try:
        async with asyncio.timeout(seconds):
            await logins.login(
                spec.name,
                transport,
                auth,
                open_url=person.show,
                paste=person.paste,
                on_refused=person.complain,
            )
    except TimeoutError as error:
        msg = f"nobody logged in to server `{spec.name}` within {seconds:g} s"
        raise AuthRequiredError(msg, server=spec.name, hint="try again, with a longer `--timeout`") from error
    except (EOFError, KeyboardInterrupt):
        # Ctrl-D and Ctrl-C where the address was to be pasted.
        raise click.Abort from None


class _Person:
    """Whoever sits at the terminal."""

    def __init__(self, server: str, *, paste: bool, browser: bool) -> None:
        self._server = server
        self._browser = browser
        self.paste: Callable[[], Awaitable[str]] | None = self._ask if paste else None
        """Asks for the address that the browser ended at, where that is wanted."""

    async def show(self, url: str) -> None:
        """Show the address, and open it where there is a browser."""
        _tell(f"To log in to `{output.one_line(self._server)}`, open this address:\n\n  {output.safe(url)}\n")
        if self.paste is not None:
            _tell(
                "Then the browser goes to an address that begins with\n"
                f"`{output.one_line(_goes_back_to(url))}`, and may say that it cannot be reached.\n"
                "Copy that whole address."
            )
            return
        if self._browser and await open_browser(url):
            _tell("It opens in your browser. Waiting for you there; Ctrl-C gives up.")
        elif self._browser:
            _tell(
                "There is no browser here that could be opened. Waiting; Ctrl-C gives up.\n"
                f"If your browser runs on another machine: `dragoman login {self._server} --paste`."
            )
        else:
            _tell("Waiting until that is done; Ctrl-C gives up.")

    def complain(self, why: str) -> None:
        """Say why what was pasted is of no use."""
        _tell(f"That cannot be used: {why}.\nCopy the whole address that the browser ended at.")

    async def _ask(self) -> str:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.output import create_output

        session: PromptSession[str] = PromptSession(output=create_output(stdout=sys.stderr))
        # A terminal's own line takes 4,095 characters, and a thread that reads it cannot be stopped.
        return await session.prompt_async("address: ")


def _tell(text: str) -> None:
    click.echo(output.safe(text), err=True)


def _goes_back_to(url: str) -> str:
    return dict(parse_qsl(urlsplit(url).query)).get("redirect_uri", "http://127.0.0.1")


async def open_browser(url: str) -> bool:
    """Open an address in a browser, if there can be one here; returns whether that was done."""
    import webbrowser

    try:
        link = read_link(url)
    except ValueError:
        return False
    # Some browsers keep who opens them waiting.
    return _has_browser(os.environ) and await asyncio.to_thread(webbrowser.open, link.url)


def _has_browser(env: Mapping[str, str]) -> bool:
    """Tell whether opening a browser makes sense: not on a console, where it would take the terminal over."""
    if env.get("BROWSER"):
        return True
    if sys.platform == "linux":
        return bool(env.get("DISPLAY") or env.get("WAYLAND_DISPLAY"))
    return not env.get("SSH_CONNECTION")


def _report(options: Options, name: str, *, logged_in: bool, changed: bool, text: str) -> None:
    if options.json:
        report: LoginReport = {"server": name, "logged_in": logged_in, "changed": changed}
        output.say_json(report)
    else:
        output.say(text)
