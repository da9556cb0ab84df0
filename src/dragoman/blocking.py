"""McpManager without `await`, for scripts, notebooks and threads.

Everything runs in one background thread with its own event loop, which lives from `with` to its end; a method
hands its work over and waits. So it may be called from any thread, from many at once, and where a loop is
already running, as in a notebook. Ctrl-C takes back the call that it interrupts, and nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from dragoman.blocking_tools import ToolRegistry, ToolView
from dragoman.errors import DragomanError
from dragoman.manager import McpManager as AsyncManager
from dragoman.portal import Background, Portal, Pulled, in_thread, warn_of_open

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    from dragoman.config.profiles import Profile
    from dragoman.events import ConfigReloaded, Event
    from dragoman.model import (
        Handlers,
        HeaderProvider,
        Part,
        ProgressHandler,
        Prompt,
        Resource,
        ServerSpec,
        ServerStatus,
        Settings,
        ToolDef,
        ToolResult,
    )
    from dragoman.observe.calllog import CallLog
    from dragoman.observe.metrics import ServerMetrics
    from dragoman.pinboard import Changes
    from dragoman.spill import Spill
    from dragoman.tools.budget import Budget
    from dragoman.tools.registry import ToolRegistry as AsyncRegistry
    from dragoman.trust.pins import Trust
    from dragoman.trust.policy import Policy
    from dragoman.wishes import ChangeHandler, LogLevel


__all__ = ["McpManager", "ToolRegistry", "ToolView"]


class McpManager:
    """Every configured server, its tools and other offers, and the one road to them, without `await`."""

    def __init__(
        self,
        servers: Iterable[ServerSpec] | Settings,
        *,
        registry: AsyncRegistry | None = None,
        inputs: Mapping[str, str] | None = None,
        trust_project: bool = False,
        cache: Path | bool | None = True,
        handlers: Handlers | None = None,
        header_provider: HeaderProvider | None = None,
        policy: Policy | Mapping[str, Any] | list[Any] | None = None,
        call_log: CallLog | Path | bool | None = None,
        default_trust: Trust = "warn",
    ) -> None:
        """Take the servers in, without starting any; as for `dragoman.McpManager`.

        A plain function among the handlers runs in a thread of its own: it may ask a person, or call a tool.
        """
        self._adopt(
            AsyncManager(
                servers,
                registry=registry,
                inputs=inputs,
                trust_project=trust_project,
                cache=cache,
                handlers=_apart(handlers),
                header_provider=header_provider,
                policy=policy,
                call_log=call_log,
                default_trust=default_trust,
            )
        )

    @classmethod
    def from_config(
        cls,
        profile: str | Profile = "dragoman",
        *,
        root: str | Path | None = None,
        config: str | Path | None = None,
        trust_project: bool = False,
        registry: AsyncRegistry | None = None,
        inputs: Mapping[str, str] | None = None,
        cache: Path | bool | None = True,
        handlers: Handlers | None = None,
        header_provider: HeaderProvider | None = None,
        policy: Policy | Mapping[str, Any] | list[Any] | None = None,
        call_log: CallLog | Path | bool | None = None,
        default_trust: Trust = "warn",
    ) -> Self:
        """Make a manager of what the configuration files say; as for `dragoman.McpManager`."""
        made = cls.__new__(cls)
        made._adopt(  # noqa: SLF001 -- this is its class
            AsyncManager.from_config(
                profile,
                root=root,
                config=config,
                trust_project=trust_project,
                registry=registry,
                inputs=inputs,
                cache=cache,
                handlers=_apart(handlers),
                header_provider=header_provider,
                policy=policy,
                call_log=call_log,
                default_trust=default_trust,
            )
        )
        return made

    @classmethod
    def connect_all(
        cls,
        servers: Iterable[ServerSpec] | Settings,
        *,
        registry: AsyncRegistry | None = None,
        cache: Path | bool | None = True,
        trust_project: bool = False,
        policy: Policy | Mapping[str, Any] | list[Any] | None = None,
    ) -> Self:
        """Return a started manager once every server is ready or has failed once; later `shutdown()` it."""
        made = cls(servers, registry=registry, cache=cache, trust_project=trust_project, policy=policy)
        made._start()
        try:
            made.wait_ready()
        except BaseException:
            made.shutdown()
            raise
        return made

    def _adopt(self, mcp: AsyncManager) -> None:
        self._mcp = mcp
        self._thread = Background()
        self.registry = ToolRegistry(mcp.registry, self._thread)

    def _start(self) -> None:
        if self._thread.closed or self._thread.portal is not None:
            msg = "the manager is closed" if self._thread.closed else "the manager is already started"
            raise DragomanError(msg, hint="make a new one")
        self._thread.portal = Portal(self._mcp.shutdown)
        try:
            self._thread.run(self._mcp.__aenter__)
        except BaseException:
            self.shutdown()
            raise

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def __del__(self) -> None:
        thread: Background | None = getattr(self, "_thread", None)
        portal = thread.portal if thread is not None else None
        if portal is not None and portal.is_open:
            warn_of_open(self)
            portal.close_soon()

    @property
    def started(self) -> bool:
        """Whether it was entered, also if it is closed by now."""
        return self._mcp.started

    @property
    def settings(self) -> Settings:
        """Everything that the configuration says."""
        return self._mcp.settings

    @property
    def trust_project(self) -> bool:
        """Whether files that came with the project are trusted."""
        return self._mcp.trust_project

    def shutdown(self) -> None:
        """Stop every server and wait until all are gone; twice does no harm.

        In a process that was forked from the manager's, this does nothing.
        """
        self._thread.closed = True
        if self._thread.portal is not None:
            self._thread.portal.close()

    def close(self) -> None:
        """Do what `shutdown` does; for `contextlib.closing` and people who look for this name."""
        self.shutdown()

    def wait_ready(self, names: Iterable[str] | None = None, timeout: float | None = None) -> bool:
        """Wait until servers are ready or have failed; tell whether all are ready.

        Args:
            names: The servers to wait for; all that start by themselves unless given.
            timeout: Seconds; a server that is still connecting then counts as not ready.

        Raises:
            UnknownServerError: There is no server of that name.
        """
        return self._thread.run(lambda: self._mcp.wait_ready(names, timeout))

    def tools(self) -> list[ToolDef]:
        """Return the exposed tools of all servers, sorted by name."""
        return self._thread.read(self._mcp.tools)

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressHandler | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ToolResult:
        """Call a tool by its exposed name; a failed call is a result.

        Args:
            name: The exposed name, of a server's tool or a built-in one.
            arguments: What the tool takes.
            timeout: Seconds; the server's own `timeouts.call` unless given.
            on_progress: Given progress, total and message, in a thread of its own.
            headers: For a server behind a URL: sent with this call's requests, and with no other's.

        Raises:
            DragomanError: The manager is not started, or closed.
        """
        told = None if on_progress is None else in_thread(on_progress)
        return self._thread.run(
            lambda: self._mcp.call(name, arguments, timeout=timeout, on_progress=told, headers=headers)
        )

    def caller(
        self,
        *,
        mends: bool = False,
        budget: Budget | None = None,
        spill: Spill | None = None,
        registry: AsyncRegistry | None = None,
    ) -> Callable[..., ToolResult]:
        """Return what calls as `call` does, but by other rules; as for `dragoman.McpManager`."""
        run = self._mcp.caller(mends=mends, budget=budget, spill=spill, registry=registry)
        return lambda *args, **how: self._thread.run(lambda: run(*args, **how))

    def changes(self, name: str) -> Changes:
        """Return what a server offers that is not as it was pinned; empty until it was looked at.

        Its `fingerprint` approves exactly this: `approve(name, fingerprint=…)`.

        Raises:
            UnknownServerError: There is no server of that name.
        """
        return self._thread.read(lambda: self._mcp.changes(name))

    def approve(
        self,
        name: str,
        *,
        tools: Iterable[str] | None = None,
        in_project: bool = False,
        fingerprint: str | None = None,
    ) -> None:
        """Pin what a server offers, as the last `DefinitionsChanged` or `changes` told it.

        Args:
            name: The server.
            tools: Which of its tools, by the server's own names; everything unless given.
            in_project: Whether the project's `dragoman.lock` is written too, even if there is none yet.
            fingerprint: That of the event, or of `changes`, that was shown to a person. If the server offers
                something else by now, nothing is approved.

        Raises:
            UnknownServerError: There is no server of that name.
            DragomanError: It has listed nothing yet, it offers something else than what was shown, or a lock
                file cannot be written.
        """
        self._thread.run(
            lambda: self._mcp.approve(name, tools=tools, in_project=in_project, fingerprint=fingerprint)
        )

    def status(self) -> dict[str, ServerStatus]:
        """Return a reading of every server, by name; it starts nothing."""
        return self._thread.read(self._mcp.status)

    @property
    def call_log(self) -> CallLog | None:
        """What writes calls down, if that is wanted."""
        return self._mcp.call_log

    def metrics(self) -> dict[str, ServerMetrics]:
        """Return a reading of the calls and the life of every server, by name."""
        return self._thread.read(self._mcp.metrics)

    def logs(self, name: str, lines: int = 100) -> list[str]:
        """Return the last lines that a server wrote to its standard error, known secrets masked.

        Raises:
            UnknownServerError: There is no server of that name.
        """
        return self._thread.read(lambda: self._mcp.logs(name, lines))

    def events(self) -> Iterator[Event]:
        """Return what happens from now on, until the manager is shut down; `next` waits for it."""
        return Pulled(self._thread.read(self._mcp.events), self._thread)

    def restart(self, name: str) -> None:
        """Stop a server and start it anew; wait until it is ready or has failed.

        Raises:
            UnknownServerError: There is no server of that name.
        """
        self._thread.run(lambda: self._mcp.restart(name))

    def enable(self, name: str) -> None:
        """Switch a server on that was off; wait until it is ready or has failed.

        Raises:
            UnknownServerError: There is no server of that name.
        """
        self._thread.run(lambda: self._mcp.enable(name))

    def disable(self, name: str) -> None:
        """Switch a server off: it is stopped once its calls are done, and offers no tools any more.

        Raises:
            UnknownServerError: There is no server of that name.
        """
        self._thread.run(lambda: self._mcp.disable(name))

    def login(
        self,
        name: str,
        *,
        open_url: Callable[[str], Any] | None = None,
        paste: Callable[[], str] | None = None,
        on_refused: Callable[[str], Any] | None = None,
    ) -> None:
        """Have a person log in to a server, and wait until it is ready or has failed.

        Args:
            name: The server.
            open_url: Given the address that the person has to open.
            paste: Asks the person for the address that the browser ended at; for machines without a browser.
            on_refused: Told why what was pasted is of no use, before it is asked for again.

        Raises:
            AuthRequiredError: It was refused, or nobody logged in.
            ConfigError: It is no server that one logs in to.
        """
        shown = None if open_url is None else in_thread(open_url)
        asked = None if paste is None else in_thread(paste)
        self._thread.run(lambda: self._mcp.login(name, open_url=shown, paste=asked, on_refused=on_refused))

    def logout(self, name: str) -> bool:
        """Forget the login of a server; returns whether there was one."""
        return self._thread.run(lambda: self._mcp.logout(name))

    def add(self, spec: ServerSpec) -> None:
        """Take one more server in; wait until it is ready or has failed.

        Raises:
            InvalidSpecError: There is a server of that name already.
        """
        self._thread.run(lambda: self._mcp.add(spec))

    def remove(self, name: str) -> None:
        """Stop a server and forget it, with its tools.

        Raises:
            UnknownServerError: There is no server of that name.
        """
        self._thread.run(lambda: self._mcp.remove(name))

    def reload(self) -> ConfigReloaded:
        """Read the configuration again and apply the difference: unchanged servers are not touched.

        Raises:
            DragomanError: The manager was not made by `from_config`.
        """
        return self._thread.run(self._mcp.reload)

    def resources(self, server: str | None = None) -> list[Resource]:
        """List resources, then templates, by server and address."""
        return self._thread.run(lambda: self._mcp.resources(server))

    def prompts(self, server: str | None = None) -> list[Prompt]:
        """List prompts, by server and name."""
        return self._thread.run(lambda: self._mcp.prompts(server))

    def read(self, uri: str, server: str | None = None) -> list[Part]:
        """Read a resource.

        Raises:
            DragomanError: No connected server lists it, or it cannot be read.
        """
        return self._thread.run(lambda: self._mcp.read(uri, server))

    def prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, server: str
    ) -> list[dict[str, Any]]:
        """Get the messages of a prompt: role and content, as the server gives them."""
        return self._thread.run(lambda: self._mcp.prompt(name, arguments, server=server))

    def complete(self, ref: Mapping[str, str], argument: str, value: str, *, server: str) -> list[str]:
        """Propose values for an argument of a prompt (`{"name": …}`) or of a template (`{"uri": …}`)."""
        return self._thread.run(lambda: self._mcp.complete(ref, argument, value, server=server))

    def subscribe(
        self, uri: str, server: str | None = None, *, on_change: ChangeHandler | None = None
    ) -> None:
        """Be told of changes of a resource; as for `dragoman.McpManager`."""
        told = None if on_change is None else in_thread(on_change)
        self._thread.run(lambda: self._mcp.subscribe(uri, server, on_change=told))

    def unsubscribe(self, uri: str, server: str | None = None) -> None:
        """Be told no more of a resource, by that server or by any."""
        self._thread.run(lambda: self._mcp.unsubscribe(uri, server))

    def set_log_level(self, level: LogLevel, server: str | None = None) -> None:
        """Ask one server, or all, for log messages from a level on; they go to `Handlers.logging`."""
        self._thread.run(lambda: self._mcp.set_log_level(level, server))

    def set_roots(self, roots: Iterable[str], server: str | None = None) -> None:
        """Let one server, or all, look at other directories than before; as for `dragoman.McpManager`."""
        self._thread.run(lambda: self._mcp.set_roots(roots, server))

    def instructions(self) -> dict[str, str]:
        """Return what the connected servers say about their use, by server."""
        return self._thread.read(self._mcp.instructions)


def _apart(handlers: Handlers | None) -> Handlers | None:
    """Let the application's plain functions run beside the loop, which they would hold up."""
    if handlers is None:
        return None
    asked = {name: getattr(handlers, name) for name in ("sampling", "elicitation", "logging", "approval")}
    return replace(handlers, **{name: in_thread(one) for name, one in asked.items() if one is not None})
