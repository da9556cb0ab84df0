"""Servers in containers: what `docker run` started ends with the server, although it is not of its family."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.conftest import end_of

from dragoman import McpManager, ServerSpec, Stdio
from dragoman.server.process import family
from dragoman.server.process.orphans import Container, default_folder, end, identify, with_id

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

ENGINE = """#!{python}
import json, os, signal, sys, time
base, args = {base!r}, sys.argv[1:]
with open(os.path.join(base, "calls"), "a") as calls:
    calls.write(json.dumps(args) + "\\n")

def containers():
    return [name for name in os.listdir(base) if len(name) == 64]

def kill(name):
    with open(os.path.join(base, name)) as file:
        pid, label = file.read().split("\\n")
    os.unlink(os.path.join(base, name))
    os.kill(int(pid), signal.SIGKILL)

def value(option):
    for at, word in enumerate(args):
        if word == option:
            return args[at + 1]
        if word.startswith(option + "="):
            return word[len(option) + 1:]
    return ""

if "run" in args:
    name = os.urandom(32).hex()
    # The engine starts it: no descriptor, session, variable or limit of ours, and another parent.
    with open(os.path.join(base, "fifo"), "w") as file:
        file.write(f"{{name}} {{value('--label')}}\\n")
    while not os.path.exists(os.path.join(base, name)):
        time.sleep(0.005)
    if value("--cidfile"):
        with open(value("--cidfile"), "x") as file:
            file.write(name)
    results = {{
        "initialize": {{"protocolVersion": "2025-11-25", "capabilities": {{"tools": {{}}}},
                       "serverInfo": {{"name": "s", "version": "1"}}}},
        "tools/list": {{"tools": []}},
    }}
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") in results:
            print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}}), flush=True)
elif "ps" in args:
    for name in containers():
        if value("--filter") == "label=" + open(os.path.join(base, name)).read().split("\\n")[1]:
            print(name)
else:
    kill(args[-1])
"""
"""A command line that speaks to an engine elsewhere, as Docker's does."""

DAEMON = """
import os, subprocess, sys
base = sys.argv[1]
while True:
    with open(os.path.join(base, "fifo")) as file:
        for line in file:
            name, _, label = line.rstrip("\\n").partition(" ")
            if name == "end":
                sys.exit()
            nothing = subprocess.DEVNULL
            one = subprocess.Popen(["sleep", "600"], stdin=nothing, stdout=nothing, stderr=nothing)
            with open(os.path.join(base, "new"), "w") as about:
                about.write(f"{one.pid}\\n{label}")
            os.rename(os.path.join(base, "new"), os.path.join(base, name))
"""


class Engine:
    """The engine, and what it was asked."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.program = base / "bin" / "docker"

    def containers(self) -> list[int]:
        return [int(one.read_text().split()[0]) for one in self.base.iterdir() if len(one.name) == 64]

    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.base / "calls").read_text().splitlines()]


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    import subprocess

    base = tmp_path / "engine"
    (base / "bin").mkdir(parents=True)
    os.mkfifo(base / "fifo")
    for name in ("docker", "podman"):
        program = base / "bin" / name
        program.write_text(ENGINE.format(python=sys.executable, base=str(base)))
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{base / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(family, "STDIN_GRACE", 1.0)
    daemon = subprocess.Popen([sys.executable, "-S", "-c", DAEMON, str(base)], start_new_session=True)
    yield Engine(base)
    if daemon.poll() is None:
        with (base / "fifo").open("w") as file:
            file.write("end\n")
    daemon.wait()


def spec(*args: str, command: str = "docker") -> ServerSpec:
    return ServerSpec("s", Stdio(command, list(args)), protocol="legacy")


@pytest.mark.parametrize(
    ("command", "args", "ending"),
    [
        ("docker", ["run", "-i", "--rm", "image"], ["rm", "-f"]),
        ("docker", ["run", "-i", "image"], ["kill"]),
        ("docker", ["container", "run", "-i", "image"], ["container", "kill"]),
        (
            "docker",
            ["--context", "here", "-D", "run", "-i", "--rm", "image"],
            ["--context", "here", "-D", "rm", "-f"],
        ),
        ("podman", ["--log-level=error", "run", "-i", "image"], ["--log-level=error", "kill"]),
        ("env", ["A=b", "docker", "run", "-i", "image"], ["kill"]),
        ("docker", ["run", "--cidfile", "own.cid", "-i", "image"], ["kill"]),
    ],
    ids=["removed", "kept", "container run", "options", "podman", "wrapped", "an own file"],
)
async def test_container_ends_with_its_server(
    engine: Engine, command: str, args: list[str], ending: list[str], tmp_path: Path
) -> None:
    with anyio.fail_after(40):
        async with McpManager([spec(*args, command=command)]) as mcp:
            assert await mcp.wait_ready()
            (container,) = engine.containers()
            assert identify(container) is not None
        await end_of(container)
    assert engine.calls()[-1][:-1] == ending
    assert list(default_folder().glob("*.cid")) == []
    assert (tmp_path / "own.cid").exists() == ("own.cid" in args)


@pytest.mark.parametrize("when", ["at first", "late"])
async def test_container_ends_when_the_client_is_killed(engine: Engine, when: str) -> None:
    code = f"""
