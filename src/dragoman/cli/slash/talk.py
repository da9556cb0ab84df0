"""The slash commands about the talk with a model: which one, what it took, keeping it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from dragoman.agent.messages import Usage
from dragoman.cli.output import one_line, safe, shorten_path
from dragoman.cli.session.conversation import as_markdown
from dragoman.cli.slash.command import Context, UsageError, conversation_of
from dragoman.private import private_opener

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from dragoman.agent.messages import Message


async def model(context: Context, words: str) -> RenderableType:
    """Show the model and the others that there are, or go on with another."""
    talk = conversation_of(context, "/model")
    if words:
        await talk.switch(words)
        return Text.assemble(("Talking to ", "dim"), one_line(talk.model))
    lines = [Text.assemble(("Talking to ", "dim"), one_line(talk.model) if talk.is_open else "no model")]
    lines += [
        Text.assemble(("  " + name, "cyan"), ("  " + about, "dim")) for name, about in await _available()
    ]
    return Group(*lines, Text("/model NAME goes on with another one.", style="dim"))


async def _available() -> list[tuple[str, str]]:
    """Return the names that can be given, each with what is known of it."""
    from dragoman.agent.local import find_local
    from dragoman.agent.providers.keys import VARIABLES

    found: list[tuple[str, str]] = []
    for api, variable in VARIABLES.items():
        there = "its key is set" if os.environ.get(variable) else f"wants {variable}, or a key in the keyring"
        found.append((f"{api}:MODEL", there))
    local = await find_local()
    if local is None:
        return [*found, ("local:MODEL", "no Ollama, llama.cpp or LM Studio answers on this machine")]
    return found + [(f"local:{one_line(name)}", f"at {local.base_url}") for name in local.models]


async def cost(context: Context, words: str) -> RenderableType:
    """Show what the models have taken."""
    if words:
        msg = "/cost takes no words"
        raise UsageError(msg)
    talk = conversation_of(context, "/cost")
    used = {name: one for name, one in talk.usage.items() if one != Usage()}
    if not used:
        return Text("nothing was spent yet", style="dim")
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
        else [Text("`dragoman chat --price IN,OUT` counts money.", style="dim")]
    )
    return Group(table, *hint)


async def save(context: Context, words: str) -> RenderableType:
    """Write the conversation into a new file."""
    talk = conversation_of(context, "/save")
    if not talk.messages:
        msg = "there is nothing to save yet: say something first"
        raise UsageError(msg)
    path = Path(words or time.strftime("dragoman-%Y%m%d-%H%M%S.md"))
    if path.suffix not in (".md", ".jsonl"):
        msg = f"`{path.name}` has to end with .md or .jsonl: that decides what is written"
        raise UsageError(msg)
    try:
        where = _write(path, talk.messages)
    except FileExistsError:
        msg = f"`{words}` is there already, and nothing is written over: take another name"
        raise UsageError(msg) from None
    except OSError as error:
        msg = f"`{words}` cannot be written: {error.strerror}"
        raise UsageError(msg) from None
    many = len(talk.messages)
    return Text(safe(f"saved {many} messages in {where}"))


def _write(path: Path, messages: Sequence[Message]) -> str:
    """Write a new file, and return where it is."""
    path = path.expanduser()
    from dragoman.agent.transcript import encode

    lines = [f"{encode(one)}\n" for one in messages] if path.suffix == ".jsonl" else [as_markdown(messages)]
    # What was said may be private.
    descriptor = private_opener(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write("".join(lines))
    return shorten_path(str(path.absolute()))
