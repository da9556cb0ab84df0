"""Workspaces: what clients of one folder, configuration and environment share in the daemon.

A workspace is one manager: the servers, names, rules and approvals that its clients would have alone. The
processes of servers are shared between workspaces (`server/sharing.py`). A configuration that has changed
makes a new workspace; the old one closes when its last client has gone.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import logging
import os
import threading
import time
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dragoman.diagnosis.explain import state_word
from dragoman.model import Handlers, ServerState
from dragoman.server.late_import import late_import_module
from dragoman.struct import Report, Struct, force_setattr

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
    from pathlib import Path

    from dragoman.gateway.gateway import Gateway
    from dragoman.gateway.questions import Questions
    from dragoman.manager.manager import McpManager
    from dragoman.model import CallRequest, Settings
    from dragoman.server.sharing import SharedConnections
    from dragoman.trust.pins import Trust

logger = logging.getLogger("dragoman")

KEEP_SECONDS = 600.0
"""How long a workspace without clients is kept warm."""
REPLACED_SECONDS = 30.0
"""How long a workspace with an outdated configuration is kept: the servers that stay move to the new one."""
_NOISE = frozenset(
    {"_", "PWD", "OLDPWD", "SHLVL", "COLUMNS", "LINES", "TERM", "COLORTERM", "NO_COLOR", "WINDOWID", "TTY"}
    | {"SSH_TTY", "SSH_CONNECTION", "SSH_CLIENT", "TMUX_PANE", "STY", "TERM_SESSION_ID", "XDG_SESSION_ID"}
    | {"WINDOW", "GPG_TTY", "INVOCATION_ID", "JOURNAL_STREAM", "DRAGOMAN_DAEMON"}
)
"""Variables that differ between terminals; clients share a server, so it gets none of them."""

current_handlers: ContextVar[Handlers | None] = ContextVar("current_handlers", default=None)
"""What answers the questions about calls of the current command."""


class ClientPlace(Struct):
    """Where a client is: what decides about its servers."""

    root: str
    env: Mapping[str, str]
    """Without the variables of the client's terminal: what is in it decides who shares a server."""
    profile: str | None = None
    config: str | None = None

    def __post_init__(self) -> None:
        env = {name: value for name, value in self.env.items() if name not in _NOISE}
        force_setattr(self, "env", {**env, "PWD": self.root})

    def key(self) -> str:
        """Return a hash of all of it; the environment is in no other form kept or shown."""
        text = json.dumps([self.root, self.profile, self.config, dict(self.env)], sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class WorkspaceStatus(Report, kw_only=True):
    """What the clients of one folder and configuration share."""

    root: str
    profile: str
    servers: Mapping[str, Mapping[str, Any]]
    """By name: `state`, its `word` for people, `pid` and `tools` of each server that was used."""


class Workspace:
    """One manager and its clients."""

    def __init__(
        self,
        settings: Settings,
        *,
        env: Mapping[str, str],
        trust: Trust,
        shared: SharedConnections,
        questions: Questions,
    ) -> None:
        from dragoman.manager.manager import McpManager

        self.settings = settings
        """The configuration as it was read, without changes."""
        self.questions = questions
        # Servers start when they are needed, and a broken one must not keep the others from their clients.
        servers = [spec.replace(lazy=True, required=False) for spec in settings.servers]
        handlers = questions.handlers(Handlers(approval=self._approve))
        self.mcp: McpManager = McpManager(
            settings.replace(servers=servers, auto_reload=False),
            handlers=handlers,
            default_trust=trust,
            call_log=settings.call_log is not False,
            env=env,
            connections=shared,
            approvals="inbox",
        )
        self.users = 0
        self.last_used = time.monotonic()
        self.is_current = True
        self._has_started = False

    @cached_property
    def gateway(self) -> Gateway:
        """The gateway for clients that speak MCP."""
        from dragoman.gateway.gateway import Gateway

        return Gateway(self.mcp, questions=self.questions, raw=True)

    async def start_all(self) -> None:
        """Start the servers that start by themselves, at the first client that lists all of them."""
        if not self._has_started:
            self._has_started = True
            on = [spec for spec in self.settings.servers if spec.enabled and not spec.lazy]
            await self.mcp.start([spec.name for spec in on] if self.settings.enabled else [])

    async def close(self) -> None:
        """End the manager; a process that another workspace uses goes on."""
        if "gateway" in self.__dict__:
            await self.gateway.close()
        await self.mcp.shutdown()

    async def _approve(self, request: CallRequest) -> bool | None:
        """Ask at the terminal of the command; clients that speak MCP are asked by the gateway."""
        handlers = current_handlers.get()
        if handlers is None or handlers.approval is None:
            return None
        outcome = handlers.approval(request)
        answer = await outcome if inspect.isawaitable(outcome) else outcome
        if answer is None and self.mcp.settings.approvals is None:
            # A script is told at once, as without the daemon.
            return False
        return answer

    def status(self) -> WorkspaceStatus:
        """Return its servers that run or have failed; nothing that could be secret."""
        shown = {
            name: {"state": one.state.value, "word": state_word(one), "pid": one.pid, "tools": one.tools}
            for name, one in self.mcp.status().items()
            if one.state not in (ServerState.IDLE, ServerState.CLOSED)
        }
        return WorkspaceStatus(root=self.settings.root, profile=self.settings.profile, servers=shown)


class Workspaces:
    """All workspaces of a daemon."""

    def __init__(self, load: Callable[[ClientPlace], Settings], shared: SharedConnections) -> None:
        """Use these.

        Args:
            load: Reads the configuration of a place; called in a thread.
            shared: The processes that workspaces share.
        """
        self._load = load
        self._shared = shared
        self._settings: dict[str, tuple[object, Settings]] = {}
        self._loading = threading.Lock()
        self._open: dict[tuple[str, Trust], asyncio.Task[Workspace]] = {}
        self._replaced: list[Workspace] = []

    def settings(self, place: ClientPlace) -> Settings:
        """Return the configuration of a place; files that have changed are read again. For any thread."""
        key = place.key()
        with self._loading:
            known = self._settings.get(key)
            if known is not None and known[0] == stamp(known[1]):
                return known[1]
        found = self._load(place)
        now = stamp(found)
        with self._loading:
            known = self._settings.get(key)
            if known is not None and known[0] == now:
                return known[1]  # loaded at the same time: a workspace lasts as long as its settings
            while len(self._settings) >= 200:
                del self._settings[next(iter(self._settings))]
            self._settings[key] = (now, found)
        return found

    @asynccontextmanager
    async def use(
        self, place: ClientPlace, settings: Settings, trust: Trust = "warn"
    ) -> AsyncGenerator[Workspace]:
        """Use the workspace of a place; it is opened if there is none with this configuration."""
        key = (place.key(), trust)
        task = self._open.get(key)
        if task is not None and (not task.done() or task.exception() is None):
            workspace = await asyncio.shield(task)
        else:
            workspace = None
        if workspace is None or workspace.settings is not settings:
            task = self._open[key] = asyncio.create_task(self._make(workspace, place, settings, trust))
            workspace = await asyncio.shield(task)
        workspace.users += 1
        try:
            yield workspace
        finally:
            workspace.users -= 1
            workspace.last_used = time.monotonic()

    async def _make(
        self, before: Workspace | None, place: ClientPlace, settings: Settings, trust: Trust
    ) -> Workspace:
        module = await late_import_module("dragoman.gateway.questions")
        workspace = Workspace(
            settings, env=place.env, trust=trust, shared=self._shared, questions=module.Questions()
        )
        await workspace.mcp.__aenter__()
        if before is not None:
            before.is_current = False
            self._replaced.append(before)
        return workspace

    async def sweep(self, now: float) -> None:
        """Close workspaces that have had no client for long."""
        for key, task in list(self._open.items()):
            if not task.done():
                continue
            if task.cancelled() or task.exception() is not None:
                del self._open[key]
            elif not (one := task.result()).users and now - one.last_used > KEEP_SECONDS:
                del self._open[key]
                await one.close()
        for one in list(self._replaced):
            if not one.users and now - one.last_used > REPLACED_SECONDS:
                self._replaced.remove(one)
                await one.close()

    def all(self) -> list[Workspace]:
        """Return the open workspaces."""
        ready = (task for task in self._open.values() if task.done() and not task.cancelled())
        return [*(task.result() for task in ready if task.exception() is None), *self._replaced]

    async def close(self) -> None:
        """Close all of them."""
        await asyncio.gather(*self._open.values(), return_exceptions=True)
        found = self.all()
        self._open.clear()
        self._replaced.clear()
        await asyncio.gather(*(one.close() for one in found), return_exceptions=True)


def stamp(settings: Settings) -> object:
    """Return what changes when a file changes that has a say in these settings."""
    from dragoman.storage.files import data_folder

    files: Iterable[str | Path] = [source.path for source in settings.sources]
    folder = data_folder()
    return [_stat(path) for path in (*files, folder / "approvals.json", folder / "hosts.json")]


def _stat(path: str | Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 -- texts and paths
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
