"""Lines out of chunks, in linear time and bounded memory: the framing of a child's pipe.

A line longer than the limit is not kept: its two ends are, so that the call it answers can be told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dragoman.server.bounded import Bounded
from dragoman.server.rpc import MAX_MESSAGE_BYTES, SALVAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLANK = b" \t\r"


class TooLong(NamedTuple):
    """What is left of a line beyond the limit."""

    head: bytes
    tail: bytes
    size: int


class Lines:
    """Cuts a stream of bytes into lines."""

    def __init__(self, limit: int = MAX_MESSAGE_BYTES) -> None:
        self.limit = limit
        self._begun = Bounded(limit, ends=SALVAGE_BYTES)

    @property
    def pending(self) -> int:
        """How many bytes of an unfinished line there were."""
        return self._begun.size

    def feed(self, chunk: bytes) -> Iterator[bytes | TooLong]:
        """Yield the lines that a chunk completes, without their ends; blank ones are left out."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            line = self._finish(chunk[start:end])
            start = end + 1
            if line:
                yield line
        if start < len(chunk):
            self._begun.add(chunk[start:] if start else chunk)

    def _finish(self, piece: bytes) -> bytes | TooLong:
        begun = self._begun
        if not begun.size and len(piece) <= self.limit:
            return piece.strip(_BLANK)
        begun.add(piece)
        if begun.is_whole:
            return begun.take().strip(_BLANK)
        line = TooLong(*begun.ends, begun.size)
        begun.take()
        return line
