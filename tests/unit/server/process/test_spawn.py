from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from dragoman.server.process import family
from dragoman.server.process import spawn as children
from dragoman.server.process.orphans import MARK, descendants, identify
from dragoman.server.process.spawn import Child, spawn
from dragoman.server.process.watchdog import is_possible

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement(
        "excel-2.5",
        "otter-close",
        "kode-lifecycle.stop",
        "rrclaw-manager.shutdown",
        "kode-connect.stdio",
    ),
]

CAT = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
SLEEP = "import time; time.sleep(600)"


async def start(code: str, **more: Any) -> Child:
    env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    return await spawn(sys.executable, ["-S", "-c", code], **{"env": env, "cwd": None, "name": "s", **more})


def closer(child: Child) -> Callable[[], None]:
    """Close the descriptors as the wire does."""

    def close() -> None:
        for descriptor in (child.stdin, child.stdout, child.stderr):
            os.close(descriptor)

    return close


@pytest.fixture
def short_graces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(family, "STDIN_GRACE", 0.1)
    monkeypatch.setattr(family, "TERM_GRACE", 0.1)


def entered(pid: int) -> bool:
    return pid in children._spawner.ledger()._children


async def test_child_leads_a_session_and_is_entered_in_the_ledger() -> None:
    with anyio.fail_after(20):
        child = await start(CAT)
        assert os.getsid(child.pid) == child.pid
        assert entered(child.pid)
        assert child.poll() is None
        await child.stop(closer(child))
        assert child.exited.result() == 0
        assert not child.signalled
        assert child.poll() == 0
        assert not entered(child.pid)


async def test_child_that_ignores_the_end_of_its_input_is_asked_and_then_killed(short_graces: None) -> None:
    with anyio.fail_after(20):
        asked = await start(SLEEP)
        await asked.stop(closer(asked))
        assert asked.exited.result() == -signal.SIGTERM
        assert asked.signalled
        code = (
            "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True)\n"
            + SLEEP
        )
        killed = await start(code)
        await anyio.wait_readable(killed.stdout)
        await killed.stop(closer(killed))
        assert killed.exited.result() == -signal.SIGKILL


async def test_frozen_child_is_killed(short_graces: None) -> None:
    with anyio.fail_after(20):
        child = await start(CAT)
        os.kill(child.pid, signal.SIGSTOP)
        await child.stop(closer(child))
        assert child.exited.result() == -signal.SIGKILL


@pytest.mark.parametrize("session", [False, True], ids=["in its group", "in a session of its own"])
@pytest.mark.parametrize("stubborn", [False, True])
async def test_what_a_child_left_behind_ends_with_it(session: bool, stubborn: bool) -> None:
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    inner = f"{ignore if stubborn else ''}print(1, flush=True); {SLEEP}"
    outer = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-S', '-c', {inner!r}], start_new_session={session}); print(p.pid, flush=True)"
    with anyio.fail_after(20):
        child = await start(outer)
        assert await asyncio.shield(child.exited) == 0
        (left,) = descendants(child.mark, groups=[child.pid])
        await child.stop(closer(child))
        assert identify(left) is None


CHAIN = """
import fcntl, os, signal, sys, time
lock = open("lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
nowhere = os.open(os.devnull, os.O_RDWR)
until = time.monotonic() + 8

def run(*_):
    for descriptor in range(3):
        os.dup2(nowhere, descriptor)
    while time.monotonic() < until:
        if os.fork():
            os._exit(0)
        os.setsid()
        time.sleep(0.001)
    open("outlived", "w").close()
    os._exit(0)

signal.signal(signal.SIGTERM, run)
print(1, flush=True)
if sys.argv[1] == "at once":
    run()
signal.pause()
"""
"""Each of its processes starts the next one, in a session of its own, and exits; all of them hold one lock."""


@pytest.mark.parametrize("when", ["at once", "when it is asked to end"])
async def test_chain_of_processes_that_hand_over_and_exit_is_broken(
    short_graces: None, tmp_path: Path, when: str
) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    with anyio.fail_after(40), (tmp_path / "lock").open("w") as lock:
        child = await spawn(sys.executable, ["-S", "-c", CHAIN, when], env=env, cwd=None, name="s")
        await anyio.wait_readable(child.stdout)
        await child.stop(closer(child))
        # It is free when the last of them is gone, be it by itself.
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        assert not (tmp_path / "outlived").exists()


