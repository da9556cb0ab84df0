from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from dragoman.server.process import spawn as children
from dragoman.server.process.orphans import (
    MARK,
    Identity,
    Ledger,
    began,
    child_ends,
    default_folder,
    descendants,
    identify,
    kill_relatives,
    sweep,
)
from dragoman.server.process.watchdog import mark_limits, new_tag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

M1 = f"m1-{os.getpid()}"
"""A mark that no other run of these tests looks for: marks are found in the whole system."""
SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads a group of its own and carries the mark `M1`."""
    process = subprocess.Popen(SLEEP, start_new_session=True, env={**os.environ, MARK: M1})
    yield process
    process.kill()
    process.wait()


def page(folder: Path, owner: Identity | None, *children: Identity | None, mark: str = "") -> Path:
    """Write a ledger as another process would."""
    assert owner is not None
    folder.mkdir(exist_ok=True)
    file = folder / f"{owner.pid}.jsonl"
    entries = [{"pid": one.pid, "began": one.began, "name": "s", "mark": mark} for one in children if one]
    write(file, {"pid": owner.pid, "began": owner.began}, *entries)
    return file


def write(file: Path, *lines: dict[str, Any]) -> None:
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def dead() -> Identity:
    """A process with our number that began at another time."""
    ours = identify(os.getpid())
    assert ours is not None
    return Identity(ours.pid, "another boot/1")


def ended_by(process: subprocess.Popen[bytes]) -> int:
    return process.wait(timeout=30)


def test_process_is_known_by_its_number_and_its_beginning(sleeper: subprocess.Popen[bytes]) -> None:
    identity = identify(sleeper.pid)
    assert identity == identify(sleeper.pid)
    assert identity != identify(os.getpid())


def test_a_missing_process_and_a_zombie_are_not_identified() -> None:
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert identify(process.pid) is None
    process.wait()
    assert identify(process.pid) is None


def test_ledger_holds_the_living_and_goes_with_the_last_of_them(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    ledger = Ledger(tmp_path / "children")
    ledger.add(identify(sleeper.pid), "files", M1)
    file = tmp_path / "children" / f"{os.getpid()}.jsonl"
    (_, child) = read(file)
    assert (child["pid"], child["name"], child["mark"]) == (sleeper.pid, "files", M1)
    assert file.parent.stat().st_mode & 0o777 == 0o700
    ledger.remove(sleeper.pid + 1)
    assert file.exists()
    ledger.remove(sleeper.pid)
    assert not file.exists()


def test_starts_and_ends_are_added_to_the_page_until_it_has_too_many_lines(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.server.process.orphans.MAX_LINES", 3)
    ledger, file = Ledger(tmp_path), tmp_path / f"{os.getpid()}.jsonl"
    ledger.add(identify(os.getpid()), "self", "m0")
    ledger.add(identify(sleeper.pid), "files", M1)
    ledger.remove(sleeper.pid)
    assert [line.get("name") for line in read(file)[1:]] == ["self", "files", None]
    assert read(file)[3] == {"gone": sleeper.pid}
    ledger.add(identify(sleeper.pid), "files", M1)
    ledger.remove(sleeper.pid)
    ledger.remove(os.getpid())
    assert not file.exists()
    for _ in range(5):
        ledger.add(identify(os.getpid()), "self", "m0")
        ledger.add(identify(sleeper.pid), "files", M1)
        ledger.remove(sleeper.pid)
    assert len(read(file)) <= 8


def test_page_that_was_removed_is_written_again(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    ledger, file = Ledger(tmp_path), tmp_path / f"{os.getpid()}.jsonl"
    ledger.add(identify(os.getpid()), "self", "m0")
    file.unlink()
    ledger.add(identify(sleeper.pid), "files", M1)
    assert [line.get("name") for line in read(file)] == [None, "self", "files"]


def test_child_that_is_crossed_out_and_a_line_that_was_cut_count_for_nothing(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    file = page(tmp_path, dead(), identify(sleeper.pid))
    with file.open("a") as more:
        more.write(json.dumps({"gone": sleeper.pid}) + '\n{"pid": 1, "beg')
    assert sweep(tmp_path) == 0
    assert sleeper.poll() is None


def test_child_that_is_gone_already_is_not_entered(tmp_path: Path) -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    Ledger(tmp_path).add(identify(process.pid), "s", "m")
    assert list(tmp_path.iterdir()) == []


def test_folder_that_cannot_be_written_costs_the_sweep_only(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    (tmp_path / "file").write_text("")
    ledger = Ledger(tmp_path / "file" / "children")
    ledger.add(identify(sleeper.pid), "s", "m")
    ledger.remove(sleeper.pid)
    assert sweep(tmp_path / "file" / "children") == 0


def test_child_of_a_dead_owner_is_killed(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    file = page(tmp_path, dead(), identify(sleeper.pid))
    assert sweep(tmp_path) == 1
    assert ended_by(sleeper) == -signal.SIGKILL
    assert not file.exists()


def test_descendant_is_killed_by_its_mark_although_the_child_itself_is_gone(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    page(tmp_path, dead(), Identity(2**22, "gone"), mark=M1)
    assert sweep(tmp_path) == 1
    assert ended_by(sleeper) == -signal.SIGKILL


def test_child_of_a_living_owner_is_never_touched(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    file = page(tmp_path, identify(os.getpid()), identify(sleeper.pid), mark=M1)
    assert sweep(tmp_path) == 0
    assert sleeper.poll() is None
    assert file.exists()


def test_another_process_with_a_childs_number_is_never_touched(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    page(tmp_path, dead(), Identity(sleeper.pid, "another boot/1"), mark="m2")
    assert sweep(tmp_path) == 0
    assert sleeper.poll() is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        "5\n",
        '{"pid":"x","began":"y"}\n',
        '{"pid":1,"began":"y"}\n5\n',
        '{"pid":1,"began":"y"}\n{"pid":1,"began":"x","name":"s"}\n',
    ],
)
def test_ledger_that_cannot_be_read_is_removed_and_no_process_killed(
    tmp_path: Path, text: str, caplog: Any
) -> None:
    (tmp_path / "1.jsonl").write_text(text)
    assert sweep(tmp_path) == 0
    assert list(tmp_path.iterdir()) == []
    assert "cannot be read" in caplog.text


def deep(file: Path) -> None:
    file.write_text("[" * 200_000 + "\n")


def link(file: Path) -> None:
    (file.parent / "target").write_text("kept")
    file.symlink_to(file.parent / "target")


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "deep": deep,
    "deep inside": lambda file: file.write_text('{"pid":2,"began":' + '{"a":' * 100_000 + "\n"),
    "a pipe": os.mkfifo,
    "a folder": lambda file: file.mkdir(),
    "a link": link,
    "a link to itself": lambda file: file.symlink_to(file),
    "a device": lambda file: file.symlink_to("/dev/zero"),
    "not UTF-8": lambda file: file.write_bytes(b'{"pid":2,"began":"\xff\xfe"}\n'),
    "bytes": lambda file: file.write_bytes(bytes(range(256)) * 10 + b"\n"),
    "huge": lambda file: (file.touch(), os.truncate(file, 2**33)),
    "unreadable": lambda file: (file.write_text("{}\n"), file.chmod(0)),
    "infinite": lambda file: file.write_text('{"pid":1e999,"began":"x"}\n'),
    "a very large number": lambda file: file.write_text(
        '{"pid":2,"began":"x"}\n{"pid":' + "9" * 5000 + "}\n"
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_page_costs_one_line_and_the_others_are_swept(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], caplog: Any, damage: str
) -> None:
    DAMAGE[damage](tmp_path / "1.jsonl")
    page(tmp_path, dead(), identify(sleeper.pid))
    assert sweep(tmp_path) == 1
    assert ended_by(sleeper) == -signal.SIGKILL
    assert len([one for one in caplog.records if "cannot be read" in one.message]) == 1
    left = {one.name for one in tmp_path.iterdir()}
    assert left == {"a folder": {"1.jsonl"}, "a link": {"target"}}.get(damage, set())


@pytest.mark.parametrize("damage", DAMAGE)
def test_servers_start_beside_a_damaged_page(damage: str, caplog: Any) -> None:
    folder = default_folder()
    folder.mkdir(parents=True)
    DAMAGE[damage](folder / "1.jsonl")
    DAMAGE[damage](folder / f"{os.getpid()}.jsonl")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(children, "_spawner", children._Spawner())
        asyncio.run(asyncio.wait_for(_start_and_stop(), 40))
    assert "cannot be read" in caplog.text


async def _start_and_stop() -> None:
    child = await children.spawn("cat", [], env=dict(os.environ), cwd=None, name="s")
    await child.abandon()
    assert child.poll() == 0


PROTECTED: dict[str, Callable[[], int]] = {
    "every process": lambda: 0,
    "every process of ours": lambda: -1,
    "init": lambda: 1,
    "this process": os.getpid,
    "its parent": os.getppid,
    "its group": lambda: os.getpgid(0),
}


@pytest.mark.parametrize("whose", PROTECTED)
def test_no_process_of_ours_is_killed_whatever_a_page_says(tmp_path: Path, whose: str) -> None:
    number = PROTECTED[whose]()
    found = identify(number) if number > 0 else None
    entry = {"pid": number, "began": found.began if found else "x", "name": "s", "mark": "", "tag": 0}
    write(tmp_path / "9.jsonl", {"pid": 2**22, "began": "gone"}, entry)
    assert sweep(tmp_path) == 0
    os.kill(os.getppid(), 0)


def test_page_of_another_user_is_not_believed(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    page(tmp_path, dead(), identify(sleeper.pid))
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert sweep(tmp_path) == 0
    assert sleeper.poll() is None
    assert "it belongs to another user" in caplog.text


def test_descendant_without_an_environment_is_known_by_its_limits(tmp_path: Path) -> None:
    tag = new_tag()
    process = subprocess.Popen(SLEEP, start_new_session=True, env={})
    mark_limits(process.pid, tag)
    try:
        assert descendants("other", tags=[tag]) == [process.pid]
        assert descendants("other", tags=[0, tag + 1]) == []
        write(
            tmp_path / "9.jsonl",
            {"pid": 2**22, "began": "gone"},
            {"pid": 2**22 - 1, "began": "gone", "name": "s", "mark": "other", "tag": tag},
        )
        assert sweep(tmp_path) == 1
        assert ended_by(process) == -signal.SIGKILL
    finally:
        process.kill()
        process.wait()


def test_folder_that_does_not_exist_has_nothing_to_sweep(tmp_path: Path) -> None:
    assert sweep(tmp_path / "none") == 0


def test_relatives_are_found_by_mark_and_by_group(sleeper: subprocess.Popen[bytes]) -> None:
    assert descendants(M1) == [sleeper.pid]
    assert descendants("m0", M1) == [sleeper.pid]
    assert descendants("other", groups=[sleeper.pid]) == [sleeper.pid]
    assert descendants("other") == []
    assert descendants("") == []


def test_relatives_began_no_sooner_than_the_first_of_them(sleeper: subprocess.Popen[bytes]) -> None:
    start = began(identify(sleeper.pid))
    assert descendants(M1, since=start) == [sleeper.pid]
    assert descendants(M1, since=start + 1) == []


def test_relatives_get_the_signal_where_they_are_found(sleeper: subprocess.Popen[bytes]) -> None:
    assert descendants(M1, number=signal.SIGTERM) == [sleeper.pid]
    assert ended_by(sleeper) == -signal.SIGTERM


def test_relatives_are_killed_until_there_are_none(sleeper: subprocess.Popen[bytes]) -> None:
    assert kill_relatives(M1) == {sleeper.pid}
    assert ended_by(sleeper) == -signal.SIGKILL
    assert kill_relatives(M1) == set()
    assert began(identify(sleeper.pid)) == 0


@pytest.mark.parametrize(
    ("given", "session", "known"),
    [
        ({"stdin": "its stdin"}, True, True),
        ({"stdout": "its stdout"}, True, True),
        ({"stderr": "its stderr"}, True, True),
        ({"stderr": "its stdout"}, True, True),
        ({"stdin": "our stdout", "stdout": "our stdin"}, True, False),
        ({"stdin": "its stdin", "stdout": "its stdout"}, False, False),
        ({"passed": "its stdout"}, True, False),
    ],
    ids=["reads", "writes", "complains", "crossed", "has our ends", "was forked off by us", "was passed one"],
)
def test_only_relatives_are_found_by_the_pipes_they_inherited(
    given: dict[str, str], session: bool, known: bool
) -> None:
    pipes: dict[str, int] = {}
    pipes["its stdin"], pipes["our stdin"] = os.pipe()
    for name in ("stdout", "stderr"):
        pipes[f"our {name}"], pipes[f"its {name}"] = os.pipe()
    ends = child_ends(*(pipes[f"our {name}"] for name in ("stdin", "stdout", "stderr")))
    standard: dict[str, Any] = {
        name: pipes[given[name]] if name in given else subprocess.DEVNULL
        for name in ("stdin", "stdout", "stderr")
    }
    passed = [pipes[given["passed"]]] if "passed" in given else []
    process = subprocess.Popen(SLEEP, start_new_session=session, pass_fds=passed, env={}, **standard)
    try:
        assert descendants("other", ends=ends, since=began(identify(process.pid))) == [process.pid] * known
    finally:
        process.kill()
        process.wait()
        for descriptor in pipes.values():
            os.close(descriptor)


def test_zombie_has_no_relatives() -> None:
    process = subprocess.Popen(["true"], start_new_session=True)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert descendants(groups=[process.pid]) == []
    process.wait()


def test_folder_follows_the_state_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "dragoman" / "children"
    monkeypatch.delenv("XDG_STATE_HOME")
    assert default_folder() == home / ".local" / "state" / "dragoman" / "children"


def test_children_that_start_together_are_written_together(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    ledger = Ledger(tmp_path)
    page = tmp_path / f"{os.getpid()}.jsonl"
    ledger.add(identify(os.getpid()), "one", "m0", more=True)
    assert not page.exists()
    ledger.add(identify(sleeper.pid), "two", M1)
    assert [json.loads(line).get("name") for line in page.read_bytes().splitlines()] == [None, "one", "two"]
    ledger.add(identify(os.getpid()), "one", "m0", more=True)
    ledger.remove(sleeper.pid)
    assert json.loads(page.read_bytes().splitlines()[-1]) == {"gone": sleeper.pid}
    ledger.add(identify(sleeper.pid), "three", M1, more=True)
    ledger.flush()
    assert json.loads(page.read_bytes().splitlines()[-1])["name"] == "three"
