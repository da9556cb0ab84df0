"""A list of tools does not wait for a server that failed a moment ago."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from tests.unit.cli.program import configure, dragoman, entry
from tests.unit.cli.terminal import at_terminal

import dragoman.storage.failures as failures
from dragoman.cli.connect import offer_daemon

if TYPE_CHECKING:
    import pytest


def test_a_failure_is_remembered_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(plain=entry("plain.py"), bad=entry("dying.py"))
    first = dragoman("tools", "--search", "echo")
    assert (first.returncode, "s ago" in first.stderr) == (4, False)
    again = dragoman("tools", "--search", "echo")
    assert again.returncode == 4
    assert "s ago; try it again: dragoman tools bad). Run: dragoman doctor bad" in again.stderr
    report = json.loads(dragoman("tools", "--json").stdout)
    assert next(one for one in report["servers"] if one["server"] == "bad")["error"]["hint"]
    for words in (["bad"], ["--refresh"]):  # both try it
        assert "s ago" not in dragoman("tools", *words).stderr
    monkeypatch.setattr(failures, "SECONDS", 0.0)
    assert "s ago" not in dragoman("tools").stderr


def test_a_server_that_failed_is_told_once_beside_the_tools_that_were_found() -> None:
    configure(plain=entry("plain.py"), bad=entry("dying.py"))
    with at_terminal("tools", "--search", "echo", columns=120) as person:
        assert person.wait_for_end() == 4
    assert "Run: dragoman doctor bad" in person.text
    assert "not loaded yet" not in person.text


def test_a_changed_entry_and_a_success_end_the_memory() -> None:
    configure(one=entry("dying.py"))
    assert dragoman("tools").returncode == 4
    assert "s ago" in dragoman("tools").stderr
    configure(one=entry("plain.py"))
    assert dragoman("tools").returncode == 0


def test_the_daemon_is_named_after_the_second_slow_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    offer_daemon(2.34)
    assert capsys.readouterr().err == ""
    offer_daemon(2.34)
    assert "took 2.3 s to start. To keep them running: dragoman daemon start" in capsys.readouterr().err
    offer_daemon(2.34)
    assert capsys.readouterr().err == ""
