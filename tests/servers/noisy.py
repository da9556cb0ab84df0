"""A server that writes to its standard error: when it starts, and whenever it is called."""

from __future__ import annotations

import os
import sys
from typing import Any

from jsonrpc import serve, text, tool


def note(*words: str) -> None:
    print(*words, file=sys.stderr, flush=True)


def call(params: dict[str, Any], request_id: object) -> dict[str, Any]:
    note("it said", params["arguments"]["words"])
    return text("done")


note("the shop opens")
note("its key is", os.environ["TOKEN"])
serve({"tools/list": lambda _: {"tools": [tool("say")]}, "tools/call": call})
