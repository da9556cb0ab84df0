"""The slash commands of a conversation with a model: the model, its tools, its cost, its file."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from dragoman.agent.messages import Usage, encode
from dragoman.cli.options import THINK
from dragoman.cli.output import one_line, safe, shorten_path
from dragoman.cli.session.conversation import as_markdown, available_models
from dragoman.cli.slash_context import SlashCommand, UsageError, conversation_of, tool_named
from dragoman.storage.files import private_opener

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from dragoman.agent.messages import Message
    from dragoman.cli.session.conversation import Conversation
    from dragoman.cli.slash_context import Context

_THOUGHTS: dict[str, bool | str | None] = {**THINK, "auto": None}


async def model(context: Context, words: str) -> RenderableType:
    """Show the current and available models, or switch to another model."""
    talk = conversation_of(context, "/model")
    if words:
        await talk.switch(words)
        return Text.assemble(("Model: ", "dim"), one_line(talk.model))
    lines = [Text.assemble(("Model: ", "dim"), one_line(talk.model) if talk.is_open else "none")]
    lines += [
        Text.assemble(("  " + name, "cyan"), ("  " + about, "dim"))
        for name, about in await available_models()
    ]
    return Group(*lines, Text("Switch with /model NAME.", style="dim"))


async def think(context: Context, words: str) -> RenderableType:
    """Show or set whether and how much the model thinks first."""
    talk = conversation_of(context, "/think")
    if words:
        if words not in _THOUGHTS:
            msg = f"Usage: /think {'|'.join(_THOUGHTS)}; not `{words}`"
            raise UsageError(msg)
        await talk.set_think(_THOUGHTS[words])
    now = next((word for word, value in _THOUGHTS.items() if value is talk.think), str(talk.think))
    return Text.assemble(("Thinking: ", "dim"), now)


async def load(context: Context, words: str) -> RenderableType:
    """Continue a conversation that was saved as JSON Lines."""
    talk = conversation_of(context, "/load")
    if not words:
        msg = "Usage: /load FILE.jsonl"
        raise UsageError(msg)
    path = await asyncio.to_thread(_found_file, words)
    many = await talk.load(path)
    return Text(safe(f"Loaded {many} messages. What follows is not saved; /save saves it."), style="dim")


def _found_file(words: str) -> Path:
    path = Path(words).expanduser()
    if not path.is_file():
        msg = f"Cannot read `{words}`: it is not a file."
        raise UsageError(msg)
    return path


async def new(context: Context, words: str) -> RenderableType:
    """Start a new conversation."""
    if words:
        msg = "/new takes no arguments."
        raise UsageError(msg)
    return _forget(conversation_of(context, "/new"))


async def clear(context: Context, words: str) -> RenderableType:
    """Clear the screen, and start a new conversation if there is one."""
    if words:
        msg = "/clear takes no arguments."
        raise UsageError(msg)
    if context.clear is not None:
        context.clear()
    talk = context.conversation
    return _forget(talk) if talk is not None and talk.messages else Text("")


def _forget(talk: Conversation) -> RenderableType:
    kept = talk.forget()
    more = "" if kept is None else f" It is not saved; {shorten_path(str(kept))} keeps the previous one."
    return Text(safe(f"New conversation.{more}"), style="dim")


async def cost(context: Context, words: str) -> RenderableType:
    """Show the tokens and the cost so far."""
    if words:
        msg = "/cost takes no arguments."
        raise UsageError(msg)
    talk = conversation_of(context, "/cost")
    used = {name: one for name, one in talk.usage.items() if one != Usage()}
    if not used:
        return Text("No tokens used yet.", style="dim")
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for head in ("model", "input", "cached", "output", "cost"):
        table.add_column(head, justify="left" if head == "model" else "right", no_wrap=True)
    for name, one in used.items():
        money = talk.money(name)
        table.add_row(
            one_line(name),
            f"{one.input_tokens:,}",
            f"{one.cached_tokens:,}" if one.cached_tokens else "",
            f"{one.output_tokens:,}",
            "" if money is None else f"{money:.4f}",
        )
    hint = (
        []
        if talk.money() is not None
        else [Text("Start with `dragoman chat --price IN,OUT` to see the cost.", style="dim")]
    )
    return Group(table, *hint)


async def save(context: Context, words: str) -> RenderableType:
    """Save the conversation to a new file."""
    talk = conversation_of(context, "/save")
    if not talk.messages:
        msg = "Nothing to save yet."
        raise UsageError(msg)
    path = Path(words or time.strftime("dragoman-%Y%m%d-%H%M%S.md"))
    if path.suffix not in (".md", ".jsonl"):
        msg = f"`{path.name}` must end with .md or .jsonl."
        raise UsageError(msg)
    try:
        where = _write(path, talk.messages)
    except FileExistsError:
        msg = f"`{words}` already exists. Choose another name."
        raise UsageError(msg) from None
    except OSError as error:
        msg = f"Cannot write `{words}`: {error.strerror}"
        raise UsageError(msg) from None
    many = len(talk.messages)
    return Text(safe(f"Saved {many} messages to {where}"))


def _write(path: Path, messages: Sequence[Message]) -> str:
    """Write a new file and return its path."""
    path = path.expanduser()

    lines = [f"{encode(one)}\n" for one in messages] if path.suffix == ".jsonl" else [as_markdown(messages)]
    # The conversation may be private.
    descriptor = private_opener(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write("".join(lines))
    return shorten_path(str(path.absolute()))


async def switch_off(context: Context, words: str) -> RenderableType:
    """Keep tools from the model, by name, `server:tool`, server, or a pattern of these."""
    talk = conversation_of(context, "/tools off")
    if words:
        await talk.set_off([*talk.off, *(_rule(context, word) for word in words.split())])
    return Text(safe(f"Off for the model: {', '.join(talk.off) or 'nothing'}"), style="dim")


async def switch_on(context: Context, words: str) -> RenderableType:
    """Give tools back to the model: all, or those of the same words."""
    talk = conversation_of(context, "/tools on")
    named = [_rule(context, word) for word in words.split()]
    if missing := [word for word in named if word not in talk.off]:
        msg = f"`{missing[0]}` is not off. Off: {', '.join(talk.off) or 'nothing'}"
        raise UsageError(msg)
    await talk.set_off([rule for rule in talk.off if named and rule not in named])
    return await switch_off(context, "")


def _rule(context: Context, word: str) -> str:
    """Return the rule that a word stands for.

    Raises:
        UsageError: No tool matches.
    """
    known = context.mcp.registry
    rule = f"{word}:*" if word in context.mcp.status() else word
    if not any(character in rule for character in "*?["):
        return tool_named(context, rule).name
    if not len(known.view(allow=[rule])):
        msg = f"No tool matches `{word}`. /tools lists all tools."
        raise UsageError(msg)
    return rule


_MODEL = """\
/model openai:gpt-5-mini, /model anthropic:claude-sonnet-4-5, /model local
The conversation continues with the new model."""
_THINK = """\
/think on, /think off, /think low, /think medium, /think high
/think auto lets the model decide. The conversation continues."""
_OFF = """\
/tools off files                  all tools of a server, until the session ends
/tools off files:delete_* greet   by pattern, or by name
/tools off shows what is off. You can still /call these tools."""
_SAVE = """\
/save                             Markdown, to a new file in the current folder
/save talk.jsonl                  JSON Lines, for /load or `dragoman chat --transcript talk.jsonl`"""

TOOLS = (
    SlashCommand("/tools off", "[NAME …]", "Keep tools from the model.", switch_off, _OFF),
    SlashCommand("/tools on", "[NAME …]", "Give them back.", switch_on),
)
CONVERSATION = (
    SlashCommand("/model", "[NAME]", "Show or switch the model.", model, _MODEL),
    SlashCommand("/think", "[HOW]", "Show or set its thinking.", think, _THINK),
    SlashCommand("/cost", "", "Show tokens and cost so far.", cost),
    SlashCommand("/save", "[FILE]", "Save the conversation.", save, _SAVE),
    SlashCommand("/load", "FILE", "Continue a saved conversation.", load),
    SlashCommand("/new", "", "Start a new conversation.", new),
    SlashCommand("/clear", "", "Clear the screen and start a new conversation.", clear),
)
