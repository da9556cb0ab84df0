"""A child process that says who it is: its pid, its `USER_TOKEN`, and what it was asked.

It has a tool of its user's own. `mutter` writes to the standard error, and `tell` sends a log message.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from jsonrpc import notify, serve, text, tool

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOKEN = os.environ.get("USER_TOKEN", "")
calls = 0


def call(params: dict[str, Any], _request_id: object) -> dict[str, Any]:
    global calls  # noqa: PLW0603 -- a script
    calls += 1
    said = params["arguments"]["text"]
    if params["name"] == "mutter":
        print(said, file=sys.stderr, flush=True)
    if params["name"] == "tell":
        notify("notifications/message", level="info", data=said)
    who = {"pid": os.getpid(), "token": TOKEN, "text": said, "calls": calls}
    return text(json.dumps(who))


TOOLS = [
    tool(name, inputSchema=SCHEMA)
    for name in ("who", "mutter", "tell", f"of_{os.environ.get('WHO') or TOKEN}")
]
serve({"tools/list": lambda _: {"tools": TOOLS}, "tools/call": call})
