"""A child process that says who it is: its pid, its `USER_TOKEN`, and what it was asked.

`fail` writes its argument to the standard error and dies with it; `tell` sends it as a log message.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from jsonrpc import notify, serve, text, tool

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
calls = 0


def call(params: dict[str, Any], _request_id: object) -> dict[str, Any]:
    global calls  # noqa: PLW0603 -- a script
    calls += 1
    said = params["arguments"]["text"]
    if params["name"] == "fail":
        print(said, file=sys.stderr, flush=True)
        os._exit(3)
    if params["name"] == "tell":
        notify("notifications/message", level="info", data=said)
    who = {"pid": os.getpid(), "token": os.environ.get("USER_TOKEN", ""), "text": said, "calls": calls}
    return text(json.dumps(who))


TOOLS = [tool(name, inputSchema=SCHEMA) for name in ("who", "fail", "tell")]
serve({"tools/list": lambda _: {"tools": TOOLS}, "tools/call": call})
