"""One question to the model, shown as it is worked on: text as it comes, calls as they happen.

Owns the order on the screen: what is done is printed for good, what is not stands below it and changes.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from dragoman.agent.messages import CallDelta, Retrying, TextDelta, ThoughtDelta
from dragoman.agent.steps import Noticed, StepStarted, ToolFinished, ToolProgressed, ToolStarted
from dragoman.cli.output import one_line, safe
from dragoman.cli.session.call_lines import Running, called, finished, frame, short_arguments
from dragoman.cli.session.markdown import CONTEXT, Markdown, code_tail
from dragoman.cli.session.streaming import Blocks
from dragoman.cli.slash.command import PastCall
from dragoman.cli.tables import duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from dragoman.agent.steps import AgentEvent
    from dragoman.cli.session.conversation import Conversation
    from dragoman.cli.session.screen import Screen
    from dragoman.cli.session.streaming import Block
    from dragoman.cli.slash.command import Context

ENDS = {
    "length": "the answer was cut off: it reached the model's limit",
    "refused": "the model refused to answer",
    "other": "the model ended for a reason of its own",
}


async def talk(conversation: Conversation, question: str, screen: Screen, context: Context) -> None:
    """Ask, and show everything that happens until the answer is there."""
    shown = Talk(screen, context)
    async with screen.working(shown.view):
        try:
            answer = await conversation.ask(question, shown.hear)
        finally:
            shown.end()
    if answer.finish in ENDS:
        screen.complain(ENDS[answer.finish])
    screen.print()


class Talk:
    """Draws what an agent's events tell."""

    def __init__(
        self, screen: Screen, context: Context, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._screen = screen
        self._context = context
        self._clock = clock
        self._began = clock()
        self._blocks = Blocks()
        self._code: list[str] = []
        self._running: dict[str, Running] = {}
        self._doing = "thinking"
        self._printed = False
        """Whether anything stands above that an empty line has to follow."""

    def hear(self, event: AgentEvent) -> None:
        """Take in an event."""
        match event:
            case StepStarted():
                self._doing = "thinking"
            case ThoughtDelta():
                self._doing = "thinking"
            case TextDelta(text=text):
                self._doing = "answering"
                self._text(text)
            case CallDelta(name=name):
                self._doing = f"preparing {one_line(name)}"
            case ToolStarted(call=call, tool=name):
                self._end_text()
                given = short_arguments(call.arguments, call.raw)
                self._running[call.id] = Running(called(name, given), self._clock())
            case ToolProgressed(call=call) if call.id in self._running:
                self._running[call.id].told(event.progress, event.total, event.message)
            case ToolFinished(call=call, tool=name, result=result):
                self._running.pop(call.id, None)
                given = short_arguments(call.arguments, call.raw)
                self._context.calls.append(PastCall(tool=name, arguments=given, result=result))
                self._print(finished(name, given, result))
                self._doing = "thinking"
            case Noticed(text=text):
                self._screen.remark(text, style="dim")
            case Retrying(reason=reason, pause=pause):
                self._screen.complain(f"{reason}; again in {duration(pause)}")
            case _:
                pass
        self._screen.refresh()

    def view(self) -> RenderableType:
        """Draw what is not done yet."""
        now = self._clock()
        lines: list[RenderableType] = []
        if (rest := self._blocks.rest) is not None:
            if self._printed and not rest.follows:
                lines.append("")
            lines.append(self._drawn(rest))
        if self._running:
            return Group(*lines, *(one.view(now) for one in self._running.values()))
        took = duration(max(0.0, now - self._began))
        hint = Text.assemble((f"{frame(now)} ", "cyan"), (f"{self._doing}  {took}  Ctrl-C stops it", "dim"))
        return Group(*lines, *([""] if lines else []), hint)

    def end(self) -> None:
        """Print what is left of the text: nothing more will come."""
        self._end_text()

    def _text(self, text: str) -> None:
        if not self._screen.is_live:
            # In a pipe markdown stays as it is: what reads it may want it so.
            self._screen.console.file.write(safe(text))
            self._screen.console.file.flush()
            self._printed = True
            return
        for block in self._blocks.feed(safe(text)):
            self._print_block(block)

    def _end_text(self) -> None:
        if not self._screen.is_live:
            if self._printed:
                self._screen.console.file.write("\n")
                self._printed = False
            return
        for block in self._blocks.end():
            self._print_block(block)
        self._blocks, self._code = Blocks(), []

    def _print_block(self, block: Block) -> None:
        drawn = self._drawn(block)
        if block.kind == "code":
            self._code = [*self._code[-CONTEXT:], block.source] if block.follows else [block.source]
        if self._printed and not block.follows:
            self._screen.print()
        self._print(drawn)

    def _drawn(self, block: Block) -> RenderableType:
        if block.kind == "text":
            return Markdown(block.source)
        # Colours depend on the lines above; only the newest one is new.
        above = self._code if block.follows else []
        return code_tail(above, block.source, block.language)

    def _print(self, renderable: RenderableType) -> None:
        self._screen.print(renderable)
        self._printed = True
