"""`dragoman calls`: what was called and written down, by sessions and by others; one can be run again."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli import output
from dragoman.cli.completing import SERVERS
from dragoman.cli.options import Duration, Options, common_options, timeout_option
from dragoman.errors import DragomanError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.cli.shapes import CallRecordShape, CallsReport
    from dragoman.observe.call_rows import CallRecord

_FEW_MILLISECONDS = 0.0995


@click.group(invoke_without_command=True)
@common_options
@click.option(
    "--server", metavar="NAME", default="", shell_complete=SERVERS, help="Of one server; * and ? work."
)
@click.option("--tool", metavar="NAME", default="", help="Of one tool, by its exposed name; * and ? work.")
@click.option("--errors", is_flag=True, help="Only calls that failed.")
@click.option("--since", type=Duration(), metavar="DURATION", help="Only of the last 30m, 12h, 7d …")
@click.option("--text", default="", metavar="WORDS", help="Only with these words in arguments or result.")
@click.option("--limit", "-n", default=30, show_default=True, help="How many of the latest.")
@click.pass_context
def calls(
    context: click.Context, server: str, tool: str, errors: bool, since: float | None, text: str, limit: int
) -> None:
    """List the calls that were written down, the latest first.

    A session writes its calls down; `call_log = true` in the table `mcp` of the configuration does it
    everywhere. Secrets are masked, long texts are cut, and what is old goes.
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
        report: CallsReport = {"file": str(history.path), "calls": [_shape(one) for one in found]}
        output.say_json(report)
        return
    if not found and history.path.exists():
        output.say("No call fits.")
    elif not found:
        output.say("No calls were written down yet: a session does it, and `call_log = true` under `mcp`.")
    else:
        _show(found)


@calls.command()
@common_options
@click.argument("number", metavar="NUMBER|ID")
@click.pass_obj
def show(options: Options, number: str) -> None:
    """Show one call: when, how long, its arguments, its result."""
    one = _find(number)
    if options.json:
        output.say_json(_shape(one))
        return
    facts = {
        "call": f"{one.number} ({one.call_id})",
        "tool": f"{one.tool}{f' of `{one.server}`' if one.server else ''}",
        "at": _moment(one.at, "%Y-%m-%d %H:%M:%S"),
        "took": took(one.duration),
        "ended": one.error_code or "well",
    }
    for name, value in facts.items():
        click.echo(f"{click.style(f'{name:<10}', dim=True)}{output.safe(value)}")
    click.secho("arguments", dim=True)
    output.say(json.dumps(one.arguments, ensure_ascii=False, indent=2))
    click.secho("result", dim=True)
    output.say(one.result or "(nothing)")
    if one.result_chars > len(one.result):
        output.note(f"The result had {one.result_chars} characters; the log keeps the beginning and the end.")
    if one.obstacle:
        output.note(f"It cannot be run again: {one.obstacle}.")


@calls.command()
@common_options
@timeout_option
@click.argument("number", metavar="NUMBER|ID")
@click.option("--yes", is_flag=True, help="Answer yes where a rule about calls asks.")
@click.pass_context
def again(context: click.Context, number: str, yes: bool) -> None:
    """Run a call once more, with the arguments that it had."""
    from dragoman.cli.calling import call

    one = _find(number)
    if one.obstacle:
        msg = f"call {one.number} cannot be run again: {one.obstacle}"
        raise DragomanError(msg, hint=f"`dragoman calls show {one.number}` shows it; use `dragoman call`")
    if not one.server:
        msg = f"`{one.tool}` is no tool of a server, so it cannot be called from here"
        raise DragomanError(msg, hint="run the program that has it")
    words = json.dumps(one.arguments, ensure_ascii=False)
    given = [one.tool, "--args", words, *(["--yes"] if yes else [])]
    with call.make_context("call", given, parent=context) as inner:
        call.invoke(inner)


def _find(key: str) -> CallRecord:
    from dragoman.observe.call_history import CallHistory

    history = CallHistory()
    found = history.show(int(key) if key.isascii() and key.isdecimal() else key)
    if found is None:
        msg = f"no call `{key}` was written down"
        raise DragomanError(msg, hint="`dragoman calls` lists those that were")
    return found


def _shape(one: CallRecord) -> CallRecordShape:
    arguments: Any = one.arguments
    return {
        "number": one.number,
        "call_id": one.call_id,
        "at": one.at,
        "server": one.server,
        "tool": one.tool,
        "duration": round(one.duration, 6),
        "error_code": one.error_code,
        "arguments": arguments,
        "missing": {place: str(why) for place, why in one.missing.items()},
        "result": one.result,
        "result_chars": one.result_chars,
    }


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
    """Say a duration in few characters."""
    if seconds < _FEW_MILLISECONDS:
        return f"{seconds * 1000:.1f} ms" if seconds < _FEW_MILLISECONDS / 10 else f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s"
