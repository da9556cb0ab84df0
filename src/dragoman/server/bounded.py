"""Bytes that are put together piece by piece, in linear time: up to a limit, beyond it only both ends."""

from __future__ import annotations


class Bounded:
    """One message under way, however small its pieces are."""

    def __init__(self, limit: int, *, ends: int) -> None:
        """Keep everything up to `limit` bytes; of more than that, `ends` bytes of both ends."""
        self.size = 0
        """How many bytes came in, kept or not."""
        self.limit = limit
        self._ends = ends
        self._head = b""
        self._kept = bytearray()

    @property
    def is_whole(self) -> bool:
        """Whether everything that came in is kept."""
        return self.size <= self.limit

    @property
    def ends(self) -> tuple[bytes, bytes]:
        """The beginning and the end of what came in; they overlap if that is short."""
        return self._head or bytes(self._kept[: self._ends]), bytes(self._kept[-self._ends :])

    def add(self, piece: bytes) -> None:
        """Take one more piece in."""
        self.size += len(piece)
        self._kept += piece
        if not self.is_whole:
            if len(self._head) < self._ends:
                self._head = bytes(self._kept[: self._ends])
            del self._kept[: -self._ends]

    def take(self) -> bytes:
        """Return what is kept, which is everything if it is whole, and begin anew."""
        taken = bytes(self._kept)
        self._kept = bytearray()
        self._head = b""
        self.size = 0
        return taken
