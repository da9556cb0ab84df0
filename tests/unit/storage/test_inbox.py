from __future__ import annotations

import signal
import sqlite3
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest

from dragoman.errors import ApprovalError, DragomanError
from dragoman.model import AlwaysRule, ApprovalCaller, PendingApproval
from dragoman.storage import inbox
from dragoman.storage.inbox import InboxStore
from dragoman.storage.inbox_watch import InboxWatch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RULE = AlwaysRule(
    covers="tool", rule={"action": "allow", "tool": "rm"}, text="{…}", file="/home/me/dragoman.toml"
)


@pytest.fixture
def asker(tmp_path: Path) -> Iterator[InboxStore]:
    with InboxStore(tmp_path) as store:
        yield store


@pytest.fixture
def other(tmp_path: Path) -> Iterator[InboxStore]:
    """The inbox as another process has it open."""
    with InboxStore(tmp_path) as store:
        yield store


def entry(**fields: Any) -> PendingApproval:
    now = time.time()
    given: dict[str, Any] = {
        "server": "fs",
        "tool": "mcp_fs_rm",
        "original_name": "rm",
        "arguments": {"path": "/srv"},
        "asked_at": now,
        "expires_at": now + 60,
    }
    return PendingApproval(id="", **{**given, **fields})


def test_the_first_answer_counts_and_the_second_is_told_by_whom(asker: InboxStore, other: InboxStore) -> None:
    made = asker.ask(entry(always=[RULE]), "s")
    assert other.pending() == [made]
    shown = other.answer(made.id, allow=True, by="ann", always="tool")
    assert (shown.state, shown.answered_by, shown.arguments) == ("approved", "ann", {"path": "/srv"})
    assert shown.always == [RULE]
    with pytest.raises(ApprovalError, match="already approved by ann") as caught:
        other.answer(made.id, allow=False, by="bob")
    assert (caught.value.state, caught.value.by) == ("approved", "ann")
    (found,) = asker.decided([made.id])
    assert (found.remembered, found.arguments, found.always) == ("tool", {}, [])
    assert asker.settle(made.id, allow=False, by="the caller").state == "approved"
    assert other.pending() == []


def test_only_the_process_that_asked_takes_an_approved_call_and_once(
    asker: InboxStore, other: InboxStore
) -> None:
    made = asker.ask(entry(), "s")
    assert not asker.claim(made.id)  # Nobody has answered.
    other.answer(made.id, allow=True, by="ann")
    assert not other.claim(made.id)
    other.ask(entry(), "another")
    assert not other.claim(made.id)
    assert asker.claim(made.id)
    assert not asker.claim(made.id)
    assert other.get(made.id).state == "sent"
    with pytest.raises(ApprovalError, match="already approved by ann"):
        other.answer(made.id, allow=True, by="bob")


@pytest.mark.parametrize("allow", [False, 1, "yes", None])
def test_only_a_literal_true_is_a_yes(asker: InboxStore, allow: Any) -> None:
    made = asker.ask(entry(), "s")
    assert asker.answer(made.id, allow=allow, by="ann").state == "denied"
    assert not asker.claim(made.id)


def test_what_nobody_answers_in_time_expires(asker: InboxStore, other: InboxStore) -> None:
    made = asker.ask(entry(expires_at=time.time() - 1), "s")
    with pytest.raises(ApprovalError, match="nobody answered in time"):
        other.answer(made.id, allow=True, by="ann")
    assert asker.get(made.id).state == "expired"
    assert not asker.claim(made.id)


def test_what_a_process_leaves_is_abandoned(asker: InboxStore, other: InboxStore) -> None:
    open_one, approved = asker.ask(entry(), "s"), asker.ask(entry(), "t")
    other.answer(approved.id, allow=True, by="ann")
    asker.close()
    assert [other.get(one.id).state for one in (open_one, approved)] == ["abandoned", "abandoned"]
    with pytest.raises(ApprovalError, match="its caller has ended"):
        other.answer(open_one.id, allow=True, by="ann")
    assert [path.name for path in other.folder.glob("*.owner")] == []


