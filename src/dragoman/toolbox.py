"""The tools of all servers: what each offered last time, what it offers now, and what changed between.

Owns what a server has in the registry, and tells of every difference. A tool that did not change stays the
same object in the same place. What the pins hold back is not offered. Never connects to anything.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from dragoman.tools.definition import fill_in_schemas
from dragoman.tools.filters import is_exposed
from dragoman.tools.listing import admit, difference, readmit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dragoman.cache import Memory
    from dragoman.events import Event
    from dragoman.guard import Guard
    from dragoman.model import ServerSpec, ToolDef
    from dragoman.tools.registry import RemoteCall, ToolRegistry

logger = logging.getLogger("dragoman")


class Toolbox:
    """Puts the tools of servers into a registry, and takes them out again."""

    def __init__(
        self,
        registry: ToolRegistry,
        memory: Memory | None,
        *,
        guard: Guard,
        publish: Callable[[Event], None],
        remote: RemoteCall,
    ) -> None:
        """Use `registry`.

        Args:
            registry: Where the tools go.
            memory: What was offered last time, unless that is not kept.
            guard: Says what is held back.
            publish: Told of every difference.
            remote: What runs the tools.
        """
        self._registry = registry
        self._memory = memory
        self._guard = guard
        self._publish = publish
        self._remote = remote

    def fill(self, spec: ServerSpec, naming: str, *, starts: bool) -> int:
        """Offer what a server offered last time, before anybody listens; return how many tools that is."""
        tools = self._recall(spec, naming, starts=starts) or []
        return len(self._registry.register_all(tools, remote=self._remote))

    def listed(
        self, spec: ServerSpec, listing: Sequence[dict[str, Any]], naming: str, *, serves: bool, ready: bool
    ) -> int:
        """Offer what a server lists; return how many tools that is.

        Args:
            spec: The server.
            listing: Its definitions, raw.
            naming: How tools are named where the spec does not say.
            serves: Whether it is the one that serves under its name; else nothing is offered.
            ready: Whether this is a listing of the server's, and worth keeping.
        """
        limits = self._guard.limits_of(spec)
        tools, rejected = admit(listing, spec, template=spec.naming or naming, limits=limits)
        for one in rejected:
            logger.warning("%s: tool `%s` is skipped: %s", spec.name, one.tool, one.reason)
        if not serves:
            return len(tools)
        if self._memory is not None and ready:
            useless = {one.tool for one in rejected}
            usable = [raw for raw in listing if str(raw.get("name")) not in useless]
            fill_in_schemas({"tools": usable})
            self._memory.keep(spec, usable)
        self._registry.limit_descriptions(spec.name, limits.description_chars)
        return len(self._replace(spec.name, self._passed(spec, tools)))

    def refill(self, spec: ServerSpec, naming: str, *, starts: bool) -> int:
        """Offer what is known of a server that does not list anything now; return how many tools that is.

        Args:
            spec: The server, with a place that it has just taken, or with other rules than before.
            naming: How tools are named where the spec does not say.
            starts: Whether it will list its tools soon; until then those of its name stay.
        """
        tools = self._recall(spec, naming, starts=starts)
        if tools is None and starts:
            known = [tool for tool in self._registry if (tool.source, tool.server) == ("mcp", spec.name)]
            allowed, denied = spec.allowed_tools, spec.denied_tools
            tools = [tool for tool in known if is_exposed(tool.original_name, allowed=allowed, denied=denied)]
        return len(self._replace(spec.name, tools or []))

    def empty(self, server: str) -> None:
        """Offer nothing of a server."""
        self._guard.pinboard.keep_back(server, {})
        self._replace(server, [])

    def _recall(self, spec: ServerSpec, naming: str, *, starts: bool) -> list[ToolDef] | None:
        if self._memory is None or not spec.enabled:
            return None
        entries = self._memory.recall(spec)
        if entries is None:
            return None
        tools = readmit(entries, spec, template=spec.naming or naming)
        if not starts:
            # It may be long until it lists anything itself.
            self._guard.pinboard.look_at_remembered(spec, entries)
        return self._without(spec, tools, self._guard.pinboard.fits(spec, entries))

    def _passed(self, spec: ServerSpec, tools: Sequence[ToolDef]) -> list[ToolDef]:
        names = [tool.original_name for tool in tools]
        return self._without(spec, tools, self._guard.pinboard.withheld(spec, names))

    def _without(self, spec: ServerSpec, tools: Sequence[ToolDef], withheld: frozenset[str]) -> list[ToolDef]:
        held = {tool.name: tool.original_name for tool in tools if tool.original_name in withheld}
        self._guard.pinboard.keep_back(spec.name, held, self._guard.pinboard.rule(spec))
        return [tool for tool in tools if tool.name not in held]

    def _replace(self, server: str, tools: Sequence[ToolDef]) -> list[ToolDef]:
        before = self._registry.unregister_server(server)
        known = {tool.name: tool for tool in before}
        wanted = [known[tool.name] if known.get(tool.name) == tool else tool for tool in tools]
        after = self._registry.register_all(wanted, remote=self._remote)
        if (change := difference(server, before, after)) is not None:
            self._publish(change)
        return after
