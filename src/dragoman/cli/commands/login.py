"""`dragoman login` and `dragoman logout`: log a person in to a server behind a URL, or forget that login.

Instructions for the person go to standard error; standard output has only the result.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import click

from dragoman.cli import output
from dragoman.cli.exits import run
from dragoman.cli.known import named
from dragoman.cli.options import SERVERS, Options, common_options, timeout_option
from dragoman.config.load import refused
from dragoman.config.templates import input_ids
from dragoman.errors import AuthRequiredError, ConfigError
from dragoman.model import LoginUI, Stdio
from dragoman.storage.answers import forget_answers, keep_answers
from dragoman.struct import Report
from dragoman.trust.addresses import read_link, split_url
from dragoman.trust.layers import answers_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dragoman.model import ServerSpec, Settings

SECONDS = 600.0
"""How long a person may take, if `--timeout` does not change it."""
MAX_CHARS = 65_536
"""The most that is read for tokens or inputs from standard input."""


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
@click.option(
    "--with-token",
    is_flag=True,
    help="Ask for a token, or for the server's inputs; without a terminal, read them line by line.",
)
@click.pass_obj
def login(options: Options, name: str, *, paste: bool, no_browser: bool, with_token: bool) -> None:
    """Log in to a server: its address opens in a browser, and is printed.

    On a machine without a browser use `--paste`: open the address anywhere, and paste the one it ends at. A
    server with client credentials in its configuration needs no browser. One that offers no such login needs
    a token, and one whose entry has `${input:…}` values for these: both are asked for once, and kept with the
    logins until `dragoman logout NAME`.
    """
    settings = options.load()
    spec = named(settings, name)
    if paste and not sys.stdin.isatty():
        msg = "`--paste` needs a terminal to paste into"
        raise click.UsageError(msg)
    options.quiet_logs()
    if asks_inputs := bool(input_ids(spec)):
        _take_inputs(settings, spec, with_token=with_token)
    if not (asks_inputs and isinstance(spec.transport, Stdio)):
        person = _Person(spec.name, paste=paste, browser=not (no_browser or paste), token=with_token)
        run(_login(options, settings, spec, person, may_be_done=asks_inputs))
    _report(options, name, logged_in=True, changed=True, text=f"logged in to `{name}`")


@click.command()
@common_options
@click.argument("name", shell_complete=SERVERS)
@click.pass_obj
def logout(options: Options, name: str) -> None:
    """Forget the login to a server, and revoke its token."""
    from dragoman.server.oauth.authorizer import logout as forget

    settings = options.load()
    spec = named(settings, name)
    options.quiet_logs()
    answered = forget_answers(input_ids(spec), answers_of(spec, settings, ""))
    found = run(forget(name)) or answered
    said = f"logged out of `{name}`" if found else f"not logged in to `{name}`"
    _report(options, name, logged_in=False, changed=found, text=said)


def _take_inputs(settings: Settings, spec: ServerSpec, *, with_token: bool) -> None:
    """Ask for the inputs of a server, or read them from standard input, and keep them.

    Raises:
        ConnectError: The server is a project's, and not approved.
        ConfigError: Nothing was given for one of them.
        UsageError: There is no terminal, or the number of lines is wrong.
    """
    if (error := refused(settings, [spec]).get(spec.name)) is not None:
        raise error
    names = input_ids(spec)
    if sys.stdin.isatty():
        from dragoman.cli.session.line_editor import TerminalAsker
        from dragoman.cli.session.questions import AbandonedError, ask_inputs, unanswered
        from dragoman.cli.session.screen import Screen

        try:
            run(ask_inputs(TerminalAsker(Screen()), settings, [spec], again=True))
        except AbandonedError:
            raise click.Abort from None
        _check_given(spec, unanswered(settings, spec))
        return
    listed = ", ".join(f"`{name}`" for name in names)
    if not with_token:
        msg = f"`{spec.name}` asks for {listed}: use a terminal, or `--with-token` and a line for each"
        raise click.UsageError(msg)
    lines = sys.stdin.read(MAX_CHARS).splitlines()
    if len(lines) != len(names):
        msg = f"expected a line for each of {listed} on standard input, not {len(lines)} lines"
        raise click.UsageError(msg)
    _check_given(spec, [name for name, line in zip(names, lines, strict=True) if not line])
    keep_answers(dict(zip(names, lines, strict=True)), answers_of(spec, settings, ""))


def _check_given(spec: ServerSpec, missing: Sequence[str]) -> None:
    if missing:
        listed = ", ".join(f"`{name}`" for name in missing)
        msg = f"nothing was given for {listed}, which `{spec.name}` needs"
        raise ConfigError(msg, hint=f"try again: `dragoman login {quote(spec.name)}`")


async def _login(
    options: Options, settings: Settings, spec: ServerSpec, person: _Person, *, may_be_done: bool
) -> None:
    """Log in by OAuth or with a token; without either, if the answers to its inputs may be all it needs."""
    from dragoman.config.load import approvals
    from dragoman.config.templates import ExpansionContext
    from dragoman.server.oauth import authorizer
    from dragoman.server.prepare import prepare
    from dragoman.trust.gate import Gate

    root = settings.root or str(Path.cwd())
    # Nothing is sent to a project's server before a person has approved it.
    gate = Gate(settings, root=root, trust_project=False, approvals=approvals)
    inputs = gate.answers(spec, settings, {})
    expansion = ExpansionContext(env=os.environ, root=root, home=str(Path.home()), inputs=inputs)
    transport, auth = await prepare(spec, expansion, gate)
    if may_be_done and authorizer.authorizer_for(spec.name, transport, auth) is None:
        return
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

    def __init__(self, server: str, *, paste: bool, browser: bool, token: bool) -> None:
        self._server = server
        self._paste = paste
        self._browser = browser
        self.ui = LoginUI(
            open_url=self._show,
            paste=self._ask if paste else None,
            on_refused=self._explain_refusal,
            token=self._ask_token if token or sys.stdin.isatty() else None,
            only_token=token,
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
                f"If your browser runs on another machine, use: dragoman login {quote(self._server)} --paste"
            )
        else:
            _tell("Waiting for the login; Ctrl-C cancels.")

    def _explain_refusal(self, why: str) -> None:
        _tell(f"That address cannot be used: {why}.\nCopy the whole address that the browser ended at.")

    async def _ask(self) -> str:
        return await _prompt("address: ")

    async def _ask_token(self) -> str:
        if not sys.stdin.isatty():
            return sys.stdin.read(MAX_CHARS)
        _tell(f"`{output.one_line(self._server)}` needs a token. Its site or its operator gives you one.")
        return await _prompt("token: ", is_password=True)


async def _prompt(label: str, *, is_password: bool = False) -> str:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.output import create_output

    session: PromptSession[str] = PromptSession(output=create_output(stdout=sys.stderr))
    # Not `input()`: a terminal cuts lines at 4,095 characters, and a reading thread cannot be cancelled.
    return await session.prompt_async(label, is_password=is_password)


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
