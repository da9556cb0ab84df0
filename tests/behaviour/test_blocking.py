"""The blocking manager on real servers: threads, loops, interrupts, forks, and the interpreter's end."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.behaviour.turning import RUG_PULLS, Turncoat

from dragoman import DragomanError, Handlers, ToolRegistry, UnknownServerError, UnknownToolError, tool
from dragoman.blocking import bulk as blocking_bulk
from dragoman.blocking import facets
from dragoman.blocking import registry as blocking_registry
from dragoman.blocking.manager import McpManager
from dragoman.bulk import BulkRun as AsyncBulkRun
from dragoman.events import CallFinished, StateChanged
from dragoman.manager.apps import AppProxy, Apps
from dragoman.manager.logins import Logins
from dragoman.manager.manager import McpManager as AsyncManager
from dragoman.manager.session import SessionRequests
from dragoman.manager.skills import Skills
from dragoman.manager.tasks import Tasks
from dragoman.manager.trust import TrustDecisions
from dragoman.tools.view import ToolView as AsyncView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dragoman import ServerSpec

    Server = Callable[..., ServerSpec]

SERVERS = Path(__file__).resolve().parents[1] / "servers"


@pytest.fixture
def plain(server: Server) -> ServerSpec:
    return server("plain", "plain.py")


@pytest.fixture
def mcp(plain: ServerSpec) -> Iterator[McpManager]:
    with McpManager([plain], cache=False) as mcp:
        assert mcp.wait_ready()
        yield mcp


def echo(mcp: McpManager, text: str) -> str:
    return mcp.call("mcp_plain_echo", {"text": text}).text


# The same API

LOOP_ONLY = {"connections", "replacing"}
"""For managers that share one event loop, and for work in slices between its turns."""


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (McpManager, AsyncManager),
        (blocking_registry.ToolRegistry, ToolRegistry),
        (blocking_registry.ToolView, AsyncView),
        (blocking_bulk.BulkRun, AsyncBulkRun),
        (facets.AppProxy, AppProxy),
        (facets.Apps, Apps),
        (facets.Logins, Logins),
        (facets.SessionRequests, SessionRequests),
        (facets.Skills, Skills),
        (facets.Tasks, Tasks),
        (facets.TrustDecisions, TrustDecisions),
    ],
)
def test_every_public_method_is_there_with_the_same_parameters_and_none_awaits(
    ours: Any, theirs: Any
) -> None:
    names = [name for name in dir(theirs) if not name.startswith("_") and name not in LOOP_ONLY]
    assert names
    for name in names:
        assert hasattr(ours, name), f"`{ours.__name__}` lacks `{name}`"
        method, original = getattr(ours, name), getattr(theirs, name)
        if not callable(original):
            continue
        assert not inspect.iscoroutinefunction(method), name
        here, there = inspect.signature(method), inspect.signature(original)
        assert [(one.name, one.kind, one.default) for one in here.parameters.values()] == [
            (one.name, one.kind, one.default) for one in there.parameters.values()
        ], name
    arguments = inspect.signature(AsyncManager).parameters.keys() - LOOP_ONLY
    assert inspect.signature(McpManager).parameters.keys() == arguments


def test_a_manager_does_all_that_its_async_twin_does(plain: ServerSpec, server: Server) -> None:
    registry = ToolRegistry()

    @tool
    def double(number: int) -> int:
        return 2 * number

    registry.register(double)
    with McpManager([plain], registry=registry, cache=False) as mcp:
        assert mcp.wait_ready(["plain"], timeout=30)
        assert "mcp_plain_echo" in {one.name for one in mcp.tools()}
        assert echo(mcp, "hello") == "hello"
        assert mcp.call("mcp_plain_fail").error == "the disk is full"
        assert mcp.registry.call("double", {"number": 4}) == "8"
        assert mcp.status()["plain"].state == "ready"
        before = mcp.status()["plain"].pid
        mcp.restart("plain")
        assert mcp.status()["plain"].pid not in (None, before)
        mcp.add(server("other", "plain.py"))
        assert mcp.call("mcp_other_echo", {"text": "two"}).text == "two"
        mcp.remove("other")
        assert "mcp_other_echo" not in mcp.registry
        assert (mcp.resources(), mcp.prompts(), mcp.instructions()) == ([], [], {})
        with pytest.raises(DragomanError):
            mcp.read("file:///nowhere", server="plain")
        with pytest.raises(DragomanError):
            mcp.prompt("none", server="plain")
        with pytest.raises(DragomanError):
            mcp.session.complete({"name": "none"}, "a", "b", server="plain")
        with pytest.raises(DragomanError, match="no file to read again"):
            mcp.reload()
        assert (mcp.started, mcp.trust_project, mcp.settings.servers) == (True, False, (plain,))


def test_the_registry_and_its_views_answer_without_await(mcp: McpManager) -> None:
    @tool
    def double(number: int) -> int:
        return 2 * number

    registry = mcp.registry
    assert registry.register(double) is True
    assert registry.register_all([double]) == []
    assert registry.exposed_name("plain", "echo") == "mcp_plain_echo"
    assert registry.get("double") is double
    assert registry.suggest("doubel") == ["double"]
    assert len(registry) == len(list(registry)) == len(registry.to_openai_schema())
    exported = (registry.to_responses(), registry.to_anthropic(), registry.to_gemini(), registry.to_ai_sdk())
    assert {len(one) for one in exported} == {len(registry)}
    assert registry.resolve("openai", "double") == "double"
    view = registry.view(allow=["double"])
    assert ([one.name for one in view], len(view), "mcp_plain_echo" in view) == (["double"], 1, False)
    assert view.call("double", {"number": 1}) == "2"
    with pytest.raises(UnknownToolError):
        view.call("mcp_plain_echo", {"text": "x"})
    assert isinstance(view.unknown("x"), UnknownToolError)
    registry.unregister("double")
    assert {one.server for one in registry.unregister_server("plain")} == {"plain"}
    assert len(registry) == 0


def test_a_configuration_is_read_and_read_again(tmp_path: Path) -> None:
    entry = f'[mcp.servers.one]\ncommand = "{sys.executable}"\nargs = ["{SERVERS / "plain.py"}"]\n'
    Path("dragoman.toml").write_text(entry, "utf-8")
    with McpManager.from_config(root=tmp_path, cache=False, trust_project=True) as mcp:
        assert [spec.name for spec in mcp.settings.servers] == ["one"], mcp.settings.problems
        Path("dragoman.toml").write_text(entry + entry.replace(".one", ".two"), "utf-8")
        assert list(mcp.reload().started) == ["two"]
        assert set(mcp.status()) == {"one", "two"}


def test_connect_all_gives_a_started_manager(plain: ServerSpec, server: Server) -> None:
    mcp = McpManager.connect_all([plain, server("dead", "dying.py", reconnect=False)], cache=False)
    try:
        assert {name: str(one.state) for name, one in mcp.status().items()} == {
            "plain": "ready",
            "dead": "failed",
        }
    finally:
        mcp.shutdown()


def test_a_manager_is_started_and_closed_without_a_block(plain: ServerSpec) -> None:
    mcp = McpManager([plain.replace(lazy=True)], cache=False)
    mcp.start()
    try:
        assert mcp.status()["plain"].state == "idle"
        mcp.start(["plain"])
        assert mcp.wait_ready(["plain"])
        with pytest.raises(DragomanError, match="already started"):
            mcp.start()
    finally:
        mcp.close()


# Called from any thread


def test_many_threads_call_at_once(mcp: McpManager) -> None:
    with ThreadPoolExecutor(16) as pool:
        texts = [str(number) for number in range(200)]
        assert list(pool.map(lambda text: echo(mcp, text), texts)) == texts


@pytest.mark.anyio
async def test_it_works_where_a_loop_is_running_as_in_a_notebook(plain: ServerSpec) -> None:
    with McpManager([plain], cache=False) as mcp:
        assert mcp.wait_ready()
        assert echo(mcp, "from a running loop") == "from a running loop"
        assert await asyncio.to_thread(echo, mcp, "from beside it") == "from beside it"


def test_a_handler_may_wait_and_call_a_tool_of_its_own(server: Server) -> None:
    asked: list[str] = []

    def answer(name: str, request: dict[str, Any]) -> dict[str, Any]:
        asked.append(threading.current_thread().name)
        assert mcp.status()[name].state == "ready"
        return {"action": "accept", "content": {"seats": 4, "name": "you"}}

    spec = server("asking", "asking.py", protocol="legacy")
    with McpManager([spec], cache=False, handlers=Handlers(elicitation=answer)) as mcp:
        assert mcp.wait_ready()
        assert "'seats': 4" in mcp.call("mcp_asking_book").text
        told: list[tuple[float, str]] = []
        mcp.call(
            "mcp_asking_steps",
            {"count": 2},
            on_progress=lambda done, _, message: told.append((done, threading.current_thread().name)),
        )
    assert asked == ["dragoman handler"]
    assert told == [(1, "dragoman handler"), (2, "dragoman handler")]


def test_an_async_tool_that_calls_back_is_told_why_that_cannot_be(plain: ServerSpec) -> None:
    @tool
    async def inward() -> str:
        return echo(mcp, "x")

    registry = ToolRegistry()
    registry.register(inward)
    with McpManager([plain], registry=registry, cache=False) as mcp:
        assert mcp.wait_ready()
        result = mcp.call("inward")
        assert "would wait for itself" in str(result.error)
        assert echo(mcp, "goes on") == "goes on"


# Start and shutdown


def test_before_the_start_and_after_the_end_it_says_what_to_do(plain: ServerSpec) -> None:
    mcp = McpManager([plain], cache=False)
    assert (mcp.tools(), mcp.status()["plain"].state, mcp.started) == ([], "idle", False)
    with pytest.raises(DragomanError, match=r"is not started .*`with`"):
        mcp.call("x")
    with mcp:
        assert mcp.wait_ready()
        with pytest.raises(DragomanError, match="already started"):
            mcp.__enter__()
    mcp.close()
    mcp.shutdown()
    assert (mcp.tools(), mcp.status()["plain"].state) == ([], "closed")
    with pytest.raises(DragomanError, match="the manager is closed"):
        mcp.call("x")
    with pytest.raises(DragomanError, match="the manager is closed"):
        mcp.__enter__()


def test_a_required_server_that_fails_leaves_no_thread(server: Server) -> None:
    with pytest.raises(DragomanError, match="required server `dead` is not ready"):
        McpManager([server("dead", "dying.py", required=True)], cache=False).__enter__()
    assert "dragoman" not in {one.name for one in threading.enumerate()}


def test_closing_ends_the_calls_of_other_threads(mcp: McpManager) -> None:
    with ThreadPoolExecutor(1) as pool:
        events = mcp.events()
        waiting = pool.submit(mcp.call, "mcp_plain_slow", timeout=600)
        assert type(next(events)).__name__ == "CallStarted"
        mcp.close()
        outcome = waiting.exception(timeout=30)
        assert outcome is None or "closed" in str(outcome)
        assert outcome is not None or not waiting.result().success


def test_events_come_by_iteration_until_the_end(mcp: McpManager) -> None:
    events = mcp.events()
    echo(mcp, "x")
    assert type(next(events)).__name__ == "CallStarted"
    finished = next(events)
    assert isinstance(finished, CallFinished)
    assert finished.success
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(next, events)
        mcp.restart("plain")
        assert isinstance(waits.result(timeout=30), StateChanged)
    mcp.close()
    rest = list(events)
    assert [one.after for one in rest if isinstance(one, StateChanged)][-1] == "closed"
    assert next(iter(mcp.events()), None) is None


def test_a_forgotten_manager_is_closed_with_a_warning(plain: ServerSpec) -> None:
    mcp = McpManager([plain], cache=False).__enter__()
    assert mcp.wait_ready()
    thread = next(one for one in threading.enumerate() if one.name == "dragoman")
    forgotten = [mcp]
    del mcp
    with pytest.warns(ResourceWarning, match="was not closed"):
        forgotten.clear()
    thread.join(30)
    assert not thread.is_alive()


# Errors


def test_an_error_shows_both_the_callers_line_and_its_origin(mcp: McpManager) -> None:
    try:
        mcp.restart("unknown")
    except UnknownServerError as exc:
        frames = [frame.name for frame in traceback.extract_tb(exc.__traceback__)]
    assert frames[0] == "test_an_error_shows_both_the_callers_line_and_its_origin"
    assert frames[-1] == "find_server"


def test_an_error_is_freed_with_its_last_reference(mcp: McpManager) -> None:
    gc.disable()
    try:
        before = sum(isinstance(one, UnknownServerError) for one in gc.get_objects())
        for _ in range(3):
            with pytest.raises(UnknownServerError):
                mcp.restart("unknown")
        assert sum(isinstance(one, UnknownServerError) for one in gc.get_objects()) <= before + 1
    finally:
        gc.enable()


def test_an_interrupt_takes_the_call_back_and_nothing_else(mcp: McpManager) -> None:
    events = mcp.events()

    def interrupt() -> None:
        while type(next(events)).__name__ != "CallStarted":
            pass
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        mcp.call("mcp_plain_slow", timeout=600)
    thread.join()
    assert echo(mcp, "still usable") == "still usable"
    # The server answers this one only after it was notified of the cancelled call.
    assert mcp.call("mcp_plain_cancelled", timeout=30).text == "1"


def test_interrupts_at_any_moment_leave_nothing_locked(mcp: McpManager) -> None:
    def interrupt() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    for number in range(200):
        timer = threading.Timer(number % 5 / 2000, interrupt)
        try:
            timer.start()
            while True:
                echo(mcp, "x")
        except KeyboardInterrupt:
            timer.join()
    assert echo(mcp, "still usable") == "still usable"


def test_a_fork_gets_a_clear_error_and_leaves_the_servers_alone(mcp: McpManager) -> None:
    reading, writing = os.pipe()
    with warnings.catch_warnings(action="ignore"):  # Python warns of forks in a process with threads
        child = os.fork()
    if child == 0:
        try:
            mcp.call("mcp_plain_echo", {"text": "x"})
        except DragomanError as exc:
            os.write(writing, str(exc).encode())
        mcp.close()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    assert "forked" in said
    assert "make a manager in each process" in said
    assert echo(mcp, "the parent goes on") == "the parent goes on"


SCRIPT = """
    import sys, threading
    from dragoman import ServerSpec, Stdio
    from dragoman.blocking import McpManager
    mcp = McpManager([ServerSpec("plain", Stdio(sys.executable, [{server!r}]))], cache=False)
    mcp.__enter__()
    assert mcp.wait_ready()
    print(mcp.status()["plain"].pid, flush=True)
    {end}
