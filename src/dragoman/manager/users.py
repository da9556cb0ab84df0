"""Many users in one program: each has a manager of their own over the same servers.

A `UserManager` has what belongs to one user: sessions, listings, tokens, rules, tasks, metrics. With its
program, which is the manager that made it, it shares the configuration, the call log, and the processes of
servers with `share = true`. `Users` bounds how many users have connections at a time: the one who was
idle for longest makes room, never one with a request, an attempt to connect or a login under way. A user
without connections costs no task, timer, socket or process; the next use connects again.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast
from weakref import WeakValueDictionary

from dragoman.errors import ConnectError, DragomanError, UserLimitError
from dragoman.manager.manager import McpManager
from dragoman.manager.pool import wait_all
from dragoman.model import MAX_USER_CHARS, Auth, Handlers, Stdio, UserStatus
from dragoman.struct import Struct, field_names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
    from types import TracebackType

    from dragoman.call import CallContext
    from dragoman.events import ConfigReloaded
    from dragoman.manager.subscriptions import ChangeHandler
    from dragoman.model import (
        CallRequest,
        Handler,
        HeaderProvider,
        Part,
        Prompt,
        ReadyReport,
        Resource,
        ServerSpec,
        Settings,
        ToolDef,
        UserLimits,
    )
    from dragoman.server.sharing import SharedConnections
    from dragoman.server.supervisor import Room
    from dragoman.trust.gate import Gate
    from dragoman.trust.pins import Trust
    from dragoman.trust.policy import Policy

PAUSE = 0.05
"""Seconds that a user stays connected after each request, even if others wait: the next often follows."""


class UserOptions(Struct, kw_only=True):
    """What `as_user` was given; what it was not given stays as it was."""

    headers: Mapping[str, str] | HeaderProvider | None = None
    auth: str | Auth | Mapping[str, str | Auth] | None = None
    policy: Policy | Mapping[str, Any] | list[Any] | None = None
    handlers: Handlers | None = None
    env: Mapping[str, str] | None = None


class OfUser(Struct, kw_only=True):
    """What the manager of a user gets from the program's."""

    settings: Settings
    root: str
    trust_project: bool
    refused: Mapping[str, DragomanError | None]
    """The servers that are not approved, and why."""
    builtins: Sequence[ToolDef]
    gate: Gate
    slots: asyncio.Semaphore
    connections: SharedConnections | None
    context: CallContext
    make_func: Callable[..., Callable[..., Any]]
    handlers: Handlers | None
    inputs: Mapping[str, str] | None
    default_trust: Trust
    env: Mapping[str, str] | None
    room: Room | None = None


