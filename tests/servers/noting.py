"""Writes each call that it carries out into the file that it is given."""

from __future__ import annotations

import os
import sys
from typing import Any

from jsonrpc import serve, text, tool

NOTES = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def call(params: dict[str, Any], _request_id: object) -> dict[str, Any]:
    noted = params["arguments"]["text"]
    os.write(NOTES, f"{os.getpid()} {noted}\n".encode())
    return text(noted)


SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
serve({"tools/list": lambda _: {"tools": [tool("note", inputSchema=SCHEMA)]}, "tools/call": call})
