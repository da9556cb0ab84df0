"""Render one turn of the model: streamed markdown, tool calls, and the running status line.

Finished blocks are printed once. Unfinished text and running calls are redrawn below them.
"""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any, Literal, cast

from markdown_it import MarkdownIt
from rich.console import Group
from rich.text import Text

from dragoman.agent.messages import (
    CallDelta,
    Noticed,
    Retrying,
    StepStarted,
    TextDelta,
    ThoughtDelta,
    ToolFinished,
    ToolProgressed,
    ToolStarted,
)
from dragoman.cli.output import cut, one_line, safe, width_of
from dragoman.cli.session.screen import CONTEXT, Markdown, code_tail
from dragoman.cli.tables import duration, shown_text
from dragoman.struct import MutableStruct, Struct
from dragoman.trust.masking import mask_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from markdown_it.token import Token
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from dragoman.agent.messages import AgentEvent
    from dragoman.cli.session.conversation import Conversation
    from dragoman.cli.session.screen import Screen
    from dragoman.cli.slash import Context
    from dragoman.model import ToolResult

_FENCE = re.compile(r" {0,3}(?P<mark>`{3,}+|~{3,}+)[ \t]*+(?P<language>[^\s`]*+)[^`\n]*+\n")
_NUMBER = re.compile(r"\A(\s*+)\d++(?=[.)])")
PIECE = 4_096
"""Characters parsed at once."""
MAX_HELD = 16_384
"""Longer blocks are split: an unfinished block is parsed again with each new line."""
_LISTS = frozenset({"bullet_list_open", "ordered_list_open"})
_SINGLE_LINE = frozenset({"heading_open", "hr"})
_ENDED_BY_BLANK = frozenset({"paragraph_open", "table_open", "blockquote_open"})


class Block(Struct):
    """A part of a markdown text that can be rendered on its own."""

    kind: Literal["text", "code"]
    source: str
    """Markdown, or one line of code without the line break."""
    follows: bool = False
    """Whether it continues the previous block, without an empty line between them."""
    language: str = ""
    """The language of a code block."""


class Blocks:
    """Collects streamed text and returns the blocks that are finished."""

    def __init__(self) -> None:
        self._parser = MarkdownIt("commonmark").enable("table").enable("strikethrough")
        self._begun = ""
        self._fence = ""
        """The fence of the open code block; empty outside of code."""
        self._language = ""
        self._follows = False
        self._number: int | None = None
        """The number of the next item of an ordered list."""

    @property
    def rest(self) -> Block | None:
        """The unfinished rest, which may still change."""
        if not self._begun.strip():
            return None
        if self._fence:
            return Block("code", self._begun.rstrip("\n"), self._follows, self._language)
        return Block("text", self._numbered(self._begun), self._follows)

    def feed(self, text: str) -> list[Block]:
        """Add text and return the finished blocks."""
        done: list[Block] = []
        # Feed small pieces: for each finished block, the text after it is parsed again.
        for start in range(0, len(text), PIECE):
            piece = text[start : start + PIECE]
            self._begun += piece
            done += self._done() if "\n" in piece else ()
            if len(self._begun) > MAX_HELD:
                kept, newline, self._begun = self._begun.rpartition("\n")
                kept, self._begun = (kept, self._begun) if newline else (self._begun, "")
                kind: Literal["text", "code"] = "code" if self._fence else "text"
                done.append(
                    Block(kind, self._numbered(kept), self._follows, self._language if self._fence else "")
                )
                self._follows = True
        return done

    def end(self) -> list[Block]:
        """Return the rest at the end of the text."""
        done = self.feed("\n") if self._begun else []
        last, self._begun, self._fence = self.rest, "", ""
        return [*done, last] if last is not None else done

    def _done(self) -> Iterator[Block]:
        before = None
        while before != (self._begun, self._fence):
            before = (self._begun, self._fence)
            if self._fence:
                yield from self._code()
            else:
                yield from self._text()

    def _code(self) -> Iterator[Block]:
        while "\n" in self._begun:
            line, _, self._begun = self._begun.partition("\n")
            stripped = line.strip()
            if stripped.startswith(self._fence) and not stripped.strip(self._fence[0]):
                self._fence, self._follows = "", False
                return
            yield Block("code", line.rstrip("\r"), self._follows, self._language)
            self._follows = True

    def _text(self) -> Iterator[Block]:
        """Yield all blocks but the last; of a list all items but the last."""
        lines = [f"{line}\n" for line in self._begun.split("\n")[:-1]]
        tokens, tops = self._parsed(lines)
        for at, token in enumerate(tops):
            start, stop = token.map or (0, 0)
            is_last = at == len(tops) - 1
            if token.type == "fence" and (opening := _FENCE.match(lines[start])):
                self._fence, self._language = opening["mark"], opening["language"]
                self._follows, self._number = False, None
                self._drop(lines, start + 1)
                return
            if token.type in _LISTS:
                kept = yield from self._items(token, tokens, lines, is_last=is_last)
                if is_last:
                    self._drop(lines, kept)
                    return
            elif not is_last or _is_over(token, lines[stop - 1 :]):
                yield Block("text", "".join(lines[start:stop]).strip("\n"), self._follows)
            else:
                self._drop(lines, start)
                return
            self._follows, self._number = False, None
        self._drop(lines, len(lines))

    def _parsed(self, lines: Sequence[str]) -> tuple[list[Token], list[Token]]:
        """Return all tokens and the top-level tokens, up to the first code block."""
        code = next((at for at, line in enumerate(lines) if _FENCE.match(line)), len(lines))
        for end in dict.fromkeys((code + 1, len(lines))):
            tokens = self._parser.parse("".join(lines[:end]))
            tops = [token for token in tokens if token.level == 0 and token.nesting >= 0 and token.map]
            # Code inside a list is part of the list.
            if end >= len(lines) or any(token.type == "fence" for token in tops):
                return tokens, tops
        return [], []

    def _items(
        self, token: Token, tokens: Sequence[Token], lines: Sequence[str], *, is_last: bool
    ) -> Generator[Block, None, int]:
        """Yield the finished items of a list; return the first line of the unfinished item."""
        first = tokens.index(token)
        starts: list[int] = []
        for inner in tokens[first + 1 :]:
            if inner.level == 0:
                break
            if inner.type == "list_item_open" and inner.level == 1 and inner.map:
                starts.append(inner.map[0])
        if token.type == "ordered_list_open" and self._number is None:
            self._number = int(token.attrGet("start") or 1)
        stop = (token.map or (0, 0))[1]
        for start, end in zip(starts, [*starts[1:], None], strict=True):
            if end is None and is_last:
                return start
            source = "".join(lines[start : stop if end is None else end]).rstrip("\n")
            yield Block("text", self._numbered(source), self._follows)
            self._follows = True
            if self._number is not None:
                self._number += 1
        return stop

    def _numbered(self, source: str) -> str:
        """Set the number of an item: rendered alone, it would start at its own number."""
        if self._number is None:
            return source
        return _NUMBER.sub(rf"\g<1>{self._number}", source, count=1)

    def _drop(self, lines: Sequence[str], count: int) -> None:
        self._begun = self._begun[sum(map(len, lines[:count])) :]


