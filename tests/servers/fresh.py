"""A server of 2026-07-28 that announces no changes: its listing grows each time, and has a time to live.

Usage: fresh.py TTL_MS LOG. Each listing is a line of the log.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from jsonrpc import serve, text, tool

TTL, LOG = int(sys.argv[1]), Path(sys.argv[2])
COMPLETE = {"resultType": "complete"}
KEPT = {**COMPLETE, "ttlMs": TTL, "cacheScope": "public"}


def listing(_: Any) -> dict[str, Any]:
    with LOG.open("a") as log:
        log.write("listed\n")
    count = len(LOG.read_text().splitlines())
    return {**KEPT, "tools": [tool(f"t{number}") for number in range(count)]}


serve(
    {
        "server/discover": lambda _: {
            **KEPT,
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}},
        },
        "tools/list": listing,
        "tools/call": lambda params, _: {**COMPLETE, **text(params["name"])},
    }
)
