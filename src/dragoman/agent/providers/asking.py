"""One question to a model's API through its own SDK: connect, ask, read, ask again where that helps.

Whatever is the same for every API stands here; how one is asked and read is in the file of its name.

The SDK brings authentication, proxies, TLS and the decoding of the stream; its retries are switched off, so
that there is one policy (`retrying.py`). Events are taken as plain objects: its typed ones cost time, and
lose or refuse what servers send that only imitate the API. It is imported late and in a thread, because that
takes more than a second.
"""

from __future__ import annotations

import asyncio
import importlib
import random
from abc import ABC, abstractmethod
from contextlib import aclosing
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, Protocol
from urllib.parse import urlsplit

from dragoman.agent.messages import Retrying
from dragoman.agent.providers.arguments import Ids
from dragoman.agent.providers.failures import (
    ProviderAuthError,
    ProviderError,
    StreamBrokenError,
    shown,
    words_of,
)
from dragoman.agent.providers.fields import as_object
from dragoman.agent.providers.retrying import RetryPolicy, is_transient
from dragoman.server.late import late_import_module
from dragoman.trust import addresses
from dragoman.trust.redact import mask_url

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
    from types import ModuleType

    from dragoman.agent.messages import Answered, Message, ModelEvent, ModelRequest
    from dragoman.agent.providers.keys import Secret

_CLIENTS = {"openai": "AsyncOpenAI", "anthropic": "AsyncAnthropic"}
_HINTS = {
    404: "check the model's name and the base URL",
    413: "the conversation is too long for this API",
    429: "wait, or ask for a higher limit",
}


class Reader(Protocol):
    """Turns one API's events into ours; knows nothing of connections."""

    def feed(self, event: Mapping[str, Any]) -> Iterable[ModelEvent]:
        """Take one event and return what it means; raises `ProviderError` for one that reports a failure."""
        ...

    def finish(self) -> Answered:
        """Return the whole answer; raises `StreamBrokenError` if it is not whole."""
        ...

    def partial(self) -> Message:
        """Return what has come so far."""
        ...


