"""The tools of all servers: what each offered last time, what it offers now, and what changed between.

Owns what a server has in the registry, and tells of every difference. A tool that did not change stays the
same object in the same place. What the pins hold back is not offered. Never connects to anything.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dragoman.tools.definition import fill_in_schemas
from dragoman.tools.filters import is_exposed
from dragoman.tools.listing import admit, difference, readmit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dragoman.cache import Memory
    from dragoman.events import Event
    from dragoman.guard import Guard
    from dragoman.model import ServerSpec, ToolDef
    from dragoman.tools.registry import RemoteCall, Settled, ToolRegistry

logger = logging.getLogger("dragoman")


@dataclass(frozen=True, slots=True)
class _Known:
    """Tools of a server, under the names that they want."""

    tools: Sequence[ToolDef] = ()
    withheld: Sequence[ToolDef] = ()
    """Not offered, but no other server may have their names."""


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
        order: Callable[[], Iterable[str] | None] = lambda: None,
    ) -> None:
        """Use `registry`.

        Args:
            registry: Where the tools go.
            memory: What was offered last time, unless that is not kept.
            guard: Says what is held back.
            publish: Told of every difference.
            remote: What runs the tools.
            order: Returns the servers in the order of the configuration, if that decides about names.
        """
        self._registry = registry
        self._memory = memory
        self._guard = guard
        self._publish = publish
        self._remote = remote
        self._order = order

    def fill(self, spec: ServerSpec, naming: str, *, starts: bool) -> int:
        """Offer what a server offered last time, before anybody listens; return how many tools that is."""
        known = self._recall(spec, naming, starts=starts)
        if known is None:
            return 0
        self._tell(self._registry.arrange(self._order()).contested)
        settled = self._registry.replace_server(
            spec.name, known.tools, remote=self._remote, withheld=known.withheld
        )
        self._tell(settled.contested)
        return self._count(spec.name, known.tools)

    def arrange(self) -> None:
        """Let the order of the configuration decide about names again, where it does."""
        self._publish_all(self._registry.arrange(self._order()))

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
        return self._replace(spec.name, self._passed(spec, tools))

    def refill(self, spec: ServerSpec, naming: str, *, starts: bool) -> int:
        """Offer what is known of a server that does not list anything now; return how many tools that is.

        Args:
            spec: The server, with a place that it has just taken, or with other rules than before.
            naming: How tools are named where the spec does not say.
            starts: Whether it will list its tools soon; until then those of its name stay.
        """
        known = self._recall(spec, naming, starts=starts)
        if known is None and starts:
            allowed, denied = spec.allowed_tools, spec.denied_tools
            tools = self._registry.wanted(spec.name)
            known = _Known(
                [tool for tool in tools if is_exposed(tool.original_name, allowed=allowed, denied=denied)]
            )
        return self._replace(spec.name, known or _Known())

    def empty(self, server: str) -> None:
        """Offer nothing of a server."""
        self._guard.pinboard.keep_back(server, {})
        self._replace(server, _Known())

    def forget(self, server: str) -> None:
        """Offer nothing of a server, and keep no name for it."""
        self.empty(server)
        self._registry.forget(server)

    def _recall(self, spec: ServerSpec, naming: str, *, starts: bool) -> _Known | None:
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

    def _passed(self, spec: ServerSpec, tools: Sequence[ToolDef]) -> _Known:
        names = [tool.original_name for tool in tools]
        return self._without(spec, tools, self._guard.pinboard.withheld(spec, names))

    def _without(self, spec: ServerSpec, tools: Sequence[ToolDef], withheld: frozenset[str]) -> _Known:
        held = [tool for tool in tools if tool.original_name in withheld]
        self._guard.pinboard.keep_back(
            spec.name, {tool.name: tool.original_name for tool in held}, self._guard.pinboard.rule(spec)
        )
        return _Known([tool for tool in tools if tool.original_name not in withheld], held)

    def _replace(self, server: str, known: _Known) -> int:
        """Offer these tools of a server and no others; return how many have a name."""
        self.arrange()
        self._publish_all(
            self._registry.replace_server(server, known.tools, remote=self._remote, withheld=known.withheld)
        )
        return self._count(server, known.tools)

    def _count(self, server: str, tools: Sequence[ToolDef]) -> int:
        names = {tool.original_name for tool in tools}
        return sum(self._registry.exposed_name(server, name) is not None for name in names)

    def _publish_all(self, settled: Settled) -> None:
        """Tell of every difference: a contested name changes the tools of other servers too."""
        for server in sorted(settled.before.keys() | settled.after.keys()):
            before, after = settled.before.get(server, ()), settled.after.get(server, ())
            if (change := difference(server, before, after)) is not None:
                self._publish(change)
        self._tell(settled.contested)

    def _tell(self, contested: Iterable[Event]) -> None:
        for event in contested:
            self._publish(event)
