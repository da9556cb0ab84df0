"""Which of a server's tools are exposed, and which of all tools an agent may use.

The policy: rules are names or globs (`read_*`), matched case-sensitively. Without an allow list every tool is
allowed; an empty one allows none. A deny rule wins over any allow rule. A server's rules are about the names
that the server itself uses. An agent's are about exposed names, of built-in and remote tools alike, and about
`server:tool` for remote ones, so that `fs:*` is a whole server under any naming.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.model import ToolDef


def is_exposed(name: str, *, allowed: Iterable[str] | None = None, denied: Iterable[str] = ()) -> bool:
    """Tell whether a tool of that name may be shown to a model and called."""
    if _matches(name, denied):
        return False
    return allowed is None or _matches(name, allowed)


def is_usable(tool: ToolDef, *, allowed: Iterable[str] | None = None, denied: Iterable[str] = ()) -> bool:
    """Tell whether an agent with these rules may see and call a tool."""
    names = [tool.name]
    if tool.source == "mcp":
        names.append(f"{tool.server}:{tool.original_name}")
    if any(_matches(name, denied) for name in names):
        return False
    return allowed is None or any(_matches(name, allowed) for name in names)


def _matches(name: str, rules: Iterable[str]) -> bool:
    # A name may itself hold `[` or `*`; written out in full it still has to match itself.
    return any(rule == name or fnmatchcase(name, rule) for rule in rules)
