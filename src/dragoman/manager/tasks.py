"""Tasks: what `McpManager.tasks` is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from dragoman.model import Continuation, Task

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dragoman.manager.parts import Parts
    from dragoman.model import ToolResult
    from dragoman.storage.tasks import TaskRecord


class Tasks:
    """Calls that servers go on with after their answer, and calls that wait for the answers of a person."""

    def __init__(self, parts: Parts) -> None:
        """Use the servers and the stored tasks in `parts`."""
        self._parts = parts

    @property
    def keeps_questions(self) -> bool:
        """Whether hosts should call with `on_input="return"`: questions may wait, and no handler answers."""
        return self._parts.keeps_questions

    async def list(self) -> Sequence[Task]:
        """Return the tasks that servers of this manager still work on, also those of earlier programs."""
        from dragoman.call import as_task

        records = await asyncio.to_thread(self._parts.call_context.tasks.all)
        return [as_task(one) for one in records if self._knows(one)]

    async def resume(
        self,
        what: Task | Continuation | str,
        answers: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> ToolResult:
        """Wait for the result of a task, or go on with a call that asked a person; any process can do it.

        Args:
            what: A task or its id, or a continuation.
            answers: For a continuation: the answers by key, as `elicitation/create` is answered:
                `{"action": "accept", "content": {…}}`. If some are missing, the result has the rest of the
                questions, and nothing is sent: a host can ask one question at a time.
            timeout: Seconds, after which a task is cancelled; unlimited by default.

        Raises:
            DragomanError: The manager is not started, the task is unknown, its server is not the one that it
                began with, or the continuation was changed, used already, or answered in a wrong way. Nothing
                is sent then.
        """
        self._parts.check_open()
        from dragoman.manager.resuming import resume_call, resume_task

        context = self._parts.call_context
        if isinstance(what, Continuation):
            return await resume_call(context, what, answers or {})
        return await resume_task(context, what if isinstance(what, str) else what.id, timeout)

    async def cancel(self, task: Task | str) -> None:
        """Ask a server to cancel a task, and forget the task.

        Raises:
            DragomanError: The task is unknown, or its server does not answer.
        """
        self._parts.check_open()
        from dragoman.manager.resuming import find_task
        from dragoman.server.tasks import TaskFollower

        context = self._parts.call_context
        record, supervisor = await find_task(context, task if isinstance(task, str) else task.id)
        await TaskFollower(record, supervisor, context.tasks).cancel()

    def _knows(self, record: TaskRecord) -> bool:
        supervisor = self._parts.supervisors.get(record.server)
        return supervisor is not None and self._parts.server_key(supervisor.spec) == record.server_key
