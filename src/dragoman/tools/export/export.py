"""Exports: all tools in the form of one API, with the tables that lead back from it.

The policy: a tool that an API cannot express is left out of that API's export and named with its reason; the
others are untouched by it. Tools are in the order of their exposed names, so that prompt caches hold. A tool
that did not change is not fitted again when others come and go. What a model reads is neutralised on the way.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, cast

from dragoman.struct import HIDDEN, Struct, field
from dragoman.tools.export.apis import APIS, model_api
from dragoman.tools.export.neutral import LONGEST, neutral_tool, neutralise
from dragoman.tools.export.schema import Fitted, SchemaChange, UnfitError
from dragoman.tools.names import assign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dragoman.model import JsonObject, ToolDef


class Export(Struct, kw_only=True):
    """All tools as one API takes them.

    It is kept and given out again until the tools change: what is in it is not to be written to.
    """

    api: str
    tools: list[JsonObject]
    """What goes into the request, sorted by exposed name."""
    names: Mapping[str, str]
    """What the model says, and the exposed name that stands for."""
    aliases: Mapping[str, str]
    """The same the other way."""
    changes: Mapping[str, Sequence[SchemaChange]]
    """By exposed name, what is not as the server said it, and why; tools without changes are not there."""
    left_out: Mapping[str, str]
    """Tools that cannot be expressed, by exposed name, and why."""
    parameters: Mapping[str, Mapping[str, str]]
    """By exposed name, parameters that have another name here: that name, and the server's."""
    _nullable: Annotated[Mapping[str, Sequence[tuple[str, ...]]], HIDDEN] = field(
        default_factory=dict[str, Any]
    )

    def restore(self, alias: str, arguments: Mapping[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Turn what a model called into what is to be called: the exposed name, and the server's arguments.

        An unknown name comes back unchanged: calling it gives the error.
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

    def __init__(self, api: str, *, strict: bool = False, longest: Mapping[str, int] | None = None) -> None:
        """Export for an API.

        Args:
            api: Which one.
            strict: Whether the API is to hold the model to the schemas.
            longest: By server, how many characters of a description a model is given.

        Raises:
            ValueError: Unknown API, or it has no strict mode.
        """
        self._api = api
        self._rule = model_api(api).names
        form = model_api(api).strict if strict else model_api(api).form
        if form is None:
            able = " and ".join(name for name in APIS if model_api(name).strict is not None)
            msg = f"`{api}` has no strict mode here: only {able} have one"
            raise ValueError(msg)
        self._form = form
        self._longest: Mapping[str, int] = {} if longest is None else longest
        self._tools: dict[str, ToolDef] = {}
        self._parts: dict[str, Fitted | str] = {}
        """Each tool as the API takes it, or why it cannot be expressed."""

    def export(self, tools: Iterable[ToolDef]) -> Export:
        """Return all tools, which are sorted, in the form of the API."""
        kept: dict[str, ToolDef] = {}
        parts: dict[str, Fitted | str] = {}
        for tool in tools:
            name = tool.name
            kept[name] = tool
            parts[name] = self._parts[name] if self._tools.get(name) is tool else self._fitted(tool)
        self._tools, self._parts = kept, parts
        # Those that are left out keep their aliases, so that no other tool ever answers to one of them.
        aliases = assign(kept, self._rule)
        shapes: list[JsonObject] = []
        exported: dict[str, str] = {}
        changes: dict[str, Sequence[SchemaChange]] = {}
        left_out: dict[str, str] = {}
        parameters: dict[str, Mapping[str, str]] = {}
        nullable: dict[str, Sequence[tuple[str, ...]]] = {}
        for name, part in parts.items():
            if isinstance(part, str):
                left_out[name] = part
                continue
            alias = exported[name] = aliases[name]
            shapes.append(self._form.shape(alias, part, kept[name]))
            if part.changes:
                changes[name] = tuple(part.changes)
            if part.renamed:
                parameters[name] = part.renamed
            if part.nullable:
                nullable[name] = part.nullable
        return Export(
            api=self._api,
            tools=shapes,
            names=MappingProxyType({alias: name for name, alias in exported.items()}),
            aliases=MappingProxyType(exported),
            changes=MappingProxyType(changes),
            left_out=MappingProxyType(left_out),
            parameters=MappingProxyType(parameters),
            _nullable=MappingProxyType(nullable),
        )

    def _fitted(self, tool: ToolDef) -> Fitted | str:
        try:
            shown, changes = neutral_tool(tool, self._longest.get(tool.server, LONGEST))
            fitted = self._form.fit(shown)
            if not fitted.is_harmless:
                neutralise(fitted)
        except UnfitError as exc:
            return str(exc)
        except RecursionError:
            # A default or an example may be deeper than any schema.
            return "a value in its input schema is nested too deep"
        if changes:
            fitted.changes = changes + (fitted.changes or [])
        return fitted


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
