"""`dragoman login` and `dragoman logout`: log a person in to a server behind a URL, or forget that login.

Instructions for the person go to standard error; standard output has only the result.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import click

from dragoman.cli import output
from dragoman.cli.exits import run
from dragoman.cli.known import named
from dragoman.cli.options import SERVERS, Options, common_options, timeout_option
from dragoman.errors import AuthRequiredError
from dragoman.model import LoginUI
from dragoman.struct import Report
from dragoman.trust.addresses import read_link, split_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.model import ServerSpec, Settings

SECONDS = 600.0
"""How long a person may take, if `--timeout` does not change it."""


class LoginReport(Report, kw_only=True):
    """`dragoman login --json` and `logout --json`."""

    server: str
    logged_in: bool
    changed: bool


@click.command()
@common_options
@timeout_option
@click.argument("name", shell_complete=SERVERS)
@click.option(
    "--paste", is_flag=True, help="Ask for the address that the browser ended at (for a browser elsewhere)."
)
@click.option("--no-browser", is_flag=True, help="Only print the address to open.")
@click.pass_obj
def login(options: Options, name: str, *, paste: bool, no_browser: bool) -> None:
    """Log in to a server: its address opens in a browser, and is printed.

    On a machine without a browser use `--paste`: open the address anywhere, and paste the one it ends at. A
    server with client credentials in its configuration needs no browser.
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
    """Forget the login to a server, and revoke its token."""
    from dragoman.server.oauth.authorizer import logout as forget

    named(options.load(), name)
    options.quiet_logs()
    found = run(forget(name))
    said = f"logged out of `{name}`" if found else f"not logged in to `{name}`"
    _report(options, name, logged_in=False, changed=found, text=said)


async def _login(options: Options, settings: Settings, spec: ServerSpec, person: _Person) -> None:
    from dragoman.config.load import approvals
    from dragoman.config.templates import ExpansionContext
    from dragoman.server.oauth import authorizer
    from dragoman.server.prepare import prepare
    from dragoman.trust.gate import Gate

    root = settings.root or str(Path.cwd())
    expansion = ExpansionContext(env=os.environ, root=root, home=str(Path.home()))
    # Nothing is sent to a project's server before a person has approved it.
    transport, auth = await prepare(
        spec, expansion, Gate(settings, root=root, trust_project=False, approvals=approvals)
    )
    seconds = SECONDS if options.timeout is None else options.timeout
    try:
        async with asyncio.timeout(seconds):
            await authorizer.login(spec.name, transport, auth, person.ui)
    except TimeoutError as error:
        msg = f"the login to `{spec.name}` was not completed within {seconds:g} s"
        raise AuthRequiredError(msg, server=spec.name, hint="try again with a longer `--timeout`") from error
    except (EOFError, KeyboardInterrupt):
        # Ctrl-D or Ctrl-C at the prompt for the address.
        raise click.Abort from None


class _Person:
    """The person at the terminal."""

    def __init__(self, server: str, *, paste: bool, browser: bool) -> None:
        self._server = server
        self._paste = paste
        self._browser = browser
        self.ui = LoginUI(
            open_url=self._show, paste=self._ask if paste else None, on_refused=self._explain_refusal
        )

    async def _show(self, url: str) -> None:
        """Print the address, and open it if there is a browser."""
        _tell(f"To log in to `{output.one_line(self._server)}`, open this address:\n\n  {output.safe(url)}\n")
        if self._paste:
            _tell(
                "After the login, the browser goes to an address that begins with\n"
                f"`{output.one_line(_redirect_uri(url))}`. It may report that it cannot connect.\n"
                "Copy that whole address."
            )
            return
        if self._browser and await open_browser(url):
            _tell("Your browser opens. Waiting for the login; Ctrl-C cancels.")
        elif self._browser:
            _tell(
                "No browser found on this machine. Waiting for the login; Ctrl-C cancels.\n"
                f"If your browser runs on another machine, use: dragoman login {self._server} --paste"
            )
        else:
            _tell("Waiting for the login; Ctrl-C cancels.")

    def _explain_refusal(self, why: str) -> None:
        _tell(f"That address cannot be used: {why}.\nCopy the whole address that the browser ended at.")

    async def _ask(self) -> str:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.output import create_output

        session: PromptSession[str] = PromptSession(output=create_output(stdout=sys.stderr))
        # Not `input()`: a terminal cuts lines at 4,095 characters, and a reading thread cannot be cancelled.
        return await session.prompt_async("address: ")


def _tell(text: str) -> None:
    click.echo(output.safe(text), err=True)


def _redirect_uri(url: str) -> str:
    parts = split_url(url)
    query = parts.query if parts is not None else ""
    return dict(parse_qsl(query)).get("redirect_uri", "http://127.0.0.1")


async def open_browser(url: str) -> bool:
    """Open an address in a browser, and return whether that was possible."""
    import webbrowser

    try:
        link = read_link(url)
    except ValueError:
        return False
    # In a thread: some browsers return only when they are closed.
    return _has_browser(os.environ) and await asyncio.to_thread(webbrowser.open, link.url)


def _has_browser(env: Mapping[str, str]) -> bool:
    """Return whether there is a graphical browser; a text browser would take over the terminal."""
    if env.get("BROWSER"):
        return True
    if sys.platform == "linux":
        return bool(env.get("DISPLAY") or env.get("WAYLAND_DISPLAY"))
    return not env.get("SSH_CONNECTION")


def _report(options: Options, name: str, *, logged_in: bool, changed: bool, text: str) -> None:
    if options.json:
        output.say_json(LoginReport(server=name, logged_in=logged_in, changed=changed))
    else:
        output.say(text)
