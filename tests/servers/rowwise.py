"""Notes each call in a file; some texts make it fail, die once, or keep quiet.

`note` changes things, `look` is read-only. `die …` ends the server at the first time; `fail …` is an error;
`quiet …` is never answered. `meet` answers when as many calls as it is told wait together.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from jsonrpc import NO_ANSWER, answer, serve, text, tool

NOTES = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
DIED = Path(f"{sys.argv[1]}.died")
waiting: list[object] = []


def call(params: dict[str, Any], request_id: object) -> Any:
    if params["name"] == "meet":
        waiting.append(request_id)
        if len(waiting) == params["arguments"]["together"]:
            for one in waiting:
                answer(one, result=text(str(len(waiting))))
            waiting.clear()
        return NO_ANSWER
    noted = params["arguments"]["text"]
    os.write(NOTES, f"{noted}\n".encode())
    word = noted.partition(" ")[0]
    if word == "die" and not DIED.exists():
        DIED.touch()
        os._exit(9)
    if word == "quiet":
        return NO_ANSWER
    return text(f"noted {noted}", isError=word == "fail")


SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "number": {"type": "integer"}},
    "required": ["text"],
}
TOGETHER = {"type": "object", "properties": {"together": {"type": "integer"}}, "required": ["together"]}
TOOLS = [
    tool("note", inputSchema=SCHEMA),
    tool("look", inputSchema=SCHEMA, annotations={"readOnlyHint": True}),
    tool("meet", inputSchema=TOGETHER),
]
serve({"tools/list": lambda _: {"tools": TOOLS}, "tools/call": call})
