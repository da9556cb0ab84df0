"""Stands in for any server: it has the tools that it is told to have, and each call gets what is said for it.

The one argument is a JSON object: for each tool a list of texts, one for each call, the last for all further
calls; `null` stands for a call that fails.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from jsonrpc import serve, text, tool

REASON = "the database is locked"
answers: dict[str, list[str | None]] = json.loads(sys.argv[1])


def call(params: dict[str, Any], request_id: object) -> dict[str, Any]:
    queue = answers[params["name"]]
    said = queue.pop(0) if len(queue) > 1 else queue[0]
    return text(REASON, isError=True) if said is None else text(said)


serve({"tools/list": lambda _: {"tools": [tool(name) for name in answers]}, "tools/call": call})
