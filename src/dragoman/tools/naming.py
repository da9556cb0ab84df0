"""Exposed names: how a server's tool is called in front of a model, and which tool a name stands for.

The policy:

1. A name is made from a template (`mcp_{server}_{tool}` unless the configuration has another). The way back
   is a look-up in a table. A name is never taken apart: `mcp_a_b_c` may be `b_c` of `a` or `c` of `a_b`, and
   only the table knows.
2. Names that could be confused with each other count as one: those that differ in case, in the composition of
   their characters, or in characters that a model API does not take (`alike`).
3. A built-in tool keeps its name. A server's tool that wants the very same name is left out.
4. A name that tools of several servers want goes to none of them: each gets an unambiguous name of its own.
   It ends in a digest of the server and the tool, so it does not depend on who listed first, and is the same
   after a restart.
5. A name that ends like an unambiguous one is given to no other tool, so a server cannot occupy such a name.
6. A name that a tool of one server had goes to no other server while the registry lives: a model may still
   hold it.
7. Where the order of the configuration decides (profile `excelmanus`), the tool of the server that is
   configured first has the name, and the others are left out; who listed first does not matter.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dragoman.tools.aliases import DIGEST_CHARS, OPENAI

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

DEFAULT_TEMPLATE = "mcp_{server}_{tool}"
MAX_OWNED = 20_000
"""Names that are kept for one server after its tools are gone."""

_FIELD = re.compile(r"\{(server|tool)\}")
_DIGEST = re.compile(rf"_[0-9a-f]{{{DIGEST_CHARS}}}")
_SEPARATOR = re.compile(r"[^\w-]", re.ASCII)


class Pair(NamedTuple):
    """What an exposed name stands for: a server of ours, and what that server calls the tool."""

    server: str
    tool: str


def expose(template: str, pair: Pair) -> str:
    """Return the exposed name of a tool; the values are put in as they are, in one pass."""
    return _FIELD.sub(lambda match: pair.server if match[1] == "server" else pair.tool, template)


def alike(name: str) -> str:
    """Return what all names have in common that could be confused with this one."""
    if name.isascii():
        text = name.lower()
        if text.isidentifier():
            return text
    else:
        text = unicodedata.normalize("NFKC", name).casefold()
    text = text.replace(":", "__")
    if not text.isascii():
        # Letters of other scripts stay: two different words are not alike.
        text = "".join(char if char.isalnum() else _SEPARATOR.sub("_", char) for char in text)
    else:
        text = _SEPARATOR.sub("_", text)
    return text if text[:1].isalpha() or text.startswith("_") else f"_{text}"


def unambiguous(pair: Pair, wanted: str) -> str:
    """Return the name that no other tool can have; every model API takes it."""
    readable = wanted if pair.server in wanted else f"{pair.server}_{wanted}"
    stem = OPENAI.illegal.sub("_", readable)
    stem = "tool" if not stem.strip("_-") else stem if stem[0].isalpha() or stem[0] == "_" else f"_{stem}"
    return f"{stem[: OPENAI.longest - DIGEST_CHARS - 1]}_{_digest(pair)}"


def is_reserved(pair: Pair, name: str) -> bool:
    """Return whether a name ends like the unambiguous name, or the hashed alias, of another tool."""
    end = name[-DIGEST_CHARS - 1 :].lower()
    return end[:1] == "_" and _DIGEST.fullmatch(end) is not None and end[1:] != _digest(pair)


def _digest(pair: Pair) -> str:
    # As JSON: `a`, `bc` never have the digest of `ab`, `c`, and a lone surrogate can be encoded.
    return hashlib.sha256(json.dumps(pair).encode()).hexdigest()[:DIGEST_CHARS]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What becomes of one tool that wants a name."""

    name: str | None
    """The exposed name; `None` if the tool is left out."""
    taken_by: Pair | str = ""
    """Who has the name instead, where the tool is left out: another server's tool, or a built-in one."""


