"""Resources: resources, prompts, completion and instructions of one server or of all.

A listing asks every connected server at the same time; a server that fails is logged and left out. A resource
is read from the named server, or from the only one that can have it. Prompts and instructions that differ
from their pins are withheld if the server's `trust` is `strict`.

`resource_tools`, `prompt_tools` and `result_tool` offer the same to models, which can only call tools.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shlex
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from dragoman.errors import CallDeniedError, DragomanError, ServerError, ToolFailedError
from dragoman.manager.pool import find_server
from dragoman.model import Part, Prompt, Resource, ServerState, ToolDef
from dragoman.server.protocol.deadlines import Deadline
from dragoman.tools.result.budget import TextBudget, fit
from dragoman.tools.result.render import describe, render, to_part
from dragoman.trust.patterns import UnmatchableError, plain_uri
from dragoman.trust.policy import copied
from dragoman.trust.sanitizing import for_log, for_model
from dragoman.visible import is_visible

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence

    from dragoman.model import JsonObject
    from dragoman.server.protocol.session import Kind, Session
    from dragoman.server.supervisor import Supervisor
    from dragoman.storage.results import ResultStore
    from dragoman.trust.gate import Gate

logger = logging.getLogger("dragoman")
failures = logging.getLogger("dragoman.calls")
"""Errors that the caller gets too; see `call.context`."""

T = TypeVar("T")

MANY = 1_000
"""Listings with more resources than this are searched in a thread."""
_EXPRESSION = re.compile(r"\{[^{}]*\}")


class Resources:
    """The resources and prompts of a set of servers."""

    def __init__(self, supervisors: Mapping[str, Supervisor], gate: Gate) -> None:
        """Use these servers.

        Args:
            supervisors: The servers in use, by name; may change at any time.
            gate: Decides what may be read.
        """
        self._supervisors = supervisors
        self._gate = gate
        self._listed_before: dict[str, list[Resource]] = {}
        """The resources that each server listed last, even if it is not connected now."""

    async def list_resources(self, server: str | None = None) -> list[Resource]:
        """List resources, then templates, by server and URI."""
        found = await asyncio.gather(
            self._listed("resources", server, _resource), self._listed("resourceTemplates", server, _resource)
        )
        return [
            resource for listing in found for resource in sorted(listing, key=lambda r: (r.server, r.uri))
        ]

    async def list_prompts(self, server: str | None = None) -> list[Prompt]:
        """List prompts, by server and name."""
        return sorted(await self._listed("prompts", server, _prompt), key=lambda p: (p.server, p.name))

    async def read(self, uri: str, server: str | None = None) -> list[Part]:
        """Read a resource."""
        with self._logs_failure("reading the resource", uri, server):
            server = await self.permit(uri, server)
            raw = await self.ask(server, lambda session: session.read_resource(uri), uri)
        contents = cast("Iterable[Mapping[str, Any]]", raw.get("contents") or ())
        return [to_part({"type": "resource", "resource": content}) for content in contents]

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, server: str
    ) -> list[dict[str, Any]]:
        """Get the messages of a prompt: role and content, as the server gives them."""
        with self._logs_failure("getting the prompt", name, server):
            fields = await self.permit_prompt(name, arguments, server=server)
            raw = await self.ask(server, lambda session: session.get_prompt(name, fields), name)
        return [message for message in raw.get("messages") or () if isinstance(message, dict)]

    async def permit_prompt(
        self, name: str, arguments: Mapping[str, str] | None, *, server: str
    ) -> dict[str, str]:
        """Check that a prompt may be used, and return a copy of its arguments.

        Raises:
            CallDeniedError: The policy does not allow it, or it is withheld.
        """
        fields = copied(dict(arguments or {}))
        await self._gate.permit_offer("prompt", name, server=server, arguments=fields)
        supervisor = self._supervisors.get(server)
        if supervisor is not None and self._gate.pin_checker.holds_back(supervisor.spec):
            await self._listing(server, "prompts")
            if self._gate.pin_checker.withheld(supervisor.spec, [name], "prompt"):
                msg = f"the prompt `{name}` is withheld: it is not the one that was pinned"
                hint = f"review the change and run `dragoman trust approve {shlex.quote(server)}`"
                rule = self._gate.pin_checker.rule(supervisor.spec)
                raise CallDeniedError(msg, tool=name, server=server, rule=rule, hint=hint)
        return fields

    async def complete(self, ref: Mapping[str, str], argument: str, value: str, *, server: str) -> list[str]:
        """Propose values for an argument of a prompt (`{"name": …}`) or of a template (`{"uri": …}`)."""
        about = dict(ref)
        with self._logs_failure("completing the argument", argument, server):
            await self.permit_completion(about, argument, value, server=server)
            return await self.ask(server, lambda session: session.complete(about, argument, value), argument)

    async def permit_completion(
        self, about: Mapping[str, str], argument: str, value: str, *, server: str
    ) -> None:
        """Check that a prompt or template may be asked for completions.

        Raises:
            CallDeniedError: The policy does not allow it.
        """
        given = {argument: value}
        if "uri" in about:
            template, filled = about["uri"], _filled(about["uri"], argument, value)
            asked = await self._gate.permit_offer(
                "resource", template, server=server, arguments={"uri": template, **given}
            )
            if not asked or self._gate.forbids("resource", filled, server=server):
                await self._gate.permit_offer("resource", filled, server=server)
        else:
            await self._gate.permit_offer("prompt", about["name"], server=server, arguments=given)

    async def entries(self, kind: Kind, server: str) -> Sequence[dict[str, Any]]:
        """List what one server offers, as it sends it.

        Prompts that are withheld or whose names have invisible characters are left out.
        """
        return self._offered(server, kind, await self._listing(server, kind))

    @contextmanager
    def _logs_failure(self, doing: str, what: str, server: str | None) -> Generator[None]:
        try:
            yield
        except DragomanError as exc:
            name = getattr(exc, "server", "") or server or "mcp"
            shown = for_log(self._gate.redactor.mask(what))
            failures.error("%s: %s `%s` failed: %s", for_log(name), doing, shown, exc)
            raise

    async def permit(self, uri: str, server: str | None) -> str:
        """Check that a resource may be read, and return its server.

        Raises:
            DragomanError: No server is named, and none or several can have the resource.
            CallDeniedError: The policy does not allow it.
        """
        if server is None:
            server = await self.owner(uri)
        await self._gate.permit_offer("resource", uri, server=server)
        return server

    def instructions(self) -> dict[str, str]:
        """Return the instructions of the connected servers, by server, cleaned for a model."""
        said: dict[str, str] = {}
        for name, supervisor in self._supervisors.items():
            text = supervisor.instructions
            if text and not self._gate.pin_checker.hides_instructions(supervisor.spec):
                said[name] = for_model(text, supervisor.limits.instructions_chars)
        return said

    def skill_servers(self) -> list[str]:
        """Return the connected servers that declare skills."""
        found = ((name, self._supervisors[name].session) for name in self.connected())
        return [name for name, session in found if session is not None and session.skill_settings is not None]

    async def owner(self, uri: str) -> str:
        """Return the only server that can have a resource.

        The first server that lists it does not win: if a second server lists it too, has a template for it,
        or listed it before its connection was lost, the caller has to name the server.

        Raises:
            DragomanError: No connected server lists it, or several servers may have it.
        """
        listed, templates = await asyncio.gather(
            self._listed("resources", None, _resource), self._listed("resourceTemplates", None, _resource)
        )
        seen = {name: list[Resource]() for name in self.connected()}
        for one in (*listed, *templates):
            seen.setdefault(one.server, []).append(one)
        self._listed_before = {
            name: known for name, known in self._listed_before.items() if name in self._supervisors
        }
        self._listed_before |= {name: known for name, known in seen.items() if known}
        owners = {one.server for one in listed if one.uri == uri}
        known = [one for several in self._listed_before.values() for one in several]
        # A thread searches long listings, so that the event loop can go on with calls.
        names = await asyncio.to_thread(_having, known, uri) if len(known) > MANY else _having(known, uri)
        if owners and len(names) == 1:
            return names[0]
        enabled = [one.spec.name for one in self._supervisors.values() if one.spec.enabled]
        if not owners and len(enabled) == 1:
            return enabled[0]
        if len(names) > 1:
            among = ", ".join(f"`{name}`" for name in names)
            msg = f"several servers may have the resource `{uri}`: {among}"
            raise DragomanError(msg, hint="name the server")
        msg = f"no connected server lists the resource `{uri}`"
        raise DragomanError(msg, hint="name the server")

    async def _listed(
        self, kind: Kind, server: str | None, read: Callable[[str, Mapping[str, Any]], T | None]
    ) -> list[T]:
        names = [server] if server is not None else self.connected()
        listings = await asyncio.gather(
            *(self._listing(name, kind) for name in names), return_exceptions=True
        )
        found: list[T] = []
        for name, listing in zip(names, listings, strict=True):
            if isinstance(listing, BaseException):
                if isinstance(listing, DragomanError | TimeoutError):
                    logger.error("%s: could not list its %s: %s", name, kind, listing)
                if server is not None or not isinstance(listing, DragomanError | TimeoutError):
                    raise listing
            else:
                offered = self._offered(name, kind, listing)
                found += [one for entry in offered if (one := read(name, entry)) is not None]
        return found

    def _offered(
        self, server: str, kind: Kind, listing: Sequence[dict[str, Any]]
    ) -> Sequence[dict[str, Any]]:
        if kind != "prompts":
            return listing
        named = [entry for entry in listing if is_visible(_text(entry, "name"))]
        if (supervisor := self._supervisors.get(server)) is None:
            return named
        names = [_text(entry, "name") for entry in named]
        withheld = self._gate.pin_checker.withheld(supervisor.spec, names, "prompt")
        return [entry for entry in named if _text(entry, "name") not in withheld]

    async def _listing(self, server: str, kind: Kind) -> Sequence[dict[str, Any]]:
        async def every_page(session: Session) -> list[dict[str, Any]]:
            found, why = await session.list_all(kind, self._supervisors[server].limits)
            if why:
                logger.warning("%s: the list of its %s was cut short: %s", server, kind, why)
            return found

        listing = await self.ask(server, every_page, kind)
        if kind == "prompts" and (supervisor := self._supervisors.get(server)) is not None:
            await self._gate.pin_checker.vet_prompts(supervisor.spec, listing)
        return listing

    async def ask(self, server: str, job: Callable[[Session], Awaitable[T]], what: str) -> T:
        """Run a job with a server's session; connect first if necessary.

        Args:
            server: The server.
            job: Given the session.
            what: The subject of the job, for errors.

        Raises:
            UnknownServerError: No server has this name.
            ServerError: The server does not answer in time.
        """
        supervisor = find_server(self._supervisors, server)

        seconds = supervisor.spec.call_timeout
        deadline = Deadline.after(seconds)
        try:
            async with supervisor.acquire(deadline) as connection:
                return await connection.use(job, deadline=deadline, what=what)
        except TimeoutError as exc:
            msg = f"server `{server}` did not answer about `{what}` within {seconds:g} s"
            raise ServerError(msg, server=server) from exc
        except DragomanError as exc:
            self._gate.scrub(exc)
            raise

    def connected(self, server: str | None = None) -> list[str]:
        """Return the connected servers: all, or only this one.

        Raises:
            UnknownServerError: No server has this name.
        """
        if server is not None:
            find_server(self._supervisors, server)
        states = (ServerState.READY, ServerState.DEGRADED)
        return [
            name
            for name, supervisor in self._supervisors.items()
            if supervisor.state in states and server in (None, name)
        ]


def _resource(server: str, entry: Mapping[str, Any]) -> Resource | None:
    uri = _text(entry, "uri") or _text(entry, "uriTemplate")
    if not uri:
        return None
    annotations, meta, size = entry.get("annotations"), entry.get("_meta"), entry.get("size")
    return Resource(
        server=server,
        uri=uri,
        name=_text(entry, "name"),
        title=_text(entry, "title"),
        description=_text(entry, "description"),
        mime_type=_text(entry, "mimeType"),
        size=size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None,
        is_template="uri" not in entry,
        annotations=cast("dict[str, Any]", annotations) if isinstance(annotations, dict) else {},
        meta=cast("dict[str, Any]", meta) if isinstance(meta, dict) else {},
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
    """Return the servers that list a resource in any spelling, or have a template that may match it."""
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
    """Return whether a template may match one of some URIs; each expression matches any text."""
    first, *rest = _EXPRESSION.split(template)
    return any(_follows(uri, first, rest) for uri in uris)


def _filled(template: str, argument: str, value: str) -> str:
    """Return a template with a value filled in for one of its arguments."""

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


MAX_LISTED = 200
"""How many resources or prompts one answer lists; `query` narrows them down."""
MAX_FACT = 300
MAX_URI = 2_000
DEFAULT_BUDGET = TextBudget(limit=50_000)

_SERVER = {"type": "string", "description": "Only of this server; by default of all connected servers."}
_QUERY = {
    "type": "string",
    "description": "Only those whose name, title, URI or description contains this text.",
}


class ResourceSource(Protocol):
    """The part of a manager that the tools use."""

    async def resources(self, server: str | None = None) -> list[Resource]:
        """List resources and templates."""
        ...

    async def read(self, uri: str, server: str | None = None) -> list[Part]:
        """Read a resource."""
        ...

    async def prompts(self, server: str | None = None) -> list[Prompt]:
        """List prompts."""
        ...

    async def prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, server: str
    ) -> list[dict[str, Any]]:
        """Get the messages of a prompt."""
        ...


def resource_tools(manager: ResourceSource, *, budget: TextBudget = DEFAULT_BUDGET) -> list[ToolDef]:
    """Return `list_resources` and `read_resource` over a manager's servers."""

    async def list_resources(server: str | None = None, query: str | None = None) -> str:
        found = await _asked("list_resources", manager.resources(server))
        lines = [_resource_line(one) for one in found]
        return fit(_listing(lines, query, "resources"), budget)

    async def read_resource(uri: str, server: str | None = None) -> str:
        parts = await _asked("read_resource", manager.read(uri, server))
        return for_model(render(parts, budget=budget)) or f"[the resource `{uri}` is empty]"

    return [
        _tool(
            "list_resources",
            "List the resources of the connected servers: URIs, names, types, templates.",
            {"server": _SERVER, "query": _QUERY},
            list_resources,
        ),
        _tool(
            "read_resource",
            "Read a resource by its URI, as listed by `list_resources`; fill in a template first.",
            {
                "uri": {"type": "string", "description": "The resource's URI."},
                "server": {"type": "string", "description": "Its server; found automatically by default."},
            },
            read_resource,
            required=["uri"],
        ),
    ]


