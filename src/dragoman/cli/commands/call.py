"""`dragoman call`: call one tool; only its server is started."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dragoman.cli import arguments, exits, output
from dragoman.cli.adhoc import AdHocCommand, offer_to_keep, take_url
from dragoman.cli.arguments import STDIN
from dragoman.cli.connect import USABLE, connected
from dragoman.cli.discover import find_servers, no_servers
from dragoman.cli.exits import code_of, confirm, run
from dragoman.cli.known import approved, known_registry, may_own, wanted
from dragoman.cli.options import CALL_WORDS, Options, common_options, timeout_option, typed
from dragoman.cli.output import ErrorReport, PartReport, part_reports, save
from dragoman.cli.remote import GoAloneError, current_command, divert, here
from dragoman.errors import (
    CallDeniedError,
    ConfigError,
    ConnectError,
    InvalidArgumentsError,
    ServerNotReadyError,
    ToolUnavailableError,
    UnknownServerError,
    UnknownToolError,
)
from dragoman.model import Handlers
from dragoman.struct import Report
from dragoman.tools.names import qualified
from dragoman.tools.view import unmatched

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dragoman.cli.connect import Connected
    from dragoman.model import CallRequest, ServerSpec, Settings, SourceRef, ToolDef, ToolResult


class CallReport(Report, kw_only=True):
    """`dragoman call --json`."""

    server: str
    tool: str
    """The exposed name."""
    success: bool
    text: str
    error: ErrorReport | None
    structured: Any
    parts: Sequence[PartReport]
    sources: Sequence[SourceRef]
    """The sources of the answer."""
    duration: float
    call_id: str


@click.command(cls=AdHocCommand, epilog="See `dragoman help arguments` for all forms of KEY=VALUE.")
@common_options
@timeout_option
@click.argument("words", nargs=-1, metavar="SERVER TOOL [KEY=VALUE | JSON | -]...", shell_complete=CALL_WORDS)
@click.option("--args", "whole", metavar="JSON", help="Arguments as a JSON object, or @FILE.")
@click.option("--save", "folder", type=click.Path(path_type=Path), metavar="DIR", help="Save images in DIR.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option("--raw", is_flag=True, help="Print unfiltered text, including escape codes.")
@click.option("--detach", is_flag=True, help="Do not wait if the server makes a task of the call.")
@click.pass_obj
def call(
    options: Options,
    *,
    words: tuple[str, ...],
    whole: str | None,
    folder: Path | None,
    yes: bool,
    raw: bool,
    detach: bool,
) -> None:
    """Call a tool and print its result.

    Instead of SERVER TOOL you can write SERVER.TOOL, SERVER:TOOL, the exposed name, or TOOL alone if only one
    server has it. Only this server is started; for TOOL alone, those never listed are asked, too. A URL
    instead of SERVER, or a command after `--`, is a server that is not configured. On a terminal, missing
    arguments are asked for.

    \b
    dragoman call files read_text_file path=README.md head=10
    dragoman call files.read_text_file '{"path": "README.md"}'
    echo '{"path": "README.md"}' | dragoman call files read_text_file -
    dragoman call https://example.com/mcp search query=deposit
    dragoman call read_text_file path=README.md -- npx -y @modelcontextprotocol/server-filesystem .

    Values are converted by the tool's schema. `a.b=1` sets a value inside an object, a repeated key makes a
    list, `@FILE` reads a file and `@-` standard input.
    """  # noqa: D301 -- click wants the backspace itself
    words = take_url(options, words)
    if not words and options.server is not None:
        msg = "Missing TOOL. Run `dragoman tools` with the same URL or command for a list."
        raise click.UsageError(msg)
    if not words:
        msg = "Missing SERVER and TOOL. Run `dragoman tools` for a list."
        raise click.UsageError(msg)
    options.yes |= yes
    settings = find_servers(options)
    exits.require_settings(settings)
    divert(options, settings)
    if not settings.servers:
        raise UnknownServerError(no_servers(options), server=words[0])
    if options.server is not None:
        asked, rest = ToolTarget([options.server], words[0], is_own=True), list(words[1:])
    else:
        asked, rest = split_words(settings, words)
    given = _Given(rest, whole, as_json=options.json)
    _check_known(settings, asked, given)
    result, tool = run(_call(options, settings, asked, given, yes=yes, detach=detach))
    saved = save(result.parts, folder and Path(here(folder)), tool.own_name)
    if options.json:
        output.say_json(_report(tool, result, saved))
    elif result.success or result.text != result.error:
        print_text(result.text, raw=raw)
        _print_sources(result, settings)
    if result.exception is None:
        offer_to_keep(options)
        return
    if not options.json:
        text = " ".join(str(_told(settings, tool, result)).split())
        if isinstance(result.exception, InvalidArgumentsError):
            text = f"{text} ({arguments.usage_hint(tool)})"
        click.secho(f"error: {output.safe(text)}", fg="red", err=True)
    raise click.exceptions.Exit(code_of(result.exception))


class _Given:
    """The arguments as typed; files and standard input are read once, before a server is started."""

    def __init__(self, words: Sequence[str], whole: str | None, *, as_json: bool) -> None:
        self._as_json = as_json
        self._words = [word for word in words if word != STDIN]
        self._whole = whole
        self._files: dict[str, bytes] = {}
        self._answers: dict[str, Any] = {}
        """What the user was asked for."""
        dashes = len(words) - len(self._words)
        if dashes + (whole is not None) + bool(self._words) > 1:
            msg = "Use only one of KEY=VALUE, a JSON object, `--args` and `-`."
            raise click.UsageError(msg)
        if dashes:
            self._whole = self.load(STDIN).decode("utf-8", "replace")
        elif whole is not None and whole.startswith("@"):
            self._whole = self.load(whole[1:]).decode("utf-8", "replace")
        for word in self._words:
            value = "" if arguments.is_object(word) else word.partition("=")[2]
            if value.startswith("@") and not value.startswith("@@"):
                self.load(value[1:])

    def load(self, path: str) -> bytes:
        """Return the content of a file or of standard input."""
        if path not in self._files:
            try:
                self._files[path] = arguments.load_file(path if path == STDIN else here(path))
            except arguments.ArgumentError as error:
                raise click.UsageError(str(error)) from None
        return self._files[path]

    def fit(self, tool: ToolDef) -> dict[str, Any]:
        """Return the arguments, converted by the tool's schema; required ones may be missing."""
        try:
            if self._whole is not None:
                found = arguments.parse_object(self._whole)
            else:
                found = arguments.read(self._words, tool.input_schema, load=self.load)
        except arguments.ArgumentError as error:
            msg = f"{error} ({arguments.usage_hint(tool)})"
            raise click.UsageError(msg) from None
        arguments.refuse_unknown(found, tool)
        return found | self._answers

    async def ask(self, tool: ToolDef) -> None:
        """Ask at the terminal for the missing arguments.

        Raises:
            InvalidArgumentsError: There is no terminal.
        """
        found = self.fit(tool)
        if not arguments.missing(found, tool.input_schema):
            return
        if self._as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
            arguments.refuse_incomplete(found, tool)
        if current_command.get() is not None:
            raise GoAloneError  # the form needs the client's own terminal
        from dragoman.cli.session.line_editor import TerminalAsker
        from dragoman.cli.session.questions import AbandonedError, ask_missing
        from dragoman.cli.session.screen import Screen

        output.note(output.safe(arguments.signature_text(tool, tool.own_name)))
        try:
            asked = await ask_missing(TerminalAsker(Screen()), tool, found)
        except AbandonedError:
            raise click.Abort from None
        self._answers = {name: value for name, value in asked.items() if name not in found}


