"""Import heavy modules at their first use, in a thread and one at a time.

The SDK and the HTTP client take up to a second to import, which must not block the event loop. Their modules
import each other in cycles, and two threads that enter such a cycle at different modules get Python's
`_DeadlockError`. So every late import goes through here, under one lock.

We use the SDK's `ClientSession`, whose module imports what it needs. But every import of it first runs
`mcp/__init__.py`, which imports all of the SDK with its server and the web framework: 19 MiB, 594 modules
instead of 340, and 0.72 s of CPU instead of 0.63. So these packages run their `__init__.py` at the first use
of a name in it, which other programs in the process do not notice.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import nullcontext
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

ANYIO_BACKEND = "anyio._backends._asyncio"

_lock = threading.Lock()
_loaded: dict[str, Any] = {}
"""Modules whose import is complete; `sys.modules` also has those that are being imported."""


def is_loaded(name: str) -> bool:
    """Return whether a module was imported through here."""
    return name in _loaded


async def late_import_module(name: str) -> Any:
    """Return a module, imported in a thread at its first use; concurrent callers wait for that import."""
    if (found := _loaded.get(name)) is None:
        found = await asyncio.to_thread(_load, name)
    return found


def _load(name: str) -> Any:
    with _lock:
        for package in ("mcp", "mcp.client"):
            defer_package(package)
        found = import_module(name)
        if "anyio" in sys.modules:
            # anyio imports its backend at the first use, which would be on the event loop.
            import_module(ANYIO_BACKEND)
        _loaded[name] = found
    return found


class DeferredPackage(ModuleType):
    """A package whose `__init__.py` runs at the first use of a name that only it can define."""

    def __getattr__(self, name: str) -> Any:
        # Tools that look at all modules ask for special names: those must not import anything.
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)
        with _running:
            spec: Any = self.__spec__
            if self.__class__ is DeferredPackage and not spec.loader_state:
                spec.loader_state = "running"
                try:
                    spec.loader.exec_module(self)
                    self.__class__ = ModuleType  # pyright: ignore[reportAttributeAccessIssue]
                finally:
                    spec.loader_state = None
        return ModuleType.__getattribute__(self, name)


_running = threading.RLock()
"""Held while a package runs: other threads wait until it has all its names."""


def defer_package(name: str) -> None:
    """Put off running the `__init__.py` of a package; its modules can be imported before."""
    if name in sys.modules or (spec := find_spec(name)) is None or spec.submodule_search_locations is None:
        return
    package = module_from_spec(spec)
    package.__class__ = DeferredPackage
    if sys.modules.setdefault(name, package) is package and "." in name:
        parent, _, child = name.rpartition(".")
        setattr(sys.modules[parent], child, package)


def anyio_shield() -> AbstractContextManager[Any]:
    """Return a scope that keeps out anyio's cancellations, without importing anyio on the event loop.

    Before anyio's backend is imported, no scope of anyio can be around the caller.
    """
    backend = sys.modules.get(ANYIO_BACKEND)
    if backend is None or getattr(backend.__spec__, "_initializing", False):
        return nullcontext()
    import anyio

    return anyio.CancelScope(shield=True)
