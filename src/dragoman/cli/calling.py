"""`dragoman call`: one tool, once; only its server is started."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from dragoman.cli import arguments, broken, output
from dragoman.cli.arguments import STDIN
from dragoman.cli.completing import CALL_WORDS
from dragoman.cli.contents import part_json, save
from dragoman.cli.exits import code_of
from dragoman.cli.known import known_tools, may_own, wanted
from dragoman.cli.options import Options, common_options, timeout_option
from dragoman.cli.running import confirm, run
from dragoman.cli.signatures import type_name
from dragoman.errors import InvalidArgumentsError, ServerNotReadyError, UnknownToolError
from dragoman.model import Handlers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.cli.connecting import Connected
    from dragoman.cli.shapes import CallReport, ErrorShape
    from dragoman.model import ServerSpec, Settings, ToolDef, ToolResult
    from dragoman.results import CallRequest

LONGEST_ABOUT = 60
"""Columns that an error gives to what an argument is; `tools --schema` has the whole."""


@click.command(epilog="`dragoman help arguments` has the whole of KEY=VALUE.")
@common_options
@timeout_option
@click.argument("words", nargs=-1, metavar="SERVER TOOL [KEY=VALUE | -]...", shell_complete=CALL_WORDS)
@click.option("--args", "whole", metavar="JSON", help="All arguments as a JSON object, or @FILE.")
@click.option("--save", "folder", type=click.Path(path_type=Path), metavar="DIR", help="Save images there.")
@click.option("--yes", "-y", is_flag=True, help="Agree where a rule of yours asks before a call.")
@click.option("--raw", is_flag=True, help="Print the text as it came, with whatever steers a terminal.")
@click.pass_obj
def call(
    options: Options, *, words: tuple[str, ...], whole: str | None, folder: Path | None, yes: bool, raw: bool
) -> None:
    """Call a tool and print its text; SERVER TOOL may also be the exposed name alone.

    \b
    dragoman call files read_text_file path=README.md head=10
    dragoman call mcp_files_read_text_file --args '{"path": "README.md"}'
    echo '{"path": "README.md"}' | dragoman call files read_text_file -

    Values are typed by the tool's schema; `a.b=1` goes inside an object, a key that is given again makes a
    list, `@FILE` and `@-` read a file and standard input. Only that server is started.
    """  # noqa: D301 -- click wants the backspace itself
    if not words:
        msg = "which tool? `dragoman tools` lists them: dragoman call SERVER TOOL key=value …"
        raise click.UsageError(msg)
    settings = options.load()
    broken.insist(settings)
    specs, name, rest = _split(settings, words)
    given = _Given(rest, whole)
    result, tool = run(_call(options, settings, specs, name, given, yes=yes))
    saved = save(result.parts, folder, tool.original_name or tool.name)
    if options.json:
        output.say_json(_report(tool, result, saved))
    elif result.success or result.text != result.error:
        print_text(result.text, raw=raw)
    if result.exception is None:
        return
    if not options.json:
        text = " ".join((result.error or "the tool failed").split())
        click.secho(f"error: {output.safe(text)}", fg="red", err=True)
    raise click.exceptions.Exit(code_of(result.exception))


class _Given:
    """The arguments as they were typed; standard input is read once, and before any server is started."""

    def __init__(self, words: Sequence[str], whole: str | None) -> None:
        self._words = [word for word in words if word != STDIN]
        self._whole = whole
        self._files: dict[str, bytes] = {}
        dashes = len(words) - len(self._words)
        if dashes + (whole is not None) + bool(self._words) > 1:
            msg = "give the arguments in one way: KEY=VALUE, `--args`, or `-`"
            raise click.UsageError(msg)
        if dashes:
            self._whole = self.load(STDIN).decode("utf-8", "replace")
        elif whole is not None and whole.startswith("@"):
            self._whole = self.load(whole[1:]).decode("utf-8", "replace")
        for word in self._words:
            value = word.partition("=")[2]
            if value.startswith("@") and not value.startswith("@@"):
                self.load(value[1:])

    def load(self, path: str) -> bytes:
        """Return the content of a file or of standard input."""
        if path not in self._files:
            try:
                self._files[path] = arguments.load_file(path)
            except arguments.ArgumentError as error:
                raise click.UsageError(str(error)) from None
        return self._files[path]

    def fit(self, tool: ToolDef) -> dict[str, Any]:
        """Return the arguments as the tool's schema types them."""
        schema = tool.input_schema
        try:
            if self._whole is not None:
                found = arguments.parse_object(self._whole)
            else:
                found = arguments.parse(self._words, schema, load=self.load)
        except arguments.ArgumentError as error:
            raise click.UsageError(str(error)) from None
        if lacking := arguments.missing(found, schema):
            needs = ", ".join(_needed(name, wanted, schema) for name, wanted in lacking.items())
            msg = f"`{tool.original_name}` of server `{tool.server}` needs {needs}"
            problems = [
                f"`{name}` is missing: {json.dumps(wanted, ensure_ascii=False)}"
                for name, wanted in lacking.items()
            ]
            hint = f"`dragoman tools {tool.server} --schema` shows all it takes"
            raise InvalidArgumentsError(msg, tool=tool.name, server=tool.server, problems=problems, hint=hint)
        return found


def _needed(name: str, schema: object, root: object) -> str:
    fields = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
    about = output.cut(output.one_line(str(fields.get("description") or "")), LONGEST_ABOUT)
    return f"`{name}: {type_name(fields, root)}`" + (f" – {about}" if about else "")


