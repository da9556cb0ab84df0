"""Exposed names: the name of a server's tool for a model, and which tool a name refers to.

1. A name is made from a template (`mcp_{server}_{tool}` by default). It is mapped back with a table, never
   parsed: `mcp_a_b_c` may be `b_c` of `a` or `c` of `a_b`.
2. Names that could be confused count as the same: those that differ only in case, in Unicode composition, or
   in characters that a model API does not allow (`alike`).
3. A built-in tool keeps its name. A server's tool with the same name is left out; if names have no prefix
   (`{tool}`, as in the profile `otter`), it gets an unambiguous one.
4. If tools of several servers have the same name, none of them gets it: each gets an unambiguous name. It
   ends in a digest of the server and the tool, so it does not depend on the order of listings, and survives
   a restart.
5. A name that ends like an unambiguous one is not given to any other tool, so a server cannot claim it.
6. While the registry lives, a name of one server's tool is not given to another server: a model may still use
   it.
7. Aliases and unambiguous names spell Chinese out (`mcp_falv_chaxun_…`), if that is how a text was spelled
   when it was first seen; see `storage.spellings`.
8. With `collisions = "skip"` (profile `excelmanus`) the order of the configuration decides: the first server
   gets the name, and the tools of the others are left out.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import unicodedata
from collections import Counter
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from dragoman.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from dragoman.model import ToolDef


class Pair(NamedTuple):
    """A server and the name of its tool; a built-in tool has no server."""

    server: str
    tool: str


DIGEST_CHARS = 16
"""Long enough that a server cannot find a name with the digest of another's."""

_LETTER_OR_UNDERSCORE = re.compile(r"[A-Za-z_]")


class NameRule(Struct, dict=True):
    """The names that an API allows."""

    characters: str
    """The legal characters, as a character class of a regular expression."""
    longest: int
    starts_with_letter: bool = False
    """Whether the first character must be a letter or an underscore."""

    @functools.cached_property
    def illegal(self) -> re.Pattern[str]:
        """Any character that is not legal."""
        return re.compile(f"[^{self.characters}]")

    def allows_all(self, names: Collection[str]) -> bool:
        """Return whether all names are legal as they are, faster than one by one."""
        text = "".join(names)
        # Most names have letters, digits, `_` and `-` alone, and no pattern finds that out as fast.
        simple = text if self.illegal.search("-") else text.replace("-", "_")
        is_simple = simple.isascii() and f"_{simple}".isidentifier()
        return (
            (is_simple or not self.illegal.search(text))
            and all(names)
            and max(map(len, names), default=0) <= self.longest
            and (
                not self.starts_with_letter
                or all(map(_LETTER_OR_UNDERSCORE.match, {name[0] for name in names}))
            )
        )

    def allows(self, name: str) -> bool:
        """Return whether a name is legal as it is."""
        return (
            0 < len(name) <= self.longest
            and not self.illegal.search(name)
            and (not self.starts_with_letter or _LETTER_OR_UNDERSCORE.match(name) is not None)
        )


COMMON = NameRule("a-zA-Z0-9_-", 64)
"""What every model API takes behind the first character of a name."""
EVERY_API = NameRule("a-zA-Z0-9_-", 64, starts_with_letter=True)


_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+")


Spell: TypeAlias = "Callable[[Iterable[str]], Mapping[str, str]]"
"""Returns the spellings of Chinese texts in ASCII; an empty one if a text is not spelled out."""


class _Spelling:
    """How Chinese texts are spelled: the same in every registry of a program."""

    of: Spell | None = None


def use_spelling(spell: Spell) -> None:
    """Spell Chinese texts by a function from now on; it must give a text the same spelling every time."""
    _Spelling.of = staticmethod(spell)


def _spelled(names: Iterable[str]) -> dict[str, str]:
    """Return names with their Chinese texts spelled out."""
    listed = list(names)
    texts: set[str] = {text for name in listed for text in _HAN.findall(name)}
    if not texts or _Spelling.of is None:
        return dict(zip(listed, listed, strict=True))
    known = _Spelling.of(texts)
    return {name: _HAN.sub(lambda match: known.get(match[0]) or match[0], name) for name in listed}


