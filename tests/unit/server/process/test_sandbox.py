"""The sandbox: what a server may read, write and reach, tried from the inside by programs in three languages."""

from __future__ import annotations

import ast
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from dragoman import ConfigError, McpManager, ServerSpec, Stdio, diagnose
from dragoman.model.server import Origin, Sandbox
from dragoman.server.process import environment, landlock, sandbox, spawn, watchdog
from dragoman.server.process.environment import whole_environment, with_sandbox
from dragoman.server.process.sandbox import confine, denial_hint, home_of, state_of
from dragoman.storage.files import data_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dragoman.model.server import SandboxLevel

SOURCES = Path(spawn.__file__).parents[2]
SERVERS = Path(__file__).resolve().parents[3] / "servers"
HAS_LANDLOCK = landlock.abi() >= landlock.SCOPES and landlock.has_filters()
needs_landlock = pytest.mark.skipif(not HAS_LANDLOCK, reason="this kernel has no Landlock of version 6")
LEVELS: list[SandboxLevel] = ["credentials", "strict"]

STORES = {
    "ssh key": ".ssh/id_ed25519",
    "aws": ".aws/credentials",
    "browser profile": ".mozilla/firefox/x.default/logins.json",
    "browser with a pattern": ".config/chromium-dev/Default/Cookies",
    "keyring file": ".local/share/keyrings/login.keyring",
    "npmrc": ".npmrc",
    "git": ".git-credentials",
    "history": ".bash_history",
    "own token": ".local/share/dragoman/tokens.json",
}
ONLY_STRICT = {
    "other project": "projects/other/secret.txt",
    "shell rc": ".bashrc",
    "a document": "Documents/letter.txt",
}

PYTHON = """
import json, os, subprocess, sys
def shows(path):
    return subprocess.run(["cat", path], start_new_session=True, capture_output=True).returncode == 0
ways = {}
for name, path in json.loads(sys.argv[1]).items():
    found = []
    def attempt(way, act):
        try:
            act()
        except OSError:
            return
        found.append(way)
    there = os.path.join("/proc/self/root", path[1:])
    attempt("read", lambda: open(path).read())
    attempt("write", lambda: open(path, "a").close())
    attempt("truncate", lambda: os.truncate(path, 0))
    attempt("remove", lambda: os.unlink(path))
    attempt("rename", lambda: os.rename(path, "taken"))
    attempt("list", lambda: os.listdir(os.path.dirname(path)) if name not in ("npmrc", "git", "history", "shell rc") else open("/no"))
    attempt("root", lambda: open(there).read())
    attempt("hard link", lambda: (os.link(path, "hard"), open("hard").read()))
    attempt("soft link", lambda: (os.symlink(path, "soft" + name), open("soft" + name).read()))
    attempt("descriptors", lambda: [os.open(f"/proc/self/fd/{n}/" + path, 0) for n in os.listdir("/proc/self/fd")])
    attempt("session", lambda: shows(path) or open("/no"))
    ways[name] = found
print(json.dumps([ways, os.listdir('/proc/self/fd')]))
"""
NODE = """
const fs = require("fs"), ways = {};
for (const [name, path] of Object.entries(JSON.parse(process.argv[1]))) {
    ways[name] = [];
    for (const [way, act] of Object.entries({
        read: () => fs.readFileSync(path), write: () => fs.appendFileSync(path, ""),
        root: () => fs.readFileSync("/proc/self/root" + path),
        child: () => require("child_process").execFileSync("cat", [path], {stdio: ["ignore", "pipe", "ignore"]}),
    })) try { act(); ways[name].push(way); } catch {}
}
console.log(JSON.stringify([ways, []]));
"""
SHELL = """
for pair in "$@"; do
  path="${pair#*=}"; name="${pair%%=*}"
  (cat "$path") >/dev/null 2>&1 && echo "$name=read"
  (: >> "$path") 2>/dev/null && echo "$name=write"
  (cd "$(dirname "$path")" && cat "$(basename "$path")") >/dev/null 2>&1 && echo "$name=cd"
done; exit 0
"""