@pytest.mark.parametrize("kept", ["stdin", "stdout", "stderr"])
async def test_daemon_without_an_environment_is_known_by_the_pipe_it_holds(tmp_path: Path, kept: str) -> None:
    away = ", ".join(f"{name}=subprocess.DEVNULL" for name in ("stdin", "stdout", "stderr") if name != kept)
    outer = f"""
import subprocess, sys
daemon = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(30)"], env={{}}, start_new_session=True, {away})
open("pid", "w").write(str(daemon.pid))
"""
    with anyio.fail_after(20):
        child = await start(outer)
        assert await asyncio.shield(child.exited) == 0
        daemon = int((tmp_path / "pid").read_text())
        assert identify(daemon) is not None
        await child.stop(closer(child))
        assert identify(daemon) is None


async def test_cancelled_stop_ends_the_child_all_the_same_twice_even(short_graces: None) -> None:
    with anyio.fail_after(20):
        child = await start(SLEEP)
        stopping = asyncio.ensure_future(child.stop(closer(child)))
        for _ in range(2):
            await asyncio.sleep(0)
            stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        assert child.exited.done()
        assert not entered(child.pid)


async def test_start_that_is_cancelled_leaves_no_process(short_graces: None) -> None:
    with anyio.fail_after(30):
        for turns in (0, 1, 2, 5, 20):
            starting = asyncio.ensure_future(start(SLEEP))
            for _ in range(turns):
                await asyncio.sleep(0)
            if starting.done():  # The machine was quick, or this loop slow: too late for a cancellation.
                assert turns > 2
                await starting.result().stop(closer(starting.result()))
                continue
            starting.cancel()
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
        with pytest.raises(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)  # noqa: ASYNC222 -- it does not wait


async def test_child_is_started_and_stopped_even_inside_of_a_cancelled_scope(short_graces: None) -> None:
    with anyio.fail_after(30):
        with anyio.CancelScope() as scope:
            scope.cancel()
            child = await start(SLEEP)
            await child.stop(closer(child))
            assert child.exited.done()
            await anyio.lowlevel.checkpoint()
        assert scope.cancelled_caught


@pytest.mark.parametrize(
    ("command", "more"),
    [("no-such-command-anywhere", {}), ("/", {}), (sys.executable, {"cwd": "/no/such/folder"})],
)
async def test_what_cannot_be_started_is_an_os_error(command: str, more: Any) -> None:
    with anyio.fail_after(20), pytest.raises(OSError, match=r".+"):
        await spawn(command, [], **{"env": {"PATH": os.environ["PATH"]}, "cwd": None, "name": "s", **more})


async def test_start_that_fails_and_is_cancelled_is_cancelled() -> None:
    with anyio.fail_after(20):
        starting = asyncio.ensure_future(spawn("no-such-command", [], env={}, cwd=None, name="s"))
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting


async def test_program_beside_its_own_folder_is_found(tmp_path: Path) -> None:
    script = tmp_path / "sub" / "run"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\nexit 5\n")
    script.chmod(0o755)
    with anyio.fail_after(20):
        child = await spawn("./run", [], env={"PATH": os.environ["PATH"]}, cwd=str(script.parent), name="s")
        assert await asyncio.shield(child.exited) == 5
        await child.stop(closer(child))


async def test_child_has_three_descriptors_and_carries_its_mark() -> None:
    code = "import os; print(sorted(os.listdir('/proc/self/fd')), os.environ['DRAGOMAN_CHILD'], flush=True)"
    with anyio.fail_after(20):
        child = await start(code)
        await asyncio.shield(child.exited)
        said = os.read(child.stdout, 1000).decode()
        await child.stop(closer(child))
    assert said.startswith("['0', '1', '2', '3']"), said
    assert child.mark in said


async def test_where_the_system_tells_no_process_by_a_descriptor_a_thread_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: int) -> int:
        raise OSError(38, "not implemented")

    with anyio.fail_after(20):
        monkeypatch.setattr(os, "pidfd_open", refuse)
        refused = await start(CAT)
        await refused.stop(closer(refused))
        monkeypatch.delattr(os, "pidfd_open")
        absent = await start(CAT)
        await absent.stop(closer(absent))
    assert (refused.exited.result(), absent.exited.result()) == (0, 0)


async def test_without_proc_the_group_is_asked_and_killed_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inner = f"print(1, flush=True); {SLEEP}"
    outer = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-S', '-c', {inner!r}]); print(p.pid, flush=True)"
    with anyio.fail_after(20):
        child = await start(outer)
        await asyncio.shield(child.exited)
        (left,) = descendants(groups=[child.pid])
        monkeypatch.setattr(family, "_HAS_PROC", False)
        monkeypatch.setattr(family, "descendants", lambda *_, **__: [])
        await child.stop(closer(child))
        assert identify(left) is None


def test_one_ledger_is_opened_however_many_threads_ask_at_once() -> None:
    spawner = children._Spawner()
    with ThreadPoolExecutor(8) as pool:
        ledgers = {id(ledger) for ledger in pool.map(lambda _: spawner.ledger(), range(64))}
    assert len(ledgers) == 1


