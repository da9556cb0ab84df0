"""What the slash commands share: what they may use, how they fail, and how they find what a person names."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from dragoman.cli.session.render_turn import PastCall
from dragoman.errors import UnknownToolError
from dragoman.struct import MutableStruct, Struct, field
from dragoman.suggest import suggest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from rich.console import RenderableType

    from dragoman.cli.session.conversation import Conversation
    from dragoman.cli.session.questions import Asker
    from dragoman.manager.manager import McpManager
    from dragoman.model import ProgressHandler, ToolDef

KEPT_CALLS = 50
"""The number of recent results that `/last` can show."""


class Leave(Exception):  # noqa: N818 -- not an error: the user wants to quit
    """The user asked to end the session."""


class UsageError(Exception):
    """A command has invalid arguments; the message explains them."""


class Context(MutableStruct, kw_only=True):
    """The objects that a command may use; optional ones depend on where it runs."""

    mcp: McpManager
    conversation: Conversation | None = None
    """The conversation with a model; commands that need one fail without it."""
    asker: Asker | None = None
    """Asks the user for missing arguments; without it they are an error."""
    say: Callable[[RenderableType], None] | None = None
    """Shows output while the command is running."""
    talk: Callable[[str], Awaitable[None]] | None = None
    """Sends a text to the model and shows the answer."""
    on_progress: ProgressHandler | None = None
    """Called with the progress of a call."""
    clear: Callable[[], None] | None = None
    """Clears the screen."""
    calls: deque[PastCall] = field(default_factory=lambda: deque[PastCall](maxlen=KEPT_CALLS))
    """The latest calls, the newest last."""


Handler: TypeAlias = "Callable[[Context, str], Awaitable[RenderableType]]"


class SlashCommand(Struct):
    """One slash command."""

    name: str
    arguments: str
    help: str
    handler: Handler
    details: str = ""
    """More help, with examples on separate lines."""


def split(words: str) -> tuple[str, str]:
    """Return the first word and the rest; words are separated by any white space."""
    first, *rest = words.split(None, 1) or [""]
    return first, rest[0].strip() if rest else ""


def did_you_mean(word: str, known: Iterable[str], fallback: str) -> str:
    """Return a suggestion of similar names, or the fallback."""
    found = suggest(word, known, by_part=True)
    return f"Did you mean {' or '.join(found)}?" if found else fallback


def server_named(context: Context, name: str, command: str) -> str:
    """Check the name of a server and return it.

    Raises:
        UsageError: The name is missing or unknown.
    """
    known = list(context.mcp.status())
    listed = ", ".join(known) or "none"
    if not name:
        msg = f"Usage: {command} SERVER. Servers: {listed}"
        raise UsageError(msg)
    if name not in known:
        msg = f"Unknown server `{name}`. {did_you_mean(name, known, f'Servers: {listed}')}"
        raise UsageError(msg)
    return name


def tool_named(context: Context, name: str) -> ToolDef:
    """Return a tool by any name that `dragoman call` takes: exposed, alias, `server.tool`, or its own.

    Raises:
        UsageError: The name is unknown, or several servers have such a tool.
    """
    registry = context.mcp.registry
    try:
        return registry.resolve(name)
    except UnknownToolError as error:
        if error.is_ambiguous:
            text = str(error)
            raise UsageError(text[:1].upper() + text[1:]) from None
    names = [one for tool in registry for one in (tool.name, tool.own_name) if one]
    msg = f"Unknown tool `{name}`. {did_you_mean(name, names, '/tools lists all tools.')}"
    raise UsageError(msg)


def conversation_of(context: Context, command: str) -> Conversation:
    """Return the conversation with a model.

    Raises:
        UsageError: There is no conversation here.
    """
    if context.conversation is None:
        msg = f"{command} works only in a chat with a model. Start one with `dragoman chat`."
        raise UsageError(msg)
    return context.conversation
