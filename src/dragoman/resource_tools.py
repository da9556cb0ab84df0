"""What servers offer beside tools, as tools: for models that can call functions and nothing else.

Opt in: an application registers what these functions return. `list_resources`, `read_resource`,
`list_prompts` and `get_prompt` go to whatever has the manager's methods; `read_result` reads on in a result
that was cut. What they return is text in bounds, and harmless for a model. A server that cannot answer is an
error of the tool, in words, and nothing more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

from dragoman.errors import CallDeniedError, DragomanError, ToolFailedError
from dragoman.model import ToolDef
from dragoman.tools.budget import Budget, fit
from dragoman.tools.content import to_part
from dragoman.tools.rendering import describe, render
from dragoman.trust.sanitize import for_model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dragoman.model import JsonObject, Part, Prompt, Resource
    from dragoman.spill import Spill

MAX_LISTED = 200
"""Resources or prompts in one answer; a filter narrows what there is."""
MAX_FACT = 300
MAX_URI = 2_000
DEFAULT_BUDGET = Budget(limit=50_000)

_SERVER = {"type": "string", "description": "Only of this server; of all connected servers unless given."}
_QUERY = {
    "type": "string",
    "description": "Only those whose name, title, address or description holds this text.",
}


class Offering(Protocol):
    """What the tools need of a manager."""

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


def resource_tools(manager: Offering, *, budget: Budget = DEFAULT_BUDGET) -> list[ToolDef]:
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
            "List what the connected servers let be read: addresses, names, types, templates.",
            {"server": _SERVER, "query": _QUERY},
            list_resources,
        ),
        _tool(
            "read_resource",
            "Read a resource by its address, as `list_resources` gives it; fill in a template first.",
            {
                "uri": {"type": "string", "description": "The resource's address."},
                "server": {"type": "string", "description": "Whose it is; found out unless given."},
            },
            read_resource,
            required=["uri"],
        ),
    ]


def prompt_tools(manager: Offering, *, budget: Budget = DEFAULT_BUDGET) -> list[ToolDef]:
    """Return `list_prompts` and `get_prompt` over a manager's servers."""

    async def list_prompts(server: str | None = None, query: str | None = None) -> str:
        found = await _asked("list_prompts", manager.prompts(server))
        return fit(_listing([_prompt_line(one) for one in found], query, "prompts"), budget)

    async def get_prompt(name: str, server: str, arguments: dict[str, str] | None = None) -> str:
        raw = await _asked("get_prompt", manager.prompt(name, arguments, server=server))
        said = [f"{_plain(role)}: {for_model(text)}" for role, text in map(prompt_message, raw)]
        return fit("\n\n".join(said), budget) or f"[the prompt `{name}` is empty]"

    return [
        _tool(
            "list_prompts",
            "List the prompts that the connected servers have prepared, and what each of them takes.",
            {"server": _SERVER, "query": _QUERY},
            list_prompts,
        ),
        _tool(
            "get_prompt",
            "Get the messages of a prompt that a server has prepared.",
            {
                "name": {"type": "string", "description": "The prompt's name, as `list_prompts` gives it."},
                "server": {"type": "string", "description": "Whose it is."},
                "arguments": {"type": "object", "additionalProperties": {"type": "string"}},
            },
            get_prompt,
            required=["name", "server"],
        ),
    ]


def result_tool(spill: Spill) -> ToolDef:
    """Return `read_result`, which reads on in a result that was too long to be shown as a whole."""

    def read_result(file: str, offset: int = 0, limit: int = 20_000) -> str:
        try:
            return for_model(spill.read(file, offset=offset, limit=limit))
        except FileNotFoundError as exc:
            raise ToolFailedError(str(exc), tool="read_result", hint="call the tool again") from exc

    return _tool(
        "read_result",
        "Read on in a tool's result that was too long: the mark in it names the file.",
        {
            "file": {"type": "string", "description": "The file that the mark names."},
            "offset": {"type": "integer", "minimum": 0, "description": "The first character to read."},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": 20_000,
                "description": "How many characters.",
            },
        },
        read_result,
        required=["file"],
    )


def prompt_message(message: Mapping[str, Any]) -> tuple[str, str]:
    """Return the role and the text of one message of a prompt; what is not text is described."""
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
        return f"no {what}" + (f" hold `{query}`; there are {len(lines)} in all" if query and lines else "")
    more = len(found) - MAX_LISTED
    rest = [f"… and {more} more: narrow them down with `query`"] if more > 0 else []
    return "\n".join([*found[:MAX_LISTED], *rest])


def _resource_line(one: Resource) -> str:
    kind = "template" if one.is_template else "resource"
    facts = [one.title or one.name, one.mime_type, one.description]
    updated = one.annotations.get("lastModified")
    facts += [f"updated {updated}"] if isinstance(updated, str) else []
    shown = ", ".join(_plain(fact) for fact in facts if fact)
    return f"- {_plain(one.uri, MAX_URI)} ({kind} of `{one.server}`): {shown}".rstrip(": ")


def _prompt_line(one: Prompt) -> str:
    names = [
        f"{_plain(str(argument.get('name')))}{'' if argument.get('required') is True else '?'}"
        for argument in one.arguments
    ]
    about = _plain(one.description or one.title)
    return f"- {_plain(one.name)}({', '.join(names)}) of `{one.server}`: {about}".rstrip(": ")


def _plain(text: str, most: int = MAX_FACT) -> str:
    """Return a server's words on one line, so that no entry can look like two."""
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
