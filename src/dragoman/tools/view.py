"""Views: the tools of a registry that one agent may use, and what registry and view have in common.

A view is live: it changes with its registry. It never calls a tool itself.
"""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, overload

from dragoman.errors import UnknownToolError
from dragoman.suggest import suggest
from dragoman.tools.names import Pair, is_usable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from dragoman.model import JsonObject, ToolDef
    from dragoman.tools.export.export import Export
    from dragoman.tools.registry import ToolRegistry

MAX_SAID = 10
"""Tools listed in a warning or an error."""


class ToolSet(ABC):
    """What a registry and a view have in common: names, and shortcuts for exports."""

    @abstractmethod
    def export(self, api: str, *, strict: bool = False) -> Export:
        """Return all tools in the form of a model API."""

    @abstractmethod
    def unknown(self, name: str) -> UnknownToolError:
        """Return the error for an unknown or ambiguous name."""

    @abstractmethod
    def get(self, name: str) -> ToolDef | None:
        """Return the tool of that exposed name."""

    @abstractmethod
    def find(self, name: str | Pair) -> ToolDef | None:
        """Return the tool that a call of this name reaches, without parsing the name.

        Args:
            name: An exposed name, which always wins, or any alias that an export has given out or would give
                out now; or a server and its tool.

        Returns:
            The tool; `None` if the name is unknown or ambiguous, for example because it stood for different
            tools in two exports.
        """

    @abstractmethod
    def __iter__(self) -> Iterator[ToolDef]:
        """Return the tools, sorted by exposed name."""

    @abstractmethod
    def _meanings(self, name: str) -> Iterator[Sequence[ToolDef]]:
        """Return the tools that a name can mean, the closest readings first."""

    @overload
    def resolve(self, name: str, *, server: str = "") -> ToolDef: ...

    @overload
    def resolve(self, name: str, alias: str, *, server: str = "") -> str | None: ...

    def resolve(self, name: str, alias: str | None = None, *, server: str = "") -> ToolDef | str | None:
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
        if alias is not None:
            return self.export(name).names.get(alias)
        if server:
            tool = self.find(Pair(server, name)) or self.get(name)
            if tool is not None and tool.server == server:
                return tool
            raise unmatched(name, self, server)
        for found in self._meanings(name):
            if len(found) > 1:
                raise ambiguous(name, found) or self.unknown(name)
            if found:
                return found[0]
        raise unmatched(name, self)

    def to_openai_schema(self, *, strict: bool = False) -> list[JsonObject]:
        """Return every tool, built-in and remote, as OpenAI's chat API wants functions."""
        return list(self.export("openai", strict=strict).tools)

    def to_openai(self, *, strict: bool = False) -> list[JsonObject]:
        """Same as `to_openai_schema`."""
        return self.to_openai_schema(strict=strict)

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


