"""A session on an open connection: the SDK's client with our own types. Any task may use it."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias, cast

import mcp_types as types
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from dragoman.errors import ConnectionLostError, DragomanError, ServerError
from dragoman.server.protocol.dispatcher import current_deadline, known_outcome, raw_result
from dragoman.server.protocol.wire import Traffic, current_traffic
from dragoman.tools.result.render import to_answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from mcp.client.client import Client
    from mcp.shared.dispatcher import CallOptions
    from pydantic import BaseModel

    from dragoman.server.protocol.dispatcher import WireDispatcher
    from dragoman.tools.result.render import ServerAnswer
    from dragoman.trust.limits import Limits

# ── The stream on which a modern server announces changes of listings and subscribed resources


FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
_REFUSALS = (MCPError, SubscriptionLost, DragomanError, TimeoutError)


class Listening:
    """The change stream of one session, and its subscriptions."""

    def __init__(self, client: Client, server: str) -> None:
        self._client = client
        self._server = server
        self._asked: dict[str, asyncio.Future[None]] = {}
        """The subscriptions by URI; a future is done when the server has agreed."""
        self._altered = asyncio.Event()
        self._pause = FIRST_PAUSE
        self._is_over = False
        self._streams: set[asyncio.Task[None]] = set()

    async def subscribe(self, uri: str) -> None:
        """Subscribe to the changes of a resource.

        Raises:
            ServerError: The server does not announce its changes.
            MCPError: The server refused.
            TimeoutError: The deadline of the current call passed.
        """
        if self._is_over:
            raise self._lost()
        if uri not in self._asked:
            self._asked[uri] = asyncio.get_running_loop().create_future()
            self._altered.set()
        end = current_deadline.get()
        async with asyncio.timeout_at(None if end is None else end.at):
            await asyncio.shield(self._asked[uri])

    def unsubscribe(self, uri: str) -> None:
        """End the subscription to a resource."""
        if (asked := self._asked.get(uri)) is not None:
            self._drop(uri, asked, None)

    async def run(self, changed: Callable[[str], None]) -> None:
        """Listen until cancelled.

        Args:
            changed: Called with what may have changed while the stream was broken, as in
                `Session.watch_changes`.
        """
        stream: asyncio.Task[None] | None = None
        unheard = False
        try:
            while True:
                self._altered.clear()
                kinds, uris = self._kinds(), tuple(self._asked)
                if kinds or uris:
                    newer = await self._open(kinds, uris)
                    if newer is not None and unheard:
                        for what in (*kinds, *uris):
                            changed(what)
                    unheard = unheard and newer is None
                else:
                    newer = None
                if newer is not None or not uris:
                    former, stream = stream, newer
                    await _end(former)
                if await self._wait_for_news(stream, is_wanted=bool(kinds or uris)):
                    stream, unheard = None, True
        finally:
            self._is_over = True
            for uri, asked in list(self._asked.items()):
                self._drop(uri, asked, self._lost())
            await _end(*self._streams)

    async def _open(self, kinds: Iterable[str], uris: tuple[str, ...]) -> asyncio.Task[None] | None:
        """Open a stream; `None` if the server refuses it."""
        opened: asyncio.Future[frozenset[str]] = asyncio.get_running_loop().create_future()
        stream = asyncio.create_task(self._listen(frozenset(kinds), uris, opened))
        self._streams.add(stream)
        stream.add_done_callback(self._forget)
        await asyncio.wait({stream, opened}, return_when=asyncio.FIRST_COMPLETED)
        if opened.done():
            self._pause = FIRST_PAUSE
            self._settle(uris, opened.result())
            return stream
        error = _error_of(stream)
        for uri in uris:
            if (asked := self._asked.get(uri)) is not None and not asked.done():
                # The new subscription may be the reason for the refusal: drop it to keep the others.
                self._drop(uri, asked, error)
        return None

    async def _listen(
        self, kinds: frozenset[str], uris: tuple[str, ...], opened: asyncio.Future[frozenset[str]]
    ) -> None:
        async with self._client.listen(
            tools_list_changed="tools" in kinds,
            resources_list_changed="resources" in kinds,
            prompts_list_changed="prompts" in kinds,
            resource_subscriptions=uris,
        ) as events:
            opened.set_result(frozenset(events.honored.resource_subscriptions or ()))
            async for _ in events:
                pass

    def _forget(self, stream: asyncio.Task[None]) -> None:
        self._streams.discard(stream)
        # Retrieve the exception: asyncio logs one that is never retrieved.
        _error_of(stream)

    def _settle(self, uris: tuple[str, ...], honored: frozenset[str]) -> None:
        for uri in uris:
            asked = self._asked.get(uri)
            if asked is None or asked.done():
                continue
            if uri in honored:
                asked.set_result(None)
            else:
                self._drop(uri, asked, None)

    def _drop(self, uri: str, asked: asyncio.Future[None], error: BaseException | None) -> None:
        """Remove a subscription, and fail the call that still waits for it."""
        del self._asked[uri]
        self._altered.set()
        if asked.done():
            return
        if not isinstance(error, _REFUSALS):
            msg = f"server `{self._server}` does not announce changes of `{uri}`"
            error = ServerError(msg, server=self._server)
        asked.set_exception(error)
        asked.exception()  # The caller may have been cancelled: asyncio logs an exception never retrieved.

    def _lost(self) -> ConnectionLostError:
        msg = f"the connection to server `{self._server}` was closed"
        return ConnectionLostError(msg, server=self._server, may_have_run=False)

    async def _wait_for_news(self, stream: asyncio.Task[None] | None, *, is_wanted: bool) -> bool:
        """Wait until the subscriptions change or the stream breaks; return whether it broke."""
        altered = asyncio.create_task(self._altered.wait())
        try:
            if stream is not None:
                await asyncio.wait({stream, altered}, return_when=asyncio.FIRST_COMPLETED)
                if not stream.done():
                    return False
            if is_wanted:
                pause, self._pause = self._pause, min(LONGEST_PAUSE, self._pause * 2)
                await asyncio.wait({altered}, timeout=pause)
            else:
                await asyncio.wait({altered})
            return stream is not None
        finally:
            altered.cancel()

    def _kinds(self) -> tuple[str, ...]:
        offers = self._client.server_capabilities
        kinds = (("tools", offers.tools), ("resources", offers.resources), ("prompts", offers.prompts))
        return tuple(name for name, offer in kinds if offer is not None and offer.list_changed)


async def _end(*streams: asyncio.Task[None] | None) -> None:
    """Cancel streams and wait for their end."""
    ending = [stream for stream in streams if stream is not None]
    for stream in ending:
        stream.cancel()
    if ending:
        await asyncio.wait(ending)


def _error_of(stream: asyncio.Task[None]) -> BaseException | None:
    """Return the exception of a stream; retrieving it keeps asyncio from logging it."""
    return None if stream.cancelled() else stream.exception()


# ── The session


logger = logging.getLogger("dragoman")

Kind: TypeAlias = Literal["tools", "resources", "resourceTemplates", "prompts"]
"""What a server can list, as spelled in the protocol."""

_LISTINGS: dict[Kind, str] = {
    "tools": "tools/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
    "prompts": "prompts/list",
}


MANY_PIECES = 1000
"""A result with more content blocks is parsed in a thread; so many take about 10 ms."""


class Era(NamedTuple):
    """The protocol generation of a server, remembered so that the next connection need not ask."""

    mode: str
    """`legacy`, or the modern version that both sides speak."""
    discover: types.DiscoverResult | None = None


class _ToolCall(dict[str, Any]):
    """The parameters of a call that also act as a request model: the session only calls `model_dump`."""

    name_param: ClassVar[str | None] = None

    def model_dump(self, **_: object) -> dict[str, Any]:
        """Return the request as the session sends it."""
        return {"method": "tools/call", "params": self}


class _Forwarded(dict[str, Any]):
    """The parameters of a forwarded request that also act as a request model."""

    name_param: ClassVar[str | None] = None

    def __init__(self, method: str, params: Mapping[str, Any]) -> None:
        super().__init__(params)
        self.method = method

    def model_dump(self, **_: object) -> dict[str, Any]:
        """Return the request as the session sends it."""
        return {"method": self.method, "params": self}


class _AsItIs:
    """A stand-in for a result model that returns the result unchanged."""

    @staticmethod
    def model_validate(raw: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Return the result."""
        return raw


