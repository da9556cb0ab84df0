"""The writes of a response: head and body together, and a head alone without delay."""

from __future__ import annotations

import asyncio
from typing import Any

from dragoman.gateway.http_protocol import JoinedWrites

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


class Recorder:
    """A transport that notes what is done with it."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    def write(self, data: bytes) -> None:
        self.done.append(data)

    def close(self) -> None:
        self.done.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.done


def joined() -> tuple[Any, Recorder]:
    recorder = Recorder()
    transport: Any = recorder
    return JoinedWrites(transport), recorder


async def test_head_and_body_are_one_write() -> None:
    transport, recorder = joined()
    for _ in range(2):
        transport.write(HEAD)
        transport.write(b"body")
    transport.write(b"more")
    await asyncio.sleep(0)
    assert recorder.done == [HEAD + b"body", HEAD + b"body", b"more"]


async def test_a_head_does_not_wait_for_a_body() -> None:
    transport, recorder = joined()
    transport.write(HEAD)
    assert recorder.done == []
    await asyncio.sleep(0)
    assert recorder.done == [HEAD]
    transport.write(b"body")
    assert recorder.done == [HEAD, b"body"]


async def test_a_head_is_written_before_the_end() -> None:
    transport, recorder = joined()
    transport.write(HEAD)
    transport.close()
    assert recorder.done == [HEAD, "closed"]
    assert transport.is_closing()
