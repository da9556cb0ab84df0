"""All servers of one application: `McpManager` and its parts."""

from dragoman.manager.manager import McpManager

__all__ = ["McpManager"]
