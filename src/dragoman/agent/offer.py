"""Choose the tools that a model is offered, in its API's format; nothing that was sent once is changed.

Up to its limit a model gets every tool. Above it, the model gets the pinned tools and a search:
`search_tools` finds tools by what they do, and what it found is appended to the conversation. APIs that can
load tools take them as definitions (Responses) or references (Anthropic); for others, `call_tool` calls them.

The offer is fixed with the first request, so that every later request begins with the same bytes and prompt
caches stay valid. Tools that appear later are found by searching, or added at the end of the list.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, cast

from dragoman.agent.messages import Message
from dragoman.agent.request_window import cost_of
from dragoman.agent.skills import SKILL_TOOLS
from dragoman.model import ToolDef
from dragoman.struct import Struct
from dragoman.tools.registry import ToolRegistry
from dragoman.tools.result import budget
from dragoman.tools.search import ToolIndex
from dragoman.tools.search.finders import (
    CALL,
    CALL_SCHEMA,
    FOUND,
    HOW,
    RUN_CODE,
    SEARCH,
    SEARCH_SCHEMA,
    VECTOR_WAIT,
    read_search,
)
from dragoman.trust.sanitizing import for_model, merged_instructions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from dragoman.model import JsonObject
    from dragoman.tools.export.export import Export
    from dragoman.tools.search import Hit
    from dragoman.tools.view import ToolView

RESERVED = SKILL_TOOLS | {SEARCH, CALL, RUN_CODE, "load_tools", "read_result"}
"""The names of the agent's own tools, whether or not they are offered now."""
MAX_LINE = 200
"""The most characters of a description in a search result."""
MAX_READ = 2_000
"""The characters of a description that are searched for its first line."""
MAX_SCHEMA = 4_000
"""The characters of a schema in a search result; a larger one is shown without its descriptions."""
MAX_SERVERS = 40
"""Servers whose names the search's description lists."""
MAX_ABOUT = 500
"""Characters of a server's instructions in a search result."""

logger = logging.getLogger("dragoman")


class ToolLimit(Struct, kw_only=True):
    """How many tools a model is offered at once, and what happens above that limit."""

    count: int | None = 128
    tokens: int | None = None
    """Estimated tokens of all definitions."""
    above: Literal["search", "native", "all"] = "search"
    """`search`: a search finds the others, loaded by the API where it can; `native` is its old name."""
    pinned: Sequence[str] = ()
    """Exposed names that are always offered."""


class OfferedTools(Struct):
    """One offer: the definitions that are sent, and the aliases to map back."""

    tools: Sequence[JsonObject]
    exports: Sequence[Export]
    """Resolve aliases; they contain every tool, including those that are not loaded."""
    searching: bool = False
    """Whether the model has `search_tools` and `call_tool`."""

    def meaning(self, alias: str) -> str:
        """Return the exposed name of an alias; an unknown name is returned unchanged."""
        return next((export.names[alias] for export in self.exports if alias in export.names), alias)

    def restore(self, alias: str, arguments: Any) -> tuple[str, Any]:
        """Return the exposed name and the original arguments of a call, directly or by `call_tool`."""
        if self.searching and alias == CALL and isinstance(arguments, dict):
            asked = cast("dict[str, Any]", arguments)
            inner = asked.get("name")
            given: Any = asked.get("arguments", {})
            if isinstance(inner, str) and inner not in {CALL, ""}:
                name, restored = self.restore(inner, given)
                return name, restored
        for export in self.exports:
            if alias in export.names and isinstance(arguments, dict):
                return export.restore(alias, cast("dict[str, Any]", arguments))
        return self.meaning(alias), cast("Any", arguments)


class Found(Struct):
    """What one search found, for the message that answers it."""

    text: str
    tools: Sequence[JsonObject] = ()
    """Definitions that the API loads from the answer."""
    references: Sequence[str] = ()
    """Aliases of deferred tools that the API loads from the answer."""
    note: str = ""
    """What the definitions do not say: instructions, missing servers."""


