"""Finding a tool among many: a full-text index over names, descriptions and parameter names.

In memory, in SQLite (FTS5), without a network and without a model. Words are cut before they are indexed:
`readTextFile` and `read_text_file` are three words, Chinese text is cut into pairs of characters. Ties are
broken by name, so that the same question gives the same order.
"""

from __future__ import annotations

import re
import sqlite3
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.model import ToolDef

MAX_QUERY_WORDS = 32
# How much a hit in the name, the title and description, and the parameter names counts.
_WEIGHTS = "8.0, 3.0, 1.0"

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")
# Scripts that put no space between words.
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\U00020000-\U0003134f]+")


class ToolIndex:
    """What is searched; made anew when the tools change."""

    def __init__(self, tools: Iterable[ToolDef]) -> None:
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        # Porter stems, so that `files` finds `file`.
        self._database.execute(
            "create virtual table tool using fts5("
            "words, about, parameters, name unindexed, tokenize='porter unicode61')"
        )
        rows = [(_words(tool.name), _about(tool), _parameters(tool), tool.name) for tool in tools]
        self._database.executemany("insert into tool values (?, ?, ?, ?)", rows)
        self._database.commit()

    def search(self, query: str, *, limit: int = 8) -> list[str]:
        """Return the exposed names of the best hits, the best first; any word may match."""
        words = list(dict.fromkeys(_words(query).split()))[:MAX_QUERY_WORDS]
        if not words or limit < 1:
            return []
        match = " OR ".join(f'"{word}"' for word in words)
        rows = self._database.execute(
            f"select name from tool where tool match ? order by bm25(tool, {_WEIGHTS}), name limit ?",  # noqa: S608 -- weights are ours
            (match, limit),
        )
        return [name for (name,) in rows]

    def close(self) -> None:
        """Free the index."""
        self._database.close()


def _words(text: str) -> str:
    """Cut a text into words that a question may hold, lower-cased, with spaces between."""
    words: list[str] = []
    for word in _WORD.findall(text):
        for run in _UNSPACED.findall(word):
            words += [run[at : at + 2] for at in range(len(run) - 1)] or [run]
        spaced = _UNSPACED.sub(" ", word)
        words += [piece for part in spaced.split() for piece in _CAMEL.split(part)]
    return " ".join(words).lower()


def _about(tool: ToolDef) -> str:
    return _words(f"{tool.title} {tool.description} {tool.server}")


def _parameters(tool: ToolDef) -> str:
    properties = tool.input_schema.get("properties")
    if not isinstance(properties, dict):
        return ""
    return _words(" ".join(cast("dict[str, Any]", properties)))
