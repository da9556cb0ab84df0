"""Tools for Microsoft's Agent Framework: `Agent(…, middleware=[DragomanTools(mcp)])`."""

# The framework is an extra: where dragoman's own types are checked, it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUntypedBaseClass=false, reportUnknownParameterType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dragoman.adapters.bridge import Bridge, images, needs, question
from dragoman.trust.sanitizing import for_model

try:
    from agent_framework import ChatMiddleware, Content, FunctionTool, Message, UserInputRequiredException
except ModuleNotFoundError as exc:
    raise needs(package="agent-framework-core", adapter="agent_framework") from exc

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.adapters.bridge import Manager, Offer
    from dragoman.model import ToolResult


class DragomanTools(ChatMiddleware):
    """A manager's tools of each moment, added to each request to the model."""

    def __init__(self, mcp: Manager, **options: Any) -> None:
        """Serve the tools of `mcp`.

        Args:
            mcp: `dragoman.McpManager`, or the one of `dragoman.blocking.manager`.
            options: `allow` and `deny`: exposed names or `server:tool`, or globs of them; or `toolset`; and
                `on_progress`, called with a tool's name, progress, total and message.
        """
        self._bridge = Bridge(mcp, "ai-sdk", pauses=True, **options)

    def current(self) -> list[DragomanTool]:
        """Return the tools of this moment, for an agent without the middleware."""
        return [DragomanTool(self._bridge, *one) for one in self._bridge.offered().items()]

    async def process(self, context: Any, call_next: Callable[[], Any]) -> None:
        """Offer the current tools to the model."""
        # The list is the run's own: the framework looks up in it what the model calls.
        tools = context.options.setdefault("tools", [])
        tools[:] = [*(one for one in tools if not isinstance(one, DragomanTool)), *self.current()]
        await call_next()

    async def answer(self, request: Content, answers: Any) -> Message:
        """Go on with a call that asked a person; return the message for the next run of the agent.

        Args:
            request: One of the response's `user_input_requests`; `request.additional_properties` has the
                questions as `dragoman`.
            answers: The answers by key, as for `McpManager.tasks.resume`, or `"decline"`.
        """
        result = await self._bridge.resume(request.additional_properties["dragoman"], answers)
        return Message("tool", [Content.from_function_result(request.call_id, result=_contents(result))])


class DragomanTool(FunctionTool):
    """One tool."""

    def __init__(self, bridge: Bridge, name: str, offer: Offer) -> None:
        async def run(**arguments: Any) -> list[Content]:
            result = await bridge.call(name, arguments)
            if (asked := question(result)) is not None:
                call = Content.from_function_call("", name, arguments=arguments)
                call.user_input_request, call.additional_properties = True, {"dragoman": asked}
                raise UserInputRequiredException([call], asked["message"])
            return _contents(result)

        super().__init__(
            name=name,
            description=offer.description,
            func=run,
            input_model=offer.schema,
            additional_properties=offer.metadata,
        )

    def _prepare_arguments(self, arguments: Any) -> dict[str, Any]:
        # dragoman checks arguments against the schema; the framework would hide from the model what is wrong.
        return dict(arguments or {})


def _contents(result: ToolResult) -> list[Content]:
    """Return a result; not raised if it failed, as models do not get to read exceptions."""
    marks: dict[str, Any] = {} if result.success else {"is_error": True}
    if result.structured is not None:
        marks["structured_content"] = result.structured
    text = Content.from_text(for_model(result.text), additional_properties=marks)
    return [text, *(Content.from_data(data, kind) for data, kind in images(result))]
