"""`dragoman stubs`: write the tools of each server as a typed Python module."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dragoman.cli import output
from dragoman.cli.adhoc import HOW_TO_TRY, AdHocCommand
from dragoman.cli.commands.tools import collect
from dragoman.cli.exits import together
from dragoman.cli.options import SERVERS, Options, common_options, timeout_option, yes_option

if TYPE_CHECKING:
    from dragoman.cli.json_shapes import StubsReport


@click.command(cls=AdHocCommand, epilog=HOW_TO_TRY)
@common_options
@timeout_option
@yes_option
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.argument("names", nargs=-1, metavar="[SERVER]...", shell_complete=SERVERS)
@click.option("--refresh", is_flag=True, help="Query the servers instead of using the cache.")
@click.pass_obj
def stubs(options: Options, *, folder: Path, names: tuple[str, ...], refresh: bool) -> None:
    """Write the tools of each server as a Python stub file.

    The types are those that programs of a model are checked against. Files of other servers in DIR stay.
    """
    from dragoman.agent.code.stubs import modules_of
    from dragoman.storage.files import private_folder, write_atomically

    _, _, registry, codes = collect(options, names, refresh=refresh)
    modules = modules_of(tool for tool in registry if "model" in tool.audience)
    private_folder(folder)
    for module in modules.values():
        write_atomically(folder / f"{module.name}.pyi", module.documented().encode("utf-8"), mode=None)
    if options.json:
        report: StubsReport = {
            "folder": str(folder),
            "modules": [
                {
                    "module": module.name,
                    "server": module.server,
                    "functions": {name: one.tool.name for name, one in module.functions.items()},
                }
                for module in modules.values()
            ],
        }
        output.say_json(report)
    else:
        for module in modules.values():
            count = len(module.functions)
            where = output.shorten_path(str(folder / f"{module.name}.pyi"))
            click.echo(f"{output.one_line(where)}  {count} tool{'s' * (count != 1)}")
    raise click.exceptions.Exit(together(codes))
