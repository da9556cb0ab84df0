"""A session on an open connection: the SDK's client, in our nouns. Any task may use it."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias, cast

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from dragoman.errors import DragomanError
from dragoman.server.dispatcher import known_outcome, raw_result
from dragoman.server.listening import Listening
from dragoman.server.wire import Traffic, traffic
from dragoman.tools.content import to_answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mcp.client.client import Client
    from mcp.shared.dispatcher import CallOptions
    from pydantic import BaseModel

    from dragoman.server.dispatcher import WireDispatcher
    from dragoman.tools.content import Answer
    from dragoman.trust.limits import Limits

logger = logging.getLogger("dragoman")

Kind: TypeAlias = Literal["tools", "resources", "resourceTemplates", "prompts"]
"""What a server can list, as the protocol spells it."""

_LISTINGS: dict[Kind, str] = {
    "tools": "tools/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
    "prompts": "prompts/list",
}


MANY_PIECES = 1000
"""So many pieces of a result are read in the loop's own time: some 10 ms."""


class Era(NamedTuple):
    """How a server was connected to, so that the next time nothing has to be tried out."""

    mode: str
    """`legacy`, or the modern version that both sides speak."""
    discover: types.DiscoverResult | None = None


class _ToolCall(dict[str, Any]):
    """The parameters of a call, and a request as far as the session looks at it."""

    name_param: ClassVar[str | None] = None

    def model_dump(self, **_: object) -> dict[str, Any]:
        """Return the request as the session sends it."""
        return {"method": "tools/call", "params": self}


class _Finality:
    """A type of result, as far as the session looks at it: tells whether an answer is the last one."""

    def __init__(self, *, is_modern: bool) -> None:
        self._is_modern = is_modern

    def model_validate(self, raw: dict[str, Any], **how: Any) -> bool:
        """Tell whether the answer, which has been checked, is a result that stands by itself."""
        if self._is_modern:
            if raw.get("resultType", "complete") != "complete":
                return False
            # The session has checked that it is a result or a wish for input; a wish may hold anything else.
            types.CallToolResult.model_validate(raw, **how)
        return True


