"""`dragoman help`: the help of a command, or one of a few topics that concern all of them."""

from __future__ import annotations

import textwrap

import click

from dragoman.cli.options import common_options
from dragoman.config.dialects import HOSTS, SEEDS
from dragoman.suggesting import suggest


def _names(*names: str) -> str:
    return textwrap.fill(", ".join(names), 79, break_on_hyphens=False)


TOPICS: dict[str, tuple[str, str]] = {
    "arguments": (
        "How `call` and `prompt` take arguments.",
        """\
key=value      a value as the tool's schema types it: text, number, true, JSON
key=a key=b    a list, by repetition; key='["a", "b"]' is the same
a.b=value      a value inside an object: a.b=1 a.c=2 is {"a": {"b": 1, "c": 2}}
key=@path      what is in a file; key=@- what comes on standard input
key=@@text     a text that begins with @
--args '{…}'   all of them as one JSON object; --args @path reads it from a file
-              the same, from standard input

`dragoman tools SERVER --schema` shows what a tool takes. What is missing or
does not fit is named, and nothing is sent.""",
    ),
    "configuration": (
        "Where servers are defined.",
        f"""\
`dragoman config paths` lists the files that are looked at, `config show` what
is in effect, `config check` what is wrong. --config FILE reads one file and no
other; --profile NAME reads the files of another program:
{_names(*SEEDS, *HOSTS)}

`dragoman add` sets a server up, `dragoman import --all` takes servers over
from other programs. Write ${{NAME}} for a value that comes from the
environment when a server starts.""",
    ),
    "exit-codes": ("With which number the program ends.", ""),
    "json": (
        "What programs get.",
        """\
Every command prints JSON with --json: keys are added, never renamed; durations
are seconds; docs/cli.md has every shape. What is printed for people may change
at any time.

A command that cannot do its work prints {"error": {"code", "message", "hint"}}
in place of its result, and the same as one line on standard error. Decide by
`code` and by the exit code, never by the message. Progress and warnings go to
standard error. Colours are for terminals; NO_COLOR=1 turns them off.""",
    ),
    "cache": (
        "Why `tools` answers without starting a server.",
        """\
What each server offered last time is kept in ~/.cache/dragoman/manifests,
without secrets. `tools` and shell completion answer from there and start
nothing; a server of which nothing is known is connected once. `dragoman tools
--refresh` asks the servers again. `status --no-connect` starts nothing either.""",
    ),
    "trust": (
        "Servers that come with a project.",
        """\
A file that came with a project (mcp.json, .mcp.json …) may start any program.
Its servers need your yes: `dragoman trust show` lists them, `dragoman trust
approve NAME` shows the exact command and asks. The yes holds for that very
content in that project, the script that it runs included: whatever changes is
asked again. Files in your own folders need no approval.""",
    ),
    "models": (
        "Which model a session talks to, and its key.",
        """\
openai:MODEL       OPENAI_API_KEY; a compatible server by OPENAI_BASE_URL
responses:MODEL    the same, by OpenAI's Responses API
anthropic:MODEL    ANTHROPIC_API_KEY; ANTHROPIC_BASE_URL
local              the first of Ollama, llama.cpp and LM Studio that answers
ollama, llamacpp, lmstudio    that one; with :MODEL one of its models

`dragoman chat --model NAME`, DRAGOMAN_MODEL or /model in the session name one.
Keys come from the environment or a keyring, never from a project's file. The
package of an API is an extra: dragoman[openai], dragoman[anthropic].""",
    ),
    "completion": (
        "Completing commands in a shell.",
        """\
bash   eval "$(dragoman completion bash)"    in ~/.bashrc
zsh    eval "$(dragoman completion zsh)"     in ~/.zshrc, after compinit
fish   dragoman completion fish > ~/.config/fish/completions/dragoman.fish

Servers, tools, their arguments and choices are completed too, without starting
anything.""",
    ),
}
"""Each topic's title and text; that of the exit codes is made from their table."""


def text_of(topic: str) -> str:
    """Return what a topic says."""
    if topic != "exit-codes":
        return TOPICS[topic][1]
    from dragoman.cli.exits import Exit, meanings

    lines = [f"{code.value:>3}  {meanings()[code.name]}" for code in Exit]
    return "\n".join(textwrap.fill(line, 79, subsequent_indent="     ") for line in lines)


@click.command("help")
@common_options
@click.argument("words", nargs=-1, metavar="[COMMAND | TOPIC | topics]...")
@click.pass_context
def help_(context: click.Context, words: tuple[str, ...]) -> None:
    """Explain a command, or a topic; `dragoman help topics` lists those."""
    from dragoman.cli.main import cli

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
        # A group within another context would load nothing: its commands are looked up by name.
        found = command.get_command(root, word) if isinstance(command, click.Group) else None
        if found is None:
            names = [*TOPICS, *cli.list_commands(root)]
            near = suggest(word, names, count=1, cutoff=0.6)
            guess = f" Did you mean `{near[0]}`?" if near else " `dragoman help topics` lists the topics."
            context.fail(f"There is no help about `{word}`.{guess}")
        command = found
        root = click.Context(command, parent=root, info_name=word)
    click.echo(command.get_help(root))
    if words[0] in TOPICS:
        click.echo(f"\n{text_of(words[0])}")
