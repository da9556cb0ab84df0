"""One small real server with every fault that a child process can have.

`faulty.py MODE` misbehaves from its start, in its handshake or in its listing, as the mode says; the tool
`fault` misbehaves in one call, as its argument `kind` says. The tool `echo` is always right. What it was
asked is written to `MODE.log` in the working folder, a line each: the process number and the method.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MODE = sys.argv[1] if len(sys.argv) > 1 else "sound"
LOG = Path(f"{MODE}.log")
MODERN = "2026-07-28"
MIB = 1024 * 1024
SLEEPER = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]

out = sys.stdout.buffer
cancelled: list[object] = []
counted = itertools.count(1)


def note(what: str) -> None:
    with LOG.open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()} {what}\n")


def starts() -> int:
    return sum(line.endswith(" start\n") for line in LOG.open(encoding="utf-8"))


def write(data: bytes) -> None:
    out.write(data)
    out.flush()


def send(message: object) -> None:
    end = b"\r\n" if MODE == "crlf" else b"\n"
    mark = b"\xef\xbb\xbf" if MODE == "bom" else b""
    write(mark + json.dumps(message).encode() + end)


def reply(request_id: object, **outcome: Any) -> None:
    send({"jsonrpc": "2.0", "id": request_id, **outcome})


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}], "resultType": "complete"}


def raw(request_id: object, result: bytes) -> None:
    write(b'{"jsonrpc":"2.0","id":%d,"result":%s}\n' % (request_id, result))


def raw_text(request_id: object, inside: bytes) -> None:
    raw(request_id, b'{"content":[{"type":"text","text":%s}]}' % inside)


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}, **more}


TOOLS = [tool("echo"), tool("fault")]


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def notify(method: str, **params: Any) -> None:
    send({"jsonrpc": "2.0", "method": method, "params": params})


# ── before anything is asked


def begin() -> None:
    note("start")
    match MODE:
        case "crash-at-start":
            print("license file missing", file=sys.stderr, flush=True)
            sys.exit(3)
        case "crash-twice" if starts() <= 2:
            sys.exit(4)
        case "slow-start":
            time.sleep(0.5)
        case "banner":
            write(b"Starting up...\n\n[INFO] listening {on} stdio\n\xff\xfe\n  \n42\n[]\n{}\n")
        case "ignores-term" | "ignores-everything":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        case "wrapper-leaves-child" | "wrapper-dies":
            child = subprocess.Popen(SLEEPER, stdin=subprocess.DEVNULL)
            note(f"child {child.pid}")
        case "daemon":
            child = subprocess.Popen(SLEEPER, stdin=subprocess.DEVNULL, start_new_session=True)
            note(f"child {child.pid}")
        case "stderr-flood":
            for _ in range(256):
                os.write(2, b"e" * 65536)
            os.write(2, b"\nthe last line\n")


# ── the handshake and the listing


def initialize(request_id: object, params: dict[str, Any]) -> None:
    match MODE:
        case "mute" | "mute-initialize":
            return None
        case "mute-once" if starts() == 1:
            return None
        case "exits-at-initialize":
            sys.exit(5)
        case "refuses-initialize":
            return reply(request_id, error={"code": -32603, "message": "no database"})
        case "modern-only":
            data = {"supported": [MODERN], "requested": params.get("protocolVersion")}
            return reply(request_id, error={"code": -32022, "message": "Unsupported version", "data": data})
        case "null-initialize":
            return reply(request_id, result=None)
    version = "1999-01-01" if MODE == "wrong-version" else params["protocolVersion"]
    capabilities = {"tools": {"listChanged": True}}
    info = {"name": "faulty", "version": "1"}
    reply(request_id, result={"protocolVersion": version, "capabilities": capabilities, "serverInfo": info})
    return None


def discover(request_id: object) -> None:
    match MODE:
        case "mute" | "mute-discover":
            return None
        case "exits-at-discover":
            sys.exit(1)
        case "closes-at-discover":
            os.close(1)
            return None
        case "modern-only" | "modern":
            result = {"supportedVersions": [MODERN], "capabilities": {"tools": {}}, "resultType": "complete"}
            return reply(request_id, result={**result, "ttlMs": 0, "cacheScope": "private"})
        case "mute-discover-modern":
            # The question is overheard, but it has settled the protocol: `initialize` comes too late.
            return None
        case "null-discover":
            return reply(request_id, result=None)
    reply(request_id, error={"code": -32601, "message": "Method not found"})
    return None


def listing(request_id: object, params: dict[str, Any]) -> None:
    listings = next(counted)
    tools: list[Any] = [*TOOLS]
    more: dict[str, Any] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    page = int(params.get("cursor") or 0)
    match MODE:
        case "mute-listing":
            return None
        case "malformed-tools":
            bad = [None, 7, "x", [], {}, {"name": None}, {"name": 5}, {"name": "bad", "inputSchema": "no"}]
            tools = [
                *bad,
                *tools,
                tool("no-type", inputSchema={"properties": {}}),
                tool("odd", outputSchema=3),
            ]
        case "endless-pages":
            tools, more["nextCursor"] = [*tools, tool(f"t{page}")], str(page + 1)
        case "repeated-cursor":
            more["nextCursor"] = "1"
        case "odd-cursor":
            more["nextCursor"] = {"page": 2}
        case "null-listing":
            return reply(request_id, result=None)
        case "no-tools-key":
            return reply(request_id, result={"resultType": "complete"})
        case "bad-once" if listings == 1:
            return reply(request_id, error={"code": -32603, "message": "the index is locked"})
        case "deep-schema":
            tools.append(tool("deep", inputSchema=nested(400)))
        case "restless":
            tools.append(tool(f"version{listings}"))
            reply(request_id, result={"tools": tools, **more})
            return notify("notifications/tools/list_changed")
        case "changes":
            tools.append(tool(f"version{listings}"))
    reply(request_id, result={"tools": tools, **more})
    return None


# ── one call


def fault(request_id: int, kind: str) -> None:
    match kind:
        # Answers that cannot be read
        case "bad-utf8":
            raw_text(request_id, b'"caf\xe9"')
        case "nan" | "infinity" | "minus-infinity" | "overflow":
            values = {"nan": b"NaN", "infinity": b"Infinity", "minus-infinity": b"-Infinity"}
            value = values.get(kind, b"1e400")
            raw(request_id, b'{"content":[],"structuredContent":{"value":%s}}' % value)
        case "deep":
            raw(request_id, b'{"content":[],"structuredContent":%s1%s}' % (b'{"a":' * 5000, b"}" * 5000))
        case "long-integer":
            raw(request_id, b'{"content":[],"structuredContent":{"value":%s}}' % (b"9" * 5000))
        case "lone-surrogate":
            raw_text(request_id, b'"\\ud800"')
        case "control-character":
            raw_text(request_id, b'"a\0b"')
        case "cut":
            write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"ty\n' % request_id)
        case "id-last":
            write(b'{"jsonrpc":"2.0","result":{"content":[],"value":NaN},"id":%d}\n' % request_id)
        case "glued":
            write((b'{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}' % request_id) * 2 + b"\n")
        case "64-mib":
            raw_text(request_id, b'"' + b"x" * (64 * MIB) + b'"')
        # Answers of the wrong shape
        case "null":
            reply(request_id, result=None)
        case "list":
            reply(request_id, result=[])
        case "string":
            reply(request_id, result="ok")
        case "nothing":
            reply(request_id)
        case "no-content":
            reply(request_id, result={"content": None})
        case "odd-content":
            reply(request_id, result={"content": [{"type": "text", "text": 5}]})
        case "error-text":
            reply(request_id, error="went wrong")
        case "error-empty":
            reply(request_id, error={})
        case "error-code-text":
            reply(request_id, error={"code": "E42", "message": 7})
        case "error-and-result":
            reply(request_id, error={"code": -32000, "message": "both"}, result=text("both"))
        # Good answers in odd dress
        case "string-id":
            reply(str(request_id), result=text("ok"))
        case "batch":
            answer = {"jsonrpc": "2.0", "id": request_id, "result": text("ok")}
            note_ = {
                "jsonrpc": "2.0",
                "method": "notifications/message",
                "params": {"level": "info", "data": 1},
            }
            send([note_, 7, answer])
        case "twice":
            reply(request_id, result=text("ok"))
            reply(request_id, result=text("again"))
        case "wrong-id-first":
            for wrong in (request_id + 1000, -1, 0, None, 1.5, True, [], "nobody"):
                reply(wrong, result=text("not yours"))
            reply(request_id, result=text("ok"))
        case "duplicate-keys":
            write(
                b'{"jsonrpc":"2.0","id":0,"id":%d,"result":{},"result":%s}\n'
                % (request_id, json.dumps(text("ok")).encode())
            )
        case "slowly":
            for byte in (
                json.dumps({"jsonrpc": "2.0", "id": request_id, "result": text("ok")}).encode() + b"\n"
            ):
                write(bytes([byte]))
        case "others-id-inside":
            # Unreadable, with the id of another call inside.
            write(
                b'{"jsonrpc":"2.0","result":{"id":%d,"value":NaN},"id":%d}\n' % (request_id - 1, request_id)
            )
        # Floods
        case "junk-flood":
            for _ in range(200):
                write(b"some line of a log, or of a progress bar\n" * 1000)
            reply(request_id, result=text("ok"))
        case "log-flood":
            line = {
                "jsonrpc": "2.0",
                "method": "notifications/message",
                "params": {"level": "info", "data": "x"},
            }
            for _ in range(100):
                write((json.dumps(line).encode() + b"\n") * 1000)
            reply(request_id, result=text("ok"))
        case "request-flood":
            methods = ["ping", "roots/list", "sampling/createMessage", "no/such"]
            for number in range(10_000):
                send({"jsonrpc": "2.0", "id": f"r{number}", "method": methods[number % 4], "params": {}})
            reply(request_id, result=text("ok"))
        case "progress-flood":
            for number in range(10_000):
                notify("notifications/progress", progressToken=request_id, progress=number)
            reply(request_id, result=text("ok"))
        case "change-flood":
            for _ in range(5000):
                notify("notifications/tools/list_changed")
            reply(request_id, result=text("ok"))
        case "stderr-flood":
            for _ in range(1024):
                os.write(2, b"e" * 65536)
            reply(request_id, result=text("ok"))
        case "endless-line":
            while True:
                write(b"x" * 65536)
        case "blank-lines":
            write(b"\n" * MIB + b" \t \r\n" * 100_000)
            reply(request_id, result=text("ok"))
        # No answer
        case "never" | "late":
            if kind == "late":
                waiting.append(request_id)
        case "wrong-id":
            reply(request_id + 1000, result=text("not yours"))
        case "stops-reading":
            write(b"")
            time.sleep(600)
        case "freezes":
            os.kill(os.getpid(), signal.SIGSTOP)
        # The end
        case "exits":
            print("out of memory", file=sys.stderr, flush=True)
            os._exit(7)
        case "exits-cleanly":
            os._exit(0)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "half-line":
            write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","te' % request_id)
            os._exit(7)
        case "closes-output":
            os.close(1)
            time.sleep(600)
        case "closes-input":
            os.close(0)
            time.sleep(600)
        case "last-words":
            reply(request_id, result=text("ok"))
            os._exit(0)
        case "crash-under-child":
            # A child holds the pipe: the end of our output is not seen.
            child = subprocess.Popen(SLEEPER, stdin=subprocess.DEVNULL)
            note(f"child {child.pid}")
            os._exit(7)
        case _:
            reply(request_id, result=text("ok"))


waiting: list[object] = []


def call(request_id: Any, params: dict[str, Any]) -> None:
    arguments = params.get("arguments") or {}
    if params["name"] == "fault":
        fault(request_id, arguments.get("kind", ""))
    elif params["name"] == "echo":
        if arguments.get("pause"):
            time.sleep(arguments["pause"])
        reply(request_id, result=text(arguments.get("text", "")))
    else:
        reply(request_id, error={"code": -32602, "message": f"no tool {params['name']}"})
    if MODE == "exits-after-each-call":
        os._exit(0)


def notified(method: str, params: dict[str, Any]) -> None:
    if method == "notifications/cancelled":
        cancelled.append(params.get("requestId"))
        while waiting:
            reply(waiting.pop(), result=text("too late"))


def take(message: dict[str, Any]) -> None:
    method, params = message.get("method"), message.get("params") or {}
    if method is None:
        return
    note(method)
    if "id" not in message:
        notified(method, params)
        return
    request_id = message["id"]
    match method:
        case "initialize":
            initialize(request_id, params)
        case "server/discover":
            discover(request_id)
        case "tools/list":
            listing(request_id, params)
        case "tools/call":
            call(request_id, params)
        case "ping":
            reply(request_id, result={})
        case _:
            reply(request_id, error={"code": -32601, "message": "Method not found"})


def main() -> None:
    begin()
    for line in sys.stdin.buffer:
        take(json.loads(line))
    note("end of input")
    if MODE == "ignores-everything":
        while True:
            time.sleep(60)


if __name__ == "__main__":
    main()
