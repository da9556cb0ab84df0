"""The least that a stdio MCP server needs, without the SDK: test servers start in milliseconds.

A server is a table of methods. A handler returns a result, raises `RefusalError`, or returns `NO_ANSWER`.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

NO_ANSWER = object()
WITH_ID = ("tools/call", "subscriptions/listen")
"""Methods whose handlers get the id of the request too."""
OBJECT = {"type": "object", "properties": {}}


class RefusalError(Exception):
    """A JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


def text(*texts: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": item} for item in texts], **more}


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"Does {name}.", "inputSchema": OBJECT, **more}


def answer(request_id: object, **outcome: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request_id, **outcome}) + "\n")
    sys.stdout.flush()


def notify(method: str, **params: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}) + "\n")
    sys.stdout.flush()


def initialize(params: dict[str, Any]) -> dict[str, Any]:
    return {
        "protocolVersion": params["protocolVersion"],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "plain", "version": "7.1"},
    }


def serve(methods: dict[str, Callable[..., Any]], notified: Callable[[str, Any], None] | None = None) -> None:
    """Answer requests until standard input ends."""
    methods = {"initialize": initialize, "ping": lambda _: {}, **methods}
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message.get("method"), message.get("params") or {}
        if "id" not in message:
            if notified:
                notified(method, params)
            continue
        handler = methods.get(method)
        try:
            if handler is None:
                raise RefusalError(-32601, "Method not found")
            result = handler(params, message["id"]) if method in WITH_ID else handler(params)
        except RefusalError as refusal:
            error = {"code": refusal.code, "message": refusal.message, "data": refusal.data}
            answer(message["id"], error=error)
        else:
            if result is not NO_ANSWER:
                answer(message["id"], result=result)
