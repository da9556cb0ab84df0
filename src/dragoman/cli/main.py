"""The entry point: finds the command, imports only what it needs, prints errors in one line.

Exit codes are in `exits.py`; the topics of `dragoman help` are at the end of this file.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
import textwrap
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

import click

from dragoman.cli import interrupts
from dragoman.cli.exits import EndedError, Exit, code_of, meanings
from dragoman.cli.options import Options, common_options, yes_option

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "chat": ("dragoman.cli.commands.chat:chat", "Chat with a model that can use the tools."),
    "top": ("dragoman.cli.commands.top:top", "Watch servers, calls and logs in a dashboard."),
    "web": ("dragoman.cli.commands.web:web", "Watch and use the servers in a browser."),
    "status": (
        "dragoman.cli.commands.status:status",
        "Show servers, their state and their last error (also: list, ls).",
    ),
    "tools": ("dragoman.cli.commands.tools:tools", "List tools as signatures or schemas, or export them."),
    "stubs": ("dragoman.cli.commands.stubs:stubs", "Write the tools as typed Python modules."),
    "call": ("dragoman.cli.commands.call:call", "Call a tool and print its result."),
    "map": ("dragoman.cli.commands.map_:map_", "Call a tool for every row of a table."),
    "resources": ("dragoman.cli.commands.resources:resources", "List the resources of the servers."),
    "read": ("dragoman.cli.commands.resources:read", "Read a resource."),
    "prompts": ("dragoman.cli.commands.resources:prompts", "List the prompts of the servers."),
    "prompt": ("dragoman.cli.commands.resources:prompt", "Fill in a prompt and print its messages."),
    "skills": ("dragoman.cli.commands.resources:skills", "List, approve and print skills of servers."),
    "tasks": ("dragoman.cli.commands.tasks:tasks", "List tasks of servers, or wait for one."),
    "daemon": (
        "dragoman.cli.commands.daemon:daemon",
        "Keep servers running between commands.",
    ),
    "serve": ("dragoman.cli.commands.serve:serve", "Serve all servers as one MCP server."),
    "calls": ("dragoman.cli.commands.calls:calls", "List, show and repeat recorded calls."),
    "logs": ("dragoman.cli.commands.logs:logs", "Show the stderr output of a server."),
    "doctor": (
        "dragoman.cli.commands.doctor:doctor",
        "Diagnose why a server does not work.",
    ),
    "config": ("dragoman.cli.commands.config:config", "Show, check and locate the configuration."),
    "import": (
        "dragoman.cli.commands.import_:import_",
        "Import servers from Claude Code, Cursor and others.",
    ),
    "install": (
        "dragoman.cli.commands.install:install",
        "Make dragoman the one server of Claude Code, Cursor and others.",
    ),
    "add": ("dragoman.cli.commands.edit:add", "Add a server by command, URL or catalog name."),
    "set": ("dragoman.cli.commands.set_:set_", "Change values of a server."),
    "unset": ("dragoman.cli.commands.set_:unset", "Remove values of a server."),
    "remove": ("dragoman.cli.commands.edit:remove", "Remove a server."),
    "enable": ("dragoman.cli.commands.edit:enable", "Enable a server."),
    "disable": ("dragoman.cli.commands.edit:disable", "Disable a server."),
    "trust": (
        "dragoman.cli.commands.trust:trust",
        "Show, approve and revoke trust; pin versions.",
    ),
    "approvals": (
        "dragoman.cli.commands.approvals:approvals",
        "List, show and answer calls that wait for a yes.",
    ),
    "login": ("dragoman.cli.commands.login:login", "Log in to a server."),
    "logout": ("dragoman.cli.commands.login:logout", "Delete the saved login of a server."),
    "completion": ("dragoman.cli.options:completion", "Print the completion script for your shell."),
    "help": ("dragoman.cli.main:help_", "Show help for a command or a topic."),
    "demo": ("dragoman.cli.commands.demo:demo", "Try dragoman on two bundled servers."),
}
"""The location of each command and its help line; listing commands imports none of them."""
ALIASES = {"list": "status", "ls": "status"}
"""Names that people know from other programs."""


class _LazyGroup(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        cmd_name = ALIASES.get(cmd_name, cmd_name)
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
        if name not in {*COMMANDS, *ALIASES} and not name.startswith("-"):
            from dragoman.suggest import suggest

            similar = suggest(name, COMMANDS, count=1)
            hint = f" Did you mean `{similar[0]}`?" if similar else " Run `dragoman --help` for a list."
            ctx.fail(f"Unknown command `{name}`.{hint}")
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
@yes_option
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

    Without a command, dragoman starts a chat session (see `dragoman chat`).
    """
    if context.invoked_subcommand is not None:
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        click.echo(context.get_help(), err=True)
        context.exit(Exit.USAGE)
    from dragoman.cli.commands.chat import open_session

    open_session(context.ensure_object(Options))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Escape characters that the terminal or pipe cannot encode instead of raising an error.
            stream.reconfigure(errors="backslashreplace")
    # Most objects of a command are modules and classes that stay: look through them rarely, and not at exit.
    gc.set_threshold(50_000, 20, 50)
    code = run(arguments)
    interrupts.begin_end()
    try:
        sys.stdout.flush()
    except OSError as error:
        code = _close_quietly(error)
    try:
        sys.stderr.flush()
    except OSError:
        # Python would exit with 120 instead; what the command did is on standard output.
        _close_quietly()
    gc.freeze()
    sys.exit(code)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code."""
    try:
        return _run(arguments)
    except EndedError as ended:
        # Flush here: if the terminal is closed, flushing at exit would change the exit code.
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except OSError:
            _close_quietly()
        return 128 + ended.number
    except OSError as error:
        # The terminal is closed or the disk is full, so an error message cannot be shown.
        _close_quietly()
        return Exit.HUNG_UP if error.errno == errno.EIO else Exit.FAILED


def _run(arguments: Sequence[str] | None) -> int:
    return run_with(arguments, Options())


def run_with(arguments: Sequence[str] | None, options: Options) -> int:
    """Run a command with these options, unless it has others; return its exit code."""
    from dragoman.cli.remote import GoAloneError, UseDaemonError

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
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC) or error.filename is not None:
            return _report(error, options)
        return _close_quietly(error)
    except GoAloneError:
        raise
    except UseDaemonError:
        return _run_in_new_daemon(list(arguments) if arguments is not None else sys.argv[1:])
    except Exception as error:  # noqa: BLE001 -- any error is shown in one line
        return _report(error, options)
    return result if isinstance(result, int) else 0


def _report(error: Exception, options: Options) -> int:
    from dragoman.errors import DragomanError

    if options.debug:
        _show_traceback(error)
    if isinstance(error, DragomanError):
        error.hint = options.with_program(error.hint)
    return _explain(error, as_json=options.json)


def _run_in_new_daemon(words: Sequence[str]) -> int:
    """Run a command in a daemon that is started for it; alone if that fails."""
    from dragoman.gateway import client

    code = client.run(words, may_start=True)
    return run_with(words, Options(no_daemon=True)) if code is None else code


def _show_traceback(error: Exception) -> None:
    """Print a traceback; secrets are masked, because exceptions may quote a server."""
    import traceback

    from dragoman.cli.output import safe
    from dragoman.trust.masking import mask_text

    click.echo(safe(mask_text("".join(traceback.format_exception(error)))), err=True, nl=False)


def _explain(error: Exception, *, as_json: bool) -> int:
    """Print an error as one line on stderr; with `--json` also as JSON on stdout."""
    from dragoman.cli.output import ErrorReport, FailureReport, safe, say_json
    from dragoman.errors import CallDeniedError, DragomanError
    from dragoman.trust.masking import mask_text

    is_expected = isinstance(error, DragomanError)
    unexpected = "" if is_expected else f"{type(error).__name__}: {mask_text(str(error))}"
    text = str(error) if is_expected else f"{unexpected} (use --debug for a traceback)"
    if isinstance(error, CallDeniedError):
        # The message names the file of the rule.
        home = os.path.expanduser("~")  # noqa: PTH111 -- a text is needed
        text = text.replace(f"{home}{os.sep}", f"~{os.sep}")
    click.secho(f"error: {safe(' '.join(text.split()))}", fg="red", err=True)
    if as_json:
        shown = ErrorReport(code="unforeseen", message=unexpected, hint="")
        say_json(FailureReport(error=ErrorReport.of_error(error) if is_expected else shown))
    return code_of(error)


def _explain_use(error: click.ClickException, *, as_json: bool) -> int:
    """Print a usage error in one line, with a pointer to the help of the command."""
    from dragoman.cli.output import ErrorReport, FailureReport, safe, say_json

    context = error.ctx if isinstance(error, click.UsageError) else None
    message = " ".join(error.format_message().split()).rstrip(".")
    hint = f"see `{context.command_path if context else 'dragoman'} --help`"
    click.secho(f"error: {safe(message)} ({hint})", fg="red", err=True)
    if as_json:
        say_json(FailureReport(error=ErrorReport(code="usage", message=message, hint=hint)))
    return error.exit_code


def _close_quietly(error: OSError | None = None) -> int:
    """Write nothing more to standard output and error; say why, unless the reader of a pipe is gone."""
    if error is not None and not isinstance(error, BrokenPipeError):
        with suppress(OSError):
            click.secho(f"error: the output cannot be written: {error.strerror}", fg="red", err=True)
    devnull = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            os.dup2(devnull, stream.fileno())
    return Exit.FAILED


TOPICS: dict[str, tuple[str, str]] = {
    "arguments": (
        "How to pass arguments to `call` and `prompt`.",
        """\
