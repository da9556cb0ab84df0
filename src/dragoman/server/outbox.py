"""What is on its way to one HTTP server: a task for each request, notifications one after the other.

Every request that is put in gets an outcome: whatever its exchange raises becomes an error of ours and ends
that call, and no other. Closing wakes whoever still waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio

from dragoman.errors import ConnectionLostError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    Work: TypeAlias = Callable[[], Awaitable[None]]

    from dragoman.errors import DragomanError
    from dragoman.server.rpc import RequestId, Rpc

logger = logging.getLogger("dragoman")

NOTICE_SECONDS = 10.0
"""How long a notification may keep the next ones waiting, and an answer of ours its place."""
MAX_ANSWERING = 20
"""Answers to the server's requests that are on their way at once: each one has a connection to itself."""
MAX_UNSENT_ANSWERS = 1000
"""Answers that wait for a place; beyond it they are dropped, as on a pipe that is not read."""
PARTING_SECONDS = 2.0
"""How long closing may take for what the server should still be told."""
TEARDOWN_SECONDS = 1.0


class Post:
    """One request on its way."""

    __slots__ = ("sent", "task")

    def __init__(self) -> None:
        self.sent = False
        """Whether any of it may have gone out."""
        self.task: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """Break the exchange off, which closes its connection."""
        if self.task is not None:
            self.task.cancel()


class Outbox:
    """Everything that one wire has under way."""

    def __init__(self, rpc: Rpc, *, name: str, explain: Callable[[Exception, str], DragomanError]) -> None:
        self.closed = False
        self._rpc = rpc
        self._name = name
        self._explain = explain
        self._loop = asyncio.get_running_loop()
        self._posts: dict[RequestId, Post] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._parting: set[asyncio.Task[None]] = set()
        self._notices: deque[Work] = deque()
        self._noticing = False
        self._answers: deque[Work] = deque()
        self._answering = 0
        self._gate: asyncio.Future[None] | None = None

    def post(self, request_id: RequestId, method: str, exchange: Work) -> None:
        """Start the exchange of one request."""
        previous = self._posts.get(request_id)
        if previous is not None:
            previous.cancel()
        post = self._posts[request_id] = Post()
        post.task = self._loop.create_task(self._carry(request_id, method, post, exchange))

    def notify(self, exchange: Work) -> None:
        """Send a notification after the ones before it."""
        self._notices.append(exchange)
        if not self._noticing:
            self._noticing = True
            self.start(self._send_notices())

    def answer(self, exchange: Work) -> None:
        """Answer a request of the server's; a flood of them takes neither all connections nor all memory."""
        if len(self._answers) >= MAX_UNSENT_ANSWERS:
            return
        self._answers.append(exchange)
        if self._answering < MAX_ANSWERING:
            self._answering += 1
            self.start(self._send_answers())

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something beside everything else, until the wire is closed."""
        return self._keep(work, self._tasks)

    def part(self, work: Coroutine[Any, Any, None]) -> None:
        """Tell the server something that closing gives a little time for."""
        self._keep(work, self._parting)

    def take(self, request_id: RequestId) -> Post | None:
        """Remove a request from the list of those that are owed an outcome."""
        return self._posts.pop(request_id, None)

    def hold(self, seconds: float) -> None:
        """Keep requests back until `let_go`, at most so long."""
        self.let_go()
        gate = self._gate = self._loop.create_future()
        timer = self._loop.call_later(seconds, self.let_go)
        gate.add_done_callback(lambda _: timer.cancel())

    def let_go(self) -> None:
        """Let requests out that were kept back."""
        gate, self._gate = self._gate, None
        if gate is not None and not gate.done():
            gate.set_result(None)

    async def settle(self, seconds: float) -> None:
        """Wait for the requests that are under way, at most so long."""
        tasks = {post.task for post in self._posts.values() if post.task is not None}
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    async def close(self, farewell: Work | None = None) -> None:
        """End everything: whoever waits is told, what the server should know is sent, within bounds."""
        if self.closed:
            return
        self.closed = True
        self.let_go()
        posts = {request_id: post for request_id, post in self._posts.items() if post.task is not None}
        for request_id, post in posts.items():
            msg = f"the connection to server `{self._name}` was closed"
            error = ConnectionLostError(msg, server=self._name, may_have_run=post.sent)
            self._rpc.fail(request_id, error)
            post.cancel()
        for task in self._tasks:
            task.cancel()
        self._notices.clear()
        self._answers.clear()
        ended = {post.task for post in posts.values() if post.task is not None} | self._tasks
        try:
            # The scope around us may be cancelled already; what is done here is short.
            with anyio.CancelScope(shield=True):
                await self._part_from_server(farewell)
                if ended:
                    await asyncio.wait(ended, timeout=TEARDOWN_SECONDS)
        finally:
            for task in self._parting:
                task.cancel()

    async def _part_from_server(self, farewell: Work | None) -> None:
        try:
            async with asyncio.timeout(PARTING_SECONDS):
                if self._parting:
                    await asyncio.wait(self._parting)
                if farewell is not None:
                    await farewell()
        except TimeoutError:
            logger.debug("%s: it took too long to say goodbye", self._name)
        except Exception as exc:  # noqa: BLE001 -- nobody waits for it
            logger.debug("%s: %s", self._name, self._explain(exc, "the goodbye"))
        for task in self._parting:
            task.cancel()

    async def _carry(self, request_id: RequestId, method: str, post: Post, exchange: Work) -> None:
        try:
            if self._gate is not None:
                await asyncio.wait({self._gate})
            post.sent = True
            await exchange()
        except Exception as exc:  # noqa: BLE001 -- a request is owed an outcome, whatever happened
            self._rpc.fail(request_id, self._explain(exc, f"`{method}`"))
        finally:
            if self._posts.get(request_id) is post:
                del self._posts[request_id]

    async def _send_notices(self) -> None:
        try:
            while self._notices:
                await self._send(self._notices.popleft(), "a notification")
        finally:
            self._noticing = False

    async def _send_answers(self) -> None:
        try:
            while self._answers:
                await self._send(self._answers.popleft(), "an answer")
        finally:
            self._answering -= 1

    async def _send(self, exchange: Work, what: str) -> None:
        """Send what nobody waits for: whatever happens to it, the next ones still go out."""
        try:
            async with asyncio.timeout(NOTICE_SECONDS):
                await exchange()
        except TimeoutError:
            logger.debug("%s: %s was not taken in time", self._name, what)
        except Exception as exc:  # noqa: BLE001 -- nobody waits for it; the next ones still go out
            logger.debug("%s: %s", self._name, self._explain(exc, what))

    def _keep(self, work: Coroutine[Any, Any, None], kept: set[asyncio.Task[None]]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        kept.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._parting.discard(task)
        exc = None if task.cancelled() else task.exception()
        if isinstance(exc, Exception):
            logger.debug("%s: %s", self._name, self._explain(exc, "a message"))
