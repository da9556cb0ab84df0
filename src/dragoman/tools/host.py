"""A registry that the application has already: servers' tools are added to it and removed from it.

The application keeps its own registry with its own rules. It only has to have the two methods of
`HostRegistry`. What it raises is logged and costs one tool; the server goes on.
"""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any, Protocol

from dragoman.trust.sanitizing import for_log

if TYPE_CHECKING:
    from dragoman.model import ToolDef

logger = logging.getLogger("dragoman")

MAX_SHOWN = 200
"""Characters of a name in a log line."""
MAX_REASON = 500


class HostRegistry(Protocol):
    """What `registry=` of a manager accepts beside a `ToolRegistry`.

    Both methods are plain functions, and are called in the thread of the manager's event loop, so they must
    not wait. If it also has `__contains__`, a name that is taken is never passed to `register`.
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
        for name in ("register", "unregister"):
            method: object = getattr(host, name, None)
            if not callable(method) or inspect.iscoroutinefunction(method):
                kind = type(host).__name__
                msg = (
                    f"`{kind}` cannot be used as `registry`: it needs a plain method `{name}` (HostRegistry)"
                )
                raise TypeError(msg)
        self._host: Any = host
        self._can_look = hasattr(type(host), "__contains__")
        self._added: set[str] = set()

    def add(self, tool: ToolDef) -> bool:
        """Add a tool; return False, and log the reason, if the registry does not take it."""
        try:
            if self._can_look and tool.name in self._host:
                reason = "the name is taken in the application's registry"
            elif self._host.register(tool) is False:
                reason = "the application's registry refused it"
            else:
                self._added.add(tool.name)
                return True
        except Exception as exc:  # noqa: BLE001 -- the application's own code may raise anything
            reason = f"the application's registry raised {type(exc).__name__}: {exc}"
        own, server, name = (
            for_log(text, MAX_SHOWN) for text in (tool.original_name, tool.server, tool.name)
        )
        line = "tool `%s` of server `%s` is skipped: `%s`: %s"
        logger.warning(line, own, server, name, for_log(reason, MAX_REASON))
        return False

    def remove(self, name: str) -> None:
        """Remove a tool that was added, and nothing else; log what the registry raises."""
        if name not in self._added:
            return
        self._added.discard(name)
        try:
            self._host.unregister(name)
        except Exception:
            shown = for_log(name, MAX_SHOWN)
            logger.exception("the application's registry could not remove the tool `%s`", shown)
