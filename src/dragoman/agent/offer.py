"""Choose the tools that a model is offered, in its API's format; computed once per change, not per step.

Up to its limit a model gets every tool. Above it, the model gets the pinned tools, two tools to search and
load others, and those it has loaded; or all of them deferred, if the API supports that and it is wanted. The
order is the registry's, so that an unchanged offer is byte-identical and prompt caches stay valid.
"""

from __future__ import annotations

import json
import logging
import re
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from dragoman.model import ToolDef
from dragoman.tools.registry import ToolRegistry
from dragoman.tools.result import budget
from dragoman.trust.sanitizing import for_model

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dragoman.model import JsonObject
    from dragoman.tools.export.export import Api, Export
    from dragoman.tools.registry import ToolView

# ── Tool search: a full-text index over names, descriptions and parameter names


MAX_QUERY_WORDS = 32
# Weights of a hit in the name, in title and description, and in the parameter names.
_WEIGHTS = "8.0, 3.0, 1.0"

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")
# Scripts without spaces between words.
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\U00020000-\U0003134f]+")


class ToolIndex:
    """The index over one set of tools; rebuilt when the tools change."""

    def __init__(self, tools: Iterable[ToolDef]) -> None:
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        # Porter stemming, so that `files` finds `file`.
        self._database.execute(
            "create virtual table tool using fts5("
            "words, about, parameters, name unindexed, tokenize='porter unicode61')"
        )
        rows = [(_words(tool.name), _about(tool), _parameters(tool), tool.name) for tool in tools]
        self._database.executemany("insert into tool values (?, ?, ?, ?)", rows)
        self._database.commit()

    def search(self, query: str, *, limit: int = 8) -> list[str]:
        """Return the exposed names of the best matches, the best first; any word may match."""
        words = list(dict.fromkeys(_words(query).split()))[:MAX_QUERY_WORDS]
        if not words or limit < 1:
            return []
        match = " OR ".join(f'"{word}"' for word in words)
        rows = self._database.execute(
            f"select name from tool where tool match ? order by bm25(tool, {_WEIGHTS}), name limit ?",  # noqa: S608 -- weights are ours
            (match, limit),
        )
        return [name for (name,) in rows]

    def close(self) -> None:
        """Free the index."""
        self._database.close()


def _words(text: str) -> str:
    """Split a text into lower-case search words, joined by spaces; CJK text into pairs of characters."""
    words: list[str] = []
    for word in _WORD.findall(text):
        for run in _UNSPACED.findall(word):
            words += [run[at : at + 2] for at in range(len(run) - 1)] or [run]
        spaced = _UNSPACED.sub(" ", word)
        words += [piece for part in spaced.split() for piece in _CAMEL.split(part)]
    return " ".join(words).lower()


def _about(tool: ToolDef) -> str:
    return _words(f"{tool.title} {tool.description} {tool.server}")


def _parameters(tool: ToolDef) -> str:
    properties = tool.input_schema.get("properties")
    if not isinstance(properties, dict):
        return ""
    return _words(" ".join(cast("dict[str, Any]", properties)))


# ── The offer to a model


RESERVED = frozenset({"search_tools", "load_tools", "read_result"})
"""The names of the agent's own tools, whether or not they are offered now."""
MAX_FOUND = 20
MAX_LINE = 200
"""The most characters of a description in a search result."""
MAX_READ = 2_000
"""The characters of a description that are searched for its first line."""

logger = logging.getLogger("dragoman")

