"""The registry of a blocking manager, and its views: the tools, and their calls without `await`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast, overload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dragoman.blocking.loop_thread import BlockingRunner
    from dragoman.errors import UnknownToolError
    from dragoman.model import JsonObject, ToolResult
    from dragoman.model import ToolDef as AsyncTool
    from dragoman.tools.export.export import Export
    from dragoman.tools.names import Pair
    from dragoman.tools.registry import Permit, RemoteCall, Settled
    from dragoman.tools.registry import ToolRegistry as AsyncRegistry
    from dragoman.tools.view import ToolView as AsyncView

    class ToolDef(AsyncTool):
        """A tool of a blocking manager, as type checkers see it."""

        def execute(  # pyright: ignore[reportIncompatibleMethodOverride] -- nothing is awaited here
            self, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
        ) -> ToolResult:
            """Run the tool; a failed call is a result."""
            ...

else:
    from dragoman.model import ToolDef

__all__ = ["ToolDef", "ToolRegistry", "ToolView"]


class _Tools:
    """The common methods of a registry and a view of it."""

    def __init__(self, tools: AsyncRegistry | AsyncView, runner: BlockingRunner) -> None:
        self._tools = tools
        self._runner = runner

    def get(self, name: str) -> ToolDef | None:
        """Return the tool with this exposed name."""
        return cast("ToolDef | None", self._runner.read(lambda: self._tools.get(name)))

    def suggest(self, name: str) -> list[str]:
        """Return the names most similar to an unknown one."""
        return self._runner.read(lambda: self._tools.suggest(name))

    def unknown(self, name: str) -> UnknownToolError:
        """Return the error for an unknown name."""
        return self._runner.read(lambda: self._tools.unknown(name))

    def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> str:
        """Run a tool by its exposed name, or an alias of an export, and return its result as a string.

        Raises:
            ToolExecutionError: The call failed; the subclass says how.
        """
        return self._runner.run(lambda: self._tools.call(name, arguments, timeout=timeout))

    def export(self, api: str, *, strict: bool = False) -> Export:
        """Return all tools in the form of a model API, with the tables to map names back."""
        return self._runner.read(lambda: self._tools.export(api, strict=strict))

    def find(self, name: str | Pair) -> ToolDef | None:
        """Return the tool that a call of this name reaches: by its exposed name, or an alias of an export."""
        return cast("ToolDef | None", self._runner.read(lambda: self._tools.find(name)))

    def contenders(self, name: str) -> list[ToolDef]:
        """Return the tools that ask for a name that none of them got."""
        return cast("list[ToolDef]", self._runner.read(lambda: self._tools.contenders(name)))

    def shown_name(self, name: str | Pair) -> str:
        """Return how errors call a tool that is not found."""
        return self._runner.read(lambda: self._tools.shown_name(name))

    @overload
    def resolve(self, name: str) -> ToolDef: ...

    @overload
    def resolve(self, name: str, alias: str) -> str | None: ...

    def resolve(self, name: Any, alias: str | None = None) -> ToolDef | str | None:
        """Return the tool that a person means by a name; as for `dragoman.ToolRegistry`.

        Raises:
            UnknownToolError: No tool has this name, or it can mean several.
        """
        if alias is not None:
            return self._runner.read(lambda: self._tools.resolve(name, alias))
        return cast("ToolDef", self._runner.read(lambda: self._tools.resolve(name)))

    def to_openai_schema(self, *, strict: bool = False) -> list[JsonObject]:
        """Return every tool, built-in and remote, as functions for OpenAI's chat API."""
        return self._runner.read(lambda: self._tools.to_openai_schema(strict=strict))

    def to_openai(self, *, strict: bool = False) -> list[JsonObject]:
        """Same as `to_openai_schema`."""
        return self.to_openai_schema(strict=strict)

    def to_responses(self, *, strict: bool = False) -> list[JsonObject]:
        """Return every tool as functions for OpenAI's Responses API."""
        return self._runner.read(lambda: self._tools.to_responses(strict=strict))

    def to_anthropic(self) -> list[JsonObject]:
        """Return every tool for Anthropic's Messages API."""
        return self._runner.read(self._tools.to_anthropic)

    def to_gemini(self, *, openapi: bool = False) -> list[JsonObject]:
        """Return every tool as a function declaration for Gemini, with JSON Schema or the OpenAPI subset."""
        return self._runner.read(lambda: self._tools.to_gemini(openapi=openapi))

    def to_ai_sdk(self) -> list[JsonObject]:
        """Return every tool as arguments for `dynamicTool` of Vercel's AI SDK."""
        return self._runner.read(self._tools.to_ai_sdk)

    def __iter__(self) -> Iterator[ToolDef]:
        return iter(cast("list[ToolDef]", self._runner.read(lambda: list(self._tools))))

    def __len__(self) -> int:
        return self._runner.read(lambda: len(self._tools))

    def __contains__(self, name: object) -> bool:
        return self._runner.read(lambda: name in self._tools)


