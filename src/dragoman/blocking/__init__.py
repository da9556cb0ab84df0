"""The same API without `await`: `from dragoman.blocking import McpManager`."""

from dragoman.blocking.manager import McpManager
from dragoman.blocking.registry import ToolDef, ToolRegistry, ToolView

__all__ = ["McpManager", "ToolDef", "ToolRegistry", "ToolView"]
