"""View: what one endpoint shows, and how each request is answered.

The view of all servers prefixes names and URIs (`ids.py`); the view of one server leaves them alone. Tools
have the names that every model API takes, as the exports give them. Listings have a fixed order, and a cursor
is the last name of its page, so any replica can go on.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from dragoman.errors import (
    CallDeniedError,
    DragomanError,
    InvalidArgumentsError,
    ProtocolError,
    ToolExecutionError,
    UnknownServerError,
    UnknownToolError,
)
from dragoman.gateway import ids
from dragoman.gateway.connection import agreed_version
from dragoman.gateway.extensions import Extensions
from dragoman.gateway.questions import framed, says_yes
from dragoman.gateway.request import APPROVAL, SERVER_ERROR, AskedInRounds, AskedNow
from dragoman.gateway.search import ToolFinder
from dragoman.gateway.states import State
from dragoman.manager.manager import parts_of
from dragoman.model import ServerState
from dragoman.server.in_progress import current_caller
from dragoman.server.protocol.envelope import (
    CLIENT_CAPABILITIES_META_KEY,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    LOG_LEVEL_META_KEY,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    MODERN_PROTOCOL_VERSIONS,
    MCPError,
    check_mirrored,
    check_params,
    outcome_of,
    shaped,
    text_result,
)
from dragoman.server.protocol.extensions import TASKS
from dragoman.server.protocol.rounds import CAPABILITIES, Held, inputs_of, wants_input
from dragoman.tools.export.neutral import neutral_texts
from dragoman.tools.names import COMMON, Pair, assign
from dragoman.tools.search.finders import CALL
from dragoman.tools.search.missing import missing_servers
from dragoman.trust.masking import details
from dragoman.trust.sanitizing import for_model, for_remote, merged_instructions
from dragoman.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence

    from dragoman.gateway.announce import Announcer
    from dragoman.gateway.connection import ClientConnection
    from dragoman.gateway.gateway import Gateway
    from dragoman.gateway.observe import RequestObserver
    from dragoman.gateway.request import ClientRequest
    from dragoman.model import ProgressHandler, ToolDef, ToolResult
    from dragoman.server.protocol.session import Kind
    from dragoman.tools.view import ToolView

    Job: TypeAlias = Callable[[Mapping[str, Any] | None, ProgressHandler], Awaitable[Mapping[str, Any]]]
    Handler: TypeAlias = Callable[[ClientRequest], Awaitable[Mapping[str, Any]]]

logger = logging.getLogger("dragoman")

ToolsMode: TypeAlias = Literal["all", "search", "code"]

PAGE = 1_000
"""How many entries one page of a listing has; many clients read only the first."""
STARTING_SECONDS = 20.0
"""How long a call of a tool that is not known waits while servers are starting."""
LISTING_SECONDS = 5.0
"""How long one server may take to list something before the list of all goes on without it."""
MAX_SUBSCRIBED = 1_000
"""How many resources one client may subscribe to."""
RESERVED = "io.modelcontextprotocol/"
_PASSED_ON = (LOG_LEVEL_META_KEY, CLIENT_CAPABILITIES_META_KEY)
"""The reserved keys that concern the server behind."""
MIRROR = "x-mcp-header"
"""In a schema: an argument that a header must mirror."""

_OF_TOOLS = frozenset(
    """
    initialize server/discover ping tools/list tools/call tasks/get tasks/update tasks/cancel logging/setLevel
    subscriptions/listen
    """.split()
)
"""The methods of a view that has tools alone."""
_KINDS: dict[Kind, str] = {"resources": "uri", "resourceTemplates": "uriTemplate", "prompts": "name"}
"""What names an entry of each kind of listing."""


class View:
    """All servers, or one, as an MCP server."""

    def __init__(self, gateway: Gateway, only: str | None = None, among: ToolView | None = None) -> None:
        self.only = only
        """The server that is shown under its own names; `None` for all."""
        self._among = among
        """The only tools that are shown; then neither resources nor prompts are."""
        self._gateway = gateway
        self._mcp = gateway.mcp
        self._forward = gateway.forward
        self._mask = parts_of(gateway.mcp).gate.redactor.mask
        self._known: dict[tuple[str, Kind], Sequence[dict[str, Any]]] = {}
        """The last listings, for servers that are slow to list again."""
        self._mirrors: dict[str, tuple[Any, bool]] = {}
        """Whether headers mirror arguments, with the schema that says so, by name of the tool."""
        self._greeted = False
        self._waited = False
        self._finder = (
            ToolFinder(
                self._shown,
                define=self._definition,
                missing=self._missing,
                programs_of=self._mcp if gateway.tools_mode == "code" else None,
            )
            if gateway.tools_mode != "all"
            else None
        )
        self.extensions = Extensions(self, self._forward, gateway.task_keys)
        self._info = {
            "name": "dragoman",
            **({"title": f"dragoman: {only}"} if only else {}),
            "version": VERSION,
        }
        self._handlers: dict[str, Handler] = {
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": self._ping,
            "tools/list": self._list_tools,
            "tools/call": self._call,
            "resources/list": lambda request: self._list("resources", request),
            "resources/templates/list": lambda request: self._list("resourceTemplates", request),
            "resources/read": self._read,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "prompts/list": lambda request: self._list("prompts", request),
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
            "logging/setLevel": self._set_level,
            "subscriptions/listen": lambda request: self.announcer.listen(self, request),
            **self.extensions.handlers(),
        }
        if among is not None:
            self._handlers = {name: one for name, one in self._handlers.items() if name in _OF_TOOLS}

    @property
    def announcer(self) -> Announcer:
        """What tells clients of changes."""
        return self._gateway.announcer

    @property
    def observer(self) -> RequestObserver:
        """What counts and traces requests."""
        return self._gateway.observer

    def knows(self, method: str) -> bool:
        """Return whether a method is answered."""
        return method in self._handlers

    async def respond(self, request: ClientRequest) -> dict[str, Any]:
        """Return the answer to a request: its `result` or its `error`. Only a cancellation is raised."""
        observer = self._gateway.observer
        handler = self._handlers.get(request.method)
        seen = observer.begin(request, is_known=handler is not None, mask=self._mask)
        # What a server is sent for this request is its client's, and so is what the server asks meanwhile.
        token = current_caller.set(AskedInRounds(request) if request.is_modern else AskedNow(request))
        try:
            check_params(request.method, request.version, request.params)
            if handler is None:
                raise MCPError(code=METHOD_NOT_FOUND, message="Method not found", data=request.method)
            seen.result = await handler(request)
            return {"result": shaped(request.method, request.version, seen.result, self._info)}
        except Exception as exc:  # noqa: BLE001 -- mapped to an error answer
            seen.error = exc
            return outcome_of(exc)
        finally:
            current_caller.reset(token)
            observer.end(request, seen, is_known=handler is not None)

    def check_mirrored(self, request: ClientRequest, headers: Mapping[str, str]) -> None:
        """Check the headers that mirror arguments of a tool call.

        Raises:
            MCPError: They say something else than the arguments.
        """
        tool = self.tool(str(request.params.get("name")))
        if tool is None:
            return
        known = self._mirrors.get(tool.name)
        if known is None or known[0] is not tool.input_schema:
            if len(self._mirrors) > 10 * PAGE:
                self._mirrors.clear()
            known = self._mirrors[tool.name] = (tool.input_schema, MIRROR in json.dumps(tool.input_schema))
        arguments = request.params.get("arguments")
        if known[1] and (arguments is None or isinstance(arguments, dict)):
            check_mirrored(tool.input_schema, cast("dict[str, Any]", arguments or {}), headers)

    def take_notification(self, method: str, peer: ClientConnection | None) -> None:
        """Take a notification of an older client."""
        if method == "notifications/initialized" and peer is not None:
            self.announcer.add(peer)
        elif method == "notifications/roots/list_changed":
            self._gateway.start_job(self._forward.announce_roots(self.only))

    def forget(self, server: str) -> None:
        """Drop what is known of a server's listings, because they have changed."""
        for key in [key for key in self._known if key[0] == server]:
            del self._known[key]

    def close(self) -> None:
        """Free what the view has built."""
        if self._finder is not None:
            self._finder.close()

    async def owner(self, uri: str) -> tuple[str, str]:
        """Return the server of a resource, and the URI that the server knows it by.

        Raises:
            MCPError: No server has it, or several may.
        """
        if self.only is not None:
            return self.only, uri
        if self._among is not None:
            raise MCPError(code=INVALID_PARAMS, message="Resource not found", data={"uri": uri})
        found = ids.inner_uri(uri)
        if found is not None and found[0] in self._mcp.status():
            return found
        # A URI out of a text or a setting is not prefixed: it is clear if only one server has it.
        try:
            return await self._forward.owner(uri), uri
        except DragomanError as exc:
            msg = f"Resource not found: {exc}"
            raise MCPError(code=INVALID_PARAMS, message=msg, data={"uri": uri}) from exc

    def page(self, names: Sequence[str], request: ClientRequest) -> tuple[Sequence[str], dict[str, str]]:
        """Return the names of a page, and the cursor of the next one.

        Raises:
            MCPError: The cursor is not ours.
        """
        cursor = request.params.get("cursor")
        if cursor is not None:
            try:
                last = base64.urlsafe_b64decode(str(cursor).encode()).decode()
            except ValueError as exc:
                raise MCPError(code=INVALID_PARAMS, message="Invalid cursor") from exc
            names = [name for name in names if name > last]
        if len(names) <= PAGE:
            return names, {}
        page = names[:PAGE]
        return page, {"nextCursor": base64.urlsafe_b64encode(page[-1].encode()).decode()}

    @contextmanager
    def refusing(self) -> Generator[None]:
        """Turn our errors into those of the protocol."""
        try:
            yield
        except (DragomanError, TimeoutError) as exc:
            raise _refusal(exc) from exc

    # The handshake

    async def _initialize(self, request: ClientRequest) -> dict[str, Any]:
        return {
            "protocolVersion": agreed_version(request.params["protocolVersion"]),
            "capabilities": await self._capabilities(),
            "serverInfo": self._info,
            **self._instructions(),
        }

    async def _discover(self, _request: ClientRequest) -> dict[str, Any]:
        return {
            "supportedVersions": list(MODERN_PROTOCOL_VERSIONS),
            "capabilities": await self._capabilities(),
            **self._instructions(),
            "ttlMs": 0,
            "cacheScope": "private",
        }

    async def _ping(self, _request: ClientRequest) -> dict[str, Any]:
        return {}

    async def _capabilities(self) -> dict[str, Any]:
        """Return what is offered; the first client waits for servers that are starting."""
        if not self._greeted:
            await self._mcp.wait_ready(self._starting(), timeout=self._gateway.patience)
            self._greeted = True
        extensions = self.extensions.declared()
        if self._among is not None:
            tasks = {name: extensions[name] for name in extensions.keys() & {TASKS}}
            return {"logging": {}, "tools": {"listChanged": True}, **({"extensions": tasks} if tasks else {})}
        return {
            "completions": {},
            "logging": {},
            "prompts": {"listChanged": True},
            "resources": {"listChanged": True, "subscribe": True},
            "tools": {"listChanged": True},
            **({"extensions": extensions} if extensions else {}),
        }

    def _instructions(self) -> dict[str, str]:
        said = self._mcp.instructions()
        if self._among is not None:
            shown = {tool.server for tool in self._shown()}
            said = {server: text for server, text in said.items() if server in shown}
        text = merged_instructions(said) if self.only is None else said.get(self.only)
        return {"instructions": text} if text else {}

    # Tools

    async def _list_tools(self, request: ClientRequest) -> dict[str, Any]:
        if not self._waited:
            # Many clients list once and never again.
            if starting := self._unlisted():
                await self._mcp.wait_ready(starting, timeout=self._gateway.patience)
            self._waited = True
        if self._finder is not None:
            return {"tools": [*await self._finder.definitions(), *self._own_tools()]}
        shown = self._names()
        names, following = self.page(sorted(shown), request)
        own = [] if following else self._own_tools()
        return {"tools": [*(self._definition(shown[name], name) for name in names), *own], **following}

    def _own_tools(self) -> list[dict[str, Any]]:
        model = self._gateway.model
        return [] if model is None else model.definitions()

    def _names(self) -> dict[str, ToolDef]:
        """Return the tools that are shown, by the names that clients call them by."""
        if self.only is not None:
            return {tool.own_name: tool for tool in self._shown()}
        aliases = assign((tool.name for tool in self._mcp.registry), COMMON)
        return {aliases[tool.name]: tool for tool in self._shown()}

    def _definition(self, tool: ToolDef, name: str | None = None) -> dict[str, Any]:
        """Return a tool as its server defines it, without hidden text."""
        entry = self._forward.tool(tool)
        if self.only is None:
            entry = ids.outer_tool(entry, server=tool.server, name=tool.name if name is None else name)
        return neutral_texts(entry)

    def tool(self, name: str) -> ToolDef | None:
        """Return the tool that a client calls by this name: an exposed one, or that of an export."""
        among = self._among or self._mcp.registry
        found = among.find(name if self.only is None else Pair(self.only, name))
        return found if found is not None and found.source == "mcp" else None

    async def _call(self, request: ClientRequest) -> Mapping[str, Any]:
        name, arguments = request.params["name"], request.params.get("arguments")
        if self._finder is not None:
            if name == CALL:
                name, arguments = self._finder.call(arguments or {})
            elif (found := await self._finder.run(name, arguments or {})) is not None:
                return found
        tool = self.tool(name)
        model = self._gateway.model
        if (
            tool is None
            and model is not None
            and (own := await model.call(name, arguments or {})) is not None
        ):
            return own
        if tool is None:
            # The client may know the tool from another replica, whose servers were ready earlier.
            tool = await self._wait_for_tool(name)
        if tool is None:
            raise MCPError(code=INVALID_PARAMS, message=f"Unknown tool: {name}")
        exposed, server = tool.name, tool.server
        takes_tasks = request.is_modern and request.extension(TASKS)

        async def call(inputs: Mapping[str, Any] | None, report: ProgressHandler) -> Mapping[str, Any]:
            result = await self._forward.call(
                exposed,
                arguments,
                inputs=inputs,
                meta=self._onward_meta(request),
                on_progress=report if "progressToken" in request.meta else None,
                takes_tasks=takes_tasks,
                renders=self._gateway.renders(request),
            )
            return answer_of(result)

        answer = self._outer(await self._run(request, server, call), server)
        return answer if model is None else model.with_notices(request, answer)

    def _missing(self) -> list[str]:
        statuses = self._mcp.status()
        if self._among is not None:
            return []  # Which servers a toolset could have tools of, is not known.
        shown = {name: status for name, status in statuses.items() if self.only in (None, name)}
        return [for_remote(line) for line in missing_servers(shown)]

    def _shown(self) -> list[ToolDef]:
        tools = (tool for tool in self._mcp.tools() if self.only in (None, tool.server))
        return [tool for tool in tools if self._among is None or self._among.get(tool.name) is not None]

    async def _wait_for_tool(self, name: str) -> ToolDef | None:
        """Wait until a tool is known, or no server is starting that may have it."""
        events = self._mcp.events()
        with suppress(TimeoutError, StopAsyncIteration):
            async with asyncio.timeout(STARTING_SECONDS):
                while (tool := self.tool(name)) is None and self._unlisted():
                    await anext(events)
                return tool
        return self.tool(name)

    def _starting(self) -> list[str]:
        return [
            name
            for name, status in self._mcp.status().items()
            if self.only in (None, name) and status.state is ServerState.CONNECTING
        ]

    def _unlisted(self) -> list[str]:
        """Return the servers that are starting and whose tools are not known yet."""
        known = {tool.server for tool in self._mcp.tools()}
        return [name for name in self._starting() if name not in known]

    # Resources and prompts

    async def _list(self, kind: Kind, request: ClientRequest) -> dict[str, Any]:
        """Return a page of what the servers list, in the order of the servers' names and their own."""
        servers = [self.only] if self.only is not None else self._forward.connected()
        listings = await asyncio.gather(*(self._entries(kind, server) for server in servers))
        key = _KINDS[kind]
        found: dict[str, dict[str, Any]] = {}
        for server, entries in zip(servers, listings, strict=True):
            for entry in entries:
                own = entry.get(key)
                if isinstance(own, str):
                    name = self._outer_name(kind, server, own)
                    # The name of a resource is for people: only its URI identifies it.
                    labels = () if kind == "prompts" else ("name", "mimeType")
                    shown = {one: for_model(entry[one]) for one in labels if isinstance(entry.get(one), str)}
                    found.setdefault(name, {**entry, **shown, key: name})
        names, following = self.page(sorted(found), request)
        return {kind: [neutral_texts(found[name]) for name in names], **following}

    async def _entries(self, kind: Kind, server: str) -> Sequence[dict[str, Any]]:
        try:
            if self.only is not None:
                return await self._forward.entries(kind, server)
            async with asyncio.timeout(LISTING_SECONDS):
                self._known[server, kind] = await self._forward.entries(kind, server)
        except (DragomanError, TimeoutError) as exc:
            if self.only is not None:
                raise _refusal(exc) from exc
            logger.warning("%s: could not list its %s: %s", server, kind, exc or "it took too long")
        return self._known.get((server, kind), ())

    def _outer_name(self, kind: Kind, server: str, own: str) -> str:
        if self.only is not None:
            return own
        return ids.outer_prompt(server, own) if kind == "prompts" else ids.outer_uri(server, own)

    async def _read(self, request: ClientRequest) -> Mapping[str, Any]:
        server, uri = await self.owner(request.params["uri"])
        return await self._pass_on(request, server, {"uri": uri}, self._forward.read)

    async def _get_prompt(self, request: ClientRequest) -> Mapping[str, Any]:
        server, name = self._prompt(request.params["name"])
        arguments = request.params.get("arguments")
        fields = {"name": name, **({"arguments": arguments} if arguments else {})}
        return await self._pass_on(request, server, fields, self._forward.prompt)

    async def _pass_on(
        self,
        request: ClientRequest,
        server: str,
        fields: Mapping[str, Any],
        send: Callable[..., Awaitable[Mapping[str, Any]]],
    ) -> Mapping[str, Any]:
        """Return the answer of a server to these parameters, and to what belongs to the client's round."""

        async def job(inputs: Mapping[str, Any] | None, _report: ProgressHandler) -> Mapping[str, Any]:
            meta = self._onward_meta(request)
            params = {**(inputs or {}), **({"_meta": meta} if meta else {}), **fields}
            return await send(params, server=server, asks=inputs is None)

        return self._outer(await self._run(request, server, job), server)

    async def _complete(self, request: ClientRequest) -> Mapping[str, Any]:
        given = request.params
        ref = dict(given["ref"])
        if ref.get("type") == "ref/prompt":
            server, ref["name"] = self._prompt(ref["name"])
        else:
            server, ref["uri"] = await self.owner(ref["uri"])
        fields = {key: given[key] for key in ("argument", "context") if given.get(key) is not None}
        with self.refusing():
            return await self._forward.complete({"ref": ref, **fields}, server=server)

    def _prompt(self, name: str) -> tuple[str, str]:
        if self.only is not None:
            return self.only, name
        found = ids.inner_prompt(name)
        if found is None or found[0] not in self._mcp.status():
            raise MCPError(code=INVALID_PARAMS, message=f"Unknown prompt: {name}")
        return found

    def _outer(self, result: Mapping[str, Any], server: str) -> Mapping[str, Any]:
        if result.get("resultType") == "task":
            return self.extensions.outer_task(result, server)
        return result if self.only is not None or wants_input(result) else ids.outer_result(result, server)

    # Requests that servers may interrupt with a question

    def _onward_meta(self, request: ClientRequest) -> dict[str, Any] | None:
        """Return the `_meta` that goes on: what belongs to the client, not to its connection.

        What the client can be asked goes on too, if it is the client that will be asked.
        """
        kept = {
            key: value
            for key, value in request.meta.items()
            if key != "progressToken" and (not key.startswith(RESERVED) or key in _PASSED_ON)
        }
        if self._gateway.asks_clients and not request.is_modern and request.peer is not None:
            kept[CLIENT_CAPABILITIES_META_KEY] = dict(request.capabilities)
        return kept or None

    async def _run(self, request: ClientRequest, server: str, job: Job) -> Mapping[str, Any]:
        """Run a request at a server; questions go to the client in the way that its protocol has."""
        try:
            if request.is_modern:
                return await self._run_round(request, server, job)
            return await job(None, request.report)
        except (DragomanError, TimeoutError) as exc:
            raise _refusal(exc) from exc

    async def _run_round(self, request: ClientRequest, server: str, job: Job) -> Mapping[str, Any]:
        """Run one round of a modern request, and seal what its client has to come back with."""
        states, inputs = self._gateway.states, inputs_of(request.params)
        state = State()
        if "requestState" in inputs:
            state = states.open(inputs["requestState"], request, self.only)
        approved, refused = tuple(state.approved), ""
        if state.asked:
            responses = cast("dict[str, Any]", inputs.get("inputResponses") or {})
            inputs = {}
            if says_yes(responses.get(APPROVAL)):
                approved += (state.asked,)
            else:
                refused = state.asked
        asker = AskedInRounds(request, approved=approved, refused=refused)
        current_caller.set(asker)
        answer: Mapping[str, Any] = {}
        held = ""
        try:
            if state.held:
                waiting = self._gateway.held.take(state.held)
                # Progress and log messages go to the round in progress.
                waiting.asker.request = request
                answers: Mapping[str, Any] = inputs.get("inputResponses") or {}
                answer, held = await self._gateway.held.advance(waiting, answers)
            else:
                answer, held = await self._round(
                    request, server, job, asker=asker, inputs=inputs, state=state
                )
        except (DragomanError, MCPError):
            if asker.approval_asked() is None:
                raise
        if (wanted := asker.approval_asked()) is not None:
            subject, asked = wanted
            return {**asked, "requestState": states.seal(State(subject, approved), request, self.only)}
        if not wants_input(answer):
            return answer
        own = answer.get("requestState") if not held else None
        following = State("", approved, own if isinstance(own, str) else None, held)
        if following == State():
            return answer
        return {**answer, "requestState": states.seal(following, request, self.only)}

    async def _round(
        self,
        request: ClientRequest,
        server: str,
        job: Job,
        *,
        asker: AskedInRounds,
        inputs: dict[str, Any],
        state: State,
    ) -> tuple[Mapping[str, Any], str]:
        """Begin a request, or go on with one that a modern server has asked about.

        Returns:
            The answer, and the key of the request if it waits here for its client.
        """
        can_be_asked = not all(map(request.lacks, CAPABILITIES))
        forwards = await self._forward.forwards_input(server)
        # A server whose task is followed here asks in the middle of the request, like an older one.
        follows = TASKS in self._forward.extensions(server) and not request.extension(TASKS)
        if forwards:
            sent: dict[str, Any] | None = {
                **{key: value for key, value in inputs.items() if key != "requestState"},
                **({"requestState": state.server} if state.server is not None else {}),
            }
        elif state.server is not None:
            msg = "the server was restarted with another protocol in the meantime; send the request again"
            raise MCPError(code=INVALID_PARAMS, message=msg)
        else:
            sent = None
        if not can_be_asked or (forwards and not follows):
            answer = await job(sent, request.report)
            return (_passed_on(request, answer, server) if wants_input(answer) else answer), ""
        held = asker.held = Held(job(sent, asker.report), asker)
        answer, key = await self._gateway.held.advance(held, {})
        if not key and wants_input(answer):
            return _passed_on(request, answer, server), ""
        return answer, key

    # Subscriptions and log messages

    async def _subscribe(self, request: ClientRequest) -> dict[str, Any]:
        key = await self.owner(request.params["uri"])
        peer = request.peer
        if peer is not None and key not in peer.subscribed:
            if len(peer.subscribed) >= MAX_SUBSCRIBED:
                raise MCPError(code=SERVER_ERROR, message="too many subscriptions")
            with self.refusing():
                await self.announcer.subscribe(*key)
            if key in peer.subscribed:
                # The client has asked twice at once.
                await self.announcer.unsubscribe(*key)
            peer.subscribed.add(key)
        return {}

    async def _unsubscribe(self, request: ClientRequest) -> dict[str, Any]:
        key = await self.owner(request.params["uri"])
        peer = request.peer
        if peer is not None and key in peer.subscribed:
            peer.subscribed.discard(key)
            await self.announcer.unsubscribe(*key)
        return {}

    async def _set_level(self, request: ClientRequest) -> dict[str, Any]:
        if request.peer is not None:
            request.peer.level = request.params["level"]
        if level := self.announcer.lowest_level():
            await self._mcp.session.set_log_level(cast("Any", level), self.only)
        return {}


