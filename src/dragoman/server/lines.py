"""Lines out of chunks, in linear time and bounded memory: the framing of a child's pipe.

A line longer than the limit is not kept: its two ends are, so that the call it answers can be told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dragoman.server.rpc import MAX_MESSAGE_BYTES, SALVAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

_BOM = b"\xef\xbb\xbf"


class TooLong(NamedTuple):
    """What is left of a line beyond the limit."""

    head: bytes
    tail: bytes
    size: int


class Lines:
    """Cuts a stream of bytes into lines."""

    def __init__(self, limit: int = MAX_MESSAGE_BYTES) -> None:
        self.limit = limit
        self._pieces: list[bytes] = []
        self._size = 0
        self._head = b""
        self._tail = b""
        self._first: bytes | None = b""
        """What came before a byte-order mark could be told from text; `None` once that is settled."""

    @property
    def pending(self) -> int:
        """How many bytes of an unfinished line are there."""
        return self._size

    def feed(self, chunk: bytes) -> Iterator[bytes | TooLong]:
        """Yield the lines that a chunk completes, without their ends; blank ones are left out."""
        if self._first is not None:
            chunk = self._first + chunk
            if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
                self._first = chunk
                return
            self._first = None
            chunk = chunk.removeprefix(_BOM)
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            line = self._finish(chunk[start:end])
            start = end + 1
            if line:
                yield line
        if start < len(chunk):
            self._keep(chunk[start:] if start else chunk)

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self.limit:
            if not self._head:
                self._head = b"".join([*self._pieces, piece])[:SALVAGE_BYTES]
            self._tail = (b"".join([*self._pieces, self._tail, piece]))[-SALVAGE_BYTES:]
            self._pieces.clear()
        else:
            self._pieces.append(piece)

    def _finish(self, piece: bytes) -> bytes | TooLong:
        if self._size + len(piece) > self.limit:
            self._keep(piece)
            line: bytes | TooLong = TooLong(self._head, self._tail, self._size)
        elif self._pieces:
            self._pieces.append(piece)
            line = b"".join(self._pieces).strip(b" \t\r")
        else:
            line = piece.strip(b" \t\r")
        self._pieces.clear()
        self._size = 0
        self._head = self._tail = b""
        return line
