"""What a server offers, raw: as it says now, or as it was listed last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dragoman.trust.redactor import Redactor


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """One server's offer."""

    tools: Sequence[Mapping[str, Any]]
    redactor: Redactor
    """Knows what nobody may see of it."""
    prompts: Sequence[Mapping[str, Any]] | None = None
    """`None` if they were not listed."""
    instructions: str | None = None
    """`None` if it was not asked."""
    version: str = ""
    """What the server says of itself, which need not be the version of its package."""
    useless: frozenset[str] = frozenset()
    """The tools that cannot be used, which are not remembered."""
    source: Literal["server", "cache"] = "server"