def _passed_on(request: ClientRequest, answer: Mapping[str, Any], server: str) -> Mapping[str, Any]:
    """Return a server's request for input for the client, with the server's name on each question.

    Raises:
        MCPError: The client cannot be asked for that.
    """
    questions = cast("Mapping[str, Mapping[str, Any]]", answer.get("inputRequests") or {})
    named: dict[str, Any] = {}
    for key, asked in questions.items():
        method = str(asked.get("method", ""))
        if method in CAPABILITIES and request.lacks(method):
            msg = f"the server asks for {method}, which the client does not support"
            data: dict[str, Any] = {"requiredCapabilities": {CAPABILITIES[method]: {}}}
            raise MCPError(code=MISSING_REQUIRED_CLIENT_CAPABILITY, message=msg, data=data)
        named[key] = {**asked, "params": framed(method, asked.get("params") or {}, server)}
    return {**answer, "inputRequests": named}


def answer_of(result: ToolResult) -> Mapping[str, Any]:
    """Return the result of a call: the server's own, or our error in the form that a model can read.

    Raises:
        MCPError: The server refused the request itself.
    """
    if result.raw is not None:
        return result.raw
    exc = result.exception
    if isinstance(exc, ProtocolError | UnknownToolError):
        raise _refusal(exc)
    # A client may be on another machine, and must not learn the folders of this one.
    text = exc.public_message if isinstance(exc, CallDeniedError) else result.text or result.error or ""
    if not result.success and not isinstance(exc, InvalidArgumentsError):
        text = for_remote(text)
    return text_result(text, is_error=not result.success)


def _refusal(exc: DragomanError | TimeoutError) -> MCPError:
    """Return the protocol's error for ours; one of a server is passed on, without hidden text."""
    if isinstance(exc, ProtocolError) and exc.rpc_code is not None:
        cause = exc.__cause__
        # Hosts show a model the message only.
        message = f"{cause.message}{details(exc.data)}" if isinstance(cause, MCPError) else exc.message
        return MCPError(code=exc.rpc_code, message=for_model(message), data=exc.data)
    said = for_remote(str(exc))
    if isinstance(exc, UnknownToolError | UnknownServerError):
        return MCPError(code=INVALID_PARAMS, message=said)
    if isinstance(exc, CallDeniedError):
        return MCPError(code=SERVER_ERROR, message=exc.public_message, data={"code": exc.code})
    if isinstance(exc, ToolExecutionError):
        return MCPError(code=INTERNAL_ERROR, message=said, data={"code": exc.code})
    code = exc.code if isinstance(exc, DragomanError) else "timeout"
    return MCPError(code=SERVER_ERROR, message=said or "it took too long", data={"code": code})
