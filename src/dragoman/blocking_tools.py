"""The registry of tools and its views without `await`, as a manager of `dragoman.blocking` has them.

Reading and calling run in the manager's own thread, as everything of `dragoman.blocking` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dragoman.errors import UnknownToolError
    from dragoman.model import JsonObject, ToolDef
    from dragoman.portal import Background
    from dragoman.tools.formats.export import Api, Export
    from dragoman.tools.registry import Permit, RemoteCall, Settled
    from dragoman.tools.registry import ToolRegistry as AsyncRegistry
    from dragoman.tools.registry import ToolView as AsyncView


class _Tools:
    """What a registry and a view of it have in common; `call` waits."""

    def __init__(self, tools: AsyncRegistry | AsyncView, thread: Background) -> None:
        self._tools = tools
        self._thread = thread

    def get(self, name: str) -> ToolDef | None:
        """Return the tool of that exposed name."""
        return self._thread.read(lambda: self._tools.get(name))

    def suggest(self, name: str) -> list[str]:
        """Return the names nearest to one that does not exist."""
        return self._thread.read(lambda: self._tools.suggest(name))

    def unknown(self, name: str) -> UnknownToolError:
        """Return the error for a name that no tool has."""
        return self._thread.read(lambda: self._tools.unknown(name))

    def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> str:
        """Run a tool and return its result as a string.

        Raises:
            ToolExecutionError: Whatever went wrong; the subclass says what.
        """
        return self._thread.run(lambda: self._tools.call(name, arguments, timeout=timeout))

    def export(self, api: Api, *, strict: bool = False) -> Export:
        """Return all tools in the form of a model API, with the tables that lead back."""
        return self._thread.read(lambda: self._tools.export(api, strict=strict))

    def resolve(self, api: Api, alias: str) -> str | None:
        """Return the exposed name of the tool that a model of that API calls so."""
        return self._thread.read(lambda: self._tools.resolve(api, alias))

    def to_openai_schema(self, *, strict: bool = False) -> list[JsonObject]:
        """Return every tool, built-in and remote, as OpenAI's chat API wants functions."""
        return self._thread.read(lambda: self._tools.to_openai_schema(strict=strict))

    def to_responses(self, *, strict: bool = False) -> list[JsonObject]:
        """Return every tool as OpenAI's Responses API wants functions."""
        return self._thread.read(lambda: self._tools.to_responses(strict=strict))

    def to_anthropic(self) -> list[JsonObject]:
        """Return every tool as Anthropic's Messages API wants it."""
        return self._thread.read(self._tools.to_anthropic)

    def to_gemini(self, *, openapi: bool = False) -> list[JsonObject]:
        """Return every tool as a function declaration for Gemini, with JSON Schema or the OpenAPI subset."""
        return self._thread.read(lambda: self._tools.to_gemini(openapi=openapi))

    def to_ai_sdk(self) -> list[JsonObject]:
        """Return what `dynamicTool` of Vercel's AI SDK takes, for every tool."""
        return self._thread.read(self._tools.to_ai_sdk)

    def __iter__(self) -> Iterator[ToolDef]:
        return iter(self._thread.read(lambda: list(self._tools)))

    def __len__(self) -> int:
        return self._thread.read(lambda: len(self._tools))

    def __contains__(self, name: object) -> bool:
        return self._thread.read(lambda: name in self._tools)


class ToolView(_Tools):
    """Some tools of a registry: an agent that has it sees and calls no other."""


class ToolRegistry(_Tools):
    """The tools of a manager, built-in and remote, by their exposed names."""

    def __init__(self, registry: AsyncRegistry, thread: Background) -> None:
        super().__init__(registry, thread)
        self._registry = registry

    def register(self, tool: ToolDef, *, remote: RemoteCall | None = None) -> bool:
        """Add a tool; one whose name is taken is skipped with a warning."""
        return self._thread.read(lambda: self._registry.register(tool, remote=remote))

    def register_all(self, tools: Iterable[ToolDef], *, remote: RemoteCall | None = None) -> list[ToolDef]:
        """Add tools in one batch; return those that were added."""
        return self._thread.read(lambda: self._registry.register_all(tools, remote=remote))

    def unregister(self, name: str) -> None:
        """Remove a tool, if it is there."""
        self._thread.read(lambda: self._registry.unregister(name))

    def unregister_server(self, server: str) -> list[ToolDef]:
        """Remove all tools of a server; return them."""
        return self._thread.read(lambda: self._registry.unregister_server(server))

    def replace_server(
        self,
        server: str,
        tools: Iterable[ToolDef],
        *,
        remote: RemoteCall | None = None,
        withheld: Iterable[ToolDef] = (),
    ) -> Settled:
        """Let a server have these tools and no others."""
        return self._thread.read(
            lambda: self._registry.replace_server(server, tools, remote=remote, withheld=withheld)
        )

    def arrange(self, order: Iterable[str] | None) -> Settled:
        """Let the order of servers decide about names that several want; without it none has such a name."""
        return self._thread.read(lambda: self._registry.arrange(order))

    def forget(self, server: str) -> None:
        """Let others have the names that tools of a server had."""
        self._thread.read(lambda: self._registry.forget(server))

    def watch(self, permit: Permit) -> None:
        """Have every call of a built-in tool judged before it is made."""
        self._thread.read(lambda: self._registry.watch(permit))

    def wanted(self, server: str) -> list[ToolDef]:
        """Return a server's tools under the names that they want."""
        return self._thread.read(lambda: self._registry.wanted(server))

    def contenders(self, name: str) -> list[ToolDef]:
        """Return the tools that could be meant by a name that none of them has."""
        return self._thread.read(lambda: self._registry.contenders(name))

    def limit_descriptions(self, server: str, chars: int) -> None:
        """Give models no more than so many characters of a description from a server."""
        self._thread.read(lambda: self._registry.limit_descriptions(server, chars))

    def exposed_name(self, server: str, tool: str) -> str | None:
        """Return the exposed name of a server's tool."""
        return self._thread.read(lambda: self._registry.exposed_name(server, tool))

    def view(self, *, allow: Iterable[str] | None = None, deny: Iterable[str] = ()) -> ToolView:
        """Return the tools that an agent may use: a live view, which changes with the registry."""
        return ToolView(self._registry.view(allow=allow, deny=deny), self._thread)
