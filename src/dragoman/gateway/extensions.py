"""Tasks and skills: the requests of protocol extensions, passed on to the servers that have them.

A client that declares tasks gets the task that its call becomes, and follows it by the server's own states.
For every other client the gateway follows the task, and answers the call with its result. Skills of all
servers are one list; their files are resources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from dragoman.gateway import ids
from dragoman.server.protocol.envelope import INVALID_PARAMS, MCPError
from dragoman.server.protocol.extensions import SKILLS, TASKS
from dragoman.tools.export.neutral import neutral_texts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from dragoman.gateway.request import ClientRequest
    from dragoman.gateway.view import View
    from dragoman.manager.forward import Forward


class Extensions:
    """The extensions of one view."""

    def __init__(self, view: View, forward: Forward, task_keys: Sequence[bytes]) -> None:
        self._view = view
        self._forward = forward
        self._task_keys = task_keys

    def handlers(self) -> dict[str, Callable[[ClientRequest], Awaitable[Mapping[str, Any]]]]:
        """Return what answers the requests of extensions, by method."""
        return {
            **{f"tasks/{verb}": self._task for verb in ("get", "update", "cancel")},
            "skills/list": self._list_skills,
            "skills/get": self._get_skill,
            "resources/directory/read": self._read_directory,
        }

    def declared(self) -> dict[str, dict[str, Any]]:
        """Return the extensions that at least one connected server has, with their settings."""
        found: dict[str, dict[str, Any]] = {}
        for server in [self._view.only] if self._view.only is not None else self._forward.connected():
            for name, settings in self._forward.extensions(server).items():
                if name in (TASKS, SKILLS):
                    found[name] = {**found.get(name, {}), **settings}
        return found

    def outer_task(self, state: Mapping[str, Any], server: str) -> dict[str, Any]:
        """Return the state of a task with the id and the URIs that clients know."""
        shown = {**state, "taskId": ids.outer_task(server, str(state.get("taskId", "")), self._task_keys[0])}
        result = state.get("result")
        if self._view.only is None and isinstance(result, dict):
            shown["result"] = ids.outer_result(cast("dict[str, Any]", result), server)
        return shown

    # Tasks

    async def _task(self, request: ClientRequest) -> Mapping[str, Any]:
        answers: Any = request.params.get("inputResponses")
        if not isinstance(answers, dict | None):
            raise MCPError(code=INVALID_PARAMS, message="`inputResponses` must be an object")
        server, task = self.task_of(_text(request, "taskId"))
        verb = request.method.partition("/")[2]
        with self._view.refusing():
            state = await self._forward.task(verb, task, server=server, answers=cast("Any", answers))
        return self.outer_task(state, server) if verb == "get" else state

    def task_of(self, task: str) -> tuple[str, str]:
        """Return the server of a task, and the id that the server knows it by.

        Raises:
            MCPError: It is not a task of this client's.
        """
        found = ids.inner_task(task, self._task_keys)
        if found is None or self._view.only not in (None, found[0]) or not self._forward.knows(found[0]):
            raise MCPError(code=INVALID_PARAMS, message="Task not found")
        return found

    # Skills

    async def _list_skills(self, request: ClientRequest) -> Mapping[str, Any]:
        only = self._view.only
        with self._view.refusing():
            listed = await self._forward.skills(only)
        found = {
            str(entry.get("uri")): entry
            for server, entries in listed.items()
            for entry in (self._outer_skill(entry, server) for entry in entries)
        }
        names, following = self._view.page(sorted(found), request)
        return {"skills": [found[name] for name in names], **following}

    async def _get_skill(self, request: ClientRequest) -> Mapping[str, Any]:
        with self._view.refusing():
            server, uri = await self._view.owner(_text(request, "uri"))
            entry = await self._forward.skill(uri, server=server)
        return {"skill": self._outer_skill(entry, server)}

    async def _read_directory(self, request: ClientRequest) -> Mapping[str, Any]:
        with self._view.refusing():
            server, uri = await self._view.owner(_text(request, "uri"))
            entries = await self._forward.directory(uri, server=server)
        return {"resources": [self._outer(entry, server) for entry in entries]}

    def _outer_skill(self, entry: Mapping[str, Any], server: str) -> dict[str, Any]:
        files: object = entry.get("resources")
        if not isinstance(files, list):
            return self._outer(entry, server)
        listed = [
            self._outer(cast("dict[str, Any]", file), server) if isinstance(file, dict) else file
            for file in cast("list[object]", files)
        ]
        return {**self._outer(entry, server), "resources": listed}

    def _outer(self, entry: Mapping[str, Any], server: str) -> dict[str, Any]:
        uri = entry.get("uri")
        shown = neutral_texts(entry)
        if self._view.only is not None or not isinstance(uri, str):
            return shown
        return {**shown, "uri": ids.outer_uri(server, uri)}


def _text(request: ClientRequest, key: str) -> str:
    """Return a parameter that must be a text.

    Raises:
        MCPError: It is not.
    """
    value = request.params.get(key)
    if not isinstance(value, str) or not value:
        raise MCPError(code=INVALID_PARAMS, message=f"`{key}` must be a text")
    return value