def _split(settings: Settings, words: Sequence[str]) -> tuple[list[ServerSpec], str, list[str]]:
    """Return the servers that may have the tool, its name, and what is left of the words."""
    first, *rest = words
    if settings.server(first) is not None and not (rest and "=" not in rest[0] and rest[0] != STDIN):
        known = known_tools(settings, wanted(settings, []))
        if not any(tool.name == first for listed in known.values() for tool in listed):
            msg = f"which tool of `{first}`? `dragoman tools {first}` lists them"
            raise click.UsageError(msg)
    elif settings.server(first) is not None:
        return wanted(settings, [first]), rest[0], rest[1:]
    if rest and "=" not in rest[0] and rest[0] != STDIN:
        # Two words and the first is no server: say so, instead of looking for a tool of that name.
        wanted(settings, [first])
    everywhere = wanted(settings, [])
    known = known_tools(settings, everywhere)
    for server, listed in known.items():
        if any(tool.name == first for tool in listed):
            return wanted(settings, [server]), first, rest
    specs = may_own(settings, everywhere, first)
    if not specs:
        raise _unknown(first, [tool for listed in known.values() for tool in listed])
    return specs, first, rest


async def _call(
    options: Options,
    settings: Settings,
    specs: Sequence[ServerSpec],
    name: str,
    given: _Given,
    *,
    yes: bool,
) -> tuple[ToolResult, ToolDef]:
    from dragoman.cli.connecting import connected

    names = [other for spec in specs for other in spec.fallback]
    fallback = [spec for spec in settings.servers if spec.name in names and spec not in specs]

    async def agree(request: CallRequest) -> bool:
        if yes or not sys.stdin.isatty():
            return yes
        live.show.text = ""
        live.show.clear()
        why = output.one_line(request.reason) or "a rule asks first"
        click.echo(f"{why}: {_shown(request)}", err=True)
        return await confirm("Call it?")

    asking = Handlers(approval=agree)
    async with connected(options, settings, specs, beside=fallback, handlers=asking) as live:
        tool = _find(live, name)
        fields = given.fit(tool)
        if options.timeout is not None and not fallback:
            _insist_on_connection(live, tool.server, options.timeout)
        live.show.text = f"calling {tool.original_name}"
        try:
            result = await live.mcp.call(tool.name, fields, timeout=live.left, on_progress=live.show.report)
        except asyncio.CancelledError:
            # The server has some time to end, in which a person is to see that Ctrl-C was heard.
            live.show.text = "stopping"
            raise
        return result, tool


def _shown(request: CallRequest) -> str:
    fields = json.dumps(dict(request.arguments), ensure_ascii=False, default=str)
    return output.safe(f"{request.original_name} of `{request.server}` with {fields}")


def _find(live: Connected, name: str) -> ToolDef:
    """Return the tool of the connected servers; one that is known from last time lets a fallback answer."""
    tools = [tool for tool in live.mcp.tools() if tool.server in live.names]
    for tool in tools:
        if name in (tool.original_name, tool.name):
            return tool
    for server in live.names:
        live.raise_unless_ready(server, needs_listing=True)
    raise _unknown(name, tools, server=live.names[0])


def _insist_on_connection(live: Connected, server: str, seconds: float) -> None:
    """Say that the time was too short; the call would say no more than that the server connects."""
    state = live.mcp.status()[server].state
    if state == "connecting":
        msg = f"server `{server}` did not connect within the {seconds:g} s of `--timeout`"
        hint = "allow more time, or see where it goes with `dragoman doctor`"
        raise ServerNotReadyError(msg, server=server, state=state, hint=hint) from TimeoutError()


def _unknown(name: str, tools: Sequence[ToolDef], server: str = "") -> UnknownToolError:
    import difflib

    names = [own for tool in tools for own in ((tool.original_name,) if server else (tool.name,))]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    guess = f"did you mean {' or '.join(f'`{one}`' for one in near)}?" if near else ""
    where = f"server `{server}` has no tool" if server else "there is no server and no tool called"
    hint = guess or f"`dragoman tools{f' {server}' if server else ''}` lists them"
    return UnknownToolError(f"{where} `{name}`", tool=name, server=server, suggestions=near, hint=hint)


def _report(tool: ToolDef, result: ToolResult, saved: Any) -> CallReport:
    error = result.exception
    sources = result.provenance.sources if result.provenance else ()
    return {
        "server": result.provenance.server if result.provenance else tool.server,
        "tool": tool.name,
        "success": result.success,
        "text": result.text,
        "error": None if error is None else cast("ErrorShape", output.error_json(error)),
        "structured": result.structured,
        "parts": [part_json(part, saved.get(index)) for index, part in enumerate(result.parts)],
        "sources": [
            {"title": one.title, "locator": one.locator, "url": one.url, "updated": one.updated}
            for one in sources
        ],
        "duration": round(result.duration, 6),
        "call_id": result.call_id,
    }


def print_text(text: str, *, raw: bool) -> None:
    """Print what a server gave, harmless unless it is wanted as it came."""
    shown = text if raw else output.safe(text)
    end = "" if shown.endswith("\n") else "\n"
    if raw:
        # Not `click.echo`, which takes colours out where there is no terminal.
        sys.stdout.write(shown + end)
    else:
        click.echo(shown + end, nl=False)
