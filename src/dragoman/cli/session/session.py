"""The interactive session: runs slash commands and sends other lines to the model.

Ctrl-C stops the running work; pressed twice on an empty line, it ends the session. Without a terminal, lines
are read from standard input and answered one by one.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
import threading
import time
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from prompt_toolkit.history import History
from rich.text import Text

from dragoman.cli import interrupts, slash
from dragoman.cli.output import one_line, safe
from dragoman.cli.session.line_editor import LineEditor, Listed, SlashCompleter, TerminalAsker, fitted
from dragoman.cli.session.questions import AbandonedError
from dragoman.cli.session.render_turn import RunningWork, talk
from dragoman.cli.tables import in_session, reload_view
from dragoman.errors import DragomanError
from dragoman.model import ServerState
from dragoman.storage.files import private_folder, private_opener, state_folder, write_atomically
from dragoman.trust.masking import MASK, mask_args, mask_text

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable
    from pathlib import Path

    from prompt_toolkit.formatted_text import FormattedText

    from dragoman.cli.session.conversation import Conversation
    from dragoman.cli.session.questions import Consent
    from dragoman.cli.session.screen import Screen
    from dragoman.manager.manager import McpManager

MOST = 2_000
"""Lines to keep; the file is rewritten when it has twice as many."""
LONGEST = 10_000
"""Longer lines are not saved."""


class LineHistory(History):
    """A file with one JSON string per line, the newest last."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def load_history_strings(self) -> Iterable[str]:
        """Return the lines, the newest first; empty if the file cannot be read."""
        lines = self._read()
        if len(lines) > 2 * MOST:
            self._write(lines[-MOST:])
        return reversed(lines[-MOST:])

    def store_string(self, string: str) -> None:
        """Save a line, unless it contains a secret or starts with a space, as in a shell."""
        if not is_worth_keeping(string):
            return
        try:
            private_folder(self.path.parent)
            descriptor = private_opener(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            with os.fdopen(descriptor, "ab") as file:
                if hasattr(os, "fchmod"):
                    os.fchmod(file.fileno(), 0o600)
                file.write(f"{json.dumps(string)}\n".encode())
        except OSError:
            return  # The history is optional.

    def _read(self) -> list[str]:
        try:
            raw = self.path.read_bytes()
        except OSError:
            return []
        found: list[str] = []
        for line in raw.splitlines():
            try:
                text: object = json.loads(line)
            except ValueError:
                continue
            if isinstance(text, str):
                found.append(text)
        return found

    def _write(self, lines: list[str]) -> None:
        with suppress(OSError):
            text = "".join(f"{json.dumps(line)}\n" for line in lines)
            write_atomically(self.path, text.encode(), sync=False)


def is_worth_keeping(line: str) -> bool:
    """Return whether a line may be written to disk."""
    if not line.strip() or line.startswith(" ") or len(line) > LONGEST:
        return False
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    masked = [mask_text(line), *mask_args(words)]
    return MASK in line or not any(MASK in one for one in masked)


HISTORY = "history"
PATIENCE = 0.25
"""Seconds before a running command is shown."""
_LEAVING = frozenset({"exit", "quit"})
"""Words that end the session, as in a shell or in Python."""
_LIVE = frozenset({ServerState.READY, ServerState.DEGRADED})


class TerminalSession:
    """Reads and answers lines until the user quits."""

    def __init__(
        self,
        mcp: McpManager,
        screen: Screen,
        *,
        conversation: Conversation | None = None,
        asker: TerminalAsker | None = None,
        consent: Consent | None = None,
    ) -> None:
        """Create a session.

        Args:
            mcp: The servers.
            screen: The terminal.
            conversation: The conversation with a model; None: only slash commands work.
            asker: Asks the user; created by `run` if None.
            consent: Asks about changed tools before each line.
        """
        self._mcp = mcp
        self._screen = screen
        self._conversation = conversation
        self._listed = Listed(mcp)
        self._running: asyncio.Future[Any] | None = None
        self._interrupted = False
        self._work: RunningWork | None = None
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
            clear=screen.clear,
        )

    async def run(self) -> None:
        """Run the session at the terminal until `/quit`, Ctrl-D, or Ctrl-C twice."""
        asker = self._asker or TerminalAsker(self._screen)
        asker.on_interrupt = self._interrupt
        self._context.asker = asker
        self._editor = editor = LineEditor(
            completer=SlashCompleter(self._mcp, self._listed),
            history=LineHistory(state_folder() / HISTORY),
            toolbar=self._toolbar,
        )
        async with _beside(self._listed.follow(editor.refresh)):
            loop = asyncio.get_running_loop()
            with interrupts.calling(partial(loop.call_soon_threadsafe, self._interrupt)):
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
        """Answer lines without a terminal; return whether all of them succeeded."""
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
            self._screen.print(Text("Interrupted.", style="yellow"))
            return False
        try:
            task.result()
        except (slash.UsageError, DragomanError) as error:
            self._screen.complain(in_session(str(error)))
            return False
        except AbandonedError:
            self._screen.print(Text("Cancelled.", style="yellow"))
            return False
        return True

    async def _do(self, line: str) -> None:
        if line.strip().lower() in _LEAVING:
            raise slash.Leave
        if self._consent is not None:
            await self._consent.review(self._mcp)
        if words := _of_shell(line):
            await self._run_program(words)
            return
        await (self._carry_out(line) if line.lstrip().startswith("/") else self._talk(line))

    async def _run_program(self, words: list[str]) -> None:
        """Run a command such as `dragoman set …`, as messages print it, and take over what it has written."""
        stdin = None if self._editor is not None else asyncio.subprocess.DEVNULL
        sys.stdout.flush()
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "dragoman", *words, stdin=stdin, stdout=sys.stdout, stderr=sys.stderr
        )
        try:
            await child.wait()
        finally:
            if child.returncode is None:
                child.terminate()
                await child.wait()
        if self._mcp.settings.sources:
            report = await self._mcp.reload()
            if any((report.started, report.replaced, report.stopped, report.failed)):
                self._screen.print(reload_view(report))

    async def _carry_out(self, line: str) -> None:
        began = time.monotonic()
        self._work = work = RunningWork(Text(one_line(line), style="bold cyan"), began)
        async with self._screen.working(lambda: work.view(time.monotonic()), after=PATIENCE):
            outcome = await slash.run(self._context, line)
        if outcome:
            self._screen.print(outcome)

    async def _talk(self, question: str) -> None:
        if self._conversation is None or not self._conversation.is_open:
            msg = "No model configured: set an API key or use /model. /help lists commands."
            raise slash.UsageError(msg)
        await talk(self._conversation, question, self._screen, self._context)

    def _progressed(self, progress: float, total: float | None, message: str | None) -> None:
        if self._work is not None:
            self._work.update(progress, total, message)
            self._screen.refresh()

    def _interrupt(self) -> None:
        self._interrupted = True
        if self._running is not None:
            self._running.cancel()

    def _toolbar(self, columns: int) -> FormattedText:
        pieces: list[tuple[str, str]] = []
        if self._editor is not None and self._editor.is_leaving:
            pieces.append(("class:warn", "Press Ctrl-C again to quit"))
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


