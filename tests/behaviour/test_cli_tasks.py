"""`call --detach`, `tasks` and `skills` in real runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.behaviour.test_cli_listing import report
from tests.unit.cli.program import configure, dragoman, entry

from dragoman.cli.commands.resources import SkillsReport
from dragoman.cli.commands.tasks import TasksReport

if TYPE_CHECKING:
    from pathlib import Path

REFUNDS = "skill://acme/refunds/SKILL.md"


def test_a_detached_call_is_listed_as_a_task_and_its_result_is_fetched_later(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    configure(m=entry("modern.py", str(state)))
    begun = dragoman("call", "--detach", "m", "work", "polls=2")
    assert begun.returncode == 0, begun.stderr
    (task,) = report(TasksReport, "tasks")["tasks"]
    assert task["id"] in begun.stdout
    assert "secret-0" not in begun.stdout + json.dumps(task)
    done = dragoman("tasks", task["id"])
    assert (done.returncode, done.stdout.strip()) == (0, "work done {}")
    assert dragoman("tasks").stdout.strip() == "No tasks."
    assert "unknown task" in dragoman("tasks", "0000").stderr


def test_skills_are_listed_approved_and_printed(tmp_path: Path) -> None:
    configure(m=entry("modern.py", str(tmp_path / "state.json")))
    found = {one["uri"]: one for one in report(SkillsReport, "skills")["skills"]}
    assert found[REFUNDS]["approved"] is False
    refused = dragoman("skills", "m", "--load", REFUNDS)
    assert refused.returncode != 0
    assert "is not approved" in refused.stderr
    assert dragoman("skills", "m", "--approve", REFUNDS).returncode == 0
    assert "# Refunds" in dragoman("skills", "m", "--load", REFUNDS).stdout
