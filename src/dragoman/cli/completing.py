"""Shell completion: servers, tools, arguments, from the configuration and the cache; nothing is started.

Whatever goes wrong on the way, completion proposes nothing and says nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from dragoman.cli.options import Options, common_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from click.shell_completion import CompletionItem

    from dragoman.model import ToolDef

_SHELLS = ("bash", "zsh", "fish")
_INSTALL = {
    "bash": 'eval "$(dragoman completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(dragoman completion zsh)"   # in ~/.zshrc, after compinit',
    "fish": "dragoman completion fish > ~/.config/fish/completions/dragoman.fish",
}

Proposals = list[tuple[str, str]]
"""A word and what it is."""


def _completer(
    propose: Callable[[click.Context, Options, str], Iterable[tuple[str, str]]],
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    def complete(context: click.Context, _parameter: click.Parameter, word: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        options = context.find_object(Options) or Options()
        options.quiet_logs()
        try:
            proposed = [pair for pair in propose(context, options, word) if pair[0].startswith(word)]
        except Exception:  # noqa: BLE001 -- a broken file must not spill into the line that is being typed
            return []
        return [CompletionItem(value, help=" ".join(text.split())[:80] or None) for value, text in proposed]

    return complete


def _servers(_context: click.Context, options: Options, _word: str) -> Proposals:
    from dragoman.cli.output import command_line

    return [(spec.name, command_line(spec.transport)) for spec in options.load().servers]


def _call_words(context: click.Context, options: Options, _word: str) -> Proposals:
    """Propose for `call`: a server or an exposed name, then a tool, then its arguments."""
    from dragoman.cli.known import known_tools

    words: tuple[str, ...] = context.params.get("words") or ()
    settings = options.load()
    tools = known_tools(settings, [spec for spec in settings.servers if spec.enabled])
    if not words:
        exposed = [_named(tool, tool.name) for listed in tools.values() for tool in listed]
        return [*_servers(context, options, ""), *exposed]
    first, *rest = words
    if settings.server(first) is not None:
        if not rest:
            return [_named(tool, tool.original_name) for tool in tools.get(first, ())]
        chosen = [tool for tool in tools.get(first, ()) if rest[0] in (tool.original_name, tool.name)]
    else:
        chosen = [tool for listed in tools.values() for tool in listed if tool.name == first]
    return [pair for tool in chosen for pair in _arguments(tool)]


def _named(tool: ToolDef, name: str) -> tuple[str, str]:
    return name, tool.title or tool.description


def _arguments(tool: ToolDef) -> Proposals:
    from dragoman.cli.signatures import properties_of, resolved, type_name

    schema = tool.input_schema
    found: Proposals = []
    for name, wanted in properties_of(schema).items():
        field = resolved(wanted, schema)
        values = cast("dict[str, Any]", field).get("enum") if isinstance(field, dict) else None
        kind = type_name(wanted, schema)
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
    """Print what completes commands, servers, tools and arguments in a shell.

    Names come from your configuration and from what servers offered last time: nothing is started.
    """
    from click.shell_completion import get_completion_class

    from dragoman.cli.main import cli

    found = get_completion_class(shell)
    if found is None:
        msg = f"there is no completion for {shell}"
        raise click.UsageError(msg)
    maker = found(cli, {}, "dragoman", "_DRAGOMAN_COMPLETE")
    # Not `source()`: it starts bash to look at its version, which the person knows.
    click.echo(maker.source_template % maker.source_vars())
