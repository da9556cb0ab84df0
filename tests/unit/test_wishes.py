"""What servers are asked for beside answers, with a session that only notes it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from dragoman import wishes
from dragoman.errors import DragomanError, ProtocolError
from dragoman.events import PromptsChanged, ResourceChanged, StateChanged
from dragoman.model import Handlers, ServerState
from dragoman.wishes import Wishes

if TYPE_CHECKING:
    from dragoman.events import Event


class Desk:
    """The wishes of a manager whose servers note what they are told, or refuse it."""

    def __init__(self) -> None:
        self.told: list[tuple[str, ...]] = []
        self.heard: asyncio.Queue[Event] = asyncio.Queue()
        self.refusal: DragomanError | None = None
        self.wishes = Wishes(self.ask, self.heard.put_nowait)

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
        self.wishes.hear(StateChanged(server="s", before=before, after=ServerState.READY))

    async def close(self) -> None:
        if tasks := self.wishes.close():
            await asyncio.wait(tasks)


async def test_first_connection_is_told_nothing_that_was_told_already_and_the_next_everything() -> None:
    desk = Desk()
    with anyio.fail_after(10):
        desk.ready()
        await desk.wishes.subscribe("a:1", "s", None)
        await desk.wishes.set_log_level("info", None, ["s"])
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
    await desk.wishes.set_log_level("debug", None, [])
    await desk.wishes.set_log_level("error", "s", ["s"])
    await desk.wishes.set_log_level("info", None, ["s", "t"])
    said = [(server, level) for server, _, level in desk.told]
    assert said == [("s", "error"), ("s", "info"), ("t", "info")]


async def test_server_that_refuses_again_is_logged_and_the_program_goes_on(caplog: Any) -> None:
    desk = Desk()
    with anyio.fail_after(10):
        desk.ready()
        await desk.wishes.subscribe("a:1", "s", None)
        desk.refusal = ProtocolError("not today")
        with pytest.raises(ProtocolError):
            await desk.wishes.subscribe("a:2", "s", print)
        await desk.wishes.set_log_level("info", "s", ["s"])
        desk.ready()
        while "does not tell of `a:1` any more" not in caplog.text:
            await anyio.lowlevel.checkpoint()
    assert "could not be told about `logging`" in caplog.text
    await desk.close()


async def test_what_is_below_a_subscription_counts_and_what_only_begins_like_it_does_not() -> None:
    desk = Desk()
    with anyio.fail_after(10):
        await desk.wishes.subscribe("file:///a", "s", None)
        for uri in ("file:///ab", "file:///b", "file:///a/b"):
            desk.wishes.hear(ResourceChanged(server="s", uri=uri))
        desk.wishes.hear(ResourceChanged(server="t", uri="file:///a"))
        desk.wishes.hear(PromptsChanged(server="s"))
        assert await desk.heard.get() == ResourceChanged(server="s", uri="file:///a/b")
        assert await desk.heard.get() == PromptsChanged(server="s")
        assert desk.heard.empty()
    await desk.close()


async def test_flood_of_changes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wishes, "MAX_PENDING", 10)
    desk = Desk()
    with anyio.fail_after(10):
        await desk.wishes.subscribe("a:", "s", None)
        for number in range(100):
            desk.wishes.hear(ResourceChanged(server="s", uri=f"a:/{number}"))
        for number in range(10):
            assert await desk.heard.get() == ResourceChanged(server="s", uri=f"a:/{number}")
        assert desk.heard.empty()
    await desk.close()


async def test_nothing_is_told_after_the_end() -> None:
    desk = Desk()
    await desk.wishes.subscribe("a:1", "s", None)
    desk.wishes.hear(ResourceChanged(server="s", uri="a:1"))
    await desk.close()
    desk.wishes.hear(ResourceChanged(server="s", uri="a:1"))
    desk.ready()
    assert desk.heard.qsize() == 1
    assert not desk.wishes.close()


async def test_roots_are_those_of_the_server_then_those_of_all_then_those_of_the_application() -> None:
    desk = Desk()
    assert desk.wishes.answering(None).roots is not None
    assert desk.wishes.roots("s") is None
    desk.wishes.answering(Handlers(roots=["file:///given"]))
    assert desk.wishes.roots("s") == ["file:///given"]
    desk.wishes.answering(Handlers(roots=lambda server: [f"file:///{server}"]))
    assert desk.wishes.roots("s") == ["file:///s"]
    await desk.wishes.set_roots(["file:///all"], None, ["s"])
    await desk.wishes.set_roots([], "t", [])
    assert (desk.wishes.roots("s"), desk.wishes.roots("t")) == (("file:///all",), ())
    assert desk.told == [("s", "tell_roots_changed")]
