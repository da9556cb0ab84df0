"""What servers offer: tools, resources, prompts and skills."""

from __future__ import annotations

import json
from collections.abc import (  # noqa: TC003 -- the hints of a noun can be resolved
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias, cast

from dragoman.errors import DragomanError
from dragoman.model.transforms import ToolTransform  # noqa: TC001 -- as above
from dragoman.struct import HIDDEN, Struct, field, force_setattr

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from dragoman.model.result import ToolResult


class Resource(Struct, kw_only=True):
    """Something that a server lets be read, or a template for many such things."""

    server: str
    uri: str
    """Its address; that of a template has `{…}` in it."""
    name: str = ""
    title: str = ""
    description: str = ""
    mime_type: str = ""
    size: int | None = None
    """Its size in bytes, if the server says."""
    is_template: bool = False
    annotations: Mapping[str, Any] = field(default_factory=dict[str, Any])
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Its `_meta`, as the server sent it."""


class SkillFile(Struct, kw_only=True):
    """A file of a skill, as its server lists it."""

    uri: str
    digest: str
    """`sha256:` and 64 hexadecimal digits."""
    size: int


class Skill(Struct, kw_only=True):
    """Instructions for agents that a server publishes; its identity is its server and its URI."""

    server: str
    uri: str
    """The URI of its `SKILL.md`."""
    name: str
    """A label; several skills may have the same."""
    description: str = ""
    frontmatter: Annotated[Mapping[str, Any], HIDDEN] = field(default_factory=dict[str, Any])
    files: Annotated[Sequence[SkillFile], HIDDEN] = ()
    is_dynamic: bool = False
    """Whether its files are made on demand and cannot be verified."""
    is_approved: bool = False
    """Whether the user has approved it with exactly these files."""
    problem: str = ""
    """Why it cannot be used; empty if it can."""

    @property
    def root(self) -> str:
        """The URI of its folder."""
        return self.uri.removesuffix("/SKILL.md")


class Prompt(Struct, kw_only=True):
    """A message, or several, that a server has prepared for a person to use."""

    server: str
    name: str
    title: str = ""
    description: str = ""
    arguments: Sequence[Mapping[str, Any]] = ()
    """What it takes: name, description, whether it is required."""


JsonObject: TypeAlias = dict[str, Any]


def json_object(value: object) -> JsonObject:
    """Return a value out of a JSON text if it is an object, and an empty one if it is something else."""
    return cast("JsonObject", value) if isinstance(value, dict) else {}


_SCHEMAS = ("input_schema", "output_schema")


class RemoteTool:
    """The way to a server's tool; its method `call` is the tool's `func`.

    It finds the tool by server and own name, so it follows the tool when its exposed name changes. A pickled
    or deep copy has lost its manager and says so when it is run.
    """

    __slots__ = ("_run", "server", "tool")

    def __init__(self, server: str, tool: str, run: Callable[..., Any] | None = None) -> None:
        """Run a tool with `run(server, tool, arguments, timeout=…)`, which may be async."""
        self.server = server
        self.tool = tool
        self._run = run

    def execute(self, arguments: Mapping[str, Any] | None, *, timeout: float | None = None) -> Any:
        """Return what `run` returns: a result, or a coroutine of one."""
        if self._run is None:
            msg = f"tool `{self.tool}` of server `{self.server}` is a copy without a manager"
            raise DragomanError(msg, hint="take the tool from `mcp.tools()`, or use `mcp.call`")
        return self._run(self.server, self.tool, arguments, timeout=timeout)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.server!r}, {self.tool!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.server, self.tool)


class AppliedTransform(Struct, kw_only=True):
    """How a tool of a server was changed by the configuration, and what its server is sent instead."""

    rules: ToolTransform
    original: ToolDef
    """The tool as its server has it."""
    name: str
    """Its name among the tools of its server."""
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    """The server's names of arguments, by the names that are shown, where these differ."""
    closed: frozenset[str] = frozenset()
    """The server's names of arguments that no caller may use."""
    folded: Annotated[frozenset[str], HIDDEN] = frozenset()
    """The same without what a server may ignore in a name: case and marks."""
    fixed: Annotated[Mapping[str, Any], HIDDEN] = field(default_factory=dict[str, Any])
    """What is always sent, by the server's names."""
    defaults: Annotated[Mapping[str, Any], HIDDEN] = field(default_factory=dict[str, Any])
    """What is sent where a caller gives nothing, by the server's names."""
    references: frozenset[str] = frozenset()
    """The arguments whose value has a `${…}`, by the server's names."""
    values: Annotated[JsonObject, HIDDEN] = field(default_factory=dict[str, Any])
    """The schema of the values."""


class ToolDef(Struct, kw_only=True):  # noqa: PLW1641 -- its schemas have no hash
    """One tool as an agent sees it."""

    name: str
    """The exposed name: what the model says."""
    description: str
    input_schema: JsonObject
    func: Callable[..., Awaitable[Any]] | Callable[..., Any] | None = None
    """Runs the tool; takes its arguments as keywords. A server's tool that a manager offers has one too: it
    calls the tool through the manager, returns the text, and raises `ToolExecutionError`. It is async, or
    blocks if the manager is from `dragoman.blocking`."""
    server: str = ""
    original_name: str = ""
    """What the server calls it; `own_name` is what everyone else does."""
    title: str = ""
    output_schema: JsonObject | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict[str, Any])
    source: Literal["builtin", "mcp"] = "mcp"
    """Where it runs: in this process (always, if it has a `func` and no `server`), or on its server."""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Its `_meta`, as the server sent it."""
    transform: Annotated[AppliedTransform | None, HIDDEN] = None
    """How the configuration has changed it, if it has."""
    _schemas: Annotated[str, HIDDEN] = ""
    """Both schemas as JSON, until one of them is asked for."""

    def __post_init__(self) -> None:
        if self.func is not None and not self.server:
            force_setattr(self, "source", "builtin")

    def execute(
        self, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> Coroutine[Any, Any, ToolResult]:
        """Run a server's tool like `McpManager.call`: by the same rules, and a failed call is a result.

        A tool of `dragoman.blocking` returns the result itself, without `await`.

        Args:
            arguments: The tool's arguments.
            timeout: Seconds; by default the server's `timeouts.call`.

        Raises:
            DragomanError: The manager is not started, or closed; or no manager offers the tool.
        """
        remote = getattr(self.func, "__self__", None)
        if isinstance(remote, RemoteTool):
            return remote.execute(arguments, timeout=timeout)
        if self.source == "builtin":
            msg, hint = f"`{self.name}` is a built-in tool", f"use `await mcp.call({self.name!r}, …)`"
        else:
            msg, hint = f"no manager offers the tool `{self.name}`", "take the tool from `mcp.tools()`"
        raise DragomanError(msg, hint=hint)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ToolDef) or other.__class__ is not self.__class__:
            return NotImplemented
        return _compared(self) == _compared(other)

    @classmethod
    def undecoded(cls, schemas: str, **fields: Any) -> Self:
        """Make a tool whose two schemas, a JSON array, are decoded at their first use."""
        tool = cls(input_schema={}, **fields)
        force_setattr(tool, "_schemas", schemas)
        tool.unset_schemas()
        return tool

    def unset_schemas(self) -> None:
        """Leave both schemas to `__getattr__`, which decodes them when one is asked for."""
        for name in _SCHEMAS:
            getattr(ToolDef, name).__delete__(self)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values for some fields."""
        return super(ToolDef, self._decoded()).replace(**changes)

    def __copy__(self) -> Self:
        return super(ToolDef, self._decoded()).replace()

    def __reduce__(self) -> str | tuple[Any, ...]:
        return super(ToolDef, self._decoded()).__reduce__()

    def _decoded(self) -> Self:
        # What `msgspec` does with a struct reads its fields without `__getattr__`.
        _ = self.input_schema, self.output_schema
        return self

    @property
    def own_name(self) -> str:
        """Its name without the server's: by the configuration, or as its server has it."""
        if self.transform is not None:
            return self.transform.name
        return self.original_name or self.name

    @property
    def audience(self) -> Sequence[str]:
        """Who may call it: a model, the server's own app, or both."""
        ui = self.meta.get("ui") if self.meta else None
        if not isinstance(ui, dict) or "visibility" not in ui:
            return ("model", "app")
        visibility: object = cast("dict[str, object]", ui)["visibility"]
        named = cast("list[object]", visibility) if isinstance(visibility, list) else []
        return tuple(one for one in ("model", "app") if one in named)

    @property
    def app_uri(self) -> str:
        """The `ui://` resource that shows its results; empty if it has none."""
        ui = self.meta.get("ui") if self.meta else None
        found = cast("dict[str, object]", ui).get("resourceUri") if isinstance(ui, dict) else None
        # The flat key is the older form.
        found = found or (self.meta.get("ui/resourceUri") if self.meta else None)
        return found if isinstance(found, str) and found.startswith("ui://") else ""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name not in _SCHEMAS:
                msg = f"{type(self).__name__!r} object has no attribute {name!r}"
                raise AttributeError(msg, name=name, obj=self)
            for key, schema in zip(_SCHEMAS, json.loads(self._schemas), strict=True):
                force_setattr(self, key, schema)
            return getattr(self, name)


def _compared(tool: ToolDef) -> tuple[object, ...]:
    """Return what makes two tools equal; the way to a server's tool is not part of its definition."""
    return (
        tool.name,
        tool.server,
        tool.original_name,
        tool.source,
        tool.description,
        tool.title,
        tool.meta,
        tool.input_schema,
        tool.output_schema,
        tool.annotations,
        tool.transform,
        tool.func if tool.source == "builtin" else None,
    )
