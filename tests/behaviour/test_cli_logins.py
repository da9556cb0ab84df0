"""`dragoman login` and `logout` against a real authorization server; the browser is ours."""

from __future__ import annotations

import asyncio
import json
import os
import re

import pytest
from tests.servers.authorization import Authorization
from tests.unit.cli.program import PROGRAM, configure, entry, misfits

from dragoman.cli.shapes import LoginReport

pytestmark = pytest.mark.anyio


async def dragoman(*arguments: str, server: Authorization | None = None) -> tuple[int, str, str]:
    """Run the program; open the address that it prints, if there is somebody to open it."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(os.environ),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    said = ""
    while line := (await process.stderr.readline()).decode():
        said += line
        if server is not None and (url := re.search(r"http://\S+/authorize\?\S+", line)):
            await server.open(url[0])
    shown = (await process.stdout.read()).decode()
    code = await process.wait()
    process._transport.close()  # type: ignore[attr-defined]
    return code, shown, said


async def test_logging_in_makes_the_server_usable_and_logging_out_forgets_it() -> None:
    async with Authorization() as server:
        configure(law={"type": "http", "url": server.url})
        code, _, said = await dragoman("call", "law", "read")
        assert code == 5
        assert "`dragoman login law`" in said
        code, shown, said = await dragoman("login", "law", "--no-browser", "--json", server=server)
        assert code == 0, said
        assert misfits(json.loads(shown), LoginReport) == []
        assert (await dragoman("call", "law", "read"))[:2] == (0, "done\n")
        assert (await dragoman("logout", "law"))[:2] == (0, "logged out of `law`\n")
        code, shown, _ = await dragoman("status", "--json")
        assert (code, json.loads(shown)["servers"][0]["state"]) == (5, "needs_auth")
        assert (await dragoman("logout", "law"))[1] == "there was no login to `law`\n"


async def test_nobody_who_logs_in_is_an_end_in_time() -> None:
    async with Authorization() as server:
        configure(law={"type": "http", "url": server.url}, plain=entry("plain.py"))
        code, _, said = await dragoman("login", "law", "--no-browser", "--timeout", "1")
        assert code == 5
        assert "nobody logged in to server `law` within 1 s" in said
        code, _, said = await dragoman("login", "plain")
        assert code == 3
        assert "not logged in to with OAuth" in said
        assert (await dragoman("login", "law", "--paste"))[0] == 2