def is_plain_result(raw: Mapping[str, Any], *, is_modern: bool = False) -> bool:
    """Tell whether an answer is surely a valid and final result: texts, perhaps an object, but no more."""
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
            # The session would list again for a tool it does not know, and compile schemas: we check results.
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
        """How many messages have come in: a rising number is a server that lives."""
        return self._dispatcher.rpc.received if self._dispatcher is not None else 0

    async def probe(self, seconds: float) -> bool:
        """Ask for a sign of life; an answer that is an error is one too."""
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
        """Listen for changes where the server is modern; an older one tells of them unasked.

        Args:
            changed: Given `tools`, `resources`, `prompts` or the URI of a resource, where something may have
                changed that the server could not tell of.
        """
        if self._listening is not None:
            await self._listening.run(changed)

    async def subscribe(self, uri: str) -> None:
        """Have the server tell of changes of a resource, until the session ends."""
        if self._listening is not None:
            await self._listening.subscribe(uri)
            return
        request = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))
        await self._session.send_request(request, types.EmptyResult)

    async def unsubscribe(self, uri: str) -> None:
        """Have the server tell no more of a resource."""
        if self._listening is not None:
            self._listening.unsubscribe(uri)
            return
        request = types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=uri))
        await self._session.send_request(request, types.EmptyResult)

    async def set_log_level(self, level: Any) -> None:
        """Ask for log messages from a level on; a modern server is asked with every call anew."""
        if self._listening is not None:
            self._log_level = level
        elif self._client.server_capabilities.logging is not None:
            request = types.SetLevelRequest(params=types.SetLevelRequestParams(level=level))
            await self._session.send_request(request, types.EmptyResult)

    async def tell_roots_changed(self) -> None:
        """Tell that the roots are others now; a modern server asks for them when it needs them."""
        if self._listening is None:
            await self._session.send_notification(types.RootsListChangedNotification())

    async def list_all(self, kind: Kind, limits: Limits) -> tuple[list[dict[str, Any]], str]:
        """Return the raw definitions of every page, and why that is not all of them, if it is not."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        seen: set[str] = set()
        size = 0
        for _ in range(limits.pages):
            page, cursor, added = await self._counted_page(kind, cursor)
            size += added
            if wrong := limits.excess("listing_bytes", size, what="it"):
                return found, wrong
            # A large page took its time to read, and takes as long again to look through: in between,
            # others have their turn.
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
        """Return one page, where the next one starts, and how many bytes it took on the wire."""
        counted = Traffic()
        token = traffic.set(counted)
        try:
            page, following = await self.list_page(kind, cursor)
        finally:
            traffic.reset(token)
        if self._dispatcher is None:
            # The SDK's own transports count nothing.
            counted.received = len(await asyncio.to_thread(json.dumps, page, default=str))
        return page, following, counted.received

    async def list_page(self, kind: Kind, cursor: str | None) -> tuple[list[dict[str, Any]], str | None]:
        """Return one page of raw definitions, and where the next one starts; what is not offered is empty."""
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
        """Return one page without the SDK's models, of which one bad entry would cost the whole page.

        Its session learns from a listing of a modern server's tools, and from nothing else.
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
    ) -> Answer:
        """Call a tool.

        Over our own wires the session builds no models: nearly every answer is final, and is read as it came.
        The session checks what a glance does not tell. Where an answer is not final (input is wanted, headers
        were refused), the SDK's client takes over, beginning with the answer that is already here.
        """
        meta = self._with_log_level(meta)
        if self._dispatcher is not None:
            request: Any = _ToolCall(name=name, arguments=arguments)
            if meta is not None:
                request["_meta"] = dict(meta)
            try:
                opts = self._stamp("tools/call", request)
                if opts is not None:
                    if on_progress is not None:
                        opts["on_progress"] = on_progress
                    answer = await self._dispatcher.send_raw_request("tools/call", request, opts)
                    if is_plain_result(answer, is_modern=self._is_modern):
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

    async def read_resource(self, uri: str) -> dict[str, Any]:
        """Return the raw contents of a resource."""
        return self._raw(await self._client.read_resource(uri, meta=self._with_log_level(None)))

    async def get_prompt(self, name: str, arguments: dict[str, str]) -> dict[str, Any]:
        """Return the raw messages of a prompt."""
        return self._raw(await self._client.get_prompt(name, arguments, meta=self._with_log_level(None)))

    async def complete(self, ref: Mapping[str, str], argument: str, value: str) -> list[str]:
        """Return proposals for an argument of a prompt, or of a resource template."""
        reference: Any
        if "uri" in ref:
            reference = types.ResourceTemplateReference(type="ref/resource", uri=ref["uri"])
        else:
            reference = types.PromptReference(type="ref/prompt", name=ref["name"])
        result = await self._client.complete(reference, {"name": argument, "value": value})
        return list(result.completion.values)

    def _stamp(self, method: str, params: dict[str, Any]) -> CallOptions | None:
        """Add to the parameters what the session adds to every request, and return the options to send with.

        `None` if the session has no such way of its own.
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
        """Return the raw entries of the latest page, without those that the session refuses to call."""
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
        """Return a result as it stood on the wire; over the SDK's transports, as the SDK gives it back."""
        if self._dispatcher is not None and (raw := raw_result.get()) is not None:
            return raw
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)


async def _read(raw: dict[str, Any]) -> Answer:
    """Read a result; one of very many pieces beside the loop, which has other calls to serve."""
    content = raw.get("content")
    if isinstance(content, list) and len(cast("list[object]", content)) > MANY_PIECES:
        return await asyncio.to_thread(to_answer, raw)
    return to_answer(raw)


async def _accept(name: str, result: types.CallToolResult) -> None:
    """Leave a result as it is."""
