"""Forward: requests of other clients, passed on to the servers and answered with what the servers sent.

The rules are those of every other road: calls go through `dragoman.call`, resources and prompts through the
policy and the pins. Only the rendering for models is left out.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dragoman.call import Forwarded, run
from dragoman.errors import DragomanError
from dragoman.server.protocol.deadlines import Deadline
from dragoman.tools.definition import DEFAULT_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dragoman.call import CallContext
    from dragoman.manager.resources import Resources
    from dragoman.model import ProgressHandler, ToolDef, ToolResult
    from dragoman.server.in_progress import Caller
    from dragoman.server.protocol.session import Kind, Session
    from dragoman.server.supervisor import Supervisor
    from dragoman.storage.results import ResultStore
    from dragoman.tools.result.budget import TextBudget


logger = logging.getLogger("dragoman")

PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds before a stream of announcements that has ended is opened again."""


class Forward:
    """Raw access to the servers of one manager, under its rules."""

    def __init__(
        self,
        supervisors: Mapping[str, Supervisor],
        resources: Resources,
        context: CallContext,
        check: Callable[[], None],
    ) -> None:
        """Use these servers.

        Args:
            supervisors: The servers in use, by name; may change at any time.
            resources: Reads resources and prompts, and checks that they may be read.
            context: The tools and the rules of calls.
            check: Called before each request; raises after the manager has closed.
        """
        self._supervisors = supervisors
        self._resources = resources
        self._context = context
        self._check = check
        self._listings: dict[str, tuple[object, dict[str, dict[str, Any]]]] = {}
        """By server: the listing, and its entries by name."""

    def for_model(self, *, budget: TextBudget, spill: ResultStore) -> Forward:
        """Return the same for clients that hand answers to a model.

        Args:
            budget: How long a text of a result may be.
            spill: Keeps what is longer.
        """
        context = self._context.replace(for_model=True, budget=budget, spill=spill)
        return Forward(self._supervisors, self._resources, context, self._check)

    def tool(self, tool: ToolDef) -> dict[str, Any]:
        """Return a tool's definition as its server sent it, with the changes of the configuration.

        If the server is not connected, it is the definition as far as it was kept.
        """
        supervisor = self._supervisors.get(tool.server)
        listing = supervisor.listing if supervisor is not None else ()
        known = self._listings.get(tool.server)
        if known is None or known[0] is not listing:
            entries = {str(entry.get("name")): entry for entry in listing}
            known = self._listings[tool.server] = (listing, entries)
        entry = known[1].get(tool.original_name)
        if entry is None:
            entry = definition_of(tool)
        elif tool.transform is not None:
            # The rest of it, such as `_meta`, stays as the server sent it.
            rest = {key: value for key, value in entry.items() if key != "title"}
            entry = {**rest, **definition_of(tool)}
        return entry if entry.get("inputSchema") else {**entry, "inputSchema": dict(DEFAULT_SCHEMA)}

    async def forwards_input(self, server: str) -> bool:
        """Return whether a server's requests for input come as its answers, not as requests of its own.

        Connects a server that is not connected yet; one that cannot be connected counts as not.
        """
        supervisor = self._supervisors.get(server)
        if supervisor is None:
            return False
        if supervisor.session is None:
            with suppress(DragomanError, TimeoutError):
                async with supervisor.acquire(Deadline.after(supervisor.spec.connect_timeout)):
                    pass
        return supervisor.session is not None and supervisor.session.forwards_input

    def sole_caller(self, server: str) -> Caller | None:
        """Return the request that a question of a server belongs to; `None` for the application's own.

        Raises:
            SeveralClientsError: Requests of several clients are, or may be, in progress there.
        """
        supervisor = self._supervisors.get(server)
        return None if supervisor is None else supervisor.in_progress.sole()

    def knows(self, server: str) -> bool:
        """Return whether a server is in use."""
        return server in self._supervisors

    def extensions(self, server: str) -> dict[str, dict[str, Any]]:
        """Return the protocol extensions that a connected server declares, with their settings."""
        supervisor = self._supervisors.get(server)
        return {} if supervisor is None or supervisor.session is None else supervisor.session.extensions

    def connected(self) -> list[str]:
        """Return the connected servers, by name."""
        return sorted(self._resources.connected())

    async def owner(self, uri: str) -> str:
        """Return the only server that can have a resource.

        Raises:
            DragomanError: No connected server lists it, or several may have it.
        """
        return await self._resources.owner(uri)

    async def announce_roots(self, server: str | None = None) -> None:
        """Tell the connected servers, or one, that a client's roots have changed."""
        for name in self._resources.connected(server):
            try:
                await self._resources.ask(name, lambda session: session.tell_roots_changed(), "roots")
            except DragomanError as exc:
                logger.info("%s: could not announce that roots have changed: %s", name, exc)

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        inputs: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | None = None,
        on_progress: ProgressHandler | None = None,
        takes_tasks: bool = False,
        renders: bool = False,
    ) -> ToolResult:
        """Call a tool by its exposed name; `raw` of the result is the server's answer, if it gave one.

        Args:
            name: The exposed name.
            arguments: The tool's arguments.
            inputs: `inputResponses` and `requestState` of the client's request, empty in the first round. The
                answer may then be a request for input. `None`: the manager's handlers answer questions.
            meta: The `_meta` of the client's request, without what belongs to the client's own connection.
            on_progress: Called with progress, total and message.
            takes_tasks: Whether the answer may be a task; if not, the task is followed to its end.
            renders: Whether sources and notes are added to the answer as blocks of their own, where the
                library adds them to the text.
        """
        self._check()
        return await run(
            self._context,
            name,
            arguments,
            on_progress=on_progress,
            forwarded=Forwarded(inputs=inputs, meta=meta, takes_tasks=takes_tasks, renders=renders),
        )

    async def task(
        self, verb: str, task: str, *, server: str, answers: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Ask for the state of a task (`get`), answer its questions (`update`), or `cancel` it."""
        self._check()

        async def ask(session: Session) -> dict[str, Any]:
            if verb == "get":
                return await session.get_task(task)
            if verb == "update":
                await session.update_task(task, answers or {})
            else:
                await session.cancel_task(task)
            return {}

        return await self._resources.ask(server, ask, f"tasks/{verb}")

    async def follow_task(
        self, task: str, *, server: str, on_state: Callable[[dict[str, Any]], None]
    ) -> None:
        """Call a function with the states of a task that its server announces, until cancelled.

        A connection that is lost is replaced. A server that does not announce states is not asked again.
        """

        async def current(session: Session) -> Session:
            return session

        pause, asked = PAUSE, None
        while (supervisor := self._supervisors.get(server)) is not None:
            try:
                session = await self._resources.ask(server, current, "tasks")
                if session is asked or not session.has_tasks:
                    return  # It has refused, or cannot be asked.
                session.task_watchers[task] = on_state
                try:
                    await session.listen_to_task(task)
                finally:
                    if session.task_watchers.get(task) is on_state:
                        del session.task_watchers[task]
            except Exception as exc:  # noqa: BLE001 -- an announcement that is missed is not worth an error
                logger.debug("%s: the states of a task are not announced: %r", server, exc)
                asked = supervisor.session
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def skills(self, server: str | None = None) -> dict[str, list[dict[str, Any]]]:
        """Return the entries of skills as the servers list them, of one server or of all connected ones."""
        self._check()
        found: dict[str, list[dict[str, Any]]] = {}
        for name in [server] if server is not None else self._resources.skill_servers():
            limits = self._supervisors[name].limits
            try:
                found[name] = await self._resources.ask(
                    name, lambda session, limits=limits: session.list_skills(limits), "skills"
                )
            except DragomanError as exc:
                if server is not None:
                    raise
                logger.warning("%s: could not list its skills: %s", name, exc)
        return found

    async def skill(self, uri: str, *, server: str) -> dict[str, Any]:
        """Return the entry of one skill as its server gives it."""
        self._check()
        return await self._resources.ask(server, lambda session: session.get_skill(uri), uri)

    async def directory(self, uri: str, *, server: str) -> list[dict[str, Any]]:
        """Return the direct children of a directory of resources."""
        self._check()
        await self._resources.permit(uri, server)
        limits = self._supervisors[server].limits
        return await self._resources.ask(server, lambda session: session.read_directory(uri, limits), uri)

    async def entries(self, kind: Kind, server: str) -> Sequence[dict[str, Any]]:
        """List what a server offers, without what is withheld."""
        self._check()
        return await self._resources.entries(kind, server)

    async def read(self, params: Mapping[str, Any], *, server: str, asks: bool) -> dict[str, Any]:
        """Read a resource: `uri`, and what belongs to the rounds of the request.

        Args:
            params: The parameters of the request.
            server: Its server.
            asks: Whether the manager's handlers answer questions; if not, the result may be one.
        """
        self._check()
        uri = str(params["uri"])
        await self._resources.permit(uri, server)
        return await self._resources.ask(
            server, lambda session: session.forward("resources/read", params, asks=asks), uri
        )

    async def prompt(self, params: Mapping[str, Any], *, server: str, asks: bool) -> dict[str, Any]:
        """Get a prompt: `name`, `arguments`, and what belongs to its rounds; `asks` as for `read`."""
        self._check()
        name = str(params["name"])
        fields = await self._resources.permit_prompt(name, params.get("arguments"), server=server)
        sent = {**params, "arguments": fields} if fields or "arguments" in params else params
        return await self._resources.ask(
            server, lambda session: session.forward("prompts/get", sent, asks=asks), name
        )

    async def complete(self, params: Mapping[str, Any], *, server: str) -> dict[str, Any]:
        """Complete an argument: `ref`, `argument` and `context`."""
        self._check()
        ref, argument = params["ref"], params["argument"]
        await self._resources.permit_completion(ref, argument["name"], argument["value"], server=server)
        return await self._resources.ask(
            server, lambda session: session.forward("completion/complete", params), str(argument["name"])
        )


def definition_of(tool: ToolDef) -> dict[str, Any]:
    """Return a tool's definition in the form of the protocol, under its name among those of its server."""
    found = {
        "name": tool.own_name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": dict(tool.annotations),
    }
    return {key: value for key, value in found.items() if value}