def _is_over(token: Token, lines: Sequence[str]) -> bool:
    """Return whether more text cannot become part of the last block."""
    if token.type in _SINGLE_LINE:
        return True
    return token.type in _ENDED_BY_BLANK and bool(lines) and not lines[-1].strip()


FOLDED = 3
"""Lines of a result that are shown; `/last` shows all."""
BAR = 20
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
LONGEST = 400
"""The maximum length of the shown arguments."""
_MESSAGE = 30
_HINT = "  /last"


class PastCall(Struct, kw_only=True):
    """A call of this session, for `/last`."""

    tool: str
    arguments: str
    """On one line, with secrets masked."""
    result: ToolResult


class RunningWork(MutableStruct):
    """A running call or other work."""

    label: Text
    began: float
    progress: float | None = None
    total: float | None = None
    message: str = ""

    def update(self, progress: float, total: float | None, message: str | None) -> None:
        """Set the progress that the server reports."""
        self.progress, self.total = progress, total
        self.message = safe(" ".join((message or "").split()))

    def view(self, now: float) -> RenderableType:
        """Return the current status line."""
        return _Line(
            lead=Text(f"{frame(now)} ", style="cyan"),
            body=self.label,
            tail=Text.assemble(*self._share(), (f"  {duration(max(0.0, now - self.began))}", "dim")),
        )

    def _share(self) -> list[tuple[str, str]]:
        if self.progress is None:
            return []
        message = f" {cut(self.message, _MESSAGE)}" if self.message else ""
        if not self.total or self.total <= 0:
            return [(f"  {self.progress:g}{message}", "dim")]
        done = round(BAR * min(1.0, max(0.0, self.progress / self.total)))
        return [
            ("  " + "━" * done, "cyan"),
            ("╌" * (BAR - done), "dim"),
            (f" {self.progress:g}/{self.total:g}{message}", "dim"),
        ]


class _Line(Struct):
    """One line whose middle part is truncated if it is too long."""

    lead: Text
    body: Text
    tail: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = max(8, options.max_width - self.lead.cell_len - self.tail.cell_len)
        body = self.body.copy()
        body.truncate(room, overflow="ellipsis")
        line = Text.assemble(self.lead, body, self.tail)
        line.no_wrap, line.overflow = True, "ellipsis"
        yield line


def frame(now: float) -> str:
    """Return the current frame of the spinner."""
    return FRAMES[int(now * 10) % len(FRAMES)]


def called(tool: str, arguments: str) -> Text:
    """Return the name and arguments of a call."""
    return Text.assemble((safe(tool), "bold cyan"), f"({safe(arguments)})")