class Users:
    """The users of one program, by id."""

    def __init__(self, share: Callable[[], OfUser], limits: UserLimits) -> None:
        """Have no user yet.

        Args:
            share: Returns what a user shares with the program, as it is now.
            limits: How many may have connections, and for how long without use.
        """
        self._share = share
        self._limits = limits
        self._known: WeakValueDictionary[str, UserManager] = WeakValueDictionary()
        """Everyone whose manager is in use, or referred to by the application."""
        self._open: dict[UserManager, float] = {}
        """Who may have connections, and when each was last active; the one idle for longest is first."""
        self._closing: dict[UserManager, asyncio.Task[None]] = {}
        """Those among them whose connections are being closed."""
        self._waiting: dict[UserManager, asyncio.Future[None]] = {}
        """Who waits for room, in this order."""
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._closed = False

    def get(self, user: str, options: UserOptions) -> UserManager:
        """Return the manager of a user; make it if there is none."""
        if not isinstance(cast("object", user), str) or not user or len(user) > MAX_USER_CHARS:
            msg = f"a user's id is a text of 1 to {MAX_USER_CHARS:,} characters"
            raise DragomanError(msg, hint="use what identifies the user in your application")
        known = self._known.get(user)
        if known is None:
            known = self._known[user] = UserManager(user, options, self._share, self)
        else:
            known.configure(options)
        return known

    def all(self) -> list[UserManager]:
        """Return everyone who is known."""
        return list(self._known.values())

    def status(self) -> dict[str, UserStatus]:
        """Return who is known, by id."""
        now = time.monotonic()
        return {
            one.user: UserStatus(
                user=one.user,
                is_open=one in self._open,
                is_waiting=one in self._waiting,
                idle=max(0.0, now - self._open[one]) if one in self._open else None,
            )
            for one in self.all()
        }

    # ── Room

    async def enter(self, user: UserManager, on_wait: Callable[[DragomanError], None]) -> None:
        """Wait until a user may have connections."""
        while user not in self._open or user in self._closing:
            if user not in self._waiting and len(self._open) < self._limits.open:
                self._admit(user)
                return
            waiting = self._waiting.get(user)
            if waiting is None:
                waiting = self._waiting[user] = asyncio.get_running_loop().create_future()
            msg = f"{len(self._open):,} users are connected, which is the limit, and all of them are busy"
            on_wait(UserLimitError(msg, hint="try again, or raise `UserLimits.open` of the manager"))
            self._make_room()
            await asyncio.wait({waiting})
        self.touch(user)

    def touch(self, user: UserManager) -> None:
        """Note that a user is active, or has just ended being active."""
        if user in self._open:
            del self._open[user]
            self._open[user] = time.monotonic()
            if self._waiting:
                self._look_soon()

    def _admit(self, user: UserManager) -> None:
        self._open[user] = time.monotonic()
        user.begin()
        self._plan()

    def _missing(self) -> int:
        """Return how many users have to be disconnected for those who wait."""
        return len(self._waiting) - len(self._closing) - max(0, self._limits.open - len(self._open))

    def _make_room(self) -> None:
        """Disconnect as many idle users as are needed, first the one who was idle for longest."""
        wanted = self._missing()
        before = time.monotonic() - PAUSE
        for user, last in list(self._open.items()) if wanted > 0 else ():
            if wanted <= 0:
                return
            if last > before:
                self._look_soon()  # From here on, all were active a moment ago.
                return
            if user not in self._closing and user.is_idle:
                self._disconnect(user)
                wanted -= 1

    def _look_soon(self) -> None:
        """Make room after a pause."""
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(PAUSE, self._look)

    def _look(self) -> None:
        self._looking = None
        self._make_room()

    def _disconnect(self, user: UserManager) -> None:
        # The servers change their state here and now, so that a call that comes next waits for a new
        # connection and is not cut off.
        job = user.rest()
        task = asyncio.create_task(self._let_go(user, job), name="dragoman disconnects a user")
        self._closing[user] = task

    async def _let_go(self, user: UserManager, job: Coroutine[Any, Any, None]) -> None:
        try:
            await job
        finally:
            del self._closing[user]
            del self._open[user]
            user.end()
            self._admit_next()

    def _admit_next(self) -> None:
        while self._waiting and len(self._open) < self._limits.open:
            user = next(iter(self._waiting))
            waiting = self._waiting.pop(user)
            self._admit(user)
            waiting.set_result(None)

    def _plan(self) -> None:
        """Look again when the user who is idle for longest may have to be disconnected."""
        if self._timer is None and self._open and not self._closed:
            first = next(iter(self._open.values()))
            delay = max(first + self._limits.idle - time.monotonic(), self._limits.idle / 10, 0.05)
            self._timer = asyncio.get_running_loop().call_later(delay, self._end_idle)

    def _end_idle(self) -> None:
        self._timer = None
        now = time.monotonic()
        for user, last in list(self._open.items()):
            if now - last >= self._limits.idle and user not in self._closing and user.is_idle:
                self._disconnect(user)
        self._make_room()
        self._plan()

    # ── The end

    async def forget(self, user: UserManager) -> None:
        """Remove a user whose manager is closed."""
        if self._known.get(user.user) is user:
            del self._known[user.user]
        if user in self._closing:
            await wait_all([self._closing[user]])
        if user in self._open:
            del self._open[user]
            user.end()
        if (waiting := self._waiting.pop(user, None)) is not None:
            waiting.set_result(None)
        self._admit_next()

    async def close(self) -> None:
        """Close everyone, even when cancelled."""
        self._closed = True
        for timer in (self._timer, self._looking):
            if timer is not None:
                timer.cancel()
        await wait_all([asyncio.create_task(one.shutdown()) for one in self.all()])


