"""`dragoman calls`: list, show and repeat recorded calls."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import TYPE_CHECKING

import click

from dragoman.cli import output
from dragoman.cli.options import SERVERS, Duration, Options, common_options, timeout_option
from dragoman.errors import DragomanError
from dragoman.struct import Report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.observe.call_history import CallRecord

_FEW_MILLISECONDS = 0.0995


class CallsReport(Report, kw_only=True):
    """`dragoman calls --json`."""

    file: str
    calls: Sequence[CallRecord]
    """As `calls show` prints one."""


@click.group(invoke_without_command=True)
@common_options
@click.option(
    "--server", metavar="NAME", default="", shell_complete=SERVERS, help="Only this server; * and ? match."
)
@click.option("--tool", metavar="NAME", default="", help="Only this tool (exposed name); * and ? match.")
@click.option("--errors", is_flag=True, help="Only failed calls.")
@click.option("--since", type=Duration(), metavar="DURATION", help="Only the last 30m, 12h, 7d …")
@click.option("--text", default="", metavar="WORDS", help="Only if arguments or result contain this.")
@click.option("--limit", "-n", default=30, show_default=True, help="Number of calls.")
@click.pass_context
def calls(
    context: click.Context, server: str, tool: str, errors: bool, since: float | None, text: str, limit: int
) -> None:
    """List recorded calls, the latest first.

    All commands and sessions record their calls; programs do so if they ask for it. Secrets are masked, long
    texts are cut, and calls are deleted after seven days. `call_log = false` in the `[mcp]` table of the
    configuration turns this off.
    """
    if context.invoked_subcommand is not None:
        return
    from dragoman.observe.call_history import CallHistory

    options = context.ensure_object(Options)
    history = CallHistory()
    found = history.list(
        server=server,
        tool=tool,
        errors_only=errors,
        since=None if since is None else time.time() - since,
        text=text,
        limit=limit,
    )
    if options.json:
        output.say_json(CallsReport(file=str(history.path), calls=found))
        return
    if not found and history.path.exists():
        output.say("No matching calls.")
    elif not found:
        off = options.load().call_log is False
        why = (
            "`call_log = false` in the configuration turns recording off."
            if off
            else "Call a tool; `dragoman tools` lists them."
        )
        output.say(f"No recorded calls. {why}")
    else:
        _show(found)


@calls.command()
@common_options
@click.argument("number", metavar="NUMBER|ID")
@click.pass_obj
def show(options: Options, number: str) -> None:
    """Show one call: time, duration, arguments and result."""
    one = _find(number)
    if options.json:
        output.say_json(one)
        return
    facts = {
        "call": f"{one.number} ({one.call_id})",
        "tool": f"{one.tool}{f' of `{one.server}`' if one.server else ''}",
        "at": _moment(one.at, "%Y-%m-%d %H:%M:%S"),
        "took": took(one.duration),
        "outcome": one.error_code or "ok",
    }
    for name, value in facts.items():
        click.echo(f"{click.style(f'{name:<10}', dim=True)}{output.safe(value)}")
    click.secho("arguments", dim=True)
    output.say(json.dumps(one.arguments, ensure_ascii=False, indent=2))
    click.secho("result", dim=True)
    output.say(one.result or "(empty)")
    if one.result_chars > len(one.result):
        output.note(f"The log keeps the start and the end of this result ({one.result_chars} characters).")
    if one.obstacle:
        output.note(f"This call cannot be repeated: {one.obstacle}.")


@calls.command()
@common_options
@timeout_option
@click.argument("number", metavar="NUMBER|ID")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_context
def again(context: click.Context, number: str, yes: bool) -> None:
    """Repeat a call with the same arguments."""
    from dragoman.cli.commands.call import call

    one = _find(number)
    if one.obstacle:
        msg = f"call {one.number} cannot be repeated: {one.obstacle}"
        raise DragomanError(msg, hint=f"see `dragoman calls show {one.number}`, and use `dragoman call`")
    if not one.server:
        msg = f"`{one.tool}` is not a tool of an MCP server"
        raise DragomanError(msg, hint="run it from the program that defines it")
    words = json.dumps(one.arguments, ensure_ascii=False)
    given = [one.tool, "--args", words, *(["--yes"] if yes else [])]
    with call.make_context("call", given, parent=context) as inner:
        call.invoke(inner)


def _find(key: str) -> CallRecord:
    from dragoman.observe.call_history import CallHistory

    history = CallHistory()
    found = history.show(int(key) if key.isascii() and key.isdecimal() else key)
    if found is None:
        msg = f"no recorded call `{key}`"
        raise DragomanError(msg, hint="run `dragoman calls` for a list")
    return found


def _show(found: Sequence[CallRecord]) -> None:
    heads = ["call", "at", "took", "tool", "arguments"]
    lines = [
        [
            str(one.number),
            _moment(one.at, "%m-%d %H:%M:%S"),
            took(one.duration),
            output.one_line(one.tool),
            f"✗ {one.error_code}" if one.error_code else _short(one.arguments),
        ]
        for one in found
    ]
    widths = [max(output.width_of(line[at]) for line in [heads, *lines]) for at in range(len(heads) - 1)]
    width = output.columns()
    click.secho(_joined(heads, widths, width), dim=True)
    for one, line in zip(found, lines, strict=True):
        click.secho(_joined(line, widths, width), fg="red" if one.error_code else None)


def _joined(cells: Sequence[str], widths: Sequence[int], width: int | None) -> str:
    padded = [cell + " " * (size - output.width_of(cell)) for cell, size in zip(cells, widths, strict=False)]
    text = "  ".join([*padded, cells[-1]])
    return text if width is None else output.cut(text, width)


def _short(arguments: object) -> str:
    return output.one_line(json.dumps(arguments, ensure_ascii=False)) if arguments else ""


def _moment(at: float, form: str) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime(form)


def took(seconds: float) -> str:
    """Format a duration in a few characters."""
    if seconds < _FEW_MILLISECONDS:
        return f"{seconds * 1000:.1f} ms" if seconds < _FEW_MILLISECONDS / 10 else f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s"
