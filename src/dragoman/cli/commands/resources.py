"""`dragoman resources | read | prompts | prompt`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from dragoman.cli import arguments, exits, output
from dragoman.cli.commands.call import confirmed, print_text
from dragoman.cli.connect import USABLE, connected
from dragoman.cli.exits import Exit, code_of, overall_exit, run
from dragoman.cli.known import wanted
from dragoman.cli.options import SERVERS, Options, common_options, timeout_option
from dragoman.cli.output import PartReport, part_reports, save
from dragoman.errors import DragomanError, UnknownServerError
from dragoman.model import Handlers
from dragoman.struct import Report
from dragoman.suggest import suggest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from dragoman.cli.connect import Connected
    from dragoman.model import Part, Prompt, Resource, Skill

T = TypeVar("T")


class ResourceRow(Report, kw_only=True):
    """One resource or template of `resources`."""

    server: str
    uri: str
    name: str
    title: str
    description: str
    mime_type: str
    size: int | None
    """In bytes; null if the server does not say."""
    template: bool


class ResourcesReport(Report, kw_only=True):
    """`dragoman resources --json`."""

    resources: Sequence[ResourceRow]
    errors: Mapping[str, str]
    """Servers that could not be queried, with the reason."""


class SkillRow(Report, kw_only=True):
    """A skill of a server."""

    server: str
    uri: str
    name: str
    description: str
    files: Sequence[str]
    approved: bool
    problem: str
    """Why it cannot be used; empty if it can."""


class SkillsReport(Report, kw_only=True):
    """`dragoman skills --json`."""

    skills: Sequence[SkillRow]
    errors: Mapping[str, str]
    """Servers that could not be queried, with the reason."""


class ReadReport(Report, kw_only=True):
    """`dragoman read --json`."""

    uri: str
    parts: Sequence[PartReport]


class PromptsReport(Report, kw_only=True):
    """`dragoman prompts --json`."""

    prompts: Sequence[Prompt]
    errors: Mapping[str, str]


class PromptReport(Report, kw_only=True):
    """`dragoman prompt --json`."""

    server: str
    name: str
    messages: Sequence[Mapping[str, Any]]
    """Role and content, as sent by the server."""


class NothingNamedError(UnknownServerError):
    """No server has a prompt or resource with this name."""

    code = "offer.unknown"


@click.command()
@common_options
@timeout_option
@click.argument("names", nargs=-1, metavar="[SERVER]...", shell_complete=SERVERS)
@click.pass_obj
def resources(options: Options, names: tuple[str, ...]) -> None:
    """List the resources and resource templates of the servers.

    Read one with `dragoman read URI`.
    """

    def report(found: list[Resource], errors: Mapping[str, str]) -> ResourcesReport:
        rows = [ResourceRow.of(one, template=one.is_template) for one in found]
        return ResourcesReport(resources=rows, errors=errors)

    _list(options, names, "resources", report, lambda live, name: live.mcp.resources(name), _resource_line)


@click.command()
@common_options
@timeout_option
@click.argument("names", nargs=-1, metavar="[SERVER]...", shell_complete=SERVERS)
@click.option("--approve", "approved", metavar="URI", help="Approve a skill of SERVER with its files.")
@click.option(
    "--load", "loaded", metavar="URI", help="Print an approved skill of SERVER, as a model gets it."
)
@click.pass_obj
def skills(options: Options, names: tuple[str, ...], *, approved: str | None, loaded: str | None) -> None:
    """List the skills of the servers, approve one, or print one.

    A skill tells a model what to do, so each is approved by itself, and again when its files change.
    """
    if approved or loaded:
        if len(names) != 1:
            msg = "Give the SERVER of the skill."
            raise click.UsageError(msg)
        uri = approved or loaded or ""

        async def use(live: Connected, name: str) -> list[str]:
            if approved:
                await live.mcp.skills.approve(name, uri)
                return [f"Approved {uri} of {name}."]
            return [await live.mcp.skills.load(name, uri)]

        lines, _, code = run(_everywhere(options, names, use))
        for line in lines:
            print_text(line, raw=False)
        raise click.exceptions.Exit(code)

    def report(found: list[Skill], errors: Mapping[str, str]) -> SkillsReport:
        rows = [
            SkillRow.of(one, files=[file.uri for file in one.files], approved=one.is_approved)
            for one in found
        ]
        return SkillsReport(skills=rows, errors=errors)

    _list(options, names, "skills", report, lambda live, name: live.mcp.skills.all(name), _skill_line)


@click.command()
@common_options
@timeout_option
@click.argument("uri")
@click.option("--server", metavar="NAME", help="The server of the resource.", shell_complete=SERVERS)
@click.option(
    "--save", "folder", type=click.Path(path_type=Path), metavar="DIR", help="Save binary data in DIR."
)
@click.option("--raw", is_flag=True, help="Print unfiltered text, including escape codes.")
@click.pass_obj
def read(options: Options, uri: str, *, server: str | None, folder: Path | None, raw: bool) -> None:
    """Read a resource and print it.

    Binary data can be saved with `--save` or redirected. Without `--server`, all servers are queried for the
    resource.
    """
    parts = run(_read(options, uri, server))
    saved = save(parts, folder, uri.rstrip("/").rpartition("/")[2])
    if options.json:
        output.say_json(ReadReport(uri=uri, parts=part_reports(parts, saved)))
        return
    for index, part in enumerate(parts):
        if not part.data:
            print_text(part.text, raw=raw)
        elif index not in saved:
            _print_bytes(part)


@click.command()
@common_options
@timeout_option
@click.argument("names", nargs=-1, metavar="[SERVER]...", shell_complete=SERVERS)
@click.pass_obj
def prompts(options: Options, names: tuple[str, ...]) -> None:
    """List the prompts of the servers and their arguments.

    Fill one in with `dragoman prompt NAME key=value`.
    """

    def report(found: list[Prompt], errors: Mapping[str, str]) -> PromptsReport:
        return PromptsReport(prompts=found, errors=errors)

    _list(options, names, "prompts", report, lambda live, name: live.mcp.prompts(name), _prompt_line)


@click.command()
@common_options
@timeout_option
@click.argument("name")
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--server", metavar="NAME", help="The server of the prompt.", shell_complete=SERVERS)
@click.pass_obj
def prompt(options: Options, name: str, *, words: tuple[str, ...], server: str | None) -> None:
    """Fill in a prompt and print its messages.

    Values are strings; `@FILE` reads a file and `@-` standard input. Without `--server`, all servers are
    queried for the prompt.
    """
    try:
        given = arguments.parse(words, {"additionalProperties": {"type": "string"}}, load=arguments.load_file)
    except arguments.ArgumentError as error:
        raise click.UsageError(str(error)) from None
    fields = {key: value if isinstance(value, str) else json.dumps(value) for key, value in given.items()}
    owner, messages = run(_prompt(options, name, fields, server))
    if options.json:
        output.say_json(PromptReport(server=owner, name=name, messages=messages))
        return
    for index, message in enumerate(messages):
        click.echo(
            "\n" * bool(index) + click.style(f"{output.one_line(str(message.get('role')))}:", bold=True)
        )
        click.echo(output.safe(_text(message.get("content"))))


def _list(
    options: Options,
    names: Sequence[str],
    what: str,
    report: Callable[[list[T], Mapping[str, str]], Report],
    ask: Callable[[Connected, str], Awaitable[list[T]]],
    line: Callable[[T], tuple[str, str, str]],
) -> None:
    """Print what the servers have, as JSON or grouped by server, and exit."""
    found, errors, code = run(_everywhere(options, names, ask))
    if options.json:
        output.say_json(report(found, errors))
    else:
        _show_groups([line(one) for one in found], what)
    raise click.exceptions.Exit(code)


async def _everywhere(
    options: Options, names: Sequence[str], ask: Callable[[Connected, str], Awaitable[list[T]]]
) -> tuple[list[T], dict[str, str], Exit]:
    """Query all servers concurrently, so that the failure of one does not hide the others."""
    settings = options.load()
    exits.require_settings(settings)
    specs = wanted(settings, names)
    found: list[T] = []
    errors: dict[str, str] = {}
    codes: list[Exit] = []
    if not specs:
        return found, errors, Exit.DONE
    async with connected(options, settings, specs) as live:
        live.show.text = "querying"
        ready = [one.name for one in live.status() if one.state in USABLE]
        async with asyncio.timeout(live.left):
            answers = await asyncio.gather(*(ask(live, name) for name in ready), return_exceptions=True)
        for status in live.status():
            if status.name not in ready:
                errors[status.name] = str(live.explain(status.name))
                codes.append(live.code(status))
        for name, answer in zip(ready, answers, strict=True):
            if isinstance(answer, BaseException):
                if not isinstance(answer, DragomanError | TimeoutError):
                    raise answer
                errors[name] = str(answer)
                codes.append(code_of(answer))
            else:
                found += answer
    for name, text in errors.items():
        output.warn(f"{name}: {' '.join(text.split())}")
    return found, errors, overall_exit(codes)


async def _read(options: Options, uri: str, server: str | None) -> list[Part]:
    settings = options.load()
    exits.require_settings(settings)
    specs = wanted(settings, [server] if server else [])
    asking = Handlers(approval=lambda request: confirmed(request, live, yes=False))
    async with connected(options, settings, specs, handlers=asking) as live:
        owner = server or await _owner(live, uri, live.mcp.resources, lambda one: one.uri)
        live.raise_unless_ready(owner)
        live.show.text = "reading"
        async with asyncio.timeout(live.left):
            # Without `--server`, the manager checks that no other server has the resource.
            return await live.mcp.read(uri, owner if len(live.names) == 1 else None)


async def _prompt(
    options: Options, name: str, fields: dict[str, str], server: str | None
) -> tuple[str, list[dict[str, Any]]]:
    settings = options.load()
    exits.require_settings(settings)
    specs = wanted(settings, [server] if server else [])
    asking = Handlers(approval=lambda request: confirmed(request, live, yes=False))
    async with connected(options, settings, specs, handlers=asking) as live:
        owner = server or await _owner(live, name, live.mcp.prompts, lambda one: one.name)
        live.raise_unless_ready(owner)
        async with asyncio.timeout(live.left):
            return owner, await live.mcp.prompt(name, fields, server=owner)


async def _owner(
    live: Connected, name: str, ask: Callable[[], Awaitable[Sequence[Any]]], key: Callable[[Any], str]
) -> str:
    """Find the server that has something with this name."""
    if len(live.names) == 1:
        return live.names[0]
    live.warn_of_failures()
    async with asyncio.timeout(live.left):
        listed: Sequence[Resource | Prompt] = await ask()
    owners = list(dict.fromkeys(one.server for one in listed if key(one) == name))
    if len(owners) == 1:
        return owners[0]
    if owners:
        msg = f"several servers have `{name}`: {', '.join(owners)}"
        raise DragomanError(msg, hint="choose one with --server NAME")
    similar = suggest(name, [key(one) for one in listed])
    hint = f"did you mean {' or '.join(similar)}?" if similar else "use --server NAME if it is not listed"
    msg = f"no server lists `{name}`"
    raise NothingNamedError(msg, server="", suggestions=similar, hint=hint)


def _print_bytes(part: Part) -> None:
    if sys.stdout.isatty():
        kind = output.one_line(part.mime_type) or "unknown type"
        output.warn(
            f"Binary data ({len(part.data)} bytes, {kind}). Use --save DIR, or redirect it to a file."
        )
        raise click.exceptions.Exit(Exit.FAILED)
    sys.stdout.flush()
    sys.stdout.buffer.write(part.data)
    sys.stdout.buffer.flush()


def _resource_line(one: Resource) -> tuple[str, str, str]:
    said = one.title or one.description or (one.name if one.name != one.uri else "")
    about = [part for part in (output.one_line(said), output.one_line(one.mime_type)) if part]
    return one.server, one.uri, ", ".join(about)


def _skill_line(one: Skill) -> tuple[str, str, str]:
    about = one.problem or f"{'' if one.is_approved else 'not approved: '}{one.description}"
    return one.server, one.uri, about


def _prompt_line(one: Prompt) -> tuple[str, str, str]:
    names = [f"{argument.get('name')}{'' if argument.get('required') else '?'}" for argument in one.arguments]
    return one.server, f"{one.name}({', '.join(names)})", one.description or one.title


def _show_groups(rows: Sequence[tuple[str, str, str]], what: str) -> None:
    if not rows:
        output.say(f"No {what}.")
    width = output.columns()
    before = ""
    for server, name, about in rows:
        if server != before:
            click.echo("\n" * bool(before) + click.style(output.one_line(server), bold=True))
            before = server
        text = output.one_line(name)
        click.echo(f"  {click.style(text if width is None else output.cut(text, width - 2), fg='cyan')}")
        if line := output.one_line(about):
            click.secho(f"      {line if width is None else output.cut(line, width - 6)}", dim=True)


def _text(content: object) -> str:
    if isinstance(content, list):
        return "\n".join(_text(one) for one in cast("list[object]", content))
    if not isinstance(content, dict):
        return str(content)
    from dragoman.tools.result.render import describe, to_part

    return describe(to_part(cast("dict[str, Any]", content)))
