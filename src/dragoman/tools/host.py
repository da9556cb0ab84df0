"""A registry that the application has already: servers' tools are added to it and removed from it.

The application keeps its own registry with its own rules. It only has to have the two methods of
`HostRegistry`. What it raises is logged and costs one tool; the server goes on.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Mapping
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Protocol, cast

from dragoman.errors import ToolExecutionError
from dragoman.model import ToolDef
from dragoman.tools.names import EVERY_API, alias_beside
from dragoman.trust.sanitizing import for_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.tools.export.export import Exporter

logger = logging.getLogger("dragoman")

MAX_SHOWN = 200
"""Characters of a name in a log line."""
MAX_REASON = 500

_LOOKUPS = ("get", "get_tool")
_LISTINGS = ("get_all_tools", "list_tools", "all_tools", "tools")
_CALLS = ("call_tool", "call", "execute", "run_tool", "invoke")


class HostRegistry(Protocol):
    """What `registry=` of a manager accepts beside a `ToolRegistry`.

    Both methods are plain functions, and are called in the thread of the manager's event loop, so they must
    not wait. If it also has `__contains__`, `get`, `get_tool` or a way to list its tools, a name that is
    taken is never passed to `register`. Its own tools are listed by `tools` (a mapping, an iterable, or a
    function that returns one), `get_all_tools`, `list_tools`, `all_tools` or iteration: an agent may use
    those with a `name`, an `input_schema` and a `func`. If it has `tool_error`, an exception class, a failed
    call raises that one instead of `ToolExecutionError`.
    """

    def register(self, tool: ToolDef, /) -> object:
        """Add a server's tool; raise, or return `False`, if its name is taken."""
        ...

    def unregister(self, name: str, /) -> object:
        """Remove a tool that was added, because it is gone or is about to be added in a new version."""
        ...


