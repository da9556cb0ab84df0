"""Tools for Google's Agent Development Kit: `LlmAgent(…, tools=[DragomanToolset(mcp)])`."""

# The framework is an extra: where dragoman's own types are checked, it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUntypedBaseClass=false, reportUnknownParameterType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dragoman.adapters.bridge import Bridge, images, needs, question
from dragoman.trust.sanitizing import for_model

try:
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.base_toolset import BaseToolset
    from google.genai import types
except ModuleNotFoundError as exc:
    raise needs(package="google-adk", adapter="google_adk") from exc

if TYPE_CHECKING:
    from dragoman.adapters.bridge import Manager, Offer
    from dragoman.model import ToolResult


class DragomanToolset(BaseToolset):
    """A manager's tools; each step of a run gets the current ones."""

    def __init__(self, mcp: Manager, **options: Any) -> None:
        """Serve the tools of `mcp`; start and close the manager yourself.

        Args:
            mcp: `dragoman.McpManager`, or the one of `dragoman.blocking.manager`.
            options: `allow` and `deny`: exposed names or `server:tool`, or globs of them; or `toolset`; and
                `on_progress`, called with a tool's name, progress, total and message.
        """
        super().__init__()
        # The base class would keep the tools for a whole run.
        self._use_invocation_cache = False
        # Gemini takes dots in names; other models that the framework can use do not.
        self._bridge = Bridge(mcp, "gemini", pauses=True, illegal=r"[^A-Za-z0-9_-]", **options)

    async def get_tools(self, readonly_context: Any = None) -> list[BaseTool]:
        """Return the current tools."""
        del readonly_context  # They do not depend on the run.
        return [DragomanTool(self._bridge, *one) for one in self._bridge.offered().items()]


class DragomanTool(BaseTool):
    """One tool.

    A question of its server is a request for confirmation, whose payload has the questions; confirm it with
    the answers by key as payload. A confirmation that is refused declines.
    """

    def __init__(self, bridge: Bridge, name: str, offer: Offer) -> None:
        super().__init__(name=name, description=offer.description, custom_metadata=offer.metadata)
        self._bridge, self._schema = bridge, offer.schema

    def _get_declaration(self) -> types.FunctionDeclaration:
        """Return the definition for the model."""
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._schema
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> Any:
        """Call the tool; a failure is `{"error": …}`, as in the framework's own tools."""
        key = f"dragoman:{tool_context.function_call_id}"
        confirmation, asked = tool_context.tool_confirmation, tool_context.state.get(key)
        if confirmation is not None and asked:
            tool_context.state[key] = None
            answers = confirmation.payload if confirmation.confirmed else "decline"
            result = await self._bridge.resume(asked, answers)
        else:
            result = await self._bridge.call(self.name, args)
        if (asked := question(result)) is not None:
            tool_context.state[key] = asked  # The session keeps it: another process may get the answers.
            tool_context.request_confirmation(hint=asked["message"], payload=asked)
            # The pause is not a result: without this the model would be asked again at once.
            tool_context.actions.skip_summarization = True
            return {"error": asked["message"]}
        return _response(result)


def _response(result: ToolResult) -> dict[str, Any]:
    text = for_model(result.text)
    if not result.success:
        return {"error": text}
    made: dict[str, Any] = {"result": text}
    if result.structured is not None:
        made["structured_content"] = result.structured
    for number, (data, kind) in enumerate(images(result), start=1):
        made[f"image_{number}"] = types.Part.from_bytes(data=data, mime_type=kind)
    return made
