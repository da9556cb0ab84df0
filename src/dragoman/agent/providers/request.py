"""Send one request to a model API through its SDK, and retry it where that helps.

This is the part that all APIs share; the body and the events of each API are in the file with its name.

The SDK does authentication, proxies, TLS and the decoding of the stream. Its retries are disabled: the only
policy is `RetryPolicy`. Events are read as plain objects, because typed ones are slow and lose or reject what
compatible servers send. The SDK is imported late and in a thread, because that takes more than a second.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import random
import re
from abc import ABC, abstractmethod
from contextlib import aclosing
from dataclasses import dataclass, field
from importlib.util import find_spec
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Literal, Protocol

from dragoman.agent.messages import CallDelta, Retrying, TextDelta, ThoughtDelta
from dragoman.agent.providers.parsing import Ids, as_object, text_in
from dragoman.agent.providers.window import ask_window, hosted_window
from dragoman.errors import ModelError
from dragoman.server.late_import import late_import_module
from dragoman.struct import Struct
from dragoman.trust import addresses
from dragoman.trust.masking import mask_text, mask_url
from dragoman.trust.redaction import Redactor
from dragoman.version import install_command

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
    from types import ModuleType

    from dragoman.agent.messages import Answered, Message, ModelEvent, ModelRequest
    from dragoman.agent.providers.keys import Secret
    from dragoman.agent.providers.window import ModelWindow

logger = logging.getLogger("dragoman")

LONGEST_WORDS = 1000
LONGEST_ANSWER = 64 << 20
"""Characters of one answer; a model writes far less before it ends."""
MOST_CALLS = 1_000
"""Tool calls of one answer."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]+")


class ProviderError(ModelError):
    """A model API failed; `status` and `kind` say how, `partial` has the answer so far."""

    provider: str = ""
    """The first half of the model's name: `openai`, `deepseek` …"""
    status: int | None = None
    """The HTTP status, if there was a response."""
    kind: str = ""
    """The API's error code, such as `context_length_exceeded`."""
    retry_after: float | None = None
    """Seconds to wait, if the API asks for it."""
    transient: bool = False
    """Whether the same request may succeed later."""
    partial: Message | None = None
    """The answer so far, if the stream broke."""


class ProviderAuthError(ProviderError):
    """The key is missing, wrong, or lacks a permission."""

    code = "agent.model.auth"


class StreamBrokenError(ProviderError):
    """The answer ended early, or is not valid."""

    code = "agent.model.stream"


def words_of(body: object) -> tuple[str, str]:
    """Return the message and the code of an API's error."""
    fields = as_object(body)
    inner = as_object(fields.get("error")) or fields
    error = fields.get("error")
    said = text_in(inner, "message") or text_in(inner, "detail") or (error if isinstance(error, str) else "")
    if not said and isinstance(body, str):
        # An HTML page of a proxy says nothing useful.
        said = "" if body.lstrip().startswith("<") else body
    kind = text_in(inner, "code") or text_in(inner, "type") or text_in(inner, "status")
    return shown(said), shown(kind)[:100]


def shown(text: str) -> str:
    """Mask and shorten an API's text for an error message; `ask` masks the key."""
    text = _CONTROL.sub(" ", mask_text(text[: 4 * LONGEST_WORDS])).strip()
    return text if len(text) <= LONGEST_WORDS else f"{text[:LONGEST_WORDS]}…"


RETRYABLE = frozenset({408, 429, 500, 502, 503, 504, 529})
SPENT = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_error"})
"""Codes of a 429 that mean an exhausted quota: waiting does not help."""
TRANSIENT = frozenset(
    {
        "api_error",
        "overloaded_error",
        "rate_limit_error",
        "rate_limit_exceeded",
        "server_error",
        "timeout_error",
        "INTERNAL",
        "RESOURCE_EXHAUSTED",
        "UNAVAILABLE",
    }
)
"""Error types inside a stream, after a status of 200, that are worth a retry."""


