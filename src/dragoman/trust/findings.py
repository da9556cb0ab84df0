"""Advice about definitions that read as if they were meant to lead a model astray.

Nothing leaves the machine. These are heuristics: a finding is a reason to look, never to block, since a
clever text has none and an honest one may have one. Looked at is everything a model gets to read of a tool,
its schema's inner texts included, since a poisoned `enum` or `default` works as well as a description. Texts
are looked at without what is hidden in them, so that a zero-width space in a word does not save it.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from dragoman.trust.sanitize import for_log, for_model, hidden_in, look_alikes, odd_letters
from dragoman.trust.signs import BLOB, SIGNS, STEERING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dragoman.trust.signs import Kind

MAX_TEXT_CHARS = 20_000
MAX_TEXTS = 2_000
"""Of one definition."""
EXCERPT_CHARS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something to look at."""

    kind: Kind
    subject: str
    """The tool's or the prompt's name; empty for instructions."""
    field: str
    """Where it stands: `description`, `inputSchema/properties/path/description`."""
    excerpt: str
    """The place, harmless and short."""
    why: str

    def __str__(self) -> str:
        name = f"`{for_log(self.subject, 100)}`, " if self.subject else ""
        return f"{name}{for_log(self.field, 200)}: {self.why}: “{self.excerpt}”"


def inspect_tool(tool: Mapping[str, Any]) -> list[Finding]:
    """Look at a raw entry of a server's listing."""
    name = tool.get("name")
    subject = name if isinstance(name, str) else ""
    found = [
        finding
        for field, text in texts_of(tool)
        for finding in inspect_text(text, subject=subject, field=field)
    ]
    if odd := odd_letters(subject):
        found.append(
            Finding(kind="odd-name", subject=subject, field="name", excerpt=for_log(subject, 100), why=odd)
        )
    return found


def inspect_server(
    tools: Iterable[Mapping[str, Any]], *, prompts: Iterable[Mapping[str, Any]] = (), instructions: str = ""
) -> list[Finding]:
    """Look at everything that a server offers."""
    listed = list(tools)
    found = [finding for tool in listed for finding in inspect_tool(tool)]
    found += [finding for prompt in prompts for finding in inspect_tool(prompt)]
    found += inspect_text(instructions, field="instructions")
    return found + inspect_names(str(tool.get("name", "")) for tool in listed)


def inspect_names(names: Iterable[str], *, field: str = "name") -> list[Finding]:
    """Look for different names that look the same, of tools or of servers."""
    return [
        Finding(
            kind="look-alike",
            subject=group[1],
            field=field,
            excerpt=" / ".join(ascii(name)[1:-1] for name in group[:4])[:EXCERPT_CHARS],
            why="these names look the same and are not",
        )
        for group in look_alikes(names)
    ]


def inspect_text(text: str, *, subject: str = "", field: str = "description") -> list[Finding]:
    """Look at one text."""
    text = text[:MAX_TEXT_CHARS]
    found: list[Finding] = []

    def add(kind: Kind, excerpt: str, why: str) -> None:
        shown = for_log(excerpt, EXCERPT_CHARS)
        found.append(Finding(kind=kind, subject=subject, field=field, excerpt=shown, why=why))

    if hidden := hidden_in(text):
        add(
            "hidden-text",
            decoded(hidden) or "".join(hidden),
            f"it has {len(hidden)} characters that nobody sees",
        )
    if escape := STEERING.search(text):
        add("escape-sequence", text[escape.start() :], "it has control characters that steer a terminal")
    if blob := BLOB.search(text):
        add("encoded", blob[0], "it has a long piece of encoded data")
    plain = unicodedata.normalize("NFKC", for_model(text))
    # A line break does not end a sentence, and some signs stand at the beginning of a line.
    joined = " ".join(line.strip() for line in plain.split("\n"))
    for sign in SIGNS:
        if match := sign.pattern.search(joined) or ("\n" in plain and sign.pattern.search(plain)):
            start = max(0, match.start() - 10)
            before = match.string[start : match.start()]
            whole = before.partition(" ")[2] if start else before
            add(sign.kind, whole + match.string[match.start() : match.end() + 40], sign.why)
    return found


def decoded(hidden: Sequence[str]) -> str:
    """Return what tag characters spell, for the excerpt: each stands for a letter of ASCII."""
    letters = [chr(ord(letter) - 0xE0000) for letter in hidden if 0xE0020 <= ord(letter) <= 0xE007E]
    return "".join(letters)


def texts_of(definition: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield every text that a model gets to read of a definition, with its place; names of arguments too."""
    waiting: list[tuple[str, object]] = [
        (key, definition[key])
        for key in ("arguments", "annotations", "outputSchema", "inputSchema", "description", "title")
        if key in definition
    ]
    count = 0
    while waiting and count < MAX_TEXTS:
        place, value = waiting.pop()
        if isinstance(value, str):
            count += 1
            yield place, value
        elif isinstance(value, dict):
            table = cast("dict[object, object]", value)
            for key, inner in table.items():
                if len(str(key)) > 40:
                    count += 1
                    yield f"{place}/{str(key)[:40]}", str(key).replace("_", " ")
                waiting.append((f"{place}/{str(key)[:100]}", inner))
        elif isinstance(value, list):
            waiting += [
                (f"{place}/{index}", inner) for index, inner in enumerate(cast("list[object]", value))
            ]
