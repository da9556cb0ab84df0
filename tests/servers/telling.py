"""An older server that tells of changes of its resources, and logs; without the SDK."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from jsonrpc import RefusalError, initialize, serve, text, tool

DAY = "sample://day"
subscribed: set[str] = set()
levels = ["warning"]
LEVELS = ["debug", "info", "warning", "error"]


def tell(method: str, **params: Any) -> None:
    sys.stdout.write(
        json.dumps({"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}) + "\n"
    )
    sys.stdout.flush()


def greet(params: dict[str, Any]) -> dict[str, Any]:
    capabilities = {
        "tools": {},
        "logging": {},
        "resources": {"subscribe": True, "listChanged": True},
        "prompts": {"listChanged": True},
    }
    return {**initialize(params), "capabilities": capabilities}


def subscribe(params: dict[str, Any]) -> dict[str, Any]:
    if params["uri"] == "sample://secret":
        raise RefusalError(-32602, "not that one")
    subscribed.add(params["uri"])
    return {}


def unsubscribe(params: dict[str, Any]) -> dict[str, Any]:
    subscribed.discard(params["uri"])
    return {}


def set_level(params: dict[str, Any]) -> dict[str, Any]:
    levels.append(params["level"])
    return {}


def call(params: dict[str, Any], request_id: object) -> Any:
    arguments = params.get("arguments") or {}
    match params["name"]:
        case "touch":
            for _ in range(arguments.get("times", 1)):
                tell("resources/updated", uri=arguments["uri"])
        case "rearrange":
            tell("resources/list_changed")
            tell("prompts/list_changed")
        case "subscribed":
            return text(json.dumps(sorted(subscribed)))
        case "log":
            said = arguments["level"]
            if LEVELS.index(said) >= LEVELS.index(levels[-1]):
                tell("message", level=said, logger="telling", data={"said": arguments["text"]})
        case "exit":
            os._exit(3)
    return text("done")


NAMES = ("touch", "rearrange", "subscribed", "log", "exit")
serve(
    {
        "initialize": greet,
        "tools/list": lambda _: {"tools": [tool(name) for name in NAMES]},
        "resources/list": lambda _: {"resources": [{"uri": DAY, "name": "day"}]},
        "resources/subscribe": subscribe,
        "resources/unsubscribe": unsubscribe,
        "logging/setLevel": set_level,
        "tools/call": call,
    }
)
