"""The watchdog: it starts servers as we would, and all that they started ends with them, and with us."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.conftest import end_of

from dragoman import McpManager, ServerSpec, ServerState, Stdio
from dragoman.server.process import family, watchdog
from dragoman.server.process import spawn as children
from dragoman.server.process.orphans import descendants, identify
from dragoman.server.process.spawn import Child, spawn

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not watchdog.is_possible(), reason="there is no watchdog on this system"),
]

SERVERS = Path(__file__).resolve().parents[3] / "servers"

HIDING = """
import ctypes, json, os, signal, sys, time

def hide(ready):
    # Everything by which a process is told: parent, session, group, environment, descriptors, name, directory.
    for _ in range(2):
        if os.fork():
            os._exit(0)
        os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    os.closerange(3, 3)
    os.chdir("/")
    code = f"import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; open({ready!r}, 'w').close(); time.sleep(600)"
    os.execve(sys.executable, ["daemon", "-I", "-S", "-c", code], {})

def start(name):
    ready = os.path.abspath(name)
    pid = os.fork()
    if pid == 0:
        hide(ready)
    os.waitpid(pid, 0)
    while not os.path.exists(ready):
        time.sleep(0.005)

start(sys.argv[1])
"""
"""A daemon that cannot be known by anything that it could change."""

ANSWERING = """
import json, sys
results = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                   "serverInfo": {"name": sys.argv[1], "version": "1"}},
    "tools/list": {"tools": []},
}
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") in results:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}), flush=True)
"""
"""What makes a server of a program."""

CHAIN = """
import fcntl, os, sys, time
if os.fork() == 0:
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    lock = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    until = time.monotonic() + 40
    while time.monotonic() < until:
        if os.fork():
            os._exit(0)
        os.setsid()
    open("outlived", "w").close()
    os._exit(0)
"""
"""Each of its processes starts the next one and exits, as fast as it can; all of them hold one lock."""

OWNER = """
import asyncio, json, sys
from dragoman import McpManager, ServerSpec, Stdio
if sys.argv[1] == "late":
    import dragoman.server.connection

