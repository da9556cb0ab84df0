"""The interactive session on a real pseudo-terminal: typing, completing, interrupting, leaving."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from tests.unit.cli.terminal import CTRL_C, CTRL_D, PROMPT, TAB, at_terminal, children_of


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks for child processes in /proc")
def test_a_whole_session_at_a_terminal() -> None:
    """One visit shows it all, since each costs the start of two servers."""
    with at_terminal("demo") as person:
        person.wait_until(lambda: person.current == PROMPT)
        for text in (
            "● ready",
            "11 tools",
            "Hello, traveller!",
            "Session with these two servers",
            "Type /help for commands.",
        ):
            assert text in person.text, text
        children = children_of(person.process.pid)
        assert len(children) == 2

        status = person.enter("/mcp")
        assert re.search(r"legal +● ready +stdio", status)
        assert re.search(r"studio +● ready +http", status)

        # Tab completes a command, a server, a tool and the name of an argument.
        person.typed(f"/he{TAB}", "/help")
        assert "/mcp restart SERVER" in person.send_off()
        person.typed(f"/mcp tools leg{TAB}", "/mcp tools legal")
        listed = person.send_off()
        assert "mcp_legal_search_cases(" in listed
        assert "mcp_studio_" not in listed
        person.typed(f"/tools of{TAB}", "/tools off")
        person.typed("legal", "/tools off legal")
        assert "no model configured" in person.send_off()
        person.typed(f"/think au{TAB}", "/think auto")
        assert "no model configured" in person.send_off()
        person.typed(f"/call mcp_studio_gr{TAB}", "/call mcp_studio_greet")
        person.typed(f"na{TAB}", "/call mcp_studio_greet name=")
        person.typed("Ann", "/call mcp_studio_greet name=Ann")
        assert "Hello, Ann!" in person.send_off()

        # Mistakes are answered, and the session goes on.
        assert "No model configured" in person.enter("hello")
        assert "Did you mean /help?" in person.enter("/hlp")
        failed = person.enter("/call divide a=1 b=0")
        assert "✗ Cannot divide 1 by zero." in failed
        assert failed.count("Cannot divide") == 1

        # Ctrl-C ends the running call, and nothing but the call.
        person.typed("/call countdown steps=100 pause=5", "/call countdown steps=100 pause=5")
        start = person.screen.row
        person.type("\r")
        person.wait_until_busy()
        person.type(CTRL_C)
        person.wait_until(lambda: person.screen.row > start and person.current == PROMPT)
        assert "Interrupted." in "".join(person.screen.lines(start))
        assert "Lift-off!" in person.enter("/call countdown steps=2 pause=0")
        assert children_of(person.process.pid) == children
        # A child in the terminal's own group would be dying now, and gently enough to answer once more.
        assert person.process.pid not in {os.getpgid(child) for child in children}

        # Ctrl-C at the prompt throws the line away.
        person.typed("/quit", "/quit")
        person.type(CTRL_C)
        person.wait_until(lambda: person.current == PROMPT)
        assert "● ready" in person.enter("/mcp")

        # What is missing is asked for, and asked again if it does not fit.
        person.typed("/call divide a=1", "/call divide a=1")
        person.type("\r")
        person.wait_until(lambda: person.current == "? b (float) ›")
        person.type("zero\r")
        person.wait_until(lambda: "expected a number" in person.text and person.current.endswith("› zero"))
        person.type("\x7f" * 4 + "8\r")
        person.wait_until(lambda: "1 / 8 = 0.125" in person.text and person.current == PROMPT)

        # Ctrl-C on an empty line warns first; typing takes the warning away.
        person.type(CTRL_C)
        person.wait_until(lambda: "Press Ctrl-C again to quit" in person.text)
        person.type("x")
        person.wait_until(lambda: "Press Ctrl-C again to quit" not in person.text)
        person.type("\x7f")

        person.type(CTRL_D)
        assert person.wait_for_end() == 0
    assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []
    assert "Traceback" not in person.text
    assert person.screen.wrapped == 0
    history = Path(os.environ["XDG_STATE_HOME"], "dragoman", "history")
    assert history.stat().st_mode & 0o777 == 0o600
    assert json.loads(history.read_text("utf-8").splitlines()[0]) == "/mcp"


@pytest.mark.parametrize("word", ["/quit", "/exit", "exit", "quit"])
def test_quit_leaves_the_session(word: str) -> None:
    with at_terminal("chat") as person:
        person.wait_until(lambda: person.current == PROMPT)
        person.typed(word, word)
        person.type("\r")
        assert person.wait_for_end() == 0


def test_ctrl_c_while_servers_start_ends_the_program_with_130() -> None:
    with at_terminal("demo") as person:
        person.wait_until(lambda: "Starting two" in person.text)
        person.type(CTRL_C)
        assert person.wait_for_end() == 130
    assert "interrupted" in person.text
    assert "Traceback" not in person.text


def test_ctrl_c_twice_on_an_empty_line_leaves() -> None:
    with at_terminal("demo") as person:
        person.wait_until(lambda: person.current == PROMPT)
        person.type(CTRL_C)
        person.wait_until(lambda: "Press Ctrl-C again to quit" in person.text)
        person.type(CTRL_C)
        assert person.wait_for_end() == 0


def test_lines_can_be_many_and_the_last_one_sends_them() -> None:
    with at_terminal("demo", columns=200) as person:
        person.wait_until(lambda: person.current == PROMPT)
        person.type("/call greet \\\r")
        person.wait_until(lambda: person.current.startswith("…"))
        person.type("name=Ann\r")
        person.wait_until(lambda: "Hello, Ann!" in person.text and person.current == PROMPT)
        # Alt-Enter, and a paste of several lines.
        person.type("/call greet\x1b\r")
        person.wait_until(lambda: person.current == "…")
        person.type("name=Bob\r")
        person.wait_until(lambda: "Hello, Bob!" in person.text and person.current == PROMPT)
        person.type("\x1b[200~/call measure text='one\ntwo'\x1b[201~\r")
        person.wait_until(lambda: "7 characters, 2 words, 2 lines." in person.text)
        person.wait_until(lambda: person.current == PROMPT)
        person.type(CTRL_D)
        assert person.wait_for_end() == 0
    assert person.screen.wrapped == 0


def test_keys_that_were_pressed_ahead_leave_no_trace_on_the_screen() -> None:
    with at_terminal("chat") as terminal:
        terminal.wait_until(lambda: terminal.current == PROMPT)
        # The first line ends the prompt; Ctrl-L asks the terminal for its cursor before the next one is there.
        terminal.type("/help quit\r\x0c/help cost\r\x0c/help save\r")
        terminal.wait_until(lambda: "Save the conversation." in terminal.text and terminal.current == PROMPT)
        terminal.type(CTRL_D)
        assert terminal.wait_for_end() == 0
    assert "^[" not in terminal.written