def _told(settings: Settings, tool: ToolDef, result: ToolResult) -> object:
    """Return the error of a failed call; the cause in one line if its server is not ready."""
    from dragoman.diagnosis.explain import explain, root_cause

    error = result.exception
    if isinstance(error, ToolUnavailableError) and isinstance(root_cause(error), ConnectError | ConfigError):
        found = explain(error, settings.server(tool.server), name=tool.server)
        return f"{found.cause} (run `{typed(found.next_step)}`)"
    return result.error or "The tool failed."


def _check_known(settings: Settings, asked: ToolTarget, given: _Given) -> None:
    """Check a call against the cached tools, so that a mistake does not have to wait for the server.

    Raises:
        UnknownToolError: The server has no such tool, but one with a similar name.
        InvalidArgumentsError: The arguments do not match the tool's schema.
        CallDeniedError: A rule denies the call.
    """
    if len(asked.specs) != 1:
        return
    spec = asked.specs[0]
    registry, known = known_registry(settings, asked.specs)
    if spec.name not in known:
        return
    try:
        tool = registry.resolve(asked.name, server=spec.name)
    except UnknownToolError as error:
        if error.suggestions:
            error.hint += f" The list is cached; update it with `dragoman tools {quote(spec.name)} --refresh`"
            raise
        return
    from dragoman.tools.result.build import check
    from dragoman.tools.schema.validate import Validators
    from dragoman.trust.gate import Gate

    if arguments.missing(given.fit(tool), tool.input_schema):
        run(given.ask(tool))
    coerces = True if spec.coerce_arguments is None else spec.coerce_arguments
    try:
        fields, _ = check(Validators().of(tool.input_schema), tool, given.fit(tool), coerces=coerces)
    except InvalidArgumentsError as error:
        error.hint = arguments.usage_hint(tool)
        raise
    gate = Gate(settings, root=settings.root or str(Path.cwd()))
    gate.refuse_denied(tool, fields, trusts_hints=spec.trust_annotations)


