"""The same API without `await`: `from dragoman.blocking import McpManager`."""

from dragoman.blocking.manager import McpManager
from dragoman.blocking.registry import ToolRegistry, ToolView
from dragoman.blocking.tool import ToolDef

__all__ = ["McpManager", "ToolDef", "ToolRegistry", "ToolView"]
