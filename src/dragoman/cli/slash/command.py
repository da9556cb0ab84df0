"""What a slash command is, and what it works with: the manager, and whatever else its face has."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from dragoman.suggesting import suggest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from rich.console import RenderableType

    from dragoman.cli.session.conversation import Conversation
    from dragoman.cli.session.questions import Asker
    from dragoman.manager import McpManager
    from dragoman.model import ProgressHandler, ToolDef, ToolResult

KEPT_CALLS = 50
"""How many of the latest results can be unfolded."""


class Leave(Exception):  # noqa: N818 -- not an error: the person wants to go
    """The person asked to end the session."""


class UsageError(Exception):
    """A command was given words that it cannot use; the message says what it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastCall:
    """A call that was made in this session, for those who want to see all of it."""

    tool: str
    arguments: str
    """On one line, without what looks like a secret."""
    result: ToolResult


@dataclass(slots=True, kw_only=True)
class Context:
    """What a command may use; a face gives what it has."""

    mcp: McpManager
    conversation: Conversation | None = None
    """The talk with a model; without it commands about one say so."""
    asker: Asker | None = None
    """Who is asked for what is missing; without it that is an error."""
    say: Callable[[RenderableType], None] | None = None
    """Shows something before the command is done."""
    talk: Callable[[str], Awaitable[None]] | None = None
    """Sends a text to the model and shows what comes of it."""
    on_progress: ProgressHandler | None = None
    """Told how far a call is."""
    calls: deque[PastCall] = field(default_factory=lambda: deque[PastCall](maxlen=KEPT_CALLS))
    """The latest calls, the newest last."""


Handler: TypeAlias = "Callable[[Context, str], Awaitable[RenderableType]]"


@dataclass(frozen=True, slots=True)
class Command:
    """One slash command."""

    name: str
    arguments: str
    help: str
    handler: Handler
    details: str = ""
    """What `/help` says of it beside the line; examples stand on lines of their own."""


def split(words: str) -> tuple[str, str]:
    """Return the first word, and the rest; a line's end parts words as a blank does."""
    first, *rest = words.split(None, 1) or [""]
    return first, rest[0].strip() if rest else ""


def near(word: str, known: Iterable[str], otherwise: str) -> str:
    """Return a guess at what was meant, or what else may help."""
    names = list(known)
    # People leave the beginning of an exposed name out, so what contains the word counts as near too.
    found = (
        suggest(word, names, cutoff=0.6)
        or [name for name in names if word.strip("/") and word.lower() in name.lower()][:3]
    )
    return f"did you mean {' or '.join(found)}?" if found else otherwise


def server_named(context: Context, name: str, command: str) -> str:
    """Return the name of a server.

    Raises:
        UsageError: There is none of that name.
    """
    known = list(context.mcp.status())
    listed = ", ".join(known) or "none is configured"
    if not name:
        msg = f"{command} takes the name of a server: {listed}"
        raise UsageError(msg)
    if name not in known:
        msg = f"no server is called `{name}`: {near(name, known, f'there are: {listed}')}"
        raise UsageError(msg)
    return name


def tool_named(context: Context, name: str) -> ToolDef:
    """Return a tool by its exposed name, or by its server's own name for it.

    Raises:
        UsageError: There is none, or several servers have one of that name.
    """
    tools = {tool.name: tool for tool in context.mcp.registry}
    if name in tools:
        return tools[name]
    if context.mcp.registry.contenders(name):
        raise UsageError(str(context.mcp.registry.unknown(name)))
    own = [tool for tool in tools.values() if tool.original_name == name]
    if len(own) == 1:
        return own[0]
    if own:
        msg = f"several servers have a tool `{name}`: say {' or '.join(tool.name for tool in own)}"
        raise UsageError(msg)
    names = [*tools, *(tool.original_name for tool in tools.values() if tool.original_name)]
    msg = f"there is no tool `{name}`: {near(name, names, '/tools lists them')}"
    raise UsageError(msg)


def conversation_of(context: Context, command: str) -> Conversation:
    """Return the talk with a model.

    Raises:
        UsageError: There is none here.
    """
    if context.conversation is None:
        msg = f"{command} is about a talk with a model, and there is none here: `dragoman chat` opens one"
        raise UsageError(msg)
    return context.conversation
