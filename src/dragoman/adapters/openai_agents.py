"""Tools for the OpenAI Agents SDK: `Agent(…, tools=agents_tools(mcp))`, or a `DragomanAgent`."""

# The framework is an extra: where dragoman's own types are checked, it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUntypedBaseClass=false

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from dragoman.adapters.bridge import Bridge, needs, question
from dragoman.tools.export.apis.responses import responses_output
from dragoman.trust.sanitizing import for_model

try:
    from agents import Agent, FunctionTool, ToolOutputFileContent, ToolOutputImage, ToolOutputText
except ModuleNotFoundError as exc:
    raise needs(package="openai-agents", adapter="openai_agents") from exc

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.adapters.bridge import Manager, Offer
    from dragoman.model import ToolResult


def agents_tools(mcp: Manager, **options: Any) -> list[FunctionTool]:
    """Return a manager's tools, as they are now; takes the options of `DragomanTools`."""
    return DragomanTools(mcp, **options).current()


class DragomanTools:
    """A manager's tools; a failed call is reported to the model and does not end the run."""

    def __init__(self, mcp: Manager, **options: Any) -> None:
        """Serve the tools of `mcp`.

        Args:
            mcp: `dragoman.McpManager`, or the one of `dragoman.blocking`.
            options: `allow` and `deny`: exposed names or `server:tool`, or globs of them; or `toolset`; and
                `on_progress`, called with a tool's name, progress, total and message.
        """
        self._bridge = Bridge(mcp, "responses", pauses=True, **options)
        self._results: dict[str, ToolResult] = {}

    def current(self) -> list[FunctionTool]:
        """Return the tools of this moment."""
        return [self._tool(*one) for one in self._bridge.offered().items()]

    def question(self, interruption: Any) -> dict[str, Any] | None:
        """Return what a server asks, as JSON: keep it beside the run's state to answer in another process."""
        result = self._results.get(interruption.raw_item.call_id)
        return None if result is None else question(result)

    async def answer(
        self, state: Any, interruption: Any, answers: Any, *, asked: Mapping[str, Any] | None = None
    ) -> None:
        """Go on with a call that asked a person, and approve the interruption; then run the state.

        Args:
            state: The `RunState`.
            interruption: One of the result's `interruptions`.
            answers: The answers by key, as for `McpManager.tasks.resume`, or `"decline"`.
            asked: What `question` returned, if it was in another process.
        """
        asked = asked or self.question(interruption) or {}
        self._results[interruption.raw_item.call_id] = await self._bridge.resume(asked, answers)
        state.approve(interruption)

    def _tool(self, alias: str, offer: Offer) -> FunctionTool:
        async def asks(_: Any, arguments: dict[str, Any], call_id: str) -> bool:
            # The SDK interrupts only before a tool runs: so the call is made here, and its result kept.
            if call_id not in self._results:
                self._results[call_id] = await self._bridge.call(alias, arguments)
            return self._results[call_id].input_required is not None

        async def invoke(context: Any, written: str) -> Any:
            if (kept := self._results.pop(context.tool_call_id, None)) is not None:
                return _output(kept)
            try:
                arguments: Any = json.loads(written or "{}")
            except ValueError as exc:
                return f"`{alias}` was not called: its arguments are not valid JSON ({exc})"
            if not isinstance(arguments, dict):
                return f"`{alias}` was not called: its arguments must be a JSON object"
            return _output(await self._bridge.call(alias, cast("dict[str, Any]", arguments)))

        return FunctionTool(
            name=alias,
            description=offer.description,
            params_json_schema=offer.schema,
            on_invoke_tool=invoke,
            # Most servers' schemas do not meet the rules of strict mode.
            strict_json_schema=False,
            needs_approval=asks if self._bridge.pauses else False,
        )


@dataclass
class DragomanAgent(Agent):
    """An agent whose every turn has the current tools."""

    dragoman: DragomanTools | None = None

    async def get_all_tools(self, run_context: Any) -> list[Any]:
        """Return the agent's own tools and the current ones of dragoman."""
        current = self.dragoman.current() if self.dragoman else []
        return [*await super().get_all_tools(run_context), *current]


def _output(result: ToolResult) -> Any:
    """Return a result in the framework's types; plain text stays text."""
    blocks = responses_output(for_model(result.text), result.parts)
    return blocks if isinstance(blocks, str) else [_PIECES[one.pop("type")](**one) for one in blocks]


_PIECES = {"input_text": ToolOutputText, "input_image": ToolOutputImage, "input_file": ToolOutputFileContent}
