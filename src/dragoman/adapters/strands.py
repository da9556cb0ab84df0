"""Tools for Strands: `Agent(…, hooks=[DragomanTools(mcp)])`, or `Agent(…, tools=strands_tools(mcp))`."""

# The framework is an extra: where dragoman's own types are checked, it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUntypedBaseClass=false, reportUnknownParameterType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dragoman.adapters.bridge import Bridge, images, needs, question
from dragoman.trust.sanitizing import for_model

try:
    from strands.hooks import BeforeModelCallEvent, HookProvider, HookRegistry
    from strands.types.tools import AgentTool, ToolContext
except ModuleNotFoundError as exc:
    raise needs(package="strands-agents", adapter="strands") from exc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dragoman.adapters.bridge import Manager, Offer
    from dragoman.model import ToolResult


def strands_tools(mcp: Manager, **options: Any) -> list[DragomanTool]:
    """Return a manager's tools, as they are now; takes the options of `DragomanTools`."""
    return DragomanTools(mcp, **options).current()


class DragomanTools(HookProvider):
    """A manager's tools of each moment: they are registered before each request to the model."""

    def __init__(self, mcp: Manager, **options: Any) -> None:
        """Serve the tools of `mcp`.

        Args:
            mcp: `dragoman.McpManager`, or the one of `dragoman.blocking` for `agent(…)` without `await`.
            options: `allow` and `deny`: exposed names or `server:tool`, or globs of them; or `toolset`; and
                `on_progress`, called with a tool's name, progress, total and message.
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
            if isinstance(known, DragomanTool) and (
                name not in current or current[name].offer != known.offer
            ):
                del tools.registry[name]
        for name in current.keys() - tools.registry.keys():
            # The framework refuses a name that differs from another one only by `-` and `_`.
            with suppress(ValueError):
                tools.register_tool(current[name])


class DragomanTool(AgentTool):
    """One tool. A question of its server is an interrupt; respond with the answers by key, or `"decline"`."""

    tool_type = "dragoman"

    def __init__(self, bridge: Bridge, name: str, offer: Offer) -> None:
        super().__init__()
        self._bridge, self._name, self.offer = bridge, name, offer

    @property
    def tool_name(self) -> str:
        """The name for the model."""
        return self._name

    @property
    def tool_spec(self) -> Any:
        """The definition for the model."""
        schema = {"json": self.offer.schema}
        return {"name": self._name, "description": self.offer.description, "inputSchema": schema}

    async def stream(self, tool_use: Any, invocation_state: dict[str, Any], **_: Any) -> AsyncIterator[Any]:
        """Call the tool; the event is the result."""
        agent, key = invocation_state["agent"], f"dragoman:{tool_use['toolUseId']}"
        interrupt = ToolContext(tool_use, agent, invocation_state).interrupt
        if (asked := agent.state.get(key)) is None:
            result = await _unless_cancelled(self._bridge.call(self._name, tool_use["input"]), agent)
        else:
            result = await self._bridge.resume(asked, interrupt(asked["continuation"]))
            agent.state.delete(key)
        if (asked := question(result)) is not None:
            agent.state.set(key, asked)  # The session keeps it: another process may get the answers.
            interrupt(asked["continuation"], reason=asked)
        yield _content(result, tool_use["toolUseId"])


async def _unless_cancelled(call: Any, agent: Any) -> ToolResult:
    task = asyncio.ensure_future(call)
    try:
        while not task.done() and not agent.cancel_signal.is_set():
            await asyncio.wait(
                {task}, timeout=0.1
            )  # The signal is a thread's event, which cannot be awaited.
    finally:
        task.cancel()
    return await task


def _content(result: ToolResult, call_id: str) -> dict[str, Any]:
    pieces: list[dict[str, Any]] = [{"text": for_model(result.text)}]
    shown = [(kind.partition("/")[2], {"bytes": data}) for data, kind in images(result)]
    pieces += [{"image": {"format": kind, "source": source}} for kind, source in shown]
    made = {"toolUseId": call_id, "status": "success" if result.success else "error", "content": pieces}
    return made if result.structured is None else {**made, "structuredContent": result.structured}
