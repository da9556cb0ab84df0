"""Tools as typed source code, for programs that call them through the gateway.

One module for each language; Python's is `agent.code.stubs`, which code mode needs as well.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

from dragoman.tools.names import COMMON, assign
from dragoman.tools.stubs.typed_tools import Names, snake

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dragoman.model import ToolDef
    from dragoman.tools.stubs.typed_tools import File

Language: TypeAlias = Literal["typescript", "go", "rust"]
LANGUAGES: tuple[Language, ...] = get_args(Language)


class Stubs(NamedTuple):
    """The source code for one server."""

    server: str
    module: str
    tools: Mapping[str, ToolDef]
    """By the names by which clients of the gateway call them."""
    file: File


def stubs_of(tools: Iterable[ToolDef], language: Language) -> list[Stubs]:
    """Return the source code for tools of servers, one file for each server."""
    offered = {tool.name: tool for tool in tools if tool.server}
    by_server: dict[str, dict[str, ToolDef]] = {}
    for name, alias in assign(offered, COMMON).items():
        by_server.setdefault(offered[name].server, {})[alias] = offered[name]
    write = importlib.import_module(f"dragoman.tools.stubs.{language}").file_of
    modules = Names()
    named = ((server, modules.unique(_module(server))) for server in sorted(by_server))
    return [
        Stubs(server, module, by_server[server], write(server, module, by_server[server]))
        for server, module in named
    ]


def _module(server: str) -> str:
    """Return the name of a server as a module: ASCII only, since Go's import paths have to be."""
    ascii_only = "".join(char if char.isascii() else " " for char in server)
    return snake(ascii_only) if any(char.isalnum() for char in ascii_only) else "server"