@dataclass(kw_only=True, eq=False)
class Endpoint:
    """Where a model's API is, and how it is asked."""

    provider: Literal["openai", "responses", "anthropic"]
    base_url: str = field(repr=False)
    key: Secret | None = None
    """Sent to `base_url` and nowhere else: redirects are not followed."""
    key_variable: str = ""
    """For the hint of an error: where the key was looked for."""
    connect_timeout: float = 10.0
    idle_timeout: float = 300.0
    """The longest silence; a model that thinks may say nothing for minutes."""
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    sleep: Callable[[float], Awaitable[object]] = field(default=asyncio.sleep, repr=False)
    chance: Callable[[], float] = field(default=random.random, repr=False)
    _client: Any = field(default=None, init=False, repr=False)
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock, init=False, repr=False)
    _closed: bool = field(default=False, init=False, repr=False)

    @property
    def sdk(self) -> Literal["openai", "anthropic"]:
        """The package, and the extra, that speaks this API."""
        return "anthropic" if self.provider == "anthropic" else "openai"

    async def events(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[Mapping[str, Any], None]:
        """Send one request and give the events of its answer.

        Raises:
            ProviderError: Whatever went wrong, cancellation excepted.
        """
        client, sdk = await self._open()
        httpx = importlib.import_module("httpx2")
        failure: ProviderError | None = None
        stream: Any = None
        options: dict[str, Any] = {"follow_redirects": False}
        if not self.key:
            options["headers"] = {"Authorization": sdk.Omit()}
        try:
            stream = await client.post(
                path,
                cast_to=object,
                body=body,
                options=options,
                stream=True,
                stream_cls=sdk.AsyncStream[object],
            )
            async for event in stream:
                yield as_object(event)
        except sdk.APIError as error:
            failure = self._failure(error, sdk=sdk, httpx=httpx)
        except httpx.TimeoutException:
            failure = self._silent()
        except httpx.HTTPError as error:
            failure = self._lost(error)
        except ValueError as error:
            # The SDK decodes the stream's lines as they come; this is what UTF-8 and JSON raise.
            failure = StreamBrokenError(
                f"`{self.provider}`: the stream holds what is not JSON: {shown(str(error))}",
                provider=self.provider,
            )
        finally:
            if stream is not None:
                await stream.close()
        if failure is not None:
            raise failure

    async def aclose(self) -> None:
        """Let go of the connections."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _open(self) -> tuple[Any, ModuleType]:
        async with self._opening:
            if self._client is None and not self._closed:
                require_sdk(self.sdk)
                await late_import_module(self.sdk)
                # Reading the certificates takes its time too.
                self._client = await asyncio.to_thread(self._make_client)
        if self._closed:
            await self.aclose()
            msg = f"`{self.provider}`: the model is closed"
            raise ProviderError(msg, provider=self.provider)
        return self._client, importlib.import_module(self.sdk)

    def _make_client(self) -> Any:
        sdk = importlib.import_module(self.sdk)
        timeout = sdk.Timeout(self.idle_timeout, connect=self.connect_timeout)
        options: dict[str, Any] = {
            # Without one the SDK would look for credentials in places of its own.
            "api_key": self.key.reveal() if self.key else "none",
            "base_url": self.base_url,
            "max_retries": 0,
            "timeout": timeout,
        }
        if is_loopback(self.base_url):
            # A proxy for the world outside cannot reach this machine's servers; the SDKs' own clients ask it.
            httpx = importlib.import_module("httpx2")
            options["http_client"] = httpx.AsyncClient(trust_env=False, timeout=timeout)
        return getattr(sdk, _CLIENTS[self.sdk])(**options)

    def _failure(self, error: Any, *, sdk: ModuleType, httpx: ModuleType) -> ProviderError:
        if isinstance(error, sdk.APITimeoutError):
            waited_for_answer = isinstance(error.__cause__, httpx.ReadTimeout | httpx.WriteTimeout)
            return self._silent() if waited_for_answer else self._lost(error.__cause__)
        if isinstance(error, sdk.APIConnectionError):
            return self._lost(error.__cause__)
        body = error.body
        said, kind = words_of(body, secret=self.key.reveal() if self.key else "")
        status = getattr(error, "status_code", None)
        if status is None or status < 300:
            # The stream had begun, so the status tells nothing.
            return ProviderError(
                f"`{self.provider}` failed while it answered: {said or kind or 'it does not say why'}",
                provider=self.provider,
                kind=kind,
                transient=is_transient(None, kind=kind),
            )
        headers = error.response.headers
        fields: dict[str, Any] = {
            "provider": self.provider,
            "status": status,
            "kind": kind,
            "retry_after": retry_after(headers),
            "transient": is_transient(status, kind=kind, told=headers.get("x-should-retry", "")),
        }
        if status in {401, 403}:
            hint = f"check `{self.key_variable}`" if self.key else f"set `{self.key_variable}`"
            message = f"`{self.provider}` does not accept the key ({status}): {said or kind}"
            return ProviderAuthError(message, hint=hint if self.key_variable else "", **fields)
        if status < 400:
            message = f"`{self.provider}`: `{mask_url(self.base_url)}` redirects elsewhere ({status})"
            return ProviderError(message, hint="give the address it redirects to", **fields)
        verb = "failed" if status >= 500 else "refused the request"
        message = f"`{self.provider}` {verb} ({status}): {said or kind or 'it does not say why'}"
        return ProviderError(message, hint=_HINTS.get(status, ""), **fields)

    def _lost(self, cause: object) -> ProviderError:
        hint = "is the server running?" if is_loopback(self.base_url) else ""
        why = shown(str(cause)) or type(cause).__name__
        message = f"`{self.provider}`: no connection to `{mask_url(self.base_url)}`: {why}"
        return ProviderError(message, provider=self.provider, transient=True, hint=hint)

    def _silent(self) -> ProviderError:
        message = (
            f"`{self.provider}`: nothing came from `{mask_url(self.base_url)}` for {self.idle_timeout:g} s"
        )
        return ProviderError(message, provider=self.provider)


class EndpointProvider(ABC):
    """A model behind an endpoint; what its API is like, a class of its own says."""

    def __init__(self, model: str, *, endpoint: Endpoint, extra: Mapping[str, Any] | None = None) -> None:
        """Take in what is asked and where; nothing is sent.

        Args:
            model: By which name the API knows the model.
            endpoint: Where the API is.
            extra: Fields for the body of every request, as the API names them.
        """
        self.model = model
        self._endpoint = endpoint
        self._extra = dict(extra or {})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Ask once; see `Provider.stream`."""
        path, body = self._question(request)
        answer = ask(
            self._endpoint,
            path,
            body={**body, **self._extra},
            new_reader=lambda: self._reader(Ids(request.messages)),
        )
        async with aclosing(answer):
            async for event in answer:
                yield event

    async def aclose(self) -> None:
        """Let go of connections."""
        await self._endpoint.aclose()

    @abstractmethod
    def _question(self, request: ModelRequest) -> tuple[str, dict[str, Any]]:
        """Return the path that a request goes to, and its body in the API's form."""

    @abstractmethod
    def _reader(self, ids: Ids) -> Reader:
        """Return what reads one answer."""


async def ask(
    endpoint: Endpoint, path: str, *, body: Mapping[str, Any], new_reader: Callable[[], Reader]
) -> AsyncGenerator[ModelEvent, None]:
    """Ask until there is an answer, an error that stays, or the policy has had enough."""
    failures = 0
    while True:
        reader = new_reader()
        begun = False
        failure: ProviderError | None = None
        answered: Answered | None = None
        async with aclosing(endpoint.events(path, body)) as events:
            try:
                async for event in events:
                    for piece in reader.feed(event):
                        begun = True
                        yield piece
                answered = reader.finish()
            except ProviderError as error:
                failure = error
        if failure is None:
            assert answered is not None  # noqa: S101 -- for the type checker: `finish` returned
            yield answered
            return
        failures += 1
        pause: float | None = None
        # What has been shown cannot be taken back, so an answer that had begun is not asked for again.
        if failure.transient and not begun:
            pause = endpoint.policy.pause(failures, asked=failure.retry_after, chance=endpoint.chance())
        if pause is None:
            raise _with_partial(failure, reader.partial())
        yield Retrying(reason=failure.message, pause=pause)
        await endpoint.sleep(pause)


def _with_partial(failure: ProviderError, partial: Message) -> ProviderError:
    came: list[str] = []
    if partial.text:
        came.append(f"{len(partial.text)} characters of text")
    if partial.calls:
        came.append(f"{len(partial.calls)} tool call{'s' if len(partial.calls) > 1 else ''}")
    if came:
        failure.partial = partial
        failure.message = f"{failure.message}; {' and '.join(came)} had come"
        failure.args = (failure.message,)
    return failure


def require_sdk(name: Literal["openai", "anthropic"]) -> None:
    """Raise an error that says what to install, if an SDK is not there."""
    if find_spec(name) is None:
        msg = f"the package `{name}` is not installed"
        raise ProviderError(msg, provider=name, hint=f"install `dragoman[{name}]`")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Read for how long the API asks to be left alone, in any of the ways it says that."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    from dragoman.server.http_answer import retry_after as read_date

    value = headers.get("retry-after", "")
    return read_date(value) if value else None


def is_loopback(url: str) -> bool:
    """Return whether an address is on this machine, as far as its text says."""
    try:
        return addresses.is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False
