"""A session on an open connection: the SDK's session with our own types. Any task may use it."""

from __future__ import annotations

import asyncio
import json
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from dragoman.errors import DragomanError
from dragoman.server.protocol.dispatcher import known_outcome, past_the_sdk, raw_result
from dragoman.server.protocol.extensions import SKILLS, TASKS, RawRequest, TaskCreated, TaskRequest
from dragoman.server.protocol.listening import Listening
from dragoman.server.protocol.rounds import answer_requests, call_in_rounds
from dragoman.server.protocol.wire import RoundOptions, Traffic, Unfinished, current_traffic
from dragoman.tools.result.render import to_answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mcp.client.session import ClientSession
    from mcp.shared.dispatcher import CallOptions
    from pydantic import BaseModel

    from dragoman.server.protocol.dispatcher import Deadline, WireDispatcher, WireOptions
    from dragoman.tools.result.render import ServerAnswer
    from dragoman.trust.limits import Limits

logger = logging.getLogger("dragoman")

Kind: TypeAlias = Literal["tools", "resources", "resourceTemplates", "prompts"]
"""What a server can list, as spelled in the protocol."""

_ASKED_OF_CLIENTS = frozenset({"elicitation", "sampling", "roots"})
"""Capabilities to be asked something, which a forwarded request has from its client."""
_LISTINGS: dict[Kind, str] = {
    "tools": "tools/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
    "prompts": "prompts/list",
}


MAX_RELISTED = 100
"""How many pages are listed to find a tool whose headers were refused."""
MANY_PIECES = 1000
"""A result with more content blocks is parsed in a thread; so many take about 10 ms."""


Stamp: TypeAlias = "Callable[[dict[str, Any], CallOptions], None]"
"""Adds the fields of the session to a request, and its HTTP headers to the options."""


class Freshness(NamedTuple):
    """How long a listing may be used, and by whom."""

    ttl: float = 0.0
    """Seconds; 0 if the server says nothing, or that it changes at any time."""
    is_private: bool = False
    """Whether the listing may differ for other credentials."""

    @classmethod
    def of(cls, page: Mapping[str, Any]) -> Freshness:
        """Read the fields of a page."""
        ttl = page.get("ttlMs")
        seconds = ttl / 1000 if isinstance(ttl, int | float) and not isinstance(ttl, bool) else 0.0
        return cls(max(0.0, seconds), page.get("cacheScope") == "private")


