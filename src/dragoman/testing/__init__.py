"""For the tests of programs that use dragoman: a server that does as it is told, and time that does not last.

A `ScriptedServer` is an MCP server inside of the test's own process. A real `McpManager` connects to it,
lists its tools, calls them, loses it and comes back to it; only the wire between them is memory instead of a
pipe. Under an `InstantClock`, time-outs and backoffs take no time at all.
"""

from __future__ import annotations

from dragoman.testing.clock import InstantClock
from dragoman.testing.scripted import ScriptedCall, ScriptedServer

__all__ = ["InstantClock", "ScriptedCall", "ScriptedServer"]