class ToolView(_Tools):
    """Some tools of a registry; an agent that gets it can use only these."""

    def __init__(self, view: AsyncView, runner: BlockingRunner) -> None:
        super().__init__(view, runner)
        self.async_view = view
        """The view that this one wraps."""


class ToolRegistry(_Tools):
    """The tools of a manager, built-in and remote, by their exposed names."""

    def __init__(self, registry: AsyncRegistry, runner: BlockingRunner) -> None:
        super().__init__(registry, runner)
        self._registry = registry

    def register(self, tool: AsyncTool, *, remote: RemoteCall | None = None) -> bool:
        """Add a tool; if its name is taken, skip it with a warning."""
        return self._runner.read(lambda: self._registry.register(tool, remote=remote))

    def register_all(
        self, tools: Iterable[AsyncTool], *, remote: RemoteCall | None = None
    ) -> list[AsyncTool]:
        """Add tools in one batch; return those that were added."""
        return self._runner.read(lambda: self._registry.register_all(tools, remote=remote))

    def unregister(self, name: str) -> None:
        """Remove a tool, if it exists."""
        self._runner.read(lambda: self._registry.unregister(name))

    def unregister_server(self, server: str) -> list[AsyncTool]:
        """Remove all tools of a server; return them."""
        return self._runner.read(lambda: self._registry.unregister_server(server))

    def replace_server(
        self,
        server: str,
        tools: Iterable[AsyncTool],
        *,
        remote: RemoteCall | None = None,
        withheld: Iterable[AsyncTool] = (),
    ) -> Settled:
        """Replace all tools of a server."""
        return self._runner.read(
            lambda: self._registry.replace_server(server, tools, remote=remote, withheld=withheld)
        )

    def arrange(self, order: Iterable[str] | None) -> Settled:
        """Give names that several servers ask for to the first in `order`; without an order, to none."""
        return self._runner.read(lambda: self._registry.arrange(order))

    def forget(self, server: str) -> None:
        """Release the names of a server's tools."""
        self._runner.read(lambda: self._registry.forget(server))

    def read_host(self) -> None:
        """Take over the tools that the application's own registry has now, as built-in ones."""
        self._runner.read(self._registry.read_host)

    def watch(self, permit: Permit) -> None:
        """Check every call of a built-in tool with `permit` first."""
        self._runner.read(lambda: self._registry.watch(permit))

    def wanted(self, server: str) -> list[AsyncTool]:
        """Return a server's tools under the names that they ask for."""
        return self._runner.read(lambda: self._registry.wanted(server))

    def limit_descriptions(self, server: str, chars: int) -> None:
        """Limit the length of a server's descriptions for models."""
        self._runner.read(lambda: self._registry.limit_descriptions(server, chars))

    def count(self, server: str) -> int:
        """Return how many tools of a server are offered."""
        return self._runner.read(lambda: self._registry.count(server))

    def exposed_name(self, server: str, tool: str) -> str | None:
        """Return the exposed name of a server's tool."""
        return self._runner.read(lambda: self._registry.exposed_name(server, tool))

    def view(self, *, allow: Iterable[str] | None = None, deny: Iterable[str] = ()) -> ToolView:
        """Return a live view with the tools that an agent may use."""
        return ToolView(self._registry.view(allow=allow, deny=deny), self._runner)
