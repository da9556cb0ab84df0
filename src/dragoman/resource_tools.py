"""An alias: these functions live in `dragoman.manager.resources`."""

from dragoman.manager.resources import prompt_tools, resource_tools, result_tool

__all__ = ["prompt_tools", "resource_tools", "result_tool"]
