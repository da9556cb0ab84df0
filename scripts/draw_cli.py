"""Generate docs/cli.md from the commands: usage, options, topics, exit codes, JSON output.

`--check` writes nothing, and fails if the page is out of date.
"""

from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path
from typing import Any

import click

from dragoman.cli import json_shapes
from dragoman.cli.exits import Exit, meanings
from dragoman.cli.main import TOPICS, cli, text_of

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "cli.md"
SHARED = ("profile", "config", "json", "debug", "help")
"""Options that every command has; they are listed once."""
HEAD = """\
---
summary: Every command with its options, exit codes and JSON output.
read_when: You script dragoman, or change a command.
---
# Commands

<!-- Written by scripts/draw_cli.py from src/dragoman/cli; do not edit. -->

Results are written to stdout; progress, warnings and errors to stderr. An error is one line with a hint;
`--debug` shows the traceback. Colours are used only in terminals.
"""


def main() -> None:
    """Write the page, or check it."""
    text = page()
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text("utf-8") != text:
            sys.exit("docs/cli.md is out of date: run scripts/draw_cli.py")
        return
    PAGE.write_text(text, "utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


def page() -> str:
    """Return the page for the current program."""
    context = click.Context(cli, info_name="dragoman")
    parts = [HEAD, "Every command takes:\n", _options(cli, shared=True)]
    parts += _commands(cli, context)
    parts += ["## Exit codes\n", _exit_codes()]
    for topic, (title, _) in TOPICS.items():
        if topic != "exit-codes":
            parts += [
                f"## {topic.capitalize()}: {title[0].lower()}{title[1:]}\n",
                f"```text\n{text_of(topic)}\n```\n",
            ]
    parts += [
        "## JSON output\n",
        (json_shapes.__doc__ or "").split("\n\n", 1)[1].strip() + "\n",
        _shapes(),
    ]
    return "\n".join(parts)


def _commands(group: click.Group, context: click.Context, level: int = 2) -> list[str]:
    parts: list[str] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        inner = click.Context(command, info_name=name, parent=context)
        usage = " ".join(command.collect_usage_pieces(inner))
        parts += [f"{'#' * level} `{inner.command_path}`\n", f"```text\n{inner.command_path} {usage}\n```\n"]
        parts.append(_prose(command.help or ""))
        if command.epilog:
            parts.append(_prose(command.epilog))
        if own := _options(command, shared=False):
            parts.append(own)
        if isinstance(command, click.Group):
            parts += _commands(command, inner, level + 1)
    return parts


def _prose(text: str) -> str:
    """Return help as Markdown; what click leaves alone, behind a backspace, is a block of text."""
    blocks: list[str] = []
    for block in inspect.cleandoc(text).split("\n\n"):
        if "\b" in block:
            lines = block.replace("\b", "").strip("\n")
            blocks.append(f"```text\n{lines}\n```")
        else:
            blocks.append(" ".join(block.split()))
    return "\n\n".join(blocks) + "\n"


def _options(command: click.Command, *, shared: bool) -> str:
    rows: list[str] = []
    for parameter in command.params:
        if not isinstance(parameter, click.Option) or (parameter.name in SHARED) is not shared:
            continue
        record = parameter.get_help_record(click.Context(command))
        if record is not None:
            name, text = (part.replace("|", "\\|") for part in record)
            rows.append(f"| `{name}` | {text} |")
    return "\n".join(["| option | does |", "| --- | --- |", *rows, ""]) if rows else ""


def _exit_codes() -> str:
    words = meanings()
    rows = [f"| {code.value} | {words[code.name]} |" for code in Exit]
    return "\n".join(["| code | means |", "| --- | --- |", *rows, ""])


def _shapes() -> str:
    """Take every shape from its source, where each key has its words."""
    tree = ast.parse(Path(json_shapes.__file__).read_text("utf-8"))
    parts: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            parts += [f"### {node.name}\n", f"{ast.get_docstring(node)}\n", _keys(node)]
    return "\n".join(parts)


def _keys(node: ast.ClassDef) -> str:
    rows: list[list[str]] = []
    for item in node.body[1:]:
        if isinstance(item, ast.AnnAssign):
            kind = ast.unparse(item.annotation).replace("|", "\\|")
            rows.append([ast.unparse(item.target), kind, ""])
        elif isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant) and rows:
            value: Any = item.value.value
            rows[-1][2] = " ".join(str(value).split())
    lines = [f"| `{name}` | `{kind}` | {words} |" for name, kind, words in rows]
    return "\n".join(["| key | type | means |", "| --- | --- | --- |", *lines, ""])


if __name__ == "__main__":
    main()
