"""Tools for smolagents: `tools = DragomanTools(mcp)`, `ToolCallingAgent(tools.current(), …)`."""

# The framework is an extra: where dragoman's own types are checked, it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUntypedBaseClass=false, reportUnknownParameterType=false, reportUnknownArgumentType=false

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, cast

from dragoman.adapters.bridge import Bridge, images, needs
from dragoman.errors import ToolExecutionError
from dragoman.trust.sanitizing import for_model

try:
    from PIL import Image
    from smolagents import Tool
except ModuleNotFoundError as exc:
    raise needs(package="smolagents", adapter="smolagents") from exc

if TYPE_CHECKING:
    from dragoman.adapters.bridge import Manager, Offer

_TYPES = frozenset("string boolean integer number array object null".split())


class DragomanTools:
    """A manager's tools. As a step callback, it gives the agent the current ones after each step.

    smolagents runs without `await`: run an agent in a thread (`asyncio.to_thread(agent.run, …)`), or use the
    manager of `dragoman.blocking`.
    """

    def __init__(self, mcp: Manager, **options: Any) -> None:
        """Serve the tools of `mcp`.

        Args:
            mcp: `dragoman.McpManager`, or the one of `dragoman.blocking.manager`.
            options: `allow` and `deny`: exposed names or `server:tool`, or globs of them; or `toolset`; and
                `on_progress`, called with a tool's name, progress, total and message.
        """
        # A name has to be a Python identifier: agents may write code that calls the tools.
        self._bridge = Bridge(mcp, "ai-sdk", illegal=r"\W|^(?=\d)", **options)

    def current(self) -> list[DragomanTool]:
        """Return the tools of this moment."""
        return [DragomanTool(self._bridge, *one) for one in self._bridge.offered().items()]

    def __call__(self, memory_step: Any, agent: Any) -> None:
        """Replace the agent's tools; called after each step."""
        del memory_step
        others = {name: tool for name, tool in agent.tools.items() if not isinstance(tool, DragomanTool)}
        agent.tools = {**others, **{tool.name: tool for tool in self.current()}}
        if (executor := getattr(agent, "python_executor", None)) is not None:
            executor.send_tools({**agent.tools, **agent.managed_agents})


class DragomanTool(Tool):
    """One tool. A failed call raises, and the agent shows the model why.

    It returns the structured result where the tool declares one, else an image, else the text.
    """

    skip_forward_signature_validation = True
    # The class is checked when it is made: the values of a tool are set before the base class sees them.
    name = description = ""
    inputs: dict[str, Any] = {}  # noqa: RUF012 -- the framework's own declaration
    output_type = "any"

    def __init__(self, bridge: Bridge, name: str, offer: Offer) -> None:
        self._bridge = bridge
        self.name, self.description = name, offer.description
        self.inputs = _inputs(offer.schema)
        self.output_schema = offer.tool.output_schema
        super().__init__()

    def forward(self, **arguments: Any) -> Any:
        """Call the tool.

        Raises:
            ToolExecutionError: The call failed.
        """
        result = self._bridge.call_and_wait(self.name, arguments)
        if not result.success:
            raise ToolExecutionError(for_model(result.text))
        if result.structured is not None and self.output_schema is not None:
            return result.structured
        for data, _ in images(result):
            return Image.open(io.BytesIO(data))
        return for_model(result.text)


def _inputs(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters as the framework declares them: one plain type each, and a description."""
    required = schema.get("required", [])
    found: dict[str, Any] = {}
    for name, one in schema.get("properties", {}).items():
        fields = cast("dict[str, Any]", one) if isinstance(one, dict) else {}
        kind = fields.get("type")
        plain = kind in _TYPES if isinstance(kind, str) else bool(kind) and _TYPES.issuperset(kind)
        found[name] = {
            **fields,
            "type": kind if plain else "any",
            "description": fields.get("description") or fields.get("title") or name,
        }
        if name not in required:
            found[name]["nullable"] = True
    return found
