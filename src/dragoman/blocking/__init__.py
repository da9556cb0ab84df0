"""The same API without `await`: `from dragoman.blocking import McpManager`."""

from dragoman.blocking.manager import McpManager, ToolRegistry, ToolView

__all__ = ["McpManager", "ToolRegistry", "ToolView"]