key=value      a value, converted by the tool's schema: text, number, true, JSON
key=a key=b    a list; the same as key='["a", "b"]'
a.b=value      a value inside an object: a.b=1 a.c=2 is {"a": {"b": 1, "c": 2}}
key=@path      the content of a file; key=@- reads standard input
key=@@text     a text that starts with @
--args '{…}'   all arguments as a JSON object; --args @path reads it from a file
-              the JSON object is read from standard input

Arguments are checked before anything is sent. `dragoman tools SERVER --schema`
shows the parameters of each tool.""",
    ),
    "configuration": (
        "Where servers are defined.",
        """\
`dragoman config paths` lists the files that are read, `config show` the
servers in effect, `config check` the problems. --config FILE reads only that
file; --profile NAME uses the configuration of another app:
PROFILES

`dragoman add` adds a server, `dragoman set` changes one, `dragoman import
--all` imports servers from other apps, and `dragoman config hosts` uses them
where they are. `dragoman tools -- COMMAND` or `dragoman tools URL` tries a
server that is not configured. Write ${NAME} for the value of an
environment variable; it is read when the server starts.""",
    ),
    "exit-codes": ("What each exit code means.", ""),
    "json": (
        "Output for scripts.",
        """\
Every command prints JSON with --json. Keys may be added but are never renamed;
durations are in seconds; the page Commands of the documentation has every key
(`make docs` in a clone builds it). Text output may change at any time.

