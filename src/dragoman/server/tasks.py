"""Follows a task of a server to its end, over as many connections as it takes.

The server is asked as often as it allows (`pollIntervalMs`), and sooner if it announces a change. Its
questions go to the application's handlers, one after the other; each answer is stored before it is sent, so
that no question is asked twice, even by another process. A caller that is cancelled, or whose time is up,
cancels the task.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dragoman.errors import (
    DragomanError,
    ProtocolError,
    ServerError,
    ServerNotReadyError,
    ToolFailedError,
)
from dragoman.model import ServerState
from dragoman.server.protocol.deadlines import Deadline
from dragoman.storage.tasks import TaskRecord, TaskStore, short_id
from dragoman.trust.sanitizing import for_log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from dragoman.model import ToolDef
    from dragoman.server.protocol.session import Session
    from dragoman.server.supervisor import Supervisor

logger = logging.getLogger("dragoman")

DEFAULT_POLL = 1.0
LEAST_POLL = 0.05
LONGEST_POLL = 3600.0
REQUEST_SECONDS = 30.0
"""How long one question for the state of a task may take."""
MAX_FAILURES = 10
"""How often in a row the server may be unreachable."""
CANCEL_SECONDS = 2.0
MAX_MESSAGE = 500
MAX_QUESTIONS = 100
"""Of one task: a server that never stops asking would keep its user and its record busy for good."""
_GONE = -32602
_ENDED = ("completed", "failed", "cancelled")
_LONGEST_MS = 1e15
"""More than any server means; a larger integer is none that a float can hold."""

T = TypeVar("T")


def new_record(state: Mapping[str, Any], tool: ToolDef, server_key: str) -> TaskRecord:
    """Return the record of a task that a call has just become."""
    task_id = str(state["taskId"])
    record = TaskRecord(
        id=short_id(tool.server, task_id),
        server=tool.server,
        server_key=server_key,
        task_id=task_id,
        tool=tool.name,
        original_name=tool.own_name,
        created=time.time(),
    )
    return _updated(record, state)


async def task_noter(store: TaskStore, tool: ToolDef, server_key: str) -> Callable[[Mapping[str, Any]], None]:
    """Return what writes down the id of a task that a call becomes, at once."""
    if not store.is_open:
        await asyncio.to_thread(store.open)

    def note(state: Mapping[str, Any]) -> None:
        if isinstance(state.get("taskId"), str):
            store.note(new_record(state, tool, server_key))

    return note


class TaskFollower:
    """Follows one task."""

    def __init__(self, record: TaskRecord, supervisor: Supervisor, store: TaskStore) -> None:
        self.record = record
        self._supervisor = supervisor
        self._store = store
        self._news: dict[str, Any] | None = None
        """The newest state that the server has announced; it may announce more than we can use."""
        self._has_news = asyncio.Event()
        self._session: Session | None = None
        self._listening: asyncio.Task[None] | None = None

    async def result(self, *, until: float | None = None, wait_first: bool = False) -> dict[str, Any]:
        """Wait for the end of the task, and return the result of its call.

        Args:
            until: When to cancel the task, on the clock of the loop; never by default.
            wait_first: Whether to wait before the first question, since the server has just spoken.

        Raises:
            TimeoutError: Time ran out; the server was asked to cancel the task.
            ToolFailedError: The task is gone, or was cancelled.
            ProtocolError: The call failed in the server, or its questions cannot be answered here.
            ServerError: The server cannot be reached; the task can be resumed.
        """
        if not self._store.is_open:
            await asyncio.to_thread(self._store.open)
        try:
            async with asyncio.timeout_at(until):
                return await self._follow(wait_first=wait_first)
        except (asyncio.CancelledError, TimeoutError):
            await self._cancel_shielded()
            raise
        finally:
            await self._stop_listening()

    async def cancel(self) -> None:
        """Ask the server to cancel the task, and forget it.

        Raises:
            DragomanError: The server refused, or cannot be reached.
        """
        await self._use(lambda session: session.cancel_task(self.record.task_id))
        await self._write(self._store.forget, self.record.id)

    async def _follow(self, *, wait_first: bool) -> dict[str, Any]:
        state: dict[str, Any] | None = None
        if wait_first:
            if (session := self._supervisor.session) is not None:
                # A short task can end long before the first question.
                self._listen(session)
            state = await self._wait()
        while True:
            if state is None:
                state = await self._get()
            updated = _updated(self.record, state)
            if updated != self.record:
                self.record = updated
                await self._write(self._store.save, updated)
            match self.record.status:
                case "completed":
                    return await self._completed(state)
                case "failed":
                    raise await self._failed(state)
                case "cancelled":
                    await self._write(self._store.finish, self.record, "cancelled")
                    what = "was cancelled by its server"
                    raise self._error(what)
                case "input_required":
                    await self._answer(state.get("inputRequests"))
                case _:
                    pass
            if self._is_overdue():
                await self._write(self._store.forget, self.record.id)
                what = "did not end within its time to live"
                raise self._error(what)
            state = await self._wait()

    async def _completed(self, state: Mapping[str, Any]) -> dict[str, Any]:
        result: object = state.get("result")
        await self._write(self._store.finish, self.record, "completed")
        if not isinstance(result, dict):
            what = "completed without a result"
            raise self._error(what)
        # Loaded already: the task came over a session. In a thread: a result may be large.
        from dragoman.server.protocol.sdk import check_result

        raw = cast("dict[str, Any]", result)
        await asyncio.to_thread(check_result, raw, server=self.record.server, tool=self.record.tool)
        return raw

    async def _failed(self, state: Mapping[str, Any]) -> ProtocolError:
        await self._write(self._store.finish, self.record, "failed")
        error: object = state.get("error")
        fields = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
        code, said = fields.get("code"), fields.get("message") or self.record.message or "no reason given"
        msg = f"the task of `{self.record.tool}` failed: {said}"
        rpc_code = code if isinstance(code, int) else None
        return ProtocolError(
            msg, rpc_code=rpc_code, data=fields.get("data"), tool=self.record.tool, server=self.record.server
        )

    async def _get(self) -> dict[str, Any]:
        try:
            return await self._use(lambda session: session.get_task(self.record.task_id))
        except ProtocolError as exc:
            if exc.rpc_code != _GONE:
                raise
            await self._write(self._store.forget, self.record.id)
            said = f"is gone: {exc.message}"
            raise self._error(said, "call the tool again if it is safe to repeat") from exc

    async def _answer(self, requests: object) -> None:
        """Answer the questions that were not answered yet, in the server's order."""
        asked = cast("dict[str, Any]", requests) if isinstance(requests, dict) else {}
        if len(self.record.answers.keys() | asked.keys()) > MAX_QUESTIONS:
            await self._cancel_shielded()
            what = f"was cancelled: it asked more than {MAX_QUESTIONS} questions"
            raise self._error(what)
        for key, request in asked.items():
            if key in self.record.answers:
                continue

            async def ask(session: Session, key: str = key, request: object = request) -> None:
                answer = await session.answer_question(request)
                # Noted before the event loop can do anything else: the user must not be asked again.
                self.record = self.record.replace(answers={**self.record.answers, key: answer})
                self._store.note(self.record)

            try:
                await self._use(ask, retries=False)
            except ProtocolError as exc:
                why = f"waits for input that cannot be given here: {exc.message}"
                msg = f"the task of `{self.record.tool}` {why}"
                hint = "set a handler for it, and resume the task"
                raise ProtocolError(
                    msg, rpc_code=exc.rpc_code, tool=self.record.tool, server=self.record.server, hint=hint
                ) from exc
            await self._write(self._store.save, self.record)
        unsent = {key: self.record.answers[key] for key in asked if key not in self.record.sent}
        if unsent:
            await self._use(lambda session: session.update_task(self.record.task_id, unsent))
            self.record = self.record.replace(sent=(*self.record.sent, *unsent))
            await self._write(self._store.save, self.record)

    async def _wait(self) -> dict[str, Any] | None:
        """Wait for the server's interval; return the state earlier if the server announces it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.record.poll):
                await self._has_news.wait()
        self._has_news.clear()
        news, self._news = self._news, None
        return news

    def _announce(self, state: dict[str, Any]) -> None:
        """Keep a state until it is used; what ends the task is not replaced."""
        if self._news is None or self._news.get("status") not in _ENDED:
            self._news = state
        self._has_news.set()

    async def _use(self, job: Callable[[Session], Awaitable[T]], *, retries: bool = True) -> T:
        """Run a job on the server's session; wait for a server that is restarting."""
        failures = 0
        while True:
            deadline = Deadline.after(REQUEST_SECONDS)
            try:
                async with self._supervisor.acquire(deadline) as connection:
                    if connection.session is not None:
                        self._listen(connection.session)
                    return await connection.use(job, deadline=deadline, what=self.record.tool)
            except (ServerError, TimeoutError) as exc:
                failures += 1
                over = isinstance(exc, ServerNotReadyError) and exc.state in (
                    ServerState.CLOSED,
                    ServerState.FAILED,
                    ServerState.NEEDS_AUTH,
                )
                if over or not retries or failures >= MAX_FAILURES:
                    msg = f"the task of `{self.record.tool}` goes on, but its server cannot be reached: {exc}"
                    hint = f"resume it later: it is task `{self.record.id}`"
                    raise ServerError(msg, server=self.record.server, hint=hint) from exc
                logger.info("%s: asking again for task %s: %s", self.record.server, self.record.id, exc)
                await asyncio.sleep(max(self.record.poll, DEFAULT_POLL))

    def _listen(self, session: Session) -> None:
        """Have the state of the task announced on this session, once."""
        if session is self._session:
            return
        if self._session is not None:
            self._session.task_watchers.pop(self.record.task_id, None)
        self._session = session
        session.task_watchers[self.record.task_id] = self._announce
        if self._listening is not None:
            self._listening.cancel()
        if session.has_tasks:
            self._listening = asyncio.create_task(self._announced(session), name="dragoman task news")

    async def _announced(self, session: Session) -> None:
        try:
            await session.listen_to_task(self.record.task_id)
        except Exception as exc:  # noqa: BLE001 -- asking goes on whatever becomes of this
            logger.debug("%s: tasks are not announced: %r", self.record.server, exc)

    async def _stop_listening(self) -> None:
        if self._session is not None:
            self._session.task_watchers.pop(self.record.task_id, None)
        if (listening := self._listening) is not None:
            listening.cancel()
            await asyncio.wait({listening})

    async def _cancel_shielded(self) -> None:
        """Cancel the task at the server, even though the caller is cancelled."""
        import anyio

        with anyio.CancelScope(shield=True), anyio.move_on_after(CANCEL_SECONDS), suppress(DragomanError):
            # `notifications/cancelled` is not for tasks: only this request is.
            await self._use(lambda session: session.cancel_task(self.record.task_id), retries=False)
        await self._write(self._store.forget, self.record.id)

    async def _write(self, change: Callable[..., None], *arguments: object) -> None:
        """Change the stored record; a cancelled caller waits too, so that changes stay in their order."""
        writing = asyncio.ensure_future(asyncio.to_thread(change, *arguments))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait({writing})
            raise

    def _is_overdue(self) -> bool:
        ttl = self.record.ttl
        return ttl is not None and time.time() > self.record.created + ttl + self.record.poll

    def _error(self, what: str, hint: str = "") -> ToolFailedError:
        msg = f"the task of `{self.record.tool}` {what}"
        return ToolFailedError(msg, tool=self.record.tool, server=self.record.server, hint=hint)


def _updated(record: TaskRecord, state: Mapping[str, Any]) -> TaskRecord:
    """Return a record with the fields of a state that the server sent."""
    status, message = state.get("status"), state.get("statusMessage")
    ttl, poll = _seconds(state.get("ttlMs")), _seconds(state.get("pollIntervalMs"))
    return record.replace(
        status=status if isinstance(status, str) else record.status,
        message=for_log(message, MAX_MESSAGE) if isinstance(message, str) else record.message,
        ttl=ttl if "ttlMs" in state else record.ttl,
        poll=record.poll if poll is None else min(max(poll, LEAST_POLL), LONGEST_POLL),
    )


def _seconds(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return min(value, _LONGEST_MS) / 1000
    return None
