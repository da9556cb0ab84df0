"""The legal desk: a demo MCP server that answers from sample laws, cases and document templates.

Run `python -m dragoman.demo.legal` for stdio, with `--http` for Streamable HTTP. Every answer names its
source and date, and says that it is a sample. The server only reads: nothing it offers changes anything.
"""

import argparse
import inspect
import re
import sqlite3
import sys
from collections.abc import Sequence
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError
from mcp.types import Annotations, CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from dragoman.demo.serving import add_http_options, serve_http, serve_stdio
from dragoman.suggest import suggest

_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


class SampleSource(BaseModel):
    """Where a record comes from."""

    model_config = ConfigDict(frozen=True)

    title: Annotated[str, Field(description="The sample law, court or collection")]
    locator: Annotated[str, Field(description="The place in the source, such as `Art. 12`")]
    url: Annotated[str, Field(description="An address of the form `sample://legal/...`")]


class SampleRecord(BaseModel):
    """The fields of every sample record."""

    model_config = ConfigDict(frozen=True)

    title: str
    title_zh: Annotated[str, Field(description="The title in Chinese")]
    text: str
    keywords: list[str]
    source: SampleSource
    updated: Annotated[date, Field(description="The day on which the record was last revised")]
    sample: Annotated[Literal[True], Field(description="The record is invented; it is not a real law")]

    @property
    def key(self) -> str:
        """Name the record within its kind."""
        return self.source.url

    @property
    def body(self) -> str:
        """Give the running text that a search looks through."""
        return self.text


class Statute(SampleRecord):
    """One article of a sample law."""

    law: Annotated[str, Field(description="Short name of the law, such as `labour-standards`")]
    law_title: str
    law_title_zh: str
    article: str

    @property
    def key(self) -> str:
        """Name the article within its law."""
        return f"{self.law}/{self.article}"


class Case(SampleRecord):
    """One decision of a sample court."""

    case_id: str
    court: str
    court_zh: str
    decided: date
    holding: Annotated[str, Field(description="What the court decided, in one sentence")]
    cites: Annotated[list[str], Field(description="Articles applied, as `law/article`")]

    @property
    def key(self) -> str:
        """Name the case."""
        return self.case_id

    @property
    def body(self) -> str:
        """Give the facts and the holding."""
        return f"{self.text}\n{self.holding}"


class SampleTemplate(SampleRecord):
    """A sample document with named placeholders, written `{{name}}`."""

    template_id: str

    @property
    def key(self) -> str:
        """Name the template."""
        return self.template_id

    @property
    def placeholders(self) -> list[str]:
        """List the names to fill in, in the order of the document."""
        return list(dict.fromkeys(_PLACEHOLDER.findall(self.text)))

    def fill(self, values: dict[str, str]) -> str:
        """Put `values` in the place of their placeholders, in one pass: a value is never expanded itself.

        Raises:
            KeyError: If a placeholder has no value.
        """
        return _PLACEHOLDER.sub(lambda match: values[match[1]], self.text)


def load_statutes() -> list[Statute]:
    """Read the sample articles."""
    return TypeAdapter(list[Statute]).validate_json(_read("statutes.json"))


def load_cases() -> list[Case]:
    """Read the sample decisions."""
    return TypeAdapter(list[Case]).validate_json(_read("cases.json"))


def load_templates() -> list[SampleTemplate]:
    """Read the sample documents."""
    return TypeAdapter(list[SampleTemplate]).validate_json(_read("templates.json"))


def _read(name: str) -> bytes:
    return files("dragoman.demo").joinpath("data", name).read_bytes()


# "LEGL" in ASCII; identifies our own database files.
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

_RecordT = TypeVar("_RecordT", bound=SampleRecord)


