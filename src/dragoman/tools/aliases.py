"""Aliases: what a tool, or a parameter of one, is called in front of an API that does not take its name.

The policy, for a set of names and the rule of an API; the set alone decides, never its order:

1. A legal name is its own alias. Names that differ in case only are different names: every API tells them
   apart.
2. Otherwise each illegal character becomes `_`, and a colon, which parts a server from its tool, `__`. If
   that lost no letter and no digit, fits the length and is claimed by nobody else, it is the alias.
3. Otherwise as much of that as fits, and sixteen hexadecimal digits of the name's SHA-256. The digits are
   made from the code points as they are, so that `é` written in one character or in two gives two aliases.
   Where even that is taken, the name is digested again with a number, in the order of the names.

So the alias of a tool changes when others come and go only if one of them wants the very same alias. Tools of
different servers never do: `naming` gives names that are alike to none of them.
"""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

DIGEST_CHARS = 16
"""So many that no server finds a name with the digest of another's."""

_LETTER_OR_UNDERSCORE = re.compile(r"[A-Za-z_]")


@dataclass(frozen=True)
class Rule:
    """What an API takes for a name."""

    characters: str
    """The legal ones, as they stand within the brackets of a regular expression."""
    longest: int
    starts_with_letter: bool = False
    """Whether the first character has to be a letter or an underscore."""

    @functools.cached_property
    def illegal(self) -> re.Pattern[str]:
        """Any character that is not legal."""
        return re.compile(f"[^{self.characters}]")

    def allows(self, name: str) -> bool:
        """Tell whether a name is legal as it is."""
        return (
            0 < len(name) <= self.longest
            and not self.illegal.search(name)
            and (not self.starts_with_letter or _LETTER_OR_UNDERSCORE.match(name) is not None)
        )


OPENAI = Rule("a-zA-Z0-9_-", 64)
ANTHROPIC = Rule("a-zA-Z0-9_-", 64)
GEMINI = Rule("a-zA-Z0-9_.:-", 128, starts_with_letter=True)
ANTHROPIC_PARAMETERS = Rule("a-zA-Z0-9_.-", 64)
GEMINI_PARAMETERS = Rule("a-zA-Z0-9_", 64, starts_with_letter=True)


def assign(names: Iterable[str], rule: Rule) -> dict[str, str]:
    """Return the alias of each name: legal, and never the same for two."""
    ordered = sorted(set(names))
    aliases = {name: name for name in ordered if rule.allows(name)}
    if len(aliases) == len(ordered):
        return aliases
    taken = set(aliases)
    rest: list[tuple[str, str]] = []
    wanted: dict[str, list[str]] = {}
    for name in ordered:
        if name in aliases:
            continue
        stem, is_faithful = _cleaned(name, rule)
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


def _cleaned(name: str, rule: Rule) -> tuple[str, bool]:
    """Return a name without illegal characters, and whether it still says all that the name said."""
    is_faithful = not any(character.isalnum() for character in rule.illegal.findall(name))
    stem = rule.illegal.sub(lambda match: "__" if match[0] == ":" else "_", name)
    if rule.starts_with_letter and not _LETTER_OR_UNDERSCORE.match(stem):
        stem = f"_{stem}"
    if not stem.strip("_.:-"):
        return "tool", False
    return stem, is_faithful


def _hashed(name: str, stem: str, rule: Rule, taken: set[str]) -> str:
    head = stem[: rule.longest - DIGEST_CHARS - 1]
    attempt = 0
    while True:
        text = f"{name}#{attempt}" if attempt else name
        # A lone surrogate is no text that can be encoded, and JSON may hold one.
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_CHARS]
        if (alias := f"{head}_{digest}") not in taken:
            return alias
        attempt += 1
