"""A full-text index in SQLite over the sample legal records; any text is a valid query.

The policy of a search: first the records that hold every term, the best first; if there are none, those
that hold some of the terms' pieces, the most pieces first. Terms of three characters or more go to FTS5's
trigram tokenizer, which finds Chinese substrings as well as words; shorter ones, and all of them where
this SQLite has no such tokenizer, go to `LIKE`. This module never knows of MCP.
"""

import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from dragoman.demo.legal_records import Case, Record, Statute, load_cases, load_statutes

# "LEGL" in ASCII; it tells our file from someone else's database.
_APPLICATION_ID = 0x4C45474C
_MAX_QUERY = 200
_TRIGRAM = 3
_STOP_WORDS = re.compile(
    "about|after|and|any|are|but|can|could|does|for|from|has|have|how|into|may|must|not|shall|should|than|"
    "that|the|their|them|then|there|these|they|this|was|were|what|when|where|which|who|why|will|with|would|you|your"
)
_CHINESE_DIGITS = {digit: value for value, digit in enumerate("零一二三四五六七八九")}
# NUL ends an FTS5 expression early, and a lone surrogate cannot be bound.
_UNUSABLE = re.compile(r"[\s\x00-\x1f\x7f\ud800-\udfff]+")

_SCHEMA = """
DROP TABLE IF EXISTS search;
DROP TABLE IF EXISTS records;
CREATE TABLE records (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL, court TEXT NOT NULL,
    haystack TEXT NOT NULL, document TEXT NOT NULL, UNIQUE (kind, key)
);
"""

_RecordT = TypeVar("_RecordT", bound=Record)


class LegalIndex:
    """The records of the package, searchable; close it when done."""

    def __init__(self, path: Path | None = None, *, full_text: bool = True) -> None:
        """Build the index, in memory or in the file `path`, replacing what an earlier build left there.

        Args:
            path: A new file, or one that this class has written.
            full_text: Whether to use FTS5 where this SQLite offers it.

        Raises:
            ValueError: If `path` is a database of something else.
            sqlite3.Error: If `path` cannot be written, or is no database.
        """
        # The tools run in one thread; building may happen in another.
        self._db = sqlite3.connect(path or ":memory:", isolation_level=None, check_same_thread=False)
        try:
            _refuse_foreign(self._db, path)
            self._full_text = _build(self._db, full_text=full_text)
        except BaseException:
            self._db.close()
            raise

    @property
    def full_text(self) -> bool:
        """Tell whether FTS5 with trigrams is in use."""
        return self._full_text

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    def statute(self, law: str, article: str) -> Statute | None:
        """Get one article, by the short name of its law and the number of the article."""
        row = self._db.execute(
            "SELECT document FROM records WHERE kind = 'Statute' AND key = ?", (_clean(f"{law}/{article}"),)
        ).fetchone()
        return Statute.model_validate_json(row[0]) if row else None

    def statutes(self) -> list[Statute]:
        """List every article, in the order of the data file."""
        rows = self._db.execute("SELECT document FROM records WHERE kind = 'Statute' ORDER BY id")
        return [Statute.model_validate_json(document) for (document,) in rows]

    def search_statutes(self, query: str, limit: int = 5) -> list[Statute]:
        """Find the articles that fit `query` best."""
        return self._search(Statute, query, limit=limit, court="")

    def search_cases(self, query: str, limit: int = 5, *, court: str = "") -> list[Case]:
        """Find the cases that fit `query` best, in courts whose name contains `court`."""
        return self._search(Case, query, limit=limit, court=_clean(court))

    def _search(self, model: type[_RecordT], query: str, *, limit: int, court: str) -> list[_RecordT]:
        terms = split_terms(query)
        if not terms or limit < 1:
            return []
        scope = (model.__name__, f"%{_escaped(court)}%", limit)
        rows = self._holding_all(terms, scope) or self._holding_some(loosen(terms), scope)
        return [model.model_validate_json(document) for (document,) in rows]

    def _holding_all(self, terms: Sequence[str], scope: tuple[str, str, int]) -> list[tuple[str]]:
        kind, court, limit = scope
        long = [term for term in terms if self._full_text and len(term) >= _TRIGRAM]
        short = [f"%{_escaped(term)}%" for term in terms if term not in long]
        likes = "".join(r" AND haystack LIKE ? ESCAPE '\'" for _ in short)
        where = rf"kind = ? AND court LIKE ? ESCAPE '\'{likes}"
        if not long:
            sql = f"SELECT document FROM records WHERE {where} ORDER BY id LIMIT ?"  # noqa: S608 -- no values in it
            return self._db.execute(sql, (kind, court, *short, limit)).fetchall()
        match = " AND ".join('"' + term.replace('"', '""') + '"' for term in long)
        sql = (
            "SELECT document FROM search JOIN records ON records.id = search.rowid "  # noqa: S608 -- no values in it
            f"WHERE search MATCH ? AND {where} ORDER BY bm25(search, 8.0, 4.0, 1.0), id LIMIT ?"
        )
        return self._db.execute(sql, (match, kind, court, *short, limit)).fetchall()

    def _holding_some(self, pieces: Sequence[str], scope: tuple[str, str, int]) -> list[tuple[str]]:
        if not pieces:
            return []
        score = " + ".join(r"(haystack LIKE ? ESCAPE '\')" for _ in pieces)
        sql = (
            f"SELECT document FROM (SELECT document, id, {score} AS score FROM records "  # noqa: S608 -- no values in it
            r"WHERE kind = ? AND court LIKE ? ESCAPE '\') WHERE score > 0 ORDER BY score DESC, id LIMIT ?"
        )
        return self._db.execute(sql, (*(f"%{_escaped(piece)}%" for piece in pieces), *scope)).fetchall()