class ToolView(ToolSet):
    """The tools of a registry that one agent may see and call."""

    def __init__(
        self,
        registry: ToolRegistry,
        *,
        allow: Iterable[str] | None = None,
        deny: Iterable[str] = (),
        follows: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        """Make a view; `follows` returns `allow` and `deny` whenever a tool is looked for."""
        self.registry = registry
        """The registry that this is a view of."""
        self._allow = None if allow is None else _rules(allow)
        self._deny = _rules(deny)
        self._follows = follows
        self._exports: dict[tuple[str, bool], tuple[object, Export, Export]] = {}

    @property
    def allowed(self) -> Sequence[str] | None:
        """What is in view, as it is now: exposed names, `server:tool`, or globs of them; `None` for all."""
        return self._allow if self._follows is None else _rules(self._follows()["allow"])

    def get(self, name: str) -> ToolDef | None:
        """Return the tool of that exposed name, if it is in view."""
        tool = self.registry.get(name)
        return tool if tool is not None and self._shows(tool) else None

    def find(self, name: str | Pair) -> ToolDef | None:
        """Return the tool of that exposed name or alias, if it is in view."""
        tool = self.registry.find(name)
        return tool if tool is not None and self._shows(tool) else None

    def contenders(self, name: str) -> list[ToolDef]:
        """Return the tools in view that could be meant by an ambiguous name."""
        return [tool for tool in self.registry.contenders(name) if self._shows(tool)]

    def shown_name(self, name: str | Pair) -> str:
        """Return how errors call a tool that is not found."""
        return self.registry.shown_name(name)

    def suggest(self, name: str) -> list[str]:
        """Return the names in view that are most like a name."""
        return suggest(name, [tool.name for tool in self])

    def unknown(self, name: str) -> UnknownToolError:
        """Return the error for an unknown or ambiguous name."""
        return ambiguous(name, self.contenders(name)) or unknown(name, self.suggest(name))

    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> str:
        """Run a tool that is in view, by its exposed name or an alias, and return its result as a string.

        Raises:
            ToolExecutionError: The call failed; the subclass says why.
        """
        tool = self.get(name) or self.find(name)
        if tool is None:
            raise self.unknown(name)
        return await self.registry.call(tool.name, arguments, timeout=timeout)

    def export(self, api: str, *, strict: bool = False) -> Export:
        """Return the tools in view in the form of a model API; aliases are those of the registry."""
        whole = self.registry.export(api, strict=strict)
        rules = None if self._follows is None else self._follows()
        kept = self._exports.get((api, strict))
        if kept is None or kept[0] is not rules or kept[1] is not whole:
            kept = self._exports[api, strict] = (rules, whole, whole.only(lambda name: name in self))
        return kept[2]

    def __iter__(self) -> Iterator[ToolDef]:
        return (tool for tool in self.registry if self._shows(tool))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def _meanings(self, name: str) -> Iterator[Sequence[ToolDef]]:
        for found in self.registry._meanings(name):  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] -- of the same base class
            yield [tool for tool in found if self._shows(tool)]

    def _shows(self, tool: ToolDef) -> bool:
        if tool.meta and "model" not in tool.audience:
            return False
        if self._follows is not None:
            rules = self._follows()
            return is_usable(tool, allowed=_rules(rules["allow"]), denied=_rules(rules["deny"]))
        return is_usable(tool, allowed=self._allow, denied=self._deny)


def _rules(rules: Iterable[str]) -> tuple[str, ...]:
    # A single rule is easily passed without its list, and would be read as one rule per character.
    return (rules,) if isinstance(rules, str) else tuple(rules)


def unknown(name: str, near: list[str]) -> UnknownToolError:
    """Return the error for an unknown tool."""
    hint = f"did you mean {', '.join(f'`{item}`' for item in near)}?" if near else ""
    return UnknownToolError(f"unknown tool `{name}`", tool=name, suggestions=near, hint=hint)


def ambiguous(name: str, tools: Sequence[ToolDef]) -> UnknownToolError | None:
    """Return the error for an ambiguous name; it lists the full names of the tools."""
    if not tools:
        return None
    names = [tool.name for tool in tools]
    shown = " or ".join(f"`{tool.name}` (server `{tool.server}`)" for tool in tools[:MAX_SAID])
    msg = f"`{name}` is ambiguous: {shown}"
    return UnknownToolError(
        msg, tool=name, suggestions=names[:MAX_SAID], is_ambiguous=True, hint="use one of these full names"
    )


def unmatched(name: str, tools: Iterable[ToolDef], server: str = "") -> UnknownToolError:
    """Return the error for a name that a person typed and no tool has.

    Args:
        name: The name.
        tools: The tools of all servers, to suggest; those of `server` come first.
        server: The server that was named, if any.
    """
    every = list(tools)
    # The right name at the wrong server is likelier than a similar name at the right one.
    similar = [f"{tool.server}.{name}" for tool in every if tool.server and tool.own_name == name][:3]
    similar = similar or suggest(
        name, [tool.own_name for tool in every if server and tool.server == server], by_part=True
    )
    if not similar:
        proper = {_full_name(tool): tool.own_name for tool in every}
        longer = [*proper, *(tool.name for tool in every)]
        near = suggest(name, proper.values(), by_part=True) or suggest(name, longer)
        # A tool's own name may be ambiguous, so the full form is shown.
        full = [[long for long, short in proper.items() if short == one] or [one] for one in near]
        similar = list(dict.fromkeys(one for group in full for one in group))[:3]
    guess = f"did you mean {' or '.join(f'`{one}`' for one in similar)}?" if similar else ""
    msg = f"unknown tool `{name}` of server `{server}`" if server else f"unknown tool `{name}`"
    hint = guess or f"run `dragoman tools{f' {shlex.quote(server)}' if server else ''}` for a list"
    return UnknownToolError(msg, tool=name, server=server, suggestions=similar, hint=hint)


def _full_name(tool: ToolDef) -> str:
    return f"{tool.server}.{tool.own_name}" if tool.server else tool.name