def prompt_tools(manager: ResourceSource, *, budget: TextBudget = DEFAULT_BUDGET) -> list[ToolDef]:
    """Return `list_prompts` and `get_prompt` over a manager's servers."""

    async def list_prompts(server: str | None = None, query: str | None = None) -> str:
        found = await _asked("list_prompts", manager.prompts(server))
        return fit(_listing([_prompt_line(one) for one in found], query, "prompts"), budget)

    async def get_prompt(name: str, server: str, arguments: dict[str, str] | None = None) -> str:
        raw = await _asked("get_prompt", manager.prompt(name, arguments, server=server))
        said = [f"{_plain_reply(role)}: {for_model(text)}" for role, text in map(prompt_message, raw)]
        return fit("\n\n".join(said), budget) or f"[the prompt `{name}` is empty]"

    return [
        _tool(
            "list_prompts",
            "List the prompts of the connected servers, with their arguments.",
            {"server": _SERVER, "query": _QUERY},
            list_prompts,
        ),
        _tool(
            "get_prompt",
            "Get the messages of a server's prompt.",
            {
                "name": {"type": "string", "description": "The prompt's name, as listed by `list_prompts`."},
                "server": {"type": "string", "description": "Its server."},
                "arguments": {"type": "object", "additionalProperties": {"type": "string"}},
            },
            get_prompt,
            required=["name", "server"],
        ),
    ]


