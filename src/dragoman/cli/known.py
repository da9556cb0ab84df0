"""Look up servers in the configuration and tools in the cache, without starting a server."""

from __future__ import annotations

import re
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from dragoman.cli.options import typed
from dragoman.errors import (
    ConfigError,
    ConfigSyntaxError,
    UnknownServerError,
)
from dragoman.suggest import suggest
from dragoman.tools.names import around_tool

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dragoman.errors import DragomanError
    from dragoman.model import ServerSpec, Settings, ToolDef
    from dragoman.tools.registry import ToolRegistry

MAX_FILE_BYTES = 1024 * 1024
"""How much of a broken file is searched for a name."""


def named(settings: Settings, name: str) -> ServerSpec:
    """Return the server with this name.

    Raises:
        UnknownServerError: No server has this name; similar names are suggested.
        ConfigError: Its entry, or the file that it stands in, is broken.
    """
    spec = settings.server(name)
    if spec is None:
        raise unknown(settings, name)
    return spec


def in_question(settings: Settings, name: str) -> ServerSpec:
    """Return the project's unapproved definition with this name, or else the server with this name.

    Raises:
        UnknownServerError: No server has this name; similar names are suggested.
        ConfigError: Its entry, or the file that it stands in, is broken.
    """
    theirs = next((spec for spec in settings.unapproved if spec.name == name), None)
    return theirs or named(settings, name)


def unknown(settings: Settings, name: str) -> DragomanError:
    """Return the error for a name that is not a server: it is unknown, or its entry or file is broken."""
    from dragoman.diagnosis.fleet import broken_entries  # Most names are known.

    if (problem := broken_entries(settings).get(name)) is not None:
        from dragoman.diagnosis.explain import explain

        found = explain(problem)
        return ConfigError(found.cause, hint=f"run `{typed(found.next_step)}`")
    for problem in settings.problems:
        if isinstance(problem, ConfigSyntaxError) and _stands_in(name, problem.source):
            msg = f"server `{name}` stands in a file that cannot be read: {problem.message}"
            return ConfigSyntaxError(
                msg, source=problem.source, pointer=problem.pointer, line=problem.line, hint=problem.hint
            )
    return unknown_among([one.name for one in settings.servers], name, f"unknown server `{name}`")


def _stands_in(name: str, path: str) -> bool:
    """Return whether the text of a broken file has a name, as a key or a value."""
    from dragoman.storage.files import read_regular

    try:
        text = read_regular(Path(path), MAX_FILE_BYTES).decode("utf-8", "replace")
    except OSError:
        return False
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) is not None


def unknown_among(known: Sequence[str], name: str, msg: str) -> UnknownServerError:
    """Return the error for a name that is not in `known`; it suggests similar names."""
    alike = suggest(name, known)
    hint = f"did you mean {' or '.join(alike)}?" if alike else f"configured: {', '.join(known) or 'none'}"
    return UnknownServerError(msg, server=name, suggestions=alike, hint=hint)


def wanted(settings: Settings, names: Sequence[str]) -> list[ServerSpec]:
    """Return the servers with these names, or all enabled servers.

    Raises:
        UnknownServerError: A name is unknown.
        ConfigError: A named server is disabled, or MCP as a whole is.
    """
    specs = [named(settings, name) for name in dict.fromkeys(names)]
    if not settings.enabled:
        msg = "MCP is disabled in the configuration"
        raise ConfigError(msg, hint="remove `enabled = false` from the `[mcp]` table")
    for spec in specs:
        if not spec.enabled:
            msg = f"server `{spec.name}` is disabled"
            raise ConfigError(
                msg, source=spec.origin.source, hint=f"run `dragoman enable {quote(spec.name)}`"
            )
    return specs or [spec for spec in settings.servers if spec.enabled]


def known_tools(settings: Settings, specs: Sequence[ServerSpec]) -> dict[str, list[ToolDef]]:
    """Return the cached tools of servers, by server name; servers without a cached list are left out.

    The cache is not used for a project's server that is not approved.
    """
    registry, known = known_registry(settings, specs)
    found: dict[str, list[ToolDef]] = {spec.name: [] for spec in specs if spec.name in known}
    for tool in registry:
        if tool.server in found:
            found[tool.server].append(tool)
    return found


def known_registry(settings: Settings, specs: Sequence[ServerSpec] = ()) -> tuple[ToolRegistry, set[str]]:
    """Return the cached tools of all enabled servers and of `specs`, and the names of the cached servers.

    Exposed names depend on the tools of all servers, so all of them are loaded.
    """
    from dragoman.config.load import refused
    from dragoman.storage.manifests import ManifestCache, default_folder
    from dragoman.tools.definition import readmit
    from dragoman.trust.masking import spec_key

    cache = ManifestCache(default_folder())
    root = settings.root or str(Path.cwd())
    everywhere = {spec.name: spec for spec in (*specs, *(one for one in settings.servers if one.enabled))}
    found: list[ToolDef] = []
    known: set[str] = set()
    unapproved = refused(settings, list(everywhere.values()))
    for name, spec in everywhere.items():
        entries = None if name in unapproved else cache.read(spec_key(spec, root))
        if entries is not None:
            found += readmit(entries, spec, template=spec.naming or settings.naming)
            known.add(name)
    return settled(settings, found), known


def settled(settings: Settings, tools: Iterable[ToolDef]) -> ToolRegistry:
    """Register the tools of several servers, so that each gets its exposed name."""
    from dragoman.tools.registry import ToolRegistry

    registry = ToolRegistry()
    if settings.collisions == "skip":
        registry.arrange(spec.name for spec in settings.servers)
    registry.register_all(tools)
    return registry


def may_own(settings: Settings, specs: Iterable[ServerSpec], name: str) -> list[ServerSpec]:
    """Return the servers whose naming template fits an exposed name."""
    found: list[ServerSpec] = []
    for spec in specs:
        before, *after = around_tool(spec.naming or settings.naming, spec.name)
        if after and name.startswith(before) and name.endswith(after[-1]):
            found.append(spec)
    # Leave out unapproved servers of a project: their error would hide the others.
    return approved(settings, found) or found


def approved(settings: Settings, specs: Sequence[ServerSpec]) -> list[ServerSpec]:
    """Return the servers without those of a project that are not approved."""
    from dragoman.config.load import refused  # not needed by most commands

    unapproved = refused(settings, specs)
    return [spec for spec in specs if spec.name not in unapproved]