async def main():
    specs = [ServerSpec(name, Stdio(sys.executable, ["-S", "-c", sys.argv[2], name]), protocol="legacy") for name in sys.argv[3:]]
    async with McpManager(specs) as mcp:
        await mcp.wait_ready(timeout=30)
        print(json.dumps({name: one.pid for name, one in mcp.status().items()}), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def own(when: str, code: str, *names: str) -> tuple[asyncio.subprocess.Process, dict[str, int]]:
    """Start another dragoman with servers; return it and their numbers."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, when, code, *names, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    return process, json.loads(await process.stdout.readline())


async def killed(process: asyncio.subprocess.Process) -> None:
    process.kill()
    await process.wait()
    process._transport.close()  # type: ignore[attr-defined]


def running(name: str) -> int:
    """Return the number of a daemon, by the file that it was told to make."""
    for process in Path("/proc").iterdir():
        try:
            line = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if line.startswith(b"daemon\0") and f"{Path.cwd() / name}'".encode() in line:
            return int(process.name)
    return 0


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def children_of(pid: int) -> set[int]:
    lists = [task.joinpath("children").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    return {int(child) for listed in lists for child in listed.split()}


def ignored(status: str) -> dict[str, int]:
    """Return the masks of signals that a process blocks and ignores."""
    fields = dict(line.split(":\t", 1) for line in status.splitlines())
    return {name: int(fields[name], 16) for name in ("SigBlk", "SigIgn")}


def watchdog_of(pid: int) -> int:
    """Return the number of a client's watchdog."""
    for child in children_of(pid):
        if b"watchdog_program" in Path(f"/proc/{child}/cmdline").read_bytes():
            return child
    return 0


async def start(code: str, *args: str, **more: Any) -> Child:
    env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    fields = {"env": env, "cwd": None, "name": "s", "waits": True, **more}
    return await spawn(sys.executable, ["-S", "-c", code, *args], **fields)


def closer(child: Child) -> Callable[[], None]:
    def close() -> None:
        for descriptor in (child.stdin, child.stdout, child.stderr):
            os.close(descriptor)

    return close


@pytest.fixture
def short_graces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(family, "STDIN_GRACE", 0.1)
    monkeypatch.setattr(family, "TERM_GRACE", 0.1)


# ── the end of the client


@pytest.mark.parametrize("when", ["at first", "late"])
async def test_daemon_that_hides_in_every_way_ends_when_the_client_is_killed(when: str) -> None:
    with anyio.fail_after(50):
        client, pids = await own(when, HIDING + ANSWERING, "one", "two")
        daemons = [running("one"), running("two")]
        assert all(daemons)
        await killed(client)
        for pid in (*pids.values(), *daemons):
            await end_of(pid)


async def test_there_is_one_watchdog_however_many_servers_run(short_graces: None) -> None:
    with anyio.fail_after(30):
        servers = [await start("import sys; sys.stdin.read()") for _ in range(5)]
        assert {parent_of(one.pid) for one in servers} == {watchdog_of(os.getpid())}
        for server in servers:
            await server.stop(closer(server))
        assert watchdog_of(os.getpid()) == 0


async def test_chain_of_processes_that_hand_over_is_broken_when_the_client_is_killed(tmp_path: Path) -> None:
    with anyio.fail_after(60), (tmp_path / "chain").open("w") as lock:
        client, _ = await own("at first", CHAIN + ANSWERING, "chain")
        await killed(client)
        # It is free when the last of them is gone, be it by itself.
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        assert not (tmp_path / "outlived").exists()


async def test_killed_watchdog_takes_its_servers_along_and_the_client_starts_both_again() -> None:
    spec = ServerSpec("s", Stdio(sys.executable, [str(SERVERS / "plain.py")]), protocol="legacy")
    with anyio.fail_after(50):
        async with McpManager([spec]) as mcp:
            assert await mcp.wait_ready()
            await mcp.restart("s")
            assert await mcp.wait_ready()
            first, pid = watchdog_of(os.getpid()), mcp.status()["s"].pid
            assert first
            assert pid is not None
            events = mcp.events()
            os.kill(first, signal.SIGKILL)
            async for event in events:
                if getattr(event, "after", None) is ServerState.READY:
                    break
            await end_of(pid)
            assert mcp.status()["s"].pid != pid
            assert (await mcp.call("mcp_s_echo", {"text": "back"})).text == "back"


async def test_what_a_killed_watchdog_leaves_behind_is_found_by_its_limits(short_graces: None) -> None:
    with anyio.fail_after(30):
        child = await start(HIDING + ANSWERING, "left")
        while not (daemon := running("left")):  # noqa: ASYNC110 -- a file
            await asyncio.sleep(0.01)
        os.kill(watchdog_of(os.getpid()), signal.SIGKILL)
        assert await asyncio.shield(child.exited) == -signal.SIGKILL
        assert identify(daemon) is not None
        await child.stop(closer(child))
        assert identify(daemon) is None


async def test_signals_for_the_whole_session_of_a_service_leave_the_watchdog_alone(
    short_graces: None,
) -> None:
    with anyio.fail_after(30):
        child = await start("import sys; sys.stdin.read()")
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            os.kill(watchdog_of(os.getpid()), number)
        other = await start("import sys; sys.stdin.read()")
        assert child.poll() is None
        for one in (child, other):
            await one.stop(closer(one))
            assert one.exited.result() == 0


# ── the end of one server


@pytest.mark.parametrize("waits", [True, False], ids=["through the watchdog", "directly"])
async def test_hidden_daemon_ends_with_its_server_and_no_other_one_does(
    short_graces: None, waits: bool
) -> None:
    with anyio.fail_after(40):
        ending, living = [await start(HIDING + ANSWERING, name, waits=waits) for name in ("ending", "living")]
        while not (running("ending") and running("living")):  # noqa: ASYNC110 -- files
            await asyncio.sleep(0.01)
        daemons = running("ending"), running("living")
        await ending.stop(closer(ending))
        assert identify(daemons[0]) is None
        assert identify(daemons[1]) is not None
        assert living.poll() is None
        await living.stop(closer(living))
        assert identify(daemons[1]) is None


async def test_orphan_that_ends_by_itself_is_buried(short_graces: None, tmp_path: Path) -> None:
    code = """
import os, sys, time
if os.fork() == 0:
    if os.fork() == 0:
        while not os.path.exists("go"):
            time.sleep(0.005)
    os._exit(0)
os.wait()
print(1, flush=True)
sys.stdin.read()
"""
    with anyio.fail_after(30):
        child = await start(code)
        await anyio.wait_readable(child.stdout)
        parent = watchdog_of(os.getpid())
        (orphan,) = children_of(parent) - {child.pid}
        (tmp_path / "go").touch()
        while orphan in children_of(parent):  # noqa: ASYNC110 -- nothing tells
            await asyncio.sleep(0.005)
        await child.stop(closer(child))


# ── a start is as it would be without it


async def test_arguments_environment_and_directory_arrive_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "sub"
    folder.mkdir()
    code = "import json, os, sys; print(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ), os.umask(0)]), flush=True)"
    given = ["", "a b", "ü律", "\n", "-x", os.fsdecode(b"\xff")]
    env = {"EMPTY": "", "EQUALS": "a=b=c", "LONG": "x" * 100_000, "BYTES": os.fsdecode(b"\xfe")}
    for cwd in (None, str(folder), "sub"):
        with anyio.fail_after(20):
            child = await start(code, *given, env=env, cwd=cwd)
            said = b""
            while not said.endswith(b"\n"):
                await anyio.wait_readable(child.stdout)
                said += os.read(child.stdout, 1_000_000)
            await child.stop(closer(child))
        args, where, variables, umask = json.loads(said)
        assert args == given
        assert where == str(tmp_path if cwd is None else folder)
        assert {name: variables[name] for name in env} == env
        assert os.umask(umask) == umask


async def test_server_ignores_no_signal_and_blocks_none() -> None:
    with anyio.fail_after(20):
        child = await spawn("/bin/cat", ["/proc/self/status"], env={}, cwd=None, name="s", waits=True)
        assert await asyncio.shield(child.exited) == 0
        theirs = ignored(os.read(child.stdout, 100_000).decode())
        await child.stop(closer(child))
    ours = ignored(await asyncio.to_thread(Path("/proc/self/status").read_text))
    of_python = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
    assert theirs == {"SigBlk": 0, "SigIgn": ours["SigIgn"] & ~of_python}


async def test_script_that_does_not_say_what_runs_it_is_run_by_the_shell(tmp_path: Path) -> None:
    script = tmp_path / "run"
    script.write_text('exit "$1"\n')
    script.chmod(0o755)
    with anyio.fail_after(20):
        child = await spawn(
            str(script), ["7"], env={"PATH": os.environ["PATH"]}, cwd=None, name="s", waits=True
        )
        assert await asyncio.shield(child.exited) == 7
        await child.stop(closer(child))


@pytest.mark.parametrize(
    ("command", "more", "error", "named"),
    [
        ("no-such-command-anywhere", {}, FileNotFoundError, "no-such-command-anywhere"),
        ("/", {}, PermissionError, "/"),
        (sys.executable, {"cwd": "/no/such/folder"}, FileNotFoundError, "/no/such/folder"),
        (sys.executable, {"args": ["a\0b"]}, ValueError, None),
        (sys.executable, {"env": {"A=B": "c"}}, ValueError, None),
        (sys.executable, {"args": ["x" * 3_000_000]}, OSError, sys.executable),
    ],
    ids=["unknown", "a folder", "no such directory", "a null byte", "a bad name", "too long"],
)
async def test_what_cannot_be_started_is_told_as_without_a_watchdog(
    command: str, more: dict[str, Any], error: type[Exception], named: str | None
) -> None:
    fields: dict[str, Any] = {
        "args": [],
        "env": {"PATH": os.environ["PATH"]},
        "cwd": None,
        "name": "s",
        **more,
    }
    args = fields.pop("args")
    with anyio.fail_after(20), pytest.raises(error) as caught:
        await spawn(command, args, waits=True, **fields)
    assert getattr(caught.value, "filename", None) == named


async def test_exit_codes_and_signals_are_told() -> None:
    with anyio.fail_after(20):
        for code, expected in (("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)):
            child = await start(code)
            assert await asyncio.shield(child.exited) == expected
            assert child.poll() == expected
            await child.stop(closer(child))


# ── where there is none


async def test_server_is_started_directly_where_the_watchdog_cannot_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, short_graces: None
) -> None:
    program = tmp_path / "watchdog_program.py"
    program.write_text("def run(): raise SystemExit(1)\n")
    monkeypatch.setattr(watchdog, "_PROGRAM", program)
    monkeypatch.setattr(children, "_spawner", children._Spawner())
    caplog.set_level(logging.DEBUG, "dragoman")
    with anyio.fail_after(30):
        for _ in range(2):
            child = await start("import sys; sys.stdin.read()")
            assert watchdog_of(os.getpid()) == 0
            await child.stop(closer(child))
            assert child.exited.result() == 0
    assert [record.message for record in caplog.records if "watchdog" in record.message] == [
        "servers are started without a watchdog: it cannot work on this system"
    ]


@pytest.mark.parametrize("waits", [True, False])
async def test_server_is_started_directly_if_the_watchdog_hangs(
    monkeypatch: pytest.MonkeyPatch, short_graces: None, waits: bool
) -> None:
    monkeypatch.setattr(watchdog, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(watchdog, "CLOSE_SECONDS", 0.2)
    # As if it were stuck in the kernel.
    monkeypatch.setattr(watchdog.Watchdog, "wake", lambda _: None)
    with anyio.fail_after(30):
        child = await start("import sys; sys.stdin.read()")
        os.kill(watchdog_of(os.getpid()), signal.SIGSTOP)
        other = await start("import sys; sys.stdin.read()", waits=waits)
        assert other.poll() is None
        for one in (other, child):
            await one.stop(closer(one))
        assert descendants(groups=[other.pid]) == []


STOPPING = """
import os, signal, sys
parent = os.getppid()
assert b"watchdog_program" in open(f"/proc/{parent}/cmdline", "rb").read()
os.kill(parent, signal.SIGSTOP)
print(flush=True)
sys.stdin.read()
os._exit(7)
"""
"""A server that stops the watchdog."""


async def test_a_server_that_stops_the_watchdog_delays_neither_its_end_nor_the_next_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("STDIN_GRACE", "TERM_GRACE", "KILL_GRACE"):
        monkeypatch.setattr(family, name, 45.0)
    for name in ("ANSWER_SECONDS", "CLOSE_SECONDS"):
        monkeypatch.setattr(watchdog, name, 45.0)
    with anyio.fail_after(40):
        child = await start(STOPPING)
        await anyio.wait_readable(child.stdout)
        other = await start(STOPPING, waits=True)
        await anyio.wait_readable(other.stdout)
        for one in (child, other):
            await one.stop(closer(one), grace=45.0)
            assert one.exited.result() == 7


@pytest.mark.parametrize("executable", ["", "/usr/sbin/uwsgi", "/opt/app/app"])
def test_program_that_is_not_python_is_never_taken_for_it(
    monkeypatch: pytest.MonkeyPatch, executable: str
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    assert not watchdog.is_possible()


async def test_rights_that_were_given_up_do_not_come_back_through_the_watchdog(
    monkeypatch: pytest.MonkeyPatch, short_graces: None
) -> None:
    with anyio.fail_after(30):
        first = await start("import sys; sys.stdin.read()")
        before = watchdog_of(os.getpid())
        monkeypatch.setattr(watchdog, "rights", lambda: ("other",))
        monkeypatch.setattr(children, "rights", lambda: ("other",))
        second = await start("import sys; sys.stdin.read()")
        assert parent_of(first.pid) == before
        assert parent_of(second.pid) not in (before, os.getpid())
        for one in (first, second):
            await one.stop(closer(one))


def test_tags_are_lower_than_the_limit_that_we_have_ourselves(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    for limit, highest in ((resource.RLIM_INFINITY, 2**62), (2**60, 2**59)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        assert 2**50 < watchdog.new_tag() <= highest
    monkeypatch.setattr(resource, "getrlimit", lambda _: (200_000, 200_000))
    assert watchdog.new_tag() == 0


# On a system that has only POSIX: the watchdog waits for the end of a socket, and knows process groups

SLEEPS = "import time; time.sleep(600)"
LEAVES = f"""
import os, subprocess, sys, time
left = subprocess.Popen([sys.executable, "-S", "-c", {SLEEPS!r}])
os.write(1, f"{{os.getpid()}} {{left.pid}}".encode())
"""
PLAIN_OWNER = """
import asyncio, os, sys
from dragoman.server.process import watchdog
from dragoman.server.process.spawn import spawn
watchdog.IS_LINUX = False

async def main():
    for code in sys.argv[1:]:
        child = await spawn(sys.executable, ["-S", "-c", code], env=dict(os.environ), cwd=None, name="s")
        said = (await asyncio.to_thread(os.read, child.stdout, 100)).decode()
        if "sleep" not in code.splitlines()[-1]:
            await asyncio.shield(child.exited)
        print(said.strip(), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def plain_posix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what only Linux has."""
    monkeypatch.setattr(watchdog, "IS_LINUX", False)
    monkeypatch.setattr(children, "_spawner", children._Spawner())
    monkeypatch.setattr(family, "_HAS_PROC", False)
    monkeypatch.setattr(family, "descendants", lambda *_, **__: [])
    monkeypatch.setattr(family, "kill_relatives", lambda *_, **__: set())


async def test_without_linux_a_killed_client_takes_its_servers_and_their_groups_along() -> None:
    stays, exits = LEAVES + SLEEPS, LEAVES
    with anyio.fail_after(50):
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PLAIN_OWNER, stays, exits, stdout=asyncio.subprocess.PIPE
        )
        assert client.stdout is not None
        pids = [int(pid) for _ in range(2) for pid in (await client.stdout.readline()).split()]
        running = [pid for pid in pids if identify(pid) is not None]
        assert len(pids) == 4
        assert running == [*pids[:2], pids[3]]
        await killed(client)
        for pid in running:
            await end_of(pid)


async def test_without_linux_a_server_ends_with_its_group_and_its_exit_code_is_told(
    plain_posix: None, short_graces: None
) -> None:
    with anyio.fail_after(30):
        child = await start(f"{LEAVES}os.read(0, 1); raise SystemExit(7)", waits=False)
        left = int(os.read(child.stdout, 100).split()[1])
        assert watchdog_of(os.getpid()) == parent_of(child.pid)
        os.write(child.stdin, b"\n")
        assert await asyncio.shield(child.exited) == 7
        assert identify(left) is not None
        await child.stop(closer(child))
        await end_of(left)
        with pytest.raises(FileNotFoundError):
            await spawn("no-such-program", [], env={}, cwd=None, name="s")
        assert watchdog_of(os.getpid()) == 0
