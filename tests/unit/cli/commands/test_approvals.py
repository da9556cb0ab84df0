"""`dragoman approvals`: what waits, and answers to it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.cli.program import dragoman, misfits

from dragoman.cli.commands.approvals import ApprovalsReport
from dragoman.model import AlwaysRule, ApprovalCaller, PendingApproval
from dragoman.storage.inbox import InboxStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def store() -> Iterator[InboxStore]:
    with InboxStore() as made:
        yield made


def ask(store: InboxStore, **fields: Any) -> str:
    now = time.time()
    given: dict[str, Any] = {
        "server": "fs",
        "tool": "mcp_fs_rm",
        "original_name": "rm",
        "arguments": {"path": "/srv", "lines": "one\n  asked by   nobody"},
        "rule": "ask rm",
        "source": "/etc/dragoman.toml:7",
        "reason": "it cannot be undone",
        "caller": ApprovalCaller(client="editor", program="dragoman", process=4711),
        **fields,
    }
    return store.ask(PendingApproval(id="", asked_at=now - 2, expires_at=now + 60, **given), "s").id


def test_a_call_is_listed_shown_and_approved(store: InboxStore) -> None:
    assert dragoman("approvals").stdout == "Nothing waits for an answer.\n"
    waiting = ask(store)
    assert dragoman("approvals").stdout == dragoman("approvals", "list").stdout
    assert f"{waiting}  rm of fs  asked 2 s ago" in dragoman("approvals", "list").stdout
    shown = dragoman("approvals", "show", waiting).stdout
    for text in (
        "rule `ask rm` in /etc/dragoman.toml:7",
        "it cannot be undone",
        "path = /srv",
        "process 4711",
    ):
        assert text in shown
    # A line of an argument does not look like one of ours.
    assert [line for line in shown.splitlines() if line.startswith("  asked by")] == [
        "  asked by   rule `ask rm` in /etc/dragoman.toml:7"
    ]
    assert dragoman("approvals", "approve", waiting).stdout == "Approved: rm of fs\n"
    assert store.claim(waiting)
    late = dragoman("approvals", "deny", waiting)
    assert (late.returncode, late.stdout) == (1, "")
    assert f"`{waiting}` was already approved by dragoman approvals" in late.stderr
    assert "Nothing waits" in dragoman("approvals").stdout
    assert "rm of fs  approved by dragoman approvals" in dragoman("approvals", "list", "--all").stdout


def test_no_name_looks_like_a_line_of_ours(store: InboxStore) -> None:
    odd = "x\n  because    it is safe\u2028  --always tool adds to y"
    caller = ApprovalCaller(client=odd, principal=odd)
    waiting = ask(
        store, server=odd, original_name=odd, arguments={odd: 1, "a": odd}, caller=caller, reason=odd
    )
    shown = dragoman("approvals", "show", waiting).stdout
    assert [line for line in shown.splitlines() if line.startswith("  because")] == [
        "  because    x   because    it is safe   --always tool adds to y"
    ]
    assert not [line for line in shown.splitlines() if line.startswith("  --always")]
    assert [len(dragoman("approvals", "list").stdout.splitlines())] == [1]
    assert "x of x" in shown


def test_a_call_is_denied(store: InboxStore) -> None:
    waiting = ask(store)
    assert dragoman("approvals", "deny", waiting).stdout == "Denied: rm of fs\n"
    assert not store.claim(waiting)
    assert store.get(waiting).state == "denied"


def test_a_rule_is_shown_and_written(store: InboxStore, home: Path) -> None:
    file = home / "dragoman.toml"
    file.write_text('[mcp.policy]\ndefault = "ask"\n', "utf-8")
    rule = {"action": "allow", "server": "fs", "tool": "rm"}
    text = '{action = "allow", server = "fs", tool = "rm"}'
    waiting = ask(store, always=[AlwaysRule(covers="tool", rule=rule, text=text, file=str(file))])
    assert (
        f"--always tool adds to ~/dragoman.toml:\n    {text}" in dragoman("approvals", "show", waiting).stdout
    )
    refused = dragoman("approvals", "approve", waiting, "--always", "server")
    assert "no rule that covers `server` (it has `tool`)" in refused.stderr
    assert text in dragoman("approvals", "approve", waiting, "--always", "tool").stdout
    assert 'tool = "rm"' in file.read_text("utf-8")


def test_json_has_the_whole_entry(store: InboxStore) -> None:
    waiting = ask(store)
    report = json.loads(dragoman("approvals", "--json").stdout)
    assert misfits(report, ApprovalsReport) == []
    (row,) = report["approvals"]
    assert row == json.loads(dragoman("approvals", "show", waiting, "--json").stdout)
    assert row["arguments"]["path"] == "/srv"
    assert json.loads(dragoman("approvals", "approve", waiting, "--json").stdout)["state"] == "approved"


def test_the_inbox_of_a_user_is_named(store: InboxStore) -> None:
    waiting = ask(store)
    assert "Nothing waits" in dragoman("approvals", "list", "--user", "ann").stdout
    refused = dragoman("approvals", "approve", waiting, "--user", "ann")
    assert f"no call with the id `{waiting}` waits" in refused.stderr
    assert store.get(waiting).state == "pending"
