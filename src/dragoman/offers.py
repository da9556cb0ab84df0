"""What servers offer beside tools: resources, prompts, completion, instructions; of one server or of all.

Listing asks every server that is connected, side by side; one that fails is logged and left out, as with
tools. Reading goes to the server that is named, or to the only one that can have the resource. Prompts and
instructions that are not as they were pinned are withheld where the server's `trust` is `strict`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dragoman.errors import CallDeniedError, DragomanError, ServerError, UnknownServerError
from dragoman.model import Part, Prompt, Resource, ServerState
from dragoman.tools.content import to_part
from dragoman.trust.patterns import UnmatchableError, plain_uri
from dragoman.trust.policy import copied
from dragoman.trust.sanitize import for_model
from dragoman.wishes import Wishes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from dragoman.events import Event
    from dragoman.guard import Guard
    from dragoman.server.connection import Connection
    from dragoman.server.session import Kind, Session
    from dragoman.server.supervisor import Supervisor
    from dragoman.wishes import ChangeHandler, LogLevel

logger = logging.getLogger("dragoman")

T = TypeVar("T")

MANY = 1_000
"""Resources that are looked through at once."""
_EXPRESSION = re.compile(r"\{[^{}]*\}")


class Offers:
    """The other offers of a set of servers."""

    def __init__(self, guard: Guard, publish: Callable[[Event], None]) -> None:
        self._supervisors: dict[str, Supervisor] = {}
        self._guard = guard
        self._wishes = Wishes(
            self._ask, publish, lambda server, uri: guard.forbids("resource", uri, server=server)
        )
        self._listed_before: dict[str, list[Resource]] = {}
        """The resources that each server listed last, also if it is away now."""

    async def resources(self, server: str | None = None) -> list[Resource]:
        """List resources, then templates, by server and address."""
        found = await asyncio.gather(
            self._listed("resources", server, _resource), self._listed("resourceTemplates", server, _resource)
        )
        return [
            resource for listing in found for resource in sorted(listing, key=lambda r: (r.server, r.uri))
        ]

    async def prompts(self, server: str | None = None) -> list[Prompt]:
        """List prompts, by server and name."""
        return sorted(await self._listed("prompts", server, _prompt), key=lambda p: (p.server, p.name))

    async def read(self, uri: str, server: str | None = None) -> list[Part]:
        """Read a resource.

        Args:
            uri: Its address.
            server: Whose it is; where several servers have it, that has to be said.

        Raises:
            DragomanError: No connected server lists it, several do, or it cannot be read.
            CallDeniedError: The policy does not allow it.
        """
        if server is None:
            server = await self._owner_of(uri)
        await self._guard.permit_offer("resource", uri, server=server)
        raw = await self._ask(server, lambda session: session.read_resource(uri), uri)
        contents = cast("Iterable[Mapping[str, Any]]", raw.get("contents") or ())
        return [to_part({"type": "resource", "resource": content}) for content in contents]

    async def prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, server: str
    ) -> list[dict[str, Any]]:
        """Get the messages of a prompt: role and content, as the server gives them.

        Raises:
            CallDeniedError: The policy does not allow it, or it is not as it was pinned and the server's
                `trust` withholds it.
            DragomanError: The server does not have it, or does not answer.
        """
        fields = copied(dict(arguments or {}))
        await self._guard.permit_offer("prompt", name, server=server, arguments=fields)
        supervisor = self._supervisors.get(server)
        if supervisor is not None and self._guard.pinboard.holds_back(supervisor.spec):
            await self._listing(server, "prompts")
            if self._guard.pinboard.withheld(supervisor.spec, [name], "prompt"):
                msg = f"the prompt `{name}` was not asked for: it is not the one that was pinned"
                hint = f"look at the change and run `dragoman trust approve {server}`"
                rule = self._guard.pinboard.rule(supervisor.spec)
                raise CallDeniedError(msg, tool=name, server=server, rule=rule, hint=hint)
        raw = await self._ask(server, lambda session: session.get_prompt(name, fields), name)
        return [message for message in raw.get("messages") or () if isinstance(message, dict)]

    async def complete(self, ref: Mapping[str, str], argument: str, value: str, *, server: str) -> list[str]:
        """Propose values for an argument of a prompt (`{"name": …}`) or of a template (`{"uri": …}`).

        Raises:
            CallDeniedError: The policy does not allow that prompt, or that template.
            DragomanError: The server does not answer.
        """
        about, given = dict(ref), {argument: value}
        if "uri" in about:
            template, filled = about["uri"], _filled(about["uri"], argument, value)
            asked = await self._guard.permit_offer(
                "resource", template, server=server, arguments={"uri": template, **given}
            )
            if not asked or self._guard.forbids("resource", filled, server=server):
                await self._guard.permit_offer("resource", filled, server=server)
        else:
            await self._guard.permit_offer("prompt", about["name"], server=server, arguments=given)
        return await self._ask(server, lambda session: session.complete(about, argument, value), argument)

    async def subscribe(
        self, uri: str, server: str | None = None, *, on_change: ChangeHandler | None = None
    ) -> None:
        """Be told of changes of a resource by `ResourceChanged` events, also after the server was away.

        Args:
            uri: The resource.
            server: Whose it is; where several servers have it, that has to be said.
            on_change: Given each event, beside those who read the stream of events; may be async.

        Raises:
            DragomanError: No connected server lists it, several do, or its server does not tell of changes.
            CallDeniedError: The policy does not allow it to be read.
        """
        if server is None:
            server = await self._owner_of(uri)
        await self._guard.permit_offer("resource", uri, server=server)
        await self._wishes.subscribe(uri, server, on_change)

    async def unsubscribe(self, uri: str, server: str | None = None) -> None:
        """Be told no more of a resource, by that server or by any."""
        await self._wishes.unsubscribe(uri, server, self._connected())

    async def set_log_level(self, level: LogLevel, server: str | None = None) -> None:
        """Ask one server, or all, for log messages from a level on; they go to `Handlers.logging`.

        Raises:
            UnknownServerError: There is no server of that name.
        """
        await self._wishes.set_log_level(level, server, self._told(server))

    async def set_roots(self, roots: Iterable[str], server: str | None = None) -> None:
        """Let one server, or all, look at other directories than before, by their URIs.

        A server that was connected when there were no roots at all gets them with its next connection.

        Raises:
            UnknownServerError: There is no server of that name.
        """
        await self._wishes.set_roots(roots, server, self._told(server))

    def instructions(self) -> dict[str, str]:
        """Return what the connected servers say about their use, by server, as a model may read it.

        What nobody sees and what steers a terminal is left out, and a long text is cut.
        """
        said: dict[str, str] = {}
        for name, supervisor in self._supervisors.items():
            text = supervisor.instructions
            if text and not self._guard.pinboard.hides_instructions(supervisor.spec):
                said[name] = for_model(text, supervisor.limits.instructions_chars)
        return said

    async def _owner_of(self, uri: str) -> str:
        """Return the one server that has a resource.

        That is not decided by which server lists it first: a resource that a second server lists too, or has
        a template for, or listed before it was lost, is only read from a server that is named.

        Raises:
            DragomanError: No connected server lists it, or several servers may have it.
        """
        listed, templates = await asyncio.gather(
            self._listed("resources", None, _resource), self._listed("resourceTemplates", None, _resource)
        )
        seen = {name: list[Resource]() for name in self._connected()}
        for one in (*listed, *templates):
            seen.setdefault(one.server, []).append(one)
        self._listed_before = {
            name: known for name, known in self._listed_before.items() if name in self._supervisors
        }
        self._listed_before |= {name: known for name, known in seen.items() if known}
        owners = {one.server for one in listed if one.uri == uri}
        known = [one for several in self._listed_before.values() for one in several]
        # Long listings are looked through beside the loop, which has calls to serve.
        names = await asyncio.to_thread(_having, known, uri) if len(known) > MANY else _having(known, uri)
        if owners and len(names) == 1:
            return names[0]
        enabled = [one.spec.name for one in self._supervisors.values() if one.spec.enabled]
        if not owners and len(enabled) == 1:
            return enabled[0]
        if len(names) > 1:
            among = ", ".join(f"`{name}`" for name in names)
            msg = f"several servers may have the resource `{uri}`: {among}"
            raise DragomanError(msg, hint="name the server that is meant")
        msg = f"no connected server lists the resource `{uri}`"
        raise DragomanError(msg, hint="name the server that has it")

    async def _listed(
        self, kind: Kind, server: str | None, read: Callable[[str, Mapping[str, Any]], T | None]
    ) -> list[T]:
        names = [server] if server is not None else self._connected()
        listings = await asyncio.gather(
            *(self._listing(name, kind) for name in names), return_exceptions=True
        )
        found: list[T] = []
        for name, listing in zip(names, listings, strict=True):
            if isinstance(listing, DragomanError | TimeoutError) and server is None:
                logger.error("%s: its %s cannot be listed: %s", name, kind, listing)
            elif isinstance(listing, BaseException):
                raise listing
            else:
                offered = self._offered(name, kind, listing)
                found += [one for entry in offered if (one := read(name, entry)) is not None]
        return found

    def _offered(
        self, server: str, kind: Kind, listing: Sequence[dict[str, Any]]
    ) -> Sequence[dict[str, Any]]:
        supervisor = self._supervisors.get(server)
        if kind != "prompts" or supervisor is None:
            return listing
        names = [_text(entry, "name") for entry in listing]
        withheld = self._guard.pinboard.withheld(supervisor.spec, names, "prompt")
        return [entry for entry in listing if _text(entry, "name") not in withheld]

    async def _listing(self, server: str, kind: Kind) -> Sequence[dict[str, Any]]:
        async def every_page(session: Session) -> list[dict[str, Any]]:
            found, why = await session.list_all(kind, self._supervisors[server].limits)
            if why:
                logger.warning("%s: the listing of its %s was cut short: %s", server, kind, why)
            return found

        listing = await self._ask(server, every_page, kind)
        if kind == "prompts" and (supervisor := self._supervisors.get(server)) is not None:
            await self._guard.pinboard.vet_prompts(supervisor.spec, listing)
        return listing

    async def _ask(self, server: str, job: Callable[[Session], Awaitable[T]], what: str) -> T:
        supervisor = self._supervisors.get(server)
        if supervisor is None:
            msg = f"there is no server `{server}`"
            raise UnknownServerError(msg, server=server)

        async def send(connection: Connection, left: float) -> T:
            return await connection.use(job, left, what=what)

        seconds = supervisor.spec.call_timeout
        try:
            return await supervisor.request(send, seconds=seconds)
        except TimeoutError as exc:
            msg = f"server `{server}` did not answer about `{what}` within {seconds:g} s"
            raise ServerError(msg, server=server) from exc
        except DragomanError as exc:
            self._guard.scrub(exc)
            raise

    def _told(self, server: str | None) -> list[str]:
        """Return the connected servers among those that something is said to."""
        if server is not None and server not in self._supervisors:
            msg = f"there is no server `{server}`"
            raise UnknownServerError(msg, server=server)
        return [name for name in self._connected() if server in (None, name)]

    def _connected(self) -> list[str]:
        states = (ServerState.READY, ServerState.DEGRADED)
        return [name for name, supervisor in self._supervisors.items() if supervisor.state in states]


def _resource(server: str, entry: Mapping[str, Any]) -> Resource | None:
    uri = _text(entry, "uri") or _text(entry, "uriTemplate")
    if not uri:
        return None
    annotations = entry.get("annotations")
    return Resource(
        server=server,
        uri=uri,
        name=_text(entry, "name"),
        title=_text(entry, "title"),
        description=_text(entry, "description"),
        mime_type=_text(entry, "mimeType"),
        is_template="uri" not in entry,
        annotations=cast("dict[str, Any]", annotations) if isinstance(annotations, dict) else {},
    )


def _prompt(server: str, entry: Mapping[str, Any]) -> Prompt | None:
    name = _text(entry, "name")
    if not name:
        return None
    arguments = entry.get("arguments")
    listed = cast("list[object]", arguments) if isinstance(arguments, list) else []
    return Prompt(
        server=server,
        name=name,
        title=_text(entry, "title"),
        description=_text(entry, "description"),
        arguments=[cast("dict[str, Any]", argument) for argument in listed if isinstance(argument, dict)],
    )


def _having(listed: Iterable[Resource], uri: str) -> list[str]:
    """Return the servers that list a resource in any spelling, or have a template that could stand for it."""
    plain = _plain(uri)
    found = {
        one.server
        for one in listed
        if one.uri == uri or (_fits(one.uri, uri, plain) if one.is_template else _plain(one.uri) == plain)
    }
    return sorted(found)


def _plain(uri: str) -> str:
    try:
        return plain_uri(uri)
    except UnmatchableError:
        return uri


def _fits(template: str, *uris: str) -> bool:
    """Return whether a template could stand for one of some addresses; every expression for any text."""
    first, *rest = _EXPRESSION.split(template)
    return any(_follows(uri, first, rest) for uri in uris)


def _filled(template: str, argument: str, value: str) -> str:
    """Return a template with a value in the place of one of its arguments."""

    def fill(match: re.Match[str]) -> str:
        names = (name.partition(":")[0].rstrip("*") for name in match[0].strip("{}+#./;?&").split(","))
        return value if argument in names else match[0]

    return _EXPRESSION.sub(fill, template)


def _follows(uri: str, first: str, rest: Sequence[str]) -> bool:
    if not rest:
        return uri == first
    *middle, last = rest
    at = len(first)
    if not uri.startswith(first):
        return False
    for part in middle:
        found = uri.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return len(uri) - at >= len(last) and uri.endswith(last)


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    return value if isinstance(value, str) else ""
