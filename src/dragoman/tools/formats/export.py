"""Exports: all tools in the form of one API, with the tables that lead back from it.

The policy: a tool that an API cannot express is left out of that API's export and named with its reason; the
others are untouched by it. Tools are in the order of their exposed names, so that prompt caches hold. A tool
that did not change is not fitted again when others come and go. What a model reads is neutralised on the way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from dragoman.tools.aliases import ANTHROPIC, GEMINI, OPENAI, Rule, assign
from dragoman.tools.formats import ai_sdk, anthropic, gemini, openai
from dragoman.tools.formats.neutral import LONGEST, neutral_tool, neutralise
from dragoman.tools.formats.schema import Change, Fitted, UnfitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dragoman.model import JsonObject, ToolDef

Api: TypeAlias = Literal["openai", "responses", "anthropic", "gemini", "gemini-openapi", "ai-sdk"]
APIS: tuple[Api, ...] = ("openai", "responses", "anthropic", "gemini", "gemini-openapi", "ai-sdk")
"""`gemini` is the JSON Schema form, `gemini-openapi` the OpenAPI one."""
STRICT_APIS: frozenset[str] = frozenset({"openai", "responses"})

_RULES: dict[Api, Rule] = {
    "openai": OPENAI,
    "responses": OPENAI,
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
    "gemini-openapi": GEMINI,
    # The SDK hands names on to the provider, so they are legal for each.
    "ai-sdk": OPENAI,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """All tools as one API takes them.

    It is kept and given out again until the tools change: what is in it is not to be written to.
    """

    api: Api
    tools: list[JsonObject]
    """What goes into the request, sorted by exposed name."""
    names: Mapping[str, str]
    """What the model says, and the exposed name that stands for."""
    aliases: Mapping[str, str]
    """The same the other way."""
    changes: Mapping[str, Sequence[Change]]
    """By exposed name, what is not as the server said it, and why; tools without changes are not there."""
    left_out: Mapping[str, str]
    """Tools that cannot be expressed, by exposed name, and why."""
    parameters: Mapping[str, Mapping[str, str]]
    """By exposed name, parameters that have another name here: that name, and the server's."""
    _nullable: Mapping[str, Sequence[tuple[str, ...]]] = field(default_factory=dict[str, Any], repr=False)

    def restore(self, alias: str, arguments: Mapping[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Turn what a model called into what is to be called: the exposed name, and the server's arguments.

        A name that is in no table comes back as it is: whoever calls it then says what is wrong with it.
        """
        name = self.names.get(alias, alias)
        given = dict(arguments or {})
        renamed = self.parameters.get(name, {})
        restored = {renamed.get(key, key): value for key, value in given.items()}
        for path in self._nullable.get(name, ()):
            restored = _without_null(restored, path)
        return name, restored

    def only(self, keep: Callable[[str], bool]) -> Export:
        """Return the same for the tools whose exposed names are kept; aliases do not change."""
        aliases = {name: alias for name, alias in self.aliases.items() if keep(name)}
        return Export(
            api=self.api,
            tools=[tool for tool, name in zip(self.tools, self.aliases, strict=True) if name in aliases],
            names=MappingProxyType({alias: name for name, alias in aliases.items()}),
            aliases=MappingProxyType(aliases),
            changes=_kept(self.changes, keep),
            left_out=_kept(self.left_out, keep),
            parameters=_kept(self.parameters, keep),
            _nullable=_kept(self._nullable, keep),
        )


class Exporter:
    """Makes exports for one API, and remembers each tool's part until that tool changes."""

    def __init__(self, api: Api, *, strict: bool = False, longest: Mapping[str, int] | None = None) -> None:
        """Export for an API.

        Args:
            api: Which one.
            strict: Whether the API is to hold the model to the schemas.
            longest: By server, how many characters of a description a model is given.

        Raises:
            ValueError: There is no such API, or it has no strict mode.
        """
        if api not in _RULES:
            msg = f"there is no API `{api}`: use one of {', '.join(APIS)}"
            raise ValueError(msg)
        if strict and api not in STRICT_APIS:
            msg = f"`{api}` has no strict mode here: only {' and '.join(sorted(STRICT_APIS))} have one"
            raise ValueError(msg)
        self._api: Api = api
        self._strict = strict
        self._longest: Mapping[str, int] = {} if longest is None else longest
        self._kept: dict[str, tuple[ToolDef, Fitted | str]] = {}

    def export(self, tools: Iterable[ToolDef]) -> Export:
        """Return all tools, which are sorted, in the form of the API."""
        kept: dict[str, tuple[ToolDef, Fitted | str]] = {}
        for tool in tools:
            known = self._kept.get(tool.name)
            kept[tool.name] = known if known is not None and known[0] is tool else (tool, self._fitted(tool))
        self._kept = kept
        # Those that are left out keep their aliases, so that no other tool ever answers to one of them.
        aliases = assign(kept, _RULES[self._api])
        fitted = {name: (tool, part) for name, (tool, part) in kept.items() if isinstance(part, Fitted)}
        exported = {name: aliases[name] for name in fitted}
        return Export(
            api=self._api,
            tools=[self._shape(aliases[name], tool, part) for name, (tool, part) in fitted.items()],
            names=MappingProxyType({alias: name for name, alias in exported.items()}),
            aliases=MappingProxyType(exported),
            changes=_some({name: tuple(part.changes) for name, (_, part) in fitted.items()}),
            left_out=_some({name: part for name, (_, part) in kept.items() if isinstance(part, str)}),
            parameters=_some({name: part.renamed for name, (_, part) in fitted.items()}),
            _nullable=_some({name: part.nullable for name, (_, part) in fitted.items()}),
        )

    def _fitted(self, tool: ToolDef) -> Fitted | str:
        try:
            shown, changes = neutral_tool(tool, self._longest.get(tool.server, LONGEST))
            fitted = self._fit(shown)
            neutralise(fitted)
            fitted.changes[:0] = changes
        except UnfitError as exc:
            return str(exc)
        except RecursionError:
            # A default or an example may be deeper than any schema.
            return "a value in its input schema is nested too deep"
        return fitted

    def _fit(self, tool: ToolDef) -> Fitted:
        match self._api:
            case "openai":
                return openai.fit_chat(tool, strict=self._strict)
            case "responses":
                return openai.fit_responses(tool, strict=self._strict)
            case "anthropic":
                return anthropic.fit_messages(tool)
            case "gemini":
                return gemini.fit_json_schema(tool)
            case "gemini-openapi":
                return gemini.fit_openapi(tool)
            case "ai-sdk":
                return ai_sdk.fit_dynamic(tool)

    def _shape(self, alias: str, tool: ToolDef, fitted: Fitted) -> JsonObject:
        match self._api:
            case "openai":
                return openai.shape_chat(alias, fitted, strict=self._strict)
            case "responses":
                return openai.shape_responses(alias, fitted)
            case "anthropic":
                return anthropic.shape_messages(alias, fitted)
            case "gemini":
                return gemini.shape_json_schema(alias, fitted)
            case "gemini-openapi":
                return gemini.shape_openapi(alias, fitted)
            case "ai-sdk":
                return ai_sdk.shape_dynamic(alias, fitted, tool)


def _some(parts: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType({name: part for name, part in parts.items() if part})


def _kept(parts: Mapping[str, Any], keep: Callable[[str], bool]) -> Mapping[str, Any]:
    return MappingProxyType({name: part for name, part in parts.items() if keep(name)})


def _without_null(value: Any, path: tuple[str, ...]) -> Any:
    """Return a value without the null at the end of a path; what is on the way is copied."""
    step, *rest = path
    if step == "*" and isinstance(value, list):
        return [_without_null(item, tuple(rest)) if rest else item for item in cast("list[Any]", value)]
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    if step not in fields:
        return cast("Any", value)
    if rest:
        return {**fields, step: _without_null(fields[step], tuple(rest))}
    return {name: member for name, member in fields.items() if name != step or member is not None}
