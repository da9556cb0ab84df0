"""Diagnose one server, stage by stage: what was tried, how long it took, and why it failed.

A diagnosis opens one connection with the code that a supervisor uses, times each stage, and never retries.
It does not start a project's server before the user has approved it, and it ends in bounded time.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import ssl
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from dragoman.config.dialects import dialect, set_command
from dragoman.config.load import approvals, refused
from dragoman.diagnosis.explain import Explanation, explain
from dragoman.diagnosis.hints import TRIED, Facts, hints
from dragoman.errors import AuthRequiredError, ConnectError, DragomanError
from dragoman.model import Settings, Stdio
from dragoman.server.connection_events import ConnectionEvents
from dragoman.server.prepare import prepare
from dragoman.server.process.environment import child_environment, safe_environment, sandbox_hint
from dragoman.server.protocol.deadlines import Deadline
from dragoman.struct import MutableStruct, Struct, field
from dragoman.suggest import suggest
from dragoman.trust.addresses import split_url
from dragoman.trust.gate import Gate
from dragoman.trust.layers import project_servers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dragoman.config.templates import ExpansionContext
    from dragoman.model import Auth, Http, ServerSpec, Sse, Transport
    from dragoman.server.card import ServerCard
    from dragoman.server.connection import Connection
    from dragoman.tools.transforms import Refusal
    from dragoman.trust.redaction import Redactor


class ServerListing(Struct, kw_only=True):
    """The tools and prompts that a server offers."""

    tools: Sequence[Mapping[str, Any]]
    redactor: Redactor
    """Masks the server's secrets."""
    prompts: Sequence[Mapping[str, Any]] | None = None
    """`None` if they were not listed."""
    instructions: str | None = None
    """`None` if they were not requested."""
    version: str = ""
    """The version that the server reports, which may differ from the version of its package."""
    useless: frozenset[str] = frozenset()
    """Tools that cannot be used; they are not cached."""
    source: Literal["server", "cache"] = "server"


CONNECT_SECONDS = 10.0
PAGE_SECONDS = 5.0
PROBE_CLOSE_SECONDS = 0.5


class Reached(MutableStruct):
    """The result of opening a plain connection to an address."""

    detail: str = ""
    """The addresses of the host, or why it cannot be reached."""
    how: str = ""
    """The port, TLS version and proxy that were used."""
    trouble: Literal["", "dns", "refused", "unreachable", "tls", "plain", "proxy"] = ""
    """As `reason` of `ConnectError`."""
    subject: str = ""
    """As `subject` of `ConnectError`."""
    proxy: str = ""
    resolved: float = 0.0
    """Seconds for the DNS lookup."""
    connected: float = 0.0
    """Seconds to connect, including TLS."""


async def reach_address(transport: Http | Sse, name: str, seconds: float) -> Reached:
    """Open a connection to a server, or to its proxy, and close it again.

    Raises:
        ConnectError: The address or the certificates cannot be used at all.
    """
    from dragoman.errors import ConnectError
    from dragoman.server.transports.http_client import endpoint, proxy_for, tls_context

    url = endpoint(transport.url, name)
    reached = Reached()
    try:
        proxy, _ = proxy_for(url, name)
    except ConnectError as error:
        reached.trouble, reached.detail = "proxy", error.message
        return reached
    target = proxy or url
    host, port = target.host or "", target.port or 0
    reached.proxy = f"{proxy.scheme}://{host}:{port}" if proxy else ""
    reached.subject = f"{host}:{port}"
    secure: ssl.SSLContext | None = None
    if target.scheme == "https":
        # Only the server's certificate is checked here; a client certificate is not needed for that.
        secure = (
            await asyncio.to_thread(tls_context, transport.tls, name)
            if transport.tls is not None and proxy is None
            else ssl.create_default_context()
        )
    try:
        async with asyncio.timeout(max(0.1, min(seconds, CONNECT_SECONDS))):
            await _open(reached, host, port, secure)
    except TimeoutError:
        if reached.how:
            reached.trouble = "plain"
            reached.detail = f"`{host}:{port}` accepts connections, but does not speak TLS"
        else:
            reached.trouble, reached.detail = "unreachable", f"`{host}:{port}` did not accept a connection"
    except socket.gaierror as error:
        reached.trouble, reached.subject = "dns", host
        reached.detail = f"unknown host `{host}`: {error.strerror}"
    except ConnectionRefusedError:
        reached.trouble, reached.detail = "refused", f"`{host}:{port}` refused the connection"
    except ssl.SSLCertVerificationError as error:
        reached.trouble, reached.subject = "tls", error.verify_message
        reached.detail = f"the certificate of `{host}` is not accepted: {error.verify_message}"
    except ssl.SSLError as error:
        reached.trouble = "plain"
        reached.detail = (
            f"TLS with `{host}:{port}` failed: {(error.reason or 'no TLS').lower().replace('_', ' ')}"
        )
    except OSError as error:
        reached.trouble = "unreachable"
        reached.detail = f"`{host}:{port}` cannot be reached: {error.strerror or error}"
    return reached