@pytest.fixture
def canaries(home: Path, tmp_path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, place in {**STORES, **ONLY_STRICT}.items():
        path = home / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("canary", "utf-8")
        found[name] = str(path)
    (home / "dotfiles").mkdir()
    (home / "dotfiles/gnupg").mkdir()
    (home / "dotfiles/gnupg/key").write_text("canary", "utf-8")
    (home / ".gnupg").symlink_to(home / "dotfiles/gnupg")
    found["store behind a link"] = str(home / ".gnupg/key")
    found["the target of that link"] = str(home / "dotfiles/gnupg/key")
    (tmp_path / "project").mkdir()
    return found


async def output_of(stdio: Stdio, *, waits: bool = True) -> str:
    given = whole_environment(stdio, os.environ)
    with anyio.fail_after(40):
        child = await spawn.spawn(
            stdio.command, stdio.args, env=given, cwd=stdio.cwd, name="s", stdio=stdio, waits=waits
        )
        said = b""
        for descriptor in (child.stdout, child.stderr):
            await anyio.wait_readable(descriptor)
            while chunk := await anyio.to_thread.run_sync(os.read, descriptor, 65536):
                said += chunk

        def close() -> None:
            os.close(child.stdin)

        await child.stop(close)
        os.close(child.stdout)
        os.close(child.stderr)
    return said.decode()


def contents(path: str) -> str:
    return Path(path).read_text("utf-8")


def order(program: str) -> watchdog.StartOrder:
    return watchdog.StartOrder([program], dict(os.environ), None, 0)


def here(path: Path | str) -> str:
    return str(Path(path).absolute())


def entry(
    code: str, *args: str, level: SandboxLevel | Sandbox, cwd: Path | str = "project", **more: Any
) -> Stdio:
    return Stdio(sys.executable, ["-c", code, *args], sandbox=level, cwd=here(cwd), **more)


async def ways(code: str, *args: str, level: SandboxLevel | Sandbox, **more: Any) -> Any:
    said = await output_of(entry(code, *args, level=level, **more))
    try:
        return json.loads(said)
    except ValueError:
        pytest.fail(said)


def covered(level: SandboxLevel, canaries: Mapping[str, str]) -> dict[str, str]:
    return {name: path for name, path in canaries.items() if level == "strict" or name not in ONLY_STRICT}


@needs_landlock
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("waits", [True, False], ids=["watchdog", "direct"])
async def test_no_covered_canary_is_reached_from_python(
    level: SandboxLevel, waits: bool, canaries: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not waits:
        monkeypatch.setattr(spawn._Spawner, "take", lambda _: None)
    paths = covered(level, canaries)
    said = await output_of(entry(PYTHON, json.dumps(paths), level=level), waits=waits)
    found, descriptors = json.loads(said)
    assert found == {name: [] for name in paths}
    # The last one is the folder that is being listed.
    assert len(descriptors) <= 4
    assert {contents(path) for path in paths.values()} == {"canary"}


@needs_landlock
async def test_without_a_sandbox_every_canary_is_reached(canaries: dict[str, str]) -> None:
    found, _ = await ways(PYTHON, json.dumps(canaries), level="off")
    assert all("read" in found[name] for name in STORES)


@needs_landlock
@pytest.mark.parametrize("level", LEVELS)
async def test_no_covered_canary_is_reached_from_node_and_a_shell(
    level: SandboxLevel, canaries: dict[str, str]
) -> None:
    paths = covered(level, canaries)
    cwd = here("project")
    if node := shutil.which("node"):
        said = await output_of(Stdio(node, ["-e", NODE, json.dumps(paths)], sandbox=level, cwd=cwd))
        assert json.loads(said)[0] == {name: [] for name in paths}
    pairs = [f"{name}={path}" for name, path in paths.items()]
    # What an entry names may be used. So the paths are given in one word that is none.
    code = f"set -- {' '.join(map(repr, pairs))}\n{SHELL}"
    assert await output_of(Stdio("sh", ["-c", code], sandbox=level, cwd=cwd)) == ""


@needs_landlock
async def test_what_credentials_leaves_is_used_as_before(canaries: dict[str, str], home: Path) -> None:
    code = """
import json, os, sys
home, real = os.path.expanduser("~"), sys.argv[1]
open(home + "/.new-tool", "w").write("state")
os.makedirs(home + "/.config/new-tool")
open(home + "/Documents/letter.txt", "a").write("!")
open("beside", "w").close()
print(json.dumps([open(home + "/.bashrc").read(), os.path.isdir(home + "/.ssh"), open(real + "/Documents/letter.txt").read(), os.access(home + "/.bashrc", 4)]))
try:
    open(real + "/.bashrc", "a")
except PermissionError:
    pass
else:
    print("written")
""".replace("sys.argv[1]", repr(str(home)))
    said = await output_of(entry(code, level="credentials"))
    assert json.loads(said) == ["canary", False, "canary!", True]
    private = home_of(entry(code, level="credentials"), "s")
    assert (private / ".new-tool").read_text() == "state"
    assert (private / ".config/new-tool").is_dir()
    assert not (home / ".new-tool").exists()
    assert contents("project/beside") == ""


@needs_landlock
@pytest.mark.parametrize("level", LEVELS)
async def test_a_stranger_gets_no_signal(level: SandboxLevel, canaries: dict[str, str]) -> None:
    stranger = subprocess.Popen(["sleep", "600"])  # noqa: ASYNC220 -- it is not waited for
    try:
        code = f"""
import json, os, signal
said = []
for pid in ({stranger.pid}, {os.getpid()}, os.getppid()):
    try:
        os.kill(pid, 0)
        said.append(pid)
    except OSError:
        pass
print(json.dumps(said))
"""
        assert await ways(code, level=level) == []
    finally:
        stranger.kill()
        stranger.wait()


SOCKETS = """
import json, socket, sys
said = []
try:
    socket.socket(socket.AF_UNIX).connect(PATH)
    said.append("named socket")
except OSError:
    pass
for name, make in {
    "tcp": lambda: socket.create_connection(("127.0.0.1", PORT)),
    "udp": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
    "multipath": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).connect(("127.0.0.1", PORT)),
    "fast open": lambda: socket.socket().sendto(b"x", 0x20000000, ("127.0.0.1", PORT)),
    "pair": lambda: socket.socketpair(),
    "raw": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
}.items():
    try:
        make()
        said.append(name)
    except OSError:
        pass
print(json.dumps(said))
"""


@pytest.fixture
def listeners(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A named socket, as Docker has one, and a port."""
    path = str(tmp_path / "docker.sock")
    with socket.socket(socket.AF_UNIX) as named, socket.create_server(("127.0.0.1", 0)) as port:
        named.bind(path)
        named.listen()
        yield path, port.getsockname()[1]


@needs_landlock
@pytest.mark.parametrize(
    ("wanted", "reached"),
    [
        ({"level": "credentials"}, {"named socket", "tcp", "udp", "pair"}),
        ({"level": "strict"}, {"tcp", "udp", "pair"}),
        ({"level": "strict", "sockets": True}, {"named socket", "tcp", "udp", "pair"}),
        ({"level": "strict", "network": "off"}, {"pair"}),
        ({"level": "off", "network": "off"}, {"named socket", "pair"}),
        ({"level": "credentials", "network": ["PORT"]}, {"named socket", "tcp", "pair"}),
        ({"level": "off", "network": [1]}, {"named socket", "pair"}),
        ({"network": [1]}, {"pair"}),
    ],
)
async def test_sockets_are_closed_as_the_entry_says(
    wanted: dict[str, Any], reached: set[str], listeners: tuple[str, int], canaries: dict[str, str]
) -> None:
    path, port = listeners
    if wanted.get("network") == ["PORT"]:
        wanted = {**wanted, "network": [port]}
    code = SOCKETS.replace("PATH", repr(path)).replace("PORT", str(port))
    found = set(await ways(code, level=Sandbox(**wanted)))
    assert found - {"raw", "multipath", "fast open"} == reached
    restricts = wanted.get("network", "on") != "on"
    assert not restricts or not found & {"raw", "multipath", "fast open"}


@needs_landlock
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_an_ordinary_user_cannot_read_the_environment_of_other_processes() -> None:
    code = "import sys; print(open(f'/proc/{sys.argv[1]}/environ').read())"
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("there is no Python that every user can run")
    with tempfile.NamedTemporaryFile(suffix=".py") as program:
        program.write(Path(landlock.__file__).read_bytes())
        program.flush()
        Path(program.name).chmod(0o644)
        _look_at_a_stranger(python, program.name, code)


def _look_at_a_stranger(python: str, program: str, code: str) -> None:
    stranger = subprocess.Popen(["sleep", "600"], user=65534, group=65534, env={"TOKEN": "canary"})
    try:
        for box, reads in ((["w/"], False), ([], True)):
            done = subprocess.run(
                [
                    python,
                    "-I",
                    "-S",
                    program,
                    str(len(box)),
                    *box,
                    python,
                    "-I",
                    "-c",
                    code,
                    str(stranger.pid),
                ],
                user=65534,
                group=65534,
                extra_groups=[],
                capture_output=True,
                text=True,
                check=False,
                cwd="/",
            )
            assert ("canary" in done.stdout) is reads, done.stderr
    finally:
        stranger.kill()
        stranger.wait()


@needs_landlock
async def test_strict_may_use_what_its_entry_names(canaries: dict[str, str], home: Path) -> None:
    notes = home / "notes"
    notes.mkdir()
    code = "import os, sys; open(os.environ['NOTES'] + '/new', 'w').close(); print(open(os.path.expanduser('~/notes/new')).read() == '', len(os.environ['TMPDIR']) > 9)"
    said = await output_of(entry(code, level="strict", env={"NOTES": str(notes)}))
    assert said == "True True\n"
    said = await output_of(entry(code, level="strict", env={"NOTES": str(home)}))
    assert "Permission" in said
    said = await output_of(
        entry(
            "print(open(HOME + '/.aws/credentials').read())".replace("HOME", repr(str(home))),
            level={"level": "strict", "read": ["~/.aws"]},
        )
    )
    assert said == "canary\n"


@needs_landlock
async def test_a_link_that_the_server_made_leads_nowhere(
    canaries: dict[str, str], home: Path, tmp_path: Path
) -> None:
    # It replaces a folder that its entry names, and the next start would grant what the link leads to.
    data = tmp_path / "project/data"
    data.symlink_to(home / "projects/other")
    code = f"print(open({str(home / 'projects/other/secret.txt')!r}).read())"
    assert "PermissionError" in await output_of(entry(code, str(data), level="strict"))
    # The same with a folder of its private home, in which links are made from outside.
    stdio = entry("print(1)", level="credentials")
    private = home_of(stdio, "s")
    shutil.rmtree(private / ".config", ignore_errors=True)
    private.mkdir(parents=True, exist_ok=True)
    (home / ".config/autostart").mkdir(parents=True)
    (home / ".config/evil.desktop").touch()
    (private / ".config").symlink_to(home / ".config/autostart")
    assert await output_of(stdio) == "1\n"
    assert list((home / ".config/autostart").iterdir()) == []


@needs_landlock
async def test_a_server_that_works_at_home_works_in_its_private_home(home: Path) -> None:
    (home / ".ssh").mkdir()
    for level in LEVELS:
        said = await output_of(entry("import os; open('x', 'w'); print(os.getcwd())", level=level, cwd=home))
        assert said.strip() == str(home_of(entry("", level=level), "s"))
        assert not (home / "x").exists()


def test_a_container_stays_outside_and_a_project_cannot_claim_to_be_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sandbox, "_abi", lambda: 7)
    env = {"PATH": "/usr/bin"}
    assert state_of(Stdio("docker", ["run", "x"], sandbox="strict"), env) == "container"
    assert confine(Stdio("docker", sandbox="strict"), order("docker"), "s") == order("docker")
    assert state_of(Stdio("./docker", sandbox="strict"), env) == "strict"
    assert state_of(Stdio("docker", env={"PATH": "."}, sandbox="strict"), env) == "strict"
    assert state_of(Stdio("npx"), env) == "off"


@pytest.mark.parametrize(
    ("wanted", "refuses"),
    [
        ("credentials", False),
        ("strict", True),
        ({"level": "credentials", "network": "off"}, True),
        ({"level": "off", "network": [443]}, True),
    ],
)
async def test_what_the_kernel_cannot_keep_is_refused_or_said_once(
    wanted: Any, refuses: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sandbox, "_abi", lambda: 0)
    monkeypatch.setattr(sandbox, "_warned", set[str]())
    stdio = entry("print(1)", level=wanted, cwd=".")
    assert state_of(stdio, os.environ) == (
        "network" if isinstance(wanted, dict) and wanted["level"] == "off" else "unavailable"
    )
    if refuses:
        with pytest.raises(ConfigError, match="this system lacks Landlock"):
            await output_of(stdio)
        return
    with caplog.at_level(logging.WARNING, logger="dragoman"):
        for _ in range(2):
            assert await output_of(stdio) == "1\n"
    assert [one.message for one in caplog.records if "lacks Landlock" in one.message] == [
        "servers run without the sandbox `credentials`: this system lacks Landlock of Linux 6.2 or later (this kernel has version 0 of 3)"
    ]


@needs_landlock
async def test_a_sandbox_that_fails_after_the_fork_starts_no_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stdio = Stdio("touch", [here("started")], sandbox="strict")
    box = ["network=nonsense"]
    monkeypatch.setattr(sandbox, "confine", lambda _stdio, order, _name: order._replace(box=box))
    with pytest.raises(OSError, match="its sandbox"):
        await output_of(stdio)
    monkeypatch.setattr(spawn._Spawner, "take", lambda _: None)
    assert "ValueError" in await output_of(stdio)
    assert not (tmp_path / "started").exists()


@needs_landlock
async def test_a_real_connection_is_in_the_box(
    canaries: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    start = watchdog.Watchdog.start

    def noted(self: watchdog.Watchdog, order: watchdog.StartOrder, pipes: Any) -> Any:
        seen.append(any(text.startswith("r/") for text in order.box))
        return start(self, order, pipes)

    monkeypatch.setattr(watchdog.Watchdog, "start", noted)
    spec = ServerSpec("s", Stdio(sys.executable, [str(SERVERS / "plain.py")], sandbox="strict"))
    async with McpManager([spec]) as mcp:
        await mcp.wait_ready(timeout=20)
        assert mcp.tools()
    assert seen == [True]


def test_every_start_of_a_server_goes_through_the_sandbox() -> None:
    """What starts programs, counted: a new one must be looked at, and confined if it is a server."""
    starts = {
        "Popen",
        "run",
        "create_subprocess_exec",
        "subprocess_exec",
        "fork",
        "execv",
        "execve",
        "execvp",
        "execvpe",
        "posix_spawn",
    }
    found: dict[str, list[str]] = {}
    for path in sorted((SOURCES / "server").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in starts
            ):
                owner = ast.unparse(node.func.value)
                if owner in ("subprocess", "os", "asyncio", "whole", "asyncio.get_running_loop()"):
                    found.setdefault(path.name, []).append(node.func.attr)
    assert found == {
        "landlock.py": ["execvp"],
        "orphans.py": found["orphans.py"],  # container engines
        "prepare.py": ["subprocess_exec"],  # a command of the user's that prints a secret
        "spawn.py": ["run", "Popen"],  # a look at `setpriv`; `_Direct`, through `guarded`
        "stdio_streams.py": ["subprocess_exec"],  # through `guarded`
        "watchdog.py": ["Popen"],  # the watchdog
        "watchdog_program.py": found["watchdog_program.py"],
    }
    assert sorted(found["watchdog_program.py"]) == ["execv", "execve", "execve", "execvpe", "fork"]
    callers = [
        path.name
        for path in sorted((SOURCES / "server").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "spawn"
        and any(one.arg == "stdio" for one in node.keywords)
    ]
    assert callers == ["spawn.py", "stdio.py"]


def test_own_folders_are_never_granted_even_if_home_is(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_abi", lambda: 7)
    data_folder().mkdir(parents=True)
    (home / ".ssh").mkdir()
    stdio = entry("", level={"level": "strict", "read": [str(home)]}, cwd=".")
    box = confine(stdio, order(sys.executable), "s").box
    assert f"r{home}/.ssh" in box
    assert not any(text[1:] in (str(home), str(data_folder()), str(data_folder().parent)) for text in box)


@needs_landlock
async def test_what_was_denied_is_said_with_the_line_to_add(canaries: dict[str, str], home: Path) -> None:
    path = str(home / ".aws/credentials")
    spec = ServerSpec("a s", entry(f"open({path!r})", level="credentials"))
    line = (
        f'its sandbox refuses `{path}`; to allow it, add sandbox.read = ["~/.aws"]: '
        """`dragoman set 'a s' 'sandbox={"level": "credentials", "read": ["~/.aws"]}'`"""
    )
    async with McpManager([spec]) as mcp:
        await mcp.wait_ready(timeout=20)
        status = mcp.status()["a s"]
        assert status.sandbox == "credentials"
        assert line in (status.last_error or "")
    found = await diagnose(spec)
    assert line in found.hints
    assert denial_hint(spec, f"EACCES: permission denied, mkdir '{home}/projects/other/new'").count(
        'sandbox.write = ["~/projects/other"]'
    )
    # What we may not use ourselves, or what has no sandbox, is not the fault of it.
    assert denial_hint(spec, "[Errno 13] Permission denied: '/no/such/place'") == ""
    assert denial_hint(spec, f"[Errno 13] Permission denied: '{home}'") == ""
    free = ServerSpec("a s", entry("", level="off"))
    assert denial_hint(free, f"[Errno 13] Permission denied: '{path}'") == ""


TOOL = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    answer = {
        "initialize": lambda: {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}},
        "tools/list": lambda: {"tools": [{"name": "read", "inputSchema": {"type": "object"}}]},
        "tools/call": lambda: {"isError": True, "content": [{"type": "text", "text": error()}]},
    }.get(asked["method"])
    def error():
        try:
            return open(PATH).read()
        except OSError as found:
            return str(found)
    if "id" in asked:
        said = {"result": answer()} if answer else {"error": {"code": -32601, "message": "no"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}), flush=True)
"""


@needs_landlock
async def test_a_failed_call_tells_people_what_to_allow_and_the_model_nothing(
    canaries: dict[str, str],
) -> None:
    path = canaries["aws"]
    async with McpManager([ServerSpec("s", entry(TOOL.replace("PATH", repr(path)), level="strict"))]) as mcp:
        await mcp.wait_ready(timeout=20)
        result = await mcp.call("mcp_s_read", {})
    assert 'add sandbox.read = ["~/.aws"]' in (result.error or "")
    assert "sandbox" not in result.text
    assert "Permission denied" in result.text


def test_a_default_is_stricter_for_what_others_say_and_is_never_more_than_this_system_keeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = Stdio("x")
    assert with_sandbox(plain, is_foreign=True) == plain
    monkeypatch.setattr(environment, "DEFAULT", "credentials")
    monkeypatch.setattr(landlock, "abi", lambda: 7)
    monkeypatch.setattr(landlock, "has_filters", lambda: True)
    assert [with_sandbox(plain, is_foreign=one).sandbox for one in (False, True)] == ["credentials", "strict"]
    assert with_sandbox(Stdio("x", sandbox="off"), is_foreign=True).sandbox == "off"
    theirs = ServerSpec("s", plain, origin=Origin(source=".mcp.json", scope="project"))
    monkeypatch.setattr(sandbox, "_abi", lambda: 7)
    assert environment.sandbox_state(theirs) == "strict"
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    assert with_sandbox(plain, is_foreign=True) == plain


def program(path: Path, code: str) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{code}\n", "utf-8")
    path.chmod(0o755)
    return str(path)


@needs_landlock
async def test_a_script_that_starts_an_interpreter_by_its_path_works_under_strict(tmp_path: Path) -> None:
    script = program(
        tmp_path / "bin/serve", f"exec {sys.executable} -I -c 'import json; print(json.dumps(1))'"
    )
    assert await output_of(Stdio(script, sandbox="strict", cwd=str(tmp_path))) == "1\n"


@needs_landlock
@pytest.mark.parametrize("level", LEVELS)
async def test_only_a_launcher_reads_the_login_of_its_registry_and_shares_its_cache(
    level: SandboxLevel, canaries: dict[str, str], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "cat ~/.npmrc; cat ~/.ssh/id_ed25519 2>/dev/null; echo >> ~/.npm/cached && echo shared"
    (home / ".npm").mkdir()
    for name in ("npx", "other"):
        program(tmp_path / f"tools/{name}", code)
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}:{os.environ['PATH']}")
    cwd = str(tmp_path / "project")
    assert await output_of(Stdio("npx", sandbox=level, cwd=cwd)) == "canaryshared\n"
    assert (home / ".npm/cached").exists()
    said = await output_of(Stdio("other", sandbox=level, cwd=cwd))
    assert "canary" not in said
    assert ("shared\n" in said) is (level == "credentials")


@needs_landlock
async def test_a_script_in_a_shared_folder_does_not_bring_its_neighbours(home: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "secret").write_text("canary")
    (shared / "serve.py").write_text(f"print(open({str(shared / 'secret')!r}).read())")
    (tmp_path / "project").mkdir()
    stdio = Stdio(sys.executable, [str(shared / "serve.py")], sandbox="strict", cwd=str(tmp_path / "project"))
    assert "PermissionError" in await output_of(stdio)


def granted(stdio: Stdio) -> dict[str, str]:
    """Return what a start would be granted, by path."""
    started = confine(stdio, watchdog.StartOrder([stdio.command], dict(os.environ), stdio.cwd, 0), "s")
    return {word[1:]: word[0] for word in started.box if word[1:2] == "/"}


def covers(grants: dict[str, str], path: Path, access: str = "rw") -> bool:
    return any(f"{path}/".startswith(f"{one}/") and kind in access for one, kind in grants.items())


@needs_landlock
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("target", [".ssh", "", "/"])
def test_a_link_in_what_the_entry_grants_leads_to_no_store_and_not_to_home(
    level: SandboxLevel, target: str, canaries: dict[str, str], home: Path, tmp_path: Path
) -> None:
    (tmp_path / "project/data").symlink_to(home / target)
    table: Sandbox = {"level": level, "write": ["data"], "read": ["./data"]}
    grants = granted(entry("1", level=table))
    assert not covers(grants, Path(canaries["ssh key"]))
    assert not covers(grants, Path(canaries["aws"]))
    assert not covers(grants, home / ".bashrc", "w")


@needs_landlock
def test_what_the_server_wrote_itself_opens_no_other_folder(home: Path, tmp_path: Path) -> None:
    project, other = tmp_path / "project", home / "other"
    project.mkdir()
    (other / "bin").mkdir(parents=True)
    (other / "package.json").write_text("{}", "utf-8")
    (other / "notes.txt").write_text("x", "utf-8")
    (project / "config.json").symlink_to(other / "package.json")
    (project / "run.py").write_text(f"#!{other}/bin/tool {other}/notes.txt\n", "utf-8")
    for args in (["run.py", "config.json"], ["run.py", "--db", str(other / "notes.txt")]):
        stdio = Stdio(sys.executable, args, sandbox="strict", cwd=str(project))
        grants = granted(stdio)
        assert not covers(grants, other / "package.json")
        assert not covers(grants, other / "bin")
    for name, value in (("HOME", str(home.parent)), ("npm_config_cache", str(home))):
        stdio = Stdio("npx", ["x"], env={name: value}, sandbox="strict", cwd=str(project))
        assert not covers(granted(stdio), other / "package.json")


@needs_landlock
def test_startup_files_with_a_store_inside_are_not_written(home: Path, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    for name in (".config/fish/config.fish", ".config/git/config", ".config/fish/fish_history"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).touch()
    grants = granted(entry("1", level="credentials"))
    assert covers(grants, home / ".config/fish/config.fish")
    assert not covers(grants, home / ".config/fish/config.fish", "w")
    assert not covers(grants, home / ".config/git/config", "w")
    assert not covers(grants, home / ".config/fish/fish_history")


@needs_landlock
def test_a_store_that_is_a_link_is_refused_under_strict_too(home: Path, tmp_path: Path) -> None:
    (home / "dots/ssh").mkdir(parents=True)
    (home / "dots/ssh/id_rsa").touch()
    (home / ".ssh").symlink_to(home / "dots/ssh")
    (home / ".aws").mkdir()
    (home / "dots/aws").touch()
    (home / ".aws/credentials").symlink_to(home / "dots/aws")
    grants = granted(entry("1", level="strict", cwd=home / "dots"))
    assert not covers(grants, home / "dots/ssh/id_rsa")
    assert not covers(grants, home / "dots/aws")


@needs_landlock
def test_the_folder_of_a_program_is_not_all_of_local(home: Path, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    tool = home / ".local/bin/tool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\n", "utf-8")
    tool.chmod(0o755)
    (home / ".local/share/mail").mkdir(parents=True)
    grants = granted(Stdio(str(tool), sandbox="strict", cwd=str(tmp_path / "project")))
    assert covers(grants, tool)
    assert not covers(grants, home / ".local/share/mail")


@pytest.mark.parametrize("key", ["env_file", "log_file"])
def test_a_file_that_we_open_is_not_reached_through_a_link(key: str, home: Path, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/one").symlink_to(home / ".bashrc")
    file: Any = [here("project/one")] if key == "env_file" else here("project/one")
    with pytest.raises(ConfigError, match=f"`{key}` of server `s` leads through a link"):
        granted(entry("1", level="credentials", **{key: file}))


def test_a_text_is_no_list_of_paths(tmp_path: Path) -> None:
    table: Any = {"level": "strict", "read": "~/other"}
    with pytest.raises(ConfigError, match="is a list of paths"):
        granted(entry("1", level=table, cwd=tmp_path))


def test_without_the_watchdog_nothing_is_loaded_before_the_sandbox() -> None:
    with pytest.raises(ConfigError, match="LD_PRELOAD"):
        spawn.guarded(["true"], ["network=off"], {"LD_PRELOAD": "x.so"})
