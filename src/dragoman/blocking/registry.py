"""The registry of a blocking manager, and its views: the tools, and their calls without `await`.

Written by scripts/write_blocking.py from the async classes; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast, overload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from dragoman.blocking.loop_thread import BlockingRunner
    from dragoman.blocking.tool import ToolDef
    from dragoman.errors import UnknownToolError
    from dragoman.model import JsonObject
    from dragoman.model import ToolDef as AsyncToolDef
    from dragoman.tools.export.export import Export
    from dragoman.tools.names import Pair
    from dragoman.tools.registry import Permit, RemoteCall, Settled
    from dragoman.tools.registry import ToolRegistry as AsyncToolRegistry
    from dragoman.tools.view import ToolSet as AsyncToolSet
    from dragoman.tools.view import ToolView as AsyncToolView


class ToolSet:
    """What a registry and a view have in common: names, and shortcuts for exports."""

    def __init__(self, it: AsyncToolSet, runner: BlockingRunner) -> None:
        self._runner = runner
        self._async = it

    def export(self, api: str, *, strict: bool = False) -> Export:
        """Return all tools in the form of a model API."""
        return self._runner.read(lambda: self._async.export(api, strict=strict))

    def unknown(self, name: str) -> UnknownToolError:
        """Return the error for an unknown or ambiguous name."""
        return self._runner.read(lambda: self._async.unknown(name))

    def get(self, name: str) -> ToolDef | None:
        """Return the tool of that exposed name."""
        return cast("ToolDef | None", self._runner.read(lambda: self._async.get(name)))

    def find(self, name: str | Pair) -> ToolDef | None:
        """Return the tool that a call of this name reaches, without parsing the name.

        Args:
            name: An exposed name, which always wins, or any alias that an export has given out or would give
                out now; or a server and its tool.

        Returns:
            The tool; `None` if the name is unknown or ambiguous, for example because it stood for different
            tools in two exports.
        """
        return cast("ToolDef | None", self._runner.read(lambda: self._async.find(name)))

    def __iter__(self) -> Iterator[ToolDef]:
        """Return the tools, sorted by exposed name."""
        return iter(cast("list[ToolDef]", self._runner.read(lambda: list(self._async))))

    @overload
    def resolve(self, name: str, *, server: str = "") -> ToolDef: ...

    @overload
    def resolve(self, name: str, alias: str, *, server: str = "") -> str | None: ...

    def resolve(self, name: Any, alias: Any = None, *, server: Any = "") -> ToolDef | str | None:
        """Return the tool that a person means by a name.

        Tried in this order: the exposed name, an alias of any export, `server:tool` or `server.tool`, and the
        server's own name of a tool.

        Args:
            name: The name.
            alias: Deprecated: `resolve(api, alias)` returns the exposed name of an alias in one API.
            server: The server that has the tool; then the server's own name of the tool comes first.

        Raises:
            UnknownToolError: No tool has this name, or it can mean several.
        """
        return cast(
            "ToolDef | str | None", self._runner.read(lambda: self._async.resolve(name, alias, server=server))
        )

    def to_openai_schema(self, *, strict: bool = False) -> list[JsonObject]:
        """Return every tool, built-in and remote, as OpenAI's chat API wants functions."""
        return self._runner.read(lambda: self._async.to_openai_schema(strict=strict))

    def to_openai(self, *, strict: bool = False) -> list[JsonObject]:
        """Same as `to_openai_schema`."""
        return self._runner.read(lambda: self._async.to_openai(strict=strict))

    def to_responses(self, *, strict: bool = False) -> list[JsonObject]:
        """Return every tool as OpenAI's Responses API wants functions."""
        return self._runner.read(lambda: self._async.to_responses(strict=strict))

    def to_anthropic(self) -> list[JsonObject]:
        """Return every tool as Anthropic's Messages API wants it."""
        return self._runner.read(self._async.to_anthropic)

    def to_gemini(self, *, openapi: bool = False) -> list[JsonObject]:
        """Return every tool as a function declaration for Gemini, with JSON Schema or the OpenAPI subset."""
        return self._runner.read(lambda: self._async.to_gemini(openapi=openapi))

    def to_ai_sdk(self) -> list[JsonObject]:
        """Return what `dynamicTool` of Vercel's AI SDK takes, for every tool."""
        return self._runner.read(self._async.to_ai_sdk)


class ToolView(ToolSet):
    """The tools of a registry that one agent may see and call."""

    def __init__(self, it: AsyncToolView, runner: BlockingRunner) -> None:
        super().__init__(it, runner)
        self._async = it

    @property
    def allowed(self) -> Sequence[str] | None:
        """What is in view, as it is now: exposed names, `server:tool`, or globs of them; `None` for all."""
        return self._async.allowed

    def contenders(self, name: str) -> list[ToolDef]:
        """Return the tools in view that could be meant by an ambiguous name."""
        return cast("list[ToolDef]", self._runner.read(lambda: self._async.contenders(name)))

    def shown_name(self, name: str | Pair) -> str:
        """Return how errors call a tool that is not found."""
        return self._runner.read(lambda: self._async.shown_name(name))

    def suggest(self, name: str) -> list[str]:
        """Return the names in view that are most like a name."""
        return self._runner.read(lambda: self._async.suggest(name))

    def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> str:
        """Run a tool that is in view, by its exposed name or an alias, and return its result as a string.

        Raises:
            ToolExecutionError: The call failed; the subclass says why.
        """
        return self._runner.run(lambda: self._async.call(name, arguments, timeout=timeout))

    def __len__(self) -> int:
        return self._runner.read(self._async.__len__)

    def __contains__(self, name: object) -> bool:
        return self._runner.read(lambda: self._async.__contains__(name))


