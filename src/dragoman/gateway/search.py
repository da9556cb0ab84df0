"""Two tools in place of all: one finds tools, the other calls the one that was found."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from dragoman.agent.offer import ToolIndex
from dragoman.trust.sanitizing import for_model

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dragoman.model import ToolDef

MOST = 20


class ToolFinder:
    """`search_tools` and `call_tool` over a set of tools that may change."""

    search_name = "search_tools"
    call_name = "call_tool"

    def __init__(self, tools: Callable[[], Sequence[ToolDef]]) -> None:
        self._tools = tools
        self._indexed: list[ToolDef] = []
        self._index: ToolIndex | None = None

    def definitions(self) -> list[dict[str, Any]]:
        """Return the definitions of the two tools, always the same."""
        return [
            {
                "name": self.call_name,
                "description": "Call a tool that `search_tools` has found.",
                "inputSchema": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "description": "The name of the tool, as it was found."},
                        "arguments": {"type": "object", "description": "Its arguments, by its inputSchema."},
                    },
                    "required": ["name"],
                },
            },
            {
                "name": self.search_name,
                "description": "Find tools by what they do. Returns their names, descriptions and schemas.",
                "inputSchema": {
                    "type": "object",
                    "properties": {
                        "query": {"type": "string", "description": "Words that say what the tool should do."},
                        "limit": {"type": "integer", "minimum": 1, "maximum": MOST, "default": 5},
                    },
                    "required": ["query"],
                },
                "annotations": {"readOnlyHint": True},
            },
        ]

    async def search(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the best matches, as the result of a call."""
        query, limit = arguments.get("query"), arguments.get("limit", 5)
        if not isinstance(query, str) or not isinstance(limit, int):
            raise MCPError(code=INVALID_PARAMS, message="`query` must be a text and `limit` a number")
        tools = list(self._tools())
        found = await asyncio.to_thread(self._search, tools, query, max(1, min(limit, MOST)))
        shown = [
            {"name": tool.name, "description": for_model(tool.description), "inputSchema": tool.input_schema}
            for tool in found
        ]
        return {
            "content": [{"type": "text", "text": json.dumps(shown, ensure_ascii=False)}],
            "structuredContent": {"tools": shown},
            "isError": False,
        }

    def call(self, arguments: Mapping[str, Any]) -> tuple[str, Any]:
        """Return the tool and the arguments of a call.

        Raises:
            MCPError: The name is missing.
        """
        name = arguments.get("name")
        if not isinstance(name, str):
            raise MCPError(code=INVALID_PARAMS, message="`name` must be the name of a tool")
        return name, arguments.get("arguments")

    def _search(self, tools: list[ToolDef], query: str, limit: int) -> list[ToolDef]:
        if self._index is None or tools != self._indexed:
            if self._index is not None:
                self._index.close()
            self._index, self._indexed = ToolIndex(tools), tools
        by_name = {tool.name: tool for tool in tools}
        return [by_name[name] for name in self._index.search(query, limit=limit) if name in by_name]