def result_tool(spill: ResultStore) -> ToolDef:
    """Return `read_result`, which reads more of a result that was too long to be shown."""

    def read_result(file: str, offset: int = 0, limit: int = 20_000) -> str:
        try:
            return for_model(spill.read(file, offset=offset, limit=limit))
        except FileNotFoundError as exc:
            raise ToolFailedError(str(exc), tool="read_result", hint="call the tool again") from exc

    return _tool(
        "read_result",
        "Read more of a tool's result that was too long; the mark in the result names the file.",
        {
            "file": {"type": "string"},
            "offset": {"type": "integer", "minimum": 0, "description": "The first character."},
            "limit": {"type": "integer", "minimum": 1, "maximum": 20_000},
        },
        read_result,
        required=["file"],
    )


def prompt_message(message: Mapping[str, Any]) -> tuple[str, str]:
    """Return the role and the text of one message of a prompt; other content is described."""
    role = message.get("role")
    content = message.get("content")
    blocks = cast("list[object]", content) if isinstance(content, list) else [content]
    texts = [describe(to_part(cast("dict[str, Any]", block))) for block in blocks if isinstance(block, dict)]
    texts += [block for block in blocks if isinstance(block, str)]
    return (role if isinstance(role, str) else "user"), "\n".join(texts)


