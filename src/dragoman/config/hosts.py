"""The servers of other hosts on this machine, added to an application's own as the weakest layer.

Nothing is copied: a host's files are read each time. Whether the user wants the servers of a host is kept in
the user's data.

Each host is read by its own profile, so that its rules apply to its servers, and only to them: a list of
excluded servers in one host's file says nothing about the servers of another.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal, cast

from dragoman.config.dialects import HOSTS, dialect
from dragoman.config.profiles import profile_named
from dragoman.errors import ConfigError
from dragoman.model import Layers
from dragoman.storage.files import StoredFile, data_folder
from dragoman.struct import Struct
from dragoman.suggest import suggest
from dragoman.trust.layers import as_read
from dragoman.trust.own_gateway import is_own_gateway

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from dragoman.config.profiles import Profile
    from dragoman.model import ServerSpec, Settings, Statement


class Host(Struct):
    """A host on this machine that has servers."""

    name: str
    title: str
    files: Sequence[str]
    servers: Sequence[ServerSpec]


def in_use() -> list[str]:
    """Return the apps whose servers the user wants to use."""
    return _answers("use")


def ignored() -> list[str]:
    """Return the apps whose servers the user does not want to use."""
    return _answers("ignore")


def remember(names: Iterable[str], *, use: bool) -> None:
    """Remember whether to use the servers of these apps.

    Raises:
        ConfigError: The file cannot be written.
    """
    chosen = list(names)
    keys = ("use", "ignore") if use else ("ignore", "use")

    def change(old: dict[str, list[str]]) -> dict[str, list[str]]:
        yes = dict.fromkeys([*old.get(keys[0], ()), *chosen])
        no = [name for name in old.get(keys[1], ()) if name not in chosen]
        return {keys[0]: sorted(yes), keys[1]: no}

    _file().change(change)


def _answers(key: str) -> list[str]:
    found = _file().content() or {}
    return [name for name in found.get(key, ()) if name in HOSTS]


def _file() -> StoredFile[dict[str, list[str]]]:
    return StoredFile(data_folder() / "hosts.json", _read, json.dumps, dict)


def _read(text: str) -> dict[str, list[str]]:
    found: object = json.loads(text)
    table = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    return {
        key: [str(name) for name in cast("list[object]", names)]
        for key, names in table.items()
        if isinstance(names, list)
    }


def find_hosts() -> list[Host]:
    """Return the hosts on this machine that have servers, in the usual order; nothing is started."""
    from dragoman.config.load import load  # it imports this module

    found: list[Host] = []
    for name in HOSTS:
        settings = load(name, log_problems=False)
        if servers := _theirs(settings.servers):
            files = dict.fromkeys(spec.origin.source for spec in servers)
            found.append(Host(name, dialect(name).title, list(files), servers))
    return found


def _theirs(specs: Iterable[ServerSpec]) -> list[ServerSpec]:
    """Return a host's servers without the gateway that `dragoman install` wrote: it is not theirs."""
    return [spec for spec in specs if not is_own_gateway(spec.transport)]


def about(found: Sequence[Host], shown: Callable[[str], str] = str) -> str:
    """Return how many servers were found where; `shown` shortens a path."""
    count = len({spec.name for host in found for spec in host.servers})
    listed = [f"{host.title} ({', '.join(map(shown, host.files))})" for host in found]
    servers = f"{count} server{'s' * (count != 1)}"
    return f"Found {servers} of {_joined(listed)}."


def _joined(texts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


def add_hosts(profile: str | Profile, hosts: Iterable[str] | Literal[True]) -> Profile:
    """Return a profile that uses other hosts, too; `True` stands for those that the user has approved.

    Raises:
        ConfigError: The profile or a host is unknown.
    """
    own = profile_named(profile) if isinstance(profile, str) else profile
    chosen = in_use() if hosts is True else [hosts] if isinstance(hosts, str) else list(hosts)
    for name in chosen:
        if name not in HOSTS:
            near = suggest(name, HOSTS, count=1)
            msg = f"unknown host `{name}` in `hosts`"
            raise ConfigError(
                msg, hint=f"did you mean `{near[0]}`?" if near else f"known: {', '.join(HOSTS)}"
            )
    return own.replace(hosts=[*own.hosts, *chosen])


def log_hosts() -> None:
    """Log, for a program without servers, which hosts have some and how to use them."""
    found = find_hosts()
    if found:
        # Imported late: most programs have servers, and logging is slow to import.
        import logging

        names = ", ".join(f'"{host.name}"' for host in found)
        how = f"to use them: `hosts=[{names}]`; or `hosts=True`, and once `dragoman config hosts --use`"
        logging.getLogger("dragoman").info("no servers configured. %s (%s)", about(found), how)


def with_hosts(own: Settings, hosts: Sequence[Settings]) -> Settings:
    """Return the settings of an application together with the servers of hosts.

    Args:
        own: The application's own settings, as read; its servers win.
        hosts: The settings of each host, as read, the strongest first.
    """
    everything = [own, *hosts]
    layers = [one.layers or Layers() for one in everything]
    servers = _union([layers[0].servers, *(_theirs(one.servers) for one in layers[1:])])
    statements = list(layers[0].statements)
    for one in layers[1:]:
        theirs = {spec.name for spec in one.servers if spec in servers}
        statements += (kept for statement in one.statements for kept in _restricted(statement, theirs))
    merged = layers[0].replace(
        servers=servers,
        own=_union([layers[0].own, *(_theirs(one.own) for one in layers[1:])]),
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
