"""One tool under all its names, in the shell and in the session; a typo brings suggestions from every server."""

from __future__ import annotations

import pytest
from tests.unit.cli.program import configure, dragoman, entry


@pytest.fixture(autouse=True)
def servers() -> None:
    configure(plain=entry("plain.py"), other=entry("offering.py", '{"tools": ["add", "echo"]}'))


def test_a_tool_is_called_by_any_of_its_names() -> None:
    # Nothing is known yet: `server.tool` starts that server only.
    first = dragoman("call", "plain.echo", "text=1")
    assert (first.stdout, first.returncode) == ("1\n", 0)
    assert "other" not in first.stderr
    for number, name in enumerate(("plain:echo", "mcp_plain_echo")):
        assert dragoman("call", name, f"text={number}").stdout == f"{number}\n", name
    # A tool's own name is enough where it means one tool; `other` is asked, because it might have one.
    pair = dragoman("call", "pair")
    assert pair.returncode == 0
    assert pair.stdout == dragoman("call", "plain", "pair").stdout


def test_a_name_of_two_servers_is_ambiguous_and_a_typo_suggests_across_servers() -> None:
    assert dragoman("tools").returncode == 0
    both = dragoman("call", "add", "a=1", "b=2")
    assert both.returncode == 9
    assert "`mcp_plain_add`" in both.stderr
    assert "`mcp_other_add`" in both.stderr
    typo = dragoman("call", "ehco", "text=1")
    assert typo.returncode == 9
    assert "`plain.echo`" in typo.stderr
    assert "`other.echo`" in typo.stderr
    # The right tool at the wrong server.
    wrong = dragoman("call", "other", "pair")
    assert wrong.returncode == 9
    assert "`plain.pair`" in wrong.stderr


def test_servers_that_were_never_listed_are_asked_before_a_name_of_another_is_taken_or_refused() -> None:
    configure(plain=entry("plain.py"), other=entry("offering.py", '{"tools": ["add", "pear"]}'))
    assert dragoman("tools", "plain").returncode == 0
    # `other` has it, though `plain` has a similar one.
    assert dragoman("call", "pear").returncode == 0
    configure(plain=entry("plain.py"), third=entry("offering.py", '{"tools": ["add"]}'))
    both = dragoman("call", "add", "a=1", "b=2")
    assert both.returncode == 9
    assert "`mcp_third_add`" in both.stderr


def test_a_server_that_cannot_be_asked_is_named() -> None:
    configure(plain=entry("plain.py"), gone={"command": "no-such-program"})
    assert dragoman("tools", "plain").returncode == 0
    done = dragoman("call", "echo", "text=1")
    assert (done.stdout, done.returncode) == ("1\n", 0)
    assert "`echo` is called on `plain`; not asked if they have it: gone" in done.stderr
    assert dragoman("call", "plain", "echo", "text=1").stderr == ""
    # A typo does not hide that the tool may be there.
    typo = dragoman("call", "ehco", "text=1")
    assert typo.returncode == 9
    assert "gone: the program" in typo.stderr
    assert "`plain.echo`" in typo.stderr


def test_the_session_takes_the_same_names() -> None:
    lines = ["/call plain.echo text=a", "/call plain:echo text=b", "/call plain echo text=c", "/call pair"]
    done = dragoman("chat", stdin="\n".join([*lines, "/call add a=1 b=2", ""]))
    said = [line for line in done.stdout.splitlines() if line in ("a", "b", "c")]
    assert said == ["a", "b", "c"]
    assert done.stdout.count("✓") == 4
    assert "`add` is ambiguous: `mcp_other_add`" in done.stdout
