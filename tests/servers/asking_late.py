"""A server of the older protocol that asks for a request when it likes: in its midst, after it, or never.

`transfer` is never answered. `ask` asks and answers with what came; `wait` too, but asks only when another call,
`release`, comes. `leave` answers first and asks then; `outcome` says what came. `tell` sends a log message.
Subscriptions, completions, prompts and resources are never answered either.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from jsonrpc import NO_ANSWER, OBJECT, answer, notify, text, tool

QUESTION = {"message": "Confirm the transfer?", "requestedSchema": OBJECT}
TOOLS = [
    tool(name) for name in ("transfer", "ask", "wait", "release", "leave", "outcome", "tell", "tell_late")
]
asked: dict[str, object] = {}
"""The calls that wait for the answer to a question, by its id."""
waiting: list[object] = []
outcomes: list[str] = []


def ask(request_id: object) -> None:
    name = f"question {len(asked)}"
    asked[name] = request_id
    message = {"jsonrpc": "2.0", "id": name, "method": "elicitation/create", "params": QUESTION}
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def call(name: str, request_id: object) -> Any:
    match name:
        case "ask":
            ask(request_id)
        case "wait":
            waiting.append(request_id)
        case "release":
            ask(waiting.pop())
            return text("released")
        case "leave":
            answer(request_id, result=text("left"))
            ask(None)
        case "outcome":
            return text(*outcomes)
        case "tell":
            notify("notifications/message", level="info", data="a secret")
            return text("told")
        case "tell_late":
            answer(request_id, result=text("told"))
            notify("notifications/message", level="info", data="a secret")
        case _:
            pass
    return NO_ANSWER


for line in sys.stdin:
    message = json.loads(line)
    method, params, number = message.get("method"), message.get("params") or {}, message.get("id")
    match method:
        case "initialize":
            offer = {
                "tools": {},
                "logging": {},
                "completions": {},
                "prompts": {},
                "resources": {"subscribe": True},
            }
            about = {"name": "late", "version": "1"}
            shape = {"protocolVersion": "2025-06-18", "capabilities": offer, "serverInfo": about}
            answer(number, result=shape)
        case "tools/list":
            answer(number, result={"tools": TOOLS})
        case "tools/call":
            if (result := call(params["name"], number)) is not NO_ANSWER:
                answer(number, result=result)
        case None:
            outcomes.append(json.dumps(message.get("result") or message.get("error")))
            if (caller := asked[number]) is not None:
                answer(caller, result=text(outcomes[-1]))
        case "completion/complete" | "prompts/get" | "resources/read" | "resources/subscribe":
            pass
        case _ if number is not None:
            answer(number, error={"code": -32601, "message": "Method not found"})
