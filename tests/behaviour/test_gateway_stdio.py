"""`dragoman serve` on standard input and output, with hosts that close one of them early or read nothing."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from tests.unit.cli.program import PROGRAM, configure, entry

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


@pytest.fixture
def program() -> subprocess.Popen[bytes]:
    configure(bank=entry("asking_late.py", protocol="legacy"))
    pipe = subprocess.PIPE
    return subprocess.Popen([*PROGRAM, "serve"], stdin=pipe, stdout=pipe, stderr=pipe)


def test_what_was_asked_before_the_end_of_the_input_is_answered(program: subprocess.Popen[bytes]) -> None:
    out, err = program.communicate(lines(HELLO, call(2, "outcome"), call(3, "transfer")), timeout=40)
    # The last call is never answered by its server.
    assert sorted(json.loads(line)["id"] for line in out.splitlines()) == [1, 2]
    assert program.returncode == 0
    assert b"Traceback" not in err


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
