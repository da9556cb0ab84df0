"""The index over a set of tools: words in SQLite's full-text index, meanings as vectors from a small model.

`update` takes the whole set and changes only what differs. It indexes the words at once and reads known
vectors from the cache; a thread computes the missing ones in slices, and until then words find those tools.
All methods may be called from any thread, and none belongs on the event loop.
"""

from __future__ import annotations

import importlib
import logging
import math
import re
import sqlite3
import threading
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, cast

from dragoman.struct import MutableStruct, Struct
from dragoman.tools.search import vectors, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from dragoman.model import ToolDef

MAX_ABOUT_CHARS = 1_000
MAX_PARAMETER_CHARS = 600
MAX_QUERY_CHARS = 2_000
MAX_QUERIES = 8
SLICE = 8
"""Tools whose vectors are computed at once; between two slices the thread can stop."""
STORED = 64
"""Tools whose vectors are written to the cache at once."""

# Weights of a hit in the name, in title and description, in the parameters, and in the server's texts.
_WEIGHTS = "6.0, 2.0, 1.0, 3.0"
_MOST = 100
"""Tools that match by words and are ranked."""
_WORDS_SHARE = 0.2
"""The most that matching words add to a similarity, which is between -1 and 1."""
_WORDS_ALONE = 0.5
"""The same for a tool whose vector is not known yet."""
_HALF = 8.0
"""The BM25 score that is worth half of the most."""
_UNKNOWN = 0.2
"""The similarity of a tool whose vector is not known yet."""
_MOST_UNKNOWN = 0.1
"""With a larger share of tools without vectors, words alone decide."""
_SERVER_SHARE, _SERVER_TOOLS = 0.1, 3
"""A tool gains with the mean of its server's best tools."""
_COMMON_SHARE = 0.3
"""How much of what all tools have in common is taken away, so that vague tools do not win every time."""
_WHOLE_SHARE = 1.0
"""How much the whole request counts beside each of its steps."""
_USED_SHARE, _MOST_USED = 0.01, 0.05

_FIRST_SENTENCE = re.compile(r"(?<=[.!?。])\s|\n|。")

logger = logging.getLogger("dragoman")


class Hit(Struct):
    """A tool that was found."""

    name: str
    score: float
    """For comparing hits of one search; it does not say whether the tool does what was asked for."""


class _Entry(MutableStruct):
    """One tool in the index."""

    number: int
    name: str
    server: str
    fields: tuple[str, str, str, str]
    key: bytes
    meanings: tuple[str, str]
    place: int = -1
    """Its row in the matrix of vectors; -1 if its vector is not known."""