def has_chinese(names: Iterable[str]) -> bool:
    """Return whether a name has Chinese text."""
    text = "\n".join(names)
    return not text.isascii() and _HAN.search(text) is not None


def learn_spelling(names: Iterable[str]) -> None:
    """Find out the spellings of names before they are needed: the first one takes long."""
    _spelled(names)


def assign(names: Iterable[str], rule: NameRule) -> dict[str, str]:
    """Return the alias of each name: legal, and never the same for two."""
    ordered = sorted(set(names))
    if rule.allows_all(ordered):
        return dict(zip(ordered, ordered, strict=True))
    aliases = {name: name for name in ordered if rule.allows(name)}
    taken = set(aliases)
    rest: list[tuple[str, str]] = []
    wanted: dict[str, list[str]] = {}
    for name, readable in _spelled(name for name in ordered if name not in aliases).items():
        stem, is_faithful = _cleaned(readable, rule)
        # Two texts may be spelled alike.
        is_faithful = is_faithful and readable == name
        rest.append((name, stem))
        if is_faithful and rule.allows(stem):
            wanted.setdefault(stem, []).append(name)
    for stem, claimants in wanted.items():
        if len(claimants) == 1 and stem not in taken:
            aliases[claimants[0]] = stem
            taken.add(stem)
    for name, stem in rest:
        if name not in aliases:
            aliases[name] = _hashed(name, stem, rule, taken)
            taken.add(aliases[name])
    return aliases


def alias_beside(name: str, rule: NameRule, taken: Iterable[str]) -> str:
    """Return the alias of one name beside others that are in use."""
    alias, others = assign([name], rule)[name], set(taken)
    return alias if alias not in others else _hashed(name, alias, rule, others)


def _cleaned(name: str, rule: NameRule) -> tuple[str, bool]:
    """Return a name without illegal characters, and whether nothing was lost."""
    is_faithful = not any(character.isalnum() for character in rule.illegal.findall(name))
    stem = rule.illegal.sub(lambda match: "__" if match[0] == ":" else "_", name)
    if rule.starts_with_letter and not _LETTER_OR_UNDERSCORE.match(stem):
        stem = f"_{stem}"
    if not stem.strip("_.:-"):
        return "tool", False
    return stem, is_faithful


def _hashed(name: str, stem: str, rule: NameRule, taken: set[str]) -> str:
    head = stem[: rule.longest - DIGEST_CHARS - 1]
    attempt = 0
    while True:
        text = f"{name}#{attempt}" if attempt else name
        # JSON may contain lone surrogates, which cannot be encoded.
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_CHARS]
        if (alias := f"{head}_{digest}") not in taken:
            return alias
        attempt += 1


MAX_ALIASES = 200_000
"""Aliases that are remembered; later ones are unknown outside their export."""


class AliasTable:
    """What every alias stood for that an export gave out: a model may still use an old one."""

    def __init__(self) -> None:
        self._first: dict[str, Pair] = {}
        self._other: dict[str, Pair] = {}
        """Another tool that the same alias stood for. One is enough to know that it is ambiguous."""

    def add(self, alias: str, tool: Pair) -> None:
        """Remember what an alias stands for in an export."""
        known = self._first.get(alias)
        if known is None:
            if len(self._first) < MAX_ALIASES:
                self._first[alias] = tool
        elif tool != known:
            self._other[alias] = tool

    def meanings(self, alias: str) -> tuple[Pair, ...]:
        """Return the tools that an alias stood for: more than one if it is ambiguous."""
        found = (self._first.get(alias), self._other.get(alias))
        return tuple(pair for pair in found if pair is not None)


MAX_OWNED = 20_000
"""Names that stay reserved for a server after its tools are gone."""

_QUALIFIER = re.compile(r"[:.]")
_FIELD = re.compile(r"\{(server|tool)\}")
_DIGEST = re.compile(rf"_[0-9a-f]{{{DIGEST_CHARS}}}")
_SEPARATOR = re.compile(r"[^\w-]", re.ASCII)


