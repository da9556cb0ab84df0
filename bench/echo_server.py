"""A minimal stdio MCP server with an echo tool, so that benchmarks measure the client.

Usage: echo_server.py [TOOLS] [--delay SECONDS] [--helper] [--mark TEXT]

The text `!pid` returns the process id; `!mute` is never answered. `--delay` delays the first response;
`--helper` starts a process that outlives the server; `--mark` makes both findable.
"""

from __future__ import annotations

import json
import os
import sys

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
KNOWN = frozenset({"initialize", "tools/list", "tools/call", "ping"})
COUNT = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 1
"""The number of tools; all but the first are only listed."""
TOOLS = [
    {"name": f"echo{number or ''}", "description": "Echoes.", "inputSchema": SCHEMA}
    for number in range(COUNT)
]
HELPER = "import time; time.sleep(120)"


def answer(method: str, params: dict) -> dict | None:
    """Return the result, or None to send no response."""
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
    """Apply the options; without options, nothing is imported."""
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
