"""A stdio MCP server without any library, so that measurements are of the client: one tool that echoes.

Usage: echo_server.py [TOOLS] [--delay SECONDS] [--helper] [--mark TEXT]

The text `!pid` is answered with the process's number, and `!mute` never. A delay comes before the first
answer; a helper is a process of the server's own, which outlives it; a mark is there to be found by.
"""

from __future__ import annotations

import json
import os
import sys

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
KNOWN = frozenset({"initialize", "tools/list", "tools/call", "ping"})
COUNT = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 1
"""How many tools there are; all but the first are there to be listed only."""
TOOLS = [
    {"name": f"echo{number or ''}", "description": "Echoes.", "inputSchema": SCHEMA}
    for number in range(COUNT)
]
HELPER = "import time; time.sleep(120)"


def answer(method: str, params: dict) -> dict | None:
    """Return the result, or nothing where none is to be given."""
    if method == "initialize":
        version = params["protocolVersion"]
        info = {"name": "echo", "version": "1"}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        size, text = params["arguments"].get("size", 0), params["arguments"]["text"]
        if text == "!mute":
            return None
        text = "x" * size if size else str(os.getpid()) if text == "!pid" else text
        return {"content": [{"type": "text", "text": text}]}
    return {}


def main() -> None:
    prepare(sys.argv)
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" not in message:
            continue
        reply = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] in KNOWN:
            result = answer(message["method"], message.get("params") or {})
            if result is None:
                continue
            reply["result"] = result
        else:
            reply["error"] = {"code": -32601, "message": "Method not found"}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


def prepare(arguments: list[str]) -> None:
    """Do what the options ask for; most servers have none, and import nothing for it."""
    if "--delay" in arguments:
        import time

        time.sleep(float(arguments[arguments.index("--delay") + 1]))
    if "--helper" in arguments:
        import subprocess

        mark = arguments[arguments.index("--mark") + 1]
        nothing = subprocess.DEVNULL
        command = [sys.executable, "-S", "-c", HELPER, "--mark", mark]
        subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing)


if __name__ == "__main__":
    main()
