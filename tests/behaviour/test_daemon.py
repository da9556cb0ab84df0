"""The daemon: commands and programs share servers, and nothing goes wrong when it starts, ends or is killed."""

from __future__ import annotations

import json
import os
import pickle
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.cli.program import SERVERS, configure, dragoman_command, dragoman_process, entry, misfits
from tests.unit.cli.terminal import at_terminal

from dragoman.cli.commands.daemon import StopReport
from dragoman.gateway import client
from dragoman.gateway.client import Client, DaemonError, NoDaemonError, OutcomeUnknownError
from dragoman.gateway.daemon import Daemon, DaemonStatus
from dragoman.storage.inbox import InboxStore
from dragoman.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ECHO = Path(__file__).resolve().parents[2] / "bench" / "echo_server.py"

PYTHON = sys.executable
pytestmark = [
    pytest.mark.skipif(not client.is_supported(), reason="needs Unix sockets"),
    pytest.mark.usefixtures("warm_python"),
]


def echo(*args: str, **more: Any) -> dict[str, Any]:
    """Return the entry of a server whose `echo` tells its process for `!pid`."""
    return {"command": PYTHON, "args": [str(ECHO), *args], **more}


@pytest.fixture
def daemon() -> Iterator[int]:
    """Start a daemon, return its process id, and stop whichever runs at the end."""
    yield start()
    stop()


@pytest.fixture
def stopped() -> Iterator[None]:
    """Stop the daemon that the test starts."""
    yield
    stop()


def start() -> int:
    found = client.start()
    assert found["started"]
    return found["pid"]


def stop() -> None:
    pid = status().get("pid", 0)
    done = dragoman_process("daemon", "stop", "--json")
    assert done.returncode == 0, done.stderr
    if pid:
        wait_gone(pid)
    bury_daemons()


def bury_daemons() -> None:
    """Wait for the threads that wait for daemons which were started here, and have ended."""
    for thread in threading.enumerate():
        if thread.name == "dragoman daemon":
            thread.join()


