"""The tools an agent has, built-in and remote, under one roof.

Owns the names: the first tool that takes a name keeps it. Gives the tools out in the form of each model API,
the same object until a tool comes, goes or changes. Never connects to anything: a remote tool carries the
function that its manager gave along with it.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

from dragoman.errors import (
    CallTimeoutError,
    InvalidArgumentsError,
    ToolExecutionError,
    ToolFailedError,
    UnknownToolError,
)
from dragoman.suggesting import suggest
from dragoman.tools.filters import is_usable
from dragoman.tools.naming import NameTable, Pair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from dragoman.model import JsonObject, ToolDef, ToolResult
    from dragoman.tools.formats.export import Api, Export, Exporter

logger = logging.getLogger("dragoman")


class RemoteCall(Protocol):
    """What runs a remote tool, by its exposed name; a failed call is a result too."""

    async def __call__(
        self, name: str, arguments: Mapping[str, Any] | None, *, timeout: float | None = None
    ) -> ToolResult:
        """Call the tool."""
        ...


class _Exporting(ABC):
    """The short forms of an export."""

    @abstractmethod
    def export(self, api: Api, *, strict: bool = False) -> Export:
        """Return all tools in the form of a model API."""

    def resolve(self, api: Api, alias: str) -> str | None:
        """Return the exposed name of the tool that a model of that API calls so."""
        return self.export(api).names.get(alias)

    def to_openai_schema(self, *, strict: bool = False) -> list[JsonObject]:
        """Return every tool, built-in and remote, as OpenAI's chat API wants functions."""
        return list(self.export("openai", strict=strict).tools)

    def to_responses(self, *, strict: bool = False) -> list[JsonObject]:
        """Return every tool as OpenAI's Responses API wants functions."""
        return list(self.export("responses", strict=strict).tools)

    def to_anthropic(self) -> list[JsonObject]:
        """Return every tool as Anthropic's Messages API wants it."""
        return list(self.export("anthropic").tools)

    def to_gemini(self, *, openapi: bool = False) -> list[JsonObject]:
        """Return every tool as a function declaration for Gemini, with JSON Schema or the OpenAPI subset."""
        return list(self.export("gemini-openapi" if openapi else "gemini").tools)

    def to_ai_sdk(self) -> list[JsonObject]:
        """Return what `dynamicTool` of Vercel's AI SDK takes, for every tool."""
        return list(self.export("ai-sdk").tools)


class ToolRegistry(_Exporting):
    """Tools by their exposed names; iteration is sorted, so that prompt caches hold."""

    def __init__(self) -> None:
        self._tools: dict[str, ToolDef] = {}
        self._remotes: dict[str, RemoteCall] = {}
        self._names = NameTable()
        self._sorted: list[ToolDef] | None = None
        self._exporters: dict[tuple[Api, bool], Exporter] = {}
        self._exports: dict[tuple[Api, bool], Export] = {}
        self._longest: dict[str, int] = {}
        self._told: set[tuple[str, str, str]] = set()

    def register(self, tool: ToolDef, *, remote: RemoteCall | None = None) -> bool:
        """Add a tool; one whose name is taken is skipped with a warning.

        Args:
            tool: The tool; a built-in one has its `func`.
            remote: What runs a tool that has no `func`.

        Returns:
            Whether it was added.
        """
        return bool(self.register_all([tool], remote=remote))

    def register_all(self, tools: Iterable[ToolDef], *, remote: RemoteCall | None = None) -> list[ToolDef]:
        """Add tools in one batch; return those that were added."""
        added: list[ToolDef] = []
        for tool in tools:
            if (holder := self._holder(tool)) is not None:
                logger.warning(
                    "%s is skipped: the name `%s` is taken by %s", _called(tool), tool.name, _called(holder)
                )
                continue
            self._tools[tool.name] = tool
            self._names.add(tool.name, _pair(tool))
            if remote is not None:
                self._remotes[tool.name] = remote
            added.append(tool)
        if added:
            self._change()
        return added

    def unregister(self, name: str) -> None:
        """Remove a tool, if it is there."""
        if self._tools.pop(name, None) is None:
            return
        self._remotes.pop(name, None)
        self._names.discard(name)
        self._change()

    def unregister_server(self, server: str) -> list[ToolDef]:
        """Remove all tools of a server; return them."""
        removed = [tool for tool in self._tools.values() if tool.source == "mcp" and tool.server == server]
        for tool in removed:
            self.unregister(tool.name)
        return removed

    def get(self, name: str) -> ToolDef | None:
        """Return the tool of that exposed name."""
        return self._tools.get(name)

    def exposed_name(self, server: str, tool: str) -> str | None:
        """Return the exposed name of a server's tool."""
        return self._names.name_of(Pair(server, tool))

    def suggest(self, name: str) -> list[str]:
        """Return the names nearest to one that does not exist."""
        return suggest(name, self._tools)

    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> str:
        """Run a tool and return its result as a string.

        Raises:
            ToolExecutionError: Whatever went wrong; the subclass says what.
        """
        tool = self._tools.get(name)
        if tool is None:
            raise self.unknown(name)
        if tool.func is not None:
            return await _call_builtin(tool, tool.func, arguments or {}, timeout)
        remote = self._remotes.get(name)
        if remote is None:
            msg = f"the tool `{name}` has neither a function nor a server"
            raise ToolExecutionError(msg, tool=name, hint="register it with `func` or `remote`")
        result = await remote(name, arguments, timeout=timeout)
        result.raise_for_error()
        return result.text

    def unknown(self, name: str) -> UnknownToolError:
        """Return the error for a name that no tool has."""
        return _unknown(name, self.suggest(name))

    def export(self, api: Api, *, strict: bool = False) -> Export:
        """Return all tools in the form of a model API, with the tables that lead back.

        The same object comes back until the tools change. A tool that the API cannot express is left out and
        named in the log, once.

        Args:
            api: `openai` (Chat Completions), `responses`, `anthropic`, `gemini`, `gemini-openapi`, `ai-sdk`.
            strict: Whether OpenAI is to hold the model to the schema, wherever its meaning survives. What a
                model calls then goes through `Export.restore` before it is called.

        Raises:
            ValueError: There is no such API, or it has no strict mode.
        """
        key = (api, strict)
        if (export := self._exports.get(key)) is not None:
            return export
        # The formats are loaded by those who export, and by nobody who only calls.
        from dragoman.tools.formats.export import Exporter

        if key not in self._exporters:
            self._exporters[key] = Exporter(api, strict=strict, longest=self._longest)
        export = self._exports[key] = self._exporters[key].export(self)
        for name, reason in export.left_out.items():
            if (line := (api, name, reason)) not in self._told:
                self._told.add(line)
                logger.warning(
                    "%s is left out of the export for %s: %s", _called(self._tools[name]), api, reason
                )
        return export

    def limit_descriptions(self, server: str, chars: int) -> None:
        """Give models no more than so many characters of a description from a server."""
        if self._longest.get(server) != chars:
            self._longest[server] = chars
            self._exporters.clear()
            self._change()

    def view(self, *, allow: Iterable[str] | None = None, deny: Iterable[str] = ()) -> ToolView:
        """Return the tools that an agent may use: a live view, which changes with the registry.

        Args:
            allow: Exposed names or `server:tool`, or globs of them; all tools unless given.
            deny: The same; these win.
        """
        return ToolView(self, allow=allow, deny=deny)

    def __iter__(self) -> Iterator[ToolDef]:
        if self._sorted is None:
            self._sorted = [tool for _, tool in sorted(self._tools.items())]
        return iter(self._sorted)

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def _change(self) -> None:
        self._sorted = None
        self._exports.clear()

    def _holder(self, tool: ToolDef) -> ToolDef | None:
        if (holder := self._tools.get(tool.name)) is not None:
            return holder
        name = self._names.name_of(_pair(tool))
        return None if name is None else self._tools[name]


