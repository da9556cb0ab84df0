"""Tools for LangChain and LangGraph: `langchain_tools(mcp)`."""

# The framework is an extra: where dragoman's own types are checked, it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUntypedBaseClass=false, reportUnknownParameterType=false, reportUnknownArgumentType=false

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from dragoman.adapters.bridge import Bridge, images, needs
from dragoman.trust.sanitizing import for_model

try:
    from langchain_core.tools import StructuredTool, ToolException
    from pydantic import PrivateAttr

    from dragoman.adapters.langgraph import call_or_interrupt, inside_graph
except ModuleNotFoundError as exc:
    raise needs(package="langchain-core", adapter="langchain") from exc

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.adapters.bridge import Manager, ToolProgress
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
        if self._bridge.pauses and inside_graph():
            return _content(await call_or_interrupt(self._bridge, self.name, arguments))
        return _content(await self._bridge.call(self.name, arguments))


def langchain_tools(
    mcp: Manager,
    *,
    allow: Iterable[str] | None = None,
    deny: Iterable[str] = (),
    toolset: str | None = None,
    on_progress: ToolProgress | None = None,
) -> list[DragomanTool]:
    """Return a manager's tools, as they are now, for `bind_tools`, `create_agent` or `ToolNode`.

    A failed call gives a message with status `error` for the model; nothing is raised. With
    `Handlers(durable_questions=True)`, a question of a server is an `interrupt()` of the graph: resume it
    with the answers by key, as for `McpManager.tasks.resume`, or with `"decline"`.

    Args:
        mcp: `dragoman.McpManager`, or the one of `dragoman.blocking` for synchronous code.
        allow: Exposed names or `server:tool`, or globs of them; all tools unless given.
        deny: The same; these win.
        toolset: The same by the name of a toolset of the configuration.
        on_progress: Called with a tool's name, progress, total and message; may use `get_stream_writer()`.
    """
    bridge = Bridge(
        mcp, "ai-sdk", allow=allow, deny=deny, toolset=toolset, on_progress=on_progress, pauses=True
    )
    return [
        DragomanTool(
            name=alias,
            description=offer.description,
            args_schema=offer.schema,
            # LangChain checks this to see whether the tool is async; `_arun` is what runs.
            coroutine=_never,
            response_format="content_and_artifact",
            handle_tool_error=True,
            metadata=offer.metadata,
        ).over(bridge)
        for alias, offer in bridge.offered().items()
    ]


async def _never() -> None:
    """A placeholder: LangChain checks for an async function, but never calls it."""


def _content(result: ToolResult) -> tuple[Any, ToolResult]:
    if not result.success:
        raise ToolException(for_model(result.text))
    text = for_model(result.text)
    blocks = [
        {"type": "image", "base64": base64.b64encode(data).decode(), "mime_type": kind}
        for data, kind in images(result)
    ]
    return [{"type": "text", "text": text}, *blocks] if blocks else text, result
