"""A server of 2026-07-28 with one tool for each cell of the adapters' matrix.

Usage: adapted.py [FILE]. The file gets a line for each order that is carried out, and for each question.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from jsonrpc import NO_ANSWER, answer, notify, serve, text, tool

COMPLETE = {"resultType": "complete"}
KEPT = {**COMPLETE, "ttlMs": 60_000, "cacheScope": "public"}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="  # one pixel
FORM = {
    "type": "object",
    "properties": {"size": {"type": "string", "enum": ["S", "L"]}},
    "required": ["size"],
}
WORD = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
FOUND = {"law": "Sample Act", "article": 4}
TOOLS = [
    tool("echo", inputSchema=WORD),
    tool("查询.v1/where", inputSchema=WORD),
    tool("law", outputSchema={"type": "object", "properties": {"article": {"type": "integer"}}}),
    *(tool(name) for name in ("image", "fail", "slow", "cancelled", "exit", "order", "steps")),
]
cancelled: list[object] = []
waiting: list[object] = []


def note(line: str) -> None:
    if len(sys.argv) > 1:
        with Path(sys.argv[1]).open("a") as log:
            log.write(f"{line}\n")


def report(params: dict[str, Any], progress: float, message: str) -> None:
    token = (params.get("_meta") or {}).get("progressToken")
    if token is not None:
        notify("notifications/progress", progressToken=token, progress=progress, total=3, message=message)


def call(params: dict[str, Any], request_id: object) -> Any:
    match params["name"]:
        case "law":
            return {**COMPLETE, **text("Sample Act, Art. 4", structuredContent=FOUND)}
        case "image":
            return {**COMPLETE, "content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]}
        case "fail":
            return {**COMPLETE, **text("the disk is full", isError=True)}
        case "slow":
            report(params, 1, "begun")
            return NO_ANSWER
        case "cancelled":
            waiting.append(request_id)
            settle()
            return NO_ANSWER
        case "exit":
            os._exit(9)
        case "steps":
            for number in (1, 2, 3):
                report(params, number, f"step {number}")
            return {**COMPLETE, **text("all steps done")}
        case "order":
            return order(params)
        case _:
            return {**COMPLETE, **text(params["arguments"]["text"])}


def order(params: dict[str, Any]) -> dict[str, Any]:
    answers = params.get("inputResponses")
    if answers is None:
        note("asked")
        asked = {"mode": "form", "message": "Which size?", "requestedSchema": FORM}
        requests = {"size": {"method": "elicitation/create", "params": asked}}
        return {"resultType": "input_required", "inputRequests": requests, "requestState": "state-7"}
    given = answers["size"]
    size = (given.get("content") or {}).get("size", given["action"])
    note(f"ordered {size}")
    return {**COMPLETE, **text(f"ordered {size}")}


def settle() -> None:
    """Answer once the server has been told that some call was given up."""
    while waiting and cancelled:
        answer(waiting.pop(), result={**COMPLETE, **text(f"{len(cancelled)}")})


def notified(method: str, params: Any) -> None:
    if method == "notifications/cancelled":
        cancelled.append(params["requestId"])
        settle()


def discover(_: Any) -> dict[str, Any]:
    return {**KEPT, "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}


serve(
    {
        "server/discover": discover,
        "tools/list": lambda _: {**KEPT, "tools": TOOLS},
        "tools/call": call,
    },
    notified,
)
