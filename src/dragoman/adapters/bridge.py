"""What every adapter stands on: the tools under names that any model's API takes, and the way back to a call.

Built-in and remote tools alike go through the manager's `call`, so that arguments are checked, time-outs hold
and what happens is reported, whoever asks. A manager may be `dragoman.McpManager` or its blocking twin.
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
    from dragoman.tools.formats.export import Api, Export


class View(Protocol):
    """The tools that an agent may use."""

    def export(self, api: Api, *, strict: bool = False) -> Export:
        """Return them in the form of a model API."""
        ...

    def get(self, name: str) -> ToolDef | None:
        """Return one by its exposed name."""
        ...

    def unknown(self, name: str) -> UnknownToolError:
        """Return the error for a name that none of them has."""
        ...


class Registry(Protocol):
    """All tools of a manager."""

    def view(self, *, allow: Iterable[str] | None = None, deny: Iterable[str] = ()) -> View:
        """Return some of them."""
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
    """Some tools of a manager, as one framework sees them."""

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
            api: Whose rules the names and schemas have to follow.
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
        """Return what there is now, by the name that the model says: the tool, and its form for the API."""
        export = self._view.export(self._api)
        found: dict[str, tuple[ToolDef, dict[str, Any]]] = {}
        for (name, alias), form in zip(export.aliases.items(), export.tools, strict=True):
            if (tool := self._view.get(name)) is not None:
                found[alias] = (tool, form)
        return found

    async def call(self, alias: str, arguments: Mapping[str, Any] | None) -> ToolResult:
        """Call a tool by the name that the model says."""
        name, restored = self._view.export(self._api).restore(alias, arguments)
        if self._view.get(name) is None:
            return self._refused(name)
        if self._blocks:
            return cast("ToolResult", await asyncio.to_thread(self._mcp.call, name, restored))
        return await cast("Awaitable[ToolResult]", self._mcp.call(name, restored))

    def call_and_wait(self, alias: str, arguments: Mapping[str, Any] | None) -> ToolResult:
        """Call a tool from code that does not await.

        Raises:
            DragomanError: The manager's loop runs in this very thread, or is not known.
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
            msg = f"`{alias}` cannot be called without `await` here: it would stop the loop that answers it"
            hint = "use the framework's async call, or `dragoman.blocking.McpManager`"
            raise DragomanError(msg, hint=hint)
        return asyncio.run_coroutine_threadsafe(self.call(alias, arguments), self._loop).result()

    def _refused(self, name: str) -> ToolResult:
        """Return what a call of a tool comes to that is not in view, or not any more."""
        error = self._view.unknown(name)
        return ToolResult(success=False, text=str(error), error=str(error), exception=error)
