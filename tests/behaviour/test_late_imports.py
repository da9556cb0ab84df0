"""What is imported late is imported once and by one thread, also when several tasks want it at the same time."""

from __future__ import annotations

import asyncio
import os
import sys

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
            ServerSpec("three", Http(three.url), wire="sdk"),
            ServerSpec("child", Stdio(sys.executable, ["-c", "import sys; sys.stdin.read()"])),
        ]
        assert not [name for name in sys.modules if name == "mcp"]
        async with McpManager(specs) as mcp:
            for _ in range(int(sys.argv[1])):
                await asyncio.sleep(0)
            servers = {"one": one, "two": two, "three": three}
            await asyncio.gather(*(mcp.login(name, open_url=server.open) for name, server in servers.items()))
            assert await mcp.wait_ready(list(servers), timeout=30)
    print("logged in")

asyncio.run(main())
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("turns", [0, 1, 3, 10, 100, 1000])
async def test_login_right_after_the_start_of_a_program_works(turns: int) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", PROGRAM, str(turns)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    said, _ = await process.communicate()
    assert said.decode().splitlines()[-1:] == ["logged in"], said.decode()