class ToolOffer:
    """The offer to one model from one registry, or from a view of it."""

    def __init__(
        self,
        registry: ToolRegistry | ToolView,
        api: str,
        limit: ToolLimit,
        *,
        loads: Literal["", "definitions", "references"] = "",
        reader: ToolDef | None = None,
        about: Callable[[], Mapping[str, str]] = dict,
        unavailable: Callable[[], Sequence[str]] = list,
        used: Callable[[], Mapping[str, int]] = dict,
        answer_tokens: int | None = None,
    ) -> None:
        """Make an offer.

        Args:
            registry: All tools.
            api: The model's API.
            limit: How many tools it is offered at once.
            loads: Where the API takes found tools from: definitions in the answer, references to deferred
                tools of the list, or nothing.
            reader: The tool that reads long results; offered from the start if the model searches.
            about: The instructions of servers, by name.
            unavailable: One line for each configured server whose tools are missing now.
            used: How often tools were called before, by exposed name; read once, in a thread.
            answer_tokens: The most tokens that the schemas in the answer to a search take.
        """
        self._registry = registry
        self._api = api
        self._limit = limit
        self._loads = loads
        self._reader = reader
        self._about = about
        self._unavailable = unavailable
        self._read_used = used
        self._answer_tokens = answer_tokens
        self._used: Counter[str] | None = None
        self._own = ToolRegistry()
        self._finders: ToolRegistry | None = None
        self._made_of: tuple[object, object] | None = None
        self._offered = OfferedTools((), ())
        self._sent: dict[str, JsonObject] | None = None
        """The definitions of the first request and those added since, by alias; `None` before it."""
        self._index: ToolIndex | None = None
        self._indexed: object = None
        self._indexing = asyncio.Lock()
        self._told: set[str] = set()
        self._shown: tuple[Export, Export] | None = None
        self._found: Found | None = None
        self._with_search: ToolDef | None = None
        self._describe: Callable[..., Awaitable[str]] | None = None
        self._added: list[JsonObject] = []

    @property
    def searching(self) -> bool:
        """Whether the model searches for tools; decided with the first offer."""
        return self._finders is not None

    def fits_all(self) -> bool:
        """Return whether the model is offered every tool, and does not need to search."""
        return self._fits([*self._own.export(self._api).tools, *self._export().tools])

    def add(self, tool: ToolDef) -> None:
        """Offer one of the agent's own tools from now on."""
        if tool.name not in self._own:
            self._own.register(tool)

    def add_code(self, tool: ToolDef, describe: Callable[..., Awaitable[str]], *, always: bool) -> None:
        """Offer a tool that runs programs, before the first request.

        Args:
            tool: The tool.
            describe: Returns how a program calls a tool, by its exposed name, with `documented` as an
                option; searches show it.
            always: Whether to offer it even if the model does not search.
        """
        self._describe = describe
        if always:
            self.add(tool)
        else:
            self._with_search = tool

    def tell_again(self) -> None:
        """Repeat the instructions of servers: what a search said of them may be left out by now."""
        self._told.clear()

    def restart(self) -> None:
        """Begin a new offer, for a new conversation."""
        self._made_of = self._sent = self._finders = None
        self._added = []
        self._told.clear()

    def own(self, name: str) -> ToolRegistry | None:
        """Return the registry of one of the agent's own tools; `None` for other tools."""
        return next((own for own in (self._finders, self._own) if own is not None and name in own), None)

    def current(self) -> OfferedTools:
        """Return the current offer; the same object while nothing has changed."""
        export, own = self._export(), self._own.export(self._api)
        known = self._made_of
        if known is None or known[0] is not export or known[1] is not own:
            if self._sent is None:
                self._begin(export, own)
            else:
                self._extend(export, own)
            self._made_of = (export, own)
        return self._offered

    def note_call(self, name: str) -> None:
        """Remember a call, so that later searches prefer that tool."""
        if self._used is not None:
            self._used[name] += 1

    def take_found(self) -> Found | None:
        """Return what the last search found, once."""
        found, self._found = self._found, None
        return found

    def take_added(self) -> Message | None:
        """Return the message that adds new tools to the conversation, once; only for APIs that take it."""
        added, self._added = self._added, []
        if not added:
            return None
        names = ", ".join(map(_alias, added))
        native = {self._api: {"additional_tools": added}}
        return Message(role="user", text=f"[notice] more tools are offered now: {names}", native=native)

    async def search(self, queries: Sequence[str], limit: int) -> Found:
        """Find tools, and return the answer for the model."""
        export = self._export()
        async with self._indexing:
            if self._indexed is not export:
                tools = [tool for tool in self._registry if tool.name in export.aliases]
                about = dict(self._about())
                await asyncio.to_thread(self._update, tools, about)
                self._indexed = export
        index = cast("ToolIndex", self._index)
        await asyncio.to_thread(index.wait, VECTOR_WAIT)
        hits = await asyncio.to_thread(
            index.find, queries, limit=limit, among=lambda name: name in export.aliases, used=self._used
        )
        shown: dict[str, str] = {}
        if self._describe is not None:
            found = {hit.name: await self._describe(hit.name, documented=not self._loads) for hit in hits}
            shown = {name: text for name, text in found.items() if text}
        return self._answer(hits, export, shown)

    def close(self) -> None:
        """Free the index."""
        if self._index is not None:
            self._index.close()
            self._index, self._indexed = None, None

    def _update(self, tools: Sequence[ToolDef], about: Mapping[str, str]) -> None:
        if self._used is None:
            self._used = Counter(self._read_used())
        if self._index is None:
            self._index = ToolIndex()
        self._index.update(tools, servers=about)

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

    def _begin(self, export: Export, own: Export) -> None:
        if self.fits_all():
            tools = [*own.tools, *export.tools] if own.tools else export.tools
            self._offered = OfferedTools(tools, [own, export])
        else:
            finders = self._begin_search()
            if self._with_search is not None:
                self.add(self._with_search)
                own = self._own.export(self._api)
            if self._reader is not None:
                # A tool that is added later would change the list.
                self.add(self._reader)
                own = self._own.export(self._api)
            pinned = set(self._limit.pinned)
            tools = [*map(self._finder, finders.tools), *own.tools]
            tools += [tool for tool in export.tools if _exposed(tool, export) in pinned]
            if self._loads == "references":
                # References work only for tools of the list; those that are deferred cost no tokens.
                tools += [
                    {**tool, "defer_loading": True}
                    for tool in export.tools
                    if _exposed(tool, export) not in pinned
                ]
            self._offered = OfferedTools(tools, [finders, own, export], searching=True)
        self._sent = {_alias(tool): tool for tool in self._offered.tools}

    def _begin_search(self) -> Export:
        self._finders = _finders(self, sorted({tool.server for tool in self._registry if tool.server}))
        return self._finders.export(self._api)

    def _extend(self, export: Export, own: Export) -> None:
        """Keep what was sent as it is, and add what is new at the end, or a search for it."""
        sent = cast("dict[str, JsonObject]", self._sent)
        new = [*own.tools, *(() if self._finders is not None else export.tools)]
        added = {_alias(tool): tool for tool in new if _alias(tool) not in sent}
        if added and self._finders is None and not self._fits([*self._offered.tools, *added.values()]):
            new = [*own.tools, *map(self._finder, self._begin_search().tools)]
            added = {_alias(tool): tool for tool in new if _alias(tool) not in sent}
        sent |= added
        exports = [own, export]
        if self._finders is not None:
            exports = [self._finders.export(self._api), *exports]
        tools = self._offered.tools
        if added and self._loads == "definitions" and self._api == "responses":
            self._added += added.values()
        elif added:
            tools = [*tools, *added.values()]
        self._offered = OfferedTools(tools, exports, searching=self._finders is not None)

    def _finder(self, tool: JsonObject) -> JsonObject:
        if self._loads != "definitions" or self._api != "responses" or tool.get("name") != SEARCH:
            return tool
        return {
            "type": "tool_search",
            "execution": "client",
            "description": tool["description"],
            "parameters": tool["parameters"],
        }

    def _fits(self, tools: Sequence[JsonObject]) -> bool:
        limit = self._limit
        if limit.above == "all":
            return True
        if limit.count is not None and len(tools) > limit.count:
            return False
        return limit.tokens is None or cost_of(tools) <= limit.tokens

    def _answer(self, hits: Sequence[Hit], export: Export, shown: dict[str, str]) -> Found:
        """Return the answer to a search; `shown` has how programs call the tools, by exposed name."""
        sent = self._sent or {}
        definitions = {_exposed(tool, export): tool for tool in export.tools} if hits else {}
        lines: list[str] = []
        loaded: list[JsonObject] = []
        references: list[str] = []
        in_place = False
        room = self._answer_tokens
        for hit in hits:
            tool = self._registry.get(hit.name)
            if tool is None or hit.name not in definitions:
                continue
            alias, definition = export.aliases[hit.name], definitions[hit.name]
            lines.append(f"{alias}: {_first_line(tool.description)}")
            if self._loads == "definitions":
                # The Responses API wants to know that the definition was not in the list.
                loaded.append(
                    {**definition, "defer_loading": True} if self._api == "responses" else definition
                )
            elif self._loads and sent.get(alias, {}).get("defer_loading"):
                references.append(alias)
            elif alias not in sent and hit.name in shown and not self._loads:
                # The signature says what the schema says, in fewer tokens.
                lines.append(f"  {shown.pop(hit.name)}")
                in_place = True
            elif alias not in sent:
                schema = _schema(definition, room, alone=len(hits) == 1)
                lines.append(f"  arguments: {schema}")
                room = None if room is None else max(0, room - budget.tokens_at_most(schema))
        notes: list[str] = []
        if not lines:
            notes.append("No matching tool. Try other words.")
        elif not loaded and not references:
            notes.append(f"Call one of them with `{CALL}`{', or in a program as shown' * in_place}.")
        if shown:
            notes += ["In a program:", *shown.values()]
        notes += self._notes({tool.server for hit in hits if (tool := self._registry.get(hit.name))})
        self._found = Found("\n".join([*lines, *notes]), loaded, references, "\n".join(notes))
        return self._found

    def _notes(self, servers: Iterable[str]) -> list[str]:
        """Return the instructions of servers that were not told yet, and the servers that are missing."""
        about = self._about()
        new = [server for server in sorted(servers) if server in about and server not in self._told]
        self._told |= set(new)
        told = merged_instructions({server: about[server] for server in new}, MAX_ABOUT)
        said = [told] if told else []
        if missing := list(self._unavailable()):
            said.append("Not available now, and may have had a fitting tool:")
            said += missing
        return said


