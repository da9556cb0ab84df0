"""`dragoman tools`: list tools, from the cache if possible."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

import click

from dragoman.cli import exits, output
from dragoman.cli.adhoc import HOW_TO_TRY, AdHocCommand, offer_to_keep, take_servers
from dragoman.cli.arguments import pieces, signature_text
from dragoman.cli.connect import connected
from dragoman.cli.discover import find_servers, no_servers
from dragoman.cli.exits import Exit, overall_exit, run
from dragoman.cli.known import known_tools, settled, wanted
from dragoman.cli.options import SERVERS, Options, common_options, timeout_option, typed, yes_option
from dragoman.cli.remote import divert
from dragoman.errors import ConfigError
from dragoman.storage.failures import Failure, recent_failures, remember_failures
from dragoman.struct import UNSET, MutableStruct, Report, UnsetType, field
from dragoman.tools.export.apis import APIS, model_api
from dragoman.trust.masking import spec_key
from dragoman.trust.toolsets import find_toolset

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dragoman.cli.output import ErrorReport
    from dragoman.model import ServerSpec, Settings, ToolDef
    from dragoman.tools.export.export import Export
    from dragoman.tools.registry import ToolRegistry
    from dragoman.tools.view import ToolView

MOST_FOUND = 8
VECTOR_WAIT = 20.0
"""Seconds that a search waits for the vectors of new tools."""


class ServerTools(MutableStruct):
    """The tools of one server, and where the list comes from."""

    spec: ServerSpec
    tools: list[ToolDef] = field(default_factory=list["ToolDef"])
    source: Literal["cache", "server"] | None = None
    error: ErrorReport | None = None


class ToolRow(Report, kw_only=True):
    """One tool of `tools`; `--schema` adds the schemas, `--tokens` the tokens."""

    name: str
    """The exposed name, which a model uses."""
    tool: str
    """The server's own name of the tool."""
    title: str
    description: str
    signature: str
    annotations: Mapping[str, Any]
    input_schema: Mapping[str, Any] | UnsetType = UNSET
    output_schema: Mapping[str, Any] | UnsetType | None = UNSET
    tokens: int | UnsetType = UNSET


class ServerToolsReport(Report, kw_only=True):
    """One server of `tools`."""

    server: str
    source: Literal["cache", "server"] | None
    """Where the list comes from; null if it is unknown."""
    error: ErrorReport | None
    tools: Sequence[ToolRow]
    tokens: int | UnsetType = UNSET
    """With `--tokens`: the approximate number of tokens."""


class ApiCost(Report, kw_only=True):
    """What all tools cost in one model API, in `tools --tokens`."""

    api: str
    tokens: int
    """The approximate number of tokens of all definitions."""
    with_search: int
    """The same if the model gets a search instead."""


class ToolsReport(Report, kw_only=True):
    """`dragoman tools --json`."""

    servers: Sequence[ServerToolsReport]
    apis: Sequence[ApiCost] | UnsetType = UNSET
    """With `--tokens`."""


class FoundTool(Report, kw_only=True):
    """One tool that `tools --search` found."""

    name: str
    server: str
    tool: str
    description: str
    signature: str


class SearchReport(Report, kw_only=True):
    """`dragoman tools --search TEXT --json`."""

    found: Sequence[FoundTool]
    """The best first."""
    missing: Sequence[str]
    """Servers whose tools are not known."""


class ExportReport(Report, kw_only=True):
    """`dragoman tools --format API --json`; without `--json` only the array `tools` is printed."""

    api: str
    tools: Sequence[Mapping[str, Any]]
    """The tools for a request to this API."""
    names: Mapping[str, str]
    """The exposed name for each name that the model uses."""
    left_out: Mapping[str, str]
    """Tools that the API does not support, by exposed name, with the reason."""