import asyncio, sys
from dragoman import McpManager, ServerSpec, Stdio
if {when!r} == "late":
    import dragoman.server.connection
async def main():
    async with McpManager([ServerSpec("s", Stdio("docker", ["run", "-i", "image"]), protocol="legacy")]) as mcp:
        print(bool(await mcp.wait_ready()), flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""
    with anyio.fail_after(50):
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
        )
        assert client.stdout is not None
        assert await client.stdout.readline() == b"True\n"
        (container,) = engine.containers()
        client.send_signal(signal.SIGKILL)
        await client.wait()
        client._transport.close()  # type: ignore[attr-defined]
        await end_of(container)
        while list(default_folder().iterdir()):  # noqa: ASYNC110 -- files
            await asyncio.sleep(0.01)


async def test_engine_that_hangs_does_not_keep_the_server(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dragoman.server.process.orphans.SECONDS", 0.3)
    container = Container(["docker"], "", "m", False, {})
    engine.program.write_text("#!/bin/sh\nexec sleep 600\n")
    with anyio.fail_after(20):
        await asyncio.to_thread(end, container)
    assert "a container may still run" in caplog.text


@pytest.mark.parametrize(
    "argv",
    [
        ["docker"],
        ["docker", "exec", "-i", "c", "run"],
        ["docker", "compose", "run", "x"],
        ["docker", "--context"],
        ["run", "docker"],
        ["python", "docker", "run"],
        ["env"],
    ],
)
def test_other_commands_stay_as_they_are(argv: list[str], tmp_path: Path) -> None:
    assert with_id(argv, env={}, folder=tmp_path, mark="m") == (argv, None)


def test_engine_of_a_snap_labels_the_container(tmp_path: Path) -> None:
    argv = ["/snap/bin/docker", "run", "-i", "image"]
    words, container = with_id(argv, env={"DOCKER_HOST": "x", "SECRET": "y"}, folder=tmp_path, mark="m")
    assert words == ["/snap/bin/docker", "run", "--label=dragoman.child=m", "-i", "image"]
    assert container == Container(["/snap/bin/docker"], "", "m", False, {"DOCKER_HOST": "x"})


@pytest.mark.parametrize(
    "entry",
    [5, {}, {"engine": "docker", "env": {}}, {"engine": ["rm"], "env": {}}, {"engine": [], "env": {}}],
)
def test_what_is_not_an_engine_is_never_run_from_the_ledger(entry: Any) -> None:
    with pytest.raises((TypeError, ValueError, IndexError)):
        Container.read(entry)


@pytest.mark.parametrize("content", ["", "x; rm -rf /", "-f", "0" * 11, "0" * 65, "../" * 20, "G" * 64])
def test_file_that_has_no_id_names_no_container(engine: Engine, tmp_path: Path, content: str) -> None:
    file = tmp_path / "m.cid"
    file.write_text(content)
    end(Container([str(engine.program)], str(file), "m", False, {}))
    assert not (engine.base / "calls").exists()
    assert not file.exists()
