"""The stream of a modern server's changes, over a session that opens streams from a script."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
import pytest
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError

from dragoman.errors import ConnectionLostError, ServerError
from dragoman.server.protocol import listening
from dragoman.server.protocol.listening import Listening

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def script(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the SDK's function open streams of the session that it gets."""
    monkeypatch.setattr(listening, "listen", lambda peer, **wanted: peer.listen(**wanted))


class Stream:
    """One stream, which ends when the test says so."""

    def __init__(self, uris: list[str]) -> None:
        self.honored = types.SubscriptionFilter(resource_subscriptions=uris)
        self.ends: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_open = True

    async def __aiter__(self) -> AsyncIterator[object]:
        yield object()
        await self.ends


class Peer:
    """A session whose server agrees to what is in `honours`, and refuses a stream with what is in `refuses`."""

    def __init__(self, *kinds: str) -> None:
        offers = dict.fromkeys(("tools", "resources", "prompts"))
        offers |= {kind: SimpleNamespace(list_changed=True) for kind in kinds}
        self.server_capabilities = SimpleNamespace(**offers)
        self.streams: list[Stream] = []
        self.most = 0
        self.honours = {"a:1", "a:2"}
        self.refuses: set[str] = set()
        self.opened = asyncio.Event()

    @property
    def open(self) -> list[Stream]:
        return [stream for stream in self.streams if stream.is_open]

    @asynccontextmanager
    async def listen(self, *, resource_subscriptions: tuple[str, ...], **_: bool) -> AsyncGenerator[Stream]:
        if self.refuses & {*resource_subscriptions, "*"}:
            raise MCPError(code=-32602, message="no such thing")
        stream = Stream([uri for uri in resource_subscriptions if uri in self.honours])
        self.streams.append(stream)
        self.most = max(self.most, len(self.open))
        self.opened.set()
        try:
            yield stream
        finally:
            stream.is_open = False


@asynccontextmanager
async def running(peer: Any) -> AsyncGenerator[tuple[Listening, asyncio.Queue[str]]]:
    heard: asyncio.Queue[str] = asyncio.Queue()
    one = Listening(peer, "s")
    task = asyncio.create_task(one.run(heard.put_nowait))
    with anyio.fail_after(10):
        yield one, heard
    task.cancel()
    await asyncio.wait({task})
    assert peer.open == []


async def test_another_subscription_opens_its_stream_before_the_former_is_closed() -> None:
    peer = Peer()
    async with running(peer) as (one, _):
        await one.subscribe("a:1")
        await one.subscribe("a:2")
        await one.subscribe("a:2")
        assert peer.most == 2
        assert [stream.honored.resource_subscriptions for stream in peer.open] == [["a:1", "a:2"]]
        assert len(peer.streams) == 2


async def test_stream_that_breaks_is_opened_again_and_everything_taken_to_have_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "FIRST_PAUSE", 0.01)
    peer = Peer("tools", "prompts")
    async with running(peer) as (one, heard):
        await one.subscribe("a:1")
        assert heard.empty()
        for ending in (SubscriptionLost("gone"), None):
            peer.opened.clear()
            [stream] = peer.open
            if ending is None:
                stream.ends.set_result(None)
            else:
                stream.ends.set_exception(ending)
            await peer.opened.wait()
            assert [await heard.get() for _ in range(3)] == ["tools", "prompts", "a:1"]


async def test_what_the_server_does_not_agree_to_is_an_error_and_the_rest_goes_on() -> None:
    peer = Peer()
    peer.refuses = {"a:9"}
    async with running(peer) as (one, _):
        await one.subscribe("a:1")
        with pytest.raises(ServerError, match="does not announce changes of `a:5`"):
            await one.subscribe("a:5")
        with pytest.raises(MCPError, match="no such thing"):
            await one.subscribe("a:9")
        await one.subscribe("a:2")
        assert [stream.honored.resource_subscriptions for stream in peer.open] == [["a:1", "a:2"]]


async def test_nothing_is_open_when_nothing_is_wanted() -> None:
    peer = Peer()
    async with running(peer) as (one, _):
        await one.subscribe("a:1")
        [stream] = peer.open
        one.unsubscribe("a:1")
        one.unsubscribe("a:2")
        while stream.is_open:
            await anyio.lowlevel.checkpoint()
        await one.subscribe("a:2")
        assert len(peer.streams) == 2


async def test_a_waiting_subscriber_learns_of_the_end_of_the_session() -> None:
    peer = Peer()
    one = Listening(peer, "s")  # type: ignore[arg-type]
    waiting = asyncio.create_task(one.subscribe("a:1"))
    dropped = asyncio.create_task(one.subscribe("a:2"))
    await anyio.lowlevel.checkpoint()
    one.unsubscribe("a:2")
    with pytest.raises(ServerError):
        await dropped
    task = asyncio.create_task(one.run(print))
    peer.refuses = {"*"}
    task.cancel()
    await asyncio.wait({task})
    task = asyncio.create_task(one.run(print))
    await anyio.lowlevel.checkpoint()
    task.cancel()
    await asyncio.wait({task, waiting})
    assert isinstance(waiting.exception(), ConnectionLostError | MCPError)
    with pytest.raises(ConnectionLostError):
        await one.subscribe("a:1")
