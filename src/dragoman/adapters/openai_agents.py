"""Tools for the OpenAI Agents SDK: `Agent(…, tools=agents_tools(mcp))`."""

# The framework is an extra: where dragoman's own types are checked, it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from dragoman.adapters.bridge import Bridge
from dragoman.tools.result.render import responses_output
from dragoman.trust.sanitizing import for_model

try:
    from agents import FunctionTool, ToolOutputFileContent, ToolOutputImage, ToolOutputText
except ModuleNotFoundError as exc:
    msg = (
        "dragoman.adapters.openai_agents needs the package `openai-agents`: install `dragoman[openai-agents]`"
    )
    raise ModuleNotFoundError(msg, name=exc.name) from exc

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.adapters.bridge import Manager
    from dragoman.model import ToolResult


def agents_tools(
    mcp: Manager, *, allow: Iterable[str] | None = None, deny: Iterable[str] = ()
) -> list[FunctionTool]:
    """Return a manager's tools, as they are now.

    A failed call is reported to the model; it does not end the run.

    Args:
        mcp: `dragoman.McpManager`, or the one of `dragoman.blocking.manager`.
        allow: Exposed names or `server:tool`, or globs of them; all tools unless given.
        deny: The same; these win.
    """
    bridge = Bridge(mcp, "responses", allow=allow, deny=deny)

    def made(alias: str, form: dict[str, Any]) -> FunctionTool:
        async def invoke(_: Any, written: str) -> Any:
            try:
                arguments: Any = json.loads(written or "{}")
            except ValueError as exc:
                return f"`{alias}` was not called: its arguments are not valid JSON ({exc})"
            if not isinstance(arguments, dict):
                return f"`{alias}` was not called: its arguments must be a JSON object"
            return _output(await bridge.call(alias, cast("dict[str, Any]", arguments)))

        return FunctionTool(
            name=alias,
            description=form["description"],
            params_json_schema=form["parameters"],
            on_invoke_tool=invoke,
            # Most servers' schemas do not meet the rules of strict mode.
            strict_json_schema=False,
        )

    return [made(alias, form) for alias, (_, form) in bridge.offered().items()]


def _output(result: ToolResult) -> Any:
    """Return a result in the framework's types; plain text stays text."""
    blocks = responses_output(for_model(result.text), result.parts)
    return blocks if isinstance(blocks, str) else [_piece(block) for block in blocks]


def _piece(block: dict[str, Any]) -> Any:
    match block["type"]:
        case "input_image":
            return ToolOutputImage(image_url=block["image_url"])
        case "input_file":
            return ToolOutputFileContent(file_data=block["file_data"], filename=block.get("filename"))
        case _:
            return ToolOutputText(text=block["text"])
