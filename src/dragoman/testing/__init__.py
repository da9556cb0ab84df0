"""Test helpers for programs that use dragoman: a scripted server, and a clock that skips waiting.

A `ScriptedServer` is an MCP server in the process of the test. A real `McpManager` connects to it, lists and
calls its tools, and reconnects after a loss; messages go through memory instead of a pipe. With an
`InstantClock`, timeouts and backoffs take no time.
"""

from __future__ import annotations

from dragoman.testing.clock import InstantClock
from dragoman.testing.servers import ScriptedCall, ScriptedServer

__all__ = ["InstantClock", "ScriptedCall", "ScriptedServer"]
