"""A server of 2026-07-28 without the SDK: apps, questions in the middle of a call, tasks and skills.

Usage: modern.py [FILE]. The file keeps its tasks, so that they survive the process, and every request.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from jsonrpc import RefusalError, serve, text, tool

VERSION = "2026-07-28"
COMPLETE = {"resultType": "complete"}
KEPT = {**COMPLETE, "ttlMs": 60_000, "cacheScope": "public"}
PAGE = "<!doctype html><title>panel</title>"
MIME = "text/html;profile=mcp-app"
FILE = Path(sys.argv[1]) if len(sys.argv) > 1 else None

TOOLS = [
    tool("meta", description="Return the `_meta` of the request."),
    tool("show", _meta={"ui": {"resourceUri": "ui://panel/main", "visibility": ["model", "app"]}}),
    tool("refresh", _meta={"ui": {"visibility": ["app"]}}),
    tool("report", _meta={"ui": {"visibility": ["model"]}}),
    tool("nothing", _meta={"ui": {"visibility": "app"}}),
    tool("long", _meta={"anthropic/maxResultSizeChars": 5_000}),
    tool("short"),
]


def note(what: str, params: Any) -> None:
    if FILE is not None:
        with FILE.with_suffix(".log").open("a") as log:
            log.write(json.dumps([what, params]) + "\n")


def discover(_: Any) -> dict[str, Any]:
    return {
        **KEPT,
        "supportedVersions": [VERSION],
        "capabilities": {"tools": {}, "resources": {}},
    }


def call(params: dict[str, Any], _request: Any) -> dict[str, Any]:
    note("tools/call", params)
    match params["name"]:
        case "meta":
            return {**COMPLETE, **text(json.dumps(params.get("_meta")))}
        case "long" | "short":
            return {**COMPLETE, **text("x" * 4_000)}
        case name:
            return {**COMPLETE, **text(f"{name} ran")}


def read(params: dict[str, Any]) -> dict[str, Any]:
    note("resources/read", params)
    uri = params["uri"]
    csp = {
        "connectDomains": ["https://api.example.com", "x; script-src *", 5],
        "resourceDomains": ["https://*.cdn.example.com"],
    }
    ui = {"csp": csp, "permissions": {"camera": {}, "root": {}}, "prefersBorder": True}
    match uri:
        case "ui://panel/main":
            content = {"uri": uri, "mimeType": MIME, "text": PAGE, "_meta": {"ui": ui}}
        case "ui://panel/plain":
            content = {"uri": uri, "mimeType": "text/html", "text": PAGE}
        case _:
            raise RefusalError(-32602, f"no resource {uri}")
    return {**KEPT, "contents": [content]}


METHODS: dict[str, Any] = {
    "server/discover": discover,
    "tools/list": lambda _: {**KEPT, "tools": TOOLS},
    "tools/call": call,
    "resources/list": lambda _: {
        **KEPT,
        "resources": [{"uri": "ui://panel/main", "name": "main", "mimeType": MIME, "_meta": {"a": 1}}],
    },
    "resources/templates/list": lambda _: {**KEPT, "resourceTemplates": []},
    "resources/read": read,
}

if __name__ == "__main__":
    serve(METHODS)