def test_death_guard_is_left_out_where_it_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    children._death_guard.cache_clear()
    monkeypatch.setattr(children.shutil, "which", lambda _: "/bin/false")
    assert children._death_guard() == ()
    children._death_guard.cache_clear()
    monkeypatch.setattr(children.shutil, "which", lambda _: None)
    assert children._death_guard() == ()
    children._death_guard.cache_clear()


def test_mark_is_what_the_tests_own_environment_never_has() -> None:
    assert MARK not in os.environ
    assert subprocess.run(["printenv", MARK], check=False).returncode == 1
    assert Path("/proc/self").exists()


FORKING = """
import asyncio, os, sys
from dragoman.server.process import spawn as child
from dragoman.server.process.orphans import default_folder

async def use():
    one = await child.spawn(sys.executable, ["-S", "-c", "import sys; sys.stdin.read()"], env=dict(os.environ), cwd=None, name="s")
    # Both processes have an entry of their own while their child lives.
    print(sorted(path.name for path in default_folder().iterdir() if str(os.getpid()) in path.name) != [])
    await one.stop(lambda: [os.close(end) for end in (one.stdin, one.stdout, one.stderr)])

asyncio.run(use())
sys.stdout.flush()
with child._spawner.once:
    # Locked, as if another thread were just starting something.
    forked = os.fork()
if forked == 0:
    asyncio.run(asyncio.wait_for(use(), 20))
    print("forked", flush=True)
    os._exit(0)
_, status = os.waitpid(forked, 0)
assert status == 0
asyncio.run(use())
print("parent")
"""


def test_process_that_was_forked_off_starts_children_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "True", "forked", "True", "parent"]


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The marks of each search for descendants."""
    found: list[tuple[str, ...]] = []

    def search(*marks: str, **kin: Any) -> list[int]:
        found.append(marks)
        return descendants(*marks, **kin)

    monkeypatch.setattr(family, "descendants", search)
    return found


async def test_children_that_are_stopped_together_share_one_search(
    monkeypatch: pytest.MonkeyPatch, searches: list[tuple[str, ...]]
) -> None:
    monkeypatch.setattr(family, "TOGETHER", 20.0)
    monkeypatch.setattr(children._spawner, "_has_watchdog", False)
    leaves = f"import subprocess, sys; subprocess.Popen([sys.executable, '-S', '-c', {SLEEP!r}]); {CAT}"
    with anyio.fail_after(20):
        started = [await start(code) for code in (CAT, leaves, CAT, CAT)]
        await asyncio.gather(*(child.stop(closer(child)) for child in started))
    first, *_ = searches
    assert set(first) == {child.mark for child in started}
    assert len(searches) <= 2, "the second one is for what the second child left"
    assert not any(map(entered, (child.pid for child in started)))
    assert descendants(*(child.mark for child in started)) == []


async def test_child_that_does_not_end_does_not_hold_up_the_end_of_another() -> None:
    with anyio.fail_after(20):
        hangs, ends = await start(SLEEP), await start(CAT)
        hanging = asyncio.create_task(hangs.stop(closer(hangs), grace=60))
        await ends.stop(closer(ends))
        assert not hanging.done()
        os.kill(hangs.pid, signal.SIGKILL)
        await hanging


@pytest.mark.skipif(not is_possible(), reason="there is no watchdog on this system")
async def test_nothing_is_searched_for_after_a_child_that_left_nothing(
    searches: list[tuple[str, ...]],
) -> None:
    leaves = f"import subprocess, sys; subprocess.Popen([sys.executable, '-S', '-c', {SLEEP!r}]); {CAT}"
    with anyio.fail_after(20):
        plain, other = await start(CAT, waits=True), await start(leaves, waits=True)
        await plain.stop(closer(plain))
        assert searches == []
        await other.stop(closer(other))
        assert searches[0] == (other.mark,)
    assert descendants(other.mark) == []


@pytest.mark.requirement("otter-p0.npx")
async def test_program_is_looked_up_in_the_path_that_the_child_gets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, code in (("ours", 3), ("theirs", 5)):
        program = tmp_path / folder / "launch"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\nexit {code}\n")
        program.chmod(0o755)
    usual = os.environ["PATH"]
    monkeypatch.setenv("PATH", f"{tmp_path / 'ours'}:{usual}")
    with anyio.fail_after(20):
        env = {"PATH": f"{tmp_path / 'theirs'}:{usual}"}
        child = await spawn("launch", [], env=env, cwd=None, name="s")
        assert await asyncio.shield(child.exited) == 5
        await child.stop(closer(child))