class RetryPolicy(Struct, kw_only=True):
    """How often a request is retried, and the pauses between."""

    attempts: int = 4
    """In total; 1 means no retry."""
    first: float = 0.5
    factor: float = 2.0
    longest: float = 8.0
    longest_asked: float = 60.0
    """The longest `Retry-After` that is accepted; a longer one is an error."""

    def pause(self, failures: int, *, asked: float | None, chance: float) -> float | None:
        """Return the seconds to wait, or `None` to give up.

        Args:
            failures: The number of failed attempts.
            asked: The `Retry-After` of the API, in seconds.
            chance: A number from 0 to 1 for the jitter.
        """
        if failures >= self.attempts:
            return None
        if asked is not None:
            return asked if asked <= self.longest_asked else None
        wait = min(self.longest, self.first * self.factor ** min(failures - 1, 16))
        # Jitter only shortens the pause; it spreads clients that failed at the same time.
        return wait * (1 - 0.25 * chance)


def is_transient(status: int | None, *, kind: str, told: str = "") -> bool:
    """Return whether the same request may succeed later.

    Args:
        status: Of the response; `None` for a network failure or inside a stream.
        kind: The API's code or type of the error.
        told: The header `x-should-retry`.
    """
    if told in {"true", "false"}:
        return told == "true"
    if kind in SPENT:
        return False
    return status in RETRYABLE if status is not None else kind in TRANSIENT


_CLIENTS = {"openai": "AsyncOpenAI", "anthropic": "AsyncAnthropic"}
_HINTS = {
    404: "check the model's name and the base URL",
    413: "the conversation is too long for this API",
    429: "wait, or ask for a higher limit",
}


class ResponseReader(Protocol):
    """Converts one API's events into `ModelEvent`s, without any I/O."""

    def feed(self, event: Mapping[str, Any]) -> Iterable[ModelEvent]:
        """Process one event; raise `ProviderError` if it reports a failure."""
        ...

    def finish(self) -> Answered:
        """Return the complete answer; raise `StreamBrokenError` if it is incomplete."""
        ...

    def partial(self) -> Message:
        """Return the answer so far."""
        ...


