"""Tools in place of all others: one finds them, one calls what was found, and one runs programs."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from dragoman.gateway.code import ProgramTool
from dragoman.server.protocol.envelope import INVALID_PARAMS, MCPError, text_result
from dragoman.tools.search import ToolIndex
from dragoman.tools.search.finders import (
    CALL,
    CALL_SCHEMA,
    HOW,
    SEARCH,
    SEARCH_SCHEMA,
    VECTOR_WAIT,
    read_search,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dragoman.manager.manager import McpManager
    from dragoman.model import ToolDef


class ToolFinder:
    """`search_tools`, `call_tool` and, if programs may run, `run_code` over tools that may change."""

    def __init__(
        self,
        tools: Callable[[], Sequence[ToolDef]],
        *,
        define: Callable[[ToolDef], Mapping[str, Any]],
        missing: Callable[[], Sequence[str]],
        programs_of: McpManager | None,
    ) -> None:
        """Offer the tools.

        Args:
            tools: All tools that may be found.
            define: Returns a tool's definition as a client may see it.
            missing: A line for each configured server that cannot show its tools.
            programs_of: Makes the calls of programs; `None` if there are none.
        """
        self._tools = tools
        self._define = define
        self._missing = missing
        self._programs = None if programs_of is None else ProgramTool(programs_of, tools)
        self._index: ToolIndex | None = None

    async def definitions(self) -> list[dict[str, Any]]:
        """Return the definitions of the tools, by name."""
        call = {
            "name": CALL,
            "description": f"Call a tool that `{SEARCH}` has found.",
            "inputSchema": CALL_SCHEMA,
        }
        search = {
            "name": SEARCH,
            "description": f"Find tools by what they do. {HOW} Returns names, descriptions and schemas.",
            "inputSchema": SEARCH_SCHEMA,
            "annotations": {"readOnlyHint": True},
        }
        return [call, *([await self._programs.definition()] if self._programs is not None else ()), search]

    async def run(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the result of a search or a program; `None` if the tool is neither.

        Raises:
            MCPError: The arguments are not those of the tool.
        """
        if name == SEARCH:
            return await self._search(arguments)
        if self._programs is not None and name == self._programs.name:
            return await self._programs.run(arguments)
        return None

    def call(self, arguments: Mapping[str, Any]) -> tuple[str, Any]:
        """Return the tool and the arguments of a call.

        Raises:
            MCPError: The name is missing.
        """
        name = arguments.get("name")
        if not isinstance(name, str):
            raise MCPError(code=INVALID_PARAMS, message="`name` must be the name of a tool")
        return name, arguments.get("arguments")

    def close(self) -> None:
        """Free the index."""
        if self._index is not None:
            self._index.close()

    async def _search(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            asked, most = read_search(arguments)
        except ValueError as exc:
            raise MCPError(code=INVALID_PARAMS, message=str(exc)) from exc
        if not asked:
            raise MCPError(code=INVALID_PARAMS, message="`queries` must have a text")
        shown: list[dict[str, Any]] = []
        for tool in await asyncio.to_thread(self._find, list(self._tools()), asked, most):
            defined = self._define(tool)
            kept = ("name", "description", "inputSchema")
            shown.append({key: defined[key] for key in kept if key in defined})
        texts = [json.dumps(shown, ensure_ascii=False)]
        if missing := self._missing():
            texts.append("\n".join(["Not available now, and may have had a fitting tool:", *missing]))
        if self._programs is not None:
            signatures = await self._programs.signatures(one["name"] for one in shown)
            texts.append("\n".join(["In a program:", *signatures]))
        return {**text_result(*texts), "structuredContent": {"tools": shown}}

    def _find(self, tools: list[ToolDef], queries: Sequence[str], limit: int) -> list[ToolDef]:
        if self._index is None:
            self._index = ToolIndex()
        self._index.update(tools)
        self._index.wait(VECTOR_WAIT)
        by_name = {tool.name: tool for tool in tools}
        found = self._index.find(queries, limit=limit, among=by_name.__contains__)
        return [by_name[hit.name] for hit in found]