def _of_shell(line: str) -> list[str]:
    """Return the words after `dragoman` of a line for the shell; none if it is a question to the model."""
    from dragoman.cli.main import cli  # it imports the session

    program, *rest = line.split(None, 1) or [""]
    if program != "dragoman" or not rest:
        return []
    try:
        words = shlex.split(rest[0])
    except ValueError:
        return []
    return words if words[0] in cli.list_commands(click.Context(cli)) or words[0].startswith("-") else []


def _short(number: int) -> str:
    return f"{number / 1000:.1f}k" if number >= 10_000 else f"{number:,}"


MAX_LINE_BYTES = 1 << 20
MAX_PIECES = 16
"""Pieces of standard input that wait to be used."""


async def lines_of_stdin() -> AsyncGenerator[str]:
    """Yield the lines of standard input.

    A daemon thread reads them, because an event loop cannot wait for a regular file. It uses `os.read`, which
    holds no lock, so the program can exit while the thread waits.

    Raises:
        DragomanError: A line is too long: the input may have no end.
    """
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(MAX_PIECES)

    def read() -> None:
        while True:
            room.acquire()
            try:
                piece = os.read(descriptor, 65_536)
            except OSError:
                piece = b""
            try:
                loop.call_soon_threadsafe(pieces.put_nowait, piece)
            except RuntimeError:  # the loop is closed
                return
            if not piece:
                return

    descriptor = sys.stdin.fileno()
    threading.Thread(target=read, name="dragoman stdin", daemon=True).start()
    begun = b""
    while piece := await pieces.get():
        room.release()
        *whole, begun = (begun + piece).split(b"\n")
        for line in whole:
            yield safe(line.decode("utf-8", "replace").rstrip("\r"))
        if len(begun) > MAX_LINE_BYTES:
            msg = f"a line of standard input is longer than {MAX_LINE_BYTES:,} bytes"
            raise DragomanError(msg, hint="send shorter lines")
    if begun:
        yield safe(begun.decode("utf-8", "replace"))


@asynccontextmanager
async def _beside(job: Any) -> AsyncGenerator[None]:
    """Run a coroutine in the background until the block ends."""
    task = asyncio.create_task(job, name="dragoman session")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
