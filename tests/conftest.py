"""What every test stands on: a clean environment, a home of its own, and nothing left behind.

Three rules are enforced after each test, whatever it was about: no process that it started is still there,
none of its asyncio tasks is still there, and no file descriptor of its is still open.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import select
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

LEAKY_VARIABLES = re.compile(
    r"^(DRAGOMAN|EXCELMANUS|LEGAL|OTTER|KODE|RRCLAW|CLAUDE|CODEX|GEMINI|OPENAI|ANTHROPIC|AZURE|OLLAMA|OTEL)_"
    r"|_MCP_|^MCP_|API_KEY|_BASE_URL$|_TOKEN$|_PROXY$|_proxy$"
    r"|^(NO_COLOR|FORCE_COLOR|CLICOLOR|CLICOLOR_FORCE|COLUMNS|LINES)$"
)
GRACE = 2.0
"""How long the system may take to bury a process that was already told to die."""

# A runner in the background or `nohup` may have these ignored, and every child of a test would inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same few examples in every run of `make test`; `make prove` draws new ones, and many (--hypothesis-profile=prove).
hypothesis.settings.register_profile("test", derandomize=True, deadline=None, database=None, max_examples=30)
# A seeded fault has to be found each time, so `make prove ONLY=mutants` draws more of the same examples.
hypothesis.settings.register_profile(
    "mutants", derandomize=True, deadline=None, database=None, max_examples=300
)
hypothesis.settings.register_profile("prove", deadline=None, database=None, max_examples=500)
hypothesis.settings.load_profile("test")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The test's own home folder (also HOME); not inside `tmp_path`, which stands for the project."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: Path) -> None:
    """Give the test no configuration, no keys and no proxies of ours, an own home, and `tmp_path` as cwd."""
    for name in list(os.environ):
        if LEAKY_VARIABLES.search(name):
            monkeypatch.delenv(name)
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    for name, folder in {
        "XDG_CONFIG_HOME": ".config",
        "XDG_DATA_HOME": ".local/share",
        "XDG_STATE_HOME": ".local/state",
        "XDG_CACHE_HOME": ".cache",
        "XDG_RUNTIME_DIR": ".run",
    }.items():
        monkeypatch.setenv(name, str(home / folder))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def no_process_or_descriptor_left(home: Path) -> Iterator[None]:
    """Fail a test that leaves a process or an open descriptor behind."""
    if not Path("/proc/self/fd").is_dir():
        yield
        return
    processes, descriptors = all_processes(), open_descriptors()
    yield
    left = [pid for pid in started_here(home, processes) if not ends_soon(pid)]
    names = [f"{pid}: {command_line(pid)}" for pid in left]
    for pid in left:
        bury(pid)
    assert not names, f"processes left behind: {names}"
    if len(open_descriptors()) > len(descriptors):
        gc.collect()
    # The thread of watchfiles closes its descriptors after its owner has ended.
    until = time.monotonic() + GRACE
    while len(now := open_descriptors()) > len(descriptors) and time.monotonic() < until:
        threading.Event().wait(0.01)
    new = [target for number, target in now.items() if descriptors.get(number) != target]
    assert len(now) <= len(descriptors), f"descriptors left open: {new}"


@pytest.fixture
async def no_task_left(no_process_or_descriptor_left: None) -> AsyncIterator[None]:
    """Fail a test that leaves an asyncio task behind; `watch_tasks` asks for it in every async test."""
    before = asyncio.all_tasks()
    yield
    for _ in range(20):
        left = [task.get_coro() for task in asyncio.all_tasks() - before]
        # What runs this very fixture is a task of anyio's test runner.
        left = [coroutine for coroutine in left if "TestRunner." not in coroutine.__qualname__]
        if not left:
            return
        await asyncio.sleep(0)
    pytest.fail(f"tasks left behind: {left}")


@pytest.fixture(autouse=True)
def watch_tasks(request: pytest.FixtureRequest) -> None:
    if "anyio_backend" in request.fixturenames:
        request.getfixturevalue("no_task_left")


def all_processes() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208 -- after every test


def started_here(home: Path, before: set[int]) -> set[int]:
    """Return our new children, and every new process that inherited this test's home from one of them."""
    mark, us, found = f"HOME={home}\0".encode(), os.getpid(), set[int]()
    for pid in all_processes() - before:
        try:
            parent = int(
                Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1]
            )
        except OSError:
            continue
        if parent == us or mark in environment_of(f"/proc/{pid}"):
            found.add(pid)
    return found


def environment_of(process: str) -> bytes:
    try:
        return Path(process, "environ").read_bytes()
    except OSError:
        return b""


def ends_soon(pid: int) -> bool:
    """Wait for a process that is on its way out; a zombie of ours counts as left behind."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        ended = bool(select.select([handle], [], [], GRACE)[0])
    finally:
        os.close(handle)
    return ended and not is_our_zombie(pid)


async def end_of(pid: int | None) -> None:
    """Wait until a process that need not be ours is gone."""
    assert pid is not None
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await anyio.wait_readable(handle)
    finally:
        os.close(handle)


def is_our_zombie(pid: int) -> bool:
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[:2]
    except OSError:
        return False
    return state == "Z" and int(parent) == os.getpid()


def command_line(pid: int) -> str:
    try:
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
        )
    except OSError:
        return "gone"


def bury(pid: int) -> None:
    """End a process that a failing test left, so that the next test starts clean."""
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def open_descriptors() -> dict[int, str]:
    found: dict[int, str] = {}
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208 -- as above
        try:
            found[int(number)] = os.readlink(f"/proc/self/fd/{number}")  # noqa: PTH115 -- as above
        except OSError:
            continue
    return found


@pytest.fixture
def warm_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `sys.executable` be one whose imports are made: what starts it, dragoman included, need not wait."""
    from tests import warm  # only the tests of programs need it

    monkeypatch.setattr(sys, "executable", warm.interpreter())


@pytest.fixture(scope="session")
def interpreter() -> None:
    """Start the threads of the sandbox for programs: they stay until the process ends, with their descriptors."""
    from pydantic_monty import Monty  # only the tests of programs need it

    with Monty(min_processes=1):
        pass