def _finders(offer: ToolOffer, servers: Sequence[str]) -> ToolRegistry:
    """Return the two tools that let a model find and call others."""
    named = ", ".join(for_model(server, 40) for server in servers[:MAX_SERVERS])
    if len(servers) > MAX_SERVERS:
        named += f" and {len(servers) - MAX_SERVERS} more"

    async def search(queries: list[str] | None = None, query: str = "", limit: int = FOUND) -> str:
        asked = read_search({"queries": queries, "query": query, "limit": limit})
        return (await offer.search(*asked)).text

    async def call(**_: Any) -> str:
        # A call with a name never gets here: `OfferedTools.restore` makes it a call of that tool.
        msg = f"`{CALL}` needs the `name` of a tool that `{SEARCH}` found, and its `arguments`"
        raise ValueError(msg)

    registry = ToolRegistry()
    registry.register_all(
        [
            ToolDef(
                name=CALL,
                description=f"Call a tool that {SEARCH} found.",
                input_schema=CALL_SCHEMA,
                func=call,
                annotations={"readOnlyHint": True},
                source="builtin",
            ),
            ToolDef(
                name=SEARCH,
                description=(
                    f"Find tools by what they do. {HOW} Most tools are not shown: search before you say that "
                    f"something cannot be done. Servers with tools: {named or 'none yet'}."
                ),
                input_schema=SEARCH_SCHEMA,
                func=search,
                annotations={"readOnlyHint": True},
                source="builtin",
            ),
        ]
    )
    return registry