class ToolRegistry(ToolSet):
    """Tools by exposed name; iteration is sorted, so that prompt caches stay valid."""

    def __init__(self, it: AsyncToolRegistry, runner: BlockingRunner) -> None:
        super().__init__(it, runner)
        self._async = it

    def register(self, tool: AsyncToolDef, *, remote: RemoteCall | None = None) -> bool:
        """Add a tool.

        A built-in tool always keeps its name; a second one of the same name is skipped with a warning, and so
        is a server's tool with that name. If tools of several servers have the same name, none of them gets
        it; see `tools.names`.

        Args:
            tool: The tool; a built-in one has a `func`.
            remote: Calls a server's tool; its own `func` by default.

        Returns:
            Whether it was added, under that name or an unambiguous one.
        """
        return self._runner.read(lambda: self._async.register(tool, remote=remote))

    def register_all(
        self, tools: Iterable[AsyncToolDef], *, remote: RemoteCall | None = None
    ) -> list[ToolDef]:
        """Add tools in one batch; return those that were added, under their final names."""
        return cast(
            "list[ToolDef]", self._runner.read(lambda: self._async.register_all(tools, remote=remote))
        )

    def replace_server(
        self,
        server: str,
        tools: Iterable[AsyncToolDef],
        *,
        remote: RemoteCall | None = None,
        withheld: Iterable[AsyncToolDef] = (),
    ) -> Settled:
        """Replace all tools of a server; unchanged tools stay the same objects.

        Args:
            server: The server.
            tools: Its tools, under their preferred names.
            remote: Calls them.
            withheld: Tools that are not offered, but whose names stay reserved.
        """
        return self._runner.read(
            lambda: self._async.replace_server(server, tools, remote=remote, withheld=withheld)
        )

    def arrange(self, order: Iterable[str] | None) -> Settled:
        """Give ambiguous names to the first server in this order; without an order no tool gets them.

        Returns:
            The resulting changes.
        """
        return self._runner.read(lambda: self._async.arrange(order))

    def read_host(self) -> None:
        """Take over the tools that the application's own registry has now, as built-in ones."""
        self._runner.read(self._async.read_host)

    def watch(self, permit: Permit) -> None:
        """Check every call of a built-in tool with this function first."""
        self._runner.read(lambda: self._async.watch(permit))

    def unregister(self, name: str) -> None:
        """Remove a tool, if it is there."""
        self._runner.read(lambda: self._async.unregister(name))

    def unregister_server(self, server: str) -> list[ToolDef]:
        """Remove all tools of a server; return them."""
        return cast("list[ToolDef]", self._runner.read(lambda: self._async.unregister_server(server)))

    def forget(self, server: str) -> None:
        """Release the names of a server's tools for other servers."""
        self._runner.read(lambda: self._async.forget(server))

    def shown_name(self, name: str | Pair) -> str:
        """Return how errors call a tool that is not found."""
        return self._runner.read(lambda: self._async.shown_name(name))

    def exposed_name(self, server: str, tool: str) -> str | None:
        """Return the exposed name of a server's tool."""
        return self._runner.read(lambda: self._async.exposed_name(server, tool))

    def count(self, server: str) -> int:
        """Return how many tools of a server are offered."""
        return self._runner.read(lambda: self._async.count(server))

    def wanted(self, server: str) -> list[ToolDef]:
        """Return a server's tools under their preferred names."""
        return cast("list[ToolDef]", self._runner.read(lambda: self._async.wanted(server)))

    def contenders(self, name: str) -> list[ToolDef]:
        """Return the tools that could be meant by an ambiguous name."""
        return cast("list[ToolDef]", self._runner.read(lambda: self._async.contenders(name)))

    def suggest(self, name: str) -> list[str]:
        """Return the names that are most like an unknown name."""
        return self._runner.read(lambda: self._async.suggest(name))

    def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> str:
        """Run a tool by its exposed name, or an alias of an export, and return its result as a string.

        Raises:
            ToolExecutionError: The call failed; the subclass says why.
        """
        return self._runner.run(lambda: self._async.call(name, arguments, timeout=timeout))

    def limit_descriptions(self, server: str, chars: int) -> None:
        """Limit the length of descriptions from a server in exports."""
        self._runner.read(lambda: self._async.limit_descriptions(server, chars))

    def view(self, *, allow: Iterable[str] | None = None, deny: Iterable[str] = ()) -> ToolView:
        """Return the tools that an agent may use: a live view, which changes with the registry.

        Args:
            allow: Exposed names, or `server:tool` for a server's tools, or globs of them; all tools by
                default. If exposed names do not contain the server's name, use `server:tool`, since a server
                could otherwise choose a name on the list.
            deny: The same; these win.
        """
        return ToolView(self._runner.read(lambda: self._async.view(allow=allow, deny=deny)), self._runner)

    def __len__(self) -> int:
        return self._runner.read(self._async.__len__)

    def __contains__(self, name: object) -> bool:
        return self._runner.read(lambda: self._async.__contains__(name))
