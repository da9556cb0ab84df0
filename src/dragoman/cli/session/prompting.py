"""The line at the bottom: editing, keys, history, completion, the toolbar; and questions in the same place.

Enter sends, Alt-Enter or a backslash at the end goes on in a new line, and what is pasted stays as it is. A
question never takes keys that were pressed before it was asked.
"""

from __future__ import annotations

import asyncio
import os
import re
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app_or_none, get_app_session
from prompt_toolkit.completion import CompleteEvent, WordCompleter, get_common_complete_suffix
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.styles import Style
from rich.text import Text

from dragoman.cli.output import safe
from dragoman.cli.session.questions import AbandonedError
from dragoman.cli.session.screen import no_echo

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from prompt_toolkit.buffer import Buffer
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyPressEvent
    from rich.console import RenderableType

    from dragoman.cli.session.screen import Screen

PROMPT = "dragoman> "
_MORE = "… "
# The terminal's own colours, turned around for the menu: readable on a light and on a dark ground.
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
    """Reads what a person types to the session."""

    def __init__(
        self,
        *,
        completer: Completer | None = None,
        history: History | None = None,
        toolbar: Callable[[int], FormattedText] | None = None,
    ) -> None:
        self.is_leaving = False
        """Whether Ctrl-C was pressed on the empty line: once more ends it."""
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
        """Return the next line, or lines.

        Raises:
            KeyboardInterrupt: Ctrl-C on an empty line, twice.
            EOFError: Ctrl-D on an empty line.
        """
        self.is_leaving = False
        # Keys that were pressed ahead are handled in cooked mode: what the terminal answers is not shown.
        with patch_stdout(raw=True), no_echo():
            # While a line is edited Ctrl-C is a key; as a signal it is for what is running.
            return await self._session.prompt_async(
                FormattedText([("class:prompt", PROMPT)]), handle_sigint=False
            )

    def refresh(self) -> None:
        """Draw the toolbar anew."""
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
    """Take the only thing that fits; of several what they have in common, and show them."""
    if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
        buffer.complete_next()
        return
    found = list(buffer.completer.get_completions(buffer.document, CompleteEvent(completion_requested=True)))
    if len(found) == 1:
        buffer.complete_state = None
        buffer.apply_completion(found[0])
    elif found:
        buffer.insert_text(get_common_complete_suffix(buffer.document, found))
        buffer.start_completion(select_first=False)


class TerminalAsker:
    """Asks the person at the terminal, one question at a time."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._free = asyncio.Lock()
        self._shown: list[RenderableType] = []
        self.on_interrupt: Callable[[], None] | None = None
        """Told when the person pressed Ctrl-C at a question."""

    def show(self, renderable: RenderableType) -> None:
        """Show something with the next question."""
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
                        self._screen.console.print(Text(f"  ! {safe(str(error))}", style="yellow"))
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
        message = FormattedText([("class:question", "? "), ("", f"{safe(label)} › ")])
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
    """Forget what was typed before a question was there to be read."""
    keyboard = get_app_session().input
    clear_typeahead(keyboard)
    descriptor = keyboard.fileno()
    if os.name == "posix" and os.isatty(descriptor):
        import termios

        termios.tcflush(descriptor, termios.TCIFLUSH)


def _depth() -> ColorDepth | None:
    return ColorDepth.DEPTH_1_BIT if os.environ.get("NO_COLOR") else None


def fitted(pieces: Sequence[tuple[str, str]], columns: int) -> FormattedText:
    """Return a toolbar's pieces as far as they fit, the first ones first, with dots between them."""
    from dragoman.cli.output import width_of

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
