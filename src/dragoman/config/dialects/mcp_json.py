"""The portable `mcp.json` and `.mcp.json`: the `mcpServers` map that many hosts share.

Those hosts disagree about the unit of `timeout` and about a URL without a type, so both are decided
by the value and noted.
"""

from __future__ import annotations

from dataclasses import replace

from dragoman.config.dialects import dragoman

DIALECT = replace(
    dragoman.DIALECT,
    name="mcp-json",
    title="portable mcp.json",
    keys={
        spelling: replace(key, unit="unknown") if spelling == "timeout" else key
        for spelling, key in dragoman.KEYS.items()
    },
    container=("mcpServers",),
    # Other hosts read the type under this name only.
    writes={**dragoman.DIALECT.writes, "transport": "type"},
)