class ToolTarget(NamedTuple):
    """The tool to call."""

    specs: list[ServerSpec]
    """The servers that can have the tool."""
    name: str
    is_own: bool
    """Whether `name` is the server's own name of the tool, not the exposed one."""
    is_guessed: bool = False
    """Whether nothing but their missing listings speaks for these servers."""
    owner: str = ""
    """The server that is known to have it; the others are asked, too, but only briefly."""

    @property
    def briefly(self) -> list[str]:
        """The servers that are waited for only briefly."""
        return [spec.name for spec in self.specs if self.owner not in ("", spec.name)]


def split_words(settings: Settings, words: Sequence[str]) -> tuple[ToolTarget, list[str]]:
    """Return the tool to call, and the remaining words."""
    first, *rest = words
    is_alone = not rest or "=" in rest[0] or rest[0] == STDIN or arguments.is_object(rest[0])
    if settings.server(first) is not None and not is_alone:
        return ToolTarget(wanted(settings, [first]), rest[0], is_own=True), rest[1:]
    for pair in qualified(first):
        if settings.server(pair.server) is not None:
            return ToolTarget(wanted(settings, [pair.server]), pair.tool, is_own=True), rest
    registry, listed = known_registry(settings)
    try:
        found = registry.resolve(first)
    except UnknownToolError as error:
        found = _server_or_tool(error)
    if settings.server(first) is not None and isinstance(found, UnknownToolError):
        msg = f"Missing TOOL. Run `dragoman tools {quote(first)}` for a list."
        raise click.UsageError(msg)
    if not is_alone:
        # Two words, and the first is not a server: report that instead of looking for a tool.
        wanted(settings, [first])
    # The tools of some servers are not known yet; they can have it, too.
    unlisted = [one for one in wanted(settings, []) if one.name not in listed]
    if not isinstance(found, UnknownToolError):
        specs = wanted(settings, [found.server])
        if unlisted and first == found.own_name and (others := approved(settings, unlisted)):
            return ToolTarget([*specs, *others], first, is_own=False, owner=found.server), rest
        return ToolTarget(specs, found.own_name, is_own=True), rest
    fitting = may_own(settings, wanted(settings, []), first)
    specs = fitting or unlisted
    if not specs or found.is_ambiguous or (found.suggestions and all(one.name in listed for one in specs)):
        raise found
    return ToolTarget(specs, first, is_own=False, is_guessed=not fitting), rest


