"""The line editor and the questions, by keys through a pipe, as prompt_toolkit's own tests do it."""

from __future__ import annotations

import asyncio
import io
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.console import Console

from dragoman.cli.session.line_editor import LineEditor, TerminalAsker, fitted
from dragoman.cli.session.questions import YES_OR_NO, AbandonedError
from dragoman.cli.session.screen import Screen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prompt_toolkit.input.base import PipeInput

CTRL_C, CTRL_D, ALT_ENTER = "\x03", "\x04", "\x1b\r"


@contextmanager
def keys(text: str = "") -> Iterator[PipeInput]:
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        pipe.send_text(text)
        yield pipe


async def read(text: str, **how: object) -> str:
    with keys(text):
        return await LineEditor(**how).next_line()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("hello\r", "hello"),
        (f"one{ALT_ENTER}two\r", "one\ntwo"),
        ("one\\\rtwo\r", "one\ntwo"),
        ("\x1b[200~a\nb\x1b[201~\r", "a\nb"),
        ("a\\b\r", "a\\b"),
        (f"thrown away{CTRL_C}kept\r", "kept"),
        (f"{CTRL_C}x\x7f{CTRL_C}y\r", "y"),
    ],
)
async def test_lines_are_read_as_they_are_meant(typed: str, line: str) -> None:
    assert await read(typed) == line


async def test_ctrl_d_and_ctrl_c_twice_end_it() -> None:
    with pytest.raises(EOFError):
        await read(CTRL_D)
    with pytest.raises(KeyboardInterrupt):
        await read(CTRL_C + CTRL_C)


async def test_tab_takes_the_only_one_or_what_all_have_in_common() -> None:
    words = WordCompleter(["/model", "/mcp", "/resources", "/restart"], sentence=True)
    # The space after it is there already; `key=` waits for its value.
    assert await read("/mo\tx\r", completer=words) == "/model x"
    assert await read("na\tAnn\r", completer=WordCompleter(["name="])) == "name=Ann"
    assert await read("/re\tx\r", completer=words) == "/resx"


async def test_arrow_up_brings_an_earlier_line_back() -> None:
    history = InMemoryHistory()
    assert await read("first\r", history=history) == "first"
    assert await read("\x1b[A\r", history=history) == "first"


class Paper(io.StringIO):
    """Can be waited for: until something is written on it."""

    def __init__(self) -> None:
        super().__init__()
        self._written = asyncio.Event()

    def write(self, text: str) -> int:
        self._written.set()
        return super().write(text)

    async def shows(self, text: str) -> None:
        while text not in self.getvalue():
            self._written.clear()
            await self._written.wait()


def asker() -> tuple[TerminalAsker, Paper]:
    paper = Paper()
    return TerminalAsker(Screen(Console(file=paper, width=80, color_system=None))), paper


async def test_a_question_is_asked_again_until_it_fits() -> None:
    person, paper = asker()
    person.show("about this")
    with keys() as pipe:
        asking = asyncio.create_task(person.line("How many", check=int))
        # A question drops what was typed before it: the keys come once it is there.
        await paper.shows("about this")
        pipe.send_text("x\r")
        await paper.shows("invalid literal")
        pipe.send_text("\x7f7\r")
        assert await asking == "7"


@pytest.mark.parametrize(
    ("typed", "letter"), [("y\r", "y"), ("YES\r", "y"), ("\r", "n"), ("no\r", "n"), ("perhaps\r", None)]
)
async def test_a_choice_is_a_letter_a_word_or_the_default(typed: str, letter: str | None) -> None:
    person, paper = asker()
    with keys(typed) as pipe:
        asking = asyncio.create_task(person.choose("Sure?", YES_OR_NO, default="n"))
        if letter is None:
            await paper.shows("type one of: y = yes, n = no (Enter)")
            pipe.send_text("\x7f" * 7 + "y\r")
        assert await asking == (letter or "y")


async def test_ctrl_c_at_a_question_is_told_and_ctrl_d_declines() -> None:
    person, _ = asker()
    told: list[int] = []
    person.on_interrupt = lambda: told.append(1)
    with keys(CTRL_C), pytest.raises(AbandonedError) as left:
        await person.line("x")
    assert (told, left.value.declined) == ([1], False)
    with keys(CTRL_D), pytest.raises(AbandonedError) as left:
        await person.line("x")
    assert (told, left.value.declined) == ([1], True)


async def test_a_question_that_is_cancelled_lets_the_next_one_through() -> None:
    person, paper = asker()
    person.show("first")
    with keys() as pipe:
        first = asyncio.create_task(person.line("one"))
        await paper.shows("first")
        first.cancel()
        await asyncio.wait({first})
        assert first.cancelled()
        pipe.send_text("two\r")
        assert await person.line("second") == "two"


def test_a_toolbar_shows_what_fits_the_first_things_first() -> None:
    pieces = [("", "gpt"), ("class:warn", "1/2  servers"), ("", "12 tokens")]
    assert "".join(text for _, text, *_ in fitted(pieces, 80)) == " gpt · 1/2 servers · 12 tokens"
    assert "".join(text for _, text, *_ in fitted(pieces, 22)) == " gpt · 1/2 servers"
    assert "".join(text for _, text, *_ in fitted(pieces, 3)) == ""
