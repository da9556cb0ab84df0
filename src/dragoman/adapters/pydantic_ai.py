"""Tools for PydanticAI: `Agent(…, toolsets=[DragomanToolset(mcp)])`."""

# The framework is an extra: where dragoman's own types are checked, it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUntypedBaseClass=false, reportUnknownParameterType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dragoman.adapters.bridge import Bridge, images, needs, question
from dragoman.errors import InvalidArgumentsError
from dragoman.trust.sanitizing import for_model

try:
    from pydantic_ai import BinaryContent, ModelRetry, ToolReturn
    from pydantic_ai.exceptions import CallDeferred, ToolFailed
    from pydantic_ai.tools import ToolDefinition
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
    from pydantic_core import SchemaValidator, core_schema
except ModuleNotFoundError as exc:
    raise needs(package="pydantic-ai-slim", adapter="pydantic_ai") from exc

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_ai import DeferredToolRequests, DeferredToolResults, RunContext

    from dragoman.adapters.bridge import Manager
    from dragoman.model import ToolResult

# Accept any object here: dragoman checks arguments against the tool's schema, with messages for a model.
_ANY_OBJECT = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))


class DragomanToolset(AbstractToolset[Any]):
    """A manager's tools; each step of a run gets the current ones."""

    def __init__(
        self,
        mcp: Manager,
        *,
        max_retries: int = 2,
        id: str | None = None,  # noqa: A002 -- the framework's name for it
        **options: Any,
    ) -> None:
        """Serve the tools of `mcp`; start and close the manager yourself.

        Args:
            mcp: `dragoman.McpManager`, or the one of `dragoman.blocking`.
            options: `allow` and `deny`: exposed names or `server:tool`, or globs of them; or `toolset`; and
                `on_progress`, called with a tool's name, progress, total and message.
            max_retries: How often in a row a model may get a tool's arguments wrong before the run ends.
            id: For durable execution.
        """
        self._bridge = Bridge(mcp, "ai-sdk", pauses=True, **options)
        self._max_retries, self._id = max_retries, id

    @property
    def id(self) -> str | None:
        """The name of the toolset in durable execution."""
        return self._id

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the current tools."""
        del ctx
        return {
            alias: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=alias,
                    description=offer.description,
                    parameters_json_schema=offer.schema,
                    return_schema=offer.tool.output_schema,
                    metadata=offer.metadata,
                ),
                max_retries=self._max_retries,
                args_validator=_ANY_OBJECT,
            )
            for alias, offer in self._bridge.offered().items()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Call a tool; the `ToolResult` is the metadata of the return value.

        Raises:
            ModelRetry: The arguments are invalid; the model may try again.
            ToolFailed: The call failed for another reason; the run continues.
            CallDeferred: The server asks a person; see `answer`.
        """
        del ctx, tool
        result = await self._bridge.call(name, tool_args)
        if (asked := question(result)) is not None:
            raise CallDeferred(asked)
        if isinstance(result.exception, InvalidArgumentsError):
            raise ModelRetry(for_model(result.text))
        if not result.success:
            raise ToolFailed(for_model(result.text))
        return _returned(result)

    async def answer(self, requests: DeferredToolRequests, answers: Mapping[str, Any]) -> DeferredToolResults:
        """Go on with calls that asked a person; return what the next run takes as `deferred_tool_results`.

        Args:
            requests: The output of the run; `requests.metadata` has the questions by tool call.
            answers: For each tool call the answers by key, as for `McpManager.tasks.resume`, or `"decline"`.
        """
        calls: dict[str, Any] = {}
        for call_id, given in answers.items():
            result = await self._bridge.resume(requests.metadata[call_id], given)
            calls[call_id] = _returned(result) if result.success else ToolFailed(for_model(result.text))
        return requests.build_results(calls=calls)


def _returned(result: ToolResult) -> ToolReturn:
    text = for_model(result.text)
    pictures = [BinaryContent(data, media_type=kind) for data, kind in images(result)]
    return ToolReturn([text, *pictures] if pictures else text, metadata=result)
