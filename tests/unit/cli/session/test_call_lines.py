"""Calls on the screen: one line each whatever they say, progress as a bar, results folded and never wider."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from rich.cells import cell_len
from rich.console import Console

from dragoman import ToolResult
from dragoman.cli.session.render_turn import RunningWork, called, finished, short_arguments
from dragoman.model import Part

if TYPE_CHECKING:
    from rich.console import RenderableType


def drawn(renderable: RenderableType, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def result(text: str, *, success: bool = True) -> ToolResult:
    parts = [Part(kind="text", text=text)]
    return ToolResult(success=success, parts=parts, error=None if success else text, duration=0.25)


def test_a_call_that_ended_shows_its_time_and_a_short_result_whole() -> None:
    assert drawn(finished("mcp_a_b", "x=1", result("one\n\n  two\nthree\nfour"))) == [
        "✓ mcp_a_b(x=1)  0.2 s",
        "  │ one",
        "  │ two",
        "  │ three",
        "  │ four",
    ]


def test_a_long_result_is_folded_and_says_how_to_unfold_it() -> None:
    assert drawn(finished("t", "", result("\n".join(f"line {n}" for n in range(9))))) == [
        "✓ t()  0.2 s",
        "  │ line 0",
        "  │ line 1",
        "  │ line 2",
        "  │ … 6 more lines: /last",
    ]
    (_, cut) = drawn(finished("t", "", result("x" * 200)))
    assert cut.endswith("…  /last")


def test_a_failed_call_shows_its_error() -> None:
    assert drawn(finished("t", "a=1", result("it broke\x1b[2J", success=False))) == [
        "✗ t(a=1)  0.2 s",
        "  │ it broke�[2J",
    ]


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    running = RunningWork(called("mcp_legal_search", 'query="押金" * 40'), 0.0)
    running.update(3, 10, "律" * 60)
    lines = [
        *drawn(running.view(1.5), width),
        *drawn(finished("x" * 100, "y" * 300, result("押金" * 300)), width),
    ]
    assert len(drawn(running.view(1.5), width)) == 1
    assert max(cell_len(line) for line in lines) <= width


def test_progress_is_a_bar_where_the_total_is_known_and_a_number_elsewhere() -> None:
    running = RunningWork(called("t", ""), 10.0)
    assert drawn(running.view(12.0)) == ["⠋ t()  2.0 s"]
    running.update(5, 10, "half")
    assert drawn(running.view(12.0)) == ["⠋ t()  ━━━━━━━━━━╌╌╌╌╌╌╌╌╌╌ 5/10 half  2.0 s"]
    running.update(50, 10, None)
    assert "━" * 20 in drawn(running.view(12.0))[0]
    running.update(7, None, "files")
    assert drawn(running.view(12.0)) == ["⠋ t()  7 files  2.0 s"]


def test_arguments_are_short_and_without_secrets() -> None:
    assert short_arguments({"a": 1, "b": ["x"]}) == 'a=1, b=["x"]'
    assert "hunter2" not in short_arguments({"password": "hunter2hunter2"})
    assert short_arguments(None, '{"broken"') == '{"broken"'
    assert len(short_arguments({"text": "x" * 5000})) < 200
