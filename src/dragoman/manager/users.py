"""Many users in one program: each has a manager of their own over the same servers.

The manager of a user has what belongs to them: sessions, listings, tokens, rules, tasks, metrics. With its
program, which is the manager that made it, it shares the configuration, the call log, and the processes of
servers with `share = true`. `Users` bounds how many users have connections at a time: the one who was
idle for longest makes room, never one with a request, an attempt to connect or a login under way. A user
without connections costs no task, timer, socket or process; the next use connects again.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast
from weakref import WeakValueDictionary

from dragoman.errors import ConnectError, DragomanError, UserLimitError
from dragoman.manager.lifetime import Lifetime
from dragoman.manager.manager import manager_of
from dragoman.manager.parts import Parts
from dragoman.manager.pool import wait_all
from dragoman.manager.reloader import Reloader
from dragoman.manager.user_settings import UserSettings
from dragoman.model import MAX_USER_CHARS, UserStatus
from dragoman.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterable

    from dragoman.manager.manager import McpManager
    from dragoman.manager.user_settings import UserOptions
    from dragoman.model import ReadyReport, Settings

PAUSE = 0.05
"""Seconds that a user stays connected after each request, even if others wait: the next often follows."""


class Users:
    """The users of one program, by id."""

    def __init__(self, program: Parts) -> None:
        """Have no user yet; `program` is what they share."""
        self._program = program
        self._limits = program.user_limits
        self._known: WeakValueDictionary[str, UserLifetime] = WeakValueDictionary()
        """Everyone whose manager is in use, or referred to by the application."""
        self._open: dict[UserLifetime, float] = {}
        """Who may have connections, and when each was last active; the one idle for longest is first."""
        self._closing: dict[UserLifetime, asyncio.Task[None]] = {}
        """Those among them whose connections are being closed."""
        self._waiting: dict[UserLifetime, asyncio.Future[None]] = {}
        """Who waits for room, in this order."""
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._closed = False

    def get(self, user: str, options: UserOptions) -> McpManager:
        """Return the manager of a user; make it if there is none."""
        if not isinstance(cast("object", user), str) or not user or len(user) > MAX_USER_CHARS:
            msg = f"a user's id is a text of 1 to {MAX_USER_CHARS:,} characters"
            raise DragomanError(msg, hint="use what identifies the user in your application")
        known = self._known.get(user)
        if known is None:
            known = self._known[user] = UserLifetime(user, options, self._program, self)
        else:
            known.configure(options)
        return known.manager

    @contextmanager
    def connect(self, user: str) -> Generator[None]:
        """Begin to connect a known user, and keep them connected."""
        known = self._known[user]
        with known.hold():
            known.start_own_servers()
            yield

    def all(self) -> list[UserLifetime]:
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

    async def update(self) -> None:
        """Give everyone the servers that the program has now."""
        await asyncio.gather(*(one.update() for one in self.all()))

    async def enter(self, user: UserLifetime, on_wait: Callable[[DragomanError], None]) -> None:
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

    def touch(self, user: UserLifetime) -> None:
        """Note that a user is active, or has just ended being active."""
        if user in self._open:
            del self._open[user]
            self._open[user] = time.monotonic()
            if self._waiting:
                self._look_soon()

    def _admit(self, user: UserLifetime) -> None:
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

    def _disconnect(self, user: UserLifetime) -> None:
        # The servers change their state here and now, so that a call that comes next waits for a new
        # connection and is not cut off.
        job = user.rest()
        task = asyncio.create_task(self._let_go(user, job), name="dragoman disconnects a user")
        self._closing[user] = task

    async def _let_go(self, user: UserLifetime, job: Coroutine[None, None, None]) -> None:
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

    async def forget(self, user: UserLifetime) -> None:
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
        await wait_all([asyncio.create_task(one.manager.shutdown()) for one in self.all()])


class _Room:
    """The place of one user, for the supervisors of that user."""

    def __init__(self, users: Users, user: UserLifetime) -> None:
        self._users = users
        self._user = user

    async def enter(self, on_wait: Callable[[DragomanError], None]) -> None:
        await self._users.enter(self._user, on_wait)

    def released(self) -> None:
        self._users.touch(self._user)


class UserLifetime(Lifetime):
    """How the manager of a user connects and ends.

    Nothing has to be entered or closed: servers connect when they are needed, and disconnect when the user
    was idle for long. Inside `async with`, the servers that start by themselves are started, and the user
    stays connected. The servers are the program's, so a user cannot add, remove or reload any.
    """

    def __init__(self, user: str, options: UserOptions, program: Parts, siblings: Users) -> None:
        """Make the manager of a user; see `McpManager.as_user`.

        Args:
            user: The id.
            options: What `as_user` was given.
            program: The parts of the program's manager.
            siblings: All users of the program.
        """
        self.user = user
        self._program = program
        self._siblings = siblings
        self._held = 0
        self._own = UserSettings(options, program.given)
        parts = Parts(
            self._settings(),
            program.given.replace(handlers=self._own.handlers(), env=self._own.environment),
            registry=ToolRegistry(),
            # The rest is shared: processes, slots, what is known of failures, one turn of the event loop.
            context=program.context.replace(user=user, gate=program.gate, room=_Room(siblings, self)),
            trust_project=program.trust_project,
            cache=False,
            policy=options.policy,
            call_log=program.call_log or False,
        )
        super().__init__(parts, Reloader(parts))
        parts.registry.register_all([tool for tool in program.registry if tool.source != "mcp"])
        parts.started, parts.loop = True, asyncio.get_running_loop()
        now = time.monotonic()
        for name, supervisor in parts.supervisors.items():
            refused = program.supervisors[name]
            if refused.is_refused and isinstance(refused.error, ConnectError):
                supervisor.refuse(refused.error)
            parts.metrics.watch(name, supervisor.state, now)
        self.manager = manager_of(self)
        """What the application gets."""

    def configure(self, options: UserOptions) -> None:
        """Replace what is given, for the requests from now on."""
        parts = self.parts
        parts.check_open()
        if options.policy is not None:
            parts.gate.set_policy(options.policy)
        self._own.adopt(options)
        if options.auth is not None:
            for spec in self._own.specs(self._servers):
                if spec.name in parts.supervisors and parts.supervisors[spec.name].spec.auth != spec.auth:
                    parts.supervisors[spec.name].adopt(spec)

    def _settings(self) -> Settings:
        """Return the settings of the program, with the servers as this user has them."""
        self._servers = [one.spec for one in self._program.supervisors.values()]
        # The configuration's rules are those of the program's gate, and its files were approved already.
        return self._program.settings.replace(
            root=self._program.root,
            servers=self._own.specs(self._servers),
            policy=(),
            layers=None,
            auto_reload=False,
        )

    async def enter(self) -> None:
        """Stay connected until `leave`."""
        self.parts.check_open()
        self._held += 1
        try:
            await self.start()
        except BaseException:
            self._let_go()
            raise

    async def leave(self) -> None:
        """End what `enter` began."""
        self._let_go()

    @contextmanager
    def hold(self) -> Generator[None]:
        """Keep the user connected."""
        self._held += 1
        try:
            yield
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self._held -= 1
        self._siblings.touch(self)

    async def start(self) -> None:
        """Connect the servers that start by themselves; wait for the required ones."""
        self.parts.check_open()
        self.start_own_servers()
        await self.wait_required()

    def start_own_servers(self) -> None:
        """Begin to connect the servers that start by themselves."""
        for supervisor in self.parts.supervisors.values():
            if self.parts.pool.starts(supervisor.spec):
                self.parts.pool.start_now(supervisor)

    async def wait_ready(self, names: Iterable[str] | None, timeout: float | None) -> ReadyReport:
        """Connect servers; wait until they are ready or have failed."""
        self.parts.check_open()
        if names is None:
            self.start_own_servers()
        else:
            names = list(names)
            for name in names:
                self.parts.pool.start_now(self.parts.open_server(name))
        # Held, so that the user is not disconnected between the first server that is ready and the last.
        with self.hold():
            return await super().wait_ready(names, timeout)

    async def prepare_listing(self, server: str | None) -> None:
        """Connect the servers before a request to all of them."""
        if server is None:
            await self.wait_ready(None, None)

    async def prepare_call(self, name: object, timeout: float | None) -> None:
        """List the servers that were never listed for this user, if a tool is not known."""
        registry = self.parts.registry
        if not isinstance(name, str) or registry.get(name) or registry.find(name):
            return
        servers = self.parts.supervisors.values()
        new = [one for one in servers if one.spec.enabled and not one.was_ready]
        if new:
            for supervisor in new:
                self.parts.pool.start_now(supervisor)
            limit = max(one.spec.call_timeout for one in new) if timeout is None else timeout
            with self.hold():
                await super().wait_ready([one.spec.name for one in new], limit)

    def check_program(self, refusal: str, hint: str = "") -> None:
        """Fail: the servers are the program's."""
        raise DragomanError(refusal, hint=hint)

    async def shutdown(self) -> None:
        """Disconnect the user at once; `as_user` makes a new manager. What is stored stays: logins, tasks."""
        try:
            await super().shutdown()
        finally:
            await self._siblings.forget(self)

    @property
    def is_idle(self) -> bool:
        """Whether the user can be disconnected without cutting anything off."""
        return not self._held and all(one.is_resting for one in self.parts.supervisors.values())

    def begin(self) -> None:
        """Get ready for connections."""
        self.parts.gate.begin()

    def rest(self) -> Coroutine[None, None, None]:
        """Begin to disconnect every server; return what waits for the end."""
        owners = [(one, one.begin_rest()) for one in self.parts.supervisors.values()]

        async def wait() -> None:
            await asyncio.gather(*(one.end_rest(owner) for one, owner in owners))

        return wait()

    def end(self) -> None:
        """Note that there are no connections any more."""
        self.parts.gate.end()
        self.parts.close_tasks()

    async def update(self) -> None:
        """Have the servers that the program has now; connections of unchanged ones stay."""
        settings, pool = self._settings(), self.parts.pool
        specs = {spec.name: spec for spec in settings.servers}
        pool.settings = settings
        self.parts.gate.update(settings)
        for name, supervisor in list(self.parts.supervisors.items()):
            if name not in specs:
                pool.uninstall(supervisor)
                pool.drain_and_stop(supervisor)
        for name, spec in specs.items():
            if name not in self.parts.supervisors or self.parts.supervisors[name].spec != spec:
                pool.install_stopped(spec)
        await pool.wait_drained()