class _Finality:
    """A stand-in for a result model: its `model_validate` returns whether a result is final."""

    def __init__(self, *, is_modern: bool) -> None:
        self._is_modern = is_modern

    def model_validate(self, raw: dict[str, Any], **how: Any) -> bool:
        """Return whether the answer is a final result."""
        if self._is_modern:
            if raw.get("resultType", "complete") != "complete":
                return False
            # The session has only checked that it is a result or a request for input.
            types.CallToolResult.model_validate(raw, **how)
        return True


def is_plain_result(raw: Mapping[str, Any], *, is_modern: bool = False) -> bool:
    """Return whether an answer is certainly valid and final: only text blocks, and perhaps an object."""
    for key, value in raw.items():
        match key:
            case "content":
                if type(value) is not list or not all(map(_is_text_block, cast("list[object]", value))):
                    return False
            case "isError":
                if type(value) is not bool:
                    return False
            case "structuredContent":
                if type(value) is not dict:
                    return False
            case "resultType":
                if not is_modern or value != "complete":
                    return False
            case "_meta":
                if not is_modern or type(value) is not dict:
                    return False
            case _:
                return False
    return "content" in raw and (not is_modern or "resultType" in raw)


def _is_text_block(block: object) -> bool:
    if type(block) is not dict or len(cast("dict[str, Any]", block)) != 2:
        return False
    fields = cast("dict[str, Any]", block)
    return fields.get("type") == "text" and type(fields.get("text")) is str


