"""A person of whom it is known beforehand what they answer."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console

from dragoman.cli.session.questions import AbandonedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import RenderableType


class Person:
    """Gives its answers one after the other; `None` declines, and an error is raised as it is."""

    def __init__(self, *answers: str | Exception | None) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        """The labels of the questions."""
        self.shown = ""
        """All that was shown with them, as text."""
        self.complaints: list[str] = []
        self.secrets: list[str] = []
        self.offered: list[Sequence[str]] = []

    async def line(
        self,
        label: str,
        *,
        default: str = "",
        choices: Sequence[str] = (),
        secret: bool = False,
        check: Callable[[str], object] | None = None,
    ) -> str:
        while True:
            self.asked.append(label)
            self.offered.append(choices)
            if secret:
                self.secrets.append(label)
            answer = self._next() or default
            try:
                if check is not None:
                    check(answer)
            except ValueError as error:
                self.complaints.append(str(error))
                continue
            return answer

    async def choose(self, label: str, choices: Mapping[str, str], *, default: str) -> str:
        self.asked.append(label)
        answer = self._next() or default
        assert answer in choices
        return answer

    def show(self, renderable: RenderableType) -> None:
        console = Console(file=io.StringIO(), width=200, color_system=None, highlight=False)
        console.print(renderable)
        assert isinstance(console.file, io.StringIO)
        self.shown += console.file.getvalue()

    def _next(self) -> str:
        answer = self.answers.pop(0)
        if answer is None:
            raise AbandonedError(declined=True)
        if isinstance(answer, Exception):
            raise answer
        return answer