@click.command(cls=AdHocCommand, epilog=HOW_TO_TRY)
@common_options
@timeout_option
@yes_option
@click.argument("names", nargs=-1, metavar="[SERVER]...", shell_complete=SERVERS)
@click.option("--schema", is_flag=True, help="Show full descriptions and schemas.")
@click.option("--format", "api", type=click.Choice(APIS), help="Print JSON for a model API.")
@click.option("--search", "queries", multiple=True, metavar="TEXT", help="Find tools by what they do.")
@click.option("--toolset", metavar="NAME", help="Only the tools of a toolset of the configuration.")
@click.option("--tokens", is_flag=True, help="Show what the tools cost a model, alone and with a search.")
@click.option("--refresh", is_flag=True, help="Query the servers instead of using the cache.")
@click.option("--no-connect", is_flag=True, help="Never start a server, even if it has no cached list.")
@click.pass_obj
def tools(
    options: Options,
    *,
    names: tuple[str, ...],
    schema: bool,
    api: str | None,
    queries: tuple[str, ...],
    toolset: str | None,
    tokens: bool,
    refresh: bool,
    no_connect: bool,
) -> None:
    """List the tools of each server as signatures.

    Cached lists are shown if there are any. Only servers without a cached list are started, and none that
    failed in the last minute, unless it is named; `--refresh` queries all of them.
    """
    if refresh and no_connect:
        msg = "`--refresh` and `--no-connect` cannot be used together."
        raise click.UsageError(msg)
    settings, servers, whole, codes = collect(
        options, names, refresh=refresh, connects=not no_connect, diverts=True
    )
    registry: ToolRegistry | ToolView = whole
    if toolset is not None:
        registry = whole.view(**find_toolset(settings, toolset))
        for one in servers.values():
            one.tools = [tool for tool in one.tools if registry.get(tool.name) is not None]
        servers = {name: one for name, one in servers.items() if one.tools}
    if queries:
        _search(options, registry, queries, [one for one in servers.values() if one.source is None])
        raise click.exceptions.Exit(overall_exit(codes))
    export = registry.export(api or "openai") if api or tokens else None
    if export is not None and not tokens:
        _print_export(options, export)
    elif options.json:
        costs = _costs(export) if export else None
        rows = [_server_report(one, schema=schema, costs=costs) for one in servers.values()]
        output.say_json(ToolsReport(servers=rows, apis=_api_costs(registry) if tokens else UNSET))
    else:
        if not servers:
            output.say(no_servers(options))
        _show(list(servers.values()), schema=schema, costs=_costs(export) if export else None)
        if tokens and len(registry):
            _show_api_costs(registry)
        exits.report_problems(settings)
    if (code := overall_exit(codes)) is Exit.DONE:
        offer_to_keep(options)
    raise click.exceptions.Exit(code)


def collect(
    options: Options, names: tuple[str, ...], *, refresh: bool, connects: bool = True, diverts: bool = False
) -> tuple[Settings, dict[str, ServerTools], ToolRegistry, list[Exit]]:
    """Return the tools of servers, from the cache if possible.

    Args:
        options: The options of the command.
        names: The servers; all enabled ones if empty.
        refresh: Whether to query the servers instead of using the cache.
        connects: Whether to start servers.
        diverts: Whether the daemon may run the command.

    Returns:
        The settings, the servers by name, all tools, and the exit codes of servers that failed.
    """
    names = take_servers(options, names)
    settings = find_servers(options)
    exits.require_settings(settings)
    if diverts:
        divert(options, settings)
    specs = wanted(settings, names)
    servers = {spec.name: ServerTools(spec) for spec in specs}
    if not refresh:
        for name, listed in known_tools(settings, specs).items():
            servers[name].tools, servers[name].source = listed, "cache"
    codes: list[Exit] = []
    unknown = [one.spec for one in servers.values() if one.source is None]
    if unknown and connects and not (names or refresh or options.server):
        codes = _recall(settings, unknown, servers)
        unknown = [spec for spec in unknown if servers[spec.name].error is None]
    if unknown and connects:
        codes += run(_ask(options, settings, unknown, servers))
    registry = settled(settings, [tool for one in servers.values() for tool in one.tools])
    for name, one in servers.items():
        one.tools = [tool for tool in registry if tool.server == name]
    return settings, servers, registry, codes


