"""Files that version 0.2 stored are read: a small home folder that its program and its library wrote.

`tests/fixtures/stored-by-0.2` has it. The project was `/` and its servers are named by variables: what belongs to
a server belongs to its entry and its project, and these are the same on every machine.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit.cli.program import SERVERS, dragoman

from dragoman import Handlers, McpManager
from dragoman.errors import DragomanError
from dragoman.model import Continuation
from dragoman.storage.results import ResultStore, default_folder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

STORED = Path(__file__).resolve().parents[1] / "fixtures" / "stored-by-0.2"
TASK = "dfe0e7aef5"
TASK_OF_ANNA = "c9352101b8"


@pytest.fixture(autouse=True)
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lay the stored files out in the test's home; return what 0.2 kept beside its project."""
    for part in ("config", "cache", "data", "state"):
        target = Path(os.environ[f"XDG_{part.upper()}_HOME"])
        # Contents alone: what is kept is dropped by its age.
        shutil.copytree(STORED / part, target, copy_function=shutil.copyfile, dirs_exist_ok=True)
        for path in target.rglob("*"):
            path.chmod(0o700 if path.is_dir() else 0o600)
            if path.suffix == ".task":
                path.write_text(re.sub(r'"created":[\d.]+', f'"created":{time.time()}', path.read_text()))
    log = Path(os.environ["XDG_STATE_HOME"], "dragoman", "calls.sqlite3")
    with closing(sqlite3.connect(log)) as connection:
        connection.executescript(log.with_suffix(".sql").read_text("utf-8"))
    shutil.copytree(STORED / "servers", tmp_path / "servers")
    shutil.copytree(STORED / "project", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir("/")
    monkeypatch.setenv("TEST_PYTHON", sys.executable)
    monkeypatch.setenv("TEST_SERVERS", str(SERVERS))
    monkeypatch.setenv("TEST_STATE", str(tmp_path / "servers"))
    return tmp_path


@pytest.fixture
async def mcp() -> AsyncIterator[McpManager]:
    handlers = Handlers(durable_questions=True)
    async with McpManager.from_config(root="/", handlers=handlers) as manager:
        assert await manager.wait_ready(timeout=60)
        yield manager


def accepted(name: str) -> dict[str, object]:
    return {"action": "accept", "content": {"name": name}}


def test_the_program_knows_tools_tasks_calls_and_approvals_without_a_server(stored: Path) -> None:
    listed = dragoman("tools", "--json")
    assert listed.stderr == ""
    servers = {one["server"]: one for one in json.loads(listed.stdout)["servers"]}
    assert {(name, one["source"], bool(one["tools"])) for name, one in servers.items()} == {
        (name, "cache", True) for name in ("modern", "rows", "plain")
    }
    assert "slow" not in {tool["tool"] for tool in servers["plain"]["tools"]}
    calls = json.loads(dragoman("calls", "--json").stdout)["calls"]
    assert {(one["tool"], one["error_code"]) for one in calls} >= {
        ("mcp_plain_echo", ""),
        ("mcp_plain_fail", "tool.failed"),
    }
    assert [one["id"] for one in json.loads(dragoman("tasks", "--json").stdout)["tasks"]] == [TASK]
    shown = json.loads(dragoman("config", "show", "--json").stdout)["servers"]
    assert [(one["name"], one.get("replace")) for one in shown][-1] == ("plain", "stop-first")
    assert not (stored / "servers" / "modern.log").exists()


def test_the_program_goes_on_with_a_task_and_a_table_and_asks_no_second_time_for_a_skill(
    stored: Path,
) -> None:
    assert dragoman("tasks", TASK).stdout.strip() == "work done {}"
    assert "# Refunds" in dragoman("skills", "modern", "--load", "skill://acme/refunds/SKILL.md").stdout
    done = dragoman(
        "map", "rows.note", str(stored / "in.csv"), "--out", str(stored / "out.csv"), "--json", "-y"
    )
    assert (done.returncode, json.loads(done.stdout)["ok"]) == (7, 2)
    # Rows that 0.2 sent are not sent again.
    assert (stored / "servers" / "rows.txt").read_text().split("\n") == ["one", "fail two", "three", ""]


async def test_the_library_goes_on_with_questions_that_were_asked(mcp: McpManager, stored: Path) -> None:
    asked = Continuation.from_json((stored / "answered.json").read_text())
    assert asked.open_questions == ["second"]
    result = await mcp.tasks.resume(asked, {"second": accepted("Bo")})
    assert result.text == "ordered for Ann, Bo"
    used = Continuation.from_json((stored / "used.json").read_text())
    with pytest.raises(DragomanError, match="continued already"):
        await mcp.tasks.resume(used, {"first": accepted("Ann")})
    forged = Continuation.from_json((stored / "continuation.json").read_text()).replace(state="other")
    with pytest.raises(DragomanError, match="changed"):
        await mcp.tasks.resume(forged, {key: accepted("Ann") for key in ("first", "second")})


async def test_a_user_of_the_program_has_their_tasks_and_questions(mcp: McpManager, stored: Path) -> None:
    anna = mcp.as_user("anna")
    assert await anna.wait_ready(timeout=60)
    assert [task.id for task in await anna.tasks.list()] == [TASK_OF_ANNA]
    assert (await anna.tasks.resume(TASK_OF_ANNA)).text == "work done {}"
    asked = Continuation.from_json((stored / "continuation-anna.json").read_text())
    with pytest.raises(DragomanError):
        await mcp.tasks.resume(asked, {"first": accepted("Ann")})
    assert (await anna.tasks.resume(asked, {"first": accepted("Ann")})).text == "ordered for Ann"


def test_a_kept_result_is_read() -> None:
    store = ResultStore(default_folder())
    assert store.read("b0edbe5f1f74877c72b80190a099ebe2.txt").startswith("large " * 10)
