"""The protocol extensions that every connection declares: apps, skills and tasks.

A call that becomes a task ends with `TaskCreated`; `server/tasks.py` follows the task.
"""

from __future__ import annotations

import logging
from typing import Any, Literal

import mcp_types as types
from pydantic import ConfigDict, Field

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
