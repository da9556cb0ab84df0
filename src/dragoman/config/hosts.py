"""The servers of other hosts on this machine, added to an application's own as the weakest layer.

Each host is read by its own profile, so that its rules apply to its servers, and only to them: a list of
excluded servers in one host's file says nothing about the servers of another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from dragoman.model import Layers
from dragoman.trust.layers import as_read

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from dragoman.model import ServerSpec, Settings, Statement


def with_hosts(own: Settings, hosts: Sequence[Settings]) -> Settings:
    """Return the settings of an application together with the servers of hosts.

    Args:
        own: The application's own settings, as read; its servers win.
        hosts: The settings of each host, as read, the strongest first.
    """
    everything = [own, *hosts]
    layers = [one.layers or Layers() for one in everything]
    servers = _union([one.servers for one in layers])
    statements = list(layers[0].statements)
    for one in layers[1:]:
        theirs = {spec.name for spec in one.servers if spec in servers}
        statements += (kept for statement in one.statements for kept in _restricted(statement, theirs))
    merged = layers[0].replace(
        servers=servers,
        own=_union([one.own for one in layers]),
        statements=statements,
        problems=[problem for one in layers for problem in one.problems],
        warnings=[warning for one in layers for warning in one.warnings],
    )
    sources = [source for one in everything for source in one.sources]
    by_field = any(one.by_field for one in everything)
    return as_read(own.replace(layers=merged, sources=sources, by_field=by_field))


def _union(lists: Iterable[Sequence[ServerSpec]]) -> list[ServerSpec]:
    """Return one definition of each name; a user's own file wins over a project's."""
    every = [spec for specs in lists for spec in specs]
    found: dict[str, ServerSpec] = {}
    for spec in sorted(every, key=lambda spec: spec.origin.scope == "project"):
        found.setdefault(spec.name, spec)
    return list(found.values())


def _restricted(one: Statement, names: Collection[str]) -> Iterable[Statement]:
    """Yield a host's setting as far as it is about the host's own servers."""
    match one.key:
        case "inputs":
            yield one
        case "without_servers":
            listed = [name for name in cast("Sequence[str]", one.data) if name in names]
            yield one.replace(data=listed)
        case "only_servers":
            others = sorted(set(names) - set(cast("Sequence[str]", one.data)))
            yield one.replace(key="without_servers", data=others)
        case "enabled" if one.data is False:
            yield one.replace(key="without_servers", data=sorted(names))
        case _:
            return
