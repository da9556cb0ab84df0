"""UserGateways: one gateway for each user, over a manager of their own.

Two users share no session, stream, listing, question, task or upstream credential, since each has a whole
gateway over `McpManager.as_user`. The number of users who have one is bounded: a user without requests makes
room for the next, and ends after a while. Who comes back gets a new one.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dragoman.gateway.auth import Refused
from dragoman.gateway.questions import Questions
from dragoman.manager.manager import parts_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from dragoman.gateway.http import Endpoint
    from dragoman.manager.manager import McpManager

    UserSettings = Callable[[str], Mapping[str, Any] | None]


@dataclass(eq=False)
class _Open:
    """A user with a gateway."""

    manager: McpManager
    endpoint: Endpoint
    held: ExitStack
    requests: int = 0
    last_used: float = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether the user can be ended without cutting anything off."""
        return not self.requests and not len(self.endpoint.gateway.held)


class UserGateways:
    """The gateways of all users who had requests a while ago."""

    def __init__(self, program: Endpoint, settings: UserSettings | None) -> None:
        """Have no user yet.

        Args:
            program: The endpoint of the manager whose users these are.
            settings: Given the id of a user, returns the arguments of `McpManager.as_user` for them.
        """
        self._program = program
        self._settings = settings
        self._limits = parts_of(program.gateway.mcp).user_limits
        self._open: dict[str, _Open] = {}
        """By user; the one who was used last comes last."""
        self._closing: dict[str, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def enter(self, user: str) -> AsyncGenerator[Endpoint]:
        """Keep a user while a request is in progress; their gateway is made if there is none.

        Raises:
            Refused: The user is not known, or too many others are busy.
        """
        while (closing := self._closing.get(user)) is not None:
            await asyncio.wait({closing})
        # Asked each time: a user who is not let in any more is out with the next request.
        settings: Mapping[str, Any] | None = self._settings(user) if self._settings is not None else {}
        if settings is None:
            if user in self._open:
                self._end(user)
            raise Refused(403, "unknown user")
        one = self._open.pop(user, None)
        if one is None:
            self._make_room()
            one = self._make(user, settings)
        self._open[user] = one
        one.requests += 1
        try:
            yield one.endpoint
        finally:
            one.requests -= 1
            one.last_used = time.monotonic()

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints of all users who have a gateway."""
        return [one.endpoint for one in self._open.values()]

    async def close(self) -> None:
        """End all of them."""
        if self._timer is not None:
            self._timer.cancel()
        for user in list(self._open):
            self._end(user)
        if self._closing:
            await asyncio.wait(self._closing.values())

    def _make(self, user: str, settings: Mapping[str, Any]) -> _Open:
        given = dict(settings)
        program = self._program.gateway
        questions = Questions() if program.asks_clients else None
        if questions is not None:
            given["handlers"] = questions.handlers(given.get("handlers"))
        manager = program.mcp.as_user(user, **given)
        held = ExitStack()
        # Held for as long as the gateway is there, which has the same bounds as the connections.
        held.enter_context(parts_of(program.mcp).users.connect(user))
        gateway = program.for_user(manager, questions)
        gateway.start()
        self._plan()
        return _Open(manager, self._program.of(gateway), held, last_used=time.monotonic())

    def _make_room(self) -> None:
        if len(self._open) < self._limits.open:
            return
        idle = next((user for user, one in self._open.items() if one.is_idle), None)
        if idle is None:
            raise Refused(503, "too many users")
        self._end(idle)

    def _end(self, user: str) -> None:
        one = self._open.pop(user)
        # At once: counters never fall, not even for a moment.
        self._program.gateway.observer.keep(one.manager)
        task = self._closing[user] = asyncio.create_task(self._close(one), name="dragoman ends a user")
        task.add_done_callback(lambda _: self._closing.pop(user, None))

    async def _close(self, one: _Open) -> None:
        await one.endpoint.gateway.close()
        one.held.close()
        await one.manager.shutdown()

    def _plan(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._limits.idle / 4, self._end_idle)

    def _end_idle(self) -> None:
        self._timer = None
        before = time.monotonic() - self._limits.idle
        for user, one in list(self._open.items()):
            if one.is_idle and one.last_used < before:
                self._end(user)
        if self._open:
            self._plan()
