"""Two tools in place of all: one finds tools, the other calls the one that was found."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, cast

from dragoman.server.protocol.envelope import INVALID_PARAMS, MCPError
from dragoman.tools.search import ToolIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dragoman.model import ToolDef

MOST = 20
VECTOR_WAIT = 2.0
"""Seconds that a search waits for vectors that are being computed."""


class ToolFinder:
    """`search_tools` and `call_tool` over a set of tools that may change."""

    search_name = "search_tools"
    call_name = "call_tool"

    def __init__(
        self,
        tools: Callable[[], Sequence[ToolDef]],
        *,
        define: Callable[[ToolDef], Mapping[str, Any]],
        missing: Callable[[], Sequence[str]] = list,
    ) -> None:
        """Offer the two tools.

        Args:
            tools: All tools that may be found.
            define: Returns a tool's definition as a client may see it.
            missing: A line for each configured server that cannot show its tools.
        """
        self._tools = tools
        self._define = define
        self._missing = missing
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
                "description": (
                    "Find tools by what they do. Returns their names, descriptions and schemas. "
                    "A weak match probably does not do what was asked for."
                ),
                "inputSchema": {
                    "type": "object",
                    "properties": {
                        "query": {"type": "string", "description": "What the tool should do."},
                        "queries": {
                            "type": "array",
                            "items": {"type": "string"},
                            "description": "The same for several steps at once.",
                        },
                        "limit": {
                            "type": "integer",
                            "minimum": 1,
                            "maximum": MOST,
                            "default": 5,
                            "description": "Tools for each step.",
                        },
                    },
                },
                "annotations": {"readOnlyHint": True},
            },
        ]

    async def search(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the best matches, as the result of a call."""
        asked, limit = _queries(arguments), arguments.get("limit", 5)
        if not asked or not isinstance(limit, int):
            raise MCPError(code=INVALID_PARAMS, message="`query` must be a text and `limit` a number")
        tools = list(self._tools())
        most = max(1, min(limit * len(asked), MOST))
        shown: list[dict[str, Any]] = []
        for tool, weak in await asyncio.to_thread(self._search, tools, asked, most):
            defined = self._define(tool)
            kept = {key: defined[key] for key in ("name", "description", "inputSchema") if key in defined}
            shown.append({**kept, **({"weak": True} if weak else {})})
        content = [{"type": "text", "text": json.dumps(shown, ensure_ascii=False)}]
        if missing := self._missing():
            said = ["Not available now, and may have had a fitting tool:", *missing]
            content.append({"type": "text", "text": "\n".join(said)})
        return {
            "content": content,
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

    def close(self) -> None:
        """Free the index."""
        if self._index is not None:
            self._index.close()

    def _search(self, tools: list[ToolDef], queries: Sequence[str], limit: int) -> list[tuple[ToolDef, bool]]:
        if self._index is None:
            self._index = ToolIndex()
        self._index.update(tools)
        self._index.wait(VECTOR_WAIT)
        by_name = {tool.name: tool for tool in tools}
        found = self._index.find(queries, limit=limit, among=by_name.__contains__)
        return [(by_name[hit.name], hit.weak) for hit in found]


def _queries(arguments: Mapping[str, Any]) -> list[str]:
    given: Any = arguments.get("queries")
    several = cast("list[Any]", given) if isinstance(given, list) else []
    return [text for text in (arguments.get("query"), *several) if isinstance(text, str) and text.strip()]
