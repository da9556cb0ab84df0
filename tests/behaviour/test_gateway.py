"""The forwarding matrix: each feature of MCP through the gateway, for clients of both protocol generations.

The gateway is the real program, over stdio and over HTTP. Behind it are two servers, one of each generation:
`old` and `new`. Each cell of the table runs with both.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourceUpdated
from pydantic import FileUrl

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

SERVERS = Path(__file__).parents[1] / "servers"
TOKEN = "a-token-for-the-tests"
SECONDS = 20
UPSTREAM = {"old": "legacy", "new": "auto"}

Cell = "Callable[[Peer, str], Awaitable[None]]"
CELLS: dict[str, Any] = {}


def cell(function: Any) -> Any:
    CELLS[function.__name__] = function
    return function


class Peer:
    """A client of the gateway, with what it was told."""

    def __init__(self) -> None:
        self.client: Client
        self.logs: list[Any] = []
        self.news: list[Any] = []
        self.asked: list[Any] = []
        self._heard = asyncio.Condition()

    async def elicit(self, context: object, params: Any) -> types.ElicitResult:
        del context
        self.asked.append(params)
        if isinstance(params, types.ElicitRequestURLParams):
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content={"seats": 4})

    async def sample(self, context: object, params: Any) -> types.CreateMessageResult:
        del context
        self.asked.append(params)
        return types.CreateMessageResult(role="assistant", content=types.TextContent(text="hi"), model="m1")

    async def roots(self, context: object) -> types.ListRootsResult:
        del context
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl("file:///home/me"), name="me")])

    async def log(self, params: Any) -> None:
        self.logs.append(params)
        await self._notify()

    async def message(self, message: Any) -> None:
        self.news.append(message)
        await self._notify()

    async def _notify(self) -> None:
        async with self._heard:
            self._heard.notify_all()

    async def hear(self, found: Callable[[], Any]) -> None:
        async with asyncio.timeout(SECONDS), self._heard:
            await self._heard.wait_for(found)

    async def call(self, server: str, tool: str, arguments: Any = None, **more: Any) -> types.CallToolResult:
        result = await self.client.call_tool(f"mcp_{server}_{tool}", arguments or {}, **more)
        assert isinstance(result, types.CallToolResult)
        return result

    @property
    def is_modern(self) -> bool:
        return self.client.protocol_version == "2026-07-28"


# ── The cells


@cell
async def listing(peer: Peer, server: str) -> None:
    tools = (await peer.client.list_tools()).tools
    names = [tool.name for tool in tools]
    assert names == sorted(names)
    assert {"mcp_old_echo", "mcp_new_echo", "mcp_old_touch", "mcp_new_touch"} <= set(names)
    echo = next(tool for tool in tools if tool.name == f"mcp_{server}_echo")
    assert echo.description == "The tool echo."
    assert echo.output_schema == {"type": "object", "properties": {"said": {"type": "string"}}}
    assert echo.annotations is not None
    assert echo.annotations.read_only_hint is True
    assert echo.meta is not None
    assert echo.meta["vendor/x"] == {"deep": [1, None]}
    assert echo.meta["ui"] == {"resourceUri": f"ui://{server}/view/echo"}


@cell
async def call_with_structured_result_and_meta(peer: Peer, server: str) -> None:
    meta: Any = {"vendor/request": "r1"}
    result = await peer.call(server, "echo", {"said": "hallo"}, meta=meta)
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    assert (block.text, block.meta) == ("hallo", {"block": 1})
    assert result.structured_content == {"said": "hallo"}
    assert result.meta is not None
    assert result.meta["vendor/result"] == {"seen": "r1"}


@cell
async def image(peer: Peer, server: str) -> None:
    (block,) = (await peer.call(server, "image")).content
    assert isinstance(block, types.ImageContent)
    assert base64.b64decode(block.data) == b"\x89PNG pixel"
    assert block.mime_type == "image/png"


@cell
async def failure_of_a_tool(peer: Peer, server: str) -> None:
    result = await peer.call(server, "fail")
    assert result.is_error
    assert result.content == [types.TextContent(text="it went wrong")]


@cell
async def refusal_of_the_protocol(peer: Peer, server: str) -> None:
    with pytest.raises(MCPError) as refused:
        await peer.call(server, "refuse")
    assert (refused.value.code, refused.value.message) == (-32099, 'not today; details: {"why": ["rain"]}')
    assert refused.value.data == {"why": ["rain"]}


@cell
async def wrong_arguments(peer: Peer, server: str) -> None:
    result = await peer.call(server, "echo", {"said": 5})
    assert result.is_error
    assert isinstance(result.content[0], types.TextContent)
    assert "nothing was sent" in result.content[0].text


@cell
async def unknown_tool(peer: Peer, server: str) -> None:
    with pytest.raises(MCPError) as refused:
        await peer.call(server, "nothing")
    assert refused.value.code == types.INVALID_PARAMS


@cell
async def progress(peer: Peer, server: str) -> None:
    reports: list[Any] = []

    async def report(*facts: Any) -> None:
        reports.append(facts)

    await peer.call(server, "progress", progress_callback=report)
    assert reports == [(number, 3, f"step {number}") for number in (1, 2, 3)]


@cell
async def log_message(peer: Peer, server: str) -> None:
    meta: Any = {types.LOG_LEVEL_META_KEY: "error"} if peer.is_modern else None
    if not peer.is_modern:
        request = types.SetLevelRequest(params=types.SetLevelRequestParams(level="error"))
        await peer.client.session.send_request(request, types.EmptyResult)
    before = len(peer.logs)
    await peer.call(server, "log", meta=meta)
    await peer.hear(lambda: len(peer.logs) > before)
    (logged,) = peer.logs[before:]
    assert (logged.level, logged.logger, logged.data) == ("error", "all", {"said": "wanted"})


@cell
async def form(peer: Peer, server: str) -> None:
    assert (await peer.call(server, "form")).content == [types.TextContent(text="accept {'seats': 4}")]
    # The server's name stands outside of the server's own words.
    assert peer.asked[-1].message == f"The server `{server}` asks:\n> How many?"
    assert peer.asked[-1].requested_schema["required"] == ["seats"]


@cell
async def url(peer: Peer, server: str) -> None:
    assert (await peer.call(server, "url")).content == [types.TextContent(text="decline")]
    assert peer.asked[-1].url == "https://example.com/sign"
    if server == "old" and not peer.is_modern:
        await peer.hear(lambda: types.ElicitCompleteNotification in {type(one) for one in peer.news})
        completed = [one for one in peer.news if isinstance(one, types.ElicitCompleteNotification)]
        assert [one.params.elicitation_id for one in completed] == ["e1"]


@cell
async def sampling(peer: Peer, server: str) -> None:
    assert (await peer.call(server, "sample")).content == [types.TextContent(text="m1: hi")]
    assert peer.asked[-1].max_tokens == 9


@cell
async def roots(peer: Peer, server: str) -> None:
    assert (await peer.call(server, "roots")).content == [types.TextContent(text="file:///home/me")]


@cell
async def roots_have_changed(peer: Peer, server: str) -> None:
    if server == "old" and not peer.is_modern:
        await peer.client.session.send_notification(types.RootsListChangedNotification())
        assert (await peer.call(server, "roots_changed")).content == [types.TextContent(text="yes")]


@cell
async def links_can_be_read(peer: Peer, server: str) -> None:
    link, inside = (await peer.call(server, "link")).content
    assert isinstance(link, types.ResourceLink)
    assert isinstance(inside, types.EmbeddedResource)
    assert inside.resource.uri == f"dragoman://{server}/memo://inside"
    read = await peer.client.read_resource(link.uri)
    assert read.contents[0].uri == link.uri


@cell
async def resources(peer: Peer, server: str) -> None:
    listed = (await peer.client.list_resources()).resources
    uris = [resource.uri for resource in listed]
    assert uris == sorted(uris)
    (memo,) = [resource for resource in listed if resource.uri == f"dragoman://{server}/memo://one"]
    assert memo.meta == {"vendor/r": 1}
    said, blob = (await peer.client.read_resource(memo.uri)).contents
    assert isinstance(said, types.TextResourceContents)
    assert isinstance(blob, types.BlobResourceContents)
    assert said.text == "memo memo://one"
    assert base64.b64decode(blob.blob) == b"\x89PNG pixel"


@cell
async def views_of_tools(peer: Peer, server: str) -> None:
    assert f"ui://{server}/view/echo" in [one.uri for one in (await peer.client.list_resources()).resources]
    (view,) = (await peer.client.read_resource(f"ui://{server}/view/echo")).contents
    assert (view.uri, view.mime_type) == (f"ui://{server}/view/echo", "text/html;profile=mcp-app")


@cell
async def missing_resource(peer: Peer, server: str) -> None:
    with pytest.raises(MCPError) as refused:
        await peer.client.read_resource(f"dragoman://{server}/memo://missing")
    assert (refused.value.code, refused.value.message) == (
        -32002,
        'no such memo; details: {"uri": "memo://missing"}',
    )


@cell
async def question_of_a_resource(peer: Peer, server: str) -> None:
    (said,) = (await peer.client.read_resource(f"dragoman://{server}/memo://ask")).contents
    assert isinstance(said, types.TextResourceContents)
    assert said.text == "accept {'seats': 4}"


@cell
async def templates(peer: Peer, server: str) -> None:
    listed = (await peer.client.list_resource_templates()).resource_templates
    template = f"dragoman://{server}/memo://{{name}}"
    assert template in [one.uri_template for one in listed]
    (said, _) = (await peer.client.read_resource(template.replace("{name}", "two"))).contents
    assert isinstance(said, types.TextResourceContents)
    assert said.text == "memo memo://two"


@cell
async def prompts(peer: Peer, server: str) -> None:
    listed = (await peer.client.list_prompts()).prompts
    (greet,) = [prompt for prompt in listed if prompt.name == f"{server}.greet"]
    assert greet.arguments is not None
    assert greet.arguments[0].required
    got = await peer.client.get_prompt(greet.name, {"city": "Rom"})
    assert got.description == "a greeting"
    assert got.messages[0].content == types.TextContent(text="Greet Rom")


@cell
async def question_of_a_prompt(peer: Peer, server: str) -> None:
    (message,) = (await peer.client.get_prompt(f"{server}.ask")).messages
    assert message.content == types.TextContent(text="accept {'seats': 4}")


@cell
async def completion(peer: Peer, server: str) -> None:
    of_prompt = types.PromptReference(name=f"{server}.greet")
    argument = {"name": "city", "value": "R"}
    done = (await peer.client.complete(of_prompt, argument, context_arguments={"land": "Italia"})).completion
    assert (done.values, done.total, done.has_more) == (["greet:city=R", "Italia"], 7, True)
    of_template = types.ResourceTemplateReference(uri=f"dragoman://{server}/memo://{{name}}")
    done = (await peer.client.complete(of_template, {"name": "name", "value": "o"})).completion
    assert done.values == ["memo://{name}:name=o"]


@cell
async def subscription(peer: Peer, server: str) -> None:
    uri = f"dragoman://{server}/memo://one"
    if peer.is_modern:
        async with asyncio.timeout(SECONDS), peer.client.listen(resource_subscriptions=[uri]) as events:
            assert events.honored.resource_subscriptions == [uri]
            await peer.call(server, "touch")
            async for event in events:
                assert event == ResourceUpdated(uri=uri)
                break
        return
    session = peer.client.session
    await session.send_request(
        types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri)), types.EmptyResult
    )
    await peer.call(server, "touch")
    await peer.hear(lambda: uri in _updated(peer))
    await session.send_request(
        types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=uri)), types.EmptyResult
    )


def _updated(peer: Peer) -> list[str]:
    return [str(one.params.uri) for one in peer.news if isinstance(one, types.ResourceUpdatedNotification)]


@cell
async def cancellation(peer: Peer, server: str) -> None:
    """Comes after all questions: an older server may still ask about a request that was cancelled."""
    started = asyncio.Event()

    async def report(*_facts: Any) -> None:
        started.set()

    call = asyncio.create_task(peer.call(server, "wait", progress_callback=report))
    await asyncio.wait({asyncio.ensure_future(started.wait()), call}, return_when=asyncio.FIRST_COMPLETED)
    call.cancel()
    assert (await peer.call(server, "was_cancelled")).content == [types.TextContent(text="yes")]


@cell
async def list_changed(peer: Peer, server: str) -> None:
    """Changes a list, so it comes last."""
    if peer.is_modern:
        seen: set[str] = set()
        async with (
            asyncio.timeout(SECONDS),
            peer.client.listen(
                tools_list_changed=True, resources_list_changed=True, prompts_list_changed=True
            ) as events,
        ):
            await peer.call(server, "change")
            async for event in events:
                seen.add(type(event).__name__)
                if len(seen) == 3:
                    break
    else:
        await peer.call(server, "change")
        wanted = {
            types.ToolListChangedNotification,
            types.ResourceListChangedNotification,
            types.PromptListChangedNotification,
        }
        await peer.hear(lambda: wanted <= {type(one) for one in peer.news})
    names = [tool.name for tool in (await peer.client.list_tools()).tools]
    assert f"mcp_{server}_extra" in names
    peer.news.clear()


# ── The table


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_every_feature_passes_through_the_gateway(transport: str, mode: str, tmp_path: Path) -> None:
    failed: list[str] = []
    async with asyncio.timeout(55), connected(transport, mode, configuration(tmp_path)) as peer:
        assert peer.is_modern == (mode == "auto")
        said = [
            f"About the tools of `{name}`, in the words of this server:\n> Read the memos."
            for name in ("new", "old")
        ]
        assert peer.client.instructions == "\n\n".join(said)
        for server in UPSTREAM:
            for name, check in CELLS.items():
                try:
                    async with asyncio.timeout(SECONDS):
                        await check(peer, server)
                except Exception as exc:  # noqa: BLE001 -- every cell is tried, and all failures are shown
                    failed.append(f"{name} at {server}: {type(exc).__name__}: {exc}")
    assert not failed, "\n".join(failed)


def configuration(folder: Path) -> Path:
    servers = {
        name: {
            "command": sys.executable,
            "args": [str(SERVERS / "all_features.py")],
            "protocol": protocol,
        }
        for name, protocol in UPSTREAM.items()
    }
    path = folder / "servers.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


@asynccontextmanager
async def connected(transport: str, mode: str, config: Path) -> AsyncGenerator[Peer]:
    """Start the gateway as a program, and connect a client of the official SDK."""
    command = ["-m", "dragoman", "serve", "--config", str(config)]
    if transport == "stdio":
        started = StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))
        async with connect(stdio_client(started), mode) as peer:
            yield peer
        return
    async with (
        served([*command, "--http", "0", "--token", TOKEN]) as url,
        token_client() as http,
        connect(streamable_http_client(url, http_client=http), mode) as peer,
    ):
        yield peer


def token_client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=SECONDS)


@asynccontextmanager
async def connect(transport: Any, mode: Any) -> AsyncGenerator[Peer]:
    peer = Peer()
    async with Client(
        transport,
        mode=mode,
        cache=None,
        elicitation_callback=peer.elicit,
        sampling_callback=peer.sample,
        list_roots_callback=peer.roots,
        logging_callback=peer.log,
        message_handler=peer.message,
    ) as peer.client:
        yield peer


@asynccontextmanager
async def served(command: list[str], *, ends: int = 0) -> AsyncGenerator[str]:
    """Start a gateway over HTTP; give its address, and end it by SIGTERM, with an exit code."""
    process = await asyncio.to_thread(
        subprocess.Popen, [sys.executable, *command], stderr=subprocess.PIPE, encoding="utf-8"
    )
    assert process.stderr is not None
    try:
        line = ""
        while not line.startswith("serving at "):
            line = await asyncio.to_thread(process.stderr.readline)
            assert line, "the gateway ended"
        reading = asyncio.create_task(asyncio.to_thread(process.stderr.read))
        yield line.split()[-1]
        process.terminate()
        await reading
        assert await asyncio.to_thread(process.wait) == ends
    finally:
        process.kill()
        await asyncio.to_thread(process.communicate)
