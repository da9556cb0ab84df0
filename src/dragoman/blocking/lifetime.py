"""The start and the end of a blocking manager, which `scripts/write_blocking.py` adds the methods to.

Everything runs in one background thread with its own event loop, which exists from the start to the shutdown.
A method submits its work to that thread and waits. So it can be called from any thread, from many at once,
and where a loop is already running, as in a notebook. Ctrl-C cancels only the call that it interrupts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from dragoman.blocking.loop_thread import BlockingRunner, LoopThread, in_thread, warn_of_open
from dragoman.blocking.tool import BlockingRemoteTool
from dragoman.errors import DragomanError
from dragoman.manager.manager import McpManager as AsyncMcpManager

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from types import TracebackType

    from dragoman.model import Handlers, ToolResult


class LoopManager(AsyncMcpManager):
    """A manager whose tools block: they are run from other threads, on the loop of the manager."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.runner = BlockingRunner()
        super().__init__(*args, **settings)

    def _tool_func(
        self, server: str, tool: str, execute: Callable[..., Awaitable[ToolResult]]
    ) -> Callable[..., Any]:
        def run(
            server: str, tool: str, arguments: Mapping[str, Any] | None, *, timeout: float | None = None
        ) -> ToolResult:
            return self.runner.run(lambda: execute(server, tool, arguments, timeout=timeout))

        return BlockingRemoteTool(server, tool, run).call


class OwnThread:
    """The thread of a program's manager, which starts and ends with it."""

    def __init__(self, mcp: AsyncMcpManager, runner: BlockingRunner) -> None:
        self._mcp = mcp
        self.runner = runner

    def start(self) -> None:
        """Start the thread and the manager."""
        if self.runner.closed or self.runner.loop_thread is not None:
            msg = "the manager is closed" if self.runner.closed else "the manager is already started"
            raise DragomanError(msg, hint="make a new one")
        self.runner.loop_thread = LoopThread(self._mcp.shutdown)
        try:
            self.runner.run(self._mcp.start)
        except BaseException:
            self.close()
            raise

    def enter(self) -> None:
        """Begin a `with` block."""
        self.start()

    def leave(self) -> None:
        """End a `with` block."""
        self.close()

    def close(self) -> None:
        """Shut the manager down, and join the thread."""
        self.runner.closed = True
        if self.runner.loop_thread is not None:
            self.runner.loop_thread.close()

    def abandon(self, manager: object) -> None:
        """Close without waiting, because the manager is garbage-collected."""
        loop_thread = self.runner.loop_thread
        if loop_thread is not None and loop_thread.is_open:
            warn_of_open(manager)
            loop_thread.close_soon()


class SharedThread:
    """The thread of the program, for the manager of a user."""

    def __init__(self, mcp: AsyncMcpManager, runner: BlockingRunner) -> None:
        self._mcp = mcp
        self.runner = runner

    def start(self) -> None:
        """Connect the servers that start by themselves."""
        self.runner.run(self._mcp.start)

    def enter(self) -> None:
        """Begin a `with` block."""
        self.runner.run(self._mcp.__aenter__)

    def leave(self) -> None:
        """End a `with` block."""
        self.runner.run(lambda: self._mcp.__aexit__(None, None, None))

    def close(self) -> None:
        """Disconnect the user."""
        if not self.runner.closed:
            self.runner.run(self._mcp.shutdown)

    def abandon(self, manager: object) -> None:
        """Leave the thread alone: it is the program's."""


class ManagerInThread:
    """A manager that runs in a thread: how it starts and ends."""

    def __init__(self, mcp: AsyncMcpManager, thread: OwnThread | SharedThread) -> None:
        self._async = mcp
        self._thread = thread
        self._runner = thread.runner

    @classmethod
    def _of(cls, mcp: LoopManager) -> Self:
        """Return a manager with a thread of its own."""
        made = cls.__new__(cls)
        ManagerInThread.__init__(made, mcp, OwnThread(mcp, mcp.runner))
        return made

    def _beside(self, mcp: AsyncMcpManager) -> Self:
        """Return the manager of a user in the same thread."""
        made = self.__new__(type(self))
        ManagerInThread.__init__(made, mcp, SharedThread(mcp, self._runner))
        return made

    @classmethod
    def _connected(cls, mcp: LoopManager) -> Self:
        """Return a started manager whose servers are ready or have failed."""
        made = cls._of(mcp)
        made.start()
        try:
            mcp.runner.run(mcp.wait_ready)
        except BaseException:
            made.shutdown()
            raise
        return made

    def __enter__(self) -> Self:
        self._thread.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.leave()

    def __del__(self) -> None:
        thread: OwnThread | SharedThread | None = getattr(self, "_thread", None)
        if thread is not None:
            thread.abandon(self)

    def start(self, names: Iterable[str] | None = None) -> None:
        """Start the manager, as `with` does; or begin to connect servers of a started one.

        Without names this starts the servers that start by themselves, waits for the required ones, and can
        be done once; call `shutdown()` later. With names it does not wait.

        Args:
            names: Servers to connect that are not connected: lazy ones, and at once those that wait to retry.

        Raises:
            ConnectError: A required server is not ready.
            UnknownServerError: No server has this name.
            DragomanError: The manager is started already, or closed.
        """
        if names is None:
            self._thread.start()
        else:
            self._runner.run(lambda: self._async.start(names))

    def shutdown(self) -> None:
        """Stop every server and wait until all have stopped; safe to call twice.

        In a forked child process, this does nothing.
        """
        self._thread.close()

    close = shutdown


def in_threads(handlers: Handlers | None) -> Handlers | None:
    """Return the handlers with plain functions run in threads, so that they do not block the loop."""
    if handlers is None:
        return None
    given = {name: getattr(handlers, name) for name in ("sampling", "elicitation", "logging", "approval")}
    return handlers.replace(**{name: in_thread(one) for name, one in given.items() if one is not None})
