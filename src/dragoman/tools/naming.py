"""Exposed names: how a server's tool is called in front of a model, and back.

The policy: a name is made from a template (`mcp_{server}_{tool}` unless the configuration says
otherwise) and written into a table together with the pair it stands for. The way back is a look-up in
that table. A name is never taken apart: `mcp_a_b_c` may be `b_c` of `a` or `c` of `a_b`, and only the
table knows. The first pair that takes a name keeps it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

DEFAULT_TEMPLATE = "mcp_{server}_{tool}"

_FIELD = re.compile(r"\{(server|tool)\}")


class Pair(NamedTuple):
    """What an exposed name stands for: a server of ours, and what that server calls the tool."""

    server: str
    tool: str


def expose(template: str, pair: Pair) -> str:
    """Return the exposed name of a tool; the values are put in as they are, in one pass."""
    return _FIELD.sub(lambda match: pair.server if match[1] == "server" else pair.tool, template)


class NameTable:
    """Exposed names and pairs, each way; both columns are unique."""

    def __init__(self) -> None:
        self._pairs: dict[str, Pair] = {}
        self._names: dict[Pair, str] = {}

    def add(self, name: str, pair: Pair) -> bool:
        """Write one line, unless the name or the pair is already there; tell whether it was written."""
        if name in self._pairs or pair in self._names:
            return False
        self._pairs[name] = pair
        self._names[pair] = name
        return True

    def discard(self, name: str) -> None:
        """Remove the line of that name, if there is one."""
        pair = self._pairs.pop(name, None)
        if pair is not None:
            del self._names[pair]

    def pair_of(self, name: str) -> Pair | None:
        """Return what an exposed name stands for."""
        return self._pairs.get(name)

    def name_of(self, pair: Pair) -> str | None:
        """Return the exposed name of a server's tool."""
        return self._names.get(pair)
