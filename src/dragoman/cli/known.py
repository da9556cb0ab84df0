"""What is known of servers without starting any: names from the configuration, tools from the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.errors import ConfigError, UnknownServerError
from dragoman.suggesting import suggest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dragoman.errors import ConnectError
    from dragoman.model import ServerSpec, Settings, ToolDef
    from dragoman.tools.registry import ToolRegistry


def named(settings: Settings, name: str) -> ServerSpec:
    """Return the server of that name.

    Raises:
        UnknownServerError: There is none; it suggests the nearest.
    """
    spec = settings.server(name)
    if spec is None:
        raise unknown(settings, name)
    return spec


def in_question(settings: Settings, name: str) -> ServerSpec:
    """Return the project's definition of that name where it is not in effect, else the server of that name.

    Raises:
        UnknownServerError: There is none; it suggests the nearest.
    """
    theirs = next((spec for spec in settings.unapproved if spec.name == name), None)
    return theirs or named(settings, name)


def unknown(settings: Settings, name: str) -> UnknownServerError:
    """Return the error for a name that no server has."""
    return unknown_among([one.name for one in settings.servers], name, f"no server is called `{name}`")


def unknown_among(known: Sequence[str], name: str, msg: str) -> UnknownServerError:
    """Return the error for a name that none of some servers has; it suggests the nearest."""
    alike = near(name, known)
    hint = f"did you mean {' or '.join(alike)}?" if alike else f"there are: {', '.join(known) or 'none'}"
    return UnknownServerError(msg, server=name, suggestions=alike, hint=hint)


def near(name: str, known: Iterable[str]) -> list[str]:
    """Return the names that may have been meant."""
    return suggest(name, known)


def wanted(settings: Settings, names: Sequence[str]) -> list[ServerSpec]:
    """Return the servers of these names, or every one that is on.

    Raises:
        UnknownServerError: There is no server of such a name.
        ConfigError: A server that was named is off, or all of them are.
    """
    specs = [named(settings, name) for name in dict.fromkeys(names)]
    if not settings.enabled:
        msg = "MCP is switched off in the configuration"
        raise ConfigError(msg, hint="take `enabled = false` out of its `[mcp]` table")
    for spec in specs:
        if not spec.enabled:
            msg = f"server `{spec.name}` is switched off"
            raise ConfigError(msg, source=spec.origin.source, hint=f"`dragoman enable {spec.name}`")
    return specs or [spec for spec in settings.servers if spec.enabled]


def refused(settings: Settings, specs: Sequence[ServerSpec]) -> dict[str, ConnectError]:
    """Return the errors of the project's servers that nobody has approved, by name."""
    if not any(spec.origin.scope == "project" or spec.shadowed for spec in specs):
        return {}
    from pathlib import Path

    from dragoman.trust_store import Approvals

    return Approvals().refused(of_project(settings, specs), settings.root or Path.cwd(), settings.inputs)


def of_project(settings: Settings, specs: Iterable[ServerSpec]) -> list[ServerSpec]:
    """Return the servers in which a file of the project has a say."""
    from dragoman.trust.layers import comes_from_project

    return [spec for spec in specs if comes_from_project(spec, by_field=settings.by_field)]


def known_tools(settings: Settings, specs: Sequence[ServerSpec]) -> dict[str, list[ToolDef]]:
    """Return the tools of servers as they were listed last, by server and name, where that is known.

    Of a project's server that is not approved nothing is known.
    """
    registry, known = known_registry(settings, specs)
    found: dict[str, list[ToolDef]] = {spec.name: [] for spec in specs if spec.name in known}
    for tool in registry:
        if tool.server in found:
            found[tool.server].append(tool)
    return found


def known_registry(settings: Settings, specs: Sequence[ServerSpec] = ()) -> tuple[ToolRegistry, set[str]]:
    """Return what is known of these servers and of all that are on, and of which of them anything is known.

    Tools have the names that they have beside each other, so those of all servers count.
    """
    from pathlib import Path

    from dragoman.cache import ManifestCache, default_folder, fingerprint
    from dragoman.tools.listing import readmit

    cache = ManifestCache(default_folder())
    root = settings.root or str(Path.cwd())
    everywhere = {spec.name: spec for spec in (*specs, *(one for one in settings.servers if one.enabled))}
    found: list[ToolDef] = []
    known: set[str] = set()
    unapproved = refused(settings, list(everywhere.values()))
    for name, spec in everywhere.items():
        entries = None if name in unapproved else cache.read(fingerprint(spec, root))
        if entries is not None:
            found += readmit(entries, spec, template=spec.naming or settings.naming)
            known.add(name)
    return settled(settings, found), known


def settled(settings: Settings, tools: Iterable[ToolDef]) -> ToolRegistry:
    """Return the tools of several servers under the names that they have beside each other."""
    from dragoman.tools.registry import ToolRegistry

    registry = ToolRegistry()
    if settings.collisions == "skip":
        registry.arrange(spec.name for spec in settings.servers)
    registry.register_all(tools)
    return registry


def may_own(settings: Settings, specs: Iterable[ServerSpec], name: str) -> list[ServerSpec]:
    """Return the servers that can have a tool under an exposed name; only their listings tell who has it."""
    found: list[ServerSpec] = []
    for spec in specs:
        template = (spec.naming or settings.naming).replace("{server}", spec.name)
        before, field, after = template.partition("{tool}")
        if field and name.startswith(before) and name.endswith(after):
            found.append(spec)
    # A project's server that is not approved cannot have it, and its refusal would hide the others.
    unapproved = refused(settings, found)
    return [spec for spec in found if spec.name not in unapproved] or found
