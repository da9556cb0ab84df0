"""Options that all commands share, before or after the subcommand; and shell completion."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, cast

import click

from dragoman.struct import MutableStruct, field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from click.shell_completion import CompletionItem

    from dragoman.config.profiles import Profile
    from dragoman.model import ServerSpec, Settings, ToolDef

PROFILE_VARIABLE = "DRAGOMAN_PROFILE"
THINK: dict[str, bool | str] = {"on": True, "off": False, "low": "low", "medium": "medium", "high": "high"}
"""Whether and how much a model thinks first, as people write it."""
_OWN = "dragoman"


def usual_profile(env: Mapping[str, str] | None = None) -> str:
    """Return the profile of commands that do not name one."""
    return (os.environ if env is None else env).get(PROFILE_VARIABLE, "").strip() or _OWN


class Options(MutableStruct):
    """The values of the shared options; the last occurrence wins."""

    profile: str = field(default_factory=usual_profile)
    config: str | None = None
    json: bool = False
    debug: bool = False
    yes: bool = False
    """Whether questions are answered with yes instead of asked."""
    timeout: float | None = None
    """Seconds to wait for servers; None: the limits of each server apply."""
    alone: bool = False
    """Whether only the files of the profile are read, without those of other apps in use."""
    no_daemon: bool = False
    """Whether the command goes alone even if a daemon runs."""
    load_here: Callable[[], Settings] | None = None
    """In the daemon: loads the configuration of the client's folder and environment."""
    root: str | None = None
    """The folder of the command; the current one by default."""
    env: Mapping[str, str] | None = None
    """The environment of the command; this process's by default."""
    server: ServerSpec | None = None
    """A server from the command line, which is used instead of the configured ones."""

    def load(self) -> Settings:
        """Load the configuration that these options select.

        Definitions of a project that are not approved have no effect. The command shows problems itself.
        """
        if self.load_here is not None:
            return self.load_here()
        from dragoman.config.load import load
        from dragoman.trust.layers import effective, has_project

        settings = load(
            self.with_hosts(), root=self.root, config=self.config, log_problems=self.debug, env=self.env
        )
        if not has_project(settings):
            settings = effective(settings, refused=(), trusts_settings=False)
        else:
            from dragoman.config.load import approvals

            settings = approvals(env=self.env).decide(settings, settings.root)
        if self.server is None:
            return settings
        return settings.replace(servers=[self.server], unapproved=[], problems=[], sources=[])

    def with_hosts(self) -> str | Profile:
        """Return the profile; dragoman's own includes the apps whose servers the user agreed to use."""
        if not self.may_discover():
            return self.profile
        from dragoman.config.hosts import in_use
        from dragoman.config.profiles import profile_named

        return profile_named(_OWN).replace(hosts=used) if (used := in_use()) else self.profile

    def may_discover(self) -> bool:
        """Return whether servers of other apps may be used: no file or other app was named."""
        named = self.config or (os.environ if self.env is None else self.env).get("DRAGOMAN_MCP_CONFIG")
        return self.profile == _OWN and not (named or self.alone or self.server)

    def program(self) -> list[str]:
        """Return the start of a command line with the same configuration, for hints."""
        words = ["dragoman"]
        words += [] if self.profile == usual_profile(self.env) else ["--profile", self.profile]
        return [*words, "--config", self.config] if self.config else words

    def with_program(self, hint: str) -> str:
        """Return a hint whose `dragoman …` commands use the same configuration.

        The library words hints without knowing how the program was started. `import` names its app itself.
        """
        import shlex

        program = shlex.join(self.program())
        known = r"(?:--(?:profile|config) (?:'[^']*'|[^\s'`]+) )*"
        return re.sub(rf"`dragoman {known}(?!-|import\b|[^`]* --profile )", lambda _: f"`{program} ", hint)

    def quiet_logs(self) -> None:
        """Disable logging until the command ends; the command shows the same facts itself."""
        import logging

        logger = logging.getLogger("dragoman")
        if self.debug or logger.disabled:
            return
        logger.disabled = True
        if context := click.get_current_context(silent=True):
            context.find_root().call_on_close(lambda: setattr(logger, "disabled", False))


def typed(command: str) -> str:
    """Return a `dragoman …` command with the `--profile` and `--config` of the running command."""
    context = click.get_current_context(silent=True)
    options = context.find_object(Options) if context is not None else None
    if options is None:
        from dragoman.cli.remote import current_options

        options = current_options.get()
    if options is None:
        return command
    import shlex

    return f"{shlex.join(options.program())} {command.removeprefix('dragoman ')}"


class Duration(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] -- not generic in older releases
    """Seconds, written as `30`, `30s`, `500ms` or `2m`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse a duration."""
        from dragoman.config.values import seconds

        try:
            return seconds(value, "s")
        except ValueError as error:
            self.fail(str(error), param, ctx)


def timeout_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--timeout`, stored in the shared `Options`."""
    text = "Time limit for the servers, e.g. 30, 30s, 2m."
    return _bound(click.option("--timeout", type=Duration(), metavar="DURATION", help=text))(command)


def wait_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--wait`, also called `--timeout`, stored in the shared `Options`."""
    text = "How long servers may take to start, e.g. 5, 30s."
    return _bound(
        click.option("--wait", "--timeout", "timeout", type=Duration(), metavar="DURATION", help=text)
    )(command)


def yes_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--yes`, stored in the shared `Options`."""
    text = "Answer questions with yes, e.g. use the servers of other apps."
    return _bound(click.option("--yes", "-y", is_flag=True, default=None, help=text))(command)


