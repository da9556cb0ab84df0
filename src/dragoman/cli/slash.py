"""The slash commands: one table of names, arguments and handlers, shared by every face that takes them.

A handler gets the manager and the words after the command, and gives back something to print.
"""

from __future__ import annotations

import difflib
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.table import Table
from rich.text import Text

from dragoman.cli import arguments
from dragoman.cli.tables import reload_view, result_view, status_table, tools_table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rich.console import RenderableType

    from dragoman.manager import McpManager
    from dragoman.model import ToolDef


class Leave(Exception):  # noqa: N818 -- not an error: the person wants to go
    """The person asked to end the session."""


class UsageError(Exception):
    """A command was given words that it cannot use; the message says what it takes."""


Handler: TypeAlias = "Callable[[McpManager, str], Awaitable[RenderableType]]"


@dataclass(frozen=True, slots=True)
class Command:
    """One slash command."""

    name: str
    arguments: str
    help: str
    handler: Handler


async def run(mcp: McpManager, line: str) -> RenderableType:
    """Carry out a line such as `/mcp tools legal`.

    Raises:
        UsageError: There is no such command, or its words are wrong.
        Leave: It asks to end the session.
    """
    line = line.strip()
    matching = [name for name in COMMANDS if line == name or line.startswith(f"{name} ")]
    if not matching:
        word = line.partition(" ")[0]
        near = difflib.get_close_matches(word, COMMANDS, n=1, cutoff=0.5)
        guess = f"did you mean {near[0]}?" if near else "/help lists the commands"
        msg = f"there is no command {word}: {guess}"
        raise UsageError(msg)
    command = COMMANDS[max(matching, key=len)]
    return await command.handler(mcp, line[len(command.name) :].strip())


async def _status(mcp: McpManager, words: str) -> RenderableType:
    if words:
        msg = f"/mcp does not know `{words.partition(' ')[0]}`: /mcp, /mcp tools, /mcp reload, /mcp restart"
        raise UsageError(msg)
    return status_table(mcp.status().values())


async def _tools(mcp: McpManager, words: str) -> RenderableType:
    if words and words not in mcp.status():
        msg = f"no server is called `{words}`; there are: {', '.join(mcp.status())}"
        raise UsageError(msg)
    return tools_table(tool for tool in mcp.tools() if words in ("", tool.server))


async def _reload(mcp: McpManager, words: str) -> RenderableType:
    if words:
        msg = "/mcp reload takes no words: it reads the whole configuration again"
        raise UsageError(msg)
    return reload_view(await mcp.reload())


async def _restart(mcp: McpManager, words: str) -> RenderableType:
    if words not in mcp.status():
        msg = f"/mcp restart takes the name of a server: {', '.join(mcp.status())}"
        raise UsageError(msg)
    await mcp.restart(words)
    await mcp.wait_ready([words])
    return status_table([mcp.status()[words]])


async def _call(mcp: McpManager, words: str) -> RenderableType:
    name, _, rest = words.partition(" ")
    tools = {tool.name: tool for tool in mcp.tools()}
    tools |= {tool.original_name: tool for tool in mcp.tools() if tool.original_name not in tools}
    if name not in tools:
        near = difflib.get_close_matches(name, tools, n=3, cutoff=0.4)
        guess = f"did you mean {', '.join(near)}?" if near else "/mcp tools lists them"
        msg = f"there is no tool `{name}`: {guess}" if name else "/call TOOL {json} | /call TOOL key=value …"
        raise UsageError(msg)
    result = await mcp.call(tools[name].name, parse_arguments(tools[name], rest))
    return result_view(result)


async def _help(_mcp: McpManager, _words: str) -> RenderableType:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for command in COMMANDS.values():
        usage = f"{command.name} {command.arguments}".rstrip()
        table.add_row(Text(usage, style="cyan"), Text(command.help, style="dim"))
    return table


async def _quit(_mcp: McpManager, _words: str) -> RenderableType:
    raise Leave


def parse_arguments(tool: ToolDef, text: str) -> dict[str, Any]:
    """Read a call's arguments: a JSON object, or `key=value` words typed by the tool's schema.

    Raises:
        UsageError: They are neither.
    """
    text = text.strip()
    try:
        if text.startswith("{"):
            return arguments.parse_object(text)
        return arguments.parse(shlex.split(text), tool.input_schema, name=tool.name)
    except arguments.ArgumentError as error:
        raise UsageError(str(error)) from None
    except ValueError as error:
        msg = f"the arguments cannot be split into words: {error}"
        raise UsageError(msg) from None


COMMANDS: dict[str, Command] = {
    command.name: command
    for command in (
        Command("/mcp", "", "Show the servers and their states.", _status),
        Command("/mcp tools", "[server]", "List the tools, of one server or of all.", _tools),
        Command("/mcp reload", "", "Read the configuration again.", _reload),
        Command("/mcp restart", "server", "Restart a server.", _restart),
        Command("/call", "TOOL {json} | key=value …", "Call a tool.", _call),
        Command("/help", "", "Show this list.", _help),
        Command("/quit", "", "Leave; so does Ctrl-D.", _quit),
    )
}