def test_what_a_killed_process_leaves_is_abandoned(tmp_path: Path, other: InboxStore) -> None:
    code = f"""
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from pathlib import Path
from dragoman.storage.inbox import InboxStore
from dragoman.model import PendingApproval
store = InboxStore(Path({str(tmp_path)!r}))
one = PendingApproval(id="", server="fs", tool="t", original_name="t", asked_at=time.time(), expires_at=time.time() + 60)
print(store.ask(one, "s").id, store.ask(one, "t").id, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        waiting, approved = child.stdout.readline().split()
        assert {one.id for one in other.pending()} == {waiting, approved}
        other.answer(approved, allow=True, by="ann")
        child.send_signal(signal.SIGKILL)
        child.wait()
    with pytest.raises(ApprovalError, match="its caller has ended"):
        other.answer(waiting, allow=True, by="ann")
    assert [other.get(one).state for one in (waiting, approved)] == ["abandoned", "abandoned"]
    assert list(tmp_path.glob("*.owner")) == []


def test_a_paused_call_goes_on_in_another_process_with_the_answer_and_once(
    asker: InboxStore, other: InboxStore
) -> None:
    made = asker.ask(entry(), "the same")
    asker.pause(made.id)
    asker.close()
    assert [one.id for one in other.pending()] == [made.id]
    other.answer(made.id, allow=True, by="ann")
    assert other.ask(entry(), "another call").id != made.id
    again = other.ask(entry(), "the same")
    assert (again.id, again.state) == (made.id, "approved")
    assert other.claim(made.id)
    fresh = other.ask(entry(), "the same")
    assert (fresh.id != made.id, fresh.state) == (True, "pending")


def test_an_answer_is_not_for_the_same_call_days_later(asker: InboxStore, other: InboxStore) -> None:
    made = asker.ask(entry(), "the same")
    asker.pause(made.id)
    other.answer(made.id, allow=False, by="ann")
    _set(asker, "expires_at", time.time() - 1)
    later = other.ask(entry(), "the same")
    assert (later.id != made.id, later.state) == (True, "pending")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("arguments", "no JSON"),
        ("arguments", "[1]"),
        ("state", "odd"),
        ("caller", "null"),
        ("always", "[{}]"),
    ],
)
def test_an_entry_that_is_damaged_is_an_error_with_its_file(
    asker: InboxStore, other: InboxStore, column: str, value: str
) -> None:
    made = asker.ask(entry(), "s")
    _set(asker, column, value)
    for read in (
        lambda: other.get(made.id),
        lambda: other.answer(made.id, allow=True, by="ann"),
        lambda: other.pending(decided=True),
    ):
        with pytest.raises(DragomanError, match=r"inbox\.sqlite3 cannot be used"):
            read()


def test_any_text_may_be_taken_for_an_id(asker: InboxStore) -> None:
    asker.ask(entry(), "s")
    for odd in ("\ud800", "é", "\0", "'"):
        with pytest.raises(ApprovalError, match="waits"):
            asker.answer(odd, allow=True, by="ann")
        with pytest.raises(ApprovalError, match="waits"):
            asker.get(odd)


def _set(store: InboxStore, column: str, value: object) -> None:
    connection = sqlite3.connect(store.path, isolation_level=None)
    connection.execute(f"UPDATE entries SET {column} = ?", (value,))
    connection.close()


def test_arguments_are_gone_from_the_file_once_it_is_decided(asker: InboxStore, other: InboxStore) -> None:
    made = asker.ask(entry(arguments={"text": "the-quick-brown-fox"}, always=[RULE]), "s")
    other.answer(made.id, allow=False, by="ann")
    asker.close()
    other.close()  # The last one to close moves the journal into the file.
    left = b"".join(path.read_bytes() for path in other.folder.iterdir())
    assert b"mcp_fs_rm" in left
    assert b"the-quick-brown-fox" not in left
    assert b"dragoman.toml" not in left


def test_the_files_are_the_users_alone(asker: InboxStore) -> None:
    asker.ask(entry(), "s")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in asker.folder.iterdir()}
    assert len(modes) >= 4
    assert set(modes.values()) == {0o600}


def test_a_rule_that_was_not_shown_cannot_be_chosen(asker: InboxStore) -> None:
    made = asker.ask(entry(always=[RULE]), "s")
    with pytest.raises(ApprovalError, match="no rule that covers `server`"):
        asker.answer(made.id, allow=True, by="ann", always="server")
    with pytest.raises(ApprovalError, match="only a yes can be remembered"):
        asker.answer(made.id, allow=False, by="ann", always="tool")
    assert asker.get(made.id).state == "pending"


def test_an_inbox_has_bounds(asker: InboxStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ApprovalError, match="too large to be shown"):
        asker.ask(entry(arguments={"text": "x" * inbox.MAX_BYTES}), "s")
    monkeypatch.setattr(inbox, "MAX_OF_CALLER", 1)
    monkeypatch.setattr(inbox, "MAX_PENDING", 2)
    asker.ask(entry(caller=ApprovalCaller(principal="a")), "1")
    with pytest.raises(ApprovalError, match="1 calls wait"):
        asker.ask(entry(caller=ApprovalCaller(principal="a")), "2")
    asker.ask(entry(caller=ApprovalCaller(principal="b")), "3")
    with pytest.raises(ApprovalError, match="2 calls wait"):
        asker.ask(entry(caller=ApprovalCaller(principal="c")), "4")


def test_old_entries_are_removed(
    asker: InboxStore, other: InboxStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = asker.ask(entry(), "s")
    asker.answer(made.id, allow=False, by="ann")
    assert [one.id for one in other.pending(decided=True)] == [made.id]
    monkeypatch.setattr(inbox, "KEEP_SECONDS", 0.0)
    monkeypatch.setattr(inbox, "PRUNE_SECONDS", 0.0)
    assert other.pending(decided=True) == []


def test_any_text_of_a_server_can_be_stored(asker: InboxStore) -> None:
    odd = "a\0b\ud800 \u202e'; DROP TABLE entries; --"
    made = asker.ask(entry(tool=odd, arguments={odd: [odd, 10**400, float("nan")]}), "s")
    (found,) = asker.pending()
    assert found.id == made.id
    assert next(iter(found.arguments)) == odd


def test_without_a_file_nothing_waits_and_none_is_made(asker: InboxStore) -> None:
    assert asker.pending() == []
    with pytest.raises(ApprovalError, match="no call with the id `x` waits"):
        asker.answer("x", allow=True, by="ann")
    assert list(asker.folder.iterdir()) == []


def test_a_file_that_is_not_ours_is_refused(tmp_path: Path, asker: InboxStore) -> None:
    (tmp_path / "elsewhere").write_text("")
    asker.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DragomanError, match="not a regular file"):
        asker.ask(entry(), "s")
    asker.path.unlink()
    connection = sqlite3.connect(asker.path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(DragomanError, match="later version"):
        asker.ask(entry(), "s")
    asker.path.write_bytes(b"no database at all, but a long text" * 100)
    with pytest.raises(DragomanError, match="cannot be used"):
        asker.ask(entry(), "s")


def test_calls_wait_together_for_a_file_that_is_locked(
    asker: InboxStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asker.ask(entry(), "s")
    monkeypatch.setattr(inbox, "BUSY_SECONDS", 0.5)
    watch = InboxWatch()
    locking = sqlite3.connect(asker.path, isolation_level=None)
    locking.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    jobs = [watch.run(asker.folder, lambda store: store.ask(entry(), "s")) for _ in range(40)]
    for job in jobs:
        with pytest.raises(DragomanError, match="locked"):
            job.result()
    assert time.monotonic() - began < 40 * 0.5 / 2
    locking.execute("ROLLBACK")
    locking.close()
    again = watch.run(asker.folder, lambda store: store.ask(entry(), "s")).result()
    assert again.state == "pending"


def test_many_may_be_the_first_to_open_it(tmp_path: Path) -> None:
    for number in range(5):
        folder, start = tmp_path / str(number), Barrier(8)

        def put(name: int, folder: Path = folder, start: Barrier = start) -> int:
            with InboxStore(folder) as store:
                start.wait()
                store.ask(entry(), str(name))
                start.wait()
                return len(store.pending())

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(put, range(8)))
