"""A server over stdio that is broken in the way its argument names: `crash`, `hang`, `junk`, `slow` …"""

from __future__ import annotations

import sys
import time
from typing import Any

from jsonrpc import RefusalError, serve, tool

mode = sys.argv[1]
TOOLS = {"tools": [tool("look")]}


def initialize(params: dict[str, Any]) -> dict[str, Any]:
    return {
        "protocolVersion": "1999-01-01" if mode == "protocol" else params.get("protocolVersion"),
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "broken", "version": "1"},
    }


def discover(_: object) -> None:
    raise RefusalError(-32601, "unknown method")


def listing(_: object) -> dict[str, Any]:
    return {"tools": [{**tool("look"), "description": "x" * 300_000}]} if mode == "huge" else TOOLS


if mode == "crash":
    print("loading the index", file=sys.stderr)
    msg = "cannot open index.db: the file is corrupt"
    raise SystemExit(f"RuntimeError: {msg}")
if mode == "hang":
    while sys.stdin.readline():
        pass
    sys.exit()
if mode == "junk":
    print("Server listening, press Ctrl-C to stop", flush=True)
    while line := sys.stdin.readline():
        print(f"received {len(line)} bytes", flush=True)
    sys.exit()
if mode == "slow":
    print("downloading the model: 3 %", file=sys.stderr, flush=True)
    time.sleep(600)
serve({"initialize": initialize, "server/discover": discover, "tools/list": listing})
