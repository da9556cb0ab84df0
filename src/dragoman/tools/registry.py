"""The tools an agent has, built-in and remote, under one roof.

Owns the names: the first tool that takes a name keeps it. Never connects to anything: a remote tool
carries the function that its manager gave along with it.
"""

from __future__ import annotations

import asyncio
import difflib
import inspect
import json
import logging
from typing import TYPE_CHECKING, Any, Protocol

from dragoman.errors import (
    CallTimeoutError,
    InvalidArgumentsError,
    ToolExecutionError,
    ToolFailedError,
    UnknownToolError,
)
from dragoman.tools.naming import NameTable, Pair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from dragoman.model import JsonObject, ToolDef, ToolResult

logger = logging.getLogger("dragoman")


class RemoteCall(Protocol):
    """What runs a remote tool, by its exposed name; a failed call is a result too."""

    async def __call__(
        self, name: str, arguments: Mapping[str, Any] | None, *, timeout: float | None = None
    ) -> ToolResult:
        """Call the tool."""
        ...


class ToolRegistry:
    """Tools by their exposed names; iteration is sorted, so that prompt caches hold."""

    def __init__(self) -> None:
        self._tools: dict[str, ToolDef] = {}
        self._remotes: dict[str, RemoteCall] = {}
        self._names = NameTable()
        self._sorted: list[ToolDef] | None = None

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
        self._sorted = None
        return added

    def unregister(self, name: str) -> None:
        """Remove a tool, if it is there."""
        self._tools.pop(name, None)
        self._remotes.pop(name, None)
        self._names.discard(name)
        self._sorted = None

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
        return difflib.get_close_matches(name, self._tools, n=3, cutoff=0.5)

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
        near = self.suggest(name)
        hint = f"did you mean {', '.join(f'`{item}`' for item in near)}?" if near else ""
        return UnknownToolError(f"there is no tool `{name}`", tool=name, suggestions=near, hint=hint)

    def to_openai_schema(self) -> list[JsonObject]:
        """Return every tool, built-in and remote, as OpenAI's chat API wants functions."""
        return [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.input_schema,
                },
            }
            for tool in self
        ]

    def __iter__(self) -> Iterator[ToolDef]:
        if self._sorted is None:
            self._sorted = [tool for _, tool in sorted(self._tools.items())]
        return iter(self._sorted)

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def _holder(self, tool: ToolDef) -> ToolDef | None:
        if (holder := self._tools.get(tool.name)) is not None:
            return holder
        name = self._names.name_of(_pair(tool))
        return None if name is None else self._tools[name]


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
