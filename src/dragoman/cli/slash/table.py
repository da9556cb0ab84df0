"""The slash commands: one table of names, arguments and handlers, shared by every face that takes them.

A handler gets a context and the words after the command, and gives back something to print. A command that
needs what its face does not have says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dragoman.cli.slash.calls import call, last, parse_arguments, tools
from dragoman.cli.slash.command import Command, Context, Leave, UsageError, near
from dragoman.cli.slash.offers import prompt, prompts, read, resources
from dragoman.cli.slash.servers import disable, enable, login, logs, reload, restart, server_tools, status
from dragoman.cli.slash.talk import cost, model, save
from dragoman.manager import McpManager

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["COMMANDS", "Command", "Context", "Leave", "UsageError", "named", "parse_arguments", "run"]


async def run(context: Context | McpManager, line: str) -> RenderableType:
    """Carry out a line such as `/mcp tools legal`.

    Args:
        context: What there is to work with; a manager stands for a context of nothing else.
        line: What was typed.

    Raises:
        UsageError: There is no such command, or its words are wrong.
        Leave: It asks to end the session.
    """
    given = Context(mcp=context) if isinstance(context, McpManager) else context
    command, words = named(line)
    return await command.handler(given, words)


def named(line: str) -> tuple[Command, str]:
    """Return the command that a line begins with, and the words after it.

    Raises:
        UsageError: There is none.
    """
    line = line.strip()
    first, *more = line.split(None, 2)
    if more and f"{first} {more[0]}" in COMMANDS:
        return COMMANDS[f"{first} {more[0]}"], more[1].strip() if len(more) > 1 else ""
    if first in COMMANDS:
        return COMMANDS[first], line[len(first) :].strip()
    tops = [name for name in COMMANDS if " " not in name]
    msg = f"there is no command {first}: {near(first, tops, '/help lists the commands')}"
    raise UsageError(msg)


async def _help(_context: Context, words: str) -> RenderableType:
    if words:
        name = words if words.startswith("/") else f"/{words}"
        if name not in COMMANDS:
            msg = f"there is no command {name}: {near(name, COMMANDS, '/help lists the commands')}"
            raise UsageError(msg)
        return _explained(COMMANDS[name])
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(style="dim")
    for command in COMMANDS.values():
        table.add_row(Text(_usage(command), style="cyan"), Text(command.help))
    return table


def _explained(command: Command) -> RenderableType:
    parts: list[RenderableType] = [Text(_usage(command), style="cyan"), Text(command.help)]
    if command.details:
        parts.append(Padding(Text(command.details, style="dim"), (0, 0, 0, 2)))
    below = [other for other in COMMANDS.values() if other.name.startswith(f"{command.name} ")]
    parts += [Text.assemble((_usage(other), "cyan"), "  ", (other.help, "dim")) for other in below]
    return Group(*parts)


def _usage(command: Command) -> str:
    return f"{command.name} {command.arguments}".rstrip()


async def _quit(_context: Context, _words: str) -> RenderableType:
    raise Leave


_CALL = """\
/call search_statutes query=deposit limit=3
/call mcp_files_read_text_file {"path": "README.md"}
/call greet                       asks for what is missing
Values are typed by the tool's schema; a.b=1 goes inside an object, a key that is given again makes a list."""
_LAST = "/last shows the last call, /last 2 the one before it."
_PROMPT = """\
/prompt describe_colour colour=blue
Asks for required arguments that are missing. With a model it offers to send the prompt."""
_MODEL = """\
/model openai:gpt-5-mini, /model anthropic:claude-sonnet-4-5, /model local
The conversation goes on with the other model."""
_SAVE = """\
/save                             markdown, into a new file here
/save talk.jsonl                  JSON Lines, which `dragoman chat --transcript talk.jsonl` goes on from"""

COMMANDS: dict[str, Command] = {
    command.name: command
    for command in (
        Command("/mcp", "", "Show servers: states, calls, latency, errors.", status),
        Command("/mcp tools", "[SERVER]", "List the tools, of one server or of all.", server_tools),
        Command("/mcp reload", "", "Read the configuration again.", reload),
        Command("/mcp restart", "SERVER", "Restart a server.", restart),
        Command("/mcp enable", "SERVER", "Switch a server on, until the session ends.", enable),
        Command("/mcp disable", "SERVER", "Switch a server off, until the session ends.", disable),
        Command("/mcp login", "SERVER [paste]", "Log in to a server.", login),
        Command("/mcp logs", "SERVER [LINES]", "Show what a server wrote to standard error.", logs),
        Command("/call", "TOOL [KEY=VALUE … | JSON]", "Call a tool.", call, _CALL),
        Command("/last", "[NUMBER]", "Show the whole of the last result.", last, _LAST),
        Command("/tools", "[WORD …]", "List all tools, or those that fit the words.", tools),
        Command("/resources", "[SERVER]", "List the resources.", resources),
        Command("/read", "URI [SERVER]", "Read a resource.", read),
        Command("/prompts", "[SERVER]", "List the prompts.", prompts),
        Command("/prompt", "NAME [KEY=VALUE …]", "Fill in a prompt.", prompt, _PROMPT),
        Command("/model", "[NAME]", "Show the model and the others, or switch.", model, _MODEL),
        Command("/cost", "", "Show tokens and money so far.", cost),
        Command("/save", "[FILE]", "Save the conversation.", save, _SAVE),
        Command("/help", "[COMMAND]", "Show this list, or explain a command.", _help),
        Command("/quit", "", "Leave; so does Ctrl-D.", _quit),
    )
}
