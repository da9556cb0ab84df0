"""View: what one endpoint shows, and how each request is answered.

The view of all servers prefixes names and URIs (`ids.py`); the view of one server leaves them alone. Listings
have a fixed order, and a cursor is the last name of its page, so any replica can go on.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import secrets
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import CLIENT_CAPABILITIES_META_KEY, INTERNAL_ERROR, INVALID_PARAMS, LOG_LEVEL_META_KEY
from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider

from dragoman.errors import (
    CallDeniedError,
    DragomanError,
    ProtocolError,
    ToolExecutionError,
    UnknownServerError,
    UnknownToolError,
)
from dragoman.gateway import ids
from dragoman.gateway.announce import Client
from dragoman.gateway.code import ProgramTool
from dragoman.gateway.direct import Exchange
from dragoman.gateway.extensions import Extensions
from dragoman.gateway.principal import principal
from dragoman.gateway.questions import ELICIT, LEVELS, approval_form, says_yes
from dragoman.gateway.rounds import (
    HeldRequest,
    approval_of,
    can_be_asked,
    input_required,
    inputs_of,
    is_held_state,
    lacks,
    pass_on,
    server_inputs,
)
from dragoman.gateway.sdk_server import (
    GatewayServer,
    RawAnswer,
    RawNotification,
    RawRequest,
    RawResults,
    connection_of,
    input_schemas,
    is_modern,
    put_aside,
)
from dragoman.gateway.search import ToolFinder
from dragoman.model import ServerState
from dragoman.server.protocol.extensions import TASKS
from dragoman.tools.names import Pair, unambiguous
from dragoman.tools.search.missing import missing_servers
from dragoman.trust.sanitizing import for_model
from dragoman.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence

    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

    from dragoman.gateway.direct import DirectContext
    from dragoman.gateway.gateway import Gateway
    from dragoman.model import CallRequest, ProgressHandler, ToolDef, ToolResult
    from dragoman.server.protocol.session import Kind

    Context: TypeAlias = ServerRequestContext[Any]

logger = logging.getLogger("dragoman")

ToolsMode: TypeAlias = Literal["all", "search", "code"]

PAGE = 1_000
"""How many entries one page of a listing has; many clients read only the first."""
STARTING_SECONDS = 20.0
"""How long a call of a tool that is not known waits while servers are starting."""
LISTING_SECONDS = 5.0
"""How long one server may take to list something before the list of all goes on without it."""
SERVER_ERROR = -32000
RESERVED = "io.modelcontextprotocol/"
_PASSED_ON = (LOG_LEVEL_META_KEY, CLIENT_CAPABILITIES_META_KEY)
"""The reserved keys that concern the server behind."""
MIRROR = "x-mcp-header"
"""In a schema: an argument that a header must mirror."""
NAME = re.compile(r"[A-Za-z0-9_.\-/]{1,128}")
"""Names of tools that every client takes."""

_KINDS: dict[Kind, tuple[str, str]] = {
    "resources": ("uri", "resources/list"),
    "resourceTemplates": ("uriTemplate", "resources/templates/list"),
    "prompts": ("name", "prompts/list"),
}


class View:
    """All servers, or one, as an MCP server."""

    def __init__(self, gateway: Gateway, only: str | None) -> None:
        self.only = only
        """The server that is shown under its own names; `None` for all."""
        self._gateway = gateway
        self._mcp = gateway.mcp
        self._forward = gateway.mcp.forward
        self._known: dict[tuple[str, Kind], Sequence[dict[str, Any]]] = {}
        """The last listings, for servers that are slow to list again."""
        self._renamed: dict[str, str] = {}
        """Exposed names that some clients refuse, by the names they are given instead."""
        self.sessions: dict[str, Client] = {}
        """Connections of the older protocol that are sessions over HTTP, by session id."""
        self._mirrors: dict[str, tuple[Any, bool]] = {}
        """Whether headers mirror arguments, with the schema that says so, by name of the tool."""
        self._chain: tuple[bool, Any] | None = None
        """Whether calls are traced, and the middleware around them."""
        self._greeted = False
        self._waited = False
        self._finder = ToolFinder(self._shown, missing=self._missing) if gateway.tools_mode != "all" else None
        self._programs = (
            ProgramTool(self._mcp, self._shown, gateway.questions) if gateway.tools_mode == "code" else None
        )
        self.server = server = GatewayServer(
            "dragoman",
            version=VERSION,
            title=f"dragoman: {only}" if only else None,
            instructions=self._instructions(),
            **input_schemas(self._input_schema),
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_subscriptions_listen=self._listen,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete,
        )
        # By these calls, since the constructor warns of what the newest protocol deprecates.
        server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self._set_level)
        server.add_notification_handler(
            "notifications/initialized", types.NotificationParams, self._initialized
        )
        server.add_notification_handler(
            "notifications/roots/list_changed", types.NotificationParams, self._roots_changed
        )
        server.middleware += [self._greet, RawResults(server)]
        self._extensions = Extensions(self, self._forward, gateway.task_keys)
        server.extensions = self._extensions.declared()

    def forget(self, server: str) -> None:
        """Drop what is known of a server's listings, because they have changed."""
        for key in [key for key in self._known if key[0] == server]:
            del self._known[key]
        self.server.instructions = self._instructions()
        self.server.extensions = self._extensions.declared()

    async def owner(self, uri: str) -> tuple[str, str]:
        """Return the server of a resource, and the URI that the server knows it by.

        Raises:
            DragomanError: No server has it, or several may.
        """
        if self.only is not None:
            return self.only, uri
        found = ids.inner_uri(uri)
        if found is not None and found[0] in self._mcp.status():
            return found
        # A URI out of a text or a setting is not prefixed: it is clear if only one server has it.
        return await self._forward.owner(uri), uri

    def task_of(self, task: str) -> tuple[str, str]:
        """Return the server of a task, and the id that the server knows it by.

        Raises:
            MCPError: It is not a task of this client's.
        """
        return self._extensions.task_of(task)

    def outer_task(self, state: Mapping[str, Any], server: str) -> dict[str, Any]:
        """Return the state of a task with the id and the URIs that clients know."""
        return self._extensions.outer_task(state, server)

    def page(
        self, names: Sequence[str], params: types.PaginatedRequestParams | None
    ) -> tuple[Sequence[str], dict[str, str]]:
        """Return the names of a page, and the cursor of the next one.

        Raises:
            MCPError: The cursor is not ours.
        """
        return _page(names, params)

    @contextmanager
    def refusing(self) -> Generator[None]:
        """Turn our errors into those of the protocol."""
        try:
            yield
        except (DragomanError, TimeoutError) as exc:
            raise _refusal(exc) from exc

    async def _greet(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Let a handshake wait, once, for servers that are starting: it carries their instructions."""
        if ctx.method in ("initialize", "server/discover") and not self._greeted:
            await self._mcp.wait_ready(self._starting(), timeout=self._gateway.patience)
            self._greeted = True
            self.server.instructions = self._instructions()
            self.server.extensions = self._extensions.declared()
        return await call_next(ctx)

    # ── Tools

    async def _list_tools(self, _ctx: Context, params: types.PaginatedRequestParams | None) -> Any:
        if not self._waited:
            # Many clients list once and never again.
            if starting := self._unlisted():
                await self._mcp.wait_ready(starting, timeout=self._gateway.patience)
            self._waited = True
        if self._finder is not None:
            tools = self._finder.definitions()
            if self._programs is not None:
                tools.insert(1, await self._programs.definition())  # by name
            put_aside({"tools": tools})
            return types.ListToolsResult(tools=[])
        tools = {self._name(tool): tool for tool in self._shown()}
        names, following = self.page(sorted(tools), params)
        put_aside({"tools": [self._definition(name, tools[name]) for name in names], **following})
        return types.ListToolsResult(tools=[])

    def _definition(self, name: str, tool: ToolDef) -> dict[str, Any]:
        entry = self._forward.tool(tool)
        if self.only is None:
            entry = ids.outer_tool(entry, server=tool.server, name=name)
        texts = {
            key: for_model(entry[key]) for key in ("title", "description") if isinstance(entry.get(key), str)
        }
        return {**entry, **texts}

    async def _call_tool(self, ctx: Context, _params: types.CallToolRequestParams) -> Any:
        put_aside(await self._call(ctx))
        return types.CallToolResult(content=[])

    async def handle_directly(self, ctx: DirectContext) -> Mapping[str, Any]:
        """Answer a tool call that has not come through the SDK's server, by the same middleware.

        Raises:
            MCPError: The call is refused.
        """
        traces = not isinstance(get_tracer_provider(), ProxyTracerProvider)
        if self._chain is None or self._chain[0] is not traces:
            chain: Any = self._call
            # The first traces; the last two are for handshakes and for results that the SDK would change.
            for middleware in reversed(self.server.middleware[0 if traces else 1 : -2]):
                chain = partial(cast("Any", middleware), call_next=chain)
            self._chain = (traces, chain)
        return await self._chain[1](ctx)

    def mirrors_arguments(self, name: str) -> bool:
        """Return whether headers must mirror arguments of a tool, which the SDK compares."""
        tool = self._tool(name)
        if tool is None:
            return False
        known = self._mirrors.get(name)
        if known is None or known[0] is not tool.input_schema:
            known = self._mirrors[name] = (tool.input_schema, MIRROR in json.dumps(tool.input_schema))
        return known[1]

    async def _call(self, ctx: Any) -> Mapping[str, Any]:
        given = dict(ctx.params or {})
        name, arguments = given["name"], given.get("arguments")
        if self._finder is not None:
            if name == self._finder.search_name:
                found = await self._finder.search(arguments or {})
                if self._programs is not None:
                    names = [one["name"] for one in found["structuredContent"]["tools"]]
                    shown = ["In a program:", *await self._programs.signatures(names)]
                    found["content"].append({"type": "text", "text": "\n".join(shown)})
                return found
            if self._programs is not None and name == self._programs.name:
                return await self._programs.run(arguments or {})
            if name == self._finder.call_name:
                name, arguments = self._finder.call(arguments or {})
        tool = self._tool(name)
        if tool is None:
            # The client may know the tool from another replica, whose servers were ready earlier.
            tool = await self._wait_for_tool(name)
        if tool is None:
            raise MCPError(code=INVALID_PARAMS, message=f"Unknown tool: {name}")
        exposed, server = tool.name, tool.server
        takes_tasks = is_modern(ctx.protocol_version) and declares_tasks(ctx)

        async def call(inputs: Mapping[str, Any] | None, report: ProgressHandler) -> Mapping[str, Any]:
            wants = "progressToken" in _meta_of(given)
            result = await self._forward.call(
                exposed,
                arguments,
                inputs=inputs,
                meta=self._onward_meta(ctx),
                on_progress=report if wants else None,
                takes_tasks=takes_tasks,
            )
            return answer_of(result)

        return self._outer(await self._run(ctx, server, call), server)

    def close(self) -> None:
        """Free what the view has built."""
        if self._finder is not None:
            self._finder.close()

    def _missing(self) -> list[str]:
        statuses = self._mcp.status()
        return missing_servers(
            {name: status for name, status in statuses.items() if self.only in (None, name)}
        )

    def _shown(self) -> list[ToolDef]:
        return [tool for tool in self._mcp.tools() if self.only in (None, tool.server)]

    def _name(self, tool: ToolDef) -> str:
        if self.only is not None:
            return tool.original_name
        if NAME.fullmatch(tool.name):
            return tool.name
        # Depends on this tool alone, so it stays when other servers come and go.
        name = unambiguous(Pair(tool.server, tool.original_name), tool.name)
        self._renamed[name] = tool.name
        return name

    def _tool(self, name: str) -> ToolDef | None:
        if self.only is not None:
            return next((tool for tool in self._shown() if tool.original_name == name), None)
        if name not in self._renamed and not self._mcp.registry.get(name):
            for tool in self._shown():
                self._name(tool)
        tool = self._mcp.registry.get(self._renamed.get(name, name))
        return tool if tool is not None and tool.source == "mcp" else None

    def _input_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the schema that says which headers mirror which arguments; the SDK compares them."""
        tool = self._tool(name)
        return tool.input_schema if tool is not None else None

    async def _wait_for_tool(self, name: str) -> ToolDef | None:
        """Wait until a tool is known, or no server is starting that may have it."""
        events = self._mcp.events()
        with suppress(TimeoutError, StopAsyncIteration):
            async with asyncio.timeout(STARTING_SECONDS):
                while (tool := self._tool(name)) is None and self._unlisted():
                    await anext(events)
                return tool
        return self._tool(name)

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

    # ── Resources and prompts

    async def _list_resources(self, _ctx: Context, params: types.PaginatedRequestParams | None) -> Any:
        await self._list("resources", params)
        return types.ListResourcesResult(resources=[])

    async def _list_templates(self, _ctx: Context, params: types.PaginatedRequestParams | None) -> Any:
        await self._list("resourceTemplates", params)
        return types.ListResourceTemplatesResult(resource_templates=[])

    async def _list_prompts(self, _ctx: Context, params: types.PaginatedRequestParams | None) -> Any:
        await self._list("prompts", params)
        return types.ListPromptsResult(prompts=[])

    async def _list(self, kind: Kind, params: types.PaginatedRequestParams | None) -> None:
        """Put a page of what the servers list aside, in the order of the servers' names and their own."""
        servers = [self.only] if self.only is not None else self._forward.connected()
        listings = await asyncio.gather(*(self._entries(kind, server) for server in servers))
        key, _ = _KINDS[kind]
        found: dict[str, dict[str, Any]] = {}
        for server, entries in zip(servers, listings, strict=True):
            for entry in entries:
                own = entry.get(key)
                if isinstance(own, str):
                    name = self._outer_name(kind, server, own)
                    found.setdefault(name, {**entry, key: name})
        names, following = self.page(sorted(found), params)
        put_aside({kind: [found[name] for name in names], **following})

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

    async def _read_resource(self, ctx: Context, params: types.ReadResourceRequestParams) -> Any:
        server, uri = await self._owner(params.uri)

        async def read(inputs: Mapping[str, Any] | None, _report: ProgressHandler) -> Mapping[str, Any]:
            return await self._forward.read(
                {**self._onward(ctx, inputs), "uri": uri}, server=server, asks=inputs is None
            )

        put_aside(self._outer(await self._run(ctx, server, read), server))
        return types.ReadResourceResult(contents=[])

    async def _get_prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> Any:
        server, name = self._prompt(params.name)
        given = dict(ctx.params or {})
        fields = {"name": name, **({"arguments": given["arguments"]} if given.get("arguments") else {})}

        async def get(inputs: Mapping[str, Any] | None, _report: ProgressHandler) -> Mapping[str, Any]:
            return await self._forward.prompt(
                {**self._onward(ctx, inputs), **fields}, server=server, asks=inputs is None
            )

        put_aside(self._outer(await self._run(ctx, server, get), server))
        return types.GetPromptResult(messages=[])

    async def _complete(self, ctx: Context, _params: types.CompleteRequestParams) -> Any:
        given = dict(ctx.params or {})
        ref = dict(given["ref"])
        if ref.get("type") == "ref/prompt":
            server, ref["name"] = self._prompt(ref["name"])
        else:
            server, ref["uri"] = await self._owner(ref["uri"])
        fields = {key: given[key] for key in ("argument", "context") if given.get(key) is not None}
        try:
            put_aside(await self._forward.complete({"ref": ref, **fields}, server=server))
        except (DragomanError, TimeoutError) as exc:
            raise _refusal(exc) from exc
        return types.CompleteResult(completion=types.Completion(values=[]))

    async def _owner(self, uri: str) -> tuple[str, str]:
        try:
            return await self.owner(uri)
        except DragomanError as exc:
            raise MCPError(
                code=INVALID_PARAMS, message=f"Resource not found: {exc}", data={"uri": uri}
            ) from exc

    def _prompt(self, name: str) -> tuple[str, str]:
        if self.only is not None:
            return self.only, name
        found = ids.inner_prompt(name)
        if found is None or found[0] not in self._mcp.status():
            raise MCPError(code=INVALID_PARAMS, message=f"Unknown prompt: {name}")
        return found

    def _outer(self, result: Mapping[str, Any], server: str) -> Mapping[str, Any]:
        if result.get("resultType") == "task":
            return self.outer_task(result, server)
        return result if self.only is not None or input_required(result) else ids.outer_result(result, server)

    # ── Requests that servers may interrupt with a question

    def _onward_meta(self, ctx: Context) -> dict[str, Any] | None:
        """Return the `_meta` that goes on: what belongs to the client, not to its connection.

        What the client can be asked goes on too, if it is the client that will be asked.
        """
        kept = {
            key: value
            for key, value in _meta_of(ctx.params or {}).items()
            if key != "progressToken" and (not key.startswith(RESERVED) or key in _PASSED_ON)
        }
        if self._gateway.asks_clients and not is_modern(ctx.protocol_version):
            declared = ctx.session.client_capabilities
            if declared is not None:
                kept[CLIENT_CAPABILITIES_META_KEY] = declared.model_dump(by_alias=True, exclude_none=True)
        return kept or None

    def _onward(self, ctx: Context, inputs: Mapping[str, Any] | None) -> dict[str, Any]:
        meta = self._onward_meta(ctx)
        return {**(inputs or {}), **({"_meta": meta} if meta else {})}

    async def _run(
        self,
        ctx: Context,
        server: str,
        job: Callable[[Mapping[str, Any] | None, ProgressHandler], Awaitable[Mapping[str, Any]]],
    ) -> Mapping[str, Any]:
        """Run a request at a server; questions go to the client in the way that its protocol has."""
        try:
            if not is_modern(ctx.protocol_version):
                exchange = Connected(ctx, self._client(ctx))
                with self._gateway.questions.during(server, exchange):
                    return await job(None, ctx.session.report_progress)
            return await self._run_round(ctx, server, job)
        except (DragomanError, TimeoutError) as exc:
            raise _refusal(exc) from exc

    async def _run_round(
        self,
        ctx: Context,
        server: str,
        job: Callable[[Mapping[str, Any] | None, ProgressHandler], Awaitable[Mapping[str, Any]]],
    ) -> Mapping[str, Any]:
        approved, inputs = approval_of(inputs_of(ctx.params or {}))
        client = principal() or getattr(ctx.session, "_connection", ctx.session)
        request = HeldRequest(ctx, client, approved=approved)
        try:
            answer = await self._round(ctx, server, job, request=request, inputs=inputs)
        except (DragomanError, MCPError):
            if (asked := request.approval_asked()) is None:
                raise
            return asked
        return request.approval_asked() or request.remembered(answer)

    async def _round(
        self,
        ctx: Context,
        server: str,
        job: Callable[[Mapping[str, Any] | None, ProgressHandler], Awaitable[Mapping[str, Any]]],
        *,
        request: HeldRequest,
        inputs: dict[str, Any],
    ) -> Mapping[str, Any]:
        questions, rounds = self._gateway.questions, self._gateway.rounds
        if rounds.is_held(inputs):
            return await rounds.resume(ctx, inputs)
        if await self._forward.forwards_input(server):
            if can_be_asked(ctx) and TASKS in self._forward.extensions(server) and not declares_tasks(ctx):
                # A task is followed here, and its questions come in the middle of the request.
                sent = server_inputs(inputs)
                answer = await rounds.begin(
                    request, lambda held: job(sent, held.report), lambda held: questions.during(server, held)
                )
                return pass_on(ctx, answer) if _is_of_server(answer) else answer
            with questions.during(server, request):
                answer = await job(server_inputs(inputs), request.report)
            return pass_on(ctx, answer) if input_required(answer) else answer
        if not can_be_asked(ctx):
            # Every question is refused at once, so the request never waits here.
            with questions.during(server, request):
                return await job(None, request.report)
        return await rounds.begin(
            request, lambda held: job(None, held.report), lambda held: questions.during(server, held)
        )

    # ── Connections, subscriptions and log messages

    async def _initialized(self, ctx: Context, _params: types.NotificationParams) -> None:
        self._client(ctx)

    def _client(self, ctx: Context) -> Client:
        """Return the record of a connection of the older protocol, which ends with the connection."""
        if isinstance(ctx.session, Exchange):
            return ctx.session.record or Client(cast("Any", ctx.session), self.only)
        connection = connection_of(ctx.session)
        key = id(connection)
        announcer = self._gateway.announcer
        is_new = not announcer.knows(key)
        client = announcer.add(key, ctx.session, self.only)
        if is_new:
            connection.exit_stack.push_async_callback(announcer.remove, key)
            if connection.session_id is not None:
                self.sessions[connection.session_id] = client
                connection.exit_stack.callback(self.sessions.pop, connection.session_id, None)
        return client

    async def _subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        server, uri = await self._owner(params.uri)
        client = self._client(ctx)
        if (server, uri) not in client.subscribed:
            try:
                await self._gateway.announcer.subscribe(server, uri)
            except (DragomanError, TimeoutError) as exc:
                raise _refusal(exc) from exc
            client.subscribed.add((server, uri))
        return types.EmptyResult()

    async def _unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        key = await self._owner(params.uri)
        client = self._client(ctx)
        if key in client.subscribed:
            client.subscribed.discard(key)
            await self._gateway.announcer.unsubscribe(*key)
        return types.EmptyResult()

    async def _listen(
        self, ctx: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        return await self._gateway.announcer.listen(self, ctx, params)

    async def _set_level(self, ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        self._client(ctx).level = params.level
        level = cast("Any", self._gateway.announcer.lowest_level())
        await self._mcp.set_log_level(level, self.only)
        return types.EmptyResult()

    async def _roots_changed(self, _ctx: Context, _params: types.NotificationParams) -> None:
        await self._forward.announce_roots(self.only)

    def _instructions(self) -> str | None:
        said = self._mcp.instructions()
        if self.only is not None:
            return said.get(self.only) or None
        return "\n\n".join(f"# {server}\n{text}" for server, text in sorted(said.items())) or None


class Connected:
    """A request of a client of the older protocol, which can be asked on its connection."""

    def __init__(self, context: Context, record: Client) -> None:
        self._context = context
        self._record = record
        self.client: object = record

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask the client while its request goes on."""
        session = self._context.session
        if not session.can_send_request:
            msg = f"the server asks for {method}, but this connection keeps no session"
            hint = "use the newer protocol, or a gateway of one process"
            raise MCPError(code=SERVER_ERROR, message=f"{msg} ({hint})")
        if lacks(self._context, method):
            raise MCPError(code=types.METHOD_NOT_FOUND, message=f"the client does not support {method}")
        if params.get("mode") == "url" and "elicitationId" not in params:
            # The newer protocol has dropped it; a client of the older one insists on it.
            params = {**params, "elicitationId": secrets.token_hex(8)}
        request = cast("Any", RawRequest(method, params))
        related = ServerMessageMetadata(related_request_id=self._context.request_id)
        return await session.send_request(request, cast("Any", RawAnswer), metadata=related)

    async def approve(self, request: CallRequest) -> bool:
        """Ask the person at the client by a form; a client that cannot be asked has not approved."""
        try:
            return says_yes(await self.ask(ELICIT, approval_form(request)))
        except MCPError as exc:
            logger.info("%s: `%s` is not approved: %s", request.server, request.original_name, exc)
            return False

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification on the connection."""
        await self._record.tell(method, params)

    async def log(self, params: Mapping[str, Any]) -> None:
        """Send a log message, if the connection wants its level."""
        level, wanted = params.get("level"), self._record.level
        if not wanted or (level in LEVELS and LEVELS.index(level) >= LEVELS.index(wanted)):
            message = cast("Any", RawNotification("notifications/message", params))
            await self._context.session.send_notification(
                message, related_request_id=self._context.request_id
            )


# ── Parameters, results and errors


def declares_tasks(ctx: Context) -> bool:
    """Return whether a client follows tasks itself."""
    declared = ctx.session.client_capabilities
    return TASKS in (getattr(declared, "extensions", None) or {})


def _is_of_server(answer: Mapping[str, Any]) -> bool:
    """Return whether a request for input comes from the server, and not from a request that is held here."""
    return input_required(answer) and not is_held_state(answer.get("requestState"))


def _page(
    names: Sequence[str], params: types.PaginatedRequestParams | None
) -> tuple[Sequence[str], dict[str, str]]:
    cursor = params.cursor if params is not None else None
    if cursor is not None:
        try:
            last = base64.urlsafe_b64decode(cursor.encode()).decode()
        except ValueError as exc:
            raise MCPError(code=INVALID_PARAMS, message="Invalid cursor") from exc
        names = [name for name in names if name > last]
    if len(names) <= PAGE:
        return names, {}
    page = names[:PAGE]
    return page, {"nextCursor": base64.urlsafe_b64encode(page[-1].encode()).decode()}


def _meta_of(params: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = params.get("_meta")
    return cast("Mapping[str, Any]", meta) if isinstance(meta, dict) else {}


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
    text = result.text or result.error or ""
    return {"content": [{"type": "text", "text": text}], "isError": not result.success}


def _refusal(exc: DragomanError | TimeoutError) -> MCPError:
    """Return the protocol's error for ours; one of a server is passed on as it is."""
    if isinstance(exc, ProtocolError) and exc.rpc_code is not None:
        cause = exc.__cause__
        message = cause.message if isinstance(cause, MCPError) else exc.message
        return MCPError(code=exc.rpc_code, message=message, data=exc.data)
    if isinstance(exc, UnknownToolError | UnknownServerError):
        return MCPError(code=INVALID_PARAMS, message=str(exc))
    if isinstance(exc, CallDeniedError):
        return MCPError(code=SERVER_ERROR, message=str(exc), data={"code": exc.code})
    if isinstance(exc, ToolExecutionError):
        return MCPError(code=INTERNAL_ERROR, message=str(exc), data={"code": exc.code})
    code = exc.code if isinstance(exc, DragomanError) else "timeout"
    return MCPError(code=SERVER_ERROR, message=str(exc) or "it took too long", data={"code": code})
