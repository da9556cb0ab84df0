"""A session on an open connection: what the SDK's session has agreed on, and our requests.

The SDK's session shakes hands, answers the server's requests and keeps its subscriptions. Every other request
is sent by the dispatcher as it is, and its result is checked afterwards: nearly every result of a call is
plain, and is read as it came.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp_types.methods import parse_server_result, validate_server_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from dragoman.errors import DragomanError
from dragoman.server.protocol.context import current_deadline
from dragoman.server.protocol.extensions import SKILLS, TASKS, TaskCreated
from dragoman.server.protocol.listening import Listening
from dragoman.server.protocol.outgoing import Traffic, Unfinished
from dragoman.server.protocol.rounds import answer_requests, answer_rounds, wants_input
from dragoman.tools.result.render import to_answer
from dragoman.trust.sanitizing import for_log
from dragoman.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from mcp.client.session import ClientSession
    from mcp.shared.dispatcher import CallOptions

    from dragoman.server.protocol.dispatcher import WireDispatcher
    from dragoman.server.protocol.outgoing import Outgoing
    from dragoman.tools.result.render import ServerAnswer
    from dragoman.trust.limits import Limits

logger = logging.getLogger("dragoman")

Kind: TypeAlias = Literal["tools", "resources", "resourceTemplates", "prompts"]
"""What a server can list, as spelled in the protocol."""

CLIENT_INFO = types.Implementation(name="dragoman", version=VERSION)
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

LONGEST_TTL_MS = 10**15
"""More than any server means; a larger integer is none that a float can hold."""

_NAMED_BY = {**NAME_BEARING_METHODS, **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId")}
"""The parameter that is copied into the header `Mcp-Name`."""


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
        if not isinstance(ttl, int | float) or isinstance(ttl, bool):
            ttl = 0
        seconds = min(ttl, LONGEST_TTL_MS) / 1000
        return cls(max(0.0, seconds), page.get("cacheScope") == "private")


class KnownProtocol(NamedTuple):
    """The protocol generation of a server, remembered so that the next connection need not ask."""

    mode: str
    """`legacy`, or the modern version that both sides speak."""
    discover: types.DiscoverResult | None = None


def _hash_of(*texts: str | None) -> str:
    return hashlib.sha256(repr(texts).encode("utf-8", "backslashreplace")).hexdigest()[:16]


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
    """The session with one server; any task may use it."""

    def __init__(
        self, session: ClientSession, dispatcher: WireDispatcher, *, capabilities: Mapping[str, Any]
    ) -> None:
        """Use a session that has agreed on a version.

        Args:
            session: The SDK's session.
            dispatcher: Sends the requests.
            capabilities: What the session has declared about this client.
        """
        self._session = session
        self._dispatcher = dispatcher
        info = session.server_info
        self.protocol_version = version = session.protocol_version or ""
        self.server_name = info.name if info else None
        self.server_version = info.version if info else None
        self.instructions = session.instructions
        self._offers = session.server_capabilities or types.ServerCapabilities()
        self._is_modern = dispatcher.is_modern = modern = version in MODERN_PROTOCOL_VERSIONS
        self.known_protocol = (
            KnownProtocol(version, session.discover_result) if modern else KnownProtocol("legacy")
        )
        self.handshake = "" if modern else _hash_of(self.server_name, self.server_version)
        """The hash of what the server said of itself in the older handshake."""
        self._options: CallOptions = {"headers": {MCP_PROTOCOL_VERSION_HEADER: version}}
        self._declared: dict[str, Any] = {
            types.PROTOCOL_VERSION_META_KEY: version,
            types.CLIENT_INFO_META_KEY: CLIENT_INFO.model_dump(by_alias=True, mode="json", exclude_none=True),
            types.CLIENT_CAPABILITIES_META_KEY: capabilities,
        }
        """What each request to a modern server says about its client."""
        self._param_headers: dict[str, dict[tuple[str, ...], str]] = {}
        """By tool: the arguments that are copied into headers."""
        self._listening = Listening(session, self.server_name or "") if modern else None
        self._log_level: str | None = None
        self.has_tasks = TASKS in self.extensions
        """Whether the server declares tasks."""
        self.task_watchers: dict[str, Callable[[dict[str, Any]], None]] = {}
        """Called with the states of tasks that the server announces, by task id."""
        self.freshness = Freshness()
        """What the server said about the latest listing of its tools."""

    @property
    def received(self) -> int:
        """How many messages have come in; a rising number shows that the server is alive."""
        return self._dispatcher.rpc.received

    async def probe(self, seconds: float) -> bool:
        """Return whether the server answers a ping; an error is an answer too."""
        try:
            async with asyncio.timeout(seconds):
                if self._is_modern:
                    await self._session.send_discover(self.known_protocol.mode)
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
        await self._send("resources/subscribe", {"uri": uri})

    async def unsubscribe(self, uri: str) -> None:
        """End the subscription to a resource."""
        if self._listening is not None:
            self._listening.unsubscribe(uri)
            return
        await self._send("resources/unsubscribe", {"uri": uri})

    async def set_log_level(self, level: Any) -> None:
        """Request log messages from a level on; for a modern server each call carries the level."""
        if self._listening is not None:
            self._log_level = level
        elif self._offers.logging is not None:
            await self._send("logging/setLevel", {"level": level})

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
            counted = Traffic()
            page, cursor = await self.list_page(kind, cursor, counted)
            size += counted.received
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

    async def list_page(
        self, kind: Kind, cursor: str | None, traffic: Traffic | None = None
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return one page of raw definitions and the next cursor; empty if the server does not list them."""
        method = _LISTINGS[kind]
        params: dict[str, Any] = {} if cursor is None else {"cursor": cursor}
        try:
            page = await self._send(method, params, traffic)
        except MCPError as exc:
            if exc.code == types.METHOD_NOT_FOUND:
                return [], None
            raise
        listed: object = page.get(kind)
        found = cast("list[object]", listed) if isinstance(listed, list) else []
        entries = [cast("dict[str, Any]", entry) for entry in found if isinstance(entry, dict)]
        following = page.get("nextCursor")
        following = following if isinstance(following, str) else None
        if kind == "tools" and self._is_modern:
            self.freshness = Freshness.of(page)
            if cursor is None and following is None:
                self._param_headers.clear()
            entries = [entry for entry in entries if self._has_usable_headers(entry)]
        return entries, following

    def _has_usable_headers(self, entry: Mapping[str, Any]) -> bool:
        """Note which arguments of a tool are copied into headers; return whether that is possible.

        The protocol demands that a tool with invalid ones is not used.
        """
        name, schema = entry.get("name"), entry.get("inputSchema")
        if not isinstance(name, str) or not isinstance(schema, dict):
            return True
        self._param_headers.pop(name, None)
        if (wrong := find_invalid_x_mcp_header(schema)) is not None:
            server = self._dispatcher.server
            said = "%s: tool `%s` is skipped: its headers are not valid (%s)"
            logger.warning(said, server, name, for_log(wrong))
            return False
        if headers := x_mcp_header_map(schema):
            self._param_headers[name] = headers
        return True

    async def call_tool(self, call: Outgoing) -> ServerAnswer | Unfinished:
        """Call a tool, and answer what the server asks meanwhile.

        With `inputs` the caller answers requests for input itself, and gets them as the answer. `on_task` is
        called as soon as an answer is read that says that the call goes on as a task.
        """
        rounds = call.rounds
        added: Mapping[str, Any] | None = call.inputs
        if rounds is not None and rounds.responses is not None:
            added = {"inputResponses": rounds.responses}
            if rounds.state is not None:
                added["requestState"] = rounds.state
        try:
            raw = await self._send_call(call, added)
        except MCPError as exc:
            if exc.code != types.HEADER_MISMATCH or not self._is_modern:
                raise
            await self._list_headers_of(call.tool, exc)
            raw = await self._send_call(call, added)
        if is_plain_result(raw, is_modern=self._is_modern):
            return to_answer(raw) if len(raw["content"]) <= MANY_PIECES else await _read(raw)
        if not self._is_modern:
            validate_server_result("tools/call", self.protocol_version, raw)
            return await _read(raw)
        if call.inputs is not None and wants_input(raw):
            return await _read(raw)
        return await self._go_on(call, raw)

    def _send_call(
        self, call: Outgoing, added: Mapping[str, Any] | None
    ) -> Coroutine[Any, Any, dict[str, Any]]:
        """Send a call, with what a round adds to its parameters."""
        params: dict[str, Any] = {"name": call.tool, "arguments": call.arguments}
        if added:
            params.update(added)
        meta = call.meta
        if meta is not None or self._log_level is not None:
            meta = self._onward_meta(meta)
            if meta is not None:
                params["_meta"] = dict(meta)
        opts = self._stamp("tools/call", params)
        if call.on_progress is not None:
            opts = cast("CallOptions", {**opts, "on_progress": call.report})
        return self._dispatcher.request(
            "tools/call", params, opts, end=call.deadline, traffic=call.traffic, on_task=call.on_task
        )

    async def _go_on(self, call: Outgoing, raw: dict[str, Any]) -> ServerAnswer | Unfinished:
        """Go on with a call of a modern server whose first result is not plain."""

        async def send(added: Mapping[str, Any]) -> dict[str, Any]:
            return await self._send_call(call, added)

        pauses = call.rounds is not None and call.rounds.pauses
        raw, answered = await answer_rounds(
            raw, send, session=self._session, what=call.tool, pauses=pauses, end=call.deadline
        )
        if wants_input(raw):
            return Unfinished("input_required", raw, answered)
        if raw["resultType"] == "task":
            TaskCreated.model_validate(raw)
            return Unfinished("task", raw)
        return await _read(self._checked("tools/call", raw))

    async def _list_headers_of(self, tool: str, refusal: MCPError) -> None:
        """List the tools until one is found: the server has refused the headers of its call."""
        cursor: str | None = None
        try:
            for _ in range(MAX_RELISTED):
                page, cursor = await self.list_page("tools", cursor)
                if cursor is None or any(entry.get("name") == tool for entry in page):
                    return
        except MCPError:
            raise refusal from None

    @property
    def extensions(self) -> dict[str, dict[str, Any]]:
        """The protocol extensions that the server declares, with their settings."""
        return dict(self._offers.extensions or {})

    # Tasks: work that goes on after its call was answered

    async def get_task(self, task_id: str) -> dict[str, Any]:
        """Return the state of a task."""
        return await self._send("tasks/get", {"taskId": task_id})

    async def update_task(self, task_id: str, answers: Mapping[str, Any]) -> None:
        """Send answers to the questions of a task."""
        await self._send("tasks/update", {"taskId": task_id, "inputResponses": dict(answers)})

    async def cancel_task(self, task_id: str) -> None:
        """Tell the server that the result of a task is not wanted any more."""
        await self._send("tasks/cancel", {"taskId": task_id})

    async def listen_to_task(self, task_id: str) -> None:
        """Ask the server to announce the states of a task, until cancelled."""
        await self._send("subscriptions/listen", {"notifications": {"taskIds": [task_id]}})

    async def answer_question(self, request: object) -> dict[str, Any]:
        """Answer one question of a task with the application's handler.

        Raises:
            ValidationError: It is not a question that the protocol knows.
            MCPError: There is no handler for it, or the handler failed.
        """
        question = _QUESTION.validate_python(request)
        return (await answer_requests(self._session, {"": question}, current_deadline.get()))[""]

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
        found = (await self._send("skills/get", {"uri": uri})).get("skill")
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
            page = await self._send(method, {**params, **cursor})
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

    async def forward(self, method: str, params: Mapping[str, Any], *, asks: bool = True) -> dict[str, Any]:
        """Send another client's request, and return the result as it came.

        Args:
            method: `resources/read`, `prompts/get` or `completion/complete`.
            params: Its parameters.
            asks: Whether our handlers answer a request for input. If not, the result may be one.
        """
        what = str(params.get("uri") or params.get("name") or method)
        sent = {key: value for key, value in params.items() if key != "_meta"}
        meta = params.get("_meta")
        if asks:
            answer = await self._send_in_rounds(method, sent, what, meta)
        else:
            answer = await self._send(method, self._with_meta(sent, meta))
        await self._dispatcher.wait_delivered()
        return answer

    async def wait_delivered(self) -> None:
        """Wait until the handlers of the notifications that have come so far are done."""
        await self._dispatcher.wait_delivered()

    @property
    def forwards_input(self) -> bool:
        """Whether requests for input come as answers, which `forward` and `call_tool` can return."""
        return self._is_modern

    async def read_resource(self, uri: str, meta: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the raw contents of a resource."""
        return self._checked(
            "resources/read", await self._send_in_rounds("resources/read", {"uri": uri}, uri, meta)
        )

    async def get_prompt(
        self, name: str, arguments: dict[str, str] | None, meta: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the raw messages of a prompt."""
        params = {"name": name} if arguments is None else {"name": name, "arguments": arguments}
        return self._checked("prompts/get", await self._send_in_rounds("prompts/get", params, name, meta))

    async def _send_in_rounds(
        self, method: str, params: dict[str, Any], what: str, meta: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Make a request other than a tool call, and answer what the server asks."""

        async def send(added: Mapping[str, Any]) -> dict[str, Any]:
            return await self._send(method, self._with_meta({**params, **added}, meta))

        raw = await send({})
        if not self._is_modern or not wants_input(raw):
            return raw
        end = current_deadline.get()
        return (await answer_rounds(raw, send, session=self._session, what=what, end=end))[0]

    async def complete(self, ref: Mapping[str, str], argument: str, value: str) -> list[str]:
        """Return completions for an argument of a prompt or a resource template."""
        kind = "ref/resource" if "uri" in ref else "ref/prompt"
        params = {"ref": {**ref, "type": kind}, "argument": {"name": argument, "value": value}}
        answer = self._checked("completion/complete", await self._send("completion/complete", params))
        return list(answer["completion"]["values"])

    def _send(
        self, method: str, params: dict[str, Any], traffic: Traffic | None = None
    ) -> Coroutine[Any, Any, dict[str, Any]]:
        """Send a request with the deadline of the current job; return the raw result."""
        opts = self._stamp(method, params)
        return self._dispatcher.request(
            method, params or None, opts, end=current_deadline.get(), traffic=traffic
        )

    def _stamp(self, method: str, params: dict[str, Any]) -> CallOptions:
        """Add what the protocol demands of each request to its parameters; return the HTTP headers."""
        if not self._is_modern:
            return self._options
        given: dict[str, Any] = params.get("_meta") or {}
        params["_meta"] = meta = {**given, **self._declared}
        theirs: dict[str, Any] | None = given.get(types.CLIENT_CAPABILITIES_META_KEY)
        if theirs is not None:
            # A server must not ask a client what it cannot answer; all else of the connection is ours.
            ours = self._declared[types.CLIENT_CAPABILITIES_META_KEY]
            kept = {key: value for key, value in ours.items() if key not in _ASKED_OF_CLIENTS}
            asked = {key: value for key, value in theirs.items() if key in _ASKED_OF_CLIENTS}
            meta[types.CLIENT_CAPABILITIES_META_KEY] = {**kept, **asked}
        headers = {MCP_PROTOCOL_VERSION_HEADER: self.protocol_version, MCP_METHOD_HEADER: method}
        name = params.get(_NAMED_BY.get(method, ""))
        if isinstance(name, str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
            if method == "tools/call" and (found := self._param_headers.get(name)) is not None:
                headers.update(mcp_param_headers(found, params.get("arguments") or {}))
        return {"headers": headers}

    def _checked(self, method: str, raw: dict[str, Any]) -> dict[str, Any]:
        """Return a result after the types of the SDK have validated it.

        Raises:
            ValidationError: It is not valid in the protocol that was agreed on.
        """
        validate = parse_server_result if self._is_modern else validate_server_result
        ttl: object = raw.get("ttlMs")
        is_negative = isinstance(ttl, int | float) and ttl < 0
        validate(method, self.protocol_version, {**raw, "ttlMs": 0} if is_negative else raw)
        return raw

    def _with_meta(self, params: dict[str, Any], meta: Mapping[str, Any] | None) -> dict[str, Any]:
        onward = self._onward_meta(meta)
        return params if onward is None else {**params, "_meta": dict(onward)}

    def _onward_meta(self, meta: Mapping[str, Any] | None) -> Any:
        """Return the `_meta` of a request: with the level of log messages, and as the protocol allows it."""
        if meta is not None and not self._is_modern and types.CLIENT_CAPABILITIES_META_KEY in meta:
            meta = {key: value for key, value in meta.items() if key != types.CLIENT_CAPABILITIES_META_KEY}
        if self._log_level is None:
            return meta or None
        return {types.LOG_LEVEL_META_KEY: self._log_level, **(meta or {})}


async def _read(raw: dict[str, Any]) -> ServerAnswer:
    """Parse a result; one with very many content blocks is parsed in a thread."""
    content = raw.get("content")
    if isinstance(content, list) and len(cast("list[object]", content)) > MANY_PIECES:
        return await asyncio.to_thread(to_answer, raw)
    return to_answer(raw)


_QUESTION: TypeAdapter[Any] = TypeAdapter(types.InputRequest)
