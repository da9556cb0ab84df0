"""Approvals and pins on disk: outside the project, for their owner alone, whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from dragoman.config.load import approvals
from dragoman.errors import ConfigError
from dragoman.model import Http, Origin, ServerSpec, Stdio
from dragoman.storage.files import MAX_PROJECT_BYTES, data_folder
from dragoman.trust.approvals import Evidence
from dragoman.trust.pin_store import Pins
from dragoman.trust.pins import load_lock, pins_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROJECT = Origin(source=".mcp.json", scope="project")
SPEC = ServerSpec("fs", Stdio("npx", ["server", "--token", "hunter22"]), origin=PROJECT)
STRICT = SPEC.replace(trust="strict")
BEFORE = pins_of([{"name": "read", "description": "Reads."}], prompts=[], instructions="Be kind.")
AFTER = pins_of([{"name": "read", "description": "Reads and sends."}], prompts=[], instructions="Be kind.")


def test_an_approval_is_kept_outside_the_project_and_without_secrets(tmp_path: Path, home: Path) -> None:
    store = approvals()
    assert not store.is_approved(SPEC, tmp_path)
    store.approve(SPEC, tmp_path)
    assert approvals().is_approved(SPEC, tmp_path)
    assert store.path.is_relative_to(home)
    assert data_folder() == store.path.parent
    assert list(tmp_path.iterdir()) == []
    assert "hunter22" not in store.path.read_text("utf-8")
    (one,) = store.all()
    assert (one.root, one.server, one.at > 0) == (os.path.realpath(tmp_path), "fs", True)


def test_a_changed_server_is_refused_and_the_error_says_so(tmp_path: Path) -> None:
    store = approvals()
    store.approve(SPEC, tmp_path)
    changed = SPEC.replace(transport=Stdio("npx", ["evil"]))
    new = SPEC.replace(name="new")
    refused = store.refused([SPEC, changed, new], tmp_path)
    assert refused.keys() == {"fs", "new"}
    assert "has changed" in str(refused["fs"])
    assert "is not approved" in str(refused["new"])
    store.approve(changed, tmp_path)
    assert store.is_approved(changed, tmp_path)
    assert not store.is_approved(SPEC, tmp_path)
    assert len(store.all()) == 1


def test_a_changed_file_is_refused_and_named(tmp_path: Path) -> None:
    script = tmp_path / "notes.py"
    script.write_text("print(1)")
    spec = ServerSpec("notes", Stdio(sys.executable, ["notes.py"]), origin=PROJECT)
    store = approvals()
    store.approve(spec, tmp_path)
    assert store.is_approved(spec, tmp_path)
    script.write_text("print(2)")
    error = store.refused([spec], tmp_path)["notes"]
    assert "has changed since it was approved (the file `notes.py` changed)" in str(error)
    # A reader of the entry does not see that.
    assert store.refused_entries([spec], tmp_path) == {}
    other = spec.replace(naming="{tool}")
    assert "`naming` is new" in str(store.refused_entries([other], tmp_path)["notes"])
    assert "is not approved" in str(store.refused_entries([spec.replace(name="x")], tmp_path)["x"])


def test_what_was_shown_is_approved_also_if_a_file_has_changed_since(tmp_path: Path) -> None:
    script = tmp_path / "notes.py"
    script.write_text("print(1)")
    spec = ServerSpec("notes", Stdio(sys.executable, ["notes.py"]), origin=PROJECT)
    look = approvals().look(spec, tmp_path)
    script.write_text("print(2)")
    approvals().approve(spec, tmp_path, look.evidence)
    assert not approvals().is_approved(spec, tmp_path)
    script.write_text("print(1)")
    assert approvals().is_approved(spec, tmp_path)


def test_approvals_of_an_older_version_are_asked_for_once_more_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [
        {
            "root": os.path.realpath(tmp_path),
            "server": name,
            "fingerprint": "sha256:0",
            "summary": "x",
            "at": 5,
        }
        for name in ("fs", "other")
    ]
    store = approvals()
    store.path.parent.mkdir(parents=True)
    store.path.write_text(json.dumps({"version": 1, "approvals": rows}), "utf-8")
    store.path.chmod(0o600)
    for refused in (store.refused, store.refused_entries):
        assert "it was approved with dragoman 0.1, which did not cover" in str(
            refused([SPEC], tmp_path)["fs"]
        )
    store.approve(SPEC, tmp_path)
    assert store.is_approved(SPEC, tmp_path)
    # The others wait for their own question.
    other = SPEC.replace(name="other")
    assert "dragoman 0.1" in str(store.refused([other], tmp_path)["other"])
    assert "is not used" not in caplog.text


def test_an_approval_that_covered_fewer_files_is_asked_for_once_more_with_the_reason(tmp_path: Path) -> None:
    tox = SPEC.replace(name="tox", transport=Stdio("tox", ["-e", "serve"]))
    store = approvals()
    for spec in (SPEC, tox):
        store.approve(spec, tmp_path, Evidence(programs=store.look(spec, tmp_path).evidence.programs))
    data = json.loads(store.path.read_text("utf-8"))
    for row in data["approvals"]:
        del row["coverage"]
    store.path.write_text(json.dumps(data), "utf-8")
    (tmp_path / "tox.ini").write_text("")
    assert store.refused_entries([SPEC, tox], tmp_path) == {}
    # What is covered as before is not asked about.
    refused = store.refused([SPEC, tox], tmp_path)
    assert refused.keys() == {"tox"}
    assert "(it was approved with an earlier dragoman, which covered fewer of the files that it runs)" in str(
        refused["tox"]
    )
    store.approve(tox, tmp_path)
    (tmp_path / "tox.ini").write_text("2")
    assert "(the file `tox.ini` changed)" in str(store.refused([tox], tmp_path)["tox"])


def test_an_approval_is_revoked(tmp_path: Path) -> None:
    store = approvals()
    store.approve(SPEC, tmp_path)
    assert not store.revoke("other", tmp_path)
    assert not store.revoke("fs", tmp_path / "elsewhere")
    assert store.revoke("fs", tmp_path)
    assert not store.is_approved(SPEC, tmp_path)


def test_a_project_has_one_name_however_it_is_reached(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    approvals().approve(SPEC, tmp_path / "link")
    assert approvals().is_approved(SPEC, real / "." / ".." / "real")
    assert not approvals().is_approved(SPEC, tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such modes")
def test_files_and_folders_are_for_their_owner_alone(tmp_path: Path) -> None:
    store, pins = approvals(), Pins(tmp_path)
    store.approve(SPEC, tmp_path)
    pins.check(SPEC, BEFORE)
    for path in (store.path, pins.user_path(SPEC)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not [path for path in data_folder().rglob("*") if path.suffix == ".new"]


def spoil_text(path: Path) -> None:
    path.write_text("not JSON", "utf-8")


def spoil_bytes(path: Path) -> None:
    path.write_bytes(b"\xff\xfe")


def open_to_all(path: Path) -> None:
    path.chmod(0o666)


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


SPOILED = [spoil_text, spoil_bytes, open_to_all, make_pipe, make_folder]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such modes")
@pytest.mark.parametrize("spoil", SPOILED)
def test_a_file_that_cannot_be_trusted_approves_nothing(
    spoil: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = approvals()
    store.approve(SPEC, tmp_path)
    spoil(store.path)
    assert not store.is_approved(SPEC, tmp_path)
    assert "is not used" in caplog.text
    store.approve(SPEC, tmp_path)
    assert store.is_approved(SPEC, tmp_path)
    assert store.path.with_name("approvals.json.damaged").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such modes")
@pytest.mark.parametrize("spoil", SPOILED)
def test_a_lock_that_cannot_be_trusted_vouches_for_nothing(
    spoil: Callable[[Path], None], tmp_path: Path
) -> None:
    pins = Pins(tmp_path)
    pins.check(STRICT, BEFORE)
    spoil(pins.user_path(SPEC))
    assert pins.check(STRICT, BEFORE).withheld == {"read"}
    assert Pins(tmp_path).check(STRICT, BEFORE).withheld == {"read"}
    pins.approve(STRICT, BEFORE)
    assert pins.check(STRICT, BEFORE).withheld == frozenset()


def test_a_place_that_cannot_be_written_is_an_error_with_the_path(tmp_path: Path, home: Path) -> None:
    (home / "file").write_text("", "utf-8")
    with pytest.raises(ConfigError, match="cannot be written") as caught:
        approvals(home / "file").approve(SPEC, tmp_path)
    assert caught.value.source.endswith("approvals.json")
    assert not approvals(home / "file").is_approved(SPEC, tmp_path)


def file_in_the_way(folder: Path, pins: Pins) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pins").write_text("", "utf-8")


def folder_as_the_lock(folder: Path, pins: Pins) -> None:
    (folder / "pins" / f".{pins.user_path(SPEC).name}.guard").mkdir(parents=True)


def link_to_nowhere(folder: Path, pins: Pins) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pins").symlink_to("/proc/nowhere")


def full_disk(folder: Path, pins: Pins) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pins").symlink_to("/dev/full")


@pytest.mark.skipif(sys.platform != "linux", reason="devices of Linux")
@pytest.mark.parametrize("spoil", [file_in_the_way, folder_as_the_lock, link_to_nowhere, full_disk])
def test_with_strict_trust_what_cannot_be_pinned_is_withheld(
    spoil: Callable[[Path, Pins], None], tmp_path: Path, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = home / "data"
    pins = Pins(tmp_path, folder)
    spoil(folder, pins)
    for _ in range(2):
        verdict = pins.check(STRICT, BEFORE)
        assert verdict.withheld == {"read"}
        assert verdict.standing("", "instructions") == "withheld"
        assert "cannot be written" in verdict.problem
    assert "are not pinned" in caplog.text
    # Others go on: they would be flagged at most.
    assert pins.check(SPEC, BEFORE).first_use
    assert Pins(tmp_path, folder, default="ask").check(SPEC, BEFORE).withheld == frozenset()


def test_with_strict_trust_what_is_pinned_is_offered_although_nothing_can_be_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = {"name": "read", "description": "Reads."}
    Pins(tmp_path).check(STRICT, pins_of([tool]))
    monkeypatch.setattr("dragoman.storage.files.LOCK_TIMEOUT", 0)
    monkeypatch.setattr("dragoman.storage.files.write_atomically", _no_space)
    verdict = Pins(tmp_path).check(STRICT, pins_of([tool], prompts=[{"name": "sum"}], instructions="Obey."))
    assert verdict.withheld == frozenset()
    assert verdict.standing("sum", "prompt") == verdict.standing("", "instructions") == "withheld"
    assert "No space left on device" in verdict.problem
    assert Pins(tmp_path).check(STRICT, pins_of([tool])).problem == ""


def _no_space(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_says_nothing_about_trust_has_the_default(tmp_path: Path) -> None:
    asks = Pins(tmp_path, default="ask")
    assert asks.check(SPEC, BEFORE).first_use
    assert asks.check(SPEC, AFTER).withheld == {"read"}
    assert asks.check(SPEC.replace(trust="warn"), AFTER).withheld == frozenset()
    assert Pins(tmp_path).check(SPEC, AFTER).standing("read") == "flagged"


def test_the_first_use_is_pinned_and_a_later_change_is_seen_over_a_restart(tmp_path: Path) -> None:
    assert Pins(tmp_path).check(SPEC, BEFORE).first_use
    assert not Pins(tmp_path).check(SPEC, BEFORE).first_use
    for _ in range(3):
        assert Pins(tmp_path).check(SPEC, AFTER).standing("read") == "flagged"
    assert Pins(tmp_path).check(STRICT, AFTER).withheld == {"read"}
    Pins(tmp_path).approve(SPEC, AFTER)
    assert Pins(tmp_path).check(STRICT, AFTER).changes == []
    assert list(tmp_path.iterdir()) == []


def test_prompts_and_instructions_are_pinned_when_they_are_first_seen(tmp_path: Path) -> None:
    pins = Pins(tmp_path)
    pins.check(SPEC, pins_of([{"name": "read", "description": "Reads."}]))
    assert pins.check(SPEC, BEFORE).changes == []
    now = pins_of([{"name": "read", "description": "Reads."}], instructions="Obey.")
    assert [change.kind for change in pins.check(SPEC, now).changes] == ["instructions"]


def test_with_trust_off_nothing_is_read_or_written(tmp_path: Path) -> None:
    pins = Pins(tmp_path)
    assert not pins.check(SPEC.replace(trust="off"), BEFORE).first_use
    assert not pins.user_path(SPEC).exists()


def test_servers_of_two_projects_and_of_the_user_are_told_apart(tmp_path: Path) -> None:
    one, two = Pins(tmp_path / "one"), Pins(tmp_path / "two")
    mine = SPEC.replace(origin=Origin(source="mcp.json", scope="user"))
    assert one.check(SPEC, BEFORE).first_use
    assert two.check(SPEC, AFTER).first_use
    assert one.check(mine, AFTER).first_use
    assert not two.check(mine, AFTER).first_use
    # Two servers of one name are told apart by what they are; another version is the same server.
    http = [mine.replace(transport=Http(f"https://{host}/mcp")) for host in ("a", "b")]
    assert one.check(http[0], BEFORE).first_use
    assert one.check(http[1], AFTER).first_use
    assert not one.check(http[0], BEFORE).changes
    assert one.check(mine.replace(transport=Stdio("npx", ["x@1.0"])), BEFORE).first_use
    assert one.check(mine.replace(transport=Stdio("npx", ["x@1.1"])), AFTER).changes
    assert one.check(mine.replace(transport=Stdio("npx", ["@x/y"])), AFTER).first_use
    assert one.user_path(mine.replace(name="a/b")) != one.user_path(mine.replace(name="a_b"))
    assert one.user_path(mine.replace(name="../../x")).parent == one.user_path(mine).parent


def test_a_projects_lock_can_only_narrow(tmp_path: Path) -> None:
    mine = STRICT.replace(origin=Origin(source="mcp.json", scope="user"))
    pins = Pins(tmp_path)
    pins.check(mine, BEFORE)
    other = Pins(tmp_path, tmp_path / "else")
    other.approve(mine, AFTER, in_project=True)
    assert load_lock(pins.project_path.read_text("utf-8"))["fs"] == AFTER
    assert Pins(tmp_path).check(mine, AFTER).withheld == {"read"}
    assert Pins(tmp_path).check(mine, BEFORE).withheld == {"read"}


def test_a_projects_lock_that_is_too_large_is_not_read_and_vouches_for_nothing(tmp_path: Path) -> None:
    mine = STRICT.replace(origin=Origin(source="mcp.json", scope="user"))
    pins = Pins(tmp_path)
    pins.check(mine, BEFORE)
    assert pins.check(mine, BEFORE).withheld == frozenset()
    pins.project_path.write_text(f'{{"version": 1, "servers": {{}}}}{" " * MAX_PROJECT_BYTES}', "utf-8")
    assert Pins(tmp_path).check(mine, BEFORE).withheld == {"read"}


def test_a_projects_lock_holds_at_the_first_use_and_follows_an_approval(tmp_path: Path, home: Path) -> None:
    Pins(tmp_path, home / "colleague").approve(STRICT, BEFORE, in_project=True)
    pins = Pins(tmp_path)
    assert pins.check(STRICT, AFTER).withheld == {"read"}
    assert not pins.user_path(STRICT).exists()
    pins.approve(STRICT, AFTER)
    assert pins.check(STRICT, AFTER).withheld == frozenset()
    assert load_lock(pins.project_path.read_text("utf-8"))["fs"] == AFTER
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dragoman.lock"]


def test_a_lock_begins_with_what_the_other_one_knows(tmp_path: Path, home: Path) -> None:
    more = pins_of([{"name": "read", "description": "Reads."}, {"name": "write"}])
    now = pins_of([{"name": "read", "description": "Other."}, {"name": "write", "title": "!"}])
    Pins(tmp_path, home / "colleague").approve(STRICT, more, in_project=True)
    pins = Pins(tmp_path)
    pins.approve(STRICT, now, tools=["read"])
    assert pins.check(STRICT, now).withheld == {"write"}
    assert list(pins.known(STRICT)) == [pins.user_path(STRICT), pins.project_path]
    assert len(set(map(str, pins.known(STRICT).values()))) == 1

    other = Pins(home)
    other.check(STRICT, more)
    assert list(other.known(STRICT)) == [other.user_path(STRICT)]
    other.approve(STRICT, now, tools=["read"], in_project=True)
    assert load_lock(other.project_path.read_text("utf-8"))["fs"].tools["write"] == more.tools["write"]
    assert other.check(STRICT, now).withheld == {"write"}


def test_pins_are_forgotten(tmp_path: Path) -> None:
    pins = Pins(tmp_path)
    assert not pins.forget(SPEC)
    pins.check(SPEC, BEFORE)
    assert pins.forget(SPEC)
    assert pins.check(SPEC, AFTER).first_use


def test_two_processes_lose_nothing(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from dragoman.model import ServerSpec, Stdio\n"
        "from dragoman.config.load import approvals\n"
        "for number in range(10):\n"
        "    approvals().approve(ServerSpec(f'{sys.argv[1]}-{number}', Stdio('x')), '.')\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", script, name], cwd=tmp_path) for name in ("a", "b")]
    assert [process.wait(50) for process in running] == [0, 0]
    assert len(approvals().all()) == 20
    assert json.loads(approvals().path.read_text("utf-8"))["version"] == 2
