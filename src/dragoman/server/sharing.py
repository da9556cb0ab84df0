"""Placeholder."""
from __future__ import annotations
from typing import Any
class SharedConnections:
    def status(self) -> list[dict[str, Any]]:
        return []
