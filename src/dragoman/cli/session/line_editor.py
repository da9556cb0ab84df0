"""The input line of a session: keys, history, completion, toolbar, and questions to the user.

Enter sends the text; Alt-Enter or a trailing backslash starts a new line. A question ignores keys that were
pressed before it was shown.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app_or_none, get_app_session
from prompt_toolkit.completion import (
    CompleteEvent,
    Completer,
    Completion,
    WordCompleter,
    get_common_complete_suffix,
)
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.styles import Style

from dragoman.cli import slash
from dragoman.cli.arguments import description_of, properties_of, required_of, type_name
from dragoman.cli.options import THINK
from dragoman.cli.output import cut, one_line, safe, width_of
from dragoman.cli.session.questions import AbandonedError, choices_of, complaint
from dragoman.cli.session.screen import no_echo
from dragoman.errors import DragomanError, UnknownToolError
from dragoman.events import ConfigReloaded, PromptsChanged, ResourcesChanged, StateChanged
from dragoman.model import ServerState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from prompt_toolkit.buffer import Buffer
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyPressEvent
    from rich.console import RenderableType

    from dragoman.cli.session.screen import Screen
    from dragoman.manager.manager import McpManager
    from dragoman.model import Prompt, Resource, ToolDef

PROMPT = "dragoman> "
_MORE = "… "
# Use the colors of the terminal, so that it is readable on light and dark backgrounds.
_STYLE = Style.from_dict(
    {
        "bottom-toolbar": "noreverse",
        "bottom-toolbar.text": "noreverse",
        "completion-menu": "noreverse bg:default fg:default",
        "completion-menu.completion": "bg:default fg:default",
        "completion-menu.completion.current": "reverse",
        "completion-menu.meta.completion": "bg:default fg:ansibrightblack",
        "completion-menu.meta.completion.current": "bg:default fg:default",
        "scrollbar.background": "bg:default",
        "scrollbar.button": "bg:ansibrightblack",
        "prompt": "bold",
        "dim": "fg:ansibrightblack",
        "warn": "fg:ansiyellow",
        "good": "fg:ansigreen",
        "question": "bold fg:ansimagenta",
    }
)


class LineEditor:
    """Reads lines from the user."""

    def __init__(
        self,
        *,
        completer: Completer | None = None,
        history: History | None = None,
        toolbar: Callable[[int], FormattedText] | None = None,
    ) -> None:
        self.is_leaving = False
        """Whether Ctrl-C was pressed on the empty line; pressing it again quits."""
        self._toolbar = toolbar
        self._session: PromptSession[str] = PromptSession(
            completer=completer,
            history=history,
            complete_while_typing=Condition(self._is_command),
            multiline=True,
            prompt_continuation=_MORE,
            key_bindings=self._keys(),
            bottom_toolbar=self._drawn_toolbar if toolbar is not None else None,
            style=_STYLE,
            color_depth=_depth(),
            reserve_space_for_menu=6,
        )
        self._session.default_buffer.on_text_changed += self._stay

    async def next_line(self) -> str:
        """Return the next input.

        Raises:
            KeyboardInterrupt: Ctrl-C on an empty line, twice.
            EOFError: Ctrl-D on an empty line.
        """
        self.is_leaving = False
        # Hide the echo of keys that were pressed before the prompt was shown.
        with patch_stdout(raw=True), no_echo():
            # While editing, Ctrl-C is a key; as a signal it stops running work.
            return await self._session.prompt_async(
                FormattedText([("class:prompt", PROMPT)]), handle_sigint=False
            )

    def refresh(self) -> None:
        """Redraw the toolbar."""
        self._session.app.invalidate()

    def _stay(self, _buffer: object) -> None:
        self.is_leaving = False

    def _is_command(self) -> bool:
        return self._session.default_buffer.document.text.lstrip().startswith("/")

    def _drawn_toolbar(self) -> FormattedText:
        app = get_app_or_none()
        columns = app.output.get_size().columns if app is not None else 80
        return self._toolbar(columns) if self._toolbar is not None else FormattedText()

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            state = buffer.complete_state
            if state is not None and state.current_completion is not None:
                buffer.complete_state = None
                _add_space(buffer)
            elif (
                buffer.document.current_line_before_cursor.endswith("\\")
                and buffer.document.is_cursor_at_the_end
            ):
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            else:
                buffer.validate_and_handle()

        @keys.add("tab")
        def _(event: KeyPressEvent) -> None:
            _complete(event.current_buffer)

        @keys.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.reset()
            elif not self.is_leaving:
                self.is_leaving = True
                event.app.invalidate()
            else:
                event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

        return keys


def _complete(buffer: Buffer) -> None:
    """Apply a single completion; for several, insert the common prefix and show the menu."""
    if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
        buffer.complete_next()
        return
    found = list(buffer.completer.get_completions(buffer.document, CompleteEvent(completion_requested=True)))
    if len(found) == 1:
        buffer.complete_state = None
        buffer.apply_completion(found[0])
        _add_space(buffer)
    elif found:
        buffer.insert_text(get_common_complete_suffix(buffer.document, found))
        buffer.start_completion(select_first=False)


def _add_space(buffer: Buffer) -> None:
    """Add a space after a completed word, so that the next word can be typed; not after `key=`."""
    if buffer.document.is_cursor_at_the_end and not buffer.text.endswith(("=", " ")):
        buffer.insert_text(" ")


class TerminalAsker:
    """Asks the user at the terminal, one question at a time."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._free = asyncio.Lock()
        self._shown: list[RenderableType] = []
        self.on_interrupt: Callable[[], None] | None = None
        """Called when the user presses Ctrl-C at a question."""

    def show(self, renderable: RenderableType) -> None:
        """Show text with the next question."""
        self._shown.append(renderable)

    async def line(
        self,
        label: str,
        *,
        default: str = "",
        choices: Sequence[str] = (),
        secret: bool = False,
        check: Callable[[str], object] | None = None,
    ) -> str:
        """Ask for a line; see `Asker.line`."""
        shown, self._shown = self._shown, []
        async with self._free:
            with self._screen.paused():
                for one in shown:
                    self._screen.console.print(one)
                _drop_pressed_keys()
                while True:
                    text = await self._ask(label, default=default, choices=choices, secret=secret)
                    try:
                        if check is not None:
                            check(text)
                    except ValueError as error:
                        self._screen.console.print(complaint(str(error)))
                        default = "" if secret else text
                        continue
                    return text

    async def choose(self, label: str, choices: Mapping[str, str], *, default: str) -> str:
        """Ask for a letter; see `Asker.choose`."""
        options = ", ".join(
            f"{letter} = {meaning}{' (Enter)' if letter == default else ''}"
            for letter, meaning in choices.items()
        )
        by_word = {meaning.split()[0]: letter for letter, meaning in choices.items()}
        found = [default]

        def check(text: str) -> None:
            word = text.strip().lower()
            found[0] = word if word in choices else by_word.get(word, "" if word else default)
            if not found[0]:
                msg = f"type one of: {options}"
                raise ValueError(msg)

        await self.line(f"{label}  {options}", check=check)
        return found[0]

    async def _ask(self, label: str, *, default: str, choices: Sequence[str], secret: bool) -> str:
        session: PromptSession[str] = PromptSession(
            completer=WordCompleter(list(choices), sentence=True) if choices else None,
            complete_while_typing=False,
            is_password=secret,
            style=_STYLE,
            color_depth=_depth(),
        )
        # On one line: a second one could pass for another question.
        shown = safe(label).replace("\n", " ")
        message = FormattedText([("class:question", "? "), ("", f"{shown} › ")])
        try:
            with patch_stdout(raw=True):
                return await session.prompt_async(message, default=default, handle_sigint=False)
        except KeyboardInterrupt:
            if self.on_interrupt is not None:
                self.on_interrupt()
            raise AbandonedError from None
        except EOFError:
            raise AbandonedError(declined=True) from None


