"""The interactive session: slash commands are carried out, other lines go to the model, if there is one."""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.patch_stdout import patch_stdout
from rich.text import Text

from dragoman.cli import slash
from dragoman.cli.output import safe
from dragoman.cli.talking import talk
from dragoman.errors import DragomanError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document
    from rich.console import Console

    from dragoman.agent.engine import AgentEngine
    from dragoman.manager import McpManager


class Session:
    """Reads and answers lines until the person leaves; Ctrl-C ends the running command only."""

    def __init__(self, mcp: McpManager, console: Console, agent: AgentEngine | None = None) -> None:
        self._mcp = mcp
        self._agent = agent
        self._console = console
        self._prompt: PromptSession[str] = PromptSession(
            completer=_Completer(mcp), complete_while_typing=False
        )
        self._running: asyncio.Future[Any] | None = None
        self._interrupted = False

    async def run(self) -> None:
        """Run until `/quit` or Ctrl-D."""
        with _on_interrupt(self._interrupt):
            await self._read_and_answer()

    async def _read_and_answer(self) -> None:
        while True:
            self._interrupted = False
            try:
                with patch_stdout():
                    # While a line is edited Ctrl-C is a key; as a signal it is for the running command alone.
                    line = await self._prompt.prompt_async("dragoman> ", handle_sigint=False)
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if not line.strip():
                continue
            try:
                await self._answer(line)
            except slash.Leave:
                return

    async def _answer(self, line: str) -> None:
        if line.lstrip().startswith("/"):
            job = slash.run(self._mcp, line)
        elif self._agent is not None:
            job = talk(self._agent, line, self._console)
        else:
            self._complain("there is no model to talk to; commands begin with a slash: /help lists them")
            return
        self._running = task = asyncio.ensure_future(job)
        if self._interrupted:
            task.cancel()
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            self._running = None
        if task.cancelled():
            self._complain("interrupted")
            return
        try:
            outcome = task.result()
        except (slash.UsageError, DragomanError) as error:
            self._complain(str(error))
        else:
            self._console.print(outcome)

    def _interrupt(self) -> None:
        self._interrupted = True
        if self._running is not None:
            self._running.cancel()

    def _complain(self, text: str) -> None:
        self._console.print(Text(safe(text), style="yellow"))


@contextmanager
def _on_interrupt(action: Callable[[], None]) -> Generator[None]:
    """Let Ctrl-C do this, and nothing else."""
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGINT)
    try:
        loop.add_signal_handler(signal.SIGINT, action)
    except NotImplementedError:  # Windows: Ctrl-C ends the session there
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)


class _Completer(Completer):
    """Completes slash commands, servers, tools and the names of a tool's arguments."""

    def __init__(self, mcp: McpManager) -> None:
        self._mcp = mcp

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        del complete_event
        text = document.text_before_cursor.lstrip()
        word = text.rpartition(" ")[2]
        for candidate in self._candidates(text):
            if candidate.startswith(word if not candidate.startswith("/") else text):
                start = -len(text) if candidate.startswith("/") else -len(word)
                yield Completion(candidate, start_position=start)

    def _candidates(self, text: str) -> Iterable[str]:
        words = text.split(" ")
        if text.startswith(("/mcp tools ", "/mcp restart ")):
            return list(self._mcp.status())
        if words[0] == "/call" and len(words) == 2:
            return [tool.name for tool in self._mcp.tools()]
        if words[0] == "/call" and len(words) > 2:
            tool = next((tool for tool in self._mcp.tools() if tool.name == words[1]), None)
            properties: dict[str, Any] = (tool.input_schema.get("properties") or {}) if tool else {}
            return [f"{name}=" for name in properties]
        return list(slash.COMMANDS)