class Session:
    """The SDK's client on an open transport; any task may use it."""

    def __init__(self, client: Client, dispatcher: WireDispatcher | None) -> None:
        self._client = client
        self._session = client.session
        self._dispatcher = dispatcher
        self.direct = dispatcher is not None
        """Whether a call may run in its caller's task: true over our own wires."""
        if dispatcher is not None:
            # We validate results. The session would list the tools again for a tool it does not know, and
            # compile the output schemas in Python.
            client.session.validate_tool_result = _accept
        info = client.server_info
        self.protocol_version = client.protocol_version
        self.server_name = info.name if info else None
        self.server_version = info.version if info else None
        self.instructions = client.session.instructions
        modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        self.era = Era(client.protocol_version, client.session.discover_result) if modern else Era("legacy")
        self._finality: Any = _Finality(is_modern=modern)
        self._is_modern = modern
        self._listening = Listening(client, self.server_name or "") if modern else None
        self._log_level: str | None = None
        if dispatcher is not None:
            dispatcher.cleans_results = modern

    @property
    def received(self) -> int:
        """How many messages have come in; a rising number shows that the server is alive."""
        return self._dispatcher.rpc.received if self._dispatcher is not None else 0

    async def probe(self, seconds: float) -> bool:
        """Return whether the server answers a ping; an error is an answer too."""
        session = self._client.session
        try:
            async with asyncio.timeout(seconds):
                if self.era.mode == "legacy":
                    await session.send_ping()
                else:
                    await session.send_discover(self.era.mode)
        except MCPError as exc:
            return exc.code not in (types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT)
        except ValidationError:
            return True
        except (TimeoutError, DragomanError):
            return False
        return True

    async def watch_changes(self, changed: Callable[[str], None]) -> None:
        """Listen for changes of a modern server; an older one announces them without a stream.

        Args:
            changed: Called with `tools`, `resources`, `prompts` or the URI of a resource that may have
                changed while the stream was broken.
        """
        if self._listening is not None:
            await self._listening.run(changed)

    async def subscribe(self, uri: str) -> None:
        """Subscribe to the changes of a resource, until the session ends."""
        if self._listening is not None:
            await self._listening.subscribe(uri)
            return
        request = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))
        await self._session.send_request(request, types.EmptyResult)

    async def unsubscribe(self, uri: str) -> None:
        """End the subscription to a resource."""
        if self._listening is not None:
            self._listening.unsubscribe(uri)
            return
        request = types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=uri))
        await self._session.send_request(request, types.EmptyResult)

    async def set_log_level(self, level: Any) -> None:
        """Request log messages from a level on; for a modern server each call carries the level."""
        if self._listening is not None:
            self._log_level = level
        elif self._client.server_capabilities.logging is not None:
            request = types.SetLevelRequest(params=types.SetLevelRequestParams(level=level))
            await self._session.send_request(request, types.EmptyResult)

    async def tell_roots_changed(self) -> None:
        """Announce that the roots have changed; a modern server asks for them when it needs them."""
        if self._listening is None:
            await self._session.send_notification(types.RootsListChangedNotification())

    async def list_all(self, kind: Kind, limits: Limits) -> tuple[list[dict[str, Any]], str]:
        """Return the raw definitions of all pages, and why the listing is incomplete, if it is."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        seen: set[str] = set()
        size = 0
        for _ in range(limits.pages):
            page, cursor, added = await self._counted_page(kind, cursor)
            size += added
            if wrong := limits.excess("listing_bytes", size, what="it"):
                return found, wrong
            # Parsing a large page takes time, and so does processing it: let other tasks run in between.
            await asyncio.sleep(0)
            found += page
            if len(found) > limits.tools:
                return found[: limits.tools], limits.excess("tools", len(found), what="it")
            if cursor is None:
                return found, ""
            if cursor in seen:
                return found, "it repeats itself"
            seen.add(cursor)
        return found, f"it has more pages than the {limits.pages} that `limits.pages` allows"

    async def _counted_page(
        self, kind: Kind, cursor: str | None
    ) -> tuple[list[dict[str, Any]], str | None, int]:
        """Return one page, the cursor of the next one, and its size in bytes."""
        counted = Traffic()
        token = current_traffic.set(counted)
        try:
            page, following = await self.list_page(kind, cursor)
        finally:
            current_traffic.reset(token)
        if self._dispatcher is None:
            # The SDK's own transports do not count bytes.
            counted.received = len(await asyncio.to_thread(json.dumps, page, default=str))
        return page, following, counted.received

    async def list_page(self, kind: Kind, cursor: str | None) -> tuple[list[dict[str, Any]], str | None]:
        """Return one page of raw definitions and the next cursor; empty if the server does not list them."""
        if self._dispatcher is not None and (kind != "tools" or not self._is_modern):
            params: dict[str, Any] = {} if cursor is None else {"cursor": cursor}
            opts = self._stamp(_LISTINGS[kind], params)
            if opts is not None:
                return await self._list_raw_page(self._dispatcher, kind, params, opts)
        client = self._client
        verbs: dict[str, Callable[..., Awaitable[Any]]] = {
            "tools": client.list_tools,
            "resources": client.list_resources,
            "resourceTemplates": client.list_resource_templates,
            "prompts": client.list_prompts,
        }
        try:
            page = await verbs[kind](cursor=cursor)
        except MCPError as exc:
            if exc.code == types.METHOD_NOT_FOUND:
                return [], None
            raise
        if kind == "tools" and self._dispatcher is not None:
            return self._admitted(page.tools), page.next_cursor
        raw = self._raw(page)
        return [entry for entry in raw.get(kind) or () if isinstance(entry, dict)], page.next_cursor

    async def _list_raw_page(
        self, dispatcher: WireDispatcher, kind: Kind, params: dict[str, Any], opts: CallOptions
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return one page without the SDK's models, where one bad entry would fail the whole page.

        The tools of a modern server are listed through the session, which needs their headers for calls.
        """
        try:
            page = await dispatcher.send_raw_request(_LISTINGS[kind], params or None, opts)
        except MCPError as exc:
            if exc.code == types.METHOD_NOT_FOUND:
                return [], None
            raise
        listed: object = page.get(kind)
        entries = cast("list[object]", listed) if isinstance(listed, list) else []
        following = page.get("nextCursor")
        return (
            [cast("dict[str, Any]", entry) for entry in entries if isinstance(entry, dict)],
            following if isinstance(following, str) else None,
        )

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any],
        *,
        on_progress: Any = None,
        meta: Mapping[str, Any] | None = None,
        inputs: Mapping[str, Any] | None = None,
    ) -> ServerAnswer:
        """Call a tool.

        Over our own wires the request is sent without the SDK's models: nearly every answer is final and
        plain, and is parsed as it came. The session validates the others. If an answer is not final (the
        server wants input, or refused a header), the SDK's client takes over; `known_outcome` gives it the
        answer that is already here, so that the call is not sent twice. With `inputs` the caller answers
        requests for input itself, and gets them as the answer.
        """
        meta = self._with_log_level(meta)
        if self._dispatcher is not None:
            request: Any = _ToolCall(name=name, arguments=arguments, **(inputs or {}))
            if meta is not None:
                request["_meta"] = dict(meta)
            try:
                opts = self._stamp("tools/call", request)
                if opts is not None:
                    if on_progress is not None:
                        opts["on_progress"] = on_progress
                    answer = await self._dispatcher.send_raw_request("tools/call", request, opts)
                    if is_plain_result(answer, is_modern=self._is_modern) or (
                        inputs is not None and self._wants_input(answer)
                    ):
                        return await _read(answer)
                    known_outcome.set(answer)
                is_final: object = await self._session.send_request(
                    request, self._finality, progress_callback=on_progress
                )
            except MCPError as exc:
                if exc.code != types.HEADER_MISMATCH:
                    raise
                known_outcome.set(exc)
            else:
                raw = raw_result.get()
                if is_final and raw is not None:
                    return await _read(raw)
                known_outcome.set(raw)
        result = await self._client.call_tool(
            name, arguments, progress_callback=on_progress, meta=cast("Any", meta)
        )
        return await _read(self._raw(result))

    async def forward(self, method: str, params: Mapping[str, Any], *, asks: bool = True) -> dict[str, Any]:
        """Send another client's request, and return the result as it came.

        Args:
            method: `resources/read`, `prompts/get` or `completion/complete`.
            params: Its parameters.
            asks: Whether our handlers answer a request for input. If not, the result may be one.
        """
        sent: Any = _Forwarded(
            method, {**params, "_meta": dict(self._with_log_level(params.get("_meta")) or {})}
        )
        if not sent["_meta"]:
            del sent["_meta"]
        if self._dispatcher is not None and (opts := self._stamp(method, sent)) is not None:
            answer = await self._dispatcher.send_raw_request(method, sent, opts)
            await self._dispatcher.wait_delivered()
            if not asks or not self._wants_input(answer):
                return answer
            known_outcome.set(answer)
            meta = cast("Any", params.get("_meta"))
            if method == "prompts/get":
                return self._raw(
                    await self._client.get_prompt(params["name"], params.get("arguments"), meta=meta)
                )
            return self._raw(await self._client.read_resource(params["uri"], meta=meta))
        return await self._session.send_request(sent, cast("Any", _AsItIs))

    async def wait_delivered(self) -> None:
        """Wait until the handlers of the notifications that have come so far are done."""
        if self._dispatcher is not None:
            await self._dispatcher.wait_delivered()

    @property
    def forwards_input(self) -> bool:
        """Whether requests for input come as answers, which `forward` and `call_tool` can return."""
        return self._is_modern and self._dispatcher is not None

    def _wants_input(self, answer: Mapping[str, Any]) -> bool:
        return self._is_modern and answer.get("resultType") == "input_required"

    async def read_resource(self, uri: str) -> dict[str, Any]:
        """Return the raw contents of a resource."""
        return self._raw(await self._client.read_resource(uri, meta=self._with_log_level(None)))

    async def get_prompt(self, name: str, arguments: dict[str, str]) -> dict[str, Any]:
        """Return the raw messages of a prompt."""
        return self._raw(await self._client.get_prompt(name, arguments, meta=self._with_log_level(None)))

    async def complete(self, ref: Mapping[str, str], argument: str, value: str) -> list[str]:
        """Return completions for an argument of a prompt or a resource template."""
        reference: Any
        if "uri" in ref:
            reference = types.ResourceTemplateReference(type="ref/resource", uri=ref["uri"])
        else:
            reference = types.PromptReference(type="ref/prompt", name=ref["name"])
        result = await self._client.complete(reference, {"name": argument, "value": value})
        return list(result.completion.values)

    def _stamp(self, method: str, params: dict[str, Any]) -> CallOptions | None:
        """Add the session's own fields to the parameters, and return the options for sending.

        `None` if this version of the SDK has no `_stamp`.
        """
        stamp: Callable[[dict[str, Any], CallOptions], None] | None = getattr(self._session, "_stamp", None)
        if stamp is None:
            return None
        opts: CallOptions = {}
        stamp({"method": method, "params": params}, opts)
        return opts

    def _with_log_level(self, meta: Mapping[str, Any] | None) -> Any:
        if self._log_level is None:
            return meta
        return {types.LOG_LEVEL_META_KEY: self._log_level, **(meta or {})}

    def _admitted(self, tools: list[types.Tool]) -> list[dict[str, Any]]:
        """Return the raw entries of the latest page, without tools that the session refuses to call."""
        assert self._dispatcher is not None  # noqa: S101 -- only our own wires keep raw entries
        callable_names = {tool.name for tool in tools}
        kept: list[dict[str, Any]] = []
        for entry in self._dispatcher.listing:
            name = entry.get("name")
            if not isinstance(name, str) or name in callable_names:
                kept.append(entry)
            else:
                server = self._dispatcher.server
                logger.warning("%s: tool `%s` is skipped: its headers are not valid", server, name)
        return kept

    def _raw(self, result: BaseModel) -> dict[str, Any]:
        """Return the raw result; over the SDK's transports, a dump of the SDK's model."""
        if self._dispatcher is not None and (raw := raw_result.get()) is not None:
            return raw
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)


async def _read(raw: dict[str, Any]) -> ServerAnswer:
    """Parse a result; one with very many content blocks is parsed in a thread."""
    content = raw.get("content")
    if isinstance(content, list) and len(cast("list[object]", content)) > MANY_PIECES:
        return await asyncio.to_thread(to_answer, raw)
    return to_answer(raw)


async def _accept(name: str, result: types.CallToolResult) -> None:
    """Accept a result without validation."""
