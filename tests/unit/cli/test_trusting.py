"""Approving a project's servers: the whole command is shown, and nobody means no."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
from pathlib import Path

import pytest
from tests.unit.cli.program import PROGRAM, configure, dragoman, misfits

from dragoman.cli.shapes import TrustReport
from dragoman.trust_store import Approvals

COMMAND = {"command": "npx", "args": ["-y", "some server", "--root", "/"]}


@pytest.fixture(autouse=True)
def project() -> None:
    write_project(COMMAND)
    configure(mine={"command": "true"})


def write_project(entry: dict[str, object]) -> None:
    Path("mcp.json").write_text(json.dumps({"mcpServers": {"theirs": entry}}), "utf-8")


def states() -> dict[str, str]:
    report = json.loads(dragoman("trust", "show", "--json").stdout)
    assert misfits(report, TrustReport) == []
    return {row["server"]: row["state"] for row in report["servers"]}


def at_a_terminal(*arguments: str, answer: str) -> tuple[int, str]:
    controller, end = pty.openpty()
    process = subprocess.Popen([*PROGRAM, *arguments], stdin=end, stdout=end, stderr=end, env=os.environ)
    os.close(end)
    seen = b""
    try:
        while select.select([controller], [], [], 30)[0]:
            seen += os.read(controller, 65536)
            if seen.rstrip().endswith(b"]:"):
                os.write(controller, f"{answer}\n".encode())
    except OSError:  # on Linux the end of a terminal is an error
        pass
    finally:
        os.close(controller)
    return process.wait(), seen.decode()


def test_without_a_terminal_nothing_is_approved_unless_somebody_says_yes() -> None:
    done = dragoman("trust", "approve", "theirs")
    assert done.returncode == 8
    assert done.stderr.startswith("error: nobody is here to agree to server `theirs`")
    assert done.stderr.count("\n") == 1
    assert states() == {"theirs": "new"}
    assert dragoman("trust", "approve", "theirs", "--yes").returncode == 0
    assert states() == {"theirs": "approved"}


def test_a_change_of_the_content_asks_again_and_revoking_forgets() -> None:
    assert dragoman("trust", "approve", "--all", "--yes").returncode == 0
    write_project({**COMMAND, "args": ["-y", "another"]})
    assert states() == {"theirs": "changed"}
    assert dragoman("trust", "revoke", "theirs").stdout == "`theirs` is not approved any more\n"
    assert states() == {"theirs": "new"}
    assert Approvals().all() == []


@pytest.mark.parametrize(("answer", "code", "state"), [("y", 0, "approved"), ("n", 8, "new"), ("", 8, "new")])
def test_a_person_sees_the_whole_command_and_decides(answer: str, code: int, state: str) -> None:
    ended, screen = at_a_terminal("trust", "approve", "theirs", answer=answer)
    assert "npx -y 'some server' --root /" in screen
    assert "Approve it? [y/N]:" in screen
    assert ended == code
    assert states() == {"theirs": state}


def test_a_server_of_ones_own_needs_no_approval() -> None:
    done = dragoman("trust", "approve", "mine", "--yes")
    assert done.returncode == 1
    assert "it needs no approval" in done.stderr
    assert "mine" not in states()


def test_wrong_usage_is_said() -> None:
    assert dragoman("trust", "approve").returncode == 2
    assert dragoman("trust", "approve", "nobody", "--yes").returncode == 9
