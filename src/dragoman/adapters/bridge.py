"""The base of every adapter: tools under names that model APIs accept, and calls back to the manager.

Built-in and remote tools both go through the manager's `call`, so that arguments are checked, timeouts apply
and events are published. The manager may be `dragoman.McpManager` or the one of `dragoman.blocking`.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, Protocol, cast

from dragoman.errors import DragomanError
from dragoman.model import ToolResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping

    from dragoman.errors import UnknownToolError
    from dragoman.model import ToolDef
    from dragoman.tools.export.export import Api, Export


class View(Protocol):
    """The tools that an agent may use."""

    def export(self, api: Api, *, strict: bool = False) -> Export:
        """Return them in the format of a model API."""
        ...

    def get(self, name: str) -> ToolDef | None:
        """Return one by its exposed name."""
        ...

    def unknown(self, name: str) -> UnknownToolError:
        """Return the error for an unknown name."""
        ...


class Registry(Protocol):
    """All tools of a manager."""

    def view(self, *, allow: Iterable[str] | None = None, deny: Iterable[str] = ()) -> View:
        """Return a filtered view."""
        ...


class Manager(Protocol):
    """A manager, asynchronous or blocking."""

    @property
    def registry(self) -> Registry:
        """Its tools."""
        ...

    def call(
        self, name: str, arguments: Mapping[str, Any] | None = None
    ) -> Awaitable[ToolResult] | ToolResult:
        """Call a tool by its exposed name."""
        ...


class Bridge:
    """Some tools of a manager, for one framework."""

    def __init__(
        self,
        mcp: Manager,
        api: Api,
        *,
        allow: Iterable[str] | None = None,
        deny: Iterable[str] = (),
    ) -> None:
        """Serve the tools of `mcp`.

        Args:
            mcp: The manager.
            api: The model API whose rules names and schemas follow.
            allow: Exposed names or `server:tool`, or globs of them; all tools unless given.
            deny: The same; these win.
        """
        self._mcp = mcp
        self._api: Api = api
        self._view = mcp.registry.view(allow=allow, deny=deny)
        self._blocks = not inspect.iscoroutinefunction(mcp.call)
        try:
            self._loop = None if self._blocks else asyncio.get_running_loop()
        except RuntimeError:
            self._loop = None

    def offered(self) -> dict[str, tuple[ToolDef, dict[str, Any]]]:
        """Return the current tools by alias, each with its definition for the API."""
        export = self._view.export(self._api)
        found: dict[str, tuple[ToolDef, dict[str, Any]]] = {}
        for (name, alias), form in zip(export.aliases.items(), export.tools, strict=True):
            if (tool := self._view.get(name)) is not None:
                found[alias] = (tool, form)
        return found

    async def call(self, alias: str, arguments: Mapping[str, Any] | None) -> ToolResult:
        """Call a tool by its alias."""
        name, restored = self._view.export(self._api).restore(alias, arguments)
        if self._view.get(name) is None:
            return self._refused(name)
        if self._blocks:
            return cast("ToolResult", await asyncio.to_thread(self._mcp.call, name, restored))
        return await cast("Awaitable[ToolResult]", self._mcp.call(name, restored))

    def call_and_wait(self, alias: str, arguments: Mapping[str, Any] | None) -> ToolResult:
        """Call a tool from synchronous code.

        Raises:
            DragomanError: The manager's loop runs in this thread, or is unknown.
        """
        name, restored = self._view.export(self._api).restore(alias, arguments)
        if self._view.get(name) is None:
            return self._refused(name)
        if self._blocks:
            return cast("ToolResult", self._mcp.call(name, restored))
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if self._loop is None or self._loop is here or not self._loop.is_running():
            msg = f"`{alias}` cannot be called without `await` here: it would block the loop that answers it"
            hint = "use the framework's async call, or `dragoman.blocking.manager.McpManager`"
            raise DragomanError(msg, hint=hint)
        return asyncio.run_coroutine_threadsafe(self.call(alias, arguments), self._loop).result()

    def _refused(self, name: str) -> ToolResult:
        """Return the result for a tool that is not available."""
        error = self._view.unknown(name)
        return ToolResult(success=False, text=str(error), error=str(error), exception=error)
