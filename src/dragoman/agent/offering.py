"""Which tools a model is offered, in its API's own form; computed once a change, never once a step.

Within its limit a model gets every tool. Above it, it gets the pinned ones, two tools to find and load
others, and what it has loaded; or, where the API can defer loading by itself and that is wanted, all of them,
deferred. Order is the registry's, so that an unchanged offer is the same bytes and prompt caches hold.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from dragoman.agent.search import ToolIndex
from dragoman.model import ToolDef
from dragoman.tools import budget
from dragoman.tools.registry import ToolRegistry
from dragoman.trust.sanitize import for_model

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dragoman.model import JsonObject
    from dragoman.tools.formats.export import Api, Export

RESERVED = frozenset({"search_tools", "load_tools", "read_result"})
"""What the agent's own tools are called, whether they are offered at the moment or not."""
MAX_FOUND = 20
MAX_LINE = 200
"""Characters of a description that a search shows."""
MAX_READ = 2_000
"""Characters of a description in which its first line is looked for."""

logger = logging.getLogger("dragoman")

_NATIVE: Mapping[str, JsonObject] = {
    "anthropic": {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
    "responses": {"type": "tool_search"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolLimit:
    """How many tools a model is offered at once, and what happens above that."""

    count: int | None = 128
    tokens: int | None = None
    """Estimated, over all definitions; a share of the model's context."""
    above: Literal["search", "native", "all"] = "search"
    """`search`: two tools of ours find the others; `native`: the API's own deferral, where it has one."""
    pinned: Sequence[str] = ()
    """Exposed names that are always offered."""


@dataclass(frozen=True, slots=True)
class Offered:
    """One offer: what is sent, and what the model's words for tools mean."""

    tools: Sequence[JsonObject]
    exports: Sequence[Export]
    """Where aliases are looked up; they hold every tool, also those that are not loaded."""

    def meaning(self, alias: str) -> str:
        """Return the exposed name that a model means; what it made up comes back as it is."""
        return next((export.names[alias] for export in self.exports if alias in export.names), alias)

    def restore(self, alias: str, arguments: Any) -> tuple[str, Any]:
        """Turn what a model called into what is to be called."""
        for export in self.exports:
            if alias in export.names and isinstance(arguments, dict):
                return export.restore(alias, cast("dict[str, Any]", arguments))
        return self.meaning(alias), arguments


class Offering:
    """The offer to one model from one registry."""

    def __init__(self, registry: ToolRegistry, api: Api, limit: ToolLimit) -> None:
        self._registry = registry
        self._api: Api = api
        self._limit = limit
        self._loaded: set[str] = set()
        self._finders = _Finders(self)
        self._own = ToolRegistry()
        self._made_of: tuple[object, object, frozenset[str]] | None = None
        self._offered = Offered((), ())
        self._index: tuple[object, ToolIndex] | None = None
        self._shown: tuple[Export, Export] | None = None

    def add(self, tool: ToolDef) -> None:
        """Offer a tool of the agent's own from now on, beside those of the registry."""
        if tool.name not in self._own:
            self._own.register(tool)

    def own(self, name: str) -> ToolRegistry | None:
        """Return where a tool is that belongs to the agent and not to the registry."""
        return next((own for own in (self._finders.registry, self._own) if name in own), None)

    def current(self) -> Offered:
        """Return the offer as it stands; the same object while nothing has changed."""
        export, own = self._export(), self._own.export(self._api)
        key = (export, own, frozenset(self._loaded))
        known = self._made_of
        if known is None or known[0] is not export or known[1] is not own or known[2] != key[2]:
            self._offered = self._make(export, own)
            self._made_of = key
        return self._offered

    def load(self, names: Iterable[str]) -> tuple[list[str], list[str]]:
        """Offer more tools from now on; return the aliases of those that exist, and the other names."""
        export = self._export()
        known: list[str] = []
        unknown: list[str] = []
        for name in names:
            exposed = export.names.get(name, name)
            if exposed in export.aliases:
                self._loaded.add(exposed)
                known.append(export.aliases[exposed])
            else:
                unknown.append(name)
        return known, unknown

    def search(self, query: str, limit: int) -> list[tuple[str, ToolDef]]:
        """Return the tools that fit a question best, each with its alias."""
        export = self._export()
        if self._index is None or self._index[0] is not export:
            self.close()
            offered = [tool for tool in self._registry if tool.name in export.aliases]
            self._index = (export, ToolIndex(offered))
        found = self._index[1].search(query, limit=limit)
        tools = ((name, self._registry.get(name)) for name in found)
        return [(export.aliases[name], tool) for name, tool in tools if tool is not None]

    def close(self) -> None:
        """Free the index."""
        if self._index is not None:
            self._index[1].close()
            self._index = None

    def _export(self) -> Export:
        """Return the registry's tools, without those that are called like one of the agent's own."""
        whole = self._registry.export(self._api)
        if self._shown is None or self._shown[0] is not whole:
            taken = {
                name for alias, name in whole.names.items() if alias in RESERVED and self._is_remote(name)
            }
            kept = whole.only(lambda name: name not in taken) if taken else whole
            for name in taken:
                logger.warning("the tool `%s` is not offered to a model: an agent has one of that name", name)
            self._shown = (whole, kept)
        return self._shown[1]

    def _is_remote(self, name: str) -> bool:
        tool = self._registry.get(name)
        return tool is not None and tool.source == "mcp"

    def _make(self, export: Export, own: Export) -> Offered:
        if self._limit.above == "all" or self._fits(export.tools):
            return Offered([*own.tools, *export.tools] if own.tools else export.tools, [own, export])
        kept = {*self._limit.pinned, *self._loaded}
        if self._limit.above == "native" and (finder := _NATIVE.get(self._api)) is not None:
            deferred = [
                tool if _exposed(tool, export) in kept else {**tool, "defer_loading": True}
                for tool in export.tools
            ]
            return Offered([dict(finder), *own.tools, *deferred], [own, export])
        finders = self._finders.registry.export(self._api)
        tools = [tool for tool in export.tools if _exposed(tool, export) in kept]
        return Offered([*finders.tools, *own.tools, *tools], [finders, own, export])

    def _fits(self, tools: Sequence[JsonObject]) -> bool:
        limit = self._limit
        if limit.count is not None and len(tools) > limit.count:
            return False
        return limit.tokens is None or estimate_tokens(tools) <= limit.tokens


class _Finders:
    """The two tools with which a model finds and loads others."""

    def __init__(self, offering: Offering) -> None:
        self._offering = offering
        self.registry = ToolRegistry()
        self.registry.register_all(
            [
                ToolDef(
                    name="search_tools",
                    description=(
                        "Find tools that are not loaded yet. Most are not: search before you say that "
                        "something cannot be done. Returns names and what they do; load those you need."
                    ),
                    input_schema={
                        "type": "object",
                        "properties": {
                            "query": {"type": "string", "description": "What the tool should do, in words."},
                            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_FOUND},
                        },
                        "required": ["query"],
                    },
                    func=self._search,
                    source="builtin",
                ),
                ToolDef(
                    name="load_tools",
                    description="Load tools by the names that search_tools gave, so that they can be called.",
                    input_schema={
                        "type": "object",
                        "properties": {
                            "names": {"type": "array", "items": {"type": "string"}, "minItems": 1}
                        },
                        "required": ["names"],
                    },
                    func=self._load,
                    source="builtin",
                ),
            ]
        )

    async def _search(self, query: str, limit: int = 8) -> str:
        found = self._offering.search(query, limit)
        if not found:
            return "no tool fits: try other words"
        return "\n".join(f"{alias}: {_first_line(tool.description)}" for alias, tool in found)

    async def _load(self, names: list[str]) -> str:
        known, unknown = self._offering.load(names)
        said = [f"loaded: {', '.join(known)}"] if known else []
        said += [f"there is no tool named: {', '.join(unknown)}"] if unknown else []
        return "\n".join(said)


def estimate_tokens(tools: Sequence[JsonObject]) -> int:
    """Return roughly how much of a model's context these definitions take."""
    return budget.estimate_tokens(json.dumps(tools, ensure_ascii=False, separators=(",", ":")))


def _exposed(tool: JsonObject, export: Export) -> str:
    inner: Mapping[str, Any] = tool.get("function", tool)
    return export.names[inner["name"]]


def _first_line(text: str) -> str:
    # What is cut is cleaned again, since half of an emoji is no text; far beyond the limit nothing is read.
    lines = for_model(text, MAX_READ).splitlines()
    return for_model(next((line.strip() for line in lines if line.strip()), ""), MAX_LINE)
