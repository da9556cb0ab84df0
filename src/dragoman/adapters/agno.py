"""Tools for Agno: `Agent(…, tools=DragomanTools(mcp), cache_callables=False)`."""

# The framework is an extra: where dragoman's own types are checked, it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dragoman.adapters.bridge import Bridge, images, needs
from dragoman.errors import ToolExecutionError
from dragoman.trust.sanitizing import for_model

try:
    from agno.media import Image
    from agno.tools.function import Function, ToolResult
except ModuleNotFoundError as exc:
    raise needs(package="agno", adapter="agno") from exc

if TYPE_CHECKING:
    from dragoman.adapters.bridge import Manager, Offer


class DragomanTools:
    """A manager's tools; called by an agent at the start of each run for the current ones."""

    def __init__(self, mcp: Manager, **options: Any) -> None:
        """Serve the tools of `mcp`.

        Args:
            mcp: `dragoman.McpManager`, or the one of `dragoman.blocking` for `agent.run` without `await`.
            options: `allow` and `deny`: exposed names or `server:tool`, or globs of them; or `toolset`; and
                `on_progress`, called with a tool's name, progress, total and message.
        """
        self._bridge = Bridge(mcp, "ai-sdk", **options)

    def __call__(self) -> list[Function]:
        """Return the tools of this moment."""
        return [self._function(*one) for one in self._bridge.offered().items()]

    def _function(self, name: str, offer: Offer) -> Function:
        async def run(**arguments: Any) -> ToolResult:
            result = await self._bridge.call(name, arguments)
            if not result.success:
                # The framework marks the call as failed, and the model reads the message.
                raise ToolExecutionError(for_model(result.text))
            structured = {} if result.structured is None else {"structured_content": result.structured}
            return ToolResult(
                content=for_model(result.text),
                metadata=structured or None,
                images=[Image(content=data, mime_type=kind) for data, kind in images(result)] or None,
            )

        return Function(
            name=name,
            description=offer.description,
            parameters=offer.schema,
            annotations=dict(offer.tool.annotations) or None,
            entrypoint=run,
            skip_entrypoint_processing=True,
        )