class Era(NamedTuple):
    """The protocol generation of a server, remembered so that the next connection need not ask."""

    mode: str
    """`legacy`, or the modern version that both sides speak."""
    discover: types.DiscoverResult | None = None


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
    """The SDK's session on an open transport; any task may use it."""

    def __init__(
        self, session: ClientSession, dispatcher: WireDispatcher | None, *, stamp: Stamp | None = None
    ) -> None:
        """Use a session that has agreed on a version.

        Args:
            session: The SDK's session.
            dispatcher: Our wire under it; `None` over the SDK's own transports.
            stamp: The session's function that adds its own fields to a request; without it, every request
                takes the SDK's longer way.
        """
        self._session = session
        self._stamp_request = stamp
        self._dispatcher = dispatcher
        self.direct = dispatcher is not None
        """Whether a call may run in its caller's task: true over our own wires."""
        if dispatcher is not None:
            # We validate results. The session would list the tools again for a tool it does not know, and
            # compile the output schemas in Python.
            session.validate_tool_result = _accept
        info = session.server_info
        self.protocol_version = version = session.protocol_version or ""
        self.server_name = info.name if info else None
        self.server_version = info.version if info else None
        self.instructions = session.instructions
        self._offers = session.server_capabilities or types.ServerCapabilities()
        modern = version in MODERN_PROTOCOL_VERSIONS
        self.era = Era(version, session.discover_result) if modern else Era("legacy")
        self._finality: Any = _Finality(is_modern=modern)
        self._is_modern = modern
        self._listening = Listening(session, self.server_name or "") if modern else None
        self._log_level: str | None = None
        self.has_tasks = TASKS in self.extensions
        """Whether the server declares tasks."""
        self.task_watchers: dict[str, Callable[[dict[str, Any]], None]] = {}
        """Called with the states of tasks that the server announces, by task id."""
        self.freshness = Freshness()
        """What the server said about the latest listing of its tools."""
        if dispatcher is not None:
            dispatcher.cleans_results = modern

    @property
    def received(self) -> int:
        """How many messages have come in; a rising number shows that the server is alive."""
        return self._dispatcher.rpc.received if self._dispatcher is not None else 0

    async def probe(self, seconds: float) -> bool:
        """Return whether the server answers a ping; an error is an answer too."""
        try:
            async with asyncio.timeout(seconds):
                if self._is_modern:
                    await self._session.send_discover(self.era.mode)
                else:
                    await self._session.send_ping()
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
        elif self._offers.logging is not None:
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
        session = self._session
        verbs: dict[str, Callable[..., Awaitable[Any]]] = {
            "tools": session.list_tools,
            "resources": session.list_resources,
            "resourceTemplates": session.list_resource_templates,
            "prompts": session.list_prompts,
        }
        try:
            page = await verbs[kind](params=types.PaginatedRequestParams(cursor=cursor))
        except MCPError as exc:
            if exc.code == types.METHOD_NOT_FOUND:
                return [], None
            raise
        if kind == "tools":
            self.freshness = Freshness.of(
                page.model_dump(by_alias=True, include={"ttl_ms", "cache_scope"}, exclude_unset=True)
            )
            if self._dispatcher is not None:
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
        rounds: RoundOptions | None = None,
        on_task: Callable[[Mapping[str, Any]], None] | None = None,
        end: Deadline | None = None,
        traffic: Traffic | None = None,
    ) -> ServerAnswer | Unfinished:
        """Call a tool.

        Over our own wires the request is sent without the SDK's models: nearly every answer is final and
        plain, and is parsed as it came. The SDK's session gets the others. With `inputs` the caller answers
        requests for input itself, and gets them as the answer. `on_task` is called as soon as an answer is
        read that says that the call goes on as a task.
        """
        if meta is not None or self._log_level is not None:
            meta = self._onward_meta(meta)
        request: Any = None
        outcome: dict[str, Any] | MCPError | None = None
        if self._dispatcher is not None and (rounds is None or rounds.responses is None):
            request = RawRequest("tools/call", {"name": name, "arguments": arguments})
            if inputs:
                request.update(inputs)
            if meta is not None:
                request["_meta"] = dict(meta)
            opts = self._stamp("tools/call", request)
            if opts is not None:
                if on_progress is not None:
                    opts["on_progress"] = on_progress
                if on_task is not None:
                    cast("WireOptions", opts)["on_task"] = on_task
                try:
                    outcome = await self._dispatcher.request("tools/call", request, opts, end, traffic)
                except MCPError as exc:
                    if exc.code != types.HEADER_MISMATCH:
                        raise
                    outcome = exc
                else:
                    if is_plain_result(outcome, is_modern=self._is_modern):
                        is_long = len(outcome["content"]) > MANY_PIECES
                        return await _read(outcome) if is_long else to_answer(outcome)
                    if inputs is not None and self._wants_input(outcome):
                        return await _read(outcome)
        with past_the_sdk(end, traffic):
            if request is not None and (raw := await self._final_result(request, outcome, on_progress)):
                return await _read(raw)
            answer = await self._call_in_rounds(
                name, arguments, on_progress=on_progress, meta=meta, rounds=rounds or _USUAL_ROUNDS
            )
        if on_task is not None and isinstance(answer, Unfinished) and answer.kind == "task":
            on_task(answer.data)  # Again, if the dispatcher has reported it: it is the same task.
        return answer

    async def _final_result(
        self, request: Any, outcome: dict[str, Any] | MCPError | None, on_progress: Any
    ) -> dict[str, Any] | None:
        """Return the result of a call once the SDK's session has validated it; `None` if it is not final.

        If it is not (the server wants input, or refused a header), `known_outcome` gives the answer that is
        already here to the next request of this task, so that the call is not sent twice.
        """
        known_outcome.set(outcome)
        if isinstance(outcome, MCPError):
            return None
        try:
            is_final: object = await self._session.send_request(
                request, self._finality, progress_callback=on_progress
            )
        except MCPError as exc:
            if exc.code != types.HEADER_MISMATCH:
                raise
            known_outcome.set(exc)
            return None
        raw = raw_result.get()
        if is_final and raw is not None:
            return raw
        known_outcome.set(raw)
        return None

    async def _call_in_rounds(
        self,
        name: str,
        arguments: dict[str, Any],
        *,
        on_progress: Any,
        meta: Mapping[str, Any] | None,
        rounds: RoundOptions,
    ) -> ServerAnswer | Unfinished:
        """Call a tool through the SDK's session, and answer what the server asks."""
        given = cast("Any", meta)

        async def send(responses: Mapping[str, Any] | None, state: str | None) -> Any:
            return await self._session.call_tool(
                name,
                arguments,
                progress_callback=on_progress,
                input_responses=cast("Any", responses),
                request_state=state,
                meta=given,
                allow_input_required=True,
                allow_claimed=True,
            )

        async def relist() -> None:
            cursor: str | None = None
            for _ in range(MAX_RELISTED):
                page = await self._session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
                cursor = page.next_cursor
                if cursor is None or any(tool.name == name for tool in page.tools):
                    return

        result, answered = await call_in_rounds(
            send,
            session=self._session,
            tool=name,
            relist=relist if self._is_modern else None,
            options=rounds,
        )
        if isinstance(result, types.InputRequiredResult):
            raw = result.model_dump(mode="json", by_alias=True, exclude_none=True)
            return Unfinished("input_required", raw, _dumped(answered or {}))
        if isinstance(result, TaskCreated):
            return Unfinished("task", self._raw(result))
        return await _read(self._raw(result))

    @property
    def extensions(self) -> dict[str, dict[str, Any]]:
        """The protocol extensions that the server declares, with their settings."""
        return dict(self._offers.extensions or {})

    # Tasks: work that goes on after its call was answered

    async def get_task(self, task_id: str) -> dict[str, Any]:
        """Return the state of a task."""
        return await self._send_raw(TaskRequest("tasks/get", {"taskId": task_id}))

    async def update_task(self, task_id: str, answers: Mapping[str, Any]) -> None:
        """Send answers to the questions of a task."""
        params = {"taskId": task_id, "inputResponses": dict(answers)}
        await self._send_raw(TaskRequest("tasks/update", params))

    async def cancel_task(self, task_id: str) -> None:
        """Tell the server that the result of a task is not wanted any more."""
        await self._send_raw(TaskRequest("tasks/cancel", {"taskId": task_id}))

    async def listen_to_task(self, task_id: str) -> None:
        """Ask the server to announce the states of a task, until cancelled."""
        wanted = {"notifications": {"taskIds": [task_id]}}
        await self._send_raw(RawRequest("subscriptions/listen", wanted))

    async def answer_question(self, request: object) -> dict[str, Any]:
        """Answer one question of a task with the application's handler.

        Raises:
            ValidationError: It is not a question that the protocol knows.
            MCPError: There is no handler for it, or the handler failed.
        """
        answers = await answer_requests(self._session, {"": _QUESTION.validate_python(request)})
        return _dumped(answers)[""]

    # Skills

    @property
    def skill_settings(self) -> Mapping[str, Any] | None:
        """The settings of the skills extension; `None` if the server does not declare it."""
        return (self._offers.extensions or {}).get(SKILLS)

    async def list_skills(self, limits: Limits) -> list[dict[str, Any]]:
        """Return the raw entries of all pages of `skills/list`."""
        return await self._all_pages("skills/list", {}, "skills", limits)

    async def get_skill(self, uri: str) -> dict[str, Any]:
        """Return the raw entry of one skill."""
        found = (await self._send_raw(RawRequest("skills/get", {"uri": uri}))).get("skill")
        return cast("dict[str, Any]", found) if isinstance(found, dict) else {}

    async def read_directory(self, uri: str, limits: Limits) -> list[dict[str, Any]]:
        """Return the direct children of a directory resource."""
        return await self._all_pages("resources/directory/read", {"uri": uri}, "resources", limits)

    async def _all_pages(
        self, method: str, params: Mapping[str, Any], key: str, limits: Limits
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor: dict[str, str] = {}
        for _ in range(limits.pages):
            page = await self._send_raw(RawRequest(method, {**params, **cursor}))
            listed: object = page.get(key)
            entries = cast("list[object]", listed) if isinstance(listed, list) else []
            found += [cast("dict[str, Any]", entry) for entry in entries if isinstance(entry, dict)]
            following = page.get("nextCursor")
            if (
                not isinstance(following, str)
                or cursor.get("cursor") == following
                or len(found) > limits.tools
            ):
                break
            cursor = {"cursor": following}
        return found[: limits.tools]

    async def _send_raw(self, request: Any) -> dict[str, Any]:
        """Send a request that the SDK has no model for, and return the raw result."""
        return await self._session.send_request(request, cast("Any", _RAW))

    async def forward(self, method: str, params: Mapping[str, Any], *, asks: bool = True) -> dict[str, Any]:
        """Send another client's request, and return the result as it came.

        Args:
            method: `resources/read`, `prompts/get` or `completion/complete`.
            params: Its parameters.
            asks: Whether our handlers answer a request for input. If not, the result may be one.
        """
        sent: Any = RawRequest(
            method, {**params, "_meta": dict(self._onward_meta(params.get("_meta")) or {})}
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
                return await self.get_prompt(params["name"], params.get("arguments"), meta=meta)
            return await self.read_resource(params["uri"], meta=meta)
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

    async def read_resource(self, uri: str, meta: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the raw contents of a resource."""
        return await self._in_rounds(partial(self._session.read_resource, uri), uri, meta)

    async def get_prompt(
        self, name: str, arguments: dict[str, str] | None, meta: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the raw messages of a prompt."""
        return await self._in_rounds(partial(self._session.get_prompt, name, arguments), name, meta)

    async def _in_rounds(self, ask: Any, what: str, meta: Mapping[str, Any] | None) -> dict[str, Any]:
        """Make a request other than a tool call, and answer what the server asks."""
        given = self._onward_meta(meta)

        async def send(responses: Mapping[str, Any] | None, state: str | None) -> Any:
            return await ask(
                input_responses=responses, request_state=state, meta=given, allow_input_required=True
            )

        result, _ = await call_in_rounds(
            send, session=self._session, tool=what, relist=None, options=_USUAL_ROUNDS
        )
        return self._raw(result)

    async def complete(self, ref: Mapping[str, str], argument: str, value: str) -> list[str]:
        """Return completions for an argument of a prompt or a resource template."""
        reference: Any
        if "uri" in ref:
            reference = types.ResourceTemplateReference(type="ref/resource", uri=ref["uri"])
        else:
            reference = types.PromptReference(type="ref/prompt", name=ref["name"])
        result = await self._session.complete(reference, {"name": argument, "value": value})
        return list(result.completion.values)

    def _stamp(self, method: str, params: dict[str, Any]) -> CallOptions | None:
        """Add the session's own fields to the parameters; return the options for sending, or `None`."""
        if self._stamp_request is None:
            return None
        opts: CallOptions = {}
        given: dict[str, Any] = params.get("_meta") or {}
        theirs: dict[str, Any] | None = given.get(types.CLIENT_CAPABILITIES_META_KEY)
        self._stamp_request({"method": method, "params": params}, opts)
        if theirs is not None:
            # A server must not ask a client what it cannot answer; all else of the connection is ours.
            meta = params["_meta"]
            ours = meta[types.CLIENT_CAPABILITIES_META_KEY]
            kept = {key: value for key, value in ours.items() if key not in _ASKED_OF_CLIENTS}
            asked = {key: value for key, value in theirs.items() if key in _ASKED_OF_CLIENTS}
            meta[types.CLIENT_CAPABILITIES_META_KEY] = {**kept, **asked}
        return opts

    def _onward_meta(self, meta: Mapping[str, Any] | None) -> Any:
        """Return the `_meta` of a request: with the level of log messages, and as the protocol allows it."""
        if meta is not None and not self._is_modern and types.CLIENT_CAPABILITIES_META_KEY in meta:
            meta = {key: value for key, value in meta.items() if key != types.CLIENT_CAPABILITIES_META_KEY}
        if self._log_level is None:
            return meta or None
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


_RAW: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
_QUESTION: TypeAdapter[Any] = TypeAdapter(types.InputRequest)
_USUAL_ROUNDS = RoundOptions()


def _dumped(answers: Mapping[str, Any]) -> dict[str, Any]:
    """Return answers as JSON."""
    return {
        key: answer.model_dump(mode="json", by_alias=True, exclude_none=True)
        for key, answer in answers.items()
    }


async def _accept(name: str, result: types.CallToolResult) -> None:
    """Accept a result without validation."""