async def _open(reached: Reached, host: str, port: int, secure: ssl.SSLContext | None) -> None:
    began = time.monotonic()
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    reached.resolved = time.monotonic() - began
    addresses = dict.fromkeys(str(entry[4][0]) for entry in found)
    reached.detail = f"{host} is {', '.join(list(addresses)[:2])}"
    began = time.monotonic()
    _, writer = await asyncio.open_connection(host, port)
    try:
        reached.how = f"port {port}"
        if secure is not None:
            await writer.start_tls(secure, server_hostname=host)
            reached.how += f", {writer.get_extra_info('ssl_object').version()}"
        reached.how += f", through the proxy {reached.proxy}" if reached.proxy else ""
        reached.connected = time.monotonic() - began
    finally:
        writer.transport.abort()
        # A transport whose TLS handshake never finished does not report that it is closed.
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(PROBE_CLOSE_SECONDS):
                await writer.wait_closed()


async def kind_of_page(spec: ServerSpec, expansion: ExpansionContext) -> str:
    """Return the content type that a browser would get at a server's address; empty if unknown."""
    import aiohttp

    from dragoman.config.templates import expand_transport
    from dragoman.errors import DragomanError
    from dragoman.model import Stdio
    from dragoman.server.transports.http_client import check_exposed, endpoint, headers_for_proxy, proxy_for

    try:
        transport = expand_transport(spec, expansion)
        if isinstance(transport, Stdio):
            return ""
        url = endpoint(transport.url, spec.name).with_user(None)
        if not transport.allow_http:
            check_exposed(url, {}, spec.name)
        proxy, told = proxy_for(url, spec.name)
    except DragomanError:
        return ""
    timeout = aiohttp.ClientTimeout(total=PAGE_SECONDS)
    headers = {"Accept": "text/html, */*;q=0.1", **headers_for_proxy(url, told)}
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.get(
                url, headers=headers, allow_redirects=False, proxy=proxy, proxy_headers=told
            ) as response,
        ):
            return response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    except (aiohttp.ClientError, OSError, ValueError):
        return ""


TAIL_LINES = 20
PROBE_SECONDS = 5.0
PROMPT_SECONDS = 2.0
"""For listing prompts: some servers never answer that request."""
CLOSE_SECONDS = 15.0
TRY_SECONDS = 5.0
"""For each other address of a server that is not where it should be."""
SLACK = 0.2
GUARD = 30.0
"""Seconds beyond its time limit after which a diagnosis is given up, whatever it waits for."""

STAGES = {
    "config": "configuration",
    "approval": "approval",
    "variables": "variables",
    "command": "command found",
    "address": "host found",
    "start": "started",
    "connect": "connected",
    "handshake": "handshake",
    "listing": "listing",
    "schemas": "schemas",
    "probe": "probe",
}
"""Every stage in its order, with its label. `command` and `start` are for local commands, `address` and
`connect` for URLs, `approval` for servers of a project."""
_NAMES = {"spawn": "start"}
"""Stages of a connection attempt that have another name here."""
_PREFIX = re.compile(r"^cannot connect to server `[^`]*`(?: \([^)]*\))?: ")
_EARLIER = re.compile(r"; before that: cannot connect to server `[^`]{0,300}`( \([^)]{0,300}\))?: ")
_DOUBTFUL = frozenset({"type", "unknown", "conflict", "path", "name"})
"""Codes of notes that may explain why an entry does not work."""


