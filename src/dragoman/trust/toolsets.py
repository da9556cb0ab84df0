"""Toolsets: named selections of tools over all servers, such as `["github:*", "!github:delete_*"]`. Pure.

The patterns are those of a view: exposed names, `server:tool`, or globs of them. One that begins with `!`
leaves tools out, and wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict, cast

from dragoman.errors import ConfigError
from dragoman.suggest import suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dragoman.model import Settings, Statement


class Toolset(TypedDict):
    """The patterns of one toolset, as a view takes them."""

    allow: list[str]
    deny: list[str]


def read_toolsets(data: object) -> tuple[dict[str, Toolset | None], list[str]]:
    """Return the toolsets of a table, `None` for one that cannot be read, and what is wrong in it."""
    if not isinstance(data, Mapping):
        return {}, ["`toolsets` must be a table"]
    found: dict[str, Toolset | None] = {}
    problems: list[str] = []
    for name, said in cast("Mapping[str, object]", data).items():
        patterns = _patterns(said)
        # A toolset that only leaves tools out has all others.
        allow = [one for one in patterns if not one.startswith("!")] or ["*"]
        if patterns:
            found[name] = Toolset(allow=allow, deny=[one[1:] for one in patterns if one.startswith("!")])
        else:
            # It keeps its name: a weaker file's toolset must not take its place.
            found[name] = None
            problems.append(f'`toolsets.{name}` must be a table with only `tools = ["server:tool", …]`')
    return found, problems


def _patterns(said: object) -> list[str]:
    """Return the patterns of a table that has nothing else; empty if it is something else."""
    if not isinstance(said, Mapping) or set(cast("Mapping[str, object]", said)) != {"tools"}:
        return []
    given = cast("Mapping[str, object]", said)["tools"]
    items = cast("list[object]", given) if isinstance(given, list) else []
    texts = [one for one in items if isinstance(one, str) and one.removeprefix("!").strip(" !")]
    if any(one != one.strip() or one.startswith("! ") for one in texts):
        return []
    return texts if len(texts) == len(items) else []


def toolsets(settings: Settings) -> dict[str, Toolset | None]:
    """Return every toolset by its name, the strongest file's if several have one.

    A project's toolsets count once its settings are approved: a name of the user's could get more tools.
    """
    found: dict[str, Toolset | None] = {}
    for one in _in_effect(settings):
        found = {**read_toolsets(one.data)[0], **found}
    return found


def find_toolset(settings: Settings, name: str) -> Toolset:
    """Return the toolset of that name.

    Raises:
        ConfigError: No toolset has this name.
    """
    known = toolsets(settings)
    if found := known.get(name):
        return found
    if name in known:
        msg = f"the toolset `{name}` cannot be read"
        raise ConfigError(msg, hint="run `dragoman config check`, which says where and why")
    msg = f"unknown toolset `{name}`"
    if any(name in read_toolsets(one.data)[0] for one in settings.toolsets):
        raise ConfigError(msg, hint="the project's settings have it; approve them: `dragoman trust approve`")
    near = suggest(name, known)
    listed = (
        f"configured: {', '.join(known)}" if known else "no toolset is configured: add `[mcp.toolsets.NAME]`"
    )
    raise ConfigError(msg, hint=f"did you mean {' or '.join(near)}?" if near else listed)


def toolset_of(settings: Callable[[], Settings], name: str) -> Callable[[], Toolset]:
    """Return what gives a toolset as it is now; one that goes, or cannot be read any more, has no tools.

    Raises:
        ConfigError: No toolset has this name now.
    """
    read = settings()
    found = find_toolset(read, name)

    def current() -> Toolset:
        # It is asked for each tool, and the settings are replaced when they change.
        nonlocal read, found
        if (now := settings()) is not read:
            read, found = now, toolsets(now).get(name) or Toolset(allow=[], deny=[])
        return found

    return current


def _in_effect(settings: Settings) -> Iterator[Statement]:
    return (one for one in settings.toolsets if one.scope != "project" or settings.trusts_project)