class ToolIndex:
    """Finds tools by what they do."""

    def __init__(
        self,
        tools: Iterable[ToolDef] = (),
        *,
        semantic: bool | None = None,
        cache: Path | None = None,
    ) -> None:
        """Index tools; the set can be replaced later.

        Args:
            tools: The first set.
            semantic: Whether to use vectors; unless given, if the extra `search` is installed.
            cache: The file for computed vectors; unless given, one in dragoman's cache folder.
        """
        self._semantic = vectors.is_installed() if semantic is None else semantic
        self._cache = vectors.VectorCache(cache) if self._semantic else None
        self._lock = threading.RLock()
        self._entries: dict[str, _Entry] = {}
        self._by_number: dict[int, _Entry] = {}
        self._sources: dict[str, tuple[ToolDef, str]] = {}
        self._next = 1
        self._known: dict[bytes, Any] = {}
        self._matrix: Any = None
        """One row for each tool whose vector is known, and free rows after them; `None` after a change."""
        self._common: Any = None
        """The mean of the rows."""
        self._placed: list[_Entry] = []
        """The tools of the matrix's rows."""
        self._worker: threading.Thread | None = None
        self._closed = threading.Event()
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        # Porter stemming, so that `files` finds `file`.
        self._database.execute(
            "create virtual table tool using fts5(name, about, parameters, server, "
            "tokenize='porter unicode61')"
        )
        self.update(tools)

    def __len__(self) -> int:
        return len(self._entries)

    def update(self, tools: Iterable[ToolDef], *, servers: Mapping[str, str] | None = None) -> None:
        """Replace the set of tools; only what differs is indexed again.

        Args:
            tools: All tools from now on.
            servers: Instructions or descriptions of servers, by name.
        """
        about = servers or {}
        with self._lock:
            wanted = {tool.name: (tool, about.get(tool.server, "")) for tool in tools}
            gone = [name for name, source in self._sources.items() if not _same(wanted.get(name), source)]
            new = [name for name, source in wanted.items() if not _same(self._sources.get(name), source)]
            if not gone and not new:
                return
            for name in gone:
                entry = self._entries.pop(name)
                del self._by_number[entry.number]
                self._database.execute("delete from tool where rowid = ?", (entry.number,))
            made = [self._entry(*wanted[name]) for name in new]
            self._database.executemany(
                "insert into tool (rowid, name, about, parameters, server) values (?, ?, ?, ?, ?)",
                ((entry.number, *entry.fields) for entry in made),
            )
            self._database.commit()
            self._sources = wanted
            self._matrix = None
            if self._semantic:
                self._read_vectors(made)
                self._place()
                self._start_worker()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all vectors are computed; return whether they are."""
        worker = self._worker
        if worker is not None:
            worker.join(timeout)
        return self.pending == 0

    @property
    def pending(self) -> int:
        """The number of tools whose vectors are not computed yet."""
        if not self._semantic:
            return 0
        with self._lock:
            return sum(entry.key not in self._known for entry in self._entries.values())

    def close(self) -> None:
        """Free the index; vectors that are not computed yet never will be."""
        self._closed.set()
        if self._worker is not None:
            self._worker.join()
        with self._lock:
            self._database.close()

    def search(self, query: str, *, limit: int = 8) -> list[str]:
        """Return the exposed names of the best matches, the best first."""
        return [hit.name for hit in self.find([query], limit=limit)]

    def find(
        self,
        queries: str | Sequence[str],
        *,
        limit: int = 8,
        among: Callable[[str], bool] | None = None,
        used: Mapping[str, int] | None = None,
    ) -> list[Hit]:
        """Return the best matches of one or more requests; several take turns.

        Args:
            queries: What the tools should do, in any words, English or Chinese.
            limit: The most hits in total.
            among: Whether a tool, by its exposed name, may be found.
            used: How often each tool was called before, by exposed name.
        """
        asked = [queries] if isinstance(queries, str) else list(queries)[:MAX_QUERIES]
        asked = [text[:MAX_QUERY_CHARS] for text in asked if text.strip()]
        if not asked or limit < 1:
            return []
        # A request with several steps needs several tools.
        steps = words.steps(asked[0]) if len(asked) == 1 else []
        with self._lock:
            if self._closed.is_set() or not self._entries:
                return []
            ranked = self._ranked([*asked, *steps], limit, stepwise=bool(steps), among=among, used=used or {})
        found: dict[str, Hit] = {}
        for row in zip_longest(*ranked):
            for hit in sorted(filter(None, row), key=lambda hit: -hit.score):
                found.setdefault(hit.name, hit)
        return list(found.values())[:limit]

    def _ranked(
        self,
        asked: Sequence[str],
        limit: int,
        *,
        stepwise: bool,
        among: Callable[[str], bool] | None,
        used: Mapping[str, int],
    ) -> list[list[Hit]]:
        """Rank the tools for each request; `stepwise`, the first is the whole and the others its steps."""
        meant = [words.english(text) if words.is_chinese(text) else text for text in asked]
        similar = self._similarities(meant)
        matches = [self._matched(*one) for one in zip(asked, meant, strict=True)]
        if stepwise:
            if similar is not None:
                similar[1:] = (similar[1:] + _WHOLE_SHARE * similar[0]) / (1 + _WHOLE_SHARE)
            for matched in matches[1:]:
                for number, worth in matches[0].items():
                    matched[number] = matched.get(number, 0.0) + _WHOLE_SHARE * worth
        ranked: list[list[Hit]] = []
        for at, matched in enumerate(matches):
            scored = (
                self._by_words(matched, among=among, used=used)
                if similar is None
                else self._by_meaning(matched, similar[at], among=among, used=used)
            )
            ranked.append(sorted(scored, key=lambda hit: (-hit.score, hit.name))[:limit])
        return ranked

    def _matched(self, text: str, meaning: str) -> dict[int, float]:
        """Return the tools that share words with a request, each with the worth of these words."""
        said = words.query_words(text)
        if meaning != text:
            said = list(dict.fromkeys([*said, *words.query_words(meaning)]))
        return self._lookup(said)

    def _lookup(self, said: Sequence[str]) -> dict[int, float]:
        if not said:
            return {}
        match = " OR ".join(f'"{word}"' for word in said)
        rows = self._database.execute(
            f"select rowid, -bm25(tool, {_WEIGHTS}) from tool where tool match ? order by 2 desc limit ?",  # noqa: S608 -- weights are ours
            (match, _MOST),
        )
        return dict(cast("Iterable[tuple[int, float]]", rows))

    def _by_words(
        self,
        matched: Mapping[int, float],
        *,
        among: Callable[[str], bool] | None,
        used: Mapping[str, int],
    ) -> list[Hit]:
        return [
            Hit(entry.name, worth * (1 + 4 * _usage(used, entry.name)))
            for number, worth in matched.items()
            if (entry := self._by_number[number]) and (among is None or among(entry.name))
        ]

    def _by_meaning(
        self,
        matched: Mapping[int, float],
        similar: Any,
        *,
        among: Callable[[str], bool] | None,
        used: Mapping[str, int],
    ) -> list[Hit]:
        scored: list[tuple[float, _Entry]] = []
        servers: dict[str, list[float]] = {}
        similarities: list[float] = similar.tolist()
        for entry in self._candidates(matched, similar, among=among):
            similarity = similarities[entry.place] if entry.place >= 0 else None
            worth = matched.get(entry.number, 0.0)
            share = _WORDS_ALONE if similarity is None else _WORDS_SHARE
            close = _UNKNOWN if similarity is None else similarity
            score = close + _worth(worth, share) + _usage(used, entry.name)
            scored.append((score, entry))
            servers.setdefault(entry.server, []).append(close)
        best = {
            server: sum(sorted(found)[-_SERVER_TOOLS:]) / min(len(found), _SERVER_TOOLS)
            for server, found in servers.items()
        }
        return [Hit(entry.name, score + _SERVER_SHARE * best[entry.server]) for score, entry in scored]

    def _candidates(
        self, matched: Mapping[int, float], similar: Any, *, among: Callable[[str], bool] | None
    ) -> list[_Entry]:
        """Return the most similar tools and those that share words: ranking all of them takes too long."""
        found = {number: self._by_number[number] for number in matched}
        close = 0
        most = len(similar) if among is not None else min(_MOST, len(similar))
        places: Any = (-similar).argpartition(most - 1)[:most]
        if among is not None:
            places = places[(-similar[places]).argsort()]
        for place in cast("list[int]", places.tolist()):
            entry = self._placed[place]
            if among is None or among(entry.name):
                found[entry.number] = entry
                close += 1
                if close == _MOST:
                    break
        return [entry for entry in found.values() if among is None or among(entry.name)]

    def _similarities(self, meant: Sequence[str]) -> Any:
        """Return one row of similarities for each request in English, by place.

        `None` if there are too few vectors.
        """
        if not self._semantic or not self._known:
            return None
        if self._matrix is None:
            self._place()
        count = len(self._placed)
        if not count or count < (1 - _MOST_UNKNOWN) * len(self._entries):
            return None
        means: Any = vectors.encoder().encode(meant)
        means -= _COMMON_SHARE * self._common
        # Not `@`: its threads wait for each other longer than this product takes.
        numpy: Any = importlib.import_module("numpy")
        matrix = cast("Any", self._matrix)[:count]
        return numpy.stack([numpy.einsum("ij,j->i", matrix, row) for row in means])

    def _place(self) -> None:
        """Give each tool with a known vector its row, and free rows for the others."""
        numpy: Any = importlib.import_module("numpy")
        self._matrix = numpy.zeros((len(self._entries), vectors.SIZE), numpy.float32)
        self._placed = []
        for entry in self._entries.values():
            entry.place = -1
            if (vector := self._known.get(entry.key)) is not None:
                self._append(entry, vector)
        self._average()

    def _append(self, entry: _Entry, vector: Any) -> None:
        entry.place = len(self._placed)
        self._matrix[entry.place] = vector
        self._placed.append(entry)

    def _average(self) -> None:
        self._common = self._matrix[: len(self._placed)].mean(0) if self._placed else None

    def _read_vectors(self, made: Sequence[_Entry]) -> None:
        numpy: Any = importlib.import_module("numpy")
        missing = [entry.key for entry in made if entry.key not in self._known]
        stored = cast("vectors.VectorCache", self._cache).read(missing)
        for key, data in stored.items():
            self._known[key] = numpy.frombuffer(data, numpy.float16)

    def _start_worker(self) -> None:
        if self.pending and (self._worker is None or not self._worker.is_alive()):
            self._worker = threading.Thread(target=self._compute, name="dragoman-search", daemon=True)
            self._worker.start()

    def _compute(self) -> None:
        """Compute missing vectors, a slice at a time, until none is missing."""
        try:
            while not self._closed.is_set():
                with self._lock:
                    # Short texts first: similar lengths in one slice waste the least.
                    missing = [entry for entry in self._entries.values() if entry.key not in self._known]
                    missing.sort(key=lambda entry: len(entry.meanings[0]) + len(entry.meanings[1]))
                if not missing:
                    return
                self._compute_slices(missing)
        except Exception:
            # Words still find every tool.
            logger.exception("tool search: the vectors could not be computed")
            self._semantic = False

    def _compute_slices(self, missing: Sequence[_Entry]) -> None:
        numpy: Any = importlib.import_module("numpy")
        model = vectors.encoder()
        new: dict[bytes, Any] = {}
        for at in range(0, len(missing), SLICE):
            if self._closed.is_set():
                break
            some = missing[at : at + SLICE]
            texts = sorted((text for entry in some for text in entry.meanings), key=len)
            # Texts of similar lengths at once: the shorter ones cost as much as the longest.
            half = [texts[: len(some)], texts[len(some) :]]
            rows = {text: row for part in half for text, row in zip(part, model.encode(part), strict=True)}
            for entry in some:
                one, other = entry.meanings
                new[entry.key] = ((rows[one] + rows[other]) / 2).astype(numpy.float16)
            if len(new) >= STORED:
                self._learn(new)
                new = {}
        self._learn(new)

    def _learn(self, new: Mapping[bytes, Any]) -> None:
        """Take computed vectors into the cache and into the matrix."""
        if not new:
            return
        cast("vectors.VectorCache", self._cache).write({key: row.tobytes() for key, row in new.items()})
        with self._lock:
            self._known.update(new)
            if self._matrix is not None:
                for entry in self._entries.values():
                    if entry.place < 0 and (vector := new.get(entry.key)) is not None:
                        self._append(entry, vector)
                self._average()

    def _entry(self, tool: ToolDef, about: str) -> _Entry:
        own = tool.own_name
        name, server = words.plain(own), words.plain(tool.server)
        description = tool.description[:MAX_ABOUT_CHARS]
        spoken = _spoken(name)
        first = _FIRST_SENTENCE.split(description.strip(), maxsplit=1)[0][:200]
        meanings = (f"{_spoken(server)}: {spoken}. {description[:300]}", first or spoken)
        if words.is_chinese(description):
            meanings = (words.english(meanings[0]), words.english(meanings[1]))
        entry = _Entry(
            number=self._next,
            name=tool.name,
            server=tool.server,
            fields=(
                name,
                words.plain(f"{tool.title} {description}"),
                words.plain(_parameters(tool)),
                words.plain(f"{server} {about[:MAX_ABOUT_CHARS]}"),
            ),
            key=vectors.VectorCache.key(meanings),
            meanings=meanings,
        )
        self._next += 1
        self._entries[tool.name] = self._by_number[entry.number] = entry
        return entry


def _same(one: tuple[ToolDef, str] | None, other: tuple[ToolDef, str]) -> bool:
    return one is not None and one[1] == other[1] and (one[0] is other[0] or one[0] == other[0])


def _spoken(identifier: str) -> str:
    return re.sub(r"[_\W]+", " ", identifier).strip()


def _parameters(tool: ToolDef) -> str:
    properties: Any = tool.input_schema.get("properties")
    if not isinstance(properties, dict):
        return ""
    known = cast("dict[str, Any]", properties)
    schemas = [cast("dict[str, Any]", schema) for schema in known.values() if isinstance(schema, dict)]
    told = " ".join(text for schema in schemas if isinstance(text := schema.get("description"), str))
    return f"{' '.join(known)} {told}"[:MAX_PARAMETER_CHARS]


def _usage(used: Mapping[str, int], name: str) -> float:
    return min(_MOST_USED, _USED_SHARE * math.log1p(used.get(name, 0))) if used else 0.0


def _worth(score: float, share: float = _WORDS_SHARE) -> float:
    """Return what matching words add to a similarity."""
    return share * score / (score + _HALF)