def _server_or_tool(error: UnknownToolError) -> UnknownToolError:
    """Say that the word, which is alone, is not a server either."""
    if not error.is_ambiguous:
        error.message = f"unknown server or tool `{error.tool}`"
    return error


async def _call(
    options: Options,
    settings: Settings,
    asked: ToolTarget,
    given: _Given,
    *,
    yes: bool,
    detach: bool,
) -> tuple[ToolResult, ToolDef]:
    specs = asked.specs
    names = [other for spec in specs for other in spec.fallback_names]
    fallback = [spec for spec in settings.servers if spec.name in names and spec not in specs]

    asking = Handlers(approval=lambda request: confirmed(request, live, yes=yes))
    is_terminal = sys.stdin.isatty() and not options.json
    async with connected(
        options,
        settings,
        specs,
        beside=fallback,
        handlers=asking,
        default_trust="ask" if is_terminal else "warn",
        briefly=asked.briefly,
    ) as live:
        if is_terminal:
            await review_changes(live)
        tool = find_connected(live, asked, [] if options.server else list(known_registry(settings)[0]))
        if arguments.missing(given.fit(tool), tool.input_schema):
            live.show.text = ""
            live.show.clear()
            await given.ask(tool)
        fields = given.fit(tool)
        if options.timeout is not None and not fallback:
            _check_connected(live, tool.server, options.timeout)
        live.show.text = f"calling {tool.own_name}"
        if (command := current_command.get()) is not None:
            command.calling(is_safe=_is_safe(tool, settings))
        try:
            result = await live.mcp.call(
                tool.name, fields, timeout=live.left, on_progress=live.show.report, detach=detach
            )
        except asyncio.CancelledError:
            # Stopping the server may take a moment; show that Ctrl-C was noticed.
            live.show.text = "stopping"
            raise
        return result, tool


def _is_safe(tool: ToolDef, settings: Settings) -> bool:
    """Return whether a call may be repeated if its outcome is not known."""
    spec = settings.server(tool.server)
    if spec is None or not spec.trust_annotations:
        return False
    hints = tool.annotations
    return bool(hints.get("readOnlyHint") or hints.get("idempotentHint"))


async def confirmed(request: CallRequest, live: Connected, *, yes: bool) -> bool | None:
    """Ask the user to confirm a call, if a rule requires it; return `None` if there is no terminal."""
    if yes or not sys.stdin.isatty():
        return yes or None
    live.show.text = ""
    live.show.clear()
    why = output.one_line(request.reason) or "A rule requires confirmation"
    click.echo(f"{why}: {_shown(request)}", err=True)
    question = {"tool": "Call it?", "resource": "Read it?", "prompt": "Get it?", "skill": "Load it?"}[
        request.kind
    ]
    try:
        return await confirm(question)
    except asyncio.CancelledError as exc:
        if exc.args:  # It was answered elsewhere.
            click.echo(f"\n{output.one_line(str(exc.args[0]))}", err=True)
        raise


async def review_changes(live: Connected) -> None:
    """Ask about changed tools; they are withheld until the user approves them."""
    for server in live.names:
        changes = live.mcp.trust.changes(server)
        if not changes.is_withheld:
            continue
        live.show.text = ""
        live.show.clear()
        click.echo(f"Tools of `{output.one_line(server)}` changed since you approved them:", err=True)
        for line in (line for text in changes.texts for line in text.splitlines()):
            click.echo(f"  {output.safe(line)}", err=True)
        if await confirm("Approve the changes?"):
            await live.mcp.trust.approve(server, fingerprint=changes.fingerprint)