_NATIVE: Mapping[str, JsonObject] = {
    "anthropic": {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
    "responses": {"type": "tool_search"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolLimit:
    """How many tools a model is offered at once, and what happens above that limit."""

    count: int | None = 128
    tokens: int | None = None
    """Estimated tokens of all definitions."""
    above: Literal["search", "native", "all"] = "search"
    """`search`: two built-in tools find the others; `native`: the API's deferred loading, if it has it."""
    pinned: Sequence[str] = ()
    """Exposed names that are always offered."""


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """One offer: the definitions that are sent, and the aliases to map back."""

    tools: Sequence[JsonObject]
    exports: Sequence[Export]
    """Resolve aliases; they contain every tool, including those that are not loaded."""

    def meaning(self, alias: str) -> str:
        """Return the exposed name of an alias; an unknown name is returned unchanged."""
        return next((export.names[alias] for export in self.exports if alias in export.names), alias)

    def restore(self, alias: str, arguments: Any) -> tuple[str, Any]:
        """Return the exposed name and the original arguments of a model's call."""
        for export in self.exports:
            if alias in export.names and isinstance(arguments, dict):
                return export.restore(alias, cast("dict[str, Any]", arguments))
        return self.meaning(alias), arguments


class ToolOffer:
    """The offer to one model from one registry, or from a view of it."""

    def __init__(self, registry: ToolRegistry | ToolView, api: Api, limit: ToolLimit) -> None:
        self._registry = registry
        self._api: Api = api
        self._limit = limit
        self._loaded: set[str] = set()
        self._finders = _Finders(self)
        self._own = ToolRegistry()
        self._made_of: tuple[object, object, frozenset[str]] | None = None
        self._offered = OfferedTools((), ())
        self._index: tuple[object, ToolIndex] | None = None
        self._shown: tuple[Export, Export] | None = None

    def add(self, tool: ToolDef) -> None:
        """Offer one of the agent's own tools from now on."""
        if tool.name not in self._own:
            self._own.register(tool)

    def own(self, name: str) -> ToolRegistry | None:
        """Return the registry of one of the agent's own tools; `None` for other tools."""
        return next((own for own in (self._finders.registry, self._own) if name in own), None)

    def current(self) -> OfferedTools:
        """Return the current offer; the same object while nothing has changed."""
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
        """Return the tools that match a query best, each with its alias."""
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
        """Return the registry's tools, without those that have the name of one of the agent's own."""
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

    def _make(self, export: Export, own: Export) -> OfferedTools:
        if self._limit.above == "all" or self._fits(export.tools):
            return OfferedTools([*own.tools, *export.tools] if own.tools else export.tools, [own, export])
        kept = {*self._limit.pinned, *self._loaded}
        if self._limit.above == "native" and (finder := _NATIVE.get(self._api)) is not None:
            deferred = [
                tool if _exposed(tool, export) in kept else {**tool, "defer_loading": True}
                for tool in export.tools
            ]
            return OfferedTools([dict(finder), *own.tools, *deferred], [own, export])
        finders = self._finders.registry.export(self._api)
        tools = [tool for tool in export.tools if _exposed(tool, export) in kept]
        return OfferedTools([*finders.tools, *own.tools, *tools], [finders, own, export])

    def _fits(self, tools: Sequence[JsonObject]) -> bool:
        limit = self._limit
        if limit.count is not None and len(tools) > limit.count:
            return False
        return limit.tokens is None or estimate_tokens(tools) <= limit.tokens


class _Finders:
    """The two tools that let a model search and load others."""

    def __init__(self, offering: ToolOffer) -> None:
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
            return "No matching tool. Try other words."
        return "\n".join(f"{alias}: {_first_line(tool.description)}" for alias, tool in found)

    async def _load(self, names: list[str]) -> str:
        known, unknown = self._offering.load(names)
        said = [f"loaded: {', '.join(known)}"] if known else []
        said += [f"unknown tools: {', '.join(unknown)}"] if unknown else []
        return "\n".join(said)


def estimate_tokens(tools: Sequence[JsonObject]) -> int:
    """Return the estimated tokens of these definitions."""
    return budget.estimate_tokens(json.dumps(tools, ensure_ascii=False, separators=(",", ":")))


def _exposed(tool: JsonObject, export: Export) -> str:
    inner: Mapping[str, Any] = tool.get("function", tool)
    return export.names[inner["name"]]


def _first_line(text: str) -> str:
    # Sanitize again after cutting, which may split an emoji. Only the first MAX_READ characters are read.
    lines = for_model(text, MAX_READ).splitlines()
    return for_model(next((line.strip() for line in lines if line.strip()), ""), MAX_LINE)