def _recall(
    settings: Settings, specs: Sequence[ServerSpec], servers: Mapping[str, ServerTools]
) -> list[Exit]:
    """Take over the failures of the last minute, and return their exit codes."""
    codes: list[Exit] = []
    recent = recent_failures()
    for spec in specs:
        failed = recent.get(_key(settings, spec))
        if failed is not None:
            ago = max(1, round(time.time() - failed.at))
            step = failed.next_step
            servers[spec.name].error = _error(failed.code, failed.cause, step)
            again = typed(f"dragoman tools {quote(spec.name)}")
            output.warn(f"{spec.name}: {failed.cause} ({ago} s ago; try it again: {again}). Run: {step}")
            codes.append(Exit(failed.exit_code))
    return codes


def _error(code: str, cause: str, step: str) -> output.ErrorReport:
    return output.ErrorReport(code=code, message=cause, hint=f"run `{step}`")


def _key(settings: Settings, spec: ServerSpec) -> str:
    return spec_key(spec, settings.root or str(Path.cwd()))


async def _ask(
    options: Options, settings: Settings, specs: Sequence[ServerSpec], servers: dict[str, ServerTools]
) -> list[Exit]:
    async with connected(options, settings, specs) as live:
        codes = live.warn_of_failures()
        failed: dict[str, Failure] = {}
        for status in live.status():
            one = servers[status.name]
            one.tools = [tool for tool in live.mcp.tools() if tool.server == status.name]
            if status.state == "ready":
                one.source = "server"
            else:
                one.source = "cache" if one.tools else None
                code = status.error_code or "server.not_ready"
                found = live.explain(status.name)
                one.error = _error(code, found.cause, found.next_step)
                if live.code(status) in (Exit.UNREACHABLE, Exit.TIMEOUT):  # the others are known at once
                    failed[_key(settings, one.spec)] = Failure(
                        at=time.time(),
                        code=code,
                        cause=found.cause,
                        next_step=found.next_step,
                        exit_code=int(live.code(status)),
                    )
        with suppress(ConfigError):  # a list of tools needs no memory
            remember_failures(failed, dict.fromkeys(_key(settings, spec) for spec in specs))
    return codes


def _print_export(options: Options, export: Export) -> None:
    for name, reason in export.left_out.items():
        output.warn(f"Skipped {name}: {reason}")
    output.say_json(ExportReport.of(export) if options.json else export.tools)


def _search(
    options: Options,
    registry: ToolRegistry | ToolView,
    queries: Sequence[str],
    missing: Sequence[ServerTools],
) -> None:
    from dragoman.tools.search import ToolIndex

    index = ToolIndex(registry)
    try:
        # The first search computes vectors; words answer if that takes too long, and the next one continues.
        if not index.wait(VECTOR_WAIT):
            output.note(f"Searched by words: the meanings of {index.pending} tools are not computed yet.")
        hits = index.find(queries, limit=MOST_FOUND * len(queries))
    finally:
        index.close()
    found = [tool for hit in hits if (tool := registry.get(hit.name)) is not None]
    if options.json:
        rows = [FoundTool.of(tool, tool=tool.own_name, signature=signature_text(tool)) for tool in found]
        output.say_json(SearchReport(found=rows, missing=[one.spec.name for one in missing]))
        return
    if not found:
        output.say("No matching tool. Try other words.")
    for tool in found:
        _show_tool(tool, schema=False, cost=None)
        click.secho(f"      {output.one_line(tool.server)}", dim=True)
    for one in missing:
        if one.error is None:  # the others have a warning
            output.note(f"{output.one_line(one.spec.name)}: tools not loaded yet")


def _api_costs(registry: ToolRegistry | ToolView) -> list[ApiCost]:
    """Estimate the tokens of all tools in each API, alone and with a search."""
    from dragoman.agent.offer import ToolLimit, ToolOffer, estimate_tokens

    return [
        ApiCost(
            api=api,
            tokens=estimate_tokens(registry.export(api).tools),
            with_search=estimate_tokens(ToolOffer(registry, api, ToolLimit(count=0)).current().tools),
        )
        for api in sorted(APIS, key=lambda api: model_api(api).cost_place)
        if model_api(api).cost_place
    ]