class Stage(MutableStruct):
    """One stage of a diagnosis."""

    name: str
    """A key of `STAGES`."""
    outcome: Literal["ok", "warning", "failed"]
    seconds: float = 0.0
    detail: str = ""

    @property
    def ok(self) -> bool:
        """True unless the stage failed."""
        return self.outcome != "failed"


class Diagnosis(MutableStruct):
    """The result of `diagnose`: the stages of one connection, and why it failed."""

    spec: ServerSpec
    stages: list[Stage] = field(default_factory=list[Stage])
    """In the order in which they ran, each with `name`, `ok`, `seconds` and `detail`; the last one failed
    unless the server is `ok`."""
    error: DragomanError | None = None
    """Why the last stage failed."""
    explanation: Explanation | None = None
    """The cause in one line without secrets, and the next step, as every face shows it; `None` if nothing is
    wrong."""
    hints: list[str] = field(default_factory=list[str])
    """What to do, the likeliest first. A server that works may have hints too."""
    exit_code: int | None = None
    """Of the server's process, if it ended by itself."""
    stderr: str = ""
    """The last lines that the server wrote to standard error; secrets are masked."""
    listing: ServerListing | None = None
    """What the server offers, if it got that far."""
    card: ServerCard | None = None
    """What a server with a URL that failed says about itself, if it has a card; not verified."""

    @property
    def ok(self) -> bool:
        """True if no stage failed."""
        return self.error is None

    @property
    def finding(self) -> str:
        """What is wrong, in one sentence; empty if nothing is."""
        return "" if self.ok else self.stages[-1].detail

    @property
    def hint(self) -> str:
        """The first of `hints`, or an empty text."""
        return self.hints[0] if self.hints else ""


async def diagnose(
    spec: ServerSpec,
    settings: Settings | None = None,
    *,
    timeout: float | None = None,
    stderr_lines: int = TAIL_LINES,
) -> Diagnosis:
    """Connect to a server once, and find out why it does not work.

    The server is started or reached, asked for its tools, and stopped again; nothing is retried. A server
    that comes from a project and is not approved is not started: `finding` says so.

    Args:
        spec: The server.
        settings: The configuration that the server belongs to, for its project, inputs and limits.
        timeout: Seconds for the whole connection; the server's `timeouts.connect` unless given.
        stderr_lines: How many lines of the server's standard error are kept.

    Returns:
        The diagnosis. A failure is not raised: it is in `error`.
    """
    run = _Run(spec, settings or Settings(servers=[spec]), seconds=timeout, keep=stderr_lines)
    return await run.run()


class _Events(ConnectionEvents):
    """The events of a connection that is examined."""

    def __init__(
        self, spec: ServerSpec, gate: Gate, on_stage: Callable[[str], None], ready: asyncio.Future[None]
    ) -> None:
        self._spec = spec
        self._gate = gate
        self._on_stage = on_stage
        self._ready = ready

    async def admit(self, connection: Connection) -> None:  # noqa: ARG002 -- there is only one
        if self._gate.needs_approval(self._spec):
            await asyncio.to_thread(self._gate.admit, self._spec)

    def on_stage(self, stage: str) -> None:
        self._on_stage(stage)

    def on_ready(self, connection: Connection) -> None:  # noqa: ARG002 -- there is only one
        if not self._ready.done():
            self._ready.set_result(None)