A command that fails prints {"error": {"code", "message", "hint"}} instead of
its result, and one line on stderr. In scripts, check `code` or the exit code,
not the message. Progress and warnings go to stderr. Colors are used only in a
terminal; NO_COLOR=1 turns them off.""",
    ),
    "cache": (
        "Why `tools` does not start the servers.",
        """\
The tools of each server are cached in ~/.cache/dragoman/manifests, without
secrets. `tools` and shell completion use this cache; only servers without a
cached list are started. `dragoman tools --refresh` queries the servers again.
`dragoman status --no-connect` starts no servers either.""",
    ),
    "trust": (
        "Approving the servers of a project.",
        """\
A file in a project (mcp.json, .mcp.json …) may start any program, so its
servers need your approval: `dragoman trust show` lists them, `dragoman trust
approve NAME` shows the exact command and asks. An approval covers the command
and the script it runs, in this project only; if either changes, you are asked
again. Files in your own folders need no approval.""",
    ),
    "daemon": (
        "Keeping servers running between commands.",
        """\
`dragoman daemon start` starts a process that keeps your servers running.
While it runs, `call`, `tools` and `status` use it by themselves and answer in
a fraction of a second; --no-daemon goes alone. With `daemon = true` under
[mcp] in your configuration, or DRAGOMAN_DAEMON=1, they start it when needed;
DRAGOMAN_DAEMON=0 never uses it. It ends after 10 minutes without clients.