class HostTools:
    """The tools of servers in an application's registry."""

    def __init__(self, host: HostRegistry) -> None:
        """Use an application's registry.

        Raises:
            TypeError: It has not the methods of `HostRegistry`, or they are async.
        """
        kind = type(host).__name__
        for name in ("register", "unregister"):
            method: object = getattr(host, name, None)
            if not callable(method) or inspect.iscoroutinefunction(method):
                msg = (
                    f"`{kind}` cannot be used as `registry`: it needs a plain method `{name}` (HostRegistry)"
                )
                raise TypeError(msg)
        self._host: Any = host
        self._contains = self._lookup()
        if self._contains is None:
            logger.warning(
                "`%s` cannot be asked whether a name is taken: unless its `register` raises, a server's tool "
                "may replace one of its own; give it `__contains__`, `get` or `get_tool`",
                kind,
            )
        error: object = getattr(host, "tool_error", None)
        self._error = error if isinstance(error, type) and issubclass(error, Exception) else None
        self._exporter: Exporter | None = None
        self._names: dict[str, str] = {}
        """The names that the added tools have there, by exposed name."""
        self._is_told = False

    def add(self, tool: ToolDef) -> str | None:
        """Add a tool under a name, and with a schema, that every model API takes.

        Returns:
            Its name there; `None`, after a warning with the reason, if the registry does not take it.
        """
        name = alias_beside(tool.name, EVERY_API, self._names.values())
        made = self._made(tool, name)
        try:
            if isinstance(made, str):
                reason = made
            elif self._contains is not None and self._contains(name):
                reason = "the name is taken in the application's registry"
            elif self._host.register(made) is False:
                reason = "the application's registry refused it"
            else:
                self._names[tool.name] = name
                self._tell_of_plain_calls(tool)
                return name
        except Exception as exc:  # noqa: BLE001 -- the application's own code may raise anything
            reason = f"the application's registry raised {type(exc).__name__}: {exc}"
        own, server, shown = (for_log(text, MAX_SHOWN) for text in (tool.own_name, tool.server, name))
        line = "tool `%s` of server `%s` is skipped: `%s`: %s"
        logger.warning(line, own, server, shown, for_log(reason, MAX_REASON))
        return None

    def remove(self, name: str) -> None:
        """Remove a tool that was added, by its exposed name; log what the registry raises."""
        hosted = self._names.pop(name, None)
        if hosted is None:
            return
        try:
            self._host.unregister(hosted)
        except Exception:
            shown = for_log(hosted, MAX_SHOWN)
            logger.exception("the application's registry could not remove the tool `%s`", shown)

    def builtin(self) -> dict[str, ToolDef]:
        """Return the application's own tools, by name, as far as its registry lists them."""
        ours = set(self._names.values())
        found: dict[str, ToolDef] = {}
        try:
            for item in self._listed():
                if (tool := _read(item)) is not None and tool.name not in ours:
                    found[tool.name] = tool
        except Exception as exc:  # noqa: BLE001 -- as above
            logger.warning(
                "the application's registry cannot list its tools: %s", for_log(str(exc), MAX_REASON)
            )
        return found

    def _made(self, tool: ToolDef, name: str) -> ToolDef | str:
        """Return a tool as the application gets it, or why no model API takes it."""
        from dragoman.tools.export.export import Exporter  # Only applications with a registry need it here.

        self._exporter = self._exporter or Exporter("openai")
        export = self._exporter.export([tool])
        if tool.name in export.left_out:
            return export.left_out[tool.name]
        shape = export.tools[0]["function"]
        func = tool.func if self._error is None or tool.func is None else _raising(tool.func, self._error)
        return tool.replace(
            name=name,
            description=shape.get("description", tool.description),
            input_schema=shape["parameters"],
            func=func,
        )

    def _lookup(self) -> Callable[[str], bool] | None:
        """Return what says whether the registry has a name."""
        host = self._host
        kind = cast("type[object]", type(host))
        if hasattr(kind, "__contains__"):
            return lambda name: name in host
        for method in (getattr(host, name, None) for name in _LOOKUPS):
            if callable(method) and not inspect.iscoroutinefunction(method):
                return partial(_is_found, method)
        if self._can_list():
            return lambda name: any(one == name for one in self._listed_names())
        return None

    def _can_list(self) -> bool:
        return any(_is_plain(getattr(self._host, name, None)) for name in _LISTINGS) or _iterates(self._host)

    def _listed(self) -> Iterable[object]:
        for name in _LISTINGS:
            member: object = getattr(self._host, name, None)
            if not _is_plain(member):
                continue
            found: object = member() if callable(member) else member
            if isinstance(found, Mapping):
                return list(cast("Mapping[str, object]", found).values())
            return list(cast("Iterable[object]", found)) if isinstance(found, Iterable) else ()
        return list(self._host) if _iterates(self._host) else ()

    def _listed_names(self) -> Iterable[object]:
        return (item if isinstance(item, str) else getattr(item, "name", None) for item in self._listed())

    def _tell_of_plain_calls(self, tool: ToolDef) -> None:
        """Warn, once, that a registry whose calls are plain functions gets tools that have to be awaited."""
        if self._is_told or not inspect.iscoroutinefunction(tool.func):
            return
        self._is_told = True
        methods = {name: getattr(self._host, name, None) for name in _CALLS}
        plain = [name for name, method in methods.items() if callable(method)]
        if plain and not any(inspect.iscoroutinefunction(methods[name]) for name in plain):
            logger.warning(
                "`%s.%s` is a plain function, and the tools of this manager are async: it gets a coroutine, "
                "which has to be awaited; use `dragoman.blocking.McpManager` if it does not await",
                *(type(self._host).__name__, plain[0]),
            )


def _iterates(host: object) -> bool:
    return hasattr(type(host), "__iter__")


def _is_plain(member: object) -> bool:
    return member is not None and not inspect.iscoroutinefunction(member)


def _is_found(look: Callable[[str], object], name: str) -> bool:
    try:
        return look(name) is not None
    except LookupError:
        return False


def _read(item: object) -> ToolDef | None:
    """Return a tool of the application; `None` if it has not what it takes to run it."""
    name, func = getattr(item, "name", None), getattr(item, "func", None)
    schema = getattr(item, "input_schema", None)
    if not isinstance(name, str) or not callable(func) or not isinstance(schema, Mapping):
        return None
    described = str(getattr(item, "description", None) or "")
    fields = dict(cast("Mapping[str, Any]", schema)) or {"type": "object"}
    return ToolDef(name=name, description=described, input_schema=fields, func=func)


def _raising(func: Callable[..., Any], error: type[Exception]) -> Callable[..., Any]:
    """Return a function whose failed calls raise the application's own exception."""
    if inspect.iscoroutinefunction(func):

        @wraps(func)
        async def wait(*given: Any, **arguments: Any) -> Any:
            try:
                return await func(*given, **arguments)
            except ToolExecutionError as exc:
                raise error(str(exc)) from exc

        return wait

    @wraps(func)
    def run(*given: Any, **arguments: Any) -> Any:
        try:
            return func(*given, **arguments)
        except ToolExecutionError as exc:
            raise error(str(exc)) from exc

    return run
