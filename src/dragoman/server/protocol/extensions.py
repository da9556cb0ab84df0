"""The protocol extensions that every connection declares: apps, skills and tasks.

A call that becomes a task ends with `TaskCreated`, which the SDK's session accepts because the extension
claims it. `server/tasks.py` follows the task.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import mcp_types as types
from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

logger = logging.getLogger("dragoman")

APPS = "io.modelcontextprotocol/ui"
APP_TYPES = ("text/html;profile=mcp-app",)
SKILLS = "io.modelcontextprotocol/skills"
TASKS = "io.modelcontextprotocol/tasks"


class TaskCreated(types.Result):
    """The answer to a call that the server goes on with as a task."""

    model_config = ConfigDict(extra="allow")

    result_type: Literal["task"] = Field(default="task", alias="resultType")
    task_id: str = Field(alias="taskId", min_length=1)


class TaskNews(BaseModel):
    """A `notifications/tasks`: the whole state of one task."""

    model_config = ConfigDict(extra="allow")

    task_id: str = Field(alias="taskId")


class RawRequest(dict[str, Any]):
    """The parameters of a request that also act as a request model: the session only calls `model_dump`."""

    name_param: ClassVar[str | None] = None
    """The parameter that is copied into the header `Mcp-Name`, besides those of the SDK's own requests."""

    def __init__(self, method: str, params: Mapping[str, Any]) -> None:
        super().__init__(params)
        self.method = method

    def model_dump(self, **_: object) -> dict[str, Any]:
        """Return the request as the session sends it."""
        return {"method": self.method, "params": self}


class TaskRequest(RawRequest):
    """A request about one task."""

    name_param = "taskId"


def declared_extensions() -> dict[str, Any]:
    """Return the arguments of the SDK's session for the extensions of one connection."""
    try:
        from mcp.client.extension import ResultClaim
    except ImportError as exc:
        logger.warning("this release of mcp has no client extensions: no tasks, apps and skills (%s)", exc)
        return {}

    async def refuse(created: Any, _context: Any) -> Any:
        # The session hands `TaskCreated` to us, so the SDK never resolves one.
        raise RuntimeError(created.task_id)

    return {
        "extensions": {APPS: {"mimeTypes": list(APP_TYPES)}, SKILLS: {}, TASKS: {}},
        "result_claims": {TASKS: [ResultClaim(result_type="task", model=TaskCreated, resolve=refuse)]},
    }


def task_binding(on_task: Callable[[dict[str, Any]], None]) -> Any:
    """Return the binding that calls `on_task` with the states of tasks, over the SDK's own transports."""
    from mcp.client.extension import NotificationBinding

    async def take(news: TaskNews) -> None:
        on_task(news.model_dump(by_alias=True, mode="json"))

    return NotificationBinding(method="notifications/tasks", params_type=TaskNews, handler=take)
