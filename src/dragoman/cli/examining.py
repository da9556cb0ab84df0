"""One server, examined stage by stage: what was done, how long it took, where and why it ended.

An examination opens one connection, by the same code as a supervisor does, but takes it apart and never
tries again. It starts nothing that comes from a project and is not approved. It ends in bounded time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from dragoman.cli.exits import Exit, code_of
from dragoman.cli.hints import Facts, hints
from dragoman.cli.known import of_project, refused
from dragoman.cli.offered import Offered
from dragoman.cli.reaching import Reached, kind_of_page
from dragoman.cli.reaching import reach as reach_address
from dragoman.errors import AuthRequiredError, ConnectError, DragomanError
from dragoman.guard import Guard
from dragoman.model import Stdio
from dragoman.server.process import child_environment, safe_environment
from dragoman.server.reach import reach
from dragoman.server.trail import Trail
from dragoman.suggesting import suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from dragoman.config.expand import Surroundings
    from dragoman.model import Auth, ServerSpec, Settings, Transport
    from dragoman.server.connection import Connection

TAIL_LINES = 20
PROBE_SECONDS = 5.0
PROMPT_SECONDS = 2.0
"""For a listing of prompts, which some servers never answer."""
CLOSE_SECONDS = 15.0
SLACK = 0.2
GUARD = 30.0
"""Seconds beyond its limit after which an examination is given up, whatever holds it."""

_NAMES = {"spawn": "start"}
"""Stages of a trail that are called otherwise for people."""
_PREFIX = re.compile(r"^cannot connect to server `[^`]*`(?: \([^)]*\))?: ")
_EARLIER = re.compile(r"; before that: cannot connect to server `[^`]{0,300}`( \([^)]{0,300}\))?: ")
_DOUBTFUL = frozenset({"type", "unknown", "conflict", "path", "name"})
"""Notes on an entry that may be the reason why it does not work."""
_APIS = ("openai", "anthropic", "gemini")


@dataclass(slots=True)
class Stage:
    """One step, and how it went."""

    name: str
    outcome: Literal["ok", "warning", "failed", "skipped"]
    seconds: float = 0.0
    detail: str = ""


@dataclass(slots=True)
class Examination:
    """What was found out about one server."""

    spec: ServerSpec
    stages: list[Stage] = field(default_factory=list[Stage])
    cause: DragomanError | None = None
    exit_code: int | None = None
    stderr: str = ""
    hints: list[str] = field(default_factory=list[str])
    offered: Offered | None = None
    """What it offers, if it came that far."""

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return self.cause is None

    @property
    def code(self) -> Exit:
        """What it means for the exit code."""
        return Exit.DONE if self.cause is None else code_of(self.cause)


class _NotedTrail(Trail):
    """A trail that tells when a stage begins."""

    def __init__(self, kind: str, on_stage: Callable[[str], None]) -> None:
        object.__setattr__(self, "_on_stage", on_stage)
        super().__init__(kind=kind)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "stage":
            object.__getattribute__(self, "_on_stage")(value)


class Examiner:
    """Examines one server."""

    def __init__(
        self,
        spec: ServerSpec,
        settings: Settings,
        *,
        seconds: float | None = None,
        keep: int = TAIL_LINES,
    ) -> None:
        """Prepare an examination.

        Args:
            spec: The server.
            settings: What the configuration says.
            seconds: For the whole connection; the server's own `timeouts.connect` unless given.
            keep: How many lines of its standard error are kept.
        """
        limit = spec.connect_timeout if seconds is None else seconds
        self._spec = replace(spec, timeouts={**spec.timeouts, "connect": limit})
        self._settings = settings
        self._until = time.monotonic() + limit
        self.result = Examination(spec)
        self._facts: dict[str, Any] = {}
        self._marks: list[tuple[str, float]] = []
        self._trail: Trail | None = None
        self._guard = Guard(settings, root=settings.root or str(Path.cwd()), trust_project=False)
        self._redactor = self._guard.redactor
        self._limits = self._guard.limits_of(spec)
        self._keep = keep
        self._said = ""
        """All that is known of its standard error: what is wrong often stands before a long help text."""

    async def run(self, junk: Callable[[], int] = lambda: 0) -> Examination:
        """Go through the stages until one fails.

        Args:
            junk: Tells how many lines on the server's standard output were no messages.
        """
        result = self.result
        try:
            async with asyncio.timeout(self._spec.connect_timeout + GUARD):
                await self._go()
        except (DragomanError, TimeoutError) as error:
            if isinstance(error, TimeoutError):
                error = self._error("connect", "the examination did not come to an end")
                result.stages.append(Stage("probe", "failed", GUARD, self._reason(error)))
            result.cause = error
            self._facts["junk"] = junk()
            await self._explain(error)
        return result

    async def _go(self) -> None:
        await self._look_at_config()
        transport, auth = await self._expand()
        if isinstance(transport, Stdio):
            self._find_command(transport)
        else:
            await self._reach(transport)
        await self._connect(transport, auth)

    # The stages before there is a connection

    async def _look_at_config(self) -> None:
        spec = self._spec
        began = time.monotonic()
        place = spec.origin
        where = f"{place.source}:{place.line}" if place.line else place.source
        notes = [f"{note.key}: {note.message}" if note.key else note.message for note in spec.notes]
        doubtful = any(note.code in _DOUBTFUL for note in spec.notes)
        self._add("config", "warning" if doubtful else "ok", began, "; ".join([where, *notes]))
        if not of_project(self._settings, [spec]):
            return
        began = time.monotonic()
        unapproved = await asyncio.to_thread(refused, self._settings, [spec])
        if (error := unapproved.get(spec.name)) is not None:
            self._fail("approval", error, began)
        self._add("approval", "ok", began, "approved for this project")

    async def _expand(self) -> tuple[Transport, Auth | None]:
        began = time.monotonic()
        try:
            transport, auth = await reach(self._spec, self._surroundings(), self._guard)
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
            error = self._error("start", "its directory does not exist")
            self._fail("command", error, began)
        found = shutil.which(stdio.command, path=path)
        if found is None and not Path(stdio.cwd or ".", stdio.command).is_file():
            self._facts["near"] = _near(stdio.command, path)
            shown = self._spec.transport.command if isinstance(self._spec.transport, Stdio) else ""
            self._fail("command", self._error("start", f"there is no program `{shown}`"), began)
        self._add("command", "ok", began, found or stdio.command)

    async def _reach(self, transport: Transport) -> None:
        assert not isinstance(transport, Stdio)  # noqa: S101 -- the caller has looked
        began = time.monotonic()
        reached: Reached = await reach_address(transport, self._spec.name, self._until - began)
        self._facts |= {"network": reached.trouble, "proxy": reached.proxy}
        stage = "address" if reached.trouble in ("no-host", "proxy") else "connect"
        if reached.trouble:
            self._fail(stage, self._error("connect", reached.detail), began)
        self._add("address", "ok", began, reached.detail, seconds=reached.resolved)
        self._add("connect", "ok", began, reached.how, seconds=reached.connected)

    # The connection

    async def _connect(self, transport: Transport, auth: Auth | None) -> None:
        authorizer = None
        if not isinstance(transport, Stdio):
            from dragoman.server.logins import open_authorizer

            authorizer = await open_authorizer(self._spec.name, transport, auth)
        connection = self._watched(transport, authorizer)
        if self._guard.binds(self._spec):
            connection.admit = lambda: asyncio.to_thread(self._guard.admit, self._spec)
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connection.on_ready = lambda: None if ready.done() else ready.set_result(None)
        serving = asyncio.ensure_future(connection.serve())
        # Its own deadline ends a connection a little earlier, with better words.
        left = max(0.1, self._until - time.monotonic()) + 1.0
        try:
            await asyncio.wait({serving, ready}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                await self._not_connected(connection, serving)
            await self._look_at_tools(connection)
        finally:
            connection.close()
            await asyncio.wait({serving}, timeout=CLOSE_SECONDS)
            serving.cancel()
            if serving.done() and not serving.cancelled():
                serving.exception()
            if authorizer is not None:
                await authorizer.close()
            self._keep_stderr()

    def _watched(self, transport: Transport, authorizer: Any) -> Connection:
        from dragoman.server.connection import Connection

        examiner = self

        class Watched(Connection):
            """A connection whose trail is noted."""

            def __setattr__(self, name: str, value: Any) -> None:
                if name == "trail":
                    value = examiner._trail = _NotedTrail(value.kind, examiner._on_stage)
                super().__setattr__(name, value)

        spec = replace(self._spec, max_message_bytes=self._limits.message_bytes)
        return Watched(spec, transport, env=os.environ, auth=authorizer, limits=self._limits)

    def _on_stage(self, stage: str) -> None:
        self._marks.append((stage, time.monotonic()))

    async def _not_connected(self, connection: Connection, serving: asyncio.Future[None]) -> None:
        """Say how far it came, and raise why it came no further."""
        self._keep_stderr()
        trail = self._trail
        stage = trail.stage if trail else "connect"
        try:
            if not serving.done():
                self._facts["timed_out"] = True
                connection.close()
                raise self._error(stage, f"no answer within {self._spec.connect_timeout:g} s")
            serving.result()
            raise self._error(stage, "the connection ended")
        except DragomanError as error:
            if trail is not None:
                needs_login = isinstance(error, AuthRequiredError)
                self._facts["http_status"] = 401 if needs_login else trail.http_status
                self.result.exit_code = getattr(error, "exit_code", None)
            if time.monotonic() >= self._until - SLACK:
                self._facts["timed_out"] = True
            self._add_passed(stage)
            self._fail(self._name(stage), error, None, seconds=self._spent(stage))

    def _name(self, stage: str) -> str:
        if stage == "connect" and not isinstance(self._spec.transport, Stdio):
            # The way was tried before: what fails now is what is said on it.
            return "handshake"
        return _NAMES.get(stage, stage)

    def _add_passed(self, last: str | None = None) -> None:
        """Write down the stages of the connection that went well, up to one that did not."""
        for stage in ("spawn", "handshake"):
            if stage == last or (last in ("variables", "spawn", "connect")):
                return
            if stage == "spawn" and not isinstance(self._spec.transport, Stdio):
                continue
            detail = f"process {self._trail.pid}" if stage == "spawn" and self._trail else ""
            self.result.stages.append(Stage(self._name(stage), "ok", self._spent(stage), detail))

    def _spent(self, stage: str) -> float:
        """Return how long a stage took, all attempts together."""
        ends = [at for _, at in self._marks[1:]] + [time.monotonic()]
        return sum(end - at for (name, at), end in zip(self._marks, ends, strict=True) if name == stage)

    async def _look_at_tools(self, connection: Connection) -> None:
        listed = self._spent("listing")
        self._add_passed()
        session = connection.session
        if session is not None:
            who = " ".join(
                filter(None, map(self._guard.shown, (session.server_name, session.server_version)))
            )
            self.result.stages[-1].detail = ", ".join(
                part for part in (session.protocol_version, who) if part
            )
        if (error := connection.listing_error) is not None:
            self._fail("listing", error, None, seconds=listed)
        count = len(connection.tools)
        self.result.stages.append(Stage("listing", "ok", listed, f"{count} tool{'s' * (count != 1)}"))
        kind = connection.trail.kind
        if kind != self._spec.kind:
            self.result.hints.append(f'it speaks {kind}: write `"transport": "{kind}"`, which saves a try')
        useless = self._check_schemas(connection)
        if session is None:
            return
        self.result.offered = Offered(
            tools=connection.tools,
            prompts=await self._prompts(connection),
            instructions=session.instructions or "",
            version=self._guard.shown(session.server_version) or "",
            useless=useless,
            redactor=self._redactor,
        )
        if not connection.tools and not self.result.offered.prompts:
            self.result.hints.append(
                "it has no tools and no prompts: unless it is for resources only, it may want variables or "
                "arguments, which its documentation names"
            )
        began = time.monotonic()
        alive = await session.probe(min(PROBE_SECONDS, max(1.0, self._until - began)))
        if not alive:
            self._fail("probe", self._error("probe", "it does not answer a probe"), began)
        self._add("probe", "ok", began)

    async def _prompts(self, connection: Connection) -> list[dict[str, Any]] | None:
        """List the prompts, which are no reason to fail."""
        limits = self._limits
        try:
            listed, _ = await connection.use(
                lambda session: session.list_all("prompts", limits), PROMPT_SECONDS, what="prompts"
            )
        except (DragomanError, TimeoutError):
            return None
        return listed

    def _check_schemas(self, connection: Connection) -> frozenset[str]:
        from dragoman.tools.listing import admit
        from dragoman.tools.registry import ToolRegistry

        began = time.monotonic()
        template = self._spec.naming or self._settings.naming
        tools, rejected = admit(connection.tools, self._spec, template=template, limits=self._limits)
        wrong = [f"`{one.tool}` is skipped: {one.reason}" for one in rejected]
        registry = ToolRegistry()
        registry.register_all(tools)
        for api in _APIS:
            wrong += [
                f"`{name}` is left out for {api}: {why}"
                for name, why in registry.export(api).left_out.items()
            ]
        hidden = len(connection.tools) - len(tools) - len(rejected)
        seen = f"{len(tools)} usable" + (f", {hidden} hidden by its rules" if hidden else "")
        self._add("schemas", "warning" if wrong else "ok", began, "; ".join([seen, *wrong]))
        return frozenset(one.tool for one in rejected)

    # What is said about it

    async def _explain(self, error: DragomanError) -> None:
        status = self._facts.get("http_status")
        page = ""
        if status is not None and not isinstance(self._spec.transport, Stdio):
            page = await kind_of_page(self._spec, self._surroundings())
        facts = Facts(
            spec=self._spec,
            stage=self.result.stages[-1].name,
            stderr=self._said,
            exit_code=self.result.exit_code,
            content_type=page,
            env=os.environ,
            **self._facts,
        )
        self.result.hints += hints(facts)
        if not self.result.hints and error.hint:
            self.result.hints.append(error.hint)

    def _keep_stderr(self) -> None:
        if self._trail is None or self._trail.stderr is None:
            return
        self._said = self._redactor.mask(self._trail.stderr.text())
        self.result.stderr = "\n".join(self._said.splitlines()[-self._keep :])

    def _surroundings(self) -> Surroundings:
        from dragoman.config.expand import Surroundings

        inputs = self._guard.answers(self._spec, self._settings, {})
        root = self._settings.root or str(Path.cwd())
        return Surroundings(env=os.environ, root=root, home=str(Path.home()), inputs=inputs)

    def _error(self, stage: str, reason: str) -> ConnectError:
        msg = f"cannot connect to server `{self._spec.name}`: {reason}"
        return ConnectError(msg, server=self._spec.name, stage=stage)

    def _fail(
        self, stage: str, error: DragomanError, began: float | None, *, seconds: float = 0.0
    ) -> NoReturn:
        spent = seconds if began is None else time.monotonic() - began
        self.result.stages.append(Stage(stage, "failed", spent, self._redactor.mask(self._reason(error))))
        raise error

    def _reason(self, error: DragomanError) -> str:
        """Return why, without what the stage and the last words say already."""
        text = _EARLIER.sub(r"; before that\1: ", _PREFIX.sub("", error.message))
        tail = getattr(error, "stderr_tail", "")
        return text.partition("; its last words: ")[0] if tail else text

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


def _near(command: str, path: str | None) -> list[str]:
    """Return programs that are called nearly so, on PATH or in the directory that the command names."""
    wanted = Path(command)
    names: set[str] = set()
    folders = [str(wanted.parent)] if wanted.name != command else (path or os.defpath).split(os.pathsep)
    for folder in folders:
        try:
            names.update(entry.name for entry in os.scandir(folder or "."))
        except OSError:
            continue
    # Of short names nearly all are alike: `mcp` is not meant to be `cp`.
    alike = [name for name in sorted(names) if name[:1] == wanted.name[:1]]
    return suggest(wanted.name, alike, count=2, cutoff=0.75)


class _JunkCount(logging.Handler):
    """Counts the lines that servers write to standard output and that are no messages."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.counts: dict[str, int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Take a log record in."""
        if isinstance(record.args, tuple) and record.args and "unusable message" in str(record.msg):
            name = str(record.args[0])
            self.counts[name] = self.counts.get(name, 0) + 1


@contextmanager
def counting_junk() -> Generator[Mapping[str, int]]:
    """Count such lines, by server, while nothing of what is logged reaches the screen."""
    logger = logging.getLogger("dragoman")
    handler = _JunkCount()
    before = (logger.propagate, logger.disabled)
    logger.propagate, logger.disabled = False, False
    logger.addHandler(handler)
    try:
        yield handler.counts
    finally:
        logger.removeHandler(handler)
        logger.propagate, logger.disabled = before
