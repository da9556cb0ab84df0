"""The slash commands about tools: calling one, seeing the whole of a result, finding one."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from dragoman.cli import arguments
from dragoman.cli.session.call_lines import called, short_arguments
from dragoman.cli.session.questions import ask_missing
from dragoman.cli.signatures import properties_of, type_name
from dragoman.cli.slash.command import Context, PastCall, UsageError, split, tool_named
from dragoman.cli.tables import result_view, tools_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dragoman.model import ToolDef

WHOLE = 100_000
"""Characters of a result that `/last` shows."""


async def call(context: Context, words: str) -> RenderableType:
    """Call a tool."""
    name, rest = split(words)
    if not name:
        msg = "/call TOOL key=value … | /call TOOL {json}; /tools lists the tools"
        raise UsageError(msg)
    tool = tool_named(context, name)
    given = parse_arguments(tool, rest)
    if lacking := arguments.missing(given, tool.input_schema):
        if context.asker is None:
            needs = ", ".join(f"{key}: {type_name(one, tool.input_schema)}" for key, one in lacking.items())
            msg = f"`{tool.name}` needs {needs}"
            raise UsageError(msg)
        given = await ask_missing(context.asker, tool, given)
    result = await context.mcp.call(tool.name, given, on_progress=context.on_progress)
    context.calls.append(PastCall(tool=tool.name, arguments=short_arguments(given), result=result))
    return result_view(result)


async def last(context: Context, words: str) -> RenderableType:
    """Show the whole of a result."""
    if words and not (words.isdecimal() and int(words) > 0):
        msg = f"/last takes a number, 1 for the last call; not `{words}`"
        raise UsageError(msg)
    number = int(words) if words else 1
    if not context.calls:
        return Text("no call was made yet", style="dim")
    if number > len(context.calls):
        msg = f"there are {len(context.calls)} calls to look at, and not {number}"
        raise UsageError(msg)
    past = context.calls[-number]
    return Group(called(past.tool, past.arguments), result_view(past.result, limit=WHOLE))


async def tools(context: Context, words: str) -> RenderableType:
    """List the tools that the model is offered, or those that fit some words."""
    wanted = words.lower().split()
    found = [tool for tool in context.mcp.registry if all(word in _words_of(tool) for word in wanted)]
    if not found:
        said = f"no tool fits `{words}`: /tools lists them all" if words else "there are no tools"
        return Text(said, style="dim")
    many = f"{len(found)} of {len(context.mcp.registry)} tools" if wanted else f"{len(found)} tools"
    return Group(tools_table(found), Text(many, style="dim"))


def _words_of(tool: ToolDef) -> str:
    return " ".join([tool.name, tool.title, tool.description, *properties_of(tool.input_schema)]).lower()


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