def _shown(request: CallRequest) -> str:
    fields = json.dumps(dict(request.arguments), ensure_ascii=False, default=str)
    return output.safe(f"{request.original_name} of `{request.server}` with {fields}")


def find_connected(live: Connected, asked: ToolTarget, elsewhere: Sequence[ToolDef]) -> ToolDef:
    """Find the tool; a cached definition is enough, so that a fallback can answer.

    Args:
        live: The servers that are connected.
        asked: The tool to find.
        elsewhere: Known tools of other servers, to suggest.
    """
    name = asked.name
    registry = live.mcp.registry
    try:
        tool = registry.resolve(name, server=live.names[0] if asked.is_own else "")
        if tool.server in live.names:
            silent = [one for one in asked.briefly if live.mcp.status([one])[one].state not in USABLE]
            if silent:
                live.show.clear()
                output.warn(
                    f"`{name}` is called on `{tool.server}`; not asked if they have it: {', '.join(silent)}"
                )
            return tool
    except UnknownToolError as error:
        if error.is_ambiguous:
            raise
    tools = [*(tool for tool in registry if tool.server in live.names), *elsewhere]
    missing = unmatched(name, tools)
    if len(live.names) > 1 or (asked.is_guessed and missing.suggestions):
        # Any of them could have had it, so the failure of one is not the answer.
        live.warn_of_failures()
        raise _server_or_tool(missing)
    for server in live.names:
        live.raise_unless_ready(server, needs_listing=True)
        changes = live.mcp.trust.changes(server)
        if changes.is_withheld and any(one.kind == "tool" and name.endswith(one.name) for one in changes):
            msg = f"`{name}` of server `{server}` is blocked: its definition changed since you approved it"
            hint = f"review the change and run `dragoman trust approve {quote(server)}`"
            raise CallDeniedError(msg, tool=name, server=server, hint=hint)
    raise unmatched(name, tools, server=live.names[0])


def _check_connected(live: Connected, server: str, seconds: float) -> None:
    """Raise a clear error if `--timeout` ended before the server was connected."""
    state = live.mcp.status([server])[server].state
    if state == "connecting":
        msg = f"server `{server}` did not connect within {seconds:g} s"
        hint = f"increase `--timeout`, or run `dragoman doctor {quote(server)}`"
        raise ServerNotReadyError(msg, server=server, state=state, hint=hint) from TimeoutError()


def _report(tool: ToolDef, result: ToolResult, saved: Mapping[int, Path]) -> CallReport:
    return CallReport.of(
        result,
        server=result.provenance.server if result.provenance else tool.server,
        tool=tool.name,
        error=None if result.exception is None else ErrorReport.of_error(result.exception),
        parts=part_reports(result.parts, saved),
        sources=result.provenance.sources if result.provenance else (),
        duration=round(result.duration, 6),
    )


def _print_sources(result: ToolResult, settings: Settings) -> None:
    """Name the sources on stderr, unless the text does: the output stays what the server said."""
    from dragoman.languages import in_language, language_of
    from dragoman.tools.result.render import attribution

    words = in_language(settings.texts, settings.language or language_of(os.environ))
    end = attribution(result.provenance.sources if result.provenance else (), words)
    if end and not result.text.endswith(end):
        output.note(end.strip())


def print_text(text: str, *, raw: bool) -> None:
    """Print text from a server; escape codes are removed unless `raw`, and JSON is indented at a terminal."""
    shown = text if raw else output.safe(output.indented(text) if sys.stdout.isatty() else text)
    end = "" if shown.endswith("\n") else "\n"
    if raw:
        # Not `click.echo`: it removes colors outside a terminal.
        sys.stdout.write(shown + end)
    else:
        click.echo(shown + end, nl=False)