"""
ENDS = {
    "the script just ends": "",
    "it leaves by an exception": "raise SystemExit(3)",
    "a thread is in a call": "threading.Thread(target=mcp.call, args=['mcp_plain_slow'], daemon=True).start()",
    "a thread waits for events": "threading.Thread(target=lambda: list(mcp.events()), daemon=True).start()",
}


@pytest.mark.parametrize("end", ENDS)
def test_a_program_that_never_closes_it_ends_and_leaves_nothing(end: str) -> None:
    script = textwrap.dedent(SCRIPT).format(server=str(SERVERS / "plain.py"), end=ENDS[end])
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=50
    )
    assert done.returncode == (3 if "exception" in end else 0), done.stderr
    assert "Traceback" not in done.stderr
    pid = int(done.stdout)
    until = time.monotonic() + 5
    while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
        os.sched_yield()
    assert not Path(f"/proc/{pid}").exists()


def test_an_approval_is_of_what_was_shown(tmp_path: Path) -> None:
    coat = Turncoat(tmp_path, trust="strict")
    with McpManager([coat.spec], cache=False) as mcp:
        assert mcp.wait_ready()
        coat.change(RUG_PULLS["description"])
        mcp.restart("coat")
        shown = mcp.trust.changes("coat")
        with pytest.raises(DragomanError, match="changed again since they were shown"):
            mcp.trust.approve("coat", fingerprint="sha256:0")
        mcp.trust.approve("coat", fingerprint=shown.fingerprint)
        assert mcp.trust.changes("coat") == []