@functools.lru_cache(maxsize=256)
def around_tool(template: str, server: str) -> tuple[str, ...]:
    """Return the parts of an exposed name that a tool's own name joins; values are inserted unchanged."""
    parts = [""]
    # Every second piece is the name of a field.
    for number, piece in enumerate(_FIELD.split(template)):
        if number % 2 == 0:
            parts[-1] += piece
        elif piece == "server":
            parts[-1] += server
        else:
            parts.append("")
    return tuple(parts)


def names_server(template: str, server: str, name: str | Pair) -> bool:
    """Return whether a name can only be that of a tool of this server: by its prefix, or as `server:tool`."""
    if isinstance(name, Pair):
        return name.server == server
    if any(pair.server == server for pair in qualified(name)):
        return True
    prefix = around_tool(template, server)[0]
    return server in prefix and alike(name).startswith(alike(prefix))


def alike(name: str) -> str:
    """Return a key that is equal for names that could be confused."""
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
    """Return a name that no other tool can have; every model API allows it."""
    readable = wanted if pair.server in wanted else f"{pair.server}_{wanted}"
    stem = COMMON.illegal.sub("_", _spelled([readable])[readable])
    stem = "tool" if not stem.strip("_-") else stem if stem[0].isalpha() or stem[0] == "_" else f"_{stem}"
    return f"{stem[: COMMON.longest - DIGEST_CHARS - 1]}_{_digest(pair)}"


def is_reserved(pair: Pair, name: str) -> bool:
    """Return whether a name ends like the unambiguous name, or the hashed alias, of another tool."""
    end = name[-DIGEST_CHARS - 1 :].lower()
    return end[:1] == "_" and _DIGEST.fullmatch(end) is not None and end[1:] != _digest(pair)


def qualified(name: str) -> Iterator[Pair]:
    """Return each server and tool that `server:tool` or `server.tool` can mean; both parts may have dots."""
    for match in _QUALIFIER.finditer(name):
        if 0 < match.start() < len(name) - 1:
            yield Pair(name[: match.start()], name[match.end() :])


def _digest(pair: Pair) -> str:
    # As JSON, so that (`a`, `bc`) and (`ab`, `c`) differ, and lone surrogates can be encoded.
    return hashlib.sha256(json.dumps(pair).encode()).hexdigest()[:DIGEST_CHARS]


class Outcome(NamedTuple):
    """The name assigned to one tool."""

    name: str | None
    """The exposed name; `None` if the tool is left out."""
    taken_by: Pair | str = ""
    """The tool that has the name instead, if this tool is left out."""


