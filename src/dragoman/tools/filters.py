"""Which of a server's tools are exposed, and which of all tools an agent may use.

The policy: rules are names or globs (`read_*`), matched case-sensitively. Without an allow list every tool is
allowed; an empty one allows none. A deny rule wins over any allow rule. A server's rules are about the names
that the server itself uses. An agent's are about exposed names, of built-in and remote tools alike, and about
`server:tool` for remote ones, so that `fs:*` is a whole server under any naming. A rule with a colon allows a
remote tool only by its server and its own name, each part by itself: a server that calls its tool `fs:read`
does not get in. Where a rule denies, either reading is enough.
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
    is_remote = tool.source == "mcp"
    whole = f"{tool.server}:{tool.original_name}" if is_remote else tool.name
    if _matches(tool.name, denied) or _matches(whole, denied):
        return False
    if allowed is None:
        return True
    if not is_remote:
        return _matches(tool.name, allowed)
    return any(_allows(rule, tool) if ":" in rule else _matches(tool.name, [rule]) for rule in allowed)


def _allows(rule: str, tool: ToolDef) -> bool:
    """Return whether a rule for a server and its tool, `server:tool`, is about this one."""
    parts = rule.split(":")
    splits = ((":".join(parts[:at]), ":".join(parts[at:])) for at in range(1, len(parts)))
    return any(
        _matches(tool.server, [server]) and _matches(tool.original_name, [own]) for server, own in splits
    )


def _matches(name: str, rules: Iterable[str]) -> bool:
    # A name may itself hold `[` or `*`; written out in full it still has to match itself.
    return any(rule == name or fnmatchcase(name, rule) for rule in rules)