class ToolView(_Exporting):
    """Some tools of a registry: an agent that has it sees and calls no other."""

    def __init__(
        self, registry: ToolRegistry, *, allow: Iterable[str] | None = None, deny: Iterable[str] = ()
    ) -> None:
        self._registry = registry
        self._allow = None if allow is None else tuple(allow)
        self._deny = tuple(deny)
        self._exports: dict[tuple[Api, bool], tuple[Export, Export]] = {}

    def get(self, name: str) -> ToolDef | None:
        """Return the tool of that exposed name, if it is in view."""
        tool = self._registry.get(name)
        return tool if tool is not None and self._shows(tool) else None

    def suggest(self, name: str) -> list[str]:
        """Return the names in view that are nearest to one that is not."""
        return suggest(name, [tool.name for tool in self])

    def unknown(self, name: str) -> UnknownToolError:
        """Return the error for a name that no tool in view has."""
        return _unknown(name, self.suggest(name))

    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> str:
        """Run a tool that is in view, and return its result as a string.

        Raises:
            ToolExecutionError: Whatever went wrong; the subclass says what.
        """
        if self.get(name) is None:
            raise self.unknown(name)
        return await self._registry.call(name, arguments, timeout=timeout)

    def export(self, api: Api, *, strict: bool = False) -> Export:
        """Return the tools in view in the form of a model API; aliases are those of the registry."""
        whole = self._registry.export(api, strict=strict)
        kept = self._exports.get((api, strict))
        if kept is None or kept[0] is not whole:
            kept = self._exports[api, strict] = (whole, whole.only(lambda name: name in self))
        return kept[1]

    def __iter__(self) -> Iterator[ToolDef]:
        return (tool for tool in self._registry if self._shows(tool))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def _shows(self, tool: ToolDef) -> bool:
        return is_usable(tool, allowed=self._allow, denied=self._deny)


def _unknown(name: str, near: list[str]) -> UnknownToolError:
    hint = f"did you mean {', '.join(f'`{item}`' for item in near)}?" if near else ""
    return UnknownToolError(f"there is no tool `{name}`", tool=name, suggestions=near, hint=hint)


def _pair(tool: ToolDef) -> Pair:
    return Pair(tool.server if tool.source == "mcp" else "", tool.original_name or tool.name)


def _called(tool: ToolDef) -> str:
    if tool.source == "mcp":
        return f"tool `{tool.original_name}` of server `{tool.server}`"
    return f"built-in tool `{tool.name}`"


async def _call_builtin(
    tool: ToolDef, func: Callable[..., Any], arguments: Mapping[str, Any], timeout: float | None
) -> str:
    try:
        bound = inspect.signature(func).bind(**arguments)
    except TypeError as exc:
        msg = f"the arguments do not fit `{tool.name}`: {exc}"
        raise InvalidArgumentsError(msg, tool=tool.name, problems=[str(exc)]) from exc
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            if inspect.iscoroutinefunction(func):
                value = await func(*bound.args, **bound.kwargs)
            else:
                # In a thread, so that a slow function blocks no server.
                value = await asyncio.to_thread(func, *bound.args, **bound.kwargs)
    except ToolExecutionError:
        raise
    except Exception as exc:
        if timeout is not None and limit.expired():
            msg = f"`{tool.name}` did not finish within {timeout:g} s"
            raise CallTimeoutError(msg, seconds=timeout, tool=tool.name) from exc
        msg = f"`{tool.name}` failed: {type(exc).__name__}: {exc}"
        raise ToolFailedError(msg, tool=tool.name) from exc
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
