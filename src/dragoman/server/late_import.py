"""Import heavy modules at their first use, in a thread and one at a time.

The SDK and the HTTP client take up to a second to import, which must not block the event loop. Their modules
import each other in cycles, and two threads that enter such a cycle at different modules get Python's
`_DeadlockError`. So every late import goes through here, under one lock.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import nullcontext
from importlib import import_module
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
        found = import_module(name)
        if "anyio" in sys.modules:
            # anyio imports its backend at the first use, which would be on the event loop.
            import_module(ANYIO_BACKEND)
        _loaded[name] = found
    return found


def anyio_shield() -> AbstractContextManager[Any]:
    """Return a scope that keeps out anyio's cancellations, without importing anyio on the event loop.

    Before anyio's backend is imported, no scope of anyio can be around the caller.
    """
    backend = sys.modules.get(ANYIO_BACKEND)
    if backend is None or getattr(backend.__spec__, "_initializing", False):
        return nullcontext()
    import anyio

    return anyio.CancelScope(shield=True)