def _store(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    options = context.ensure_object(Options)
    if value is not None and parameter.name:
        setattr(options, parameter.name, value)
    return value


def common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--profile`, `--config`, `--json`, `--debug` and `--no-daemon`."""
    for option in reversed(
        (
            click.option(
                "--profile",
                metavar="NAME",
                help=f"Use another app's configuration, e.g. claude-code ({PROFILE_VARIABLE}).",
            ),
            click.option("--config", metavar="FILE", help="Read only this configuration file."),
            click.option("--json", is_flag=True, default=None, help="Print JSON."),
            click.option("--debug", is_flag=True, default=None, help="Show log lines and tracebacks."),
            click.option("--no-daemon", is_flag=True, default=None, help="Do not use a running daemon."),
        )
    ):
        command = _bound(option)(command)
    return command


def _bound(option: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Attach an option whose value is stored in the shared `Options` only."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        decorated = option(command)
        parameter: click.Parameter = decorated.__click_params__[-1]
        parameter.callback = _store
        parameter.expose_value = False
        return decorated

    return decorate


_SHELLS = ("bash", "zsh", "fish", "powershell")
_INSTALL = {
    "bash": 'eval "$(dragoman completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(dragoman completion zsh)"   # in ~/.zshrc, after compinit',
    "fish": "dragoman completion fish > ~/.config/fish/completions/dragoman.fish",
    "powershell": "dragoman completion powershell | Out-String | Invoke-Expression  # in $PROFILE",
}
_POWERSHELL = """\
Register-ArgumentCompleter -Native -CommandName dragoman -ScriptBlock {
    param($word, $line, $cursor)
    $typed = $line.ToString()
    $env:COMP_WORDS = $typed.Substring(0, [Math]::Min($cursor, $typed.Length))
    $env:COMP_CWORD = $word
    $env:_DRAGOMAN_COMPLETE = "fish_complete"
    try {
        dragoman | Where-Object { $_.StartsWith("plain,") } | ForEach-Object {
            $value, $help = $_.Substring(6) -split "`t", 2
            if (-not $help) { $help = $value }
            [System.Management.Automation.CompletionResult]::new($value, $value, "ParameterValue", $help)
        }
    } finally {
        Remove-Item Env:COMP_WORDS, Env:COMP_CWORD, Env:_DRAGOMAN_COMPLETE
    }
}"""
"""click has nothing for PowerShell; its lines for fish are what is needed. Files are left to the shell."""

Proposals = list[tuple[str, str]]
"""Words with their descriptions."""


def _completer(
    propose: Callable[[click.Context, Options, str], Iterable[tuple[str, str]]],
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    def complete(context: click.Context, _parameter: click.Parameter, word: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        options = context.find_object(Options) or Options()
        options.quiet_logs()
        try:
            proposed = [pair for pair in propose(context, options, word) if pair[0].startswith(word)]
        except Exception:  # noqa: BLE001 -- a broken file must not print into the line being typed
            return []
        return [CompletionItem(value, help=" ".join(text.split())[:80] or None) for value, text in proposed]

    return complete


def _servers(_context: click.Context, options: Options, _word: str) -> Proposals:
    from dragoman.cli.output import command_line

    return [(spec.name, command_line(spec.transport)) for spec in options.load().servers]


def _call_words(context: click.Context, options: Options, _word: str) -> Proposals:
    """Complete `call`: a server or an exposed name, then a tool, then its arguments."""
    from dragoman.cli.known import known_registry
    from dragoman.errors import UnknownToolError

    words: tuple[str, ...] = context.params.get("words") or ()
    settings = options.load()
    registry, _ = known_registry(settings)
    if not words:
        exposed = [_described(tool, tool.name) for tool in registry]
        return [*_servers(context, options, ""), *exposed]
    first, *rest = words
    is_server = settings.server(first) is not None
    if is_server and not rest:
        return [_described(tool, tool.own_name) for tool in registry if tool.server == first]
    try:
        tool = registry.resolve(rest[0], server=first) if is_server else registry.resolve(first)
    except UnknownToolError:
        return []
    return _arguments(tool)


def _described(tool: ToolDef, name: str) -> tuple[str, str]:
    return name, tool.title or tool.description


def _arguments(tool: ToolDef) -> Proposals:
    from dragoman.cli.arguments import properties_of, resolved, type_name

    schema = tool.input_schema
    found: Proposals = []
    for name, property_ in properties_of(schema).items():
        field = resolved(property_, schema)
        values = cast("dict[str, Any]", field).get("enum") if isinstance(field, dict) else None
        kind = type_name(property_, schema)
        found.append((f"{name}=", kind))
        if isinstance(values, list):
            found += [(f"{name}={value}", kind) for value in cast("list[object]", values)]
    return found


SERVERS = _completer(_servers)
CALL_WORDS = _completer(_call_words)


@click.command(epilog="\b\n" + "\n".join(_INSTALL.values()))
@common_options
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the shell completion script.

    It completes commands, servers, tools and arguments from your configuration and the cache; no server is
    started.
    """
    if shell == "powershell":
        click.echo(_POWERSHELL)
        return
    from click.shell_completion import get_completion_class

    from dragoman.cli.main import cli

    found = get_completion_class(shell)
    if found is None:
        msg = f"Completion for {shell} is not supported."
        raise click.UsageError(msg)
    maker = found(cli, {}, "dragoman", "_DRAGOMAN_COMPLETE")
    # Not `source()`: it starts bash to check its version, which is slow.
    click.echo(maker.source_template % maker.source_vars())