def status() -> dict[str, Any]:
    done = dragoman_process("daemon", "status", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert misfits(found, DaemonStatus if found["running"] else StopReport) == []
    return found


def served_by(server: str = "echo", **environment: str) -> str:
    """Return the process of a server that a command reaches."""
    done = dragoman_process("call", server, "echo", "text=!pid", **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_gone(pid)


def wait_gone(pid: int) -> None:
    """Wait until all threads of a process have ended: its sockets are open until then."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([handle], [], [], 30)[0], f"process {pid} does not end"
    finally:
        os.close(handle)
    until = time.monotonic() + 30
    while _is_our_child(pid) and time.monotonic() < until:
        threading.Event().wait(0.02)
    assert not _is_our_child(pid), f"process {pid} is not reaped"


def _is_our_child(pid: int) -> bool:
    """Return whether a process is to be reaped here; the client does that in a thread."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[1] == str(os.getpid())
    except OSError:
        return False


# ── Commands

EACH = """
import contextlib, io, json, sys
from dragoman.cli.main import main
lines, stdin, ended = json.loads(sys.argv[1]), sys.stdin.read(), []
for line in lines:
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()))
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(line)
        except SystemExit as end:
            code = end.code or 0
    ended.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(ended))
"""


def dragoman_each(lines: list[list[str]], *more: str, stdin: str) -> str:
    """Run lines of the program one after the other in one process; return codes, outputs and errors as JSON."""
    words = [sys.executable, "-c", EACH, json.dumps([[*line, *more] for line in lines])]
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_commands_say_the_same_through_the_daemon_and_one_process_answers_all(
    daemon: int, tmp_path: Path
) -> None:
    configure(plain=entry("plain.py"), echo=echo())
    tmp_path.joinpath("text.txt").write_text("from a file", "utf-8")
    lines = [
        ["call", "plain", "echo", "text=律 and more"],
        ["call", "plain", "echo", "text=@text.txt"],
        ["call", "plain", "echo", "-"],
        ["call", "plain", "fail"],
        ["call", "plain", "echo", "txt=1"],
        ["call", "plain", "nope"],
        ["call", "nope", "echo"],
        ["call", "plain", "image", "--save", "pictures"],
        ["call", "plain", "echo", "--bogus"],
        ["tools", "plain"],
        ["tools", "--json", "plain"],
        ["status", "nope"],
    ]
    stdin = '{"text": "from input"}'
    served = status()["served"]
    # Alone they run in one process: a new one for each line takes longer than all else here.
    alone = json.loads(dragoman_each(lines, "--no-daemon", stdin=stdin))
    for line, (code, output, errors) in zip(lines, alone, strict=True):
        through = dragoman_process(*line, stdin=stdin)
        said = (through.returncode, through.stdout, through.stderr.replace("image-2", "image-1"))
        # Either may say what it waits for, if that takes long.
        waits = "connecting to plain\n"
        assert (*said[:2], said[2].removeprefix(waits)) == (code, output, errors.removeprefix(waits)), line
    # This asks twice more: with `--no-daemon`, none of the lines has reached the daemon.
    assert status()["served"] == served + len(lines) + 1
    assert served_by() == served_by() != served_by(DRAGOMAN_DAEMON="0")
    found = json.loads(dragoman_process("status", "plain", "--json").stdout)["servers"][0]
    assert (found["state"], found["pid"]) in [
        ("ready", one["pid"]) for one in status()["processes"] if one["server"] == "plain"
    ]
    assert status()["pid"] == daemon


def test_the_fast_path_imports_neither_click_nor_the_sdk_nor_pydantic(daemon: int) -> None:
    configure(echo=echo())
    served_by()
    program = """
import sys
from dragoman.cli.entry import main
try:
    main()
except SystemExit as end:
    heavy = {"click", "mcp", "pydantic", "asyncio", "aiohttp", "pathlib", "dataclasses", "inspect", "subprocess"}
    print(end.code, sorted(heavy & set(sys.modules)))
"""
    words = [PYTHON, "-c", program, "call", "echo", "echo", "text=hello"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "hello\n0 []\n", done.stderr


def test_a_changed_configuration_counts_at_the_next_command_and_the_rest_keeps_running(daemon: int) -> None:
    configure(echo=echo())
    before = served_by()
    configure(echo=echo(), other=echo("--mark", "other"))
    other = served_by("other")
    assert served_by() == before != other
    configure(echo=echo("--mark", "changed"))
    assert served_by() not in (before, other)
    assert dragoman_process("call", "other", "echo", "text=x").returncode == 9


def test_the_configuration_or_a_variable_starts_the_daemon(stopped: None) -> None:
    path = configure(echo=echo())
    config = path.with_name("config.toml")
    assert dragoman_process("call", "echo", "echo", "text=alone").stdout == "alone\n"
    assert not status()["running"]
    config.write_text("[mcp]\ndaemon = true\n", "utf-8")
    first = served_by()
    assert status()["running"]
    assert served_by() == first
    stop()
    config.unlink()
    first = served_by(DRAGOMAN_DAEMON="1")
    assert served_by() == first


# ── Which clients share a process


def test_a_variable_that_an_entry_uses_decides_who_shares_and_no_value_is_shown(daemon: int) -> None:
    configure(
        echo=echo(env={"TOKEN": "${TOKEN_OF_TEST}"}),
        own=echo("--mark", "own", share=False),
    )
    first = served_by(TOKEN_OF_TEST="canary-one-1234", NOTHING_TO_IT="a")
    assert served_by(TOKEN_OF_TEST="canary-one-1234", NOTHING_TO_IT="b") == first
    assert served_by(TOKEN_OF_TEST="canary-two-5678", NOTHING_TO_IT="a") != first
    # An entry can ask for a process of its own per client's surroundings.
    mine = [served_by("own", TOKEN_OF_TEST="x", NOTHING_TO_IT=value) for value in "ab"]
    assert mine[0] != mine[1]
    shown = (
        dragoman_process("daemon", "status", "--json").stdout + dragoman_process("daemon", "status").stdout
    )
    shown += Path(client.paths().log).read_text("utf-8")
    assert "canary" not in shown


def test_its_status_is_for_people(daemon: int) -> None:
    configure(gone={"command": "no-such-program"})
    assert dragoman_process("call", "gone", "echo").returncode == 4
    shown = dragoman_process("daemon", "status").stdout
    assert f"\n{Path.cwd()} (dragoman)\n" in shown
    assert shown.endswith(("\n  gone: failed\n", "\n  gone: retrying\n"))


def test_a_project_is_trusted_per_client_and_folder(daemon: int, tmp_path: Path) -> None:
    entries = {"mcpServers": {"theirs": echo()}}
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        folder.joinpath("mcp.json").write_text(json.dumps(entries), "utf-8")

    def call(name: str) -> subprocess.CompletedProcess[str]:
        words = [*dragoman_command(), "call", "theirs", "echo", "text=hello"]
        return subprocess.run(words, cwd=tmp_path / name, capture_output=True, text=True, check=False)

    assert [call(name).returncode for name in ("one", "two")] == [8, 8]
    words = [*dragoman_command(), "trust", "approve", "theirs", "--yes"]
    done = subprocess.run(words, cwd=tmp_path / "one", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [call(name).returncode for name in ("one", "two")] == [0, 8]


def test_a_stuck_server_does_not_affect_the_others(daemon: int) -> None:
    configure(echo=echo(), stuck=entry("stuck.py"))
    waiting = subprocess.Popen(
        [*dragoman_command(), "call", "stuck", "slow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert served_by() == served_by()
    finally:
        waiting.send_signal(signal.SIGINT)
        _, said = waiting.communicate()
    assert (waiting.returncode, said.strip()) == (130, "interrupted")
    assert all(one["calls"] == 0 for one in status()["processes"] if one["server"] == "echo")


# ── Starting and ending


def test_simultaneous_first_commands_start_one_daemon_and_one_server(stopped: None) -> None:
    configure(echo=echo())
    words = [*dragoman_command(), "call", "echo", "echo", "text=!pid"]
    env = os.environ | {"DRAGOMAN_DAEMON": "1"}
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env) for _ in range(6)]
    pids = {one.communicate()[0].strip() for one in running}
    assert [one.returncode for one in running] == [0] * 6
    assert len(pids) == 1
    assert [str(one["pid"]) for one in status()["processes"]] == [*pids]


def test_after_kill_9_no_server_is_left_and_a_stale_socket_does_not_block(daemon: int) -> None:
    configure(echo=echo())
    server = int(served_by())
    kill(daemon)
    wait_gone(server)
    assert Path(client.paths().socket).exists()
    # Without a wish for a daemon the command goes alone; with one it starts the next.
    alone = served_by()
    assert alone != str(server)
    kept = served_by(DRAGOMAN_DAEMON="1")
    assert served_by() == kept != alone
    assert status()["pid"] != daemon


def test_a_process_that_only_accepts_connections_is_not_a_daemon(stopped: None) -> None:
    where = client.paths()
    client.start()
    stop()
    with socket.socket(socket.AF_UNIX) as impostor:
        impostor.bind(where.socket)
        impostor.listen()
        with pytest.raises(NoDaemonError):
            client.dial(where.socket, client.hello("/", {}), seconds=0.2)
        Path(where.socket).unlink()
        Path(where.socket).write_text("not a socket", "utf-8")
        Path(where.lock).write_text("99999999", "utf-8")
        assert client.start()["started"]


def test_another_version_ends_an_idle_daemon_and_leaves_a_busy_one(daemon: int, stopped: None) -> None:
    configure(echo=echo())
    other = client.hello("/", {})
    other["params"]["version"] = "0.0.0"
    where = client.paths()
    with Client() as busy:
        thread = threading.Thread(
            target=lambda: _ignore(busy.call, "mcp_echo_echo", {"text": "!mute"}, timeout=60)
        )
        thread.start()
        while not any(one["calls"] for one in busy.status()["processes"]):
            threading.Event().wait(0.02)
        with pytest.raises(DaemonError) as refused:
            client.dial(where.socket, other)
        assert (refused.value.code, refused.value.data) == (
            client.OTHER_VERSION,
            {"busy": True, "version": VERSION},
        )
        kill(daemon)
        thread.join()
    started = client.start()["pid"]
    with pytest.raises(DaemonError) as refused:
        client.dial(where.socket, other)
    assert refused.value.may_be_replaced
    wait_gone(started)
    assert client.start()["started"]


def _ignore(work: Any, *args: Any, **more: Any) -> None:
    with pytest.raises((DaemonError, TimeoutError)):
        work(*args, **more)


def test_an_idle_daemon_ends_with_its_servers() -> None:
    configure(echo=echo())
    found = client.start(options=["--idle", "1s"])
    server = int(served_by())
    wait_gone(found["pid"])
    wait_gone(server)
    bury_daemons()
    assert "no client for 1 s" in dragoman_process("daemon", "logs").stdout


def test_malformed_and_oversized_lines_are_refused_and_others_go_on(daemon: int) -> None:
    configure(echo=echo())
    before = served_by()
    for line in (
        b"\xff\xfe\n",
        b"[]\n",
        b'{"method": "tools/list", "id": 1}\n',
        b'"' + b"x" * 100_000 + b"\n",
    ):
        with socket.socket(socket.AF_UNIX) as raw:
            raw.connect(client.paths().socket)
            raw.sendall(line)
            answer = b"".join(iter(lambda: raw.recv(65_536), b""))
        assert json.loads(answer)["error"]["code"] in (-32700, -32600)
    hello = json.dumps(client.hello("/", {})).encode() + b"\n"
    for line in (
        b'{"id": 1, "method": "tools/call", "params": {"name": "x", "arguments": {"a": NaN}}}\n',
        b'{"id": 1, "method": "tools/call", "params": {"name": "x", "arguments": {"a": 1e999}}}\n',
        b'{"id": 1, "params": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
        b'{"id": 1, "params": ' + b"[" * 300 + b"]" * 300 + b"}\n",
        b'{"id": {}, "result": {}}\n',
        b'{"id": [], "method": "dragoman/command"}\n',
        b'{"id": ' + b"1" * 10_000 + b', "method": "dragoman/status"}\n',
    ):
        with socket.socket(socket.AF_UNIX) as raw:
            raw.connect(client.paths().socket)
            raw.sendall(hello + line)
            answer = b"".join(iter(lambda: raw.recv(65_536), b""))
        assert json.loads(answer.splitlines()[-1])["error"]["code"] == -32700
    wrong: list[dict[str, Any]] = [
        {"words": 5},
        {"words": "status"},
        {"tty": []},
        {"columns": "x"},
        {"stdin": 1},
    ]
    for params in wrong:
        command = {"id": 1, "method": "dragoman/command", "params": {"words": ["status"], **params}}
        with socket.socket(socket.AF_UNIX) as raw:
            raw.connect(client.paths().socket)
            raw.sendall(hello + json.dumps(command).encode() + b'\n{"id": 2, "method": "dragoman/status"}\n')
            raw.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: raw.recv(65_536), b""))
        # Only the command is refused: the connection goes on.
        refused, status = map(json.loads, answer.splitlines()[-2:])
        assert (refused["id"], refused["error"]["code"]) == (1, -32602)
        assert status["result"]["pid"] == daemon
    assert "Traceback" not in Path(client.paths().log).read_text("utf-8")
    assert served_by() == before


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can be another user")
def test_another_user_of_the_machine_is_refused(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(f"/tmp/dragoman-test-{os.getpid()}")
    folder.mkdir(mode=0o711)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    try:
        start()
        where = client.paths()
        modes = [os.stat(path).st_mode & 0o777 for path in (where.folder, where.socket, where.log)]  # noqa: PTH116 -- texts
        assert modes == [0o700, 0o600, 0o600]
        # Take the file system's protection away: the daemon itself looks who connects.
        for path in Path(where.folder).parents:
            if folder in (path, *path.parents):
                path.chmod(0o711)
        Path(where.folder).chmod(0o711)
        Path(where.socket).chmod(0o666)
        program = f"""
import socket
raw = socket.socket(socket.AF_UNIX); raw.settimeout(20); raw.connect({where.socket!r})
try:
    raw.sendall(b'{{"id": 0, "method": "dragoman/hello", "params": {{"version": "{VERSION}"}}}}\\n')
    print(raw.recv(1000))
except ConnectionError:
    print(b"")
"""
        python = shutil.which("python3", path="/usr/bin:/bin") or pytest.skip("no Python for other users")
        done = subprocess.run(
            [python, "-c", program], capture_output=True, text=True, user=65534, check=False, env={}, cwd="/"
        )
        assert done.stdout.strip() == "b''", done.stderr
        assert "refused a connection of user 65534" in dragoman_process("daemon", "logs").stdout
    finally:
        stop()
        subprocess.run(["rm", "-rf", folder], check=True)


def of_nobody(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    if os.geteuid():
        pytest.skip("only root can make a folder of another user")
    os.chown(folder, 65534, 65534)


def open_to_all(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def a_link(folder: Path) -> None:
    target = folder.with_name("target")
    target.mkdir(mode=0o700)
    folder.symlink_to(target)


@pytest.mark.parametrize("plant", [of_nobody, open_to_all, a_link])
@pytest.mark.anyio
async def test_a_daemon_in_the_foreground_uses_no_folder_that_another_user_could_have_made(
    plant: Callable[[Path], None], tmp_path: Path
) -> None:
    folder = tmp_path / "planted"
    plant(folder)
    where = client.Paths(str(folder), f"{folder}/d", f"{folder}/d.sock")
    daemon = Daemon(where, load=lambda _: pytest.fail("not reached"), run=lambda _: None)
    with pytest.raises(DaemonError, match="planted"):
        await daemon.serve(on_ready=daemon.stop)
    assert list(folder.iterdir()) == []


@pytest.mark.anyio
async def test_a_daemon_follows_no_link_in_its_folder(tmp_path: Path) -> None:
    folder, precious = tmp_path / "daemon", tmp_path / "precious"
    folder.mkdir(mode=0o700)
    (folder / "d.lock").symlink_to(precious)
    where = client.Paths(str(folder), f"{folder}/d", f"{folder}/d.sock")
    daemon = Daemon(where, load=lambda _: pytest.fail("not reached"), run=lambda _: None)
    with pytest.raises(OSError, match=r"d\.lock"):
        await daemon.serve(on_ready=daemon.stop)
    assert not precious.exists()


TELLING = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from jsonrpc import serve, text, tool
mask = os.umask(0)
found = {**os.environ, "umask": oct(mask)}
serve({"tools/list": lambda _: {"tools": [tool("tell")]}, "tools/call": lambda *_: text(json.dumps(found))})
"""


def told(server: str, **environment: str) -> dict[str, str]:
    done = dragoman_process("call", server, "tell", "--raw", **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


TERMINAL = {
    "SSH_CONNECTION": "of-a",
    "TMUX_PANE": "of-a",
    "GPG_TTY": "of-a",
    "TERM": "of-a",
    "OLDPWD": "of-a",
}


def test_a_server_has_nothing_of_the_shell_that_started_the_daemon(
    stopped: None, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "deep" / "er"))
    arguments = ["-c", TELLING, str(SERVERS)]
    configure(told={"command": PYTHON, "args": arguments, "inherit_env": "all"})
    before = os.umask(0)
    try:
        for name, value in TERMINAL.items():
            monkeypatch.setenv(name, value)
        start()
    finally:
        os.umask(before)
    folders = [home / "deep", home / "deep/er", home / "deep/er/dragoman", Path(client.paths().folder)]
    assert [oct(folder.stat().st_mode & 0o777) for folder in folders] == ["0o700"] * 4
    found = told("told", **TERMINAL, OTHER="one")
    assert TERMINAL.keys() & found.keys() == set()
    assert found["umask"] == "0o77"
    assert found["OTHER"] == "one"
    assert found["PWD"] == str(Path.cwd())
    # Another terminal shares it, since it would get the same.
    assert told("told", **dict.fromkeys(TERMINAL, "of-b"), OTHER="one") == found


# ── Programs


def test_a_client_works_from_threads_and_pickled_in_processes(daemon: int) -> None:
    configure(echo=echo())
    with Client() as one:
        assert [tool["name"] for tool in one.tools()] == ["mcp_echo_echo"]
        first = one.call("mcp_echo_echo", {"text": "!pid"})
        assert (first.success, first.error) == (True, None)
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: one.call("mcp_echo_echo", {"text": "!pid"}).text, range(20)))
        assert {*found} == {first.text}
        program = "import pickle,sys; c = pickle.load(sys.stdin.buffer); print(c.call('mcp_echo_echo', {'text': '!pid'}).text)"
        done = subprocess.run(
            [sys.executable, "-c", program], input=pickle.dumps(one), capture_output=True, check=True
        )
        assert done.stdout.decode().strip() == first.text
        with pytest.raises(DaemonError, match="Unknown tool"):
            one.call("nope")
        with pytest.raises(TimeoutError):
            one.call("mcp_echo_echo", {"text": "!mute"}, timeout=0.1)
        assert one.call("mcp_echo_echo", {"text": "still here"}).text == "still here"


def test_a_client_dials_again_after_a_restart_and_says_what_it_does_not_know(daemon: int) -> None:
    configure(echo=echo())
    with Client() as one:
        before = one.call("mcp_echo_echo", {"text": "!pid"}).text
        stop()
        after = one.call("mcp_echo_echo", {"text": "!pid"}).text
        assert after != before
        pid = one.status()["pid"]
        assert pid != daemon
        raised: list[BaseException] = []

        def call() -> None:
            try:
                one.call("mcp_echo_echo", {"text": "!mute"})
            except DaemonError as error:
                raised.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        while not any(server["calls"] for server in one.status()["processes"]):
            threading.Event().wait(0.02)
        kill(pid)
        thread.join()
        assert [type(error) for error in raised] == [OutcomeUnknownError]
        assert one.call("mcp_echo_echo", {"text": "again"}).text == "again"


def test_a_rule_that_asks_asks_the_client_at_its_terminal_or_by_its_function(daemon: int) -> None:
    path = configure(echo=echo())
    path.with_name("config.toml").write_text('[mcp.policy]\ndefault = "ask"\n', "utf-8")
    for answer, code, shown in (("y", 0, "\nhello"), ("n", 8, "error: ")):
        with at_terminal("call", "echo", "echo", "text=hello", columns=120) as person:
            person.wait_until(lambda person=person: "Call it? [y/N]:" in person.text)
            person.type(f"{answer}\r")
            assert person.wait_for_end() == code
            assert shown in person.text
    assert dragoman_process("call", "echo", "echo", "text=hello").returncode == 8

    def allow(question: dict[str, Any]) -> dict[str, Any]:
        asked.append(question["message"])
        return {"action": "accept", "content": {"allow": True}}

    asked: list[str] = []
    with Client(elicit=allow) as one, Client() as shy:
        assert one.call("mcp_echo_echo", {"text": "hello"}).text == "hello"
        # One who cannot be asked waits for the inbox.
        with ThreadPoolExecutor() as pool, InboxStore() as store:
            waiting = pool.submit(shy.call, "mcp_echo_echo", {"text": "hello"})
            while not (found := [one for one in store.pending() if one.tool == "mcp_echo_echo"]):
                assert not waiting.done()
            store.answer(found[0].id, allow=False, by="ann")
            assert not waiting.result().success
    assert len(asked) == 1
    assert "`echo` of the server `echo`" in asked[0]


def test_a_question_of_a_server_goes_to_the_client_that_caused_it(daemon: int) -> None:
    configure(asking=entry("asking.py", protocol="legacy"))

    def table(seats: int) -> Any:
        return lambda _question: {"action": "accept", "content": {"seats": seats, "name": f"guest {seats}"}}

    with Client(elicit=table(3)) as three, Client(elicit=table(5)) as five, Client() as shy:
        for _ in range(2):
            assert "'seats': 3" in three.call("mcp_asking_book").text
            assert "'seats': 5" in five.call("mcp_asking_book").text
        with pytest.raises(DaemonError, match="does not support elicitation"):
            shy.call("mcp_asking_book")
