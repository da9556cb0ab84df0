"""Tools for Strands: `Agent(…, hooks=[DragomanTools(mcp)])`, or `Agent(…, tools=strands_tools(mcp))`."""

# The framework is an extra: where dragoman's own types are checked, it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUntypedBaseClass=false, reportUnknownParameterType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from dragoman.adapters.bridge import Bridge, images, question
from dragoman.trust.sanitizing import for_model

try:
    from strands.hooks import BeforeModelCallEvent, HookProvider, HookRegistry
    from strands.types.tools import AgentTool, ToolContext
except ModuleNotFoundError as exc:
    msg = "dragoman.adapters.strands needs the package `strands-agents`: install `dragoman[strands]`"
    raise ModuleNotFoundError(msg, name=exc.name) from exc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dragoman.adapters.bridge import Manager, Offer
    from dragoman.model import ToolResult

logger = logging.getLogger(__name__)
GLANCE = 0.1
"""Seconds between two looks at the agent's cancel signal, which cannot be awaited."""


def strands_tools(mcp: Manager, **options: Any) -> list[DragomanTool]:
    """Return a manager's tools, as they are now; takes the options of `DragomanTools`."""
    return DragomanTools(mcp, **options).current()


class DragomanTools(HookProvider):
    """A manager's tools of each moment: they are registered before each request to the model."""

    def __init__(self, mcp: Manager, **options: Any) -> None:
        """Serve the tools of `mcp`.

        Args:
            mcp: `dragoman.McpManager`, or the one of `dragoman.blocking` for `agent(…)` without `await`.
            options: `allow` and `deny`: exposed names or `server:tool`, or globs of them; and `on_progress`,
                called with a tool's name, progress, total and message.
        """
        self._bridge = Bridge(mcp, "ai-sdk", pauses=True, **options)

    def current(self) -> list[DragomanTool]:
        """Return the tools of this moment."""
        return [DragomanTool(self._bridge, *one) for one in self._bridge.offered().items()]

    def register_hooks(self, registry: HookRegistry, **_: Any) -> None:
        """Follow the agent's requests."""
        registry.add_callback(BeforeModelCallEvent, self._refresh)

    def _refresh(self, event: BeforeModelCallEvent) -> None:
        tools, current = event.agent.tool_registry, {tool.tool_name: tool for tool in self.current()}
        for name, known in [*tools.registry.items()]:
            if isinstance(known, DragomanTool) and current.get(name) != known:
                del tools.registry[name]
        for name in current.keys() - tools.registry.keys():
            try:
                tools.register_tool(current[name])
            except ValueError as exc:  # A name that differs from another one only by `-` and `_`.
                logger.warning("%s is left out: %s", name, exc)


class DragomanTool(AgentTool):
    """One tool. A question of its server is an interrupt; respond with the answers by key, or `"decline"`."""

    tool_type = "dragoman"

    def __init__(self, bridge: Bridge, name: str, offer: Offer) -> None:
        super().__init__()
        self._bridge, self._name, self._offer = bridge, name, offer

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DragomanTool) and (self._name, self._offer) == (other._name, other._offer)

    __hash__ = None

    @property
    def tool_name(self) -> str:
        """The name for the model."""
        return self._name

    @property
    def tool_spec(self) -> Any:
        """The definition for the model."""
        schema = {"json": self._offer.schema}
        return {"name": self._name, "description": self._offer.description, "inputSchema": schema}

    async def stream(self, tool_use: Any, invocation_state: dict[str, Any], **_: Any) -> AsyncIterator[Any]:
        """Call the tool; the event is the result."""
        agent, call_id = invocation_state["agent"], tool_use["toolUseId"]
        key = f"dragoman:{call_id}"
        if (asked := agent.state.get(key)) is None:
            result = await _unless_cancelled(self._bridge.call(self._name, tool_use["input"]), agent)
        else:
            context = ToolContext(tool_use, agent, invocation_state)
            result = await self._bridge.resume(asked, context.interrupt("dragoman", reason=asked))
            agent.state.delete(key)
        if (asked := question(result)) is not None:
            agent.state.set(key, asked)  # The session keeps it: another process may get the answers.
            ToolContext(tool_use, agent, invocation_state).interrupt("dragoman", reason=asked)
        yield _content(result, call_id)


async def _unless_cancelled(call: Any, agent: Any) -> ToolResult:
    task = asyncio.ensure_future(call)
    try:
        while not task.done() and not agent.cancel_signal.is_set():
            await asyncio.wait({task}, timeout=GLANCE)
    finally:
        if not task.done():
            task.cancel()
    return await task


def _content(result: ToolResult, call_id: str) -> dict[str, Any]:
    pieces: list[dict[str, Any]] = [{"text": for_model(result.text)}]
    for data, kind in images(result):
        pieces.append({"image": {"format": kind.partition("/")[2], "source": {"bytes": data}}})
    status = "success" if result.success else "error"
    made = {"toolUseId": call_id, "status": status, "content": pieces}
    return made if result.structured is None else {**made, "structuredContent": result.structured}
