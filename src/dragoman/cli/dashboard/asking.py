"""Questions to the person at the dashboard: an `Asker` whose questions are dialogs, one at a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Group
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from dragoman.cli.output import safe
from dragoman.cli.session.questions import AbandonedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import RenderableType
    from textual import events
    from textual.app import App, ComposeResult


class Question(ModalScreen["str | None"]):
    """Asks for a line, or for one of a few letters; gives nothing back if there is no answer."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Back")]

    def __init__(
        self,
        label: str,
        about: Sequence[RenderableType],
        *,
        letters: Mapping[str, str] | None = None,
        default: str = "",
        secret: bool = False,
        check: Callable[[str], object] | None = None,
    ) -> None:
        super().__init__()
        self._label = label
        self._about = about
        self._letters = letters
        self._default = default
        self._secret = secret
        self._check = check

    def compose(self) -> ComposeResult:
        """Show what it is about, then the question."""
        with Vertical(classes="dialog"):
            if self._about:
                with VerticalScroll(classes="dialog-body"):
                    yield Static(Group(*self._about), id="question-about")
            yield Static(Text(safe(self._label), "bold"), id="question")
            if self._letters is None:
                yield Input(safe(self._default), password=self._secret, compact=True)
                yield Static(Text(""), id="question-error")
                yield Static(Text("Enter: answer   Esc: no answer", "dim"))
            else:
                named = "   ".join(f"{letter}: {meaning}" for letter, meaning in self._letters.items())
                yield Static(Text(f"{named}   Esc: no answer", "dim"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the answer, if it is one."""
        event.stop()
        try:
            if self._check is not None:
                self._check(event.value)
        except ValueError as error:
            self.query_one("#question-error", Static).update(Text(safe(str(error)), "red"))
            return
        self.dismiss(event.value)

    def on_key(self, event: events.Key) -> None:
        """Take a letter; Enter stands for the default."""
        if self._letters is None:
            return
        letter = self._default if event.key == "enter" else event.character
        if letter in self._letters:
            event.stop()
            self.dismiss(letter)

    def action_leave(self) -> None:
        """Give no answer."""
        self.dismiss(None)

    def give_up(self) -> None:
        """Go away: nobody waits for the answer any more."""
        if self.is_current:
            self.dismiss(None)


class ScreenAsker:
    """Asks whoever sits at the dashboard; before it is there, nobody answers."""

    def __init__(self) -> None:
        self.app: App[Any] | None = None
        self._about: list[RenderableType] = []
        self._turn = asyncio.Lock()

    async def line(
        self,
        label: str,
        *,
        default: str = "",
        choices: Sequence[str] = (),  # noqa: ARG002 -- the protocol's; the label names them
        secret: bool = False,
        check: Callable[[str], object] | None = None,
    ) -> str:
        """Ask for a line."""
        return await self._ask(Question(label, self._taken(), default=default, secret=secret, check=check))

    async def choose(self, label: str, choices: Mapping[str, str], *, default: str) -> str:
        """Ask for a letter."""
        return await self._ask(Question(label, self._taken(), letters=choices, default=default))

    def show(self, renderable: RenderableType) -> None:
        """Keep what the next question is about."""
        self._about.append(renderable)

    def _taken(self) -> list[RenderableType]:
        about, self._about = self._about, []
        return about

    async def _ask(self, question: Question) -> str:
        app = self.app
        if app is None or not app.is_running:
            msg = "nobody is there to answer"
            raise AbandonedError(msg)
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

        def take(given: str | None) -> None:
            if not answer.done():
                answer.set_result(given)

        async with self._turn:
            # Whichever task asks, the dialog belongs to the dashboard's own.
            app.call_later(app.push_screen, question, take)
            try:
                given = await answer
            except asyncio.CancelledError:
                app.call_later(question.give_up)
                raise
        if given is None:
            raise AbandonedError
        return given
