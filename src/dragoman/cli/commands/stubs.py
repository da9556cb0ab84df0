"""`dragoman stubs`: write the tools of each server as typed source code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from dragoman.cli import output
from dragoman.cli.adhoc import HOW_TO_TRY, AdHocCommand
from dragoman.cli.commands.tools import collect
from dragoman.cli.exits import overall_exit
from dragoman.cli.options import SERVERS, Options, common_options, timeout_option, yes_option
from dragoman.storage.files import private_folder, write_atomically
from dragoman.struct import Report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dragoman.model import ToolDef
    from dragoman.tools.stubs import Language


class StubModule(Report, kw_only=True):
    """One file that `dragoman stubs` has written."""

    module: str
    """The name of the Python module, and of the file without `.pyi`."""
    server: str
    functions: Mapping[str, str]
    """The exposed name of the tool for each function."""


class StubsReport(Report, kw_only=True):
    """`dragoman stubs DIR --json`."""

    folder: str
    modules: Sequence[StubModule]


@click.command(cls=AdHocCommand, epilog=HOW_TO_TRY)
@common_options
@timeout_option
@yes_option
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.argument("names", nargs=-1, metavar="[SERVER]...", shell_complete=SERVERS)
@click.option(
    "--language",
    type=click.Choice(["python", "typescript", "go", "rust"]),
    default="python",
    show_default=True,
    help="What to write: a Python stub file, or types for a program that uses `dragoman serve`.",
)
@click.option("--refresh", is_flag=True, help="Query the servers instead of using the cache.")
@click.pass_obj
def stubs(options: Options, *, folder: Path, names: tuple[str, ...], language: str, refresh: bool) -> None:
    """Write the tools of each server as typed source code.

    The Python types are those that programs of a model are checked against. The other languages have the
    names by which `dragoman serve` offers the tools, and the head of each file shows a call. Files of other
    servers in DIR stay.
    """
    _, _, registry, codes = collect(options, names, refresh=refresh)
    tools = [tool for tool in registry if "model" in tool.audience]
    written = _python(tools) if language == "python" else _other(tools, cast("Language", language))
    for file, text, _ in written:
        private_folder((folder / file).parent)
        write_atomically(folder / file, text.encode("utf-8"), mode=None)
    if options.json:
        output.say_json(StubsReport(folder=str(folder), modules=[module for _, _, module in written]))
    else:
        for file, _, module in written:
            count = len(module.functions)
            where = output.shorten_path(str(folder / file))
            click.echo(f"{output.one_line(where)}  {count} tool{'s' * (count != 1)}")
    raise click.exceptions.Exit(overall_exit(codes))


def _python(tools: list[ToolDef]) -> list[tuple[str, str, StubModule]]:
    from dragoman.agent.code.stubs import modules_of

    return [
        (
            f"{module.name}.pyi",
            module.documented(),
            StubModule.of(
                module,
                module=module.name,
                functions={name: one.tool.name for name, one in module.functions.items()},
            ),
        )
        for module in modules_of(tools).values()
    ]


def _other(tools: list[ToolDef], language: Language) -> list[tuple[str, str, StubModule]]:
    from dragoman.tools.stubs import stubs_of

    return [
        (
            one.file.path,
            one.file.text,
            StubModule.of(one, functions={name: tool.name for name, tool in one.tools.items()}),
        )
        for one in stubs_of(tools, language)
    ]
