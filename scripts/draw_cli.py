"""Write the page cli.md of the site from the commands: usage, options, topics, exit codes, JSON output."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from dragoman.cli.exits import Exit, meanings
from dragoman.cli.main import COMMANDS, TOPICS, cli, text_of
from dragoman.struct import Report, Struct

ROOT = Path(__file__).resolve().parent.parent
SHARED = ("profile", "config", "json", "debug", "help")
"""Options that every command has; they are listed once."""
SOURCES = ("dragoman.cli.output", *(place.partition(":")[0] for place, _ in COMMANDS.values()))
"""The modules that declare what commands show, in the order of the page; more may be imported by these."""
MORE = (
    "dragoman.cli.commands.fix",
    "dragoman.gateway.daemon",
    "dragoman.gateway.status",
    "dragoman.observe.call_history",
    "dragoman.config.export",
)
"""Those that commands import late, and whose structs they show."""
OTHERS = {
    "Always",
    "ApprovalKind",
    "ApprovalState",
    "Any",
    "Kind",
    "Literal",
    "Mapping",
    "None",
    "Path",
    "Sequence",
    "UnsetType",
    "Why",
    "Annotated",
    "HIDDEN",
}
"""Words in the types of fields that are no structs."""
HEAD = """\
---
summary: Every command with its options, exit codes and JSON output.
read_when: You script dragoman, or change a command.
---
# Commands

Results are written to stdout; progress, warnings and errors to stderr. An error is one line with a hint;
`--debug` shows the traceback. Colours are used only in terminals.
"""


def page() -> str:
    """Return the page for the current program."""
    context = click.Context(cli, info_name="dragoman", **cli.context_settings)
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
        inspect.cleandoc(Report.__doc__ or "").split("\n\n", 1)[1] + "\n",
        "\n".join(_described(kind) for kind in shown().values()),
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
        record = parameter.get_help_record(click.Context(command, **cli.context_settings))
        if record is not None:
            name, text = (part.replace("|", "\\|") for part in record)
            rows.append(f"| `{name}` | {text} |")
    return "\n".join(["| option | does |", "| --- | --- |", *rows, ""]) if rows else ""


def _exit_codes() -> str:
    words = meanings()
    rows = [f"| {code.value} | {words[code.name]} |" for code in Exit]
    return "\n".join(["| code | means |", "| --- | --- |", *rows, ""])


def shown() -> dict[str, type[Struct]]:
    """Return every struct that is shown as JSON by name: the reports, and the nouns in them."""
    modules = list(dict.fromkeys((*SOURCES, *MORE)))
    for module in modules:
        import_module(module)
    known = {kind.__name__: kind for kind in _subclasses(Struct) if kind.__module__.startswith("dragoman.")}
    places = {module: index for index, module in enumerate(modules)}
    reports = [kind for kind in _subclasses(Report) if kind.__module__ in places]
    reports.sort(key=lambda kind: places[kind.__module__])
    found: dict[str, type[Struct]] = {}
    left: list[type[Struct]] = list(reports)
    while left:
        kind = left.pop(0)
        found[kind.__name__] = kind
        types = " ".join(map(str, inspect.get_annotations(kind).values()))
        words = set(re.findall(r"\b[A-Z]\w+", re.sub(r"'.*?'|\".*?\"", "", types))) - OTHERS
        left += [known[word] for word in sorted(words) if known[word] not in (*found.values(), *left)]
    return found


def _subclasses(kind: type[Struct]) -> list[type[Struct]]:
    return [one for direct in kind.__subclasses__() for one in (direct, *_subclasses(direct))]


def _described(kind: type[Struct]) -> str:
    """Take a struct from its source, where each field has its words."""
    node = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(node, ast.ClassDef)  # noqa: S101 -- the source of a class
    rows: list[list[str]] = []
    for item in node.body[1:]:
        if isinstance(item, ast.AnnAssign):
            words = ast.unparse(item.annotation)
            required = words.replace(" | UnsetType", "")
            words = required if words == required else f"NotRequired[{required}]"
            rows.append([ast.unparse(item.target), words.replace("|", "\\|"), ""])
        elif isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant) and rows:
            value: Any = item.value.value
            rows[-1][2] = " ".join(str(value).split())
    lines = [f"| `{name}` | `{kind}` | {words} |" for name, kind, words in rows]
    table = "\n".join(["| key | type | means |", "| --- | --- | --- |", *lines, ""])
    return f"### {kind.__name__}\n\n{ast.get_docstring(node)}\n\n{table}"
