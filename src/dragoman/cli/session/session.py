"""The interactive session: slash commands are carried out, other lines go to the model, if there is one.

Owns the turn of reading and answering. Ctrl-C ends what is running and nothing else; on an empty line, twice,
it ends the session. Without a terminal lines are read until there are no more, and answered one by one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from rich.text import Text

from dragoman.cli.output import one_line, safe
from dragoman.cli.session.call_lines import Running
from dragoman.cli.session.history import LineHistory
from dragoman.cli.session.logbook import state_folder
from dragoman.cli.session.prompting import LineEditor, TerminalAsker, fitted
from dragoman.cli.session.proposing import Listed, SlashCompleter
from dragoman.cli.session.questions import AbandonedError
from dragoman.cli.session.talking import talk
from dragoman.cli.slash import table as slash
from dragoman.errors import DragomanError
from dragoman.model import ServerState

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator

    from prompt_toolkit.formatted_text import FormattedText

    from dragoman.cli.session.consent import Consent
    from dragoman.cli.session.conversation import Conversation
    from dragoman.cli.session.screen import Screen
    from dragoman.manager import McpManager

HISTORY = "history"
PATIENCE = 0.25
"""Seconds that a command may take before anything is drawn about it."""
_LIVE = frozenset({ServerState.READY, ServerState.DEGRADED})


class Session:
    """Reads and answers lines until the person leaves."""

    def __init__(
        self,
        mcp: McpManager,
        screen: Screen,
        *,
        conversation: Conversation | None = None,
        asker: TerminalAsker | None = None,
        consent: Consent | None = None,
    ) -> None:
        """Take in what the session is about.

        Args:
            mcp: The servers.
            screen: Where everything is shown.
            conversation: The talk with a model; without it the session is a console for tools.
            asker: Who is asked; an own one on a terminal unless given, nobody elsewhere.
            consent: Asks before each line about tools that have changed since.
        """
        self._mcp = mcp
        self._screen = screen
        self._conversation = conversation
        self._listed = Listed(mcp)
        self._running: asyncio.Future[Any] | None = None
        self._interrupted = False
        self._work: Running | None = None
        self._editor: LineEditor | None = None
        self._asker = asker
        self._consent = consent
        self._context = slash.Context(
            mcp=mcp,
            conversation=conversation,
            asker=asker,
            say=screen.print,
            talk=self._talk if conversation is not None else None,
            on_progress=self._progressed,
        )

    async def run(self) -> None:
        """Talk with the person at the terminal until `/quit`, Ctrl-D, or Ctrl-C twice."""
        asker = self._asker or TerminalAsker(self._screen)
        asker.on_interrupt = self._interrupt
        self._context.asker = asker
        self._editor = editor = LineEditor(
            completer=SlashCompleter(self._mcp, self._listed),
            history=LineHistory(state_folder() / HISTORY),
            toolbar=self._toolbar,
        )
        async with _beside(self._listed.follow(editor.refresh)):
            with _on_interrupt(self._interrupt):
                while True:
                    self._interrupted = False
                    try:
                        line = await editor.next_line()
                    except (EOFError, KeyboardInterrupt):
                        return
                    try:
                        await self._answer(line)
                    except slash.Leave:
                        return

    async def run_plain(self, lines: AsyncIterator[str]) -> bool:
        """Answer lines that come from no terminal; tell whether all of them could be answered."""
        fine = True
        async for line in lines:
            try:
                fine &= await self._answer(line)
            except slash.Leave:
                break
        return fine

    async def _answer(self, line: str) -> bool:
        if not line.strip():
            return True
        self._running = task = asyncio.ensure_future(self._do(line))
        if self._interrupted:
            task.cancel()
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        finally:
            self._running = None
        if task.cancelled():
            self._screen.print(Text("interrupted", style="yellow"))
            return False
        try:
            task.result()
        except (slash.UsageError, DragomanError) as error:
            self._screen.complain(str(error))
            return False
        except AbandonedError:
            self._screen.print(Text("not done", style="yellow"))
            return False
        return True

    async def _do(self, line: str) -> None:
        if self._consent is not None:
            await self._consent.review(self._mcp)
        await (self._carry_out(line) if line.lstrip().startswith("/") else self._talk(line))

    async def _carry_out(self, line: str) -> None:
        began = time.monotonic()
        self._work = work = Running(Text(one_line(line), style="bold cyan"), began)
        async with self._screen.working(lambda: work.view(time.monotonic()), after=PATIENCE):
            outcome = await slash.run(self._context, line)
        if outcome:
            self._screen.print(outcome)

    async def _talk(self, question: str) -> None:
        if self._conversation is None or not self._conversation.is_open:
            msg = "there is no model to talk to; commands begin with a slash: /help lists them"
            raise slash.UsageError(msg)
        await talk(self._conversation, question, self._screen, self._context)

    def _progressed(self, progress: float, total: float | None, message: str | None) -> None:
        if self._work is not None:
            self._work.told(progress, total, message)
            self._screen.refresh()

    def _interrupt(self) -> None:
        self._interrupted = True
        if self._running is not None:
            self._running.cancel()

    def _toolbar(self, columns: int) -> FormattedText:
        pieces: list[tuple[str, str]] = []
        if self._editor is not None and self._editor.is_leaving:
            pieces.append(("class:warn", "Ctrl-C again leaves"))
        talk_ = self._conversation
        if talk_ is not None:
            pieces.append(("", talk_.model or "no model"))
        states = [status.state for status in self._mcp.status().values()]
        ready = sum(state in _LIVE for state in states)
        pieces.append(("" if ready == len(states) else "class:warn", f"{ready}/{len(states)} servers"))
        if talk_ is not None and talk_.tokens:
            pieces.append(("", f"{_short(talk_.tokens)} tokens"))
            if (money := talk_.money()) is not None:
                pieces.append(("", f"{money:.4f} spent"))
        return fitted([*pieces, ("class:dim", "/help")], columns)


def _short(number: int) -> str:
    return f"{number / 1000:.1f}k" if number >= 10_000 else f"{number:,}"


async def lines_of_stdin() -> AsyncGenerator[str]:
    """Yield what comes on standard input, line by line.

    A thread reads it, since a file cannot be waited for; it holds no lock, so that the program can end while
    it waits.
    """
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        while True:
            try:
                piece = os.read(descriptor, 65_536)
            except OSError:
                piece = b""
            try:
                loop.call_soon_threadsafe(pieces.put_nowait, piece)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return
            if not piece:
                return

    descriptor = sys.stdin.fileno()
    threading.Thread(target=read, name="dragoman stdin", daemon=True).start()
    begun = b""
    while piece := await pieces.get():
        *whole, begun = (begun + piece).split(b"\n")
        for line in whole:
            yield safe(line.decode("utf-8", "replace").rstrip("\r"))
    if begun:
        yield safe(begun.decode("utf-8", "replace"))


@asynccontextmanager
async def _beside(job: Any) -> AsyncGenerator[None]:
    """Do something in the background until the block is left."""
    task = asyncio.create_task(job, name="dragoman session")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


@contextmanager
def _on_interrupt(action: Callable[[], None]) -> Generator[None]:
    """Let Ctrl-C do this, and nothing else."""
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGINT)
    try:
        loop.add_signal_handler(signal.SIGINT, action)
    except (NotImplementedError, RuntimeError, ValueError):  # Windows, or not the main thread
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
