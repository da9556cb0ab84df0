"""A program that asks, or one that answers: test_inbox.py runs several of them at once, and kills some.

`ask FOLDER NAME COUNT SECONDS` makes calls that all have to be approved, and says what was asked and what ran.
`answer FOLDER NAME SEED` approves and denies what it finds until it is killed. Each line is in its file before
the next thing happens, so that a kill loses none.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from pathlib import Path

from dragoman import McpManager
from dragoman.errors import ApprovalError
from dragoman.events import ApprovalRequested
from dragoman.model import Settings
from dragoman.storage.inbox import InboxStore
from dragoman.testing import ScriptedServer


class Lines:
    """A file of lines."""

    def __init__(self, folder: str, name: str) -> None:
        self._number = os.open(Path(folder, name), os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def add(self, *words: object) -> None:
        os.write(self._number, (" ".join(map(str, words)) + "\n").encode())


async def ask(folder: str, name: str, count: int, seconds: float) -> None:
    asked, ran, ended = (Lines(folder, f"{kind}-{name}") for kind in ("asked", "ran", "ended"))
    server = ScriptedServer("s")

    @server.tool
    def work(call: str) -> str:
        """Do something that must happen once."""
        ran.add(call, time.time())
        return call

    settings = Settings(servers=[server.spec(max_concurrency=count)], approval_timeout=seconds)
    mcp = McpManager(settings, cache=False, policy=[{"action": "ask", "tool": "*"}], approvals="inbox")
    async with mcp:
        await mcp.wait_ready()
        events = mcp.events()

        async def note() -> None:
            async for event in events:
                if isinstance(event, ApprovalRequested):
                    asked.add(event.approval.arguments["call"], event.approval.id)

        noting = asyncio.create_task(note())

        async def one(number: int) -> None:
            call = f"{name}-{number}"
            result = await mcp.call("mcp_s_work", {"call": call})
            ended.add(call, "ok" if result.success else "refused")

        await asyncio.gather(*map(one, range(count)))
        noting.cancel()
    print("done", flush=True)


def answer(folder: str, name: str, seed: int) -> None:
    chance = random.Random(seed)
    said = Lines(folder, f"said-{name}")
    with InboxStore() as store:
        while True:
            waiting = store.pending()
            chance.shuffle(waiting)
            for one in waiting[:20]:
                # Every tenth call is left to itself.
                if int(one.arguments["call"].rpartition("-")[2]) % 10 == 0:
                    continue
                allow = chance.random() < 0.6
                try:
                    store.answer(one.id, allow=allow, by=name)
                except ApprovalError:
                    continue
                said.add(one.id, "yes" if allow else "no")
            time.sleep(0.005)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["ask", folder, name, count, seconds]:
            asyncio.run(ask(folder, name, int(count), float(seconds)))
        case ["answer", folder, name, seed]:
            answer(folder, name, int(seed))
        case _:
            sys.exit(__doc__)