def split_terms(query: str) -> list[str]:
    """Split `query` into terms that SQLite can take, each once; of a very long query only the start."""
    return list(dict.fromkeys(_clean(query[:_MAX_QUERY]).split()))


def loosen(terms: Sequence[str]) -> list[str]:
    """Cut `terms` into what a near match shares with them: content words, and character pairs of the rest."""
    pieces: dict[str, None] = {}
    for term in terms:
        if not term.isascii():
            pieces.update(dict.fromkeys(term[start : start + 2] for start in range(max(1, len(term) - 1))))
            continue
        word = term.strip("?!.,;:'\"()").lower()
        if len(word) >= _TRIGRAM and not _STOP_WORDS.fullmatch(word):
            pieces[word] = None
    return list(pieces)


def article_number(text: str) -> str:
    """Read the number of an article as people write it: `12`, `Art. 12`, `第12条`, `第十二条`.

    Returns:
        The number in decimal digits, or `text` itself where there is none.
    """
    if digits := re.search(r"\d{1,6}", text):
        return str(int(digits[0]))
    if numeral := re.search(r"[一二三四五六七八九十]+", text):
        tens, ten, units = numeral[0].rpartition("十")
        value = _CHINESE_DIGITS.get(units, 0) + (_CHINESE_DIGITS.get(tens, 1) * 10 if ten else 0)
        return str(value)
    return text.strip()


def _clean(text: str) -> str:
    return _UNUSABLE.sub(" ", text).strip()


def _escaped(text: str) -> str:
    return re.sub(r"([\\%_])", r"\\\1", text)


def _refuse_foreign(db: sqlite3.Connection, path: Path | None) -> None:
    (owner,) = db.execute("PRAGMA application_id").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and owner != _APPLICATION_ID:
        msg = f"`{path}` is a database of another program; name a new file for the index"
        raise ValueError(msg)


def _build(db: sqlite3.Connection, *, full_text: bool) -> bool:
    db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA application_id = {_APPLICATION_ID};")
    if full_text:
        try:
            db.execute("CREATE VIRTUAL TABLE search USING fts5(title, keywords, body, tokenize = 'trigram')")
        except sqlite3.OperationalError:
            full_text = False
    records: list[Record] = [*load_statutes(), *load_cases()]
    for number, record in enumerate(records, 1):
        columns = _searchable(record)
        court = f"{record.court} {record.court_zh}" if isinstance(record, Case) else ""
        db.execute(
            "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?)",
            (number, type(record).__name__, record.key, court, "\n".join(columns), record.model_dump_json()),
        )
        if full_text:
            db.execute(
                "INSERT INTO search (rowid, title, keywords, body) VALUES (?, ?, ?, ?)", (number, *columns)
            )
    db.execute("COMMIT")
    return full_text


def _searchable(record: Record) -> tuple[str, str, str]:
    title = f"{record.title} {record.title_zh}"
    if isinstance(record, Statute):
        title = f"{title} {record.law_title} {record.law_title_zh} {record.source.locator}"
    return title, " ".join(record.keywords), record.body
