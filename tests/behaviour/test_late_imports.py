"""What is imported late is imported once and by one thread, also when several tasks want it at the same time."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.anyio

PROGRAM = """
import asyncio, sys
from tests.servers.authorization import Authorization
from dragoman import Http, McpManager, ServerSpec, Sse, Stdio

async def main():
    async with Authorization() as one, Authorization(legacy=True) as two, Authorization() as three:
        specs = [
            ServerSpec("one", Http(one.url)),
            ServerSpec("two", Sse(two.url)),
            ServerSpec("three", Http(three.url)),
            ServerSpec("child", Stdio(sys.executable, ["-c", "import sys; sys.stdin.read()"])),
        ]
        assert not [name for name in sys.modules if name == "mcp"]
        async with McpManager(specs) as mcp:
            for _ in range(int(sys.argv[1])):
                await asyncio.sleep(0)
            servers = {"one": one, "two": two, "three": three}
            await asyncio.gather(*(mcp.auth.login(name, open_url=server.open) for name, server in servers.items()))
            assert await mcp.wait_ready(list(servers), timeout=30)
    print("logged in")

asyncio.run(main())
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("turns", [0, 10])
async def test_login_right_after_the_start_of_a_program_works(turns: int) -> None:
    await login_right_after_the_start_of_a_program_works(turns)


async def login_right_after_the_start_of_a_program_works(turns: int) -> None:
    """After any number of turns in tests/prove/test_late_imports.py."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", PROGRAM, str(turns)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    said, _ = await process.communicate()
    assert said.decode().splitlines()[-1:] == ["logged in"], said.decode()


SERVERS = Path(__file__).parent.parent / "servers"

WATCHED = """
import asyncio, json, sys, threading
from dragoman import Http, McpManager, ServerSpec, Sse, Stdio

imported, watching = [], False

def watch(event, arguments):
    if event == "import" and watching and threading.current_thread() is threading.main_thread():
        imported.append(arguments[0])

sys.addaudithook(watch)

async def main():
    global watching
    folder, http, sse = sys.argv[1:]
    child = Stdio(sys.executable, ["-S", f"{folder}/plain.py"])
    mcp = McpManager([ServerSpec("child", child), ServerSpec("http", Http(http)), ServerSpec("sse", Sse(sse))])
    await asyncio.sleep(0)
    watching = True
    async with mcp:
        assert await mcp.wait_ready()
        results = [await mcp.call(f"mcp_{name}_echo", {"text": "x"}) for name in ("child", "http", "sse")]
        assert [result.text for result in results] == ["x"] * 3, results
        assert not (await mcp.call("mcp_child_fail")).success
        assert not (await mcp.call("mcp_http_add", {"a": "no number"})).success
        assert not (await mcp.call("mcp_child_slow", timeout=0.01)).success
        assert not (await mcp.call("mcp_child_unknown")).success
        await mcp.restart("child")
        await mcp.disable("http")
        await mcp.add(ServerSpec("later", child))
    watching = False
    print(json.dumps(imported))

asyncio.run(main())
"""


@pytest.mark.timeout(120)
async def test_nothing_is_imported_on_the_event_loop_while_servers_are_in_use() -> None:
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    started = [
        await asyncio.create_subprocess_exec(sys.executable, str(SERVERS / "official.py"), kind, **pipes)
        for kind in ("http", "sse")
    ]
    addresses: list[str] = []
    for server in started:
        assert server.stdout is not None
        addresses.append((await server.stdout.readline()).decode().strip())
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", WATCHED, str(SERVERS), *addresses),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await program.communicate()
    for server in started:
        await server.communicate(b"")
    assert said.decode().splitlines()[-1:] == ["[]"], said.decode()