def estimate_tokens(tools: Sequence[JsonObject]) -> int:
    """Return the estimated tokens of these definitions."""
    return budget.estimate_tokens(json.dumps(tools, ensure_ascii=False, separators=(",", ":")))


def _alias(tool: JsonObject) -> str:
    inner: Mapping[str, Any] = tool.get("function", tool)
    return inner.get("name", SEARCH)


def _exposed(tool: JsonObject, export: Export) -> str:
    return export.names[_alias(tool)]


def _schema(definition: JsonObject, room: int | None = None, *, alone: bool = False) -> str:
    """Return the schema of a tool's arguments, without its descriptions if it is long."""
    inner: Mapping[str, Any] = definition.get("function", definition)
    schema: Any = inner.get("parameters") or inner.get("input_schema") or {}
    text = _json(schema)
    if len(text) <= MAX_SCHEMA and (room is None or budget.tokens_at_most(text) <= room):
        return text
    bare = _json(_without_descriptions(schema))[: 2 * MAX_SCHEMA]
    if room is None or budget.tokens_at_most(bare) <= room:
        return bare
    return bare[: 2 * room] if alone else "too long to be shown here; search for this tool alone"


def _without_descriptions(schema: Any) -> Any:
    if isinstance(schema, dict):
        known = cast("dict[str, Any]", schema)
        return {
            key: _without_descriptions(value)
            for key, value in known.items()
            if not (key in {"description", "title", "examples"} and not isinstance(value, dict))
        }
    if isinstance(schema, list):
        return [_without_descriptions(one) for one in cast("list[Any]", schema)]
    return schema


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _first_line(text: str) -> str:
    # Sanitize again after cutting, which may split an emoji. Only the first MAX_READ characters are read.
    lines = for_model(text, MAX_READ).splitlines()
    return for_model(next((line.strip() for line in lines if line.strip()), ""), MAX_LINE)