async def _asked(tool: str, job: Any) -> Any:
    try:
        return await job
    except CallDeniedError:
        raise
    except DragomanError as exc:
        msg = f"`{tool}` failed: {exc}"
        raise ToolFailedError(msg, tool=tool) from exc


def _listing(lines: Sequence[str], query: str | None, what: str) -> str:
    wanted = (query or "").casefold()
    found = [line for line in lines if wanted in line.casefold()]
    if not found:
        return f"no {what}" + (f" contain `{query}`; {len(lines)} in total" if query and lines else "")
    more = len(found) - MAX_LISTED
    rest = [f"… and {more} more: narrow them down with `query`"] if more > 0 else []
    return "\n".join([*found[:MAX_LISTED], *rest])


def _resource_line(one: Resource) -> str:
    kind = "template" if one.is_template else "resource"
    facts = [one.title or one.name, one.mime_type, one.description]
    updated = one.annotations.get("lastModified")
    facts += [f"updated {updated}"] if isinstance(updated, str) else []
    shown = ", ".join(_plain_reply(fact) for fact in facts if fact)
    return f"- {_plain_reply(one.uri, MAX_URI)} ({kind} of `{one.server}`): {shown}".rstrip(": ")


def _prompt_line(one: Prompt) -> str:
    names = [
        f"{_plain_reply(str(argument.get('name')))}{'' if argument.get('required') is True else '?'}"
        for argument in one.arguments
    ]
    about = _plain_reply(one.description or one.title)
    return f"- {_plain_reply(one.name)}({', '.join(names)}) of `{one.server}`: {about}".rstrip(": ")


def _plain_reply(text: str, most: int = MAX_FACT) -> str:
    """Return a server's text on one line, so that one entry cannot look like two."""
    return for_model(" ".join(for_model(text, 2 * most).split()), most)


def _tool(
    name: str, description: str, properties: JsonObject, func: Any, *, required: Sequence[str] = ()
) -> ToolDef:
    schema: JsonObject = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = list(required)
    return ToolDef(
        name=name,
        description=description,
        input_schema=schema,
        func=func,
        title=name.replace("_", " ").capitalize(),
        annotations={"readOnlyHint": True},
        source="builtin",
    )