@dataclass(kw_only=True, eq=False)
class ModelEndpoint:
    """The address of a model API, its key, timeouts and retries."""

    provider: str
    """The first half of the model's name, for errors."""
    base_url: str = field(repr=False)
    sdk: Literal["openai", "anthropic"] = "openai"
    """The package (and extra) for this API."""
    key: Secret | None = None
    """Sent only to `base_url`: redirects are not followed."""
    key_variable: str = ""
    """The variable that the key is read from, for hints."""
    key_header: str = ""
    """The header for the key; that of the SDK unless given."""
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    """Added to the address of every request."""
    loads_tools: bool | None = None
    """Whether the API loads tools that a search found; by its address and the model unless given."""
    betas: Sequence[str] = ()
    """Names for the header `anthropic-beta`."""
    connect_timeout: float = 10.0
    idle_timeout: float = 300.0
    """Seconds without data; a reasoning model may be silent for minutes."""
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    sleep: Callable[[float], Awaitable[object]] = field(default=asyncio.sleep, repr=False)
    chance: Callable[[], float] = field(default=random.random, repr=False)
    _client: Any = field(default=None, init=False, repr=False)
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock, init=False, repr=False)
    _closed: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        self.redactor = Redactor([self.key.reveal()] if self.key else ())
        parts = addresses.split_url(self.base_url)
        if self.key and parts is not None and parts.scheme == "http" and not is_private(self.base_url):
            line = "`%s`: the key is sent to `%s` over plain http, where others can read it"
            logger.warning(line, self.provider, mask_url(self.base_url))

    async def events(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[Mapping[str, Any], None]:
        """Send one request, and yield the events of its answer.

        Raises:
            ProviderError: The request failed.
        """
        client, sdk = await self._open()
        httpx = importlib.import_module("httpx2")
        failure: ProviderError | None = None
        stream: Any = None
        options: dict[str, Any] = {"follow_redirects": False}
        if self.query:
            options["params"] = dict(self.query)
        if not self.key:
            options["headers"] = {"Authorization": sdk.Omit()}
        elif self.key_header:
            options["headers"] = {"Authorization": sdk.Omit(), self.key_header: self.key.reveal()}
        if self.betas:
            options.setdefault("headers", {})["anthropic-beta"] = ",".join(self.betas)
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
            failure = self.silent()
        except httpx.HTTPError as error:
            failure = self.lost(error)
        except ValueError as error:
            # Invalid UTF-8 or JSON: the SDK decodes each line as it arrives.
            failure = StreamBrokenError(
                f"`{self.provider}`: the stream is not valid JSON: {shown(str(error))}",
                provider=self.provider,
            )
        finally:
            if stream is not None:
                await stream.close()
        if failure is not None:
            raise failure

    async def aclose(self) -> None:
        """Close all connections."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _open(self) -> tuple[Any, ModuleType]:
        async with self._opening:
            if self._client is None and not self._closed:
                require_sdk(self.sdk)
                await late_import_module(self.sdk)
                # Reading the CA certificates takes time, too.
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
            # Without a value the SDK would look for credentials itself.
            "api_key": self.key.reveal() if self.key else "none",
            "base_url": self.base_url,
            "max_retries": 0,
            "timeout": timeout,
        }
        if is_loopback(self.base_url):
            # The SDK would use the proxy of the environment, which cannot reach servers on this machine.
            httpx = importlib.import_module("httpx2")
            options["http_client"] = httpx.AsyncClient(trust_env=False, timeout=timeout)
        return getattr(sdk, _CLIENTS[self.sdk])(**options)

    def _failure(self, error: Any, *, sdk: ModuleType, httpx: ModuleType) -> ProviderError:
        if isinstance(error, sdk.APITimeoutError):
            waited_for_answer = isinstance(error.__cause__, httpx.ReadTimeout | httpx.WriteTimeout)
            return self.silent() if waited_for_answer else self.lost(error.__cause__)
        if isinstance(error, sdk.APIConnectionError):
            return self.lost(error.__cause__)
        body = error.body
        said, kind = words_of(body)
        status = getattr(error, "status_code", None)
        if status is None or status < 300:
            # The stream had started, so the status was 200.
            return ProviderError(
                f"`{self.provider}` failed during its answer: {said or kind or 'no reason given'}",
                provider=self.provider,
                kind=kind,
                transient=is_transient(None, kind=kind),
            )
        return self.refusal(status, said=said, kind=kind, headers=error.response.headers)

    def refusal(self, status: int, *, said: str, kind: str, headers: Mapping[str, str]) -> ProviderError:
        """Return the error for a response that is not an answer."""
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
            return ProviderError(message, hint="use the address that it redirects to", **fields)
        verb = "failed" if status >= 500 else "refused the request"
        message = f"`{self.provider}` {verb} ({status}): {said or kind or 'no reason given'}"
        return ProviderError(message, hint=_HINTS.get(status, ""), **fields)

    def lost(self, cause: object) -> ProviderError:
        """Return the error for a connection that failed."""
        hint = "check that the server runs" if is_loopback(self.base_url) else ""
        why = shown(str(cause)) or type(cause).__name__
        message = f"`{self.provider}`: no connection to `{mask_url(self.base_url)}`: {why}"
        return ProviderError(message, provider=self.provider, transient=True, hint=hint)

    def silent(self) -> ProviderError:
        """Return the error for a server that sends nothing."""
        message = f"`{self.provider}`: no data from `{mask_url(self.base_url)}` for {self.idle_timeout:g} s"
        return ProviderError(message, provider=self.provider)


class EndpointProvider(ABC):
    """A model behind an endpoint; subclasses implement one API each."""

    def __init__(
        self, model: str, *, endpoint: ModelEndpoint, extra: Mapping[str, Any] | None = None
    ) -> None:
        """Configure the provider; nothing is sent.

        Args:
            model: The model's name in the API.
            endpoint: The endpoint of the API.
            extra: Extra fields for the body of every request.
        """
        self.model = model
        self._endpoint = endpoint
        self._extra = dict(extra or {})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    @property
    def loads_tools(self) -> Literal["", "definitions", "references"]:
        """What the API loads tools from that a search found; see `Provider.loads_tools`."""
        return ""

    @property
    def provider(self) -> str:
        """The first half of the model's name, as `deepseek`."""
        return self._endpoint.provider

    @property
    def base_url(self) -> str:
        """The address of the API."""
        return self._endpoint.base_url

    @property
    def secrets(self) -> Sequence[str]:
        """What must not appear anywhere: the key."""
        key = self._endpoint.key
        return [key.reveal()] if key else []

    async def window(self) -> ModelWindow | None:
        """Return how much the model reads at once, if its server or its family says so."""
        endpoint = self._endpoint
        if is_private(endpoint.base_url):
            key = endpoint.key.reveal() if endpoint.key else ""
            return await ask_window(endpoint.base_url, self.model, key)
        return hosted_window(self.model)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Send one request; see `Provider.stream`."""
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
        """Close all connections."""
        await self._endpoint.aclose()

    @abstractmethod
    def _question(self, request: ModelRequest) -> tuple[str, dict[str, Any]]:
        """Return the path and the body of a request."""

    @abstractmethod
    def _reader(self, ids: Ids) -> ResponseReader:
        """Return a reader for one answer."""


async def ask(
    endpoint: ModelEndpoint, path: str, *, body: Mapping[str, Any], new_reader: Callable[[], ResponseReader]
) -> AsyncGenerator[ModelEvent, None]:
    """Send a request, and retry temporary failures as the policy allows."""
    failures = 0
    while True:
        reader = new_reader()
        begun = False
        failure: ProviderError | None = None
        answered: Answered | None = None
        size = _Size(endpoint.provider)
        async with aclosing(endpoint.events(path, body)) as events:
            try:
                async for event in events:
                    for piece in reader.feed(event):
                        begun = True
                        size.add(piece)
                        yield piece
                answered = reader.finish()
            except ProviderError as error:
                failure = error
        if failure is None:
            assert answered is not None  # noqa: S101 -- for the type checker: `finish` returned
            yield answered
            return
        # Here for all of them: an API or a proxy may quote the key, in whatever encoding.
        failure.message = endpoint.redactor.mask_known(failure.message)
        failure.kind = endpoint.redactor.mask_known(failure.kind)
        failure.args = (failure.message,)
        failures += 1
        pause: float | None = None
        # No retry once a piece was yielded: it may already be on the screen.
        if failure.transient and not begun:
            pause = endpoint.policy.pause(failures, asked=failure.retry_after, chance=endpoint.chance())
        if pause is None:
            raise _with_partial(failure, reader.partial())
        yield Retrying(reason=failure.message, pause=pause)
        await endpoint.sleep(pause)


class _Size:
    """Stops an answer that never ends."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._characters = 0
        self._calls: set[str] = set()

    def add(self, piece: ModelEvent) -> None:
        """Count a piece.

        Raises:
            StreamBrokenError: The answer is too large.
        """
        if isinstance(piece, TextDelta | ThoughtDelta):
            self._characters += len(piece.text)
        elif isinstance(piece, CallDelta):
            self._characters += len(piece.raw)
            self._calls.add(piece.id)
        if self._characters > LONGEST_ANSWER or len(self._calls) > MOST_CALLS:
            most = f"{LONGEST_ANSWER:,} characters or {MOST_CALLS:,} tool calls"
            msg = f"`{self._provider}`: the answer has more than {most}"
            raise StreamBrokenError(msg, provider=self._provider)


def _with_partial(failure: ProviderError, partial: Message) -> ProviderError:
    came: list[str] = []
    if partial.text:
        came.append(f"{len(partial.text)} characters of text")
    if partial.calls:
        came.append(f"{len(partial.calls)} tool call{'s' if len(partial.calls) > 1 else ''}")
    if came:
        failure.partial = partial
        failure.message = f"{failure.message}; {' and '.join(came)} received before"
        failure.args = (failure.message,)
    return failure


def require_sdk(name: Literal["openai", "anthropic"]) -> None:
    """Raise an error that names the extra to install, if an SDK is missing."""
    if find_spec(name) is None:
        msg = f"the package `{name}` is not installed"
        raise ProviderError(msg, provider=name, hint=f"install it: {install_command(name)}")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the API asks to wait, from any of its headers."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    from dragoman.server.transports.http_response import retry_after as read_date

    value = headers.get("retry-after", "")
    return read_date(value) if value else None


def is_loopback(url: str) -> bool:
    """Return whether an address is a loopback address, without resolving it."""
    parts = addresses.split_url(url)
    return parts is not None and addresses.is_loopback(parts.host)


def is_private(url: str) -> bool:
    """Return whether an address is of this machine or network by its form, without resolving it."""
    parts = addresses.split_url(url)
    host = parts.host if parts is not None else ""
    try:
        return not ip_address(host.strip("[]")).is_global
    except ValueError:
        return is_loopback(url) or "." not in host or host.endswith((".local", ".lan", ".internal"))
