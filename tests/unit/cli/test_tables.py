"""What is drawn with rich: states, signatures, results; at 80 columns, and harmless."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from dragoman import Provenance, ServerState, ServerStatus, ToolDef, ToolResult
from dragoman.cli.tables import offers_view, result_view, servers_view, signature, status_table, tools_table
from dragoman.diagnosis.explain import STATE_WORDS
from dragoman.errors import AuthRequiredError
from dragoman.model import Part, SourceRef
from dragoman.observe.metrics import Latency, ServerMetrics

if TYPE_CHECKING:
    from rich.console import RenderableType

pytestmark = pytest.mark.requirement("otter-p1.status", "otter-later.visual")


def drawn(renderable: RenderableType, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def tool(name: str = "mcp_files_read", description: str = "Read.", **properties: Any) -> ToolDef:
    required = [key for key, schema in properties.items() if schema is True or "default" not in schema]
    schema = {"type": "object", "properties": properties, "required": required}
    return ToolDef(
        name=name, description=description, input_schema=schema, server="files", original_name="read"
    )


def result(*parts: Part, sources: tuple[SourceRef, ...] = (), structured: Any = None) -> ToolResult:
    provenance = Provenance(server="s", tool="t", sources=sources)
    return ToolResult(
        success=True, parts=parts, structured=structured, provenance=provenance, duration=0.0124
    )


@pytest.mark.parametrize("state", list(ServerState))
def test_every_state_has_a_mark_and_its_name(state: ServerState) -> None:
    row = drawn(status_table([ServerStatus(name="files", state=state, transport="stdio")])).splitlines()[1]
    name, mark, *words, transport = row.split()
    assert (name, " ".join(words), transport) == ("files", STATE_WORDS[state.value], "stdio")
    assert len(mark) == 1


def test_a_ready_server_shows_its_version_and_a_failed_one_its_error() -> None:
    ready = ServerStatus(
        name="a",
        state=ServerState.READY,
        transport="http",
        protocol_version="2026-07-28",
        tools=7,
        server_name="Server",
        server_version="1.2",
    )
    failed = ServerStatus(
        name="b", state=ServerState.FAILED, transport="stdio", last_error="no\x1b[2J such command"
    )
    lines = [line.split() for line in drawn(status_table([ready, failed])).splitlines()]
    assert lines[0] == ["server", "state", "transport", "protocol", "tools"]
    assert lines[1] == ["a", "●", "ready", "http", "2026-07-28", "7", "Server", "1.2"]
    assert lines[2] == ["b", "✗", "failed", "stdio", "no�[2J", "such", "command"]


def test_servers_have_their_calls_errors_and_latency_in_columns() -> None:
    status = ServerStatus(name="a", state=ServerState.READY, transport="http", tools=7)
    latency = Latency(count=9, mean=0.5, p50=0.2, p95=3.0, p99=4.0, longest=4.0)
    metered = ServerMetrics(server="a", calls=9, errors={"timeout": 2, "denied": 1}, latency=latency)
    lines = [line.split() for line in drawn(servers_view([status], {"a": metered})).splitlines()]
    assert lines[0] == ["server", "state", "transport", "protocol", "tools", "calls", "errors", "p50", "p95"]
    assert lines[1] == ["a", "●", "ready", "http", "7", "9", "3", "0.2", "s", "3.0", "s"]


def test_servers_come_in_their_order_each_with_its_own_cause_and_counts() -> None:
    failed = ServerStatus(name="a", state=ServerState.FAILED, transport="stdio", last_error="no such command")
    ready = ServerStatus(name="b", state=ServerState.READY, transport="stdio")
    idle = ServerStatus(name="c", state=ServerState.CLOSED, transport="stdio")
    metered = {"b": ServerMetrics(server="b", calls=2)}
    rows = drawn(servers_view([failed, ready, idle], metered)).splitlines()[1:]
    assert [row.split()[0] for row in rows] == ["a", "no", "b", "c"]
    assert rows[2].split() == ["b", "●", "ready", "stdio", "2"]


@pytest.mark.parametrize("retry_in", [None, 3.0])
def test_the_cause_is_below_a_server_that_is_not_ready_also_while_it_is_tried_again(
    retry_in: float | None,
) -> None:
    status = ServerStatus(
        name="b",
        state=ServerState.BACKOFF,
        transport="stdio",
        last_error="no such command",
        retry_in=retry_in,
    )
    text = drawn(servers_view([status], {}))
    assert "no such command" in text.splitlines()[2]
    assert ("Retrying in 3.0 s." in text) == (retry_in is not None)


def test_what_waits_for_a_person_is_not_said_to_go_on_by_itself() -> None:
    error = AuthRequiredError("no", server="b", reason="token")
    status = ServerStatus(
        name="b",
        state=ServerState.NEEDS_AUTH,
        transport="http",
        error=error,
        last_error=str(error),
        retry_in=48.0,
    )
    text = drawn(servers_view([status], {}))
    assert "the token was rejected (HTTP 401)" in text
    assert "Retrying" not in text


@pytest.mark.parametrize("length", range(30, 80, 7))
def test_the_command_below_a_server_stays_on_one_line(length: int) -> None:
    status = ServerStatus(
        name="notes", state=ServerState.FAILED, transport="stdio", last_error=("word " * 20)[:length].strip()
    )
    assert any(
        line.rstrip().endswith("Run: /mcp doctor notes")
        for line in drawn(servers_view([status], {})).split("\n")
    )


def test_nothing_is_wider_than_the_screen() -> None:
    status = ServerStatus(name="n" * 60, state=ServerState.FAILED, transport="stdio", last_error="错误" * 60)
    listed = [tool("mcp_" + "x" * 100, "律" * 100, **{"p" * 50: {"type": "string"}})]
    for renderable in (
        status_table([status]),
        tools_table(listed),
        result_view(result(Part(kind="text", text="律" * 99))),
    ):
        assert max(cell_len(line) for line in drawn(renderable).splitlines()) <= 80


def test_a_signature_has_required_arguments_first_then_defaults() -> None:
    shown = signature(
        tool(
            head={"type": "integer", "default": None},
            path={"type": "string"},
            mode={"type": ["string", "null"], "default": "律" * 30},
            deep={"type": "array"},
            anything=True,
            odd={"anyOf": [{"type": "string"}]},
        )
    ).plain
    assert shown == (
        "mcp_files_read(path: str, deep: list, anything: any, odd: str, head: int = null, "
        'mode: str | null = "' + "律" * 18 + "…)"
    )


def test_a_tool_without_arguments_has_empty_brackets_and_one_line_of_description() -> None:
    lines = drawn(tools_table([tool(description="  First line.\nSecond line.")])).splitlines()
    assert lines[0].split() == ["mcp_files_read()", "First", "line."]
    assert len(lines) == 1


def test_hostile_names_and_descriptions_are_harmless() -> None:
    text = drawn(tools_table([tool("a\x1b[2J", "b\u202ec", **{"d\x9b": {"type": "string"}})]))
    assert not set(text) & {"\x1b", "\u202e", "\x9b"}
    assert "a�[2J(d�: str)" in text


def test_a_result_shows_text_image_sources_and_time() -> None:
    source = SourceRef(title="Sample Act", locator="Art. 4", updated="2026-01-30")
    shown = drawn(
        result_view(
            result(
                Part(kind="text", text="hello\x07"),
                Part(kind="image", data=b"abc", mime_type="image/png"),
                sources=(source, SourceRef(title="Undated")),
            )
        )
    )
    assert shown.splitlines() == [
        "hello�",
        "[image: image/png, 3 bytes]",
        "source: Sample Act, Art. 4, updated 2026-01-30",
        "source: Undated, date unknown",
        "✓ 12 ms",
    ]


def test_a_source_that_the_text_names_is_not_shown_again() -> None:
    source = SourceRef(title="Sample Act", locator="Art. 4", updated="2026-01-30")
    text = Part(kind="text", text="Two months.\nSource: Sample Act, Art. 4, x://4, updated 2026-01-30")
    assert drawn(result_view(result(text, sources=(source,)))).count("Sample Act") == 1
    assert (
        drawn(result_view(result(text, sources=(source.replace(updated="2026-02-01"),)))).count("Sample") == 2
    )


@pytest.mark.parametrize(
    ("text", "structured", "lines"),
    [
        ("", {"a": "x" * 300}, 4),
        ("short", {"a": 1}, 3),
        ("long data", {"a": "x" * 300}, 2),
        ('{"a": 1}', {"a": 1}, 4),
        ('{"a":1,"b":2}', {"b": 2, "a": 1}, 5),
        ("wrapped", {"result": "wrapped"}, 2),
    ],
)
def test_data_is_shown_where_it_is_short_or_alone_and_never_twice(
    text: str, structured: Any, lines: int
) -> None:
    parts = [Part(kind="text", text=text)] if text else []
    view = result_view(result(*parts, Part(kind="structured", value=structured), structured=structured))
    shown = drawn(view, width=400)
    assert len(shown.splitlines()) == lines


def test_a_long_result_is_cut_with_its_length() -> None:
    shown = drawn(result_view(result(Part(kind="text", text="x" * 500)), limit=100))
    assert shown.count("x") == 100
    assert "… (500 characters)" in shown


def test_a_failed_call_shows_its_error_only() -> None:
    failed = ToolResult(success=False, text="ignored", error="it broke\x1b")
    assert drawn(result_view(failed)) == "✗ it broke�\n"
    assert drawn(result_view(ToolResult(success=False))) == "✗ failed\n"


@pytest.mark.parametrize(("seconds", "shown"), [(0.0124, "12 ms"), (6.028, "6.0 s"), (400, "7 min")])
def test_how_long_a_call_took_is_written_in_the_unit_that_fits(seconds: float, shown: str) -> None:
    ended = ToolResult(success=True, parts=(Part(kind="text", text="a"),), duration=seconds)
    assert drawn(result_view(ended)).splitlines()[-1] == f"✓ {shown}"


def test_a_page_of_description_takes_a_few_lines_of_a_list() -> None:
    lines = drawn(tools_table([tool(description="检索法条。" * 200), tool(description="word " * 2000)]))
    assert len(lines.splitlines()) <= 12
    assert lines.count("…") == 2


def test_a_server_that_is_named_twice_has_one_group() -> None:
    rows = [("a", "a://1", "One"), ("b", "b://1", ""), ("a", "a://{x}", "Any")]
    lines = [line.rstrip() for line in drawn(offers_view(rows, "resources")).splitlines()]
    assert lines == [
        *("a", "  a://1", "      One", "  a://{x}", "      Any"),
        *("b", "  b://1"),
    ]
