"""Well-known servers: a small catalogue that comes with the package, as data in `catalogue.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any

from dragoman.config.expand import variables
from dragoman.model import Http, Origin, ServerSpec, Stdio

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One server of the catalogue."""

    name: str
    description: str
    needs: str = ""
    """What has to be installed: `node` or `uv`; empty for a server behind a URL."""
    command: str = ""
    args: Sequence[str] = ()
    arguments: Sequence[str] = ()
    """What follows `args` unless the user gives arguments of their own."""
    takes: str = ""
    """What those arguments are; empty where there are none."""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    env: Mapping[str, str] = field(default_factory=dict[str, str])

    def variables(self) -> list[str]:
        """Return the environment variables that it cannot do without."""
        found = [value for value in (*self.env.values(), *self.headers.values()) if ":-" not in value]
        return [name for value in found for name in variables(value)]

    def spec(self, name: str = "", arguments: Sequence[str] = ()) -> ServerSpec:
        """Return the server.

        Args:
            name: What it is called; as in the catalogue unless given.
            arguments: What the user wants instead of the usual arguments.

        Raises:
            ValueError: It takes no arguments.
        """
        if arguments and not self.takes:
            msg = f"`{self.name}` takes no arguments"
            raise ValueError(msg)
        transport = (
            Http(self.url, headers=self.headers)
            if self.url
            else Stdio(self.command, [*self.args, *(arguments or self.arguments)], env=self.env)
        )
        return ServerSpec(name or self.name, transport, origin=Origin(source="catalogue"))


def catalogue() -> dict[str, Item]:
    """Return the well-known servers by name, in the order of the file."""
    text = resources.files("dragoman.config").joinpath("catalogue.toml").read_text("utf-8")
    tables: dict[str, dict[str, Any]] = tomllib.loads(text)
    return {name: Item(name=name, **table) for name, table in tables.items()}
