"""Which of a server's tools are exposed.

The policy: rules are names or globs (`read_*`), matched case-sensitively against the name that the
server itself uses. Without an allow list every tool is allowed; an empty one allows none. A deny rule
wins over any allow rule.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def is_exposed(name: str, *, allowed: Iterable[str] | None = None, denied: Iterable[str] = ()) -> bool:
    """Tell whether a tool of that name may be shown to a model and called."""
    if _matches(name, denied):
        return False
    return allowed is None or _matches(name, allowed)


def _matches(name: str, rules: Iterable[str]) -> bool:
    # A name may itself hold `[` or `*`; written out in full it still has to match itself.
    return any(rule == name or fnmatchcase(name, rule) for rule in rules)