class _Room:
    """The place of one user, for the supervisors of that user."""

    def __init__(self, users: Users, user: UserManager) -> None:
        self._users = users
        self._user = user

    async def enter(self, on_wait: Callable[[DragomanError], None]) -> None:
        await self._users.enter(self._user, on_wait)

    def released(self) -> None:
        self._users.touch(self._user)


class UserManager(McpManager):
    """The servers of a manager as one user sees them; `McpManager.as_user` makes it.

    It has the API of a manager, except that it cannot add, remove or reload servers. Nothing has to be
    entered or closed: servers connect when they are needed, and disconnect when the user was idle for long.
    Inside `async with`, the servers that start by themselves are started, and the user stays connected.
    """

    def __init__(self, user: str, options: UserOptions, share: Callable[[], OfUser], siblings: Users) -> None:
        """Make the manager of a user; see `McpManager.as_user`.

        Args:
            user: The id.
            options: What `as_user` was given.
            share: Returns what the program shares with a user, as it is now.
            siblings: All users of the program.
        """
        self.user = user
        self._share = share
        self._siblings = siblings
        self._held = 0
        self._room = _Room(siblings, self)
        program = self._of_user = self._shared = share().replace(room=self._room)
        self._options = UserOptions()
        self._own_handlers = options.handlers or program.handlers or Handlers()
        self._program_headers = program.handlers.headers if program.handlers else None
        self._environment = dict(os.environ if program.env is None else program.env)
        self._adopt(options)
        super().__init__(
            program.settings.replace(root=program.root, servers=self._specs(program)),
            inputs=program.inputs,
            trust_project=program.trust_project,
            cache=False,
            handlers=self._late_handlers(),
            policy=options.policy,
            call_log=program.context.log or False,
            default_trust=program.default_trust,
            env=self._environment,
            connections=program.connections,
        )
        self.registry.register_all(program.builtins)
        self._started = True
        now = time.monotonic()
        for name, supervisor in self._supervisors.items():
            if isinstance(error := program.refused.get(name), ConnectError):
                supervisor.refuse(error)
            self._metrics.watch(name, supervisor.state, now)

    def __repr__(self) -> str:
        return f"UserManager({self.user!r})"

    def configure(self, options: UserOptions) -> None:
        """Replace what is given, for the requests from now on."""
        self._check_open()
        if options.policy is not None:
            self._gate.set_policy(options.policy)
        self._adopt(options)
        if options.auth is not None:
            for spec in self._specs(self._shared):
                if spec.name in self._supervisors and self._supervisors[spec.name].spec.auth != spec.auth:
                    self._supervisors[spec.name].adopt(spec)

    def _adopt(self, options: UserOptions) -> None:
        given = {
            name: value for name in field_names(options) if (value := getattr(options, name)) is not None
        }
        self._options = self._options.replace(**given)
        self._own_handlers = options.handlers or self._own_handlers
        self._environment.update(options.env or {})

    def _specs(self, program: OfUser) -> list[ServerSpec]:
        """Return the servers with the login settings of this user.

        None is lazy: a user has no cached listings, so the tools of a server are known once it is connected.
        """
        specs: list[ServerSpec] = []
        for spec in program.settings.servers:
            auth = self._auth(spec.name)
            is_given = isinstance(auth, Auth) and not isinstance(spec.transport, Stdio)
            specs.append(spec.replace(lazy=False, auth=auth if is_given else spec.auth))
        return specs

    def _auth(self, server: str) -> str | Auth | None:
        auth = self._options.auth
        return auth if auth is None or isinstance(auth, str | Auth) else auth.get(server)

    # ── Use

    async def __aenter__(self) -> Self:
        self._check_open()
        self._held += 1
        try:
            self.start_own_servers()
            await self._wait_required()
        except BaseException:
            self._let_go()
            raise
        return self

    @contextmanager
    def hold(self) -> Generator[None]:
        """Keep the user connected."""
        self._held += 1
        try:
            yield
        finally:
            self._let_go()

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._let_go()

    def _let_go(self) -> None:
        self._held -= 1
        self._siblings.touch(self)

    def start_own_servers(self) -> None:
        """Begin to connect the servers that start by themselves."""
        for supervisor in self._supervisors.values():
            if self._pool.starts(supervisor.spec):
                self._pool.start_now(supervisor)

    async def wait_ready(
        self, names: Iterable[str] | None = None, timeout: float | None = None
    ) -> ReadyReport:
        """Connect servers; wait until they are ready or have failed. The report is true if all are ready.

        Args:
            names: The servers to wait for; by default all that start by themselves.
            timeout: Seconds; a server that is still connecting then counts as not ready.

        Raises:
            UnknownServerError: No server has this name.
        """
        self._check_open()
        if names is None:
            self.start_own_servers()
        else:
            names = list(names)
            self.start_servers(names)
        # Held, so that the user is not disconnected between the first server that is ready and the last.
        with self.hold():
            return await super().wait_ready(names, timeout)

    async def resources(self, server: str | None = None) -> list[Resource]:
        """List resources, then templates, by server and URI; connect the servers first."""
        await self._connect_for(server)
        return await super().resources(server)

    async def read(self, uri: str, server: str | None = None) -> list[Part]:
        """Read a resource; as for `McpManager`."""
        await self._connect_for(server)
        return await super().read(uri, server)

    async def prompts(self, server: str | None = None) -> list[Prompt]:
        """List prompts, by server and name; connect the servers first."""
        await self._connect_for(server)
        return await super().prompts(server)

    async def subscribe(
        self, uri: str, server: str | None = None, *, on_change: ChangeHandler | None = None
    ) -> None:
        """Publish changes of a resource as `ResourceChanged` events; as for `McpManager`.

        Changes are noticed while the user is connected: subscribe inside `async with`.
        """
        await self._connect_for(server)
        await super().subscribe(uri, server, on_change=on_change)

    async def _connect_for(self, server: str | None) -> None:
        if server is None:
            await self.wait_ready()

    async def _prepare_call(self, name: object, timeout: float | None) -> None:
        """List the servers that were never listed for this user, if a tool is not known."""
        if not isinstance(name, str) or self.registry.get(name) or self.registry.find(name):
            return
        new = [one for one in self._supervisors.values() if one.spec.enabled and not one.was_ready]
        if new:
            for supervisor in new:
                self._pool.start_now(supervisor)
            limit = max(one.spec.call_timeout for one in new) if timeout is None else timeout
            with self.hold():
                await super().wait_ready([one.spec.name for one in new], limit)

    # ── What the program shares

    @property
    def is_idle(self) -> bool:
        """Whether the user can be disconnected without cutting anything off."""
        return not self._held and all(one.is_resting for one in self._supervisors.values())

    def begin(self) -> None:
        """Get ready for connections."""
        self._gate.begin()

    def rest(self) -> Coroutine[Any, Any, None]:
        """Begin to disconnect every server; return what waits for the end."""
        owners = [(one, one.begin_rest()) for one in self._supervisors.values()]

        async def wait() -> None:
            await asyncio.gather(*(one.end_rest(owner) for one, owner in owners))

        return wait()

    def end(self) -> None:
        """Note that there are no connections any more."""
        self._gate.end()
        self._close_tasks()

    async def follow(self) -> None:
        """Have the servers that the program has now; connections of unchanged ones stay."""
        program = self._of_user = self._shared = self._share().replace(room=self._room)
        specs = {spec.name: spec for spec in self._specs(program)}
        self._pool.settings = program.settings.replace(servers=list(specs.values()))
        self._gate.update(self._pool.settings)
        for name, supervisor in list(self._supervisors.items()):
            if name not in specs:
                self._pool.uninstall(supervisor)
                self._pool.drain_and_stop(supervisor)
        for name, spec in specs.items():
            if name not in self._supervisors or self._supervisors[name].spec != spec:
                self._pool.install_stopped(spec)
        await self._pool.wait_drained()

    async def shutdown(self) -> None:
        """Disconnect the user at once; `as_user` makes a new manager. What is stored stays: logins, tasks."""
        try:
            await super().shutdown()
        finally:
            await self._siblings.forget(self)

    def as_user(self, user: str, **_: Any) -> NoReturn:
        """Fail: a user has no users."""
        msg = f"`{self.user}` is a user: call `as_user({user!r})` of the manager"
        raise DragomanError(msg)

    async def add(self, spec: ServerSpec) -> None:
        """Fail: the servers are the program's."""
        self._refuse_change(f"add `{spec.name}`")

    async def remove(self, name: str) -> None:
        """Fail: the servers are the program's."""
        self._refuse_change(f"remove `{name}`")

    async def enable(self, name: str) -> None:
        """Fail: the servers are the program's."""
        self._refuse_change(f"enable `{name}`")

    async def disable(self, name: str) -> None:
        """Fail: the servers are the program's."""
        self._refuse_change(f"disable `{name}`")

    async def reload(self, settings: object = None) -> ConfigReloaded:  # noqa: ARG002 -- as for all
        """Fail: the servers are the program's."""
        self._refuse_change("reload")

    def _refuse_change(self, what: str) -> NoReturn:
        msg = f"cannot {what} for one user: all users have the manager's servers"
        raise DragomanError(msg, hint="change the manager; its users follow")

    def _check_open(self) -> None:
        if self._closed:
            msg = f"the manager of user `{self.user}` is closed"
            raise DragomanError(msg, hint="call `as_user` again")

    # ── Headers and handlers: looked up at each request, since `as_user` may replace them

    def _headers(self, server: str) -> Mapping[str, str] | Awaitable[Mapping[str, str]]:
        own = self._options.headers
        auth = self._auth(server)
        token = {"authorization": f"Bearer {auth}"} if isinstance(auth, str) else {}
        sources = [
            self._program_headers(server) if self._program_headers else {},
            token,
            own(server) if callable(own) else own or {},
        ]
        if any(inspect.isawaitable(one) for one in sources):
            return _merged_later(sources)
        return _merged(cast("list[Mapping[str, str]]", sources))

    def _late_handlers(self) -> Handlers:
        now = self._own_handlers

        def late(kind: str) -> Handler | None:
            async def ask(server: str, params: dict[str, Any]) -> Any:
                handler: Handler = getattr(self._own_handlers, kind)
                outcome = handler(server, params)
                return await outcome if inspect.isawaitable(outcome) else outcome

            return None if getattr(now, kind) is None else ask

        async def approve(request: CallRequest) -> bool:
            handler = self._own_handlers.approval
            if handler is None:
                return False
            if inspect.iscoroutinefunction(handler):
                return await handler(request)
            answer = await asyncio.to_thread(handler, request)
            return await answer if inspect.isawaitable(answer) else answer

        return now.replace(
            **{kind: late(kind) for kind in _ASKED},
            headers=self._headers,
            approval=None if now.approval is None else approve,
        )


_ASKED = ("sampling", "elicitation", "elicitation_complete", "list_roots", "logging", "login")


def _merged(sources: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return all headers; of two spellings of one name, the later source wins."""
    found: dict[str, tuple[str, str]] = {}
    for source in sources:
        for name, value in source.items():
            found[name.lower()] = (name, value)
    return dict(found.values())


async def _merged_later(sources: Sequence[Any]) -> dict[str, str]:
    return _merged([await one if inspect.isawaitable(one) else one for one in sources])
