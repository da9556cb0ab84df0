"""The page about the session: every capture is typed again at a real terminal, and shows the same."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.docs.pages import ROOT, all_blocks, blocks
from tests.docs.running import difference, matches
from tests.unit.cli.commands.test_chat import model_api
from tests.unit.cli.terminal import CTRL_D, PROMPT, at_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest
    from tests.unit.cli.terminal import Terminal

PAGE = (ROOT / "docs/session.md").read_text("utf-8")
CAPTURES = blocks("text", (ROOT / "docs/session.md").read_text("utf-8"))
ANSWER = """No: a deposit may be two months' rent at most (Art. 4, updated 2026-01-30).

1. It has to be returned within fourteen days.
1. Only unpaid rent and documented damage may be deducted.
"""
_QUESTION = re.compile(r"(\? .* ›) (.*)")


def _is_current(person: Terminal, line: str, *, after: int) -> Callable[[], bool]:
    return lambda: person.current == line and person.screen.row > after


def replay(person: Terminal, capture: str) -> str:
    """Type what the page shows as typed, and return what is on the screen from there on."""
    first, *rest = capture.strip("\n").splitlines()
    start = person.screen.row
    person.typed(first.removeprefix(PROMPT).strip(), first.removeprefix(PROMPT).strip())
    person.type("\r")
    row = start
    questions = [found.groups() for line in rest if (found := _QUESTION.fullmatch(line))]
    for at, (label, answer) in enumerate(questions):
        # Asked again, a question shows the former answer, which has to go first.
        former = questions[at - 1][1] if at and questions[at - 1][0] == label else ""
        person.wait_until(_is_current(person, f"{label} {former}".rstrip(), after=row))
        row = person.screen.row
        person.type("\x7f" * len(former) + f"{answer}\r")
    person.wait_until(lambda: person.screen.row > start and person.current == PROMPT)
    return "\n".join(person.screen.lines(start)[: person.screen.row - start]).strip("\n")


def test_every_capture_is_what_the_session_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    (configuration,) = (block for block in all_blocks(PAGE) if block.file)
    path = Path(os.environ["HOME"], configuration.file.removeprefix("~/"))
    path.parent.mkdir(parents=True)
    path.write_text(configuration.text, "utf-8")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    call = {"name": "mcp_legal_search_statutes", "arguments": {"query": "deposit", "limit": 1}}
    greet = {"name": "mcp_studio_greet", "arguments": {"name": "Ann"}}
    script = [{"calls": [call]}, {"text": ANSWER}, {"calls": [greet]}, {"text": "Done."}]
    with model_api(monkeypatch, *script), at_terminal() as person:
        person.wait_until(lambda: person.current == PROMPT)
        for capture in CAPTURES:
            seen = replay(person, capture)
            assert matches(capture, seen), difference(capture, seen)
        person.type(CTRL_D)
        assert person.wait_for_end() == 0
    assert person.screen.wrapped == 0
