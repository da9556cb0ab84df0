"""The program's entry: finds the command, imports only what it needs, turns errors into one line.

`exits.py` has the exit codes.
"""

from __future__ import annotations

import errno
import io
import sys
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

import click

from dragoman.cli.exits import EndedError, Exit, code_of
from dragoman.cli.options import Options, common_options

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "chat": ("dragoman.cli.chat:chat", "Talk to a model that can use the servers' tools."),
    "top": ("dragoman.cli.top:top", "Watch servers, calls and logs in a dashboard."),
    "status": ("dragoman.cli.status:status", "Show the servers, their states and what is wrong with them."),
    "tools": ("dragoman.cli.tools:tools", "List tools as signatures, schemas, or for a model API."),
    "call": ("dragoman.cli.calling:call", "Call a tool and print its result."),
    "resources": ("dragoman.cli.offers:resources", "List the resources that servers have."),
    "read": ("dragoman.cli.offers:read", "Read a resource."),
    "prompts": ("dragoman.cli.offers:prompts", "List the prompts that servers have."),
    "prompt": ("dragoman.cli.offers:prompt", "Fill in a prompt and print its messages."),
    "calls": ("dragoman.cli.calls:calls", "List, show and repeat the calls that were written down."),
    "logs": ("dragoman.cli.logs:logs", "Show what a server wrote to its standard error."),
    "doctor": ("dragoman.cli.doctor:doctor", "Find out, stage by stage, why a server does not work."),
    "config": ("dragoman.cli.config:config", "Show, check and locate the configuration."),
    "import": ("dragoman.cli.importing:import_", "Take servers over from another host's files."),
    "add": ("dragoman.cli.editing:add", "Add a server, by command, URL or well-known name."),
    "remove": ("dragoman.cli.editing:remove", "Remove a server."),
    "enable": ("dragoman.cli.editing:enable", "Switch a server on."),
    "disable": ("dragoman.cli.editing:disable", "Switch a server off."),
    "trust": ("dragoman.cli.trusting:trust", "Show what is trusted, approve it, take it back, pin versions."),
    "login": ("dragoman.cli.logins:login", "Log in to a server."),
    "logout": ("dragoman.cli.logins:logout", "Forget the login to a server."),
    "completion": ("dragoman.cli.completing:completion", "Print what completes commands in your shell."),
    "help": ("dragoman.cli.helping:help_", "Explain a command or a topic."),
    "demo": ("dragoman.cli.demo:demo", "Connect the bundled demo servers and show what they do."),
}
"""Where each command lives, and its one line of help, so that listing them imports none."""


class _LazyGroup(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            from dragoman.suggesting import suggest

            near = suggest(name, COMMANDS, count=1)
            guess = f" Did you mean `{near[0]}`?" if near else " `dragoman --help` lists the commands."
            ctx.fail(f"There is no command `{name}`.{guess}")
        return super().resolve_command(ctx, args)


def _print_version(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        from dragoman.version import VERSION

        click.echo(f"dragoman {VERSION}")
        context.exit()


@click.group(
    cls=_LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@common_options
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version.",
)
@click.pass_context
def cli(context: click.Context) -> None:
    """Connect an agent to all of its MCP servers, and keep it connected.

    Without a command a session opens, as `chat` does, if there is a terminal.
    """
    if context.invoked_subcommand is not None:
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        click.echo(context.get_help(), err=True)
        context.exit(Exit.USAGE)
    from dragoman.cli.chat import open_session

    open_session(context.ensure_object(Options))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal or pipe that cannot show a character gets its code, not a traceback.
            stream.reconfigure(errors="backslashreplace")
    code = run(arguments)
    try:
        sys.stdout.flush()
    except OSError:
        _close_quietly()
    sys.exit(code)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code."""
    try:
        return _run(arguments)
    except EndedError as ended:
        # What is still unwritten cannot go to a terminal that is closed; Python would end with another code.
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except OSError:
            _close_quietly()
        return 128 + ended.number
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        # The terminal is closed: there is nobody to tell.
        _close_quietly()
        return Exit.HUNG_UP


def _run(arguments: Sequence[str] | None) -> int:
    options = Options()
    try:
        result = cli.main(
            list(arguments) if arguments is not None else None,
            prog_name="dragoman",
            standalone_mode=False,
            obj=options,
        )
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        return Exit.INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        return _explain_use(error, as_json=options.json)
    except BrokenPipeError:
        return _close_quietly()
    except Exception as error:  # noqa: BLE001 -- whatever it is, a person gets one line
        if options.debug:
            _show_traceback(error)
        return _explain(error, as_json=options.json)
    return result if isinstance(result, int) else 0


def _show_traceback(error: Exception) -> None:
    """Print where an error comes from; foreign exceptions in it may quote a server."""
    import traceback

    from dragoman.cli.output import safe
    from dragoman.trust.redact import mask_text

    click.echo(safe(mask_text("".join(traceback.format_exception(error)))), err=True, nl=False)


def _explain(error: Exception, *, as_json: bool) -> int:
    """Put an error into one line on standard error; programs get it as JSON too, in place of the result."""
    from dragoman.cli.output import error_json, safe, say_json
    from dragoman.errors import DragomanError
    from dragoman.trust.redact import mask_text

    expected = isinstance(error, DragomanError)
    unforeseen = "" if expected else f"{type(error).__name__}: {mask_text(str(error))}"
    text = str(error) if expected else f"{unforeseen} (--debug shows where)"
    click.secho(f"error: {safe(' '.join(text.split()))}", fg="red", err=True)
    if as_json:
        known = {"code": "unforeseen", "message": unforeseen, "hint": ""}
        say_json({"error": error_json(error) if expected else known})
    return code_of(error)


def _explain_use(error: click.ClickException, *, as_json: bool) -> int:
    """Say in one line how the program was called wrongly, and where it stands how it is called."""
    from dragoman.cli.output import safe, say_json

    context = error.ctx if isinstance(error, click.UsageError) else None
    message = " ".join(error.format_message().split()).rstrip(".")
    hint = f"see `{context.command_path if context else 'dragoman'} --help`"
    click.secho(f"error: {safe(message)} ({hint})", fg="red", err=True)
    if as_json:
        say_json({"error": {"code": "usage", "message": message, "hint": hint}})
    return error.exit_code


def _close_quietly() -> int:
    """End without a word when the reader of a pipe has gone, as other programs do."""
    import os

    devnull = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            os.dup2(devnull, stream.fileno())
    return Exit.FAILED
