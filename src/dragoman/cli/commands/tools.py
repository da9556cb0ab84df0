"""`dragoman tools`: list tools, from the cache if possible."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import click

from dragoman.cli import exits, output
from dragoman.cli.adhoc import HOW_TO_TRY, AdHocCommand, offer_to_keep, take_servers
from dragoman.cli.arguments import pieces, signature_text
from dragoman.cli.discover import find_servers, no_servers
from dragoman.cli.exits import Exit, run, together
from dragoman.cli.known import known_tools, settled, wanted
from dragoman.cli.options import SERVERS, Options, common_options, timeout_option, yes_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.cli.json_shapes import ErrorShape, ExportReport, ServerToolsShape, ToolShape, ToolsReport
    from dragoman.model import ServerSpec, Settings, ToolDef
    from dragoman.tools.export.export import Api, Export
    from dragoman.tools.registry import ToolRegistry

_FORMATS = ("openai", "responses", "anthropic", "gemini", "gemini-openapi", "ai-sdk")


@dataclass(slots=True)
class ServerTools:
    """The tools of one server, and where the list comes from."""

    spec: ServerSpec
    tools: list[ToolDef] = field(default_factory=list["ToolDef"])
    source: Literal["cache", "server"] | None = None
    error: ErrorShape | None = None


@click.command(cls=AdHocCommand, epilog=HOW_TO_TRY)
@common_options
@timeout_option
@yes_option
@click.argument("names", nargs=-1, metavar="[SERVER]...", shell_complete=SERVERS)
@click.option("--schema", is_flag=True, help="Show full descriptions and schemas.")
@click.option("--format", "api", type=click.Choice(_FORMATS), help="Print JSON for a model API.")
@click.option("--tokens", is_flag=True, help="Show the approximate token count.")
@click.option("--refresh", is_flag=True, help="Query the servers instead of using the cache.")
@click.option("--no-connect", is_flag=True, help="Never start a server, even if it has no cached list.")
@click.pass_obj
def tools(
    options: Options,
    *,
    names: tuple[str, ...],
    schema: bool,
    api: Api | None,
    tokens: bool,
    refresh: bool,
    no_connect: bool,
) -> None:
    """List the tools of each server as signatures.

    Cached lists are shown if there are any. Only servers without a cached list are started; `--refresh`
    queries all of them.
    """
    if refresh and no_connect:
        msg = "`--refresh` and `--no-connect` cannot be used together."
        raise click.UsageError(msg)
    settings, servers, registry, codes = collect(options, names, refresh=refresh, connects=not no_connect)
    export = registry.export(api or "openai") if api or tokens else None
    if export is not None and not tokens:
        _print_export(options, export)
    elif options.json:
        costs = _costs(export) if export else None
        report: ToolsReport = {
            "servers": [_server_json(one, schema=schema, costs=costs) for one in servers.values()]
        }
        output.say_json(report)
    else:
        if not servers:
            output.say(no_servers(options))
        _show(list(servers.values()), schema=schema, costs=_costs(export) if export else None)
        exits.remark(settings)
    if (code := together(codes)) is Exit.DONE:
        offer_to_keep(options)
    raise click.exceptions.Exit(code)


def collect(
    options: Options, names: tuple[str, ...], *, refresh: bool, connects: bool = True
) -> tuple[Settings, dict[str, ServerTools], ToolRegistry, list[Exit]]:
    """Return the tools of servers, from the cache if possible.

    Args:
        options: The options of the command.
        names: The servers; all enabled ones if empty.
        refresh: Whether to query the servers instead of using the cache.
        connects: Whether to start servers.

    Returns:
        The settings, the servers by name, all tools, and the exit codes of servers that failed.
    """
    names = take_servers(options, names)
    settings = find_servers(options)
    exits.insist(settings)
    specs = wanted(settings, names)
    servers = {spec.name: ServerTools(spec) for spec in specs}
    if not refresh:
        for name, listed in known_tools(settings, specs).items():
            servers[name].tools, servers[name].source = listed, "cache"
    codes: list[Exit] = []
    unknown = [one.spec for one in servers.values() if one.source is None]
    if unknown and connects:
        codes = run(_ask(options, settings, unknown, servers))
    registry = settled(settings, [tool for one in servers.values() for tool in one.tools])
    for name, one in servers.items():
        one.tools = [tool for tool in registry if tool.server == name]
    return settings, servers, registry, codes


async def _ask(
    options: Options, settings: Settings, specs: Sequence[ServerSpec], servers: dict[str, ServerTools]
) -> list[Exit]:
    from dragoman.cli.connect import connected, trouble

    async with connected(options, settings, specs) as live:
        codes = live.warn_of_failures()
        for status in live.status():
            one = servers[status.name]
            one.tools = [tool for tool in live.mcp.tools() if tool.server == status.name]
            if status.state == "ready":
                one.source = "server"
            else:
                one.source = "cache" if one.tools else None
                code = status.error_code or "server.not_ready"
                one.error = {"code": code, "message": trouble(status), "hint": ""}
    return codes


def _print_export(options: Options, export: Export) -> None:
    for name, reason in export.left_out.items():
        output.warn(f"Skipped {name}: {reason}")
    if not options.json:
        output.say_json(export.tools)
        return
    report: ExportReport = {
        "api": export.api,
        "tools": export.tools,
        "names": dict(export.names),
        "left_out": dict(export.left_out),
    }
    output.say_json(report)


def _costs(export: Export) -> dict[str, int]:
    """Estimate the tokens of each tool, by exposed name."""
    from dragoman.tools.result.budget import estimate_tokens

    return {
        name: estimate_tokens(json.dumps(tool, ensure_ascii=False, separators=(",", ":")))
        for name, tool in zip(export.aliases, export.tools, strict=True)
    }


def _server_json(one: ServerTools, *, schema: bool, costs: dict[str, int] | None) -> ServerToolsShape:
    shown: ServerToolsShape = {
        "server": one.spec.name,
        "source": one.source,
        "error": one.error,
        "tools": [_tool_json(tool, schema=schema, costs=costs) for tool in one.tools],
    }
    if costs is not None:
        shown["tokens"] = sum(costs.get(tool.name, 0) for tool in one.tools)
    return shown


def _tool_json(tool: ToolDef, *, schema: bool, costs: dict[str, int] | None) -> ToolShape:
    shown: ToolShape = {
        "name": tool.name,
        "tool": tool.original_name,
        "title": tool.title,
        "description": tool.description,
        "signature": signature_text(tool),
        "annotations": dict(tool.annotations),
    }
    if schema:
        shown["input_schema"], shown["output_schema"] = tool.input_schema, tool.output_schema
    if costs is not None:
        shown["tokens"] = costs.get(tool.name, 0)
    return shown


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
    if first and first.name != first.original_name and first.name.endswith(first.original_name):
        about += f" (model names: {output.one_line(first.name.removesuffix(first.original_name))}*)"
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
    name = tool.original_name or tool.name
    plain = "".join(text for text, _ in pieces(tool, name))
    lines = [f"  {plain}"] if width is None else output.wrapped(f"  {plain}", width, " " * 6)
    lines = [line if width is None else output.cut(line, width) for line in lines]
    shown = output.safe(name)
    if lines[0].startswith(f"  {shown}("):
        lines[0] = f"  {click.style(shown, fg='cyan')}{lines[0][len(shown) + 2 :]}"
    return lines