Servers are shared between shells and programs if their entries are the same:
command, arguments, folder and variables. `share = false` in an entry keeps a
server from being shared. Every client has the approvals and rules that it
would have alone. Other users cannot connect.""",
    ),
    "models": (
        "Choosing a model for `chat`, and its API key.",
        """\
openai:MODEL       needs OPENAI_API_KEY; OPENAI_BASE_URL for compatible servers
responses:MODEL    the same, with OpenAI's Responses API
anthropic:MODEL    needs ANTHROPIC_API_KEY; ANTHROPIC_BASE_URL is optional
gemini:MODEL       needs GEMINI_API_KEY
azure:DEPLOYMENT   needs AZURE_OPENAI_ENDPOINT and AZURE_OPENAI_API_KEY
deepseek:MODEL     needs DEEPSEEK_API_KEY
qwen:MODEL         needs DASHSCOPE_API_KEY; qwen-intl outside China
kimi:MODEL         needs MOONSHOT_API_KEY; kimi-intl outside China
glm:MODEL          needs ZHIPUAI_API_KEY; glm-intl outside China, ZAI_API_KEY
openrouter:MODEL   needs OPENROUTER_API_KEY
groq:MODEL         needs GROQ_API_KEY
local              the first of Ollama, llama.cpp, LM Studio and vLLM that runs
ollama, llamacpp, lmstudio, vllm    that server; add :MODEL to choose a model
any-llm:PROVIDER:MODEL    every other provider, by the package any-llm-sdk

Choose a model with `dragoman chat --model NAME`, DRAGOMAN_MODEL, or /model in
a session. Keys come from the environment or a keyring, never from a project's
file. Install the API package as an extra: dragoman[openai],
dragoman[anthropic].""",
    ),
    "completion": (
        "Setting up shell completion.",
        """\
bash   eval "$(dragoman completion bash)"    in ~/.bashrc
zsh    eval "$(dragoman completion zsh)"     in ~/.zshrc, after compinit
fish   dragoman completion fish > ~/.config/fish/completions/dragoman.fish
PowerShell, in $PROFILE:
       dragoman completion powershell | Out-String | Invoke-Expression

Servers, tools, arguments and choices are completed too; no server is started.""",
    ),
}
"""Title and text of each topic; `text_of` fills in the exit codes and the names of profiles."""


def text_of(topic: str) -> str:
    """Return the text of a topic."""
    if topic != "exit-codes":
        from dragoman.config.dialects import HOSTS, SEEDS

        profiles = textwrap.fill(", ".join((*SEEDS, *HOSTS)), 79, break_on_hyphens=False)
        return TOPICS[topic][1].replace("PROFILES", profiles)

    lines = [f"{code.value:>3}  {meanings()[code.name]}" for code in Exit]
    return "\n".join(textwrap.fill(line, 79, subsequent_indent="     ") for line in lines)


@click.command("help")
@common_options
@click.argument("words", nargs=-1, metavar="[COMMAND | TOPIC | topics]...")
@click.pass_context
def help_(context: click.Context, words: tuple[str, ...]) -> None:
    """Show help for a command or a topic; `dragoman help topics` lists the topics."""
    root = context.find_root()
    if not words:
        click.echo(root.get_help())
        return
    if words == ("topics",):
        width = max(map(len, TOPICS))
        for name, (title, _) in TOPICS.items():
            click.echo(f"{name:<{width}}  {title}")
        return
    if len(words) == 1 and words[0] in TOPICS and cli.get_command(root, words[0]) is None:
        click.echo(text_of(words[0]))
        return
    command: click.Command = cli
    for word in words:
        # Look commands up by name: a group in another context would not load them.
        found = command.get_command(root, word) if isinstance(command, click.Group) else None
        if found is None:
            from dragoman.suggest import suggest

            names = [*TOPICS, *cli.list_commands(root)]
            similar = suggest(word, names, count=1)
            hint = f" Did you mean `{similar[0]}`?" if similar else " Run `dragoman help topics` for a list."
            context.fail(f"No help for `{word}`.{hint}")
        command = found
        root = click.Context(command, parent=root, info_name=word)
    click.echo(command.get_help(root))
    if words[0] in TOPICS:
        click.echo(f"\n{text_of(words[0])}")