def settle(
    wanted: Mapping[Pair, str],
    builtin: Collection[str] = (),
    *,
    owner: str | None = None,
    order: Sequence[str] | None = None,
) -> dict[Pair, Outcome]:
    """Decide about names that are alike.

    Args:
        wanted: The tools, and the name that each of them wants.
        builtin: The names of built-in tools that are alike too.
        owner: The server whose tool had such a name before, if there was one.
        order: The servers in the order of the configuration, if that decides.
    """
    found = {pair: Outcome(None, name) for pair, name in wanted.items() if name in builtin}
    left = {pair: name for pair, name in wanted.items() if pair not in found}
    if order is not None:
        owner = None
        rank = {server: place for place, server in enumerate(order)}
        firsts: dict[str, Pair] = {}
        for pair in sorted(left, key=lambda pair: (rank.get(pair.server, len(rank)), pair)):
            first = firsts.setdefault(left[pair], pair)
            if first.server != pair.server:
                found[pair] = Outcome(None, first)
        left = {pair: name for pair, name in left.items() if pair not in found}
    servers = {pair.server for pair in left}
    if owner is not None:
        servers.add(owner)
    is_contested = bool(builtin) or len(servers) > 1
    times = Counter(left.values())
    for pair, name in left.items():
        free = not is_contested and times[name] == 1 and not is_reserved(pair, name)
        found[pair] = Outcome(name if free else unambiguous(pair, name))
    return found


class NameTable:
    """Who wants which name, and who has it."""

    def __init__(self) -> None:
        self.order: list[str] | None = None
        """The servers in the order of the configuration, if that decides."""
        self._wanted: dict[str, dict[Pair, str]] = {}
        """By what names are alike in, the tools that want such a name."""
        self._builtin: dict[str, set[str]] = {}
        self._owners: dict[str, str] = {}
        """By what names are alike in, the server whose tool had such a name first."""
        self._owned: Counter[str] = Counter()

    def add(self, pair: Pair, name: str) -> str:
        """Note that a server's tool wants a name; return what to settle."""
        key = alike(name)
        self._wanted.setdefault(key, {})[pair] = name
        return key

    def discard(self, pair: Pair, name: str) -> str:
        """Note that a server's tool is gone; return what to settle."""
        key = alike(name)
        group = self._wanted[key]
        del group[pair]
        if not group:
            del self._wanted[key]
        return key

    def add_builtin(self, name: str) -> None:
        """Note that a built-in tool has a name."""
        self._builtin.setdefault(alike(name), set()).add(name)

    def discard_builtin(self, name: str) -> None:
        """Note that a built-in tool is gone."""
        self._builtin[alike(name)].discard(name)

    def wanting(self, name: str) -> list[Pair]:
        """Return the tools that want a name, or one that is alike."""
        return sorted(self._wanted.get(alike(name), ()))

    def contested(self) -> list[str]:
        """Return what names are alike in that more than one tool wants."""
        return [key for key, group in self._wanted.items() if len(group) > 1]

    def settle(self, key: str) -> dict[Pair, Outcome]:
        """Decide about the names that are alike in something, and remember who has one."""
        group = self._wanted.get(key, {})
        builtin, owner = self._builtin.get(key, ()), self._owners.get(key)
        if len(group) == 1 and not builtin:
            # Nearly every tool is the only one to want its name.
            ((pair, name),) = group.items()
            if (owner is None or owner == pair.server) and not is_reserved(pair, name):
                self._own(key, pair.server)
                return {pair: Outcome(name)}
        outcomes = settle(group, builtin, owner=owner, order=self.order)
        has = next((pair.server for pair, name in group.items() if outcomes[pair].name == name), None)
        if has is not None:
            self._own(key, has)
        return outcomes

    def _own(self, key: str, server: str) -> None:
        if key not in self._owners and self.order is None and self._owned[server] < MAX_OWNED:
            self._owners[key] = server
            self._owned[server] += 1

    def forget(self, server: str) -> None:
        """Let others have the names that tools of a server had."""
        self._owners = {key: owner for key, owner in self._owners.items() if owner != server}
        del self._owned[server]
