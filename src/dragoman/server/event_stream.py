"""Server-sent events out of chunks: the framing of both HTTP transports.

Linear time, bounded memory, one pass. An event beyond the limit is not kept, but its ends are, so that the
call it answers can be told.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from dragoman.server.bounded import Bounded
from dragoman.server.rpc import MAX_MESSAGE_BYTES, SALVAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

_BOM = b"\xef\xbb\xbf"
_MAX_ID = 4096
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


class StreamEvent(NamedTuple):
    """One event of a stream."""

    kind: bytes
    data: bytes
    id: str | None
    """The event's own id, where it has one."""
    too_long: int = 0
    """Its size, where it is beyond the limit: `data` has only its two ends then."""


class EventStream:
    """Cuts a stream of bytes into events; `retry` and `last_id` are what the stream said of itself."""

    def __init__(self, limit: int = MAX_MESSAGE_BYTES) -> None:
        self.limit = limit
        self.retry_ms: int | None = None
        self.last_id: str | None = None
        # A line has room for its field's name beside a value of the full size.
        self._line = Bounded(limit + SALVAGE_BYTES, ends=SALVAGE_BYTES)
        self._data = Bounded(limit + 1, ends=SALVAGE_BYTES)
        self._lost = 0
        """How many bytes of the event's data were dropped with a line that was too long."""
        self._kind = b""
        self._id: str | None = None
        self._first: bytes | None = b""
        """What came before a byte-order mark could be told from text; `None` once that is settled."""
        self._after_cr = False

    @property
    def pending(self) -> int:
        """How many bytes of an unfinished event there were; comments are none of it once they have ended."""
        return self._line.size + self._data.size + self._lost

    def feed(self, chunk: bytes) -> Iterator[StreamEvent]:
        """Yield the events that a chunk completes."""
        if self._first is not None:
            chunk = self._first + chunk
            if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
                self._first = chunk
                return
            self._first = None
            chunk = chunk.removeprefix(_BOM)
        if not chunk:
            return
        if self._after_cr:
            chunk = chunk.removeprefix(b"\n")
        self._after_cr = chunk.endswith(b"\r")
        for line in chunk.splitlines(keepends=True):
            if not line.endswith((b"\n", b"\r")):
                self._line.add(line)
                continue
            whole = self._whole(line.rstrip(b"\r\n"))
            if whole:
                self._field(whole)
            elif (event := self._dispatch()) is not None:
                yield event

    def _whole(self, end: bytes) -> bytes:
        line = self._line
        if not line.size:
            return end
        line.add(end)
        if line.is_whole:
            return line.take()
        head, tail = line.ends
        if head.startswith(b"data"):
            self._lost += line.size - len(head) - len(tail)
        line.take()
        return head + tail

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            # The line feed between two lines of data is a part of it; the last one is cut off again.
            self._data.add(value + b"\n")
        elif name == b"event":
            self._kind = value
        elif name == b"id" and len(value) <= _MAX_ID and not _CONTROL.search(value):
            # It is sent back in a header to go on from there; one that no header takes is none.
            self._id = self.last_id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit():
            self.retry_ms = int(value[:12])

    def _dispatch(self) -> StreamEvent | None:
        data, kind, event_id, lost = self._data, self._kind, self._id, self._lost
        self._kind, self._id, self._lost = b"", None, 0
        if not data.size and event_id is None:
            return None
        size, ends = max(0, data.size - 1) + lost, data.ends
        is_whole = data.is_whole and not lost
        whole = data.take()[:-1]
        if is_whole:
            return StreamEvent(kind or b"message", whole, event_id)
        return StreamEvent(kind or b"message", ends[0] + ends[1][:-1], event_id, size)
