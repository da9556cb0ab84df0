"""Rules of 2026-07-28 for every client, by what a server sees: headers, metadata, results and versions.

Each test is named by its rule. Rules of tasks, apps, skills, freshness and logins have tests beside these
features; `docs/protocol.md` has the table of all.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from dragoman import Handlers, Http, McpManager, ProtocolError, ServerSpec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio

VERSION = "2026-07-28"
META = "io.modelcontextprotocol"
KEPT = {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "public"}
DONE = {"resultType": "complete", "content": [{"type": "text", "text": "done"}], "isError": False}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


def marked(header: str, kind: str = "string") -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": header}


class ModernServer:
    """A server of 2026-07-28 over HTTP that keeps each request: its verb, its headers and its message."""

    def __init__(self, *tools: dict[str, Any], supported: list[str]) -> None:
        self.tools = tools
        self.supported = supported
        self.seen: list[tuple[str, Any, dict[str, Any]]] = []
        self.answers: list[dict[str, Any]] = []
        """The next answers to calls: the body of a message, or a result."""

    def sent(self, method: str) -> list[tuple[Any, dict[str, Any]]]:
        return [(headers, message) for _, headers, message in self.seen if message.get("method") == method]

    async def handle(self, request: web.Request) -> web.Response:
        message = await request.json() if request.method == "POST" else {}
        self.seen.append((request.method, request.headers, message))
        if "id" not in message:
            return web.Response(status=202 if message else 405)
        body = self.body(message)
        # Protocol errors have the status of the transport.
        status = 400 if body.get("error", {}).get("code") in (-32020, -32021, -32022) else 200
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], **body}, status=status)

    def body(self, message: dict[str, Any]) -> dict[str, Any]:
        meta = message.get("params", {}).get("_meta", {})
        asked = meta.get(f"{META}/protocolVersion")
        if asked is not None and asked not in self.supported:
            data = {"supported": self.supported, "requested": asked}
            return {"error": {"code": -32022, "message": "Unsupported protocol version", "data": data}}
        match message["method"]:
            case "initialize" if self.supported[0] < VERSION:
                named = {"serverInfo": {"name": "s", "version": "1"}, "capabilities": {"tools": {}}}
                return {"result": {"protocolVersion": self.supported[0], **named}}
            case "server/discover":
                capabilities = {"tools": {}, "resources": {}, "prompts": {}}
                return {"result": {**KEPT, "supportedVersions": [VERSION], "capabilities": capabilities}}
            case "tools/list":
                return {"result": {**KEPT, "tools": list(self.tools)}}
            case "tools/call":
                answer = self.answers.pop(0) if self.answers else DONE
                return answer if "error" in answer else {"result": answer}
            case "resources/read":
                return {"result": {**KEPT, "contents": [{"uri": message["params"]["uri"], "text": "t"}]}}
            case "prompts/get":
                return {"result": {"resultType": "complete", "messages": []}}
            case _:
                return {"error": {"code": -32601, "message": "Method not found"}}


@asynccontextmanager
async def serving(
    *tools: dict[str, Any], supported: str = VERSION, **more: Any
) -> AsyncIterator[tuple[ModernServer, McpManager]]:
    """Run a server with these tools, and a manager that has tried to connect to it."""
    server = ModernServer(*(tools or (tool("echo"),)), supported=[supported])
    app = web.Application()
    app.router.add_route("*", "/mcp", server.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
        async with McpManager([ServerSpec("s", Http(url))], cache=False, **more) as mcp:
            await mcp.wait_ready(timeout=60)
            yield server, mcp
    finally:
        await runner.cleanup()


# ── Requests


async def test_must_send_every_message_as_a_post_that_accepts_json_and_event_streams() -> None:
    async with serving() as (server, mcp):
        assert (await mcp.call("mcp_s_echo")).success
    assert {verb for verb, _, _ in server.seen} == {"POST"}
    for _, headers, _ in server.seen:
        assert {"application/json", "text/event-stream"} <= set(headers["Accept"].split(", "))
        assert "Mcp-Session-Id" not in headers
    assert all("method" in message for *_, message in server.seen), "no responses are sent"


async def test_must_send_the_version_and_the_metadata_headers_with_every_request() -> None:
    async with serving() as (server, mcp):
        await mcp.call("mcp_s_echo")
        await mcp.read("file:///é", "s")
        await mcp.prompt("p", server="s")
    for _, headers, message in server.seen:
        version = message["params"]["_meta"][f"{META}/protocolVersion"]
        assert headers["MCP-Protocol-Version"] == version == VERSION
        assert headers["Mcp-Method"] == message["method"]
    named = {method: server.sent(method)[0][0]["Mcp-Name"] for method in ("tools/call", "prompts/get")}
    assert named == {"tools/call": "echo", "prompts/get": "p"}
    ((headers, message),) = server.sent("resources/read")
    assert decoded(headers["Mcp-Name"]) == message["params"]["uri"]


async def test_must_send_capabilities_and_should_send_the_name_of_the_client_with_every_request() -> None:
    async with serving(handlers=Handlers(elicitation=lambda *_: {"action": "decline"})) as (server, mcp):
        await mcp.call("mcp_s_echo")
    for *_, message in server.seen:
        meta = message["params"]["_meta"]
        assert "form" in meta[f"{META}/clientCapabilities"]["elicitation"]
        assert meta[f"{META}/clientInfo"]["name"] == "dragoman"


async def test_must_not_use_the_id_of_a_request_again() -> None:
    async with serving() as (server, mcp):
        await asyncio.gather(*(mcp.call("mcp_s_echo") for _ in range(20)))
    ids = [message["id"] for *_, message in server.seen if "id" in message]
    assert len(ids) == len(set(ids))
    assert None not in ids


# ── Parameters in headers


def decoded(value: str) -> str:
    if value.startswith("=?base64?") and value.endswith("?="):
        return base64.b64decode(value.removeprefix("=?base64?").removesuffix("?=")).decode()
    return value


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        (None, None),
    ],
)
async def test_must_mirror_marked_parameters_in_headers_and_encode_them(value: Any, header: Any) -> None:
    sent = tool("t", region=marked("Region"), count=marked("Count", "integer"), on=marked("On", "boolean"))
    async with serving(sent) as (server, mcp):
        assert (await mcp.call("mcp_s_t", {"region": value, "count": -7, "on": True})).success
        assert (await mcp.call("mcp_s_t", {})).success
    (first, _), (second, _) = server.sent("tools/call")
    assert first.get("Mcp-Param-Region") == header
    assert (first["Mcp-Param-Count"], first["Mcp-Param-On"]) == ("-7", "true")
    assert not [name for name in second if name.startswith("Mcp-Param-")], "no value, no header"


@pytest.mark.parametrize(
    "properties",
    [
        {"a": marked("")},
        {"a": marked("A B")},
        {"a": marked("A\r\nX-Evil: 1")},
        {"a": marked("Same"), "b": marked("same")},
        {"a": marked("A", "number")},
        {"a": {"type": "array", "items": marked("A")}},
        {"a": {"anyOf": [marked("A")]}},
    ],
    ids=["empty", "space", "line-break", "twice", "number", "items", "any-of"],
)
async def test_must_exclude_a_tool_with_a_wrong_header_and_should_warn(
    properties: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "dragoman"):
        async with serving(tool("bad", **properties), tool("good")) as (server, mcp):
            assert [one.original_name for one in mcp.tools()] == ["good"]
            assert not (await mcp.call("mcp_s_bad", {"a": "x"})).success
        assert server.sent("tools/call") == []
    assert "tool `bad` is skipped" in caplog.text


async def test_should_list_the_tools_again_after_a_header_mismatch_and_retry() -> None:
    async with serving(tool("t", region={"type": "string"})) as (server, mcp):
        server.tools = (tool("t", region=marked("Region")),)
        server.answers = [{"error": {"code": -32020, "message": "Header mismatch"}}]
        assert (await mcp.call("mcp_s_t", {"region": "eu"})).text == "done"
    first, second = (headers for headers, _ in server.sent("tools/call"))
    assert "Mcp-Param-Region" not in first
    assert second["Mcp-Param-Region"] == "eu"


# ── Results


@pytest.mark.parametrize("kind", ["surprise", None, ["complete"], 7])
async def test_must_treat_an_unknown_type_of_result_as_invalid(kind: Any) -> None:
    async with serving() as (server, mcp):
        server.answers = [{**DONE, "resultType": kind}]
        result = await mcp.call("mcp_s_echo")
        assert (await mcp.call("mcp_s_echo")).text == "done"
    assert isinstance(result.exception, ProtocolError)
    assert "has the unknown type" in str(result.error)


async def test_must_treat_a_result_without_a_type_as_complete() -> None:
    async with serving() as (server, mcp):
        server.answers = [{"content": DONE["content"]}]
        assert (await mcp.call("mcp_s_echo")).text == "done"


async def test_must_answer_questions_before_the_retry_with_a_new_id_and_the_state_as_it_came() -> None:
    state = "opaque \u0000 {"
    question = {"method": "elicitation/create", "params": {"message": "name?", "requestedSchema": FORM}}
    asked: list[dict[str, Any]] = []

    def answer(_server: str, request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request)
        return {"action": "accept", "content": {"name": "Ada"}}

    asks = {"resultType": "input_required", "inputRequests": {"q": question}}
    async with serving(handlers=Handlers(elicitation=answer)) as (server, mcp):
        server.answers = [{**asks, "requestState": state}, asks]
        assert (await mcp.call("mcp_s_echo")).text == "done"
        assert (await mcp.call("mcp_s_echo")).text == "done"
    first, with_state, without, later = (message for _, message in server.sent("tools/call"))
    assert len({message["id"] for message in (first, with_state, without, later)}) == 4
    assert with_state["params"]["requestState"] == state
    assert with_state["params"]["inputResponses"]["q"]["content"] == {"name": "Ada"}
    assert "requestState" not in without["params"], "the server has sent none in this round"
    assert not {"requestState", "inputResponses"} & later["params"].keys(), "another request has neither"
    assert len(asked) == 2, "a question without a mode is a form"


# ── Versions


async def test_should_select_a_version_that_both_support() -> None:
    async with serving(supported="2025-11-25") as (_, mcp):
        assert mcp.status()["s"].protocol_version == "2025-11-25"
        assert (await mcp.call("mcp_s_echo")).text == "done"


async def test_should_surface_an_error_if_no_version_is_supported_by_both() -> None:
    async with serving(supported="2099-01-01") as (server, mcp):
        status = mcp.status()["s"]
    assert "version" in str(status.last_error)
    assert "2099-01-01" in str(status.last_error)
    assert server.sent("initialize") == [], "the server is modern: there is nothing to fall back to"
