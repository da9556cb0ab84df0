"""An ordinary server with one tool for each kind of result, and some that misbehave."""

from __future__ import annotations

import base64
import json
import os
import struct
import sys
import zlib
from pathlib import Path

from jsonrpc import NO_ANSWER, OBJECT, RefusalError, answer, serve, text, tool

cancelled: list[object] = []
waiting: list[object] = []


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\0" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


TOOLS = [
    tool(
        "echo",
        inputSchema={
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
            "additionalProperties": False,
        },
        title="Echo",
        annotations={"readOnlyHint": True},
    ),
    tool(
        "add",
        outputSchema={"type": "object", "properties": {"sum": {"type": "number"}}, "required": ["sum"]},
    ),
    tool("pair"),
    tool("fail"),
    tool("refuse"),
    tool("slow"),
    tool("cancelled"),
    tool("image"),
    tool("mixed"),
    tool("cited"),
    tool("law"),
    tool("environment"),
    tool("exit"),
    tool("bad-bytes"),
    tool("wrong-output", outputSchema={"type": "object", "required": ["sum"]}),
    {"name": "bare", "inputSchema": OBJECT},
    tool("bad-schema", inputSchema={"type": "object", "properties": {"a": {"type": "strong"}}}),
]


def call(params, request_id):
    arguments = params.get("arguments") or {}
    match params["name"]:
        case "echo":
            return text(arguments["text"])
        case "add":
            total = arguments["a"] + arguments["b"]
            return text(json.dumps({"sum": total}), structuredContent={"sum": total})
        case "pair":
            return text("first", "second")
        case "fail":
            return text("the disk is full", isError=True)
        case "refuse":
            raise RefusalError(-32602, "no such thing", {"why": "because"})
        case "slow":
            return NO_ANSWER
        case "cancelled":
            # Answers once the server has been told that some call was given up.
            waiting.append(request_id)
            settle()
            return NO_ANSWER
        case "image":
            data = base64.b64encode(png(64, 32)).decode()
            return {"content": [{"type": "image", "data": data, "mimeType": "image/png"}]}
        case "mixed":
            data = base64.b64encode(png(64, 32)).decode()
            note = {"uri": "note://1", "mimeType": "text/plain", "text": "the whole note"}
            blocks = [
                {"type": "image", "data": data, "mimeType": "image/png"},
                {"type": "resource", "resource": note},
            ]
            return {"content": [*text("before")["content"], *blocks, *text("after")["content"]]}
        case "cited":
            # A law without a date that is named as usual; JSON that has to stay JSON.
            found = {"law": "Sample Act", "article": "4"}
            return text(
                json.dumps(found | ({"in_force_since": "2026-03-01"} if arguments.get("dated") else {}))
            )
        case "law":
            source = {"title": "Sample Act", "locator": "Art. 4", "url": "sample://act/4"}
            return text(
                "A deposit is two months' rent.",
                structuredContent={"results": [{"source": source, "updated": "2026-01-30"}]},
            )
        case "environment":
            return text(json.dumps({"env": dict(os.environ), "cwd": str(Path.cwd()), "pid": os.getpid()}))
        case "exit":
            print("going down", file=sys.stderr, flush=True)
            os._exit(9)
        case "bad-bytes":
            sys.stdout.flush()
            sys.stdout.buffer.write(b"\xff\xfe junk\n")
            sys.stdout.buffer.flush()
            return text("still here")
        case "wrong-output":
            return text("{}", structuredContent={"other": 1})
        case _:
            return text("ok")


def settle():
    while waiting and cancelled:
        answer(waiting.pop(), result=text(f"{len(cancelled)}"))


def notified(method, params):
    if method == "notifications/cancelled":
        cancelled.append(params["requestId"])
        settle()


serve({"tools/list": lambda _: {"tools": TOOLS}, "tools/call": call}, notified)
