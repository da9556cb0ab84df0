"""Approving a project's servers: the whole command is shown, and no answer means no."""

from __future__ import annotations

import json
import os
import pty
import select
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit.cli.program import configure, misfits
from tests.warm import Warm

from dragoman.cli.commands.trust import TrustReport
from dragoman.cli.main import run
from dragoman.config.load import approvals

if TYPE_CHECKING:
    from collections.abc import Callable

    Ask = Callable[..., tuple[int, str, str]]

COMMAND = {"command": "npx", "args": ["-y", "some server", "--root", "/"]}


@pytest.fixture(autouse=True)
def project() -> None:
    write_project(COMMAND)
    configure(mine={"command": "true"})


def write_project(entry: dict[str, object]) -> None:
    Path("mcp.json").write_text(json.dumps({"mcpServers": {"theirs": entry}}), "utf-8")


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Run the program here, without a terminal; return its exit code and what it prints."""

    def ask(*arguments: str) -> tuple[int, str, str]:
        code = run(["trust", *arguments])
        return code, *capsys.readouterr()

    return ask


def states(ask: Ask) -> dict[str, str]:
    report = json.loads(ask("show", "--json")[1])
    assert misfits(report, TrustReport) == []
    return {row["server"]: row["state"] for row in report["servers"]}


def at_a_terminal(
    *arguments: str, answer: str, meanwhile: Callable[[], None] = lambda: None
) -> tuple[int, str]:
    """Run the program as a person does; `meanwhile` is called while a question stands on the screen."""
    controller, end = pty.openpty()
    process = Warm(arguments, (end, end, end), os.environ, terminal=True)
    os.close(end)
    seen = b""
    try:
        while select.select([controller], [], [], 30)[0]:
            seen += os.read(controller, 65536)
            if seen.rstrip().endswith(b"]:"):
                meanwhile()
                os.write(controller, f"{answer}\n".encode())
    except OSError:  # on Linux the end of a terminal is an error
        pass
    finally:
        os.close(controller)
    return process.wait(), seen.decode()


def test_without_a_terminal_nothing_is_approved_unless_yes_is_given(ask: Ask) -> None:
    code, _, errors = ask("approve", "theirs")
    assert code == 8
    assert errors.startswith("error: server `theirs` needs your approval")
    assert "`dragoman trust approve theirs --yes` approves it without asking" in errors
    assert errors.count("\n") == 1
    assert states(ask) == {"theirs": "new"}
    assert ask("approve", "theirs", "--yes")[0] == 0
    assert states(ask) == {"theirs": "approved"}
    again = "`theirs` is approved already: there is nothing to approve\n"
    assert ask("approve", "theirs") == (0, again, "")


def test_a_change_of_the_content_asks_again_and_revoking_forgets(ask: Ask) -> None:
    assert ask("approve", "--all", "--yes")[0] == 0
    write_project({**COMMAND, "args": ["-y", "another"]})
    assert states(ask) == {"theirs": "changed"}
    assert ask("revoke", "theirs")[1] == "`theirs` is not approved any more\n"
    assert states(ask) == {"theirs": "new"}
    assert approvals().all() == []


@pytest.mark.parametrize(("answer", "code", "state"), [("y", 0, "approved"), ("n", 8, "new"), ("", 8, "new")])
def test_a_person_sees_the_whole_command_and_decides(ask: Ask, answer: str, code: int, state: str) -> None:
    ended, screen = at_a_terminal("trust", "approve", "theirs", answer=answer)
    assert "npx -y 'some server' --root /" in screen
    assert "Approve it? [y/N]:" in screen
    assert ended == code
    assert states(ask) == {"theirs": state}


def test_a_server_of_ones_own_needs_no_approval_of_its_entry(ask: Ask) -> None:
    configure(mine={"command": "true", "trust": "off"})
    said = "`mine` is yours, and its `trust` is off: there is nothing to approve\n"
    assert ask("approve", "mine") == (0, said, "")
    code, _, errors = ask("approve", "mine", "--yes", "--project")
    assert (code, "nothing of server `mine` is pinned" in errors) == (1, True)
    assert not Path("dragoman.lock").exists()
    assert "mine" not in states(ask)


def test_what_cannot_be_connected_cannot_be_approved(ask: Ask) -> None:
    code, _, errors = ask("approve", "mine", "--yes", "--timeout", "5")
    assert code == 4
    assert errors.splitlines()[-1].startswith("error: ")
    code, _, errors = ask("approve", "theirs", "mine", "--yes", "--timeout", "5")
    assert (code, "mine: " in errors) == (4, True)
    assert states(ask) == {"theirs": "approved"}


def test_wrong_usage_is_said(ask: Ask) -> None:
    assert ask("approve")[0] == 2
    assert ask("approve", "nobody", "--yes")[0] == 9
    assert ask("approve", "mine", "theirs", "--tools", "x")[0] == 2
    assert ask("show", "nobody")[0] == 9


def test_show_says_what_to_do_and_starts_nothing(ask: Ask) -> None:
    write_project({"command": "touch", "args": ["started"]})
    configure(mine={"command": "touch", "args": ["started"]})
    shown = ask("show")[1]
    assert "`dragoman trust approve theirs` shows it whole and asks" in shown
    assert "none yet: its tools are pinned at first use" in shown
    assert ask("approve", "theirs", "--yes")[0] == 0
    write_project({"command": "touch", "args": ["other"]})
    assert "changed since it was approved" in ask("show", "theirs")[1]
    Path("mcp.json").unlink()
    assert "approved, but not configured any more" in ask("show")[1]
    assert not Path("started").exists()


def test_servers_whose_names_look_alike_are_told(ask: Ask) -> None:
    alike = ["paypal", "payp\u0430l"]
    configure(**{name: {"command": "true"} for name in alike})
    (finding,) = json.loads(ask("show", "--json")[1])["look_alikes"]
    assert (finding["kind"], finding["field"]) == ("look-alike", "server")
    assert "look at `payp" in ask("show")[1]
