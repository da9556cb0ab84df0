"""Tools for LangChain and LangGraph: `langchain_tools(mcp)`."""

# The framework is an extra: where dragoman's own types are checked, it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUntypedBaseClass=false, reportUnknownParameterType=false, reportUnknownArgumentType=false

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from dragoman.adapters.bridge import Bridge
from dragoman.trust.sanitizing import for_model

try:
    from langchain_core.tools import StructuredTool, ToolException
    from pydantic import PrivateAttr
except ModuleNotFoundError as exc:
    msg = "dragoman.adapters.langchain needs the package `langchain-core`: install `dragoman[langchain]`"
    raise ModuleNotFoundError(msg, name=exc.name) from exc

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.adapters.bridge import Manager
    from dragoman.model import ToolResult


class DragomanTool(StructuredTool):
    """One tool; `invoke` works as well as `ainvoke`. Its artifact is the whole `ToolResult`."""

    _bridge: Bridge = PrivateAttr()

    def over(self, bridge: Bridge) -> DragomanTool:
        """Set the bridge; pydantic accepts private attributes only after construction."""
        self._bridge = bridge
        return self

    # LangChain passes its own `config` and `run_manager` to functions with parameters of these names, instead
    # of the tool's arguments. `**arguments` has no such names, so every argument is the tool's.

    def _run(self, /, **arguments: Any) -> tuple[Any, ToolResult]:
        return _content(self._bridge.call_and_wait(self.name, arguments))

    async def _arun(self, /, **arguments: Any) -> tuple[Any, ToolResult]:
        return _content(await self._bridge.call(self.name, arguments))


def langchain_tools(
    mcp: Manager, *, allow: Iterable[str] | None = None, deny: Iterable[str] = ()
) -> list[DragomanTool]:
    """Return a manager's tools, as they are now, for `bind_tools`, `create_agent` or `ToolNode`.

    A failed call gives a message with status `error` for the model; nothing is raised.

    Args:
        mcp: `dragoman.McpManager`, or the one of `dragoman.blocking` for synchronous code.
        allow: Exposed names or `server:tool`, or globs of them; all tools unless given.
        deny: The same; these win.
    """
    bridge = Bridge(mcp, "ai-sdk", allow=allow, deny=deny)
    made: list[DragomanTool] = []
    for alias, (tool, form) in bridge.offered().items():
        one = DragomanTool(
            name=alias,
            description=form["description"],
            args_schema=form["inputSchema"],
            # LangChain checks this to see whether the tool is async; `_arun` is what runs.
            coroutine=_never,
            response_format="content_and_artifact",
            handle_tool_error=True,
            metadata={
                "server": tool.server,
                "tool": tool.original_name,
                "annotations": dict(tool.annotations),
            },
        )
        made.append(one.over(bridge))
    return made


async def _never() -> None:
    """A placeholder: LangChain checks for an async function, but never calls it."""


def _content(result: ToolResult) -> tuple[Any, ToolResult]:
    if not result.success:
        raise ToolException(for_model(result.text))
    images = [part for part in result.parts if part.kind == "image" and part.data]
    if not images:
        return for_model(result.text), result
    blocks: list[dict[str, Any]] = [{"type": "text", "text": for_model(result.text)}]
    for part in images:
        data = base64.b64encode(part.data).decode()
        blocks.append({"type": "image", "base64": data, "mime_type": part.mime_type})
    return blocks, result
