"""The way of a call through the SDK's session, over a wire that answers from a script."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import mcp_types as types
import pytest
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types.methods import validate_server_result
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

from dragoman.model import Handlers
from dragoman.server.connection import sdk_answers
from dragoman.server.protocol import sdk
from dragoman.server.protocol.deadlines import Deadline
from dragoman.server.protocol.dispatcher import WireDispatcher
from dragoman.server.protocol.extensions import declared_extensions
from dragoman.server.protocol.outgoing import Outgoing
from dragoman.server.protocol.session import CLIENT_INFO, MANY_PIECES, Session, is_plain_result

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dragoman.server.protocol.wire import SendInfo

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement("excel-6.3", "otter-p0.methods", "kode-discovery.list"),
]

HEADERS = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "Region"}}}
TEXT = {"content": [{"type": "text", "text": "done"}]}
SCHEMA = {"type": "object", "properties": {"x": {"type": "string"}}}
FORM = {"method": "elicitation/create", "params": {"mode": "form", "message": "?", "requestedSchema": SCHEMA}}


class Script:
    """A wire whose server gives the prepared answers to calls, one after the other."""

    def __init__(self, answers: list[dict[str, Any]]) -> None:
        self.answers = answers
        self.tools: Any = [{"name": "t", "inputSchema": HEADERS}]
        self.page: dict[str, Any] = {}
        """What else a page of the listing says."""
        self.calls: list[dict[str, Any]] = []
        self.headers: list[Any] = []
        self.dispatcher = WireDispatcher("s")
        self.dispatcher.wire = self

    def send(self, message: bytes, envelope: SendInfo) -> None:
        request = json.loads(message)
        match request["method"]:
            case "tools/call":
                self.calls.append(request["params"])
                self.headers.append(envelope.headers)
                outcome = self.answers.pop(0)
            case "tools/list":
                page = {"tools": self.tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
                outcome = {"result": {**page, **self.page}}
            case "initialize":
                info = {"name": "s", "version": "1"}
                version = LATEST_HANDSHAKE_VERSION
                outcome = {"result": {"protocolVersion": version, "capabilities": {}, "serverInfo": info}}
            case _:
                return
        answer = json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome}).encode()
        asyncio.get_running_loop().call_soon(self.dispatcher.rpc.receive, answer)

    def abandon(self, message: bytes, envelope: SendInfo, reason: str, *, tell: bool = True) -> bool:
        return False

    @asynccontextmanager
    async def session(self, mode: str = LATEST_MODERN_VERSION, **more: Any) -> AsyncGenerator[Session]:
        discover = types.DiscoverResult.model_validate(
            {
                "supportedVersions": [LATEST_MODERN_VERSION],
                "capabilities": {"tools": {}},
                "ttlMs": 0,
                "cacheScope": "public",
                "resultType": "complete",
            }
        )
        declared = {"client_info": CLIENT_INFO, **more}
        async with ClientSession(dispatcher=self.dispatcher, **declared) as session:
            await sdk.negotiate(
                session, "auto", sdk.KnownProtocol(mode, None if mode == "legacy" else discover)
            )
            yield Session(session, self.dispatcher, capabilities=sdk.client_capabilities(more))


def call(tool: str, arguments: dict[str, Any], **more: Any) -> Outgoing:
    return Outgoing(tool, arguments, Deadline.after(20), **more)


ANSWERING = Handlers(
    elicitation=lambda *_: {},
    sampling=lambda *_: {},
    list_roots=lambda *_: {},
)


@pytest.mark.parametrize("declared", [{}, {**declared_extensions(), **sdk_answers(ANSWERING, "s")}])
@pytest.mark.parametrize("mode", ["legacy", LATEST_MODERN_VERSION])
async def test_call_is_sent_as_the_session_of_the_sdk_sends_it(mode: str, declared: dict[str, Any]) -> None:
    final = {"result": {**TEXT, "resultType": "complete"}}
    script = Script([final, final])
    async with script.session(mode, **declared) as session:
        await session.list_page("tools", None)
        await session._session.list_tools()
        answer = await session.call_tool(call("t", {"a": "eu", "b": None}, meta={"k": "v"}))
        await session._session.call_tool("t", {"a": "eu", "b": None}, meta={"k": "v"})
    assert [part.text for part in answer.parts] == ["done"]
    assert script.calls[0] == script.calls[1]
    assert script.headers[0] == script.headers[1]
    assert script.calls[0]["arguments"] == {"a": "eu", "b": None}
    assert script.calls[0]["_meta"]["k"] == "v"


async def test_input_that_the_server_wants_is_given_and_the_first_answer_counts() -> None:
    wanted = {"resultType": "input_required", "inputRequests": {"q": FORM}, "requestState": "s1"}
    script = Script([{"result": wanted}, {"result": {**TEXT, "resultType": "complete"}}])

    async def answer_form(*_: object) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"x": "y"})

    async with script.session(elicitation_callback=answer_form) as session:
        answer = await session.call_tool(call("t", {}))
    assert [part.text for part in answer.parts] == ["done"]
    assert len(script.calls) == 2
    assert script.calls[1]["requestState"] == "s1"
    assert script.calls[1]["inputResponses"]["q"]["content"] == {"x": "y"}


async def test_refused_headers_are_mended_with_a_new_listing_and_one_more_request() -> None:
    refused = {"error": {"code": types.HEADER_MISMATCH, "message": "headers"}}
    script = Script([refused, {"result": {**TEXT, "resultType": "complete"}}])
    async with script.session() as session:
        answer = await session.call_tool(call("t", {"a": "eu"}))
    assert [part.text for part in answer.parts] == ["done"]
    assert len(script.calls) == 2
    assert "eu" in script.headers[1].values()
    assert "eu" not in script.headers[0].values()


async def test_other_refusals_reach_the_caller() -> None:
    script = Script([{"error": {"code": -32602, "message": "no"}}])
    async with script.session() as session:
        with pytest.raises(MCPError, match="no"):
            await session.call_tool(call("t", {}))
    assert len(script.calls) == 1


async def test_result_that_is_none_is_refused() -> None:
    script = Script([{"result": {"content": "text", "resultType": "complete"}}])
    async with script.session() as session:
        with pytest.raises(ValueError, match="content"):
            await session.call_tool(call("t", {}))


PLAIN = [
    TEXT,
    {"content": []},
    {"content": [{"type": "text", "text": ""}] * 2, "isError": True},
    {"content": [], "structuredContent": {"a": [1, None]}, "isError": False},
]
NOT_PLAIN = [
    {},
    {"content": None},
    {"content": {}},
    {"content": ["text"]},
    {"content": [{"type": "text"}]},
    {"content": [{"type": "text", "text": 1}]},
    {"content": [{"type": "text", "extra": "x"}]},
    {"content": [{"type": "text", "text": "x", "annotations": {"priority": 7}}]},
    {"content": [{"type": "image", "data": ""}]},
    {"content": [], "isError": "no"},
    {"content": [], "structuredContent": []},
    {"content": [], "_meta": 1},
]


PLAIN_TODAY = [
    *({**raw, "resultType": "complete"} for raw in PLAIN),
    {
        **TEXT,
        "resultType": "complete",
        "_meta": {"io.modelcontextprotocol/serverInfo": 1, "progressToken": []},
    },
]
NOT_PLAIN_TODAY = [
    *({**raw, "resultType": "complete"} for raw in NOT_PLAIN),
    {**TEXT, "resultType": "later"},
    {**TEXT, "resultType": "complete", "_meta": []},
    {**TEXT, "resultType": "complete", "requestState": "s"},
]


@pytest.mark.parametrize("version", HANDSHAKE_PROTOCOL_VERSIONS)
async def test_what_is_a_result_at_a_glance_is_one_for_the_sdk(version: str) -> None:
    for raw in PLAIN:
        assert is_plain_result(raw)
        validate_server_result("tools/call", version, raw)
    assert not any(map(is_plain_result, NOT_PLAIN))


async def test_what_is_a_modern_result_at_a_glance_is_one_for_the_sdk() -> None:
    for raw in PLAIN_TODAY:
        assert is_plain_result(raw, is_modern=True)
        validate_server_result("tools/call", LATEST_MODERN_VERSION, raw)
    assert not any(is_plain_result(raw, is_modern=True) for raw in NOT_PLAIN_TODAY)
    assert not any(is_plain_result(raw) for raw in PLAIN_TODAY)


@pytest.mark.parametrize(
    ("mode", "raw"),
    [
        *(("legacy", raw) for raw in (*NOT_PLAIN, *PLAIN)),
        *((LATEST_MODERN_VERSION, raw) for raw in (*NOT_PLAIN_TODAY, *PLAIN_TODAY)),
    ],
    ids=str,
)
async def test_server_is_judged_as_the_session_of_the_sdk_judges_it(mode: str, raw: dict[str, Any]) -> None:
    script = Script([{"result": raw}, {"result": raw}])
    verdicts: list[bool] = []
    async with script.session(mode) as session:
        ways = (lambda: session.call_tool(call("t", {})), lambda: session._session.call_tool("t", {}))
        for way in ways:
            try:
                await way()
            except (ValueError, RuntimeError, MCPError):
                verdicts.append(False)
            else:
                verdicts.append(True)
    assert len(script.calls) == 2, "each is sent once"
    assert verdicts[0] == verdicts[1]


@pytest.mark.parametrize("pieces", [1, MANY_PIECES + 1])
async def test_all_pieces_of_a_result_come_in_order(pieces: int) -> None:
    content = [{"type": "text", "text": f"{number}"} for number in range(pieces)]
    script = Script([{"result": {"content": content, "resultType": "complete"}}])
    async with script.session() as session:
        answer = await session.call_tool(call("t", {}))
    assert [part.text for part in answer.parts] == [f"{number}" for number in range(pieces)]


async def test_plain_result_is_not_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script([{"result": {**TEXT, "resultType": "complete"}}])
    async with script.session() as session:
        monkeypatch.setattr(session._session, "send_request", None)
        answer = await session.call_tool(call("t", {}))
    assert [part.text for part in answer.parts] == ["done"]


async def test_refusal_of_a_server_of_the_older_era_reaches_the_caller() -> None:
    script = Script([{"error": {"code": -32602, "message": "no"}}])
    async with script.session("legacy") as session:
        with pytest.raises(MCPError, match="no"):
            await session.call_tool(call("t", {}))
    assert len(script.calls) == 1


# Listings


MODES = pytest.mark.parametrize("mode", ["legacy", LATEST_MODERN_VERSION])
STRANGE = [
    {"name": "a", "inputSchema": schema}
    for schema in (None, "no", {"type": "string"}, {"properties": []}, {"properties": None})
]


async def listed(mode: str, tools: Any, **page: Any) -> tuple[list[dict[str, Any]], str | None]:
    script = Script([])
    script.tools, script.page = tools, page
    async with script.session(mode) as session:
        return await session.list_page("tools", None)


@MODES
async def test_entries_of_a_listing_stay_as_they_are(mode: str) -> None:
    tool = {
        "name": "a",
        "description": "d",
        "inputSchema": {"type": "object", "properties": {"x": {"type": "string"}}},
        "outputSchema": {"type": "object", "pattern": "(a+)+$"},
        "annotations": {"readOnlyHint": "yes"},
    }
    assert await listed(mode, [tool, *STRANGE], nextCursor="c") == ([tool, *STRANGE], "c")


@MODES
@pytest.mark.parametrize("entry", [None, 7, "x", [], {}, {"name": None}, {"name": 5}, {"name": ["a"]}])
async def test_entry_that_is_no_tool_costs_only_itself(mode: str, entry: Any) -> None:
    kept, _ = await listed(mode, [entry, {"name": "good"}])
    assert kept == [tool for tool in [entry, {"name": "good"}] if isinstance(tool, dict)]


@MODES
@pytest.mark.parametrize("tools", [None, 5, "x", {}])
async def test_listing_that_is_no_list_is_empty(mode: str, tools: Any) -> None:
    assert await listed(mode, tools) == ([], None)


@MODES
@pytest.mark.parametrize(("cursor", "following"), [(None, None), (5, None), ({}, None), ([], None), ("", "")])
async def test_only_a_text_is_a_cursor(mode: str, cursor: Any, following: str | None) -> None:
    assert await listed(mode, [], nextCursor=cursor) == ([], following)


async def test_tool_whose_headers_are_not_valid_is_skipped_by_a_modern_server_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wrong = {"type": "object", "properties": {"a": {"type": "array", "x-mcp-header": "Region"}}}
    tools = [{"name": "a", "inputSchema": wrong}, {"name": "b", "inputSchema": HEADERS}]
    assert await listed("legacy", tools) == (tools, None)
    assert not caplog.messages
    assert await listed(LATEST_MODERN_VERSION, tools) == (tools[1:], None)
    assert "s: tool `a` is skipped: its headers are not valid" in caplog.text


@pytest.mark.parametrize(
    ("ttl", "seconds"), [(5000, 5.0), (2.5, 0.0025), (-1, 0.0), (True, 0.0), ("5", 0.0), (10**400, 1e12)]
)
async def test_time_that_a_listing_may_be_used_is_a_number(ttl: Any, seconds: float) -> None:
    script = Script([])
    script.page = {"ttlMs": ttl, "cacheScope": "private"}
    async with script.session() as session:
        await session.list_page("tools", None)
        assert session.freshness == (seconds, True)
