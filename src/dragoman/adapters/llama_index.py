"""Tools for LlamaIndex: `FunctionAgent(…, tool_retriever=DragomanTools(mcp))`."""

# The framework is an extra: where dragoman's own types are checked, it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUntypedBaseClass=false, reportUnknownParameterType=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dragoman.adapters.bridge import Bridge, images, needs, question
from dragoman.trust.sanitizing import for_model

try:
    from llama_index.core.base.llms.types import ImageBlock, TextBlock
    from llama_index.core.objects import ObjectRetriever
    from llama_index.core.tools import FunctionTool, ToolMetadata, ToolOutput
    from llama_index.core.workflow import HumanResponseEvent, InputRequiredEvent
except ModuleNotFoundError as exc:
    raise needs(package="llama-index-core", adapter="llama_index") from exc

if TYPE_CHECKING:
    from dragoman.adapters.bridge import Manager, Offer
    from dragoman.model import ToolResult

CONTEXT = "dragoman_workflow_context"


class DragomanTools(ObjectRetriever):
    """A manager's tools; each step of an agent retrieves the current ones."""

    def __init__(self, mcp: Manager, **options: Any) -> None:
        """Serve the tools of `mcp`.

        Args:
            mcp: `dragoman.McpManager`, or the one of `dragoman.blocking` for code without `await`.
            options: `allow` and `deny`: exposed names or `server:tool`, or globs of them; or `toolset`; and
                `on_progress`, called with a tool's name, progress, total and message.
        """
        self._bridge = Bridge(mcp, "ai-sdk", pauses=True, **options)

    def retrieve(self, str_or_query_bundle: Any = "") -> list[DragomanTool]:
        """Return the current tools, whatever the query; also for `FunctionAgent(tools=…)`."""
        del str_or_query_bundle
        return [DragomanTool(self._bridge, *one) for one in self._bridge.offered().items()]

    async def aretrieve(self, str_or_query_bundle: Any = "") -> list[DragomanTool]:
        """Return the current tools."""
        return self.retrieve(str_or_query_bundle)


class _Metadata(ToolMetadata):
    """The definition for the model: the tool's own schema, and a description of any length."""

    def get_parameters_dict(self) -> dict[str, Any]:
        return self.schema

    def to_openai_tool(self, **_: Any) -> dict[str, Any]:
        return super().to_openai_tool(skip_length_check=True)


class DragomanTool(FunctionTool):
    """One tool; the `ToolOutput`'s `raw_output` is the structured result, if there is one.

    A question of its server is an `InputRequiredEvent` with `questions` and `question_id`. Answer with
    `HumanResponseEvent(response=answers, question_id=…)`: the answers by key, or `"decline"`.
    """

    def __init__(self, bridge: Bridge, name: str, offer: Offer) -> None:
        metadata = _Metadata(description=offer.description, name=name, fn_schema=None)
        metadata.schema = offer.schema
        super().__init__(fn=self.call, metadata=metadata)
        self._bridge, self._name = bridge, name
        # The framework passes the workflow's context under this name.
        self.requires_context, self.ctx_param_name = bridge.pauses, CONTEXT

    def call(self, *_: Any, **arguments: Any) -> ToolOutput:
        """Call the tool without `await`."""
        arguments.pop(CONTEXT, None)
        return self._output(arguments, self._bridge.call_and_wait(self._name, arguments))

    async def acall(self, *_: Any, **arguments: Any) -> ToolOutput:
        """Call the tool."""
        context = arguments.pop(CONTEXT, None)
        if context is None:
            return self._output(arguments, await self._bridge.call(self._name, arguments))
        # The framework runs a step again when it gets the answers: the question is in the context then.
        key = f"dragoman {self._name} {json.dumps(arguments, sort_keys=True)}"
        asked = await context.store.get(key, default=None)
        if asked is None:
            asked = question(result := await self._bridge.call(self._name, arguments))
            if asked is None:
                return self._output(arguments, result)
            await context.store.set(key, asked)
        event = InputRequiredEvent(prefix=asked["message"], question_id=key, **asked)
        answered = await context.wait_for_event(
            HumanResponseEvent,
            waiter_event=event,
            waiter_id=asked["continuation"],
            requirements={"question_id": key},
            timeout=None,
        )
        result = await self._bridge.resume(asked, answered.response)
        await context.store.set(key, question(result))
        return self._output(arguments, result)

    def _output(self, arguments: dict[str, Any], result: ToolResult) -> ToolOutput:
        blocks: list[Any] = [TextBlock(text=for_model(result.text))]
        blocks += [ImageBlock(image=data, image_mimetype=kind) for data, kind in images(result)]
        return ToolOutput(
            tool_name=self._name,
            blocks=blocks,
            raw_input=arguments,
            # The context of a paused run is stored as JSON, with this in it.
            raw_output=for_model(result.text) if result.structured is None else result.structured,
            is_error=not result.success,
            exception=result.exception,
        )
