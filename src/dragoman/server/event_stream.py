"""Server-sent events out of chunks: the framing of both HTTP transports.

Linear time, bounded memory, one pass. An event beyond the limit is not kept, but its ends are, so that the
call it answers can be told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dragoman.server.rpc import MAX_MESSAGE_BYTES, SALVAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

_BOM = b"\xef\xbb\xbf"


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
        self._rest: list[bytes] = []
        self._rest_size = 0
        self._data: list[bytes] = []
        self._size = 0
        self._kind = b""
        self._id: str | None = None
        self._first: bytes | None = b""
        """What came before a byte-order mark could be told from text; `None` once that is settled."""
        self._after_cr = False

    def feed(self, chunk: bytes) -> Iterator[StreamEvent]:
        """Yield the events that a chunk completes."""
        if self._first is not None:
            chunk = self._first + chunk
            if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
                self._first = chunk
                return
            self._first = None
            chunk = chunk.removeprefix(_BOM)
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        self._after_cr = chunk.endswith(b"\r")
        for line in chunk.splitlines(keepends=True):
            if not line.endswith((b"\n", b"\r")):
                self._keep_rest(line)
                continue
            whole = self._whole(line).rstrip(b"\r\n")
            if whole:
                self._field(whole)
            elif (event := self._dispatch()) is not None:
                yield event

    def _keep_rest(self, piece: bytes) -> None:
        self._rest.append(piece)
        self._rest_size += len(piece)
        if self._rest_size > self.limit + SALVAGE_BYTES:
            joined = b"".join(self._rest)
            self._size += len(joined)
            # The line's beginning names its field, its end may hold the id of the call.
            self._rest = [joined[:SALVAGE_BYTES], joined[-SALVAGE_BYTES:]]
            self._rest_size = 2 * SALVAGE_BYTES

    def _whole(self, line: bytes) -> bytes:
        if not self._rest:
            return line
        self._rest.append(line)
        whole = b"".join(self._rest)
        self._rest.clear()
        self._rest_size = 0
        return whole

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._size += len(value)
            self._data.append(value)
            if self._size > self.limit:
                joined = b"\n".join(self._data)
                self._data = [joined[:SALVAGE_BYTES], joined[-SALVAGE_BYTES:]]
        elif name == b"event":
            self._kind = value
        elif name == b"id" and b"\0" not in value:
            self._id = self.last_id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit():
            self.retry_ms = int(value[:12])

    def _dispatch(self) -> StreamEvent | None:
        data, kind, event_id, size = self._data, self._kind, self._id, self._size
        self._data, self._kind, self._id, self._size = [], b"", None, 0
        if not data and event_id is None:
            return None
        joined = b"\n".join(data)
        if size > self.limit:
            ends = joined[:SALVAGE_BYTES] + joined[-SALVAGE_BYTES:]
            return StreamEvent(kind or b"message", ends, event_id, size)
        return StreamEvent(kind or b"message", joined, event_id)
