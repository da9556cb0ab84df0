"""The current tools for each step of a LangChain agent: `middleware=[DragomanMiddleware(mcp)]`."""

# The framework is an extra: where dragoman's own types are checked, it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUntypedBaseClass=false, reportUnknownParameterType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain.agents.middleware import AgentMiddleware

from dragoman.adapters.langchain import langchain_tools

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.adapters.bridge import Manager


class DragomanMiddleware(AgentMiddleware):
    """Adds a manager's tools of each moment to an agent's own; do not pass them in `tools` as well."""

    def __init__(self, mcp: Manager, **options: Any) -> None:
        """Serve the tools of `mcp`.

        Args:
            mcp: `dragoman.McpManager`, or the one of `dragoman.blocking` for synchronous code.
            options: `allow`, `deny`, `toolset` and `on_progress`, as for `langchain_tools`.
        """
        super().__init__()
        self._mcp, self._options = mcp, options

    def _current(self) -> dict[str, Any]:
        return {tool.name: tool for tool in langchain_tools(self._mcp, **self._options)}

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Offer the current tools to the model."""
        return handler(request.override(tools=[*request.tools, *self._current().values()]))

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Offer the current tools to the model."""
        return await handler(request.override(tools=[*request.tools, *self._current().values()]))

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Run a tool that the agent was not created with."""
        return handler(self._with_tool(request))

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Run a tool that the agent was not created with."""
        return await handler(self._with_tool(request))

    def _with_tool(self, request: Any) -> Any:
        if request.tool is None and (tool := self._current().get(request.tool_call["name"])) is not None:
            return request.override(tool=tool)
        return request
