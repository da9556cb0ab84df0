"""HttpEndpoint: a model API that is asked over HTTP without an SDK: Ollama, Gemini.

An answer is a stream of JSON objects, each on a line of its own or in a server-sent event.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dragoman.agent.providers.parsing import as_object
from dragoman.agent.providers.request import (
    ModelEndpoint,
    ProviderError,
    StreamBrokenError,
    is_private,
    shown,
    words_of,
)
from dragoman.agent.providers.window import TIMEOUT, fetch

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    import aiohttp

LONGEST_LINE = 64 << 20
LONGEST_REFUSAL = 1 << 16
_DATA = b"data:"


class HttpEndpoint(ModelEndpoint):
    """The address of a model API that answers in lines of JSON."""

    _session: aiohttp.ClientSession | None = None

    async def events(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[Mapping[str, Any], None]:
        """Send one request, and yield the objects of its answer.

        Raises:
            ProviderError: The request failed.
        """
        import aiohttp

        failure: ProviderError | None = None
        try:
            async with self._http().post(
                f"{self.base_url}{path}", json=body, allow_redirects=False, params=dict(self.query)
            ) as response:
                if response.status != 200:
                    failure = await self._refused(response)
                else:
                    begun = _Line()
                    async for piece in response.content.iter_any():
                        for line in begun.feed(piece):
                            if data := self.data_of(line.strip()):
                                yield self._read(data)
                        if begun.size > LONGEST_LINE:
                            msg = f"`{self.provider}`: a line has more than {LONGEST_LINE:,} bytes"
                            raise StreamBrokenError(msg, provider=self.provider)
                    if data := self.data_of(begun.take().strip()):
                        yield self._read(data)
        except TimeoutError:
            failure = self.silent()
        except aiohttp.ClientError as error:
            failure = self.lost(error)
        if failure is not None:
            raise failure

    def data_of(self, line: bytes) -> bytes:
        """Return the object of a line; empty for a line without one."""
        return line

    async def aclose(self) -> None:
        """Close all connections."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def ask(self, path: str, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Return an answer that is one object, to a GET without a body; an empty one if there is none."""
        import aiohttp

        options: dict[str, Any] = {
            "timeout": aiohttp.ClientTimeout(total=TIMEOUT),
            "trust_env": not is_private(self.base_url),
        }
        async with aiohttp.ClientSession(headers=self._headers(), **options) as session:
            return await fetch(session, f"{self.base_url}{path}", body)

    def _http(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._closed:
            msg = f"`{self.provider}`: the model is closed"
            raise ProviderError(msg, provider=self.provider)
        if self._session is None:
            limit = aiohttp.ClientTimeout(
                total=None, sock_connect=self.connect_timeout, sock_read=self.idle_timeout
            )
            # A proxy for the world cannot reach this machine or network.
            self._session = aiohttp.ClientSession(
                timeout=limit, headers=self._headers(), trust_env=not is_private(self.base_url)
            )
        return self._session

    def _headers(self) -> dict[str, str]:
        if not self.key:
            return {}
        key = self.key.reveal()
        return {self.key_header: key} if self.key_header else {"Authorization": f"Bearer {key}"}

    async def _refused(self, response: aiohttp.ClientResponse) -> ProviderError:
        text = (await response.content.read(LONGEST_REFUSAL)).decode("utf-8", "replace")
        try:
            body: object = json.loads(text)
        except (ValueError, RecursionError):
            body = text
        said, kind = words_of(body)
        failure = self.refusal(response.status, said=said, kind=kind, headers=response.headers)
        if failure.retry_after is None:
            failure.retry_after = self.pause_in(body)
        return failure

    def pause_in(self, body: object) -> float | None:  # noqa: ARG002 -- for APIs that say it
        """Return the seconds that a refusal asks to wait in its body."""
        return None

    def _read(self, line: bytes) -> Mapping[str, Any]:
        try:
            return as_object(json.loads(line))
        except (ValueError, RecursionError) as error:
            msg = f"`{self.provider}`: the stream is not valid JSON: {shown(str(error))}"
        raise StreamBrokenError(msg, provider=self.provider)


class _Line:
    """A line whose pieces are still arriving; joined once, since repeated concatenation is quadratic."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.size = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """Add a piece of the stream; return the lines that it ends."""
        first, *others = piece.split(b"\n")
        self._pieces.append(first)
        self.size += len(first)
        if not others:
            return []
        ended = [self.take(), *others[:-1]]
        self._pieces, self.size = [others[-1]], len(others[-1])
        return ended

    def take(self) -> bytes:
        """Return what has come of the line."""
        return b"".join(self._pieces)


class EventsEndpoint(HttpEndpoint):
    """The address of a model API that answers in server-sent events, each with its object on one line."""

    def data_of(self, line: bytes) -> bytes:
        """Return the data of an event."""
        data = line.removeprefix(_DATA).strip() if line.startswith(_DATA) else b""
        return b"" if data == b"[DONE]" else data
