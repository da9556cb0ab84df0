"""`dragoman serve` on standard input and output, with hosts that close one of them early or read nothing."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from tests.unit.cli.program import configure, dragoman_command, entry

from dragoman.visible import is_harmful

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "host", "version": "1"},
    },
}


def call(number: int, tool: str) -> dict[str, Any]:
    params = {"name": f"mcp_bank_{tool}", "arguments": {}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def lines(*messages: Any) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


pytestmark = pytest.mark.usefixtures("warm_python")


@pytest.fixture
def program() -> subprocess.Popen[bytes]:
    configure(bank=entry("asking_late.py", protocol="legacy"))
    pipe = subprocess.PIPE
    return subprocess.Popen([*dragoman_command(), "serve"], stdin=pipe, stdout=pipe, stderr=pipe)


def test_what_was_asked_before_the_end_of_the_input_is_answered(program: subprocess.Popen[bytes]) -> None:
    out, err = program.communicate(lines(HELLO, call(2, "outcome"), call(3, "transfer")), timeout=40)
    # The last call is never answered by its server.
    assert sorted(json.loads(line)["id"] for line in out.splitlines()) == [1, 2]
    assert program.returncode == 0
    assert b"Traceback" not in err


def test_the_log_says_why_a_server_failed_as_status_does() -> None:
    configure(far={"url": "https://no-such-host.invalid/mcp"}, homeless=entry("plain.py", cwd="/no/such"))
    pipe = subprocess.PIPE
    with subprocess.Popen([*dragoman_command(), "serve"], stdin=pipe, stdout=pipe, stderr=pipe) as program:
        assert program.stdin
        assert program.stderr
        said: set[str] = set()
        while len(said) < 2:
            line = program.stderr.readline().decode()
            assert "Logging error" not in line
            if " ERROR " in line:
                said.add(line.partition(" ERROR ")[2].rstrip())
        program.stdin.close()
    assert said == {
        "far: DNS: no such host `no-such-host.invalid`. Run: dragoman doctor far",
        "homeless: its directory (`cwd`) does not exist. Run: dragoman doctor homeless",
    }


def test_the_program_ends_when_its_output_is_closed(program: subprocess.Popen[bytes]) -> None:
    assert program.stdin
    assert program.stdout
    assert program.stderr
    with program, program.stdin as sink:
        sink.write(lines(HELLO))
        sink.flush()
        program.stdout.readline()
        program.stdout.close()
        sink.write(lines(call(2, "outcome")))
        sink.flush()
        assert program.wait(timeout=40) == 0
        assert b"Traceback" not in program.stderr.read()


def test_the_program_ends_when_its_output_is_not_read(program: subprocess.Popen[bytes]) -> None:
    assert program.stdin
    assert program.stdout
    assert program.stderr
    with program:
        asked = [{"jsonrpc": "2.0", "id": number, "method": "tools/list"} for number in range(2, 500)]
        program.stdin.write(lines(HELLO, *asked))
        program.stdin.close()
        assert program.wait(timeout=40) == 0
        assert b"Warning" not in program.stderr.read()


def test_nothing_that_a_server_lists_or_announces_has_hidden_text() -> None:
    configure(hiding=entry("hiding.py"))
    pipe = subprocess.PIPE
    with subprocess.Popen([*dragoman_command(), "serve"], stdin=pipe, stdout=pipe, stderr=pipe) as program:
        assert program.stdin
        assert program.stdout

        def ask(number: int, method: str, **params: Any) -> dict[str, Any]:
            """Send a request, and return what came last; the answer has its id."""
            sent = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            program.stdin.write(lines(sent))  # type: ignore[union-attr]
            program.stdin.flush()  # type: ignore[union-attr]
            for line in program.stdout:  # type: ignore[union-attr]
                came = json.loads(line)
                said.append(came)
                if came.get("id") == number:
                    return came["result"]
            pytest.fail(f"{method} is not answered")

        said: list[dict[str, Any]] = []
        ask(1, "initialize", **HELLO["params"])
        ask(2, "tools/call", name="mcp_hiding_say", arguments={}, _meta={"progressToken": "p"})
        offered = [
            ask(3 + at, f"{method}/list")[key]
            for at, (method, key) in enumerate(
                {
                    "tools": "tools",
                    "resources": "resources",
                    "resources/templates": "resourceTemplates",
                    "prompts": "prompts",
                }.items()
            )
        ]
    assert [len(listed) for listed in offered] == [1, 1, 1, 1]
    assert [one["method"] for one in said if "method" in one] == [
        "notifications/message",
        "notifications/progress",
    ]
    texts = [text for one in said for text in strings(one)]
    assert {"log", "key", "x", "half", "N", "T", "D", "A", "text/plain"} <= set(texts)
    assert [text for text in texts if is_harmful(text)] == []


def strings(value: Any) -> list[str]:
    """Return every text in JSON, keys included."""
    if isinstance(value, dict):
        return [text for pair in value.items() for one in pair for text in strings(one)]
    if isinstance(value, list):
        return [text for one in value for text in strings(one)]
    return [value] if isinstance(value, str) else []
