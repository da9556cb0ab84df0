"""A server that has nothing to offer, as some do until they are configured; without the SDK."""

from __future__ import annotations

from typing import Any

from jsonrpc import serve


def tools(_: dict[str, Any]) -> dict[str, Any]:
    return {"tools": []}


def prompts(_: dict[str, Any]) -> dict[str, Any]:
    return {"prompts": []}


serve({"tools/list": tools, "prompts/list": prompts})