def _show_api_costs(registry: ToolRegistry | ToolView) -> None:
    click.echo()
    for cost in _api_costs(registry):
        said = f"about {cost.tokens} tokens; with a search about {cost.with_search}"
        click.echo(f"{cost.api:<10} {said}")


def _costs(export: Export) -> dict[str, int]:
    """Estimate the tokens of each tool, by exposed name."""
    from dragoman.tools.result.budget import estimate_tokens

    return {
        name: estimate_tokens(json.dumps(tool, ensure_ascii=False, separators=(",", ":")))
        for name, tool in zip(export.aliases, export.tools, strict=True)
    }


def _server_report(one: ServerTools, *, schema: bool, costs: dict[str, int] | None) -> ServerToolsReport:
    return ServerToolsReport.of(
        one,
        server=one.spec.name,
        tools=[_row(tool, schema=schema, costs=costs) for tool in one.tools],
        tokens=UNSET if costs is None else sum(costs.get(tool.name, 0) for tool in one.tools),
    )


def _row(tool: ToolDef, *, schema: bool, costs: dict[str, int] | None) -> ToolRow:
    return ToolRow.of(
        tool,
        tool=tool.own_name,
        signature=signature_text(tool),
        input_schema=tool.input_schema if schema else UNSET,
        output_schema=tool.output_schema if schema else UNSET,
        tokens=UNSET if costs is None else costs.get(tool.name, 0),
    )


def _show(servers: Sequence[ServerTools], *, schema: bool, costs: dict[str, int] | None) -> None:
    for index, one in enumerate(servers):
        if index:
            click.echo()
        _head(one, costs)
        for tool in one.tools:
            _show_tool(tool, schema=schema, cost=None if costs is None else costs.get(tool.name, 0))
    if costs is not None and len(servers) > 1:
        click.echo(f"\nTotal: about {sum(costs.values())} tokens")
    if any(one.source == "cache" for one in servers):
        output.note("Cached list. Use --refresh to query the servers.")


def _head(one: ServerTools, costs: dict[str, int] | None) -> None:
    count = len(one.tools)
    about = "tools not loaded yet" if one.source is None else f"{count} tool{'s' * (count != 1)}"
    if costs is not None and one.source is not None:
        about += f", about {sum(costs.get(tool.name, 0) for tool in one.tools)} tokens"
    first = one.tools[0] if one.tools else None
    if first and first.name != first.own_name and first.name.endswith(first.own_name):
        about += f" (model names: {output.one_line(first.name.removesuffix(first.own_name))}*)"
    click.echo(f"{click.style(output.one_line(one.spec.name), bold=True)}  {click.style(about, dim=True)}")


def _show_tool(tool: ToolDef, *, schema: bool, cost: int | None) -> None:
    width = output.columns()
    for line in _styled(tool, width):
        click.echo(line)
    first = output.one_line(tool.description)
    if schema:
        for line in output.safe(tool.description.strip()).splitlines():
            click.secho(f"      {line}", dim=True)
    elif first:
        click.secho(f"      {first if width is None else output.cut(first, width - 6)}", dim=True)
    if cost is not None:
        click.secho(f"      about {cost} tokens", dim=True)
    if schema:
        shown: dict[str, Any] = {"name": tool.name, "input_schema": tool.input_schema}
        shown |= {"output_schema": tool.output_schema} if tool.output_schema else {}
        shown |= {"annotations": dict(tool.annotations)} if tool.annotations else {}
        text = output.safe(json.dumps(shown, ensure_ascii=False, indent=2))
        click.echo("\n".join(f"      {line}" for line in text.splitlines()))


def _styled(tool: ToolDef, width: int | None) -> list[str]:
    """Return the lines of a signature, wrapped between arguments, with a colored name."""
    name = tool.own_name
    plain = "".join(text for text, _ in pieces(tool, name))
    lines = [f"  {plain}"] if width is None else output.wrapped(f"  {plain}", width, " " * 6)
    lines = [line if width is None else output.cut(line, width) for line in lines]
    shown = output.safe(name)
    if lines[0].startswith(f"  {shown}("):
        lines[0] = f"  {click.style(shown, fg='cyan')}{lines[0][len(shown) + 2 :]}"
    return lines
