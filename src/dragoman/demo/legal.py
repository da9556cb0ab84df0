"""The legal desk: a demo MCP server that answers from sample laws, cases and document templates.

Run `python -m dragoman.demo.legal` for stdio, with `--http` for Streamable HTTP. Every answer names its
source and date, and says that it is a sample. The server only reads: nothing it offers changes anything.
"""

import argparse
import inspect
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError
from mcp.types import Annotations, CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, Field

from dragoman.demo.legal_index import LegalIndex, article_number
from dragoman.demo.legal_records import Case, Record, Statute, Template, load_templates
from dragoman.demo.serving import add_http_options, serve_http, serve_stdio
from dragoman.suggesting import suggest

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


class Document(Record):
    """A template and what is to be filled in, or the filled-in document."""

    template_id: str
    placeholders: Annotated[list[str], Field(description="The values that the template asks for")]


class Documents(BaseModel):
    """Templates, or documents made from them."""

    results: list[Document]


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
        """Tell what these samples are, and which laws there are."""
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
        """Tell when the newest article was revised, as an ISO date."""
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


def _as_document(template: Template, *, text: str | None = None) -> Document:
    fields = template.model_dump() | {"placeholders": template.placeholders}
    return Document.model_validate(fields if text is None else fields | {"text": text})


def _show_statute(statute: Statute) -> str:
    return _show(statute, f"{statute.law_title_zh} {statute.source.locator}\n{statute.text}")


def _show_case(case: Case) -> str:
    return _show(case, f"{case.court} {case.court_zh}, {case.decided}\n{case.text}\nHeld: {case.holding}")


def _show(record: Record, body: str) -> str:
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