class _Run:
    """One run through the stages."""

    def __init__(
        self,
        spec: ServerSpec,
        settings: Settings,
        *,
        seconds: float | None = None,
        keep: int = TAIL_LINES,
    ) -> None:
        limit = spec.connect_timeout if seconds is None else seconds
        self._spec = spec.replace(timeouts={**spec.timeouts, "connect": limit})
        self._settings = settings
        self._until = time.monotonic() + limit
        self.result = Diagnosis(spec)
        self._facts: dict[str, Any] = {}
        self._marks: list[tuple[str, float]] = []
        self._connection: Connection | None = None
        self._transport: Transport | None = None
        self._gate = Gate(
            settings, root=settings.root or str(Path.cwd()), trust_project=False, approvals=approvals
        )
        self._redactor = self._gate.redactor
        self._limits = self._gate.limits_of(spec)
        self._keep = keep
        self._said = ""
        """All captured standard error: the actual error often stands before a long help text."""

    async def run(self) -> Diagnosis:
        """Go through the stages until one fails."""
        result = self.result
        try:
            # Each stage has its own time limit; this one is the last resort.
            async with asyncio.timeout(self._spec.connect_timeout + GUARD):
                await self._go()
        except (DragomanError, TimeoutError) as error:
            if isinstance(error, TimeoutError):
                error = self._error("connect", "the diagnosis did not finish in time")
                result.stages.append(Stage("probe", "failed", GUARD, self._reason(error)))
            result.error = error
            found = explain(error, self._spec)
            result.explanation = found.replace(cause=self._redactor.mask(found.cause))
            if self._connection is not None:
                self._facts["junk"] = self._connection.attempt.junk
            await self._explain(error)
            await self._read_card()
        return result

    async def _go(self) -> None:
        await self._check_config()
        transport, auth = await self._expand()
        self._transport = transport
        if isinstance(transport, Stdio):
            self._find_command(transport)
        else:
            await self._reach(transport)
        await self._connect(transport, auth)

    async def _read_card(self) -> None:
        """Add what a server that cannot be used says about itself; a hint, and never more."""
        transport = self._transport
        if transport is None or isinstance(transport, Stdio) or self._facts.get("network") != "":
            return
        from dragoman.server.card import fetch_card

        card = self.result.card = await fetch_card(transport.url, self._spec.name)
        if card is not None:
            said = "; ".join(one for one in (str(card), card.needs) if one)
            self.result.hints.append(f"Its server card, which is not verified, says: {said}")

    # Stages before the connection

    async def _check_config(self) -> None:
        spec = self._spec
        began = time.monotonic()
        place = spec.origin
        where = f"{place.source}:{place.line}" if place.line else place.source
        notes = [f"{note.key}: {note.message}" if note.key else note.message for note in spec.notes]
        doubtful = any(note.code in _DOUBTFUL for note in spec.notes)
        self._add("config", "warning" if doubtful else "ok", began, "; ".join([where, *notes]))
        if not project_servers(self._settings, [spec]):
            return
        began = time.monotonic()
        unapproved = await asyncio.to_thread(refused, self._settings, [spec])
        if (error := unapproved.get(spec.name)) is not None:
            self._fail("approval", error, began)
        self._add("approval", "ok", began, "approved for this project")

    async def _expand(self) -> tuple[Transport, Auth | None]:
        began = time.monotonic()
        try:
            transport, auth = await prepare(self._spec, self._expansion(), self._gate)
            if isinstance(transport, Stdio):
                self._given(transport)
        except DragomanError as error:
            self._fail("variables", error, began)
        self._add("variables", "ok", began)
        return transport, auth

    def _given(self, stdio: Stdio) -> Mapping[str, str]:
        given = safe_environment(os.environ) | child_environment(stdio, os.environ)
        return {name: value for name, value in given.items() if stdio.env.get(name, "") is not None}

    def _find_command(self, stdio: Stdio) -> None:
        began = time.monotonic()
        path = self._given(stdio).get("PATH")
        if stdio.cwd and not Path(stdio.cwd).is_dir():
            self._facts["folder_missing"] = True
            error = self._error("spawn", "its directory does not exist", kind="folder")
            self._fail("command", error, began)
        found = shutil.which(stdio.command, path=path)
        if found is None and not Path(stdio.cwd or ".", stdio.command).is_file():
            self._facts["near"] = _near(stdio.command, path)
            shown = self._spec.transport.command if isinstance(self._spec.transport, Stdio) else ""
            error = self._error("spawn", f"the program `{shown}` was not found", kind="program")
            self._fail("command", error, began)
        self._add("command", "ok", began, found or stdio.command)

    async def _reach(self, transport: Transport) -> None:
        assert not isinstance(transport, Stdio)  # noqa: S101 -- checked by the caller
        began = time.monotonic()
        reached: Reached = await reach_address(transport, self._spec.name, self._until - began)
        self._facts |= {"network": reached.trouble, "proxy": reached.proxy}
        stage = "address" if reached.trouble in ("dns", "proxy") else "connect"
        if reached.trouble:
            error = self._error("connect", reached.detail, kind=reached.trouble, subject=reached.subject)
            self._fail(stage, error, began)
        self._add("address", "ok", began, reached.detail, seconds=reached.resolved)
        self._add("connect", "ok", began, reached.how, seconds=reached.connected)

    # The connection

    async def _connect(self, transport: Transport, auth: Auth | None) -> None:
        authorizer = None
        if not isinstance(transport, Stdio):
            from dragoman.server.oauth.authorizer import open_authorizer

            authorizer = await open_authorizer(self._spec.name, transport, auth)
        from dragoman.server.connection import Connection

        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        events = _Events(self._spec, self._gate, self._on_stage, ready)
        spec = self._spec.replace(max_message_bytes=self._limits.message_bytes)
        connection = self._connection = Connection(
            spec, transport, events=events, env=os.environ, auth=authorizer, limits=self._limits
        )
        serving = asyncio.ensure_future(connection.serve())
        # The connection's own deadline comes a little earlier, and its error says more.
        left = max(0.1, self._until - time.monotonic()) + 1.0
        try:
            await asyncio.wait({serving, ready}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                await self._not_connected(connection, serving)
            await self._check_tools(connection)
        finally:
            connection.close()
            await asyncio.wait({serving}, timeout=CLOSE_SECONDS)
            serving.cancel()
            if serving.done() and not serving.cancelled():
                serving.exception()
            if authorizer is not None:
                await authorizer.close()
            self._keep_stderr()

    def _on_stage(self, stage: str) -> None:
        self._marks.append((stage, time.monotonic()))

    async def _not_connected(self, connection: Connection, serving: asyncio.Future[None]) -> None:
        """Record the stages that passed, and raise why the connection failed."""
        self._keep_stderr()
        attempt = connection.attempt
        stage = attempt.stage
        try:
            if not serving.done():
                self._facts["timed_out"] = True
                connection.close()
                seconds = f"{self._spec.connect_timeout:g}"
                kind = "stdout" if attempt.junk else "timeout"
                raise self._error(stage, f"no answer within {seconds} s", kind=kind, subject=seconds)
            serving.result()
            raise self._error(stage, "the connection ended")
        except DragomanError as error:
            needs_login = isinstance(error, AuthRequiredError)
            self._facts["http_status"] = 401 if needs_login else attempt.http_status
            self.result.exit_code = getattr(error, "exit_code", None)
            if time.monotonic() >= self._until - SLACK:
                self._facts["timed_out"] = True
            self._add_passed(stage)
            self._fail(self._name(stage), error, None, seconds=self._spent(stage))

    def _name(self, stage: str) -> str:
        if stage == "connect" and not isinstance(self._spec.transport, Stdio):
            # The network path was checked before, so this is a failure of the protocol.
            return "handshake"
        return _NAMES.get(stage, stage)

    def _add_passed(self, last: str | None = None) -> None:
        """Record the stages of the connection that passed, up to the one that failed."""
        for stage in ("spawn", "handshake"):
            if stage == last or (last in ("variables", "spawn", "connect")):
                return
            if stage == "spawn" and not isinstance(self._spec.transport, Stdio):
                continue
            connection = self._connection if stage == "spawn" else None
            detail = f"process {connection.attempt.pid}" if connection else ""
            self.result.stages.append(Stage(self._name(stage), "ok", self._spent(stage), detail))

    def _spent(self, stage: str) -> float:
        """Return the seconds that a stage took, over all attempts."""
        ends = [at for _, at in self._marks[1:]] + [time.monotonic()]
        return sum(end - at for (name, at), end in zip(self._marks, ends, strict=True) if name == stage)

    async def _check_tools(self, connection: Connection) -> None:
        listed = self._spent("listing")
        self._add_passed()
        session = connection.session
        if session is not None:
            who = " ".join(filter(None, map(self._gate.shown, (session.server_name, session.server_version))))
            self.result.stages[-1].detail = ", ".join(
                part for part in (session.protocol_version, who) if part
            )
        if (error := connection.listing_error) is not None:
            self._fail("listing", error, None, seconds=listed)
        count = len(connection.tools)
        self.result.stages.append(Stage("listing", "ok", listed, f"{count} tool{'s' * (count != 1)}"))
        kind = connection.attempt.kind
        if kind != self._spec.kind and "transport" in dialect(self._spec.origin.dialect).writes:
            said = f"The server speaks {kind}. To save an attempt: {set_command(self._spec, transport=kind)}"
            self.result.hints.append(said)
        useless = self._check_schemas(connection)
        if session is None:
            return
        self.result.listing = ServerListing(
            tools=connection.tools,
            prompts=await self._prompts(connection),
            instructions=session.instructions or "",
            version=self._gate.shown(session.server_version) or "",
            useless=useless,
            redactor=self._redactor,
        )
        if not connection.tools and not self.result.listing.prompts:
            self.result.hints.append(
                "The server has no tools and no prompts. Unless it only has resources, check its "
                "documentation for required variables or arguments."
            )
        began = time.monotonic()
        alive = await session.probe(min(PROBE_SECONDS, max(1.0, self._until - began)))
        if not alive:
            self._fail("probe", self._error("probe", "the server does not answer a ping"), began)
        self._add("probe", "ok", began)

    async def _prompts(self, connection: Connection) -> list[dict[str, Any]] | None:
        """List the prompts; a failure here does not fail the diagnosis."""
        limits = self._limits
        try:
            listed, _ = await connection.use(
                lambda session: session.list_all("prompts", limits),
                deadline=Deadline.after(PROMPT_SECONDS),
                what="prompts",
            )
        except (DragomanError, TimeoutError):
            return None
        return listed

    def _check_schemas(self, connection: Connection) -> frozenset[str]:
        from dragoman.tools.definition import admit
        from dragoman.tools.export.apis import APIS, model_api
        from dragoman.tools.registry import ToolRegistry
        from dragoman.tools.transforms import unused_transforms

        began = time.monotonic()
        template = self._spec.naming or self._settings.naming
        refused: list[Refusal] = []
        tools, rejected = admit(
            connection.tools,
            self._spec,
            template=template,
            limits=self._limits,
            on_refused=refused.append,
        )
        wrong = [f"`{one.tool}` is skipped: {one.reason}" for one in rejected]
        wrong += [*map(str, refused), *unused_transforms(self._spec, connection.tools)]
        registry = ToolRegistry()
        registry.register_all(tools)
        for api in (name for name in APIS if model_api(name).is_checked):
            wrong += [
                f"`{name}` is left out for {api}: {why}"
                for name, why in registry.export(api).left_out.items()
            ]
        hidden = len(connection.tools) - len(tools) - len(rejected)
        seen = f"{len(tools)} usable" + (f", {hidden} hidden by its rules" if hidden else "")
        self._add("schemas", "warning" if wrong else "ok", began, "; ".join([seen, *wrong]))
        return frozenset(one.tool for one in rejected)

    # Explanation

    async def _explain(self, error: DragomanError) -> None:
        status = self._facts.get("http_status")
        page = ""
        if status is not None and not isinstance(self._spec.transport, Stdio):
            page = await kind_of_page(self._spec, self._expansion())
            if status in TRIED or page.endswith("/html"):
                self._facts["works"] = await self._try_others()
        facts = Facts(
            spec=self._spec,
            stage=self.result.stages[-1].name,
            stderr=self._said,
            exit_code=self.result.exit_code,
            content_type=page,
            reason=getattr(error, "reason", ""),
            env=os.environ,
            **self._facts,
        )
        self.result.hints += hints(facts)
        if not self.result.hints and error.hint:
            self.result.hints.append(error.hint)

    async def _try_others(self) -> tuple[str, str] | None:
        """Return the first of the usual addresses on the same host at which an MCP server answers."""
        written, given = self._spec.transport, self._transport
        if (
            isinstance(written, Stdio)
            or given is None
            or isinstance(given, Stdio)
            or written.url != given.url
        ):
            return None
        tries = _others(written.url, self._spec.kind)
        found = await asyncio.gather(*(self._answers(given, url, kind) for url, kind in tries))
        return next((one for one, answers in zip(tries, found, strict=True) if answers), None)

    async def _answers(self, transport: Http | Sse, url: str, kind: str) -> bool:
        """Return whether an MCP server answers at an address; one that requires a login does."""
        from dragoman.model import Http, Sse
        from dragoman.server.connection import Connection

        # Its class is the only difference between the two.
        made = (Sse if kind == "sse" else Http)(
            url, headers=transport.headers, tls=transport.tls, allow_http=transport.allow_http
        )
        spec = self._spec.replace(transport=made, timeouts={**self._spec.timeouts, "connect": TRY_SECONDS})
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        events = _Events(self._spec, self._gate, lambda _: None, ready)
        connection = Connection(spec, made, events=events, env=os.environ, limits=self._limits)
        serving = asyncio.ensure_future(connection.serve())
        try:
            await asyncio.wait({serving, ready}, timeout=TRY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            failed = serving.exception() if serving.done() and not serving.cancelled() else None
            return ready.done() or isinstance(failed, AuthRequiredError)
        finally:
            connection.close()
            await asyncio.wait({serving}, timeout=CLOSE_SECONDS)
            serving.cancel()
            if serving.done() and not serving.cancelled():
                serving.exception()

    def _keep_stderr(self) -> None:
        if self._connection is None or self._connection.attempt.stderr is None:
            return
        self._said = self._redactor.mask(self._connection.attempt.stderr.text())
        self.result.stderr = "\n".join(self._said.splitlines()[-self._keep :])
        hint = sandbox_hint(self._spec, self._said)
        if hint and hint not in self.result.hints:
            self.result.hints.append(hint)

    def _expansion(self) -> ExpansionContext:
        from dragoman.config.templates import ExpansionContext

        inputs = self._gate.answers(self._spec, self._settings, {})
        root = self._settings.root or str(Path.cwd())
        return ExpansionContext(env=os.environ, root=root, home=str(Path.home()), inputs=inputs)

    def _error(self, stage: str, text: str, *, kind: str = "", subject: str = "") -> ConnectError:
        msg = f"cannot connect to server `{self._spec.name}`: {text}"
        return ConnectError(msg, server=self._spec.name, stage=stage, reason=kind, subject=subject)

    def _fail(
        self, stage: str, error: DragomanError, began: float | None, *, seconds: float = 0.0
    ) -> NoReturn:
        spent = seconds if began is None else time.monotonic() - began
        self.result.stages.append(Stage(stage, "failed", spent, self._redactor.mask(self._reason(error))))
        raise error

    def _reason(self, error: DragomanError) -> str:
        """Return the reason without the parts that the stage and `stderr` show already."""
        text = _EARLIER.sub(r"; before that\1: ", _PREFIX.sub("", error.message))
        tail = getattr(error, "stderr_tail", "")
        return text.partition("; last stderr lines: ")[0] if tail else text

    def _add(
        self,
        stage: str,
        outcome: Literal["ok", "warning"],
        began: float,
        detail: str = "",
        *,
        seconds: float | None = None,
    ) -> None:
        spent = time.monotonic() - began if seconds is None else seconds
        self.result.stages.append(Stage(stage, outcome, spent, detail))


def _others(url: str, kind: str) -> list[tuple[str, str]]:
    """Return the addresses and transports to try instead: `/mcp` and `/sse` below, beside and on top."""
    parts = split_url(url)
    if parts is None or parts.query or "@" in parts.netloc:
        return []  # what stands there may be a secret, and an advice shows the address
    path = parts.path.rstrip("/")
    folders = dict.fromkeys((path, path.rpartition("/")[0], ""))
    tries = [(url, "sse" if kind == "http" else "http")]
    tries += [
        (parts._replace(path=f"{folder}/{last}").unsplit(), "sse" if last == "sse" else "http")
        for last in ("mcp", "sse")
        for folder in folders
    ]
    return [one for one in dict.fromkeys(tries) if one != (url, kind)]


def _near(command: str, path: str | None) -> list[str]:
    """Return programs with a similar name, on PATH or in the directory of the command."""
    wanted = Path(command)
    names: set[str] = set()
    folders = [str(wanted.parent)] if wanted.name != command else (path or os.defpath).split(os.pathsep)
    for folder in folders:
        try:
            names.update(entry.name for entry in os.scandir(folder or "."))
        except OSError:
            continue
    # Short names are all similar: `cp` is not a suggestion for `mcp`.
    alike = [name for name in sorted(names) if name[:1] == wanted.name[:1]]
    return suggest(wanted.name, alike, count=2, cutoff=0.75)
