"""Connections: what one client that stays does to the others of its gateway."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.unit.gateway.test_app import VERSION, client_of, notes
from tests.unit.gateway.test_http import ClientsOfAnn, headers_of

from dragoman.gateway.app import asgi_app
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.outbox import ClientOutbox
from dragoman.gateway.questions import Questions
from dragoman.manager.manager import McpManager

PREFIX = "io.modelcontextprotocol/"
META = {f"{PREFIX}protocolVersion": VERSION, f"{PREFIX}clientCapabilities": {}}
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "c", "version": "1"},
}


class Reader:
    """The end of a channel that a client reads."""

    def __init__(self) -> None:
        self.read: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.outbox = ClientOutbox(self._write)

    async def _write(self, data: bytes) -> None:
        self.read.put_nowait(json.loads(data))


def request(method: str, number: int = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


async def test_a_client_that_goes_ends_no_announcements_of_the_others() -> None:
    async with McpManager([notes().spec()], cache=False) as mcp, Gateway(mcp) as gateway, asyncio.timeout(20):
        stays, goes = Reader(), Reader()
        first, second = gateway.connect(stays.outbox), gateway.connect(goes.outbox)
        wanted = {"toolsListChanged": True}
        for connection in (first, second):
            connection.take(request("subscriptions/listen", notifications=wanted, _meta=META))
        for reader in (stays, goes):
            assert (await reader.read.get())["params"]["notifications"] == wanted
        await second.close()
        assert not second.is_busy
        # A stream that ends would have its result before this answer.
        first.take(request("tools/list", 2, _meta=META))
        assert (await stays.read.get())["id"] == 2
        assert list(first.running) == [1]
        gateway.announcer.list_changed("notes", "tools")
        assert (await stays.read.get())["method"] == "notifications/tools/list_changed"
        assert goes.read.empty()
        await first.close()
        for reader in (stays, goes):
            await reader.outbox.close(flush=False)


async def test_a_request_with_an_id_in_progress_is_refused_and_the_first_goes_on() -> None:
    async with McpManager([notes().spec()], cache=False) as mcp, Gateway(mcp) as gateway, asyncio.timeout(20):
        reader = Reader()
        connection = gateway.connect(reader.outbox)
        connection.take(request("subscriptions/listen", notifications={}, _meta=META))
        await reader.read.get()
        connection.take(request("tools/list", _meta=META))
        assert (await reader.read.get())["error"]["message"] == "a request with this id is in progress"
        assert connection.is_busy
        await connection.close()
        await reader.outbox.close(flush=False)


async def test_a_message_over_sse_counts_only_for_the_one_who_opened_the_stream() -> None:
    app = asgi_app(McpManager([notes().spec()], cache=False), verifier=ClientsOfAnn(), sse=True)
    sent: asyncio.Queue[Any] = asyncio.Queue()
    gone = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def event() -> str:
        while True:
            message = await sent.get()
            if message.get("body"):
                return message["body"].decode()

    headers = [(b"host", b"127.0.0.1"), (b"authorization", b"Bearer ann")]
    scope = {"type": "http", "method": "GET", "path": "/sse/notes", "headers": headers}
    async with asyncio.timeout(20), client_of(app) as client:
        stream = asyncio.create_task(app(scope, receive, sent.put))
        place = (await event()).split("data: ")[1].strip()
        assert place.startswith("/sse/notes/messages?session=")
        hello = request("initialize", **HELLO)
        for who, status in (("bob", 404), ("ann", 202)):
            assert (await client.post(place, json=hello, headers=headers_of("", who))).status_code == status
        answer = json.loads((await event()).split("data: ")[1])
        assert answer["result"]["serverInfo"]["title"] == "dragoman: notes"
        gone.set()
        await stream
        assert (await client.post(place, json=hello, headers=headers_of("", "ann"))).status_code == 404


async def test_a_client_that_does_not_wait_for_discovery_goes_on_with_a_handshake() -> None:
    async with McpManager([notes().spec()], cache=False) as mcp, Gateway(mcp) as gateway, asyncio.timeout(20):
        await mcp.wait_ready()
        reader = Reader()
        connection = gateway.connect(reader.outbox)
        connection.take(request("server/discover", 1, _meta=META))
        connection.take(request("initialize", 2, **HELLO))
        answers = {one["id"]: one for one in [await reader.read.get(), await reader.read.get()]}
        assert VERSION in answers[1]["result"]["supportedVersions"]
        assert answers[2]["result"]["protocolVersion"] == "2025-11-25"
        connection.take(request("tools/list", 3))
        assert (await reader.read.get())["result"]["tools"]
        await connection.close()
        await reader.outbox.close(flush=False)


async def test_after_a_modern_request_there_is_no_handshake() -> None:
    async with McpManager([notes().spec()], cache=False) as mcp, Gateway(mcp) as gateway, asyncio.timeout(20):
        reader = Reader()
        connection = gateway.connect(reader.outbox)
        for number, method in enumerate(("server/discover", "tools/list")):
            connection.take(request(method, number, _meta=META))
            assert "result" in await reader.read.get()
        connection.take(request("initialize", 2, **HELLO))
        assert "no handshake" in (await reader.read.get())["error"]["message"]
        await connection.close()
        await reader.outbox.close(flush=False)


async def test_what_is_kept_of_a_handshake_is_bounded() -> None:
    async with McpManager([notes().spec()], cache=False) as mcp, Gateway(mcp) as gateway, asyncio.timeout(20):
        reader = Reader()
        client = gateway.connect(reader.outbox)
        long: dict[str, Any] = {"experimental": {f"e{number}": {} for number in range(2_000)}}
        client.take(request("initialize", **{**HELLO, "capabilities": long}))
        assert "too long" in (await reader.read.get())["error"]["message"]
        assert client.capabilities == {}
        client.take(request("initialize", **{**HELLO, "clientInfo": {"name": "c" * 10_000, "version": "1"}}))
        assert (await reader.read.get())["result"]
        assert client.name == "c" * 200
        await client.close()
        await reader.outbox.close(flush=False)


async def test_a_form_is_withdrawn_when_another_has_answered() -> None:
    questions = Questions()
    policy = [{"action": "ask", "tool": "add"}]
    manager = McpManager(
        [notes().spec()], cache=False, policy=policy, handlers=questions.handlers(), approvals="inbox"
    )
    async with manager as mcp, Gateway(mcp, questions=questions) as gateway, asyncio.timeout(20):
        await mcp.wait_ready()
        reader = Reader()
        connection = gateway.connect(reader.outbox)
        connection.take(request("initialize", **{**HELLO, "capabilities": {"elicitation": {}}}))
        await reader.read.get()
        connection.take({"jsonrpc": "2.0", "method": "notifications/initialized"})
        connection.take(request("tools/call", 2, name="mcp_notes_add", arguments={"text": "milk"}))
        form = await reader.read.get()
        assert form["method"] == "elicitation/create"
        (waiting,) = mcp.trust.pending()
        assert waiting.caller.client == "c"
        await mcp.trust.answer(waiting.id, allow=True, by="ann")
        withdrawn = await reader.read.get()
        assert withdrawn["method"] == "notifications/cancelled"
        assert withdrawn["params"] == {"requestId": form["id"], "reason": "already approved by ann"}
        assert (await reader.read.get())["result"]["content"][0]["text"] == "added milk 0"
        # A late answer of the client changes nothing.
        connection.take({"jsonrpc": "2.0", "id": form["id"], "result": {"action": "decline"}})
        await connection.close()
        await reader.outbox.close(flush=False)
