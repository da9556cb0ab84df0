"""Write the manual page dragoman(1) from the declarations of the commands.

Usage: python scripts/write_man.py FILE
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dragoman.cli.exits import Exit, meanings
from dragoman.cli.main import TOPICS, cli, text_of
from dragoman.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARED = {parameter.name for parameter in cli.params}


def page() -> str:
    """Return the manual page."""
    context = click.Context(cli, info_name="dragoman", **cli.context_settings)
    words = meanings()
    lines = [
        f'.TH DRAGOMAN 1 "" "dragoman {VERSION}" "User Commands"',
        ".SH NAME",
        "dragoman \\- connect an agent to all of its MCP servers",
        ".SH SYNOPSIS",
        ".B dragoman",
        roff(" ".join(cli.collect_usage_pieces(context))),
        ".SH DESCRIPTION",
        *paragraphs(cli.help or ""),
        ".SH OPTIONS",
        *options(cli, context),
        ".SH COMMANDS",
        *commands(cli, context),
        ".SH EXIT STATUS",
        *(line for code in Exit for line in (".TP", str(code.value), roff(words[code.name]))),
    ]
    for topic, (title, _) in TOPICS.items():
        if topic != "exit-codes":
            lines += [f".SH {roff(topic.upper())}", roff(title), ".PP", ".nf", roff(text_of(topic)), ".fi"]
    return "\n".join(lines) + "\n"


def roff(text: str) -> str:
    """Return text in which nothing is a request or an escape."""
    plain = re.sub(r"^([.'])", r"\\&\1", text.replace("\\", "\\e").replace("-", "\\-"), flags=re.MULTILINE)
    return re.sub(r"[^\x00-\x7f]", lambda found: f"\\[u{ord(found[0]):04X}]", plain)


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; what click leaves as it is, behind a backspace, stays so."""
    for number, block in enumerate(inspect.cleandoc(text).split("\n\n")):
        yield from [".PP"] * bool(number)
        if "\b" in block:
            yield from (".nf", roff(block.replace("\b", "").strip("\n")), ".fi")
        else:
            yield roff(" ".join(block.split()))


def options(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the options of a command; those of every command only for the program."""
    for parameter in command.params:
        if command is not cli and parameter.name in SHARED:
            continue
        if (record := parameter.get_help_record(context)) is not None:
            name, text = record
            yield from (".TP", f"\\fB{roff(name)}\\fR", roff(text))


def commands(group: click.Group, context: click.Context) -> Iterator[str]:
    """Yield the commands of a group, each with its own options."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        inner = click.Context(command, info_name=name, parent=context)
        yield f".SS {roff(inner.command_path)} {roff(' '.join(command.collect_usage_pieces(inner)))}"
        yield from paragraphs(command.help or "")
        yield from options(command, inner)
        if isinstance(command, click.Group):
            yield from commands(command, inner)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), "utf-8")
