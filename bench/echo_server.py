"""A stdio MCP server without any library, so that measurements are of the client: one tool that echoes."""

from __future__ import annotations

import json
import sys

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
KNOWN = frozenset({"initialize", "tools/list", "tools/call", "ping"})
COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 1
"""How many tools there are; all but the first are there to be listed only."""
TOOLS = [
    {"name": f"echo{number or ''}", "description": "Echoes.", "inputSchema": SCHEMA}
    for number in range(COUNT)
]


def answer(method: str, params: dict) -> dict:
    if method == "initialize":
        version = params["protocolVersion"]
        info = {"name": "echo", "version": "1"}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        size = params["arguments"].get("size", 0)
        return {"content": [{"type": "text", "text": "x" * size if size else params["arguments"]["text"]}]}
    return {}


def main() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" not in message:
            continue
        reply = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] in KNOWN:
            reply["result"] = answer(message["method"], message.get("params") or {})
        else:
            reply["error"] = {"code": -32601, "message": "Method not found"}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
