"""A tool of a blocking manager: its `func` and `execute` wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dragoman.model import RemoteTool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.model import ToolDef as AsyncToolDef
    from dragoman.model import ToolResult

    class ToolDef(AsyncToolDef):
        """A tool of a blocking manager, as type checkers see it."""

        def execute(  # pyright: ignore[reportIncompatibleMethodOverride] -- nothing is awaited here
            self, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
        ) -> ToolResult:
            """Run the tool; a failed call is a result."""
            ...

else:
    from dragoman.model import ToolDef

__all__ = ["BlockingRemoteTool", "ToolDef"]


class BlockingRemoteTool(RemoteTool):
    """A server's tool whose `func` waits."""

    __slots__ = ()

    def call(self, /, **arguments: Any) -> str:
        """Run the tool with keyword arguments and return its text.

        Raises:
            ToolExecutionError: The call failed; the subclass says why.
        """
        result: ToolResult = self.execute(arguments)
        return result.raise_for_error().text
