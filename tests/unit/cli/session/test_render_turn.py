"""A question at work: text as it comes, calls as they happen, the same on every width, plain in a pipe."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

import pytest
from tests.unit.cli.program import SERVERS
from tests.unit.cli.session.test_screen import Desk

from dragoman import McpManager, ServerSpec, Stdio
from dragoman.agent import Say, ScriptedProvider
from dragoman.agent.messages import (
    CallDelta,
    Noticed,
    Retrying,
    StepStarted,
    TextDelta,
    ToolCall,
    ToolFinished,
    ToolProgressed,
    ToolStarted,
)
from dragoman.cli import slash
from dragoman.cli.session.conversation import Conversation
from dragoman.cli.session.render_turn import Talk, talk
from dragoman.cli.session.screen import Screen, make_console
from dragoman.model import Part, ToolResult

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ANSWER = """# Result

A **bold** word and `code`:

1. one
1. two

```python
x = "押金"  # said
```

The end."""
CALL = ToolCall(id="1", name="t", arguments={"a": 1}, raw='{"a": 1}')


@pytest.fixture
async def mcp() -> AsyncIterator[McpManager]:
    spec = ServerSpec("one", Stdio(sys.executable, [str(SERVERS / "plain.py")]))
    # Without it the model's calls would be asked about.
    async with McpManager([spec], policy=[{"action": "allow", "tool": "echo"}]) as manager:
        assert await manager.wait_ready()
        yield manager


def scripted() -> ScriptedProvider:
    return ScriptedProvider([Say(text="Look:", calls=[("mcp_one_echo", {"text": "hi"})]), ANSWER])


@pytest.mark.parametrize("columns", [80, 200])
async def test_an_answer_is_printed_as_markdown_with_its_calls(mcp: McpManager, columns: int) -> None:
    desk = Desk(columns, 40)
    context = slash.Context(mcp=mcp)
    async with Conversation(mcp, scripted()) as conversation:
        await talk(conversation, "?", desk.screen, context)
    shown = desk.shown()
    assert shown[0] == "Look:"
    assert shown[1].startswith('✓ mcp_one_echo(text="hi")  ')
    assert shown[2:] == [
        "  │ hi",
        "",
        "Result",
        "",
        "A bold word and code:",
        "",
        " 1 one",
        " 2 two",
        "",
        '  x = "押金"  # said',
        "",
        "The end.",
    ]
    assert [past.tool for past in context.calls] == ["mcp_one_echo"]


async def test_in_a_pipe_the_text_stays_as_it_is_and_there_are_no_codes(
    mcp: McpManager, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = Screen(make_console())
    async with Conversation(mcp, scripted()) as conversation:
        await talk(conversation, "?", screen, slash.Context(mcp=mcp))
    written = capsys.readouterr().out
    assert written.startswith('Look:\n✓ mcp_one_echo(text="hi")')
    assert written.rstrip().endswith(ANSWER)
    assert "\x1b" not in written


async def test_what_is_not_done_is_seen_below_and_changes(mcp: McpManager) -> None:
    desk = Desk(80, 20)
    shown = Talk(desk.screen, slash.Context(mcp=mcp), clock=lambda: desk.now)

    def after(event: object) -> list[str]:
        desk.now += 1
        shown.on_event(event)  # type: ignore[arg-type]
        return desk.shown()

    async with desk.screen.working(shown.view):
        assert after(StepStarted(step=1, tools=2))[-1].endswith("thinking  1.0 s  Ctrl-C to stop")
        assert after(TextDelta(text="A **bo"))[0] == "A **bo"
        assert after(TextDelta(text="ld** word"))[0] == "A bold word"
        assert "preparing t" in after(CallDelta(id="1", name="t", raw=""))[-1]
        lines = after(ToolStarted(call=CALL, tool="t", server="s"))
        assert lines[0] == "A bold word"
        assert lines[-1].endswith("t(a=1)  0.0 s") or lines[-1].endswith("t(a=1)  <1 ms")
        assert "━━━━━━━━━━╌" in after(ToolProgressed(call=CALL, progress=1, total=2, message="half"))[-1]
        after(Noticed(text="the tools of server `s` have changed " + "x" * 200))
        after(Retrying(reason="too many requests", pause=2.0))
        result = ToolResult(success=True, parts=[Part(kind="text", text="done")], duration=1.0)
        lines = after(ToolFinished(call=CALL, tool="t", result=result))
        shown.end()
    lines = desk.shown()
    assert lines[0] == "A bold word"
    assert lines[1].startswith("· the tools of server `s` have changed x")
    assert lines[1].endswith("…")
    assert lines[2:] == ["! too many requests; retrying in 2.0 s", "✓ t(a=1)  1.0 s", "  │ done"]


@pytest.mark.parametrize(("finish", "words"), [("length", "was cut off"), ("refused", "refused to answer")])
async def test_an_answer_that_ended_early_says_so(mcp: McpManager, finish: str, words: str) -> None:
    paper = io.StringIO()
    from rich.console import Console

    screen = Screen(Console(file=paper, width=80, color_system=None))
    provider = ScriptedProvider([Say(text="half", finish=finish)])  # type: ignore[arg-type]
    async with Conversation(mcp, provider) as conversation:
        await talk(conversation, "?", screen, slash.Context(mcp=mcp))
    assert words in paper.getvalue()


async def test_code_of_any_length_keeps_its_colours_bounded(mcp: McpManager) -> None:
    desk = Desk(80, 20)
    shown = Talk(desk.screen, slash.Context(mcp=mcp), clock=lambda: desk.now)
    async with desk.screen.working(shown.view):
        shown.on_event(TextDelta(text="```python\n" + "".join(f"x{n} = {n}\n" for n in range(300)) + "```\n"))
        shown.end()
    printed = "".join(desk.paper.writes)
    assert "x299" in printed
    assert printed.count("x7 ") + printed.count("x7\x1b") <= 2
