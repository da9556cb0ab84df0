"""The chat at terminals of 80 and 200 columns and in a pipe, with a model over real HTTP and real servers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.cli.program import SERVERS, configure, dragoman, dragoman_command, dragoman_process, entry
from tests.unit.cli.terminal import CTRL_C, CTRL_D, PROMPT, at_terminal

from dragoman.cli.commands.chat import choose_model

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def model_api(monkeypatch: pytest.MonkeyPatch, *script: dict[str, Any]) -> Iterator[None]:
    """Serve a model that answers from a script, and point the environment to it."""
    Path("script.json").write_text(json.dumps(script), "utf-8")
    command = [sys.executable, str(SERVERS / "model_api.py"), "script.json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            monkeypatch.setenv("OPENAI_API_KEY", "none")
            monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
            monkeypatch.setenv("DRAGOMAN_MODEL", "openai:tiny")
            yield
        finally:
            process.kill()


def rules() -> Path:
    """Return the user's file with rules."""
    return Path(os.environ["XDG_CONFIG_HOME"], "dragoman", "dragoman.toml")


ALLOW_ECHO = '[[mcp.policy.rules]]\naction = "allow"\ntool = "echo"\n'


def calls(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": tool, "arguments": arguments}]}


def test_a_talk_at_a_terminal_with_calls_markdown_commands_and_an_interrupt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(one=entry("plain.py"))
    rules().write_text(ALLOW_ECHO, "utf-8")
    script = [
        calls("mcp_one_echo", text="hello"),
        {"text": "It says **hello**:\n\n- one\n- two\n"},
        {"text": "a long answer that never ends", "hold": True},
        {"text": "I am back."},
    ]
    with (
        model_api(monkeypatch, *script),
        # No command: the session opens by itself.
        at_terminal() as person,
    ):
        person.wait_until(lambda: person.current == PROMPT)
        assert "Model: tiny." in person.text
        said = person.enter("What does it say?")
        assert re.search(
            r'✓ mcp_one_echo\(text="hello"\)  .*\n  │ hello\n\nIt says hello:\n\n • one\n • two', said
        )
        person.wait_until(lambda: re.search(r"tiny · 1/1 servers · [\d,]+ tokens", person.text) is not None)
        assert "● ready" in person.enter("/mcp")
        assert "/last" not in person.enter("/last")

        # Ctrl-C stops the answer, and the talk goes on.
        person.typed("Go on", "Go on")
        person.type("\r")
        person.wait_until(lambda: "a long answer" in person.text)
        person.type(CTRL_C)
        person.wait_until(lambda: "Interrupted." in person.text and person.current == PROMPT)
        assert "I am back." in person.enter("Are you there?")
        assert "Saved" in person.enter("/save talk.jsonl")

        person.type(CTRL_D)
        assert person.wait_for_end() == 0
    assert person.screen.wrapped == 0
    assert "\x1b[2J" not in person.written
    assert "Traceback" not in person.text
    roles = [json.loads(line)["role"] for line in Path("talk.jsonl").read_text("utf-8").splitlines()]
    assert roles[:4] == ["user", "assistant", "tool", "assistant"]
    state = Path(os.environ["XDG_STATE_HOME"], "dragoman")
    assert (state / "session.log").stat().st_mode & 0o777 == 0o600
    assert "connected with" in (state / "session.log").read_text("utf-8")
    assert (state / "calls.sqlite3").exists()


def test_what_needs_a_person_is_asked_at_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A project's server, an input, a rule that asks, a form of a server: one visit, 200 columns."""
    configure(asking=entry("asking.py", protocol="legacy", env={"KEY": "${input:key}"}))
    project = {"mcpServers": {"plain": {**entry("plain.py"), "env": {"SAFE": "1"}}}}
    Path(".mcp.json").write_text(json.dumps(project), "utf-8")
    policy = '[[mcp.policy.rules]]\ntool = "echo"\naction = "ask"\nreason = "it speaks"\n'
    rules().write_text(policy, "utf-8")
    script = [
        calls("mcp_plain_echo", text="one"),
        calls("mcp_plain_echo", text="two"),
        calls("mcp_asking_book"),
        {"text": "Booked."},
    ]
    with model_api(monkeypatch, *script), at_terminal("chat", columns=200) as person:
        person.wait_until(lambda: person.current.startswith('? Approve "plain"?'))
        assert "plain.py" in person.text
        person.type("y\r")
        person.wait_until(lambda: person.current.startswith("? key (for asking) ›"))
        person.type("s3cret-value\r")
        person.wait_until(lambda: person.current == PROMPT)
        assert "s3cret-value" not in person.text
        assert len(re.findall("● ready", person.text)) == 2

        person.typed("Do it", "Do it")
        person.type("\r")
        person.wait_until(lambda: person.current.startswith('? Call "echo"?'))
        assert '"echo" of "plain" needs confirmation (it speaks)' in person.text
        assert "text = one" in person.text
        person.type("a\r")
        # The second call of `echo` is not asked about; no rule decides the next tool.
        person.wait_until(lambda: person.current.startswith('? Call "book"?'))
        person.type("y\r")
        person.wait_until(lambda: person.current.startswith('? "asking": Seats (integer, optional) › 2'))
        assert 'Server "asking" asks:' in person.text
        assert "  │ A table for how many?" in person.text
        asked = person.screen.row
        person.type("\x7fmany\r")
        # Asked again, on a line below, with what was typed.
        person.wait_until(lambda: person.screen.row > asked + 1 and person.current.endswith("› many"))
        assert "a whole number is expected, not `many`" in person.text
        person.type("\x7f" * 4 + "4\r")
        person.wait_until(lambda: person.current.startswith('? "asking": Name (text, optional) › nobody'))
        person.type("\r")
        person.wait_until(lambda: "Booked." in person.text and person.current == PROMPT)
        assert "accept: {'seats': 4, 'name': 'nobody'}" in person.text
        person.type(CTRL_D)
        assert person.wait_for_end() == 0
    assert person.screen.wrapped == 0
    assert "Traceback" not in person.text


def test_ctrl_c_at_the_first_question_starts_nothing() -> None:
    Path(".mcp.json").write_text(json.dumps({"mcpServers": {"plain": entry("plain.py")}}), "utf-8")
    with at_terminal("chat") as person:
        person.wait_until(lambda: person.current.startswith('? Approve "plain"?'))
        person.type(CTRL_C)
        assert person.wait_for_end() == 130


def test_in_a_pipe_lines_are_answered_without_codes_and_a_failure_shows_in_the_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(one=entry("plain.py"))
    rules().write_text(ALLOW_ECHO, "utf-8")
    with model_api(monkeypatch, calls("mcp_one_echo", text="hi"), {"text": "It says **hi**."}):
        done = dragoman(
            "chat", "--price", "1,2", stdin="What?\n\n/call echo text=pipe\n/cost\n/quit\n/never\n"
        )
    assert done.returncode == 0, done.stderr
    assert 'mcp_one_echo(text="hi")' in done.stdout
    assert "It says **hi**.\n" in done.stdout
    assert "pipe\n✓" in done.stdout
    assert "tiny" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    assert "never" not in done.stdout


def test_a_call_of_the_model_asks_and_always_is_the_rule_that_was_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # `echo` calls itself read-only, which counts for nothing where annotations are not trusted.
    path = configure(one=entry("plain.py"))
    echo = {"action": "allow", "server": "one", "tool": "echo"}
    every = {"action": "allow", "server": "one", "tool": "*"}
    script = [
        calls("mcp_one_echo", text="first"),
        calls("mcp_one_echo", text="again"),
        calls("mcp_one_add", a=1, b=2),
        calls("mcp_one_add", a=3, b=4),
        calls("mcp_one_pair"),
        {"text": "Done."},
    ]

    def asked(tool: str) -> bool:
        return person.current.startswith(f'? Call "{tool}"?  y = yes, n = no (Enter), t = tool, s = server ›')

    with model_api(monkeypatch, *script), at_terminal("chat") as person:
        person.wait_until(lambda: person.current == PROMPT)
        # What a person types is not asked about.
        assert "typed" in person.enter("/call echo text=typed")
        person.typed("Do it", "Do it")
        person.type("\r")
        person.wait_until(lambda: asked("echo"))
        assert '"echo" of "one" needs confirmation (no rule allows it)' in person.text
        assert "  │ text = first" in person.text
        assert "mcp.json:" in person.text
        assert f"  │ t: {json.dumps(echo)}" in person.text
        assert f"  │ s: {json.dumps(every)}" in person.text
        assert json.loads(path.read_text("utf-8")).keys() == {"mcpServers"}
        person.type("t\r")
        # The second call of `echo` is not asked about.
        person.wait_until(lambda: asked("add"))
        assert json.loads(path.read_text("utf-8"))["mcp"] == {"policy": {"rules": [echo]}}
        person.type(CTRL_D)
        # The first `add` was declined, so the second one asks, too.
        person.wait_until(lambda: "a = 3" in person.text and asked("add"))
        assert "the user declined `mcp_one_add`" in person.text
        person.type("s\r")
        # `pair` belongs to the same server.
        person.wait_until(lambda: "Done." in person.text and person.current == PROMPT)
        assert "the user declined `mcp_one_pair`" not in person.text
        person.type(CTRL_D)
        assert person.wait_for_end() == 0
    assert json.loads(path.read_text("utf-8"))["mcp"] == {"policy": {"rules": [echo, every]}}
    assert "Traceback" not in person.text
    with model_api(monkeypatch, calls("mcp_one_pair"), {"text": "Done."}):
        later = dragoman("chat", stdin="Again\n")
    assert "✓ mcp_one_pair()" in later.stdout
    assert "Done." in later.stdout


def test_for_a_server_of_a_project_always_is_for_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules go by name, and another project may have another server of that name."""
    Path(".mcp.json").write_text(json.dumps({"mcpServers": {"one": entry("plain.py")}}), "utf-8")
    script = [calls("mcp_one_pair"), calls("mcp_one_pair"), {"text": "Done."}]
    with model_api(monkeypatch, *script), at_terminal("chat") as person:
        person.wait_until(lambda: person.current.startswith('? Approve "one"?'))
        person.type("y\r")
        person.wait_until(lambda: person.current == PROMPT)
        person.typed("Do it", "Do it")
        person.type("\r")
        person.wait_until(lambda: person.current.startswith('? Call "pair"?'))
        assert "until this session ends" in person.text
        person.type("s\r")
        person.wait_until(lambda: "Done." in person.text and person.current == PROMPT)
        person.type(CTRL_D)
        assert person.wait_for_end() == 0
    folder = Path(os.environ["XDG_CONFIG_HOME"], "dragoman")
    assert not [path for path in folder.rglob("*") if "allow" in path.read_text("utf-8")]


def test_ctrl_c_at_the_question_stops_the_turn_and_nothing_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(one=entry("plain.py"))
    with model_api(monkeypatch, calls("mcp_one_echo", text="no")), at_terminal("chat") as person:
        person.wait_until(lambda: person.current == PROMPT)
        person.typed("Do it", "Do it")
        person.type("\r")
        person.wait_until(lambda: person.current.startswith('? Call "echo"?'))
        person.type(CTRL_C)
        person.wait_until(lambda: "Interrupted." in person.text and person.current == PROMPT)
        assert "✓ mcp_one_echo" not in person.text
        assert "│ no\n" not in person.text
        person.type(CTRL_D)
        assert person.wait_for_end() == 0


def test_in_a_pipe_a_call_that_no_rule_allows_is_denied_and_the_rule_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(one=entry("plain.py"))
    with model_api(monkeypatch, calls("mcp_one_echo", text="hi"), {"text": "I could not."}):
        done = dragoman("chat", "--yes", stdin="What?\n/last\n/call echo text=typed\n")
    assert "✗ mcp_one_echo" in done.stdout
    assert "needs confirmation by the policy's default, but no one can be asked here" in done.stdout
    assert 'with the rule {"action": "allow", "server": "one", "tool": "echo"}' in done.stdout
    assert "typed\n✓" in done.stdout
    # The rule works as it is printed.
    path = configure(one=entry("plain.py"))
    rule = {"action": "allow", "server": "one", "tool": "echo"}
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {"mcp": {"policy": [rule]}}), "utf-8")
    with model_api(monkeypatch, calls("mcp_one_echo", text="hi"), {"text": "It says hi."}):
        done = dragoman("chat", stdin="What?\n")
    assert "✓ mcp_one_echo" in done.stdout


def test_a_tool_that_only_reads_is_not_asked_about_if_its_server_is_trusted_to_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(one=entry("plain.py", trust_annotations=True))
    script = [calls("mcp_one_echo", text="hi"), calls("mcp_one_pair"), {"text": "Half of it."}]
    with model_api(monkeypatch, *script):
        done = dragoman("chat", stdin="What?\n")
    assert "✓ mcp_one_echo" in done.stdout
    assert "✗ mcp_one_pair" in done.stdout


def test_a_pipe_without_a_model_is_a_console_for_tools() -> None:
    configure(one=entry("plain.py"))
    done = dragoman("chat", stdin="hello\n/call echo\n/call echo text=still")
    assert done.returncode == 1
    assert "No model configured" in done.stdout
    assert "Missing arguments for `echo` of server `one`: `text: str`" in done.stdout
    assert "still" in done.stdout


def test_a_price_that_is_none_is_wrong_usage() -> None:
    done = dragoman("chat", "--price", "cheap")
    assert done.returncode == 2
    assert "Invalid --price" in done.stderr


def test_no_color_leaves_no_colour_at_a_terminal() -> None:
    configure(one=entry("plain.py"))
    with at_terminal("chat", NO_COLOR="1") as person:
        person.wait_until(lambda: person.current == PROMPT)
        person.enter("/mcp")
        person.type(CTRL_D)
        assert person.wait_for_end() == 0
    assert "No model" in person.text
    assert not re.search(r"\x1b\[(?:[0-9]+;)*[349][0-7](?:;[0-9]+)*m", person.written)


MISSING = """
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = classmethod(
    lambda cls, name, *rest: None if name in ("openai", "anthropic") else find(name, *rest)
)
"""
"""Makes the interpreter one in which the packages of the model APIs are not installed."""


@pytest.mark.usefixtures("warm_python")
def test_a_key_without_the_package_opens_the_tool_console_and_names_the_command_to_install_it(
    tmp_path: Path,
) -> None:
    configure(one=entry("plain.py"))
    (tmp_path / "sitecustomize.py").write_text(MISSING, "utf-8")
    bare = {"PYTHONPATH": str(tmp_path), "OPENAI_API_KEY": "x"}
    with at_terminal(columns=200, program=dragoman_command(), **bare) as person:
        person.wait_until(lambda: person.current == PROMPT)
        told = [line for line in person.text.splitlines() if "API_KEY" in line]
        assert len(told) == 1
        assert told[0].startswith("! OPENAI_API_KEY is set, but the package `openai` is not installed")
        assert "-m pip install 'dragoman[openai]'" in told[0]
        assert "You can still call tools." in person.text
        assert "hello" in person.enter("/call echo text=hello")
        person.type("exit\r")
        assert person.wait_for_end() == 0
    piped = dragoman_process("chat", stdin="/call echo text=hello\nexit\nnever\n", **bare)
    assert piped.returncode == 0
    assert "hello" in piped.stdout
    assert "not installed" in piped.stderr
    # What the command line names is not replaced by something else.
    named = dragoman_process("chat", "--model", "anthropic:claude", stdin="", **bare)
    assert named.returncode == 1
    assert "'dragoman[anthropic]'" in named.stderr


async def test_the_model_is_the_one_named_else_the_one_with_a_key() -> None:
    both = {"OPENAI_API_KEY": "x", "ANTHROPIC_API_KEY": "y"}
    chosen = {
        "openai:tiny": (await choose_model("openai:tiny", both))[0],
        "anthropic": (await choose_model(None, both))[0],
        "openai": (await choose_model(None, {"OPENAI_API_KEY": "x"}))[0],
        "variable": (await choose_model(None, {**both, "DRAGOMAN_MODEL": "responses:small"}))[0],
    }
    assert {name: one.api for name, one in chosen.items() if one} == {
        "openai:tiny": "openai",
        "anthropic": "anthropic",
        "openai": "openai",
        "variable": "responses",
    }
    for one in chosen.values():
        assert one is not None
        await one.aclose()
