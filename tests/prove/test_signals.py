"""Signals, closed terminals and closed streams: every command with every one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.cli import test_running as running

if TYPE_CHECKING:
    import signal

HOW = [*running.SIGNALS, "closed"]
TERMINALS = [["call", "s", "slow"], ["chat"]]


@pytest.mark.parametrize("number", running.SIGNALS)
@pytest.mark.parametrize(
    ("words", "kind", "sign"),
    [
        (["call", "s", "slow"], "answers", "called"),
        (["status"], "mute", "pids"),
        (["tools", "s", "--refresh"], "mute", "pids"),
        (["doctor"], "mute", "pids"),
        (["read", "x://y", "--server", "s"], "mute", "pids"),
        (["prompt", "p", "--server", "s"], "mute", "pids"),
        (["chat"], "answers", "pids"),
    ],
    ids=("call", "status", "tools", "doctor", "read", "prompt", "chat"),
)
def test_signal_ends_the_servers_and_then_the_program(
    words: list[str], kind: str, sign: str, number: signal.Signals
) -> None:
    running.signal_ends_the_servers_and_then_the_program(words, kind, sign, number)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("words", TERMINALS, ids=lambda words: words[0])
def test_terminal_that_is_closed_ends_the_servers_as_a_signal_does(words: list[str], how: Any) -> None:
    running.terminal_that_is_closed_ends_the_servers_as_a_signal_does(words, how)


@pytest.mark.parametrize("how", HOW)
def test_question_at_the_terminal_is_broken_off(how: Any) -> None:
    running.question_at_the_terminal_is_broken_off(how)


@pytest.mark.parametrize("number", running.SIGNALS)
def test_demo_ends_with_both_of_its_servers(number: signal.Signals) -> None:
    running.demo_ends_with_both_of_its_servers(number)


@pytest.mark.parametrize("stream", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("words", ["chat", "call echo echo text=hi"])
def test_closed_streams_are_as_good_as_none(words: str, stream: str) -> None:
    running.closed_streams_are_as_good_as_none(words, stream)