def settle(
    wanted: Mapping[Pair, str],
    builtin: Collection[str] = (),
    *,
    owner: str | None = None,
    order: Sequence[str] | None = None,
) -> dict[Pair, Outcome]:
    """Assign names to tools whose preferred names are alike.

    Args:
        wanted: The tools and their preferred names.
        builtin: Similar names of built-in tools.
        owner: The server whose tool had such a name before, if any.
        order: The servers in the order of the configuration, if that decides.
    """
    # Without a prefix, clashes with built-in tools are to be expected: such a tool gets a prefix instead.
    found = {
        pair: Outcome(None, name) for pair, name in wanted.items() if name in builtin and name != pair.tool
    }
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
    """The preferred and assigned names of all tools."""

    def __init__(self) -> None:
        self.order: list[str] | None = None
        """The servers in the order of the configuration, if that decides."""
        self._wanted: dict[str, Pair | dict[Pair, str]] = {}
        """The tools that prefer a name, by `alike` key: nearly always one, else several and their names."""
        self._spelled: dict[str, str] = {}
        """The name that the one tool prefers, if it is not the key itself."""
        self._builtin: dict[str, set[str]] = {}
        self._owners: dict[str, str] = {}
        """The server whose tool had a name first, by `alike` key."""
        self._owned: dict[str, set[str]] = {}
        """The same keys by server: forgetting one server does not look at the others."""

    def add(self, pair: Pair, name: str) -> str:
        """Add a server's tool with its preferred name; return the key to settle."""
        key = alike(name)
        group = self._wanted.setdefault(key, pair)
        if group is pair:
            if name != key:
                self._spelled[key] = name
        elif isinstance(group, dict):
            group[pair] = name
        else:
            self._wanted[key] = {group: self._spelled.pop(key, key), pair: name}
        return key

    def discard(self, pair: Pair, name: str) -> str:
        """Remove a server's tool; return the key to settle."""
        key = alike(name)
        group = self._wanted[key]
        if isinstance(group, dict):
            del group[pair]
        if not isinstance(group, dict) or not group:
            del self._wanted[key]
            self._spelled.pop(key, None)
        return key

    def add_builtin(self, name: str) -> None:
        """Add the name of a built-in tool."""
        self._builtin.setdefault(alike(name), set()).add(name)

    def discard_builtin(self, name: str) -> None:
        """Remove the name of a built-in tool."""
        self._builtin[alike(name)].discard(name)

    def wanting(self, name: str) -> list[Pair]:
        """Return the tools that prefer this name or a similar one."""
        group = self._wanted.get(alike(name), ())
        return [group] if isinstance(group, Pair) else sorted(group)

    def contested(self) -> list[str]:
        """Return the keys of names that several tools prefer."""
        return [key for key, group in self._wanted.items() if isinstance(group, dict) and len(group) > 1]

    def settle_alone(self, key: str) -> Pair | None:
        """Return the tool that gets its preferred name because it alone wants one with this `alike` key."""
        pair = self._wanted.get(key)
        if not isinstance(pair, Pair) or self._builtin.get(key):
            return None
        owner = self._owners.get(key)
        if (owner is not None and owner != pair.server) or is_reserved(pair, self._spelled.get(key, key)):
            return None
        if owner is None:
            self._own(key, pair.server)
        return pair

    def settle(self, key: str) -> dict[Pair, Outcome]:
        """Assign the names with this `alike` key, and remember the owner."""
        group = self._wanted.get(key)
        if group is None:
            return {}
        if isinstance(group, Pair):
            group = {group: self._spelled.get(key, key)}
        outcomes = settle(group, self._builtin.get(key, ()), owner=self._owners.get(key), order=self.order)
        has = next((pair.server for pair, name in group.items() if outcomes[pair].name == name), None)
        if has is not None:
            self._own(key, has)
        return outcomes

    def _own(self, key: str, server: str) -> None:
        if key in self._owners or self.order is not None:
            return
        owned = self._owned.setdefault(server, set())
        if len(owned) < MAX_OWNED:
            self._owners[key] = server
            owned.add(key)

    def forget(self, server: str) -> None:
        """Release the names of a server's tools for other servers."""
        for key in self._owned.pop(server, ()):
            del self._owners[key]


def is_exposed(name: str, *, allowed: Iterable[str] | None = None, denied: Iterable[str] = ()) -> bool:
    """Return whether a spec exposes the tool with this name."""
    if _matches(name, denied):
        return False
    return allowed is None or _matches(name, allowed)


def is_usable(tool: ToolDef, *, allowed: Iterable[str] | None = None, denied: Iterable[str] = ()) -> bool:
    """Return whether an agent with these rules may see and call a tool."""
    is_remote = tool.source == "mcp"
    names = [tool.name, f"{tool.server}:{tool.own_name}"] if is_remote else [tool.name]
    if tool.transform is not None:
        # A tool does not escape a rule by a new name.
        names.append(f"{tool.server}:{tool.original_name}")
    if any(_matches(name, denied) for name in names):
        return False
    if allowed is None:
        return True
    if not is_remote:
        return _matches(tool.name, allowed)
    return any(_allows(rule, tool) if ":" in rule else _matches(tool.name, [rule]) for rule in allowed)


def _allows(rule: str, tool: ToolDef) -> bool:
    """Return whether a `server:tool` rule matches this tool."""
    parts = rule.split(":")
    splits = ((":".join(parts[:at]), ":".join(parts[at:])) for at in range(1, len(parts)))
    return any(_matches(tool.server, [server]) and _matches(tool.own_name, [own]) for server, own in splits)


def _matches(name: str, rules: Iterable[str]) -> bool:
    # A name may itself contain `[` or `*`; written in full it must still match itself.
    return any(rule == name or fnmatchcase(name, rule) for rule in rules)