def short_arguments(value: Any, raw: str = "") -> str:
    """Return the arguments of a call on one line, with secrets masked."""
    if not isinstance(value, dict):
        return " ".join(raw[:LONGEST].split())
    masked = cast("dict[str, Any]", mask_arguments(cast("dict[str, Any]", value), limit=80))
    words = [f"{name}={json.dumps(one, ensure_ascii=False, default=str)}" for name, one in masked.items()]
    return " ".join(", ".join(words)[:LONGEST].split())


def finished(tool: str, arguments: str, result: ToolResult) -> RenderableType:
    """Return a finished call: outcome, duration, and the first lines of the result."""
    mark = ("✓ ", "green") if result.success else ("✗ ", "red")
    head = _Line(
        lead=Text.assemble(mark),
        body=called(tool, arguments),
        tail=Text(f"  {duration(result.duration)}", style="dim"),
    )
    text = shown_text(result) if result.success else result.error or "failed"
    lines = [" ".join(line.split()) for line in safe(text[:50_000]).splitlines() if line.strip()]
    return Group(head, _Folded(lines, style="dim" if result.success else "red"))


class _Folded(Struct):
    """The first lines of a result, cut to the screen width; `/last` is mentioned if more follows."""

    lines: list[str]
    style: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = max(8, options.max_width - 4)
        # A single extra line takes as much space as the hint about it.
        shown = self.lines if len(self.lines) <= FOLDED + 1 else self.lines[:FOLDED]
        is_cut = any(width_of(line) > room for line in shown)
        for at, line in enumerate(shown):
            hint = _HINT if is_cut and at == len(shown) - 1 == len(self.lines) - 1 else ""
            text = cut(line, room - len(hint))
            yield Text.assemble(("  │ ", "dim"), (text, self.style), (hint, "dim"))
        if more := len(self.lines) - len(shown):
            yield Text(f"  │ … {more} more lines:{_HINT[1:]}", style="dim")


ENDS = {
    "length": "The answer was cut off at the model's output limit.",
    "refused": "The model refused to answer.",
    "other": "The model stopped for an unknown reason.",
}


async def talk(conversation: Conversation, question: str, screen: Screen, context: Context) -> None:
    """Send a message to the model, and show calls and the answer."""
    shown = Talk(screen, context)
    async with screen.working(shown.view):
        try:
            answer = await conversation.ask(question, shown.on_event)
        finally:
            shown.end()
    if answer.finish in ENDS:
        screen.complain(ENDS[answer.finish])
    screen.print()


class Talk:
    """Renders the events of an agent."""

    def __init__(
        self, screen: Screen, context: Context, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._screen = screen
        self._context = context
        self._clock = clock
        self._began = clock()
        self._blocks = Blocks()
        self._code: list[str] = []
        self._running: dict[str, RunningWork] = {}
        self._doing = "thinking"
        self._printed = False
        """Whether something was printed, so that an empty line is needed."""

    def on_event(self, event: AgentEvent) -> None:
        """Handle an event."""
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
                self._running[call.id] = RunningWork(called(name, given), self._clock())
            case ToolProgressed(call=call) if call.id in self._running:
                self._running[call.id].update(event.progress, event.total, event.message)
            case ToolFinished(call=call, tool=name, result=result):
                self._running.pop(call.id, None)
                given = short_arguments(call.arguments, call.raw)
                self._context.calls.append(PastCall(tool=name, arguments=given, result=result))
                self._print(finished(name, given, result))
                self._doing = "thinking"
            case Noticed(text=text):
                self._screen.print_line(text, style="dim")
            case Retrying(reason=reason, pause=pause):
                self._screen.complain(f"{reason}; retrying in {duration(pause)}")
            case _:
                pass
        self._screen.refresh()

    def view(self) -> RenderableType:
        """Return the unfinished text and the running calls."""
        now = self._clock()
        lines: list[RenderableType] = []
        if (rest := self._blocks.rest) is not None:
            if self._printed and not rest.follows:
                lines.append("")
            lines.append(self._drawn(rest))
        if self._running:
            return Group(*lines, *(one.view(now) for one in self._running.values()))
        took = duration(max(0.0, now - self._began))
        hint = Text.assemble((f"{frame(now)} ", "cyan"), (f"{self._doing}  {took}  Ctrl-C to stop", "dim"))
        return Group(*lines, *([""] if lines else []), hint)

    def end(self) -> None:
        """Print the rest of the text."""
        self._end_text()

    def _text(self, text: str) -> None:
        if not self._screen.is_live:
            # In a pipe, print markdown unrendered.
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
        # The colors of a line depend on the lines above.
        above = self._code if block.follows else []
        return code_tail(above, block.source, block.language)

    def _print(self, renderable: RenderableType) -> None:
        self._screen.print(renderable)
        self._printed = True
