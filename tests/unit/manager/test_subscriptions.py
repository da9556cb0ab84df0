"""Subscriptions, log levels and roots, with a session that only records requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from dragoman.errors import DragomanError, ProtocolError
from dragoman.events import PromptsChanged, ResourceChanged, StateChanged
from dragoman.manager import subscriptions
from dragoman.manager.subscriptions import Subscriptions
from dragoman.model import Handlers, ServerState

if TYPE_CHECKING:
    from dragoman.events import Event


class Desk:
    """The subscriptions of a manager whose servers record requests, or refuse them."""

    def __init__(self) -> None:
        self.told: list[tuple[str, ...]] = []
        self.heard: asyncio.Queue[Event] = asyncio.Queue()
        self.refusal: DragomanError | None = None
        self.subscriptions = Subscriptions(self.ask, self.heard.put_nowait)

    async def ask(self, server: str, job: Any, what: str) -> Any:
        desk = self

        class Session:
            def __getattr__(self, name: str) -> Any:
                async def note(*args: str) -> None:
                    if desk.refusal is not None:
                        raise desk.refusal
                    desk.told.append((server, name, *args))

                return note

        return await job(Session())

    def ready(self, before: ServerState = ServerState.CONNECTING) -> None:
        self.subscriptions.holds(StateChanged(server="s", before=before, after=ServerState.READY))

    async def close(self) -> None:
        if tasks := self.subscriptions.close():
            await asyncio.wait(tasks)


async def test_first_connection_is_told_nothing_that_was_told_already_and_the_next_everything() -> None:
    desk = Desk()
    with anyio.fail_after(10):
        desk.ready()
        await desk.subscriptions.subscribe("a:1", "s", None)
        await desk.subscriptions.set_log_level("info", None, ["s"])
        desk.ready(before=ServerState.DEGRADED)
        assert desk.told == [("s", "subscribe", "a:1"), ("s", "set_log_level", "info")]
        desk.ready()
        while not isinstance(event := await desk.heard.get(), ResourceChanged):
            pass
        assert event == ResourceChanged(server="s", uri="a:1")
        assert desk.told[2:] == [("s", "set_log_level", "info"), ("s", "subscribe", "a:1")]
    await desk.close()


async def test_own_level_of_a_server_wins_until_all_get_another() -> None:
    desk = Desk()
    await desk.subscriptions.set_log_level("debug", None, [])
    await desk.subscriptions.set_log_level("error", "s", ["s"])
    await desk.subscriptions.set_log_level("info", None, ["s", "t"])
    said = [(server, level) for server, _, level in desk.told]
    assert said == [("s", "error"), ("s", "info"), ("t", "info")]


async def test_server_that_refuses_again_is_logged_and_the_program_goes_on(caplog: Any) -> None:
    desk = Desk()
    with anyio.fail_after(10):
        desk.ready()
        await desk.subscriptions.subscribe("a:1", "s", None)
        desk.refusal = ProtocolError("not today")
        with pytest.raises(ProtocolError):
            await desk.subscriptions.subscribe("a:2", "s", print)
        await desk.subscriptions.set_log_level("info", "s", ["s"])
        desk.ready()
        while "could not renew the subscription to `a:1`" not in caplog.text:
            await anyio.lowlevel.checkpoint()
    assert "the request about `logging` failed" in caplog.text
    await desk.close()


async def test_what_is_below_a_subscription_counts_and_what_only_begins_like_it_does_not() -> None:
    desk = Desk()
    with anyio.fail_after(10):
        await desk.subscriptions.subscribe("file:///a", "s", None)
        for uri in ("file:///ab", "file:///b", "file:///a/b"):
            desk.subscriptions.holds(ResourceChanged(server="s", uri=uri))
        desk.subscriptions.holds(ResourceChanged(server="t", uri="file:///a"))
        desk.subscriptions.holds(PromptsChanged(server="s"))
        assert await desk.heard.get() == ResourceChanged(server="s", uri="file:///a/b")
        assert await desk.heard.get() == PromptsChanged(server="s")
        assert desk.heard.empty()
    await desk.close()


async def test_flood_of_changes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_PENDING", 10)
    desk = Desk()
    with anyio.fail_after(10):
        await desk.subscriptions.subscribe("a:", "s", None)
        for number in range(100):
            desk.subscriptions.holds(ResourceChanged(server="s", uri=f"a:/{number}"))
        for number in range(10):
            assert await desk.heard.get() == ResourceChanged(server="s", uri=f"a:/{number}")
        assert desk.heard.empty()
    await desk.close()


async def test_nothing_is_told_after_the_end() -> None:
    desk = Desk()
    await desk.subscriptions.subscribe("a:1", "s", None)
    desk.subscriptions.holds(ResourceChanged(server="s", uri="a:1"))
    await desk.close()
    desk.subscriptions.holds(ResourceChanged(server="s", uri="a:1"))
    desk.ready()
    assert desk.heard.qsize() == 0
    assert not desk.subscriptions.close()


async def test_roots_are_those_of_the_server_then_those_of_all_then_those_of_the_application() -> None:
    desk = Desk()
    assert desk.subscriptions.with_roots(None).roots is not None
    assert desk.subscriptions.roots("s") is None
    desk.subscriptions.with_roots(Handlers(roots=["file:///given"]))
    assert desk.subscriptions.roots("s") == ["file:///given"]
    desk.subscriptions.with_roots(Handlers(roots=lambda server: [f"file:///{server}"]))
    assert desk.subscriptions.roots("s") == ["file:///s"]
    await desk.subscriptions.set_roots(["file:///all"], None, ["s"])
    await desk.subscriptions.set_roots([], "t", [])
    assert (desk.subscriptions.roots("s"), desk.subscriptions.roots("t")) == (("file:///all",), ())
    assert desk.told == [("s", "tell_roots_changed")]