def _drop_pressed_keys() -> None:
    """Drop keys that were pressed before the question was shown."""
    keyboard = get_app_session().input
    clear_typeahead(keyboard)
    descriptor = keyboard.fileno()
    if os.name == "posix" and os.isatty(descriptor):
        import termios

        termios.tcflush(descriptor, termios.TCIFLUSH)


def _depth() -> ColorDepth | None:
    return ColorDepth.DEPTH_1_BIT if os.environ.get("NO_COLOR") else None


def fitted(pieces: Sequence[tuple[str, str]], columns: int) -> FormattedText:
    """Return as many pieces of the toolbar as fit, separated by dots."""
    found: list[tuple[str, str]] = []
    left = columns - 1
    for style, text in pieces:
        plain = re.sub(r"\s+", " ", safe(text))
        needs = width_of(plain) + (3 if found else 1)
        if needs > left:
            break
        found += [("class:dim", " · " if found else " "), (style, plain)]
        left -= needs
    return FormattedText(found)


logger = logging.getLogger("dragoman")

LONGEST = 60
"""Width of a description in the menu."""

Proposal = tuple[str, str]
"""A word and its description."""


class Listed:
    """The resources and prompts of the servers, kept up to date."""

    def __init__(self, mcp: McpManager) -> None:
        self._mcp = mcp
        self.resources: list[Resource] = []
        self.prompts: list[Prompt] = []

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Query the servers now and after each change, until cancelled."""
        events = self._mcp.events()
        await self.refresh()
        async for event in events:
            match event:
                case StateChanged(after=ServerState.READY) | ResourcesChanged() | PromptsChanged():
                    await self.refresh()
                case StateChanged() | ConfigReloaded():
                    pass
                case _:
                    continue
            on_change()

    async def refresh(self) -> None:
        """Query all connected servers."""
        with suppress(DragomanError, TimeoutError):
            self.resources, self.prompts = await asyncio.gather(self._mcp.resources(), self._mcp.prompts())


class SlashCompleter(Completer):
    """Completes slash commands."""

    def __init__(self, mcp: McpManager, listed: Listed | None = None) -> None:
        self._mcp = mcp
        self._listed = listed or Listed(mcp)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield completions for the text before the cursor."""
        del complete_event
        text = document.text_before_cursor.lstrip()
        if not text.startswith("/") or "\n" in text:
            return
        try:
            typed, proposals = self._proposals(text)
            # Words that start with the typed text come first, then words that contain it.
            ranked = sorted(proposals, key=lambda one: not one[0].startswith(typed))
        except Exception:
            # An unusual schema of a server must not break the input line.
            logger.exception("completion failed")
            return
        for word, about in ranked:
            if word.startswith(typed) or (
                len(typed) >= 3 and typed.lower() in word.lower() and "=" not in typed
            ):
                yield Completion(
                    word, -len(typed), display=one_line(word), display_meta=cut(one_line(about), LONGEST)
                )

    def _proposals(self, text: str) -> tuple[str, Iterable[Proposal]]:
        """Return the word being typed and its completions."""
        words = text.split(" ")
        command = next((name for name in (" ".join(words[:2]), words[0]) if name in slash.COMMANDS), "")
        after = words[len(command.split()) :]
        if not command or not after:
            return text, self._commands(text)
        typed, before = after[-1], after[:-1]
        # After `server.` or `server:`, the tools have their own names.
        at = next(
            (at for at, char in enumerate(typed) if char in ".:" and typed[:at] in self._mcp.status()), 0
        )
        found: Iterable[Proposal] = ()
        match command, before:
            case "/mcp", []:
                return text, self._commands(text)
            case ("/mcp tools" | "/resources" | "/prompts", []):
                found = self._servers()
            case (name, []) if name.startswith("/mcp ") and name != "/mcp reload":
                found = self._servers()
            case "/mcp login", [_]:
                found = [("paste", "without a local browser")]
            case "/call", []:
                found = [
                    (
                        f"{tool.server}{typed[at]}{tool.own_name}" if at else tool.name,
                        tool.title or tool.description,
                    )
                    for tool in self._mcp.registry
                ]
            case "/tools", []:
                found = [
                    ("off", slash.COMMANDS["/tools off"].help),
                    ("on", slash.COMMANDS["/tools on"].help),
                    *self._servers(),
                ]
            case "/tools off", _:
                found = [*self._servers(), *((tool.name, tool.title) for tool in self._mcp.registry)]
            case "/think", []:
                found = [(word, "") for word in (*THINK, "auto")]
            case "/call", [tool, *given]:
                found = self._arguments(tool, given)
            case "/read", []:
                found = [
                    (one.uri, one.title or one.description or one.name) for one in self._listed.resources
                ]
            case "/read", [_]:
                found = self._servers()
            case "/prompt", []:
                found = [(one.name, one.title or one.description) for one in self._listed.prompts]
            case "/prompt", [name, *given]:
                found = self._prompt_arguments(name, given)
            case "/help", []:
                found = [(one.name.removeprefix("/"), one.help) for one in slash.COMMANDS.values()]
            case _:
                pass
        return typed, found

    def _commands(self, text: str) -> Iterable[Proposal]:
        """Yield commands; subcommands only after the first word."""
        deep = " " in text
        for command in slash.COMMANDS.values():
            if (" " in command.name) == deep:
                yield command.name, f"{command.arguments}  {command.help}".strip()

    def _servers(self) -> Iterable[Proposal]:
        for name, status in self._mcp.status().items():
            yield name, f"{status.state.value}, {status.transport}"

    def _arguments(self, name: str, given: list[str]) -> Iterable[Proposal]:
        tool = self._tool(name)
        if tool is None:
            return
        schema = tool.input_schema
        required = required_of(schema)
        taken = {word.partition("=")[0] for word in given}
        for key, field in properties_of(schema).items():
            if key in taken and "list" not in type_name(field, schema):
                continue
            about = description_of(field)
            kind = f"{type_name(field, schema)}{'' if key in required else ', optional'}"
            yield f"{key}=", f"{kind}  {about}".strip()
            for choice in choices_of(field, schema):
                yield f"{key}={choice}", kind

    def _prompt_arguments(self, name: str, given: list[str]) -> Iterable[Proposal]:
        taken = {word.partition("=")[0] for word in given}
        for prompt in self._listed.prompts:
            for argument in prompt.arguments if name == prompt.name else ():
                if (key := str(argument.get("name", ""))) not in taken:
                    yield f"{key}=", str(argument.get("description") or "")

    def _tool(self, name: str) -> ToolDef | None:
        try:
            return self._mcp.registry.resolve(name)
        except UnknownToolError:
            return None
