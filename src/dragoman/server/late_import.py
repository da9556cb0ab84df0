"""Import heavy modules at their first use, in a thread and one at a time.

The SDK and the HTTP client take up to a second to import, which must not block the event loop. Their modules
import each other in cycles, and two threads that enter such a cycle at different modules get Python's
`_DeadlockError`. So every late import goes through here, under one lock.
"""

from __future__ import annotations

import asyncio
import threading
from importlib import import_module
from typing import Any

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
        found = _loaded[name] = import_module(name)
    return found