class LegalIndex:
    """The records of the package, searchable; close it when done."""

    def __init__(self, path: Path | None = None, *, full_text: bool = True) -> None:
        """Build the index, in memory or in the file `path`, replacing what an earlier build left there.

        Args:
            path: A new file, or one that this class has written.
            full_text: Whether to use FTS5 where this SQLite offers it.

        Raises:
            ValueError: If `path` is a database of something else.
            sqlite3.Error: If `path` cannot be written, or is not a database.
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
        """Return whether FTS5 with trigrams is in use."""
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
        The number in decimal digits, or `text` itself if it has none.
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
    records: list[SampleRecord] = [*load_statutes(), *load_cases()]
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


def _searchable(record: SampleRecord) -> tuple[str, str, str]:
    title = f"{record.title} {record.title_zh}"
    if isinstance(record, Statute):
        title = f"{title} {record.law_title} {record.law_title_zh} {record.source.locator}"
    return title, " ".join(record.keywords), record.body


SOURCES_KEY = "dragoman.dev/sources"
INSTRUCTIONS = (
    "Sample legal texts (样例法律资料), invented for demonstrations; none of them is real law or advice. "
    "Search first (`search_statutes`, `search_cases`; English or Chinese), then read an article with "
    "`lookup_statute`. Cite the source and date that end each answer. Documents: `list_templates`, then "
    "`fill_template` with a value for every placeholder."
)
_READ_ONLY = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)

Query = Annotated[str, Field(description="Words in English or Chinese; the best matches hold them all")]
Limit = Annotated[int, Field(ge=1, le=20, description="How many results at most")]


class Statutes(BaseModel):
    """Articles found."""

    results: list[Statute]


class Cases(BaseModel):
    """Cases found."""

    results: list[Case]


class SampleDocument(SampleRecord):
    """A template with its placeholders, or a filled-in document."""

    template_id: str
    placeholders: Annotated[list[str], Field(description="The values that the template asks for")]


class Documents(BaseModel):
    """Templates, or documents made from them."""

    results: list[SampleDocument]


class LegalDesk:
    """The tools, resources and the prompt, over one index."""

    def __init__(self, index: LegalIndex) -> None:
        """Answer from `index`."""
        self._index = index
        self._statutes = index.statutes()
        self._templates = {template.template_id: template for template in load_templates()}

    async def lookup_statute(
        self,
        law: Annotated[str, Field(description="Short name or title of a law, such as `labour-standards`")],
        article: Annotated[str, Field(description="Number of the article, such as `12` or `第十二条`")],
    ) -> Annotated[CallToolResult, Statutes]:
        """Read one article of a sample law (查阅法条)."""
        statute = self._find(law, article)
        if statute is None:
            return _failure(self._explain_missing(law, article))
        return _answer([_show_statute(statute)], Statutes(results=[statute]))

    async def search_statutes(self, query: Query, limit: Limit = 5) -> Annotated[CallToolResult, Statutes]:
        """Search the sample laws in full text (检索法条)."""
        statutes = self._index.search_statutes(query, limit)
        return _answer(
            [_show_statute(statute) for statute in statutes], Statutes(results=statutes), query=query
        )

    async def search_cases(
        self,
        query: Query,
        limit: Limit = 5,
        court: Annotated[str, Field(description="Only courts whose name contains this; empty for all")] = "",
    ) -> Annotated[CallToolResult, Cases]:
        """Search the sample court decisions in full text (检索案例)."""
        cases = self._index.search_cases(query, limit, court=court)
        return _answer([_show_case(case) for case in cases], Cases(results=cases), query=query)

    async def list_templates(self) -> Annotated[CallToolResult, Documents]:
        """List the sample document templates and their placeholders (文书模板)."""
        documents = [_as_document(template) for template in self._templates.values()]
        shown = [
            _show(document, f"`{document.template_id}` takes: {', '.join(document.placeholders)}")
            for document in documents
        ]
        return _answer(shown, Documents(results=documents))

    async def fill_template(
        self,
        template_id: Annotated[str, Field(description="As in `list_templates`")],
        values: Annotated[dict[str, str], Field(description="A value for every placeholder of the template")],
    ) -> Annotated[CallToolResult, Documents]:
        """Fill in a sample document template (填写文书模板)."""
        template = self._templates.get(template_id)
        if template is None:
            return _failure(f"No template is called `{template_id}`. There are: {_quoted(self._templates)}.")
        missing = [name for name in template.placeholders if name not in values]
        unknown = [name for name in values if name not in template.placeholders]
        if missing or unknown:
            problems = [f"missing: {_quoted(missing)}"] if missing else []
            problems += [f"unknown: {_quoted(unknown)}"] if unknown else []
            takes = _quoted(template.placeholders)
            return _failure(f"Cannot fill `{template_id}`; {'; '.join(problems)}. It takes: {takes}.")
        document = _as_document(template, text=template.fill(values))
        return _answer([_show(document, document.text)], Documents(results=[document]))

    async def about(self) -> str:
        """Describe the samples, and list the laws."""
        laws = [f"- {law}: {title}" for law, title in self._law_titles().items()]
        return "\n".join([INSTRUCTIONS, "", "Sample laws (样例法律):", *laws, "", f"Updated {self.updated}"])

    async def read_statute(self, law: str, article: str) -> str:
        """Read one article of a sample law."""
        statute = self._find(law, article)
        if statute is None:
            raise ResourceNotFoundError(self._explain_missing(law, article))
        return _show_statute(statute)

    async def draft_opinion(self, question: str) -> str:
        """Draft a short legal opinion on a question, from the sample laws alone."""
        return (
            f"Draft a short legal opinion on this question, from the sample laws alone:\n\n{question}\n\n"
            "Search the statutes and the cases, read the articles that matter, and write: the question, the "
            "rules with their sources and dates, the analysis, the conclusion. Say that the sources are "
            "samples. Answer in the language of the question."
        )

    @property
    def updated(self) -> str:
        """Return the date of the newest revision, in ISO format."""
        return max(statute.updated for statute in self._statutes).isoformat()

    def _law_titles(self) -> dict[str, str]:
        return {statute.law: f"{statute.law_title} {statute.law_title_zh}" for statute in self._statutes}

    def _find(self, law: str, article: str) -> Statute | None:
        name = self._find_law(law)
        return self._index.statute(name, article_number(article)) if name else None

    def _find_law(self, text: str) -> str | None:
        wanted = text.strip().casefold()
        for statute in self._statutes:
            if wanted in {name.casefold() for name in (statute.law, statute.law_title, statute.law_title_zh)}:
                return statute.law
        return None

    def _explain_missing(self, law: str, article: str) -> str:
        if name := self._find_law(law):
            there = [
                f"{statute.article} ({statute.title})" for statute in self._statutes if statute.law == name
            ]
            return f"`{name}` has no article `{article}`. The sample has: {', '.join(there)}."
        titles = self._law_titles()
        wanted = law.strip().casefold()
        near = [name for name, title in titles.items() if wanted and wanted in f"{name} {title}".casefold()]
        near = near or suggest(wanted, titles, count=2, cutoff=0.4)
        where = f"Nearest: {_quoted(near)}." if near else f"There are: {_quoted(titles)}."
        return f"No sample law is called `{law}`. {where}"


def build_server(index: LegalIndex) -> MCPServer[Any]:
    """Make the server that answers from `index`."""
    desk = LegalDesk(index)
    server: MCPServer[Any] = MCPServer(
        "dragoman-legal",
        title="Legal desk (samples)",
        instructions=INSTRUCTIONS,
        version="1.0",
        log_level="WARNING",
    )
    for tool in (
        desk.lookup_statute,
        desk.search_statutes,
        desk.search_cases,
        desk.list_templates,
        desk.fill_template,
    ):
        server.add_tool(tool, description=inspect.getdoc(tool), annotations=_READ_ONLY)
    for uri, name, function in (
        ("sample://legal/about", "about", desk.about),
        ("sample://legal/statutes/{law}/{article}", "statute", desk.read_statute),
    ):
        dated = Annotations(last_modified=f"{desk.updated}T00:00:00Z")
        server.resource(uri, name=name, description=inspect.getdoc(function), annotations=dated)(function)
    server.prompt(description=inspect.getdoc(desk.draft_opinion))(desk.draft_opinion)
    return server


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m dragoman.demo.legal", description="A demo MCP server of samples."
    )
    parser.add_argument("--http", action="store_true", help="serve over Streamable HTTP instead of stdio")
    parser.add_argument("--index", type=Path, metavar="PATH", help="keep the search index in this file")
    add_http_options(parser)
    options = parser.parse_args(arguments)
    try:
        index = LegalIndex(options.index)
    except (ValueError, sqlite3.Error) as exc:
        parser.error(f"cannot build the index: {exc}")
    try:
        if options.http:
            serve_http(build_server(index), host=options.host, port=options.port, until_eof=options.until_eof)
        else:
            serve_stdio(build_server(index))
    except OSError as exc:
        parser.error(f"cannot listen on {options.host} port {options.port}: {exc.strerror}")
    finally:
        index.close()
    return 0


def _as_document(template: SampleTemplate, *, text: str | None = None) -> SampleDocument:
    fields = template.model_dump() | {"placeholders": template.placeholders}
    return SampleDocument.model_validate(fields if text is None else fields | {"text": text})


def _show_statute(statute: Statute) -> str:
    return _show(statute, f"{statute.law_title_zh} {statute.source.locator}\n{statute.text}")


def _show_case(case: Case) -> str:
    return _show(case, f"{case.court} {case.court_zh}, {case.decided}\n{case.text}\nHeld: {case.holding}")


def _show(record: SampleRecord, body: str) -> str:
    source = record.source
    origin = f"Source: {source.title}, {source.locator}, {source.url}, updated {record.updated}"
    return f"[SAMPLE] {record.title} {record.title_zh}\n{body}\n{origin}"


def _answer(shown: Sequence[str], found: Statutes | Cases | Documents, *, query: str = "") -> CallToolResult:
    text = (
        "\n\n".join(shown)
        or f"Nothing in the samples matches `{query}`. Try fewer or other words (换个词试试)."
    )
    sources = [
        record.source.model_dump() | {"updated": record.updated.isoformat()} for record in found.results
    ]
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        structured_content=found.model_dump(mode="json"),
        _meta={SOURCES_KEY: sources},
    )


def _failure(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


def _quoted(names: Sequence[str] | dict[str, Any]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    sys.exit(main())
