"""A stream that lets what passes be mended, and tells when its reader leaves: nothing arrives after that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Readable(Protocol[T_co]):
    """What a transport of the SDK gives to read from."""

    async def receive(self) -> T_co:
        """Wait for the next item."""
        ...

    async def aclose(self) -> None:
        """Close it."""
        ...

    async def __anext__(self) -> T_co: ...
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None: ...


class WatchedStream(Generic[T]):
    """Passes everything through `mend`, and calls `ended` when the reader is done."""

    def __init__(self, inner: Readable[T], *, mend: Callable[[T], None], ended: Callable[[], None]) -> None:
        self._inner = inner
        self._mend = mend
        self._ended = ended

    @property
    def last_context(self) -> object:
        """The context of who sent the last item, which the SDK's reader asks for."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> T:
        """Wait for the next item."""
        item = await self._inner.receive()
        self._mend(item)
        return item

    async def aclose(self) -> None:
        """Close the inner stream."""
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        item = await self._inner.__anext__()
        self._mend(item)
        return item

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        self._ended()
        return await self._inner.__aexit__(exc_type, exc_val, exc_tb)
