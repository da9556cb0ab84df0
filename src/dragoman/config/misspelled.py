"""Find keys that were probably meant as one that is read: a wrong container, a misspelt setting.

A file in which nothing is found looks like one without servers: a misspelt `mcpServers` would go unnoticed.
Files of hosts have many keys that mean nothing to dragoman: a key is told only if it is close to one that the
dialect reads and its value has the right shape, or if it holds a map of servers under another host's key.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from dragoman.config.documents import dotted
from dragoman.suggest import suggest
from dragoman.visible import spelled_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dragoman.config.dialect import Dialect
    from dragoman.config.documents import Document, Pointer


class Doubt(NamedTuple):
    """A key that is not read, and what was probably meant."""

    pointer: Pointer
    message: str
    hint: str


MAX_KEYS = 1_000
"""Keys of one table that are compared; no person writes more."""
_CLOSE = 0.81
"""How alike a container has to be: `servers` for `mcpServers` is, `lspServers` is not."""
_CLOSE_SETTING = 0.75
_CLOSE_PARENT = 0.6
"""For a table that holds what is looked for, so that little else can be meant."""
_ELSEWHERE = {"mcpservers", "mcpserver", "servers", "server", "contextservers", "mcp"}
"""Containers of one host or another, folded."""
_OTHER_PROTOCOLS = ("lsp", "acp", "agent", "language")
_OF_SERVERS = frozenset({"command", "url", "serverUrl", "httpUrl"})


def doubts(document: Document, dialect: Dialect, root: str, *, found_any: bool) -> Iterable[Doubt]:
    """Yield the keys of a file that were probably meant otherwise.

    Args:
        document: The file.
        dialect: What it is read as.
        root: The project's directory.
        found_any: Whether it has servers in the right place.
    """
    data: object = document.data
    if not isinstance(data, dict):
        return
    containers: list[tuple[str, ...]] = [tuple(path) for path in (dialect.container, *dialect.also_in)]
    if dialect.per_project is not None:
        containers.append(("projects", root, *dialect.container))
    settings = [tuple(path) for path in dialect.settings]
    likely = dotted(tuple(dialect.container))
    told: set[Pointer] = set()
    for path in (*containers, *settings):
        for depth in range(len(path)):
            level = path[:depth]
            table = _table(cast("object", data), level)
            # Names of servers are not keys.
            if table is None or level in containers:
                break
            read = {
                one[depth] for one in (*containers, *settings) if one[:depth] == level and len(one) > depth
            }
            for doubt in _in_level(table, level, read, containers):
                if doubt.pointer not in told:
                    told.add(doubt.pointer)
                    yield doubt
    whole = {key: value for key, value in cast("dict[str, Any]", data).items() if key[:1] != "$"}
    if whole and not found_any and not told and all(map(_is_server, whole.values())):
        names = ", ".join(f"`{spelled_out(name):.40}`" for name in list(whole)[:3])
        yield Doubt((), f"servers at the top level are not read: {names}", f"put them under `{likely}`")


def _in_level(
    table: dict[str, Any], level: tuple[str, ...], read: set[str], containers: Sequence[tuple[str, ...]]
) -> Iterable[Doubt]:
    own = containers[0]
    folded = {_fold(key): key for key in read}
    if own[: len(level)] == level:
        # Of several spellings that are read, the dialect's own is proposed.
        folded[_fold(own[len(level)])] = own[len(level)]
    for key, value in islice(table.items(), MAX_KEYS):
        if key in read or not key or key[0] in "$_/":
            continue
        short = _fold(key)
        near = [short] if short in folded else suggest(short, folded, count=1, cutoff=_CLOSE_PARENT)
        meant = folded[near[0]] if near else ""
        if meant and _is_meant(short, value, (*level, meant), containers):
            yield _doubt((*level, key), value, dotted((*level, meant)))
        elif short in _ELSEWHERE and (found := _servers_in(value)):
            yield _doubt((*level, key), found, dotted(own))


def _is_meant(
    short: str, value: object, meant: tuple[str, ...], containers: Sequence[tuple[str, ...]]
) -> bool:
    """Return whether a value under a key has the shape of what the key was probably meant for."""
    close = suggest(short, [_fold(meant[-1])], count=1, cutoff=_CLOSE)
    if meant in containers:
        other = short.startswith(_OTHER_PROTOCOLS)
        return bool(close) and not other and bool(_servers_in(value))
    inner = [path[len(meant)] for path in containers if path[: len(meant)] == meant]
    if inner:
        wanted = {_fold(name) for name in inner}
        return isinstance(value, dict) and any(_fold(key) in wanted for key in cast("dict[str, Any]", value))
    return bool(suggest(short, [_fold(meant[-1])], count=1, cutoff=_CLOSE_SETTING))


def _doubt(pointer: tuple[str, ...], value: object, likely: str) -> Doubt:
    if count := len(_servers_in(value)):
        message = f"not a key that is read, so {count} server{'s are' if count > 1 else ' is'} not used"
    else:
        message = "not a key that is read, so it has no effect"
    return Doubt(pointer, message, f"did you mean `{likely}`?")


def _servers_in(value: object) -> list[Any]:
    """Return the entries of a value that looks like a container of servers; empty if it does not."""
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        inner = [_servers_in(each) for key, each in table.items() if _fold(key) in _ELSEWHERE]
        if any(map(_is_server, table.values())):
            return list(table.values())
        return next((found for found in inner if found), list[Any]())
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return items if any(_is_server(item) for item in items) else []


def _is_server(value: object) -> bool:
    return isinstance(value, dict) and bool(_OF_SERVERS & cast("dict[str, Any]", value).keys())


def _table(data: object, path: Sequence[str]) -> dict[str, Any] | None:
    for part in path:
        data = cast("dict[str, Any]", data).get(part) if isinstance(data, dict) else None
    return cast("dict[str, Any]", data) if isinstance(data, dict) else None


def _fold(key: str) -> str:
    return "".join(char for char in key.lower() if char.isalnum())


def variable_doubts(env: Mapping[str, object], prefix: str, keys: Sequence[str]) -> Iterable[Doubt]:
    """Yield environment variables that were probably meant as one of a server.

    Args:
        env: The environment.
        prefix: The application's, as `LEGAL`.
        keys: What a variable of a server may end with.
    """
    start = f"{prefix}_MCP_"
    wanted = [f"{start}{key}" for key in keys]
    for name in sorted(env):
        if not name.startswith(f"{prefix}_") or not str(env[name]).strip():
            continue
        if name.startswith(start) and name.endswith(tuple(keys)):
            continue
        near = _of_named_server(name, start, keys) or suggest(name, wanted, count=1, cutoff=0.85)
        if near:
            message = "not a variable that is read, so it has no effect"
            yield Doubt((name,), message, f"did you mean `{near[0]}`?")


def _of_named_server(name: str, start: str, keys: Sequence[str]) -> list[str]:
    """Return the variable of a named server that was probably meant: only its end can be compared."""
    words = name.removeprefix(start).split("_") if name.startswith(start) else []
    for at in range(1, len(words)):
        if found := suggest("_".join(words[at:]), keys, count=1, cutoff=0.8):
            return [f"{start}{'_'.join(words[:at])}_{found[0]}"]
    return []
