"""What is known of servers without starting any: names from the configuration, tools from the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.errors import ConfigError, UnknownServerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dragoman.errors import ConnectError
    from dragoman.model import ServerSpec, Settings, ToolDef


def named(settings: Settings, name: str) -> ServerSpec:
    """Return the server of that name.

    Raises:
        UnknownServerError: There is none; it suggests the nearest.
    """
    spec = settings.server(name)
    if spec is None:
        raise unknown(settings, name)
    return spec


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
    import difflib

    return difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)


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
    from dragoman.trust.approval import comes_from_project

    return [spec for spec in specs if comes_from_project(spec, by_field=settings.by_field)]


def known_tools(settings: Settings, specs: Sequence[ServerSpec]) -> dict[str, list[ToolDef]]:
    """Return the tools of servers as they were listed last, by server, where that is known.

    Of a project's server that is not approved nothing is known.
    """
    from pathlib import Path

    from dragoman.cache import ManifestCache, default_folder, fingerprint
    from dragoman.tools.listing import readmit

    cache = ManifestCache(default_folder())
    root = settings.root or str(Path.cwd())
    found: dict[str, list[ToolDef]] = {}
    unapproved = refused(settings, specs)
    for spec in specs:
        if spec.name in unapproved:
            continue
        entries = cache.read(fingerprint(spec, root))
        if entries is not None:
            tools = readmit(entries, spec, template=spec.naming or settings.naming)
            found[spec.name] = sorted(tools, key=lambda tool: tool.name)
    return found


def may_own(settings: Settings, specs: Iterable[ServerSpec], name: str) -> list[ServerSpec]:
    """Return the servers that can have a tool under an exposed name; only their listings tell who has it."""
    found: list[ServerSpec] = []
    for spec in specs:
        template = (spec.naming or settings.naming).replace("{server}", spec.name)
        before, field, after = template.partition("{tool}")
        if field and name.startswith(before) and name.endswith(after):
            found.append(spec)
    return found
