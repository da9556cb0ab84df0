"""What waits for a client: in order, bounded, and never a reason for others to wait."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.gateway import outbox
from dragoman.gateway.outbox import ClientOutbox


async def test_messages_are_written_in_order_and_a_change_is_said_once() -> None:
    written: list[bytes] = []
    may_write = asyncio.Event()

    async def write(data: bytes) -> None:
        await may_write.wait()
        written.append(data)

    box = ClientOutbox(write)
    for message in (b"a", b"changed", b"b", b"changed"):
        box.put(message, once=message == b"changed")
    may_write.set()
    await box.close()
    assert written == [b"a", b"changed", b"b"]
    box.put(b"late")
    assert written == [b"a", b"changed", b"b"]


@pytest.mark.parametrize(("count", "size"), [(10, 1_000), (100, 1)])
async def test_a_client_that_does_not_read_is_cut_off(
    count: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MAX_BYTES", 5_000)
    monkeypatch.setattr(outbox, "MAX_MESSAGES", 50)
    stuck: list[bool] = []

    async def write(_data: bytes) -> None:
        await asyncio.Event().wait()

    box = ClientOutbox(write, on_stuck=lambda: stuck.append(True))
    for _ in range(count):
        box.put(b"x" * size)
    assert stuck == [True]
    assert box.closed.is_set()
    await box.close()


async def test_one_large_message_may_wait() -> None:
    written: list[int] = []

    async def write(data: bytes) -> None:
        written.append(len(data))

    box = ClientOutbox(write)
    box.put(b"x" * (outbox.MAX_BYTES + 1))
    await box.close()
    assert written == [outbox.MAX_BYTES + 1]


async def test_a_client_that_has_gone_ends_it() -> None:
    async def write(_data: bytes) -> None:
        raise BrokenPipeError

    box = ClientOutbox(write)
    box.put(b"x")
    await asyncio.wait_for(box.closed.wait(), 10)
    await box.close()
