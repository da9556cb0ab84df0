"""Some tools of a registry, for an agent that may use no others; and what both have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from dragoman.errors import UnknownToolError
from dragoman.suggesting import suggest
from dragoman.tools.filters import is_usable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dragoman.model import JsonObject, ToolDef
    from dragoman.tools.formats.export import Api, Export
    from dragoman.tools.registry import ToolRegistry

MAX_SAID = 10
"""Tools that a warning or an error names."""


class Exporting(ABC):
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


class ToolView(Exporting):
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
        """Return the error for a name that no tool in view has, or that several want."""
        seen = [tool for tool in self._registry.contenders(name) if self._shows(tool)]
        return ambiguous(name, seen) or unknown(name, self.suggest(name))

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


def unknown(name: str, near: list[str]) -> UnknownToolError:
    """Return the error for a name that no tool has."""
    hint = f"did you mean {', '.join(f'`{item}`' for item in near)}?" if near else ""
    return UnknownToolError(f"there is no tool `{name}`", tool=name, suggestions=near, hint=hint)


def ambiguous(name: str, tools: Sequence[ToolDef]) -> UnknownToolError | None:
    """Return the error for a name that several tools want, which says how each of them is called."""
    if not tools:
        return None
    names = [tool.name for tool in tools]
    shown = " or ".join(f"`{tool.name}` (server `{tool.server}`)" for tool in tools[:MAX_SAID])
    msg = f"`{name}` does not say which tool is meant: it is {shown}"
    hint = "call one of these by its whole name"
    return UnknownToolError(msg, tool=name, suggestions=names[:MAX_SAID], hint=hint)
