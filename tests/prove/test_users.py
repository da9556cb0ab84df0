"""Many users in one process at full size: 1,000 users of five servers, in a pool that is much smaller.

Three servers are behind a URL and know users by their token, two are processes that all users share, and 50
users have processes of their own. The servers check that a session is used with the token that opened it; the
test checks every answer and every listing. A user who is disconnected to make room is forgotten, and comes
back as a new one.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import subprocess
import sys
from collections import Counter
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import ClientSession
from tests.behaviour.conftest import SERVERS
from tests.prove.test_daemon import memory
from tests.servers.authorization import Authorization

from dragoman import Http, McpManager, ServerSpec, Stdio
from dragoman.model import Auth, UserLimits
from dragoman.storage.files import user_data_folder

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.prove.conftest import Proof


USERS, CALLS = 1_000, 100_000
OWN = 50
"""How many users have processes of their own."""
OPEN = 200
BURST = 20
"""Calls of a user in a row, at the same time."""
WORKERS = 60
LOGINS, LOGIN_CALLS = 200, 4_000

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(3600)]


@contextmanager
def http_server() -> Generator[str]:
    """Run a server for users in a process; give its address."""
    words = [sys.executable, str(SERVERS / "users_http.py")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        yield child.stdout.readline().strip()
        assert child.stdin is not None
        child.stdin.close()


def stdio(name: str, **more: Any) -> ServerSpec:
    child = Stdio(
        sys.executable, [str(SERVERS / "users_stdio.py")], env={"USER_TOKEN": "${USER_TOKEN:-shared}"}
    )
    return ServerSpec(name, child, lazy=True, **more)


class Crowd:
    """Users who call at random, and what was seen of them."""

    REMOTE = ("legacy1", "modern1", "legacy2")
    SHARED = ("shared1", "shared2")

    def __init__(self, mcp: McpManager, seed: int) -> None:
        self._mcp = mcp
        self._random = random.Random(seed)
        self.left = CALLS // BURST
        self.seen: Counter[str] = Counter()
        self.crossed: list[str] = []
        self.failed: Counter[str] = Counter()
        self.sessions: dict[str, str] = {}
        """Who was seen in a session."""
        self.pids: dict[int, str] = {}
        """Who was seen in a process of their own."""
        self.peak = 0.0
        self.full = 0.0
        """The memory when the pool was full for the first time, in megabytes."""

    async def work(self) -> None:
        """Be one user after the other."""
        while self.left > 0:
            self.left -= 1
            number = self._random.randrange(USERS)
            await self.burst(number, self._random.randrange(2**32))
            self._measure()

    async def burst(self, number: int, seed: int) -> None:
        token, own = f"u{number}", number < OWN
        # An environment of their own only for those with processes of their own: it would end the sharing.
        env = {"USER_TOKEN": token} if own else None
        headers = {"X-Token": token}
        user = self._mcp.as_user(token, headers=headers, auth=dict.fromkeys(self.REMOTE, token), env=env)
        names = [*self.REMOTE, *(["own"] if own else self.SHARED)]
        report = await user.wait_ready(names, timeout=300)
        if not report:
            self.failed[str(report)] += 1
            return
        self._check_listing(user, token, names)
        draw = random.Random(seed)
        await asyncio.gather(*(self.call(user, token, draw.choice(names), draw) for _ in range(BURST)))

    async def call(self, user: McpManager, token: str, server: str, draw: random.Random) -> None:
        said = f"{token} {draw.randrange(2**32)}"
        tool = f"of_{token}" if server in self.REMOTE and draw.random() < 0.3 else "who"
        result = await user.call(f"mcp_{server}_{tool}", {"text": said}, timeout=300)
        self.seen[server] += 1
        if not result.success:
            self.failed[str(result.error)] += 1
            return
        answer = json.loads(result.text)
        if answer["text"] != said:
            self.crossed.append(f"{token} asked {said!r} and got {answer}")
        if server in self.SHARED:
            return
        if answer["token"] != token:
            self.crossed.append(f"{token} was {answer['token']} at {server}")
        mark = answer.get("session") or (answer.get("pid") if server == "own" else "")
        known: dict[Any, str] = self.pids if server == "own" else self.sessions
        if mark and known.setdefault(mark, token) != token:
            self.crossed.append(f"{token} has {mark} of {known[mark]} at {server}")

    def _check_listing(self, user: McpManager, token: str, names: list[str]) -> None:
        tools = {one.original_name for one in user.tools() if one.server in self.REMOTE}
        if tools != {f"of_{token}", "wait", "who"}:
            self.crossed.append(f"{token} sees {sorted(tools)}")
        if {one.server for one in user.tools()} != set(names):
            self.failed["a listing is missing"] += 1

    def _measure(self) -> None:
        now = memory_of_this_process()
        self.peak = max(self.peak, now)
        is_open = sum(one.is_open for one in self._mcp.users().values())
        if is_open > OPEN:
            self.failed[f"{is_open} users are open"] += 1
        if is_open == OPEN and not self.full:
            self.full = now


def memory_of_this_process() -> float:
    """Return the resident memory in megabytes."""

    return memory(os.getpid())


async def test_users_of_five_servers_never_meet_and_memory_stays_within_the_pool(proof: Proof) -> None:
    async with AsyncExitStack() as stack:
        bases = [stack.enter_context(http_server()) for _ in range(2)]
        remote = {
            "legacy1": f"{bases[0]}/legacy",
            "modern1": f"{bases[0]}/modern",
            "legacy2": f"{bases[1]}/legacy",
        }
        specs = [
            ServerSpec(name, Http(url), lazy=True, timeouts={"connect": 120}) for name, url in remote.items()
        ]
        specs += [*(stdio(name, share=True) for name in Crowd.SHARED), stdio("own")]
        mcp = await stack.enter_async_context(McpManager(specs, cache=False, users=UserLimits(open=OPEN)))
        crowd = Crowd(mcp, proof.seed)
        gc.collect()
        before = memory_of_this_process()
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(crowd.work())
        known = len(mcp.users())
        gc.collect()
        after = memory_of_this_process()
        async with ClientSession() as client:
            stats = []
            for base in bases:
                async with client.get(f"{base}/stats") as answer:
                    stats.append(await answer.json())
    proof.record(
        users=USERS,
        servers=len(specs) - 1,
        users_with_processes=OWN,
        calls=sum(crowd.seen.values()),
        pool=OPEN,
        sessions=sum(one["seen"]["initialize"] for one in stats),
        # A server that does not hear of the end of a session in time keeps it.
        sessions_at_most=max(one["most"] for one in stats),
        processes_of_users=len(crowd.pids),
        crossed=len(crowd.crossed) + sum(len(one["crossed"]) for one in stats),
        failed=sum(crowd.failed.values()),
        megabytes_before=round(before),
        megabytes_when_full=round(crowd.full),
        megabytes_at_most=round(crowd.peak),
        megabytes_after=round(after),
    )
    assert crowd.crossed == []
    assert [one["crossed"] for one in stats] == [[], []]
    assert crowd.failed == {}
    assert sum(crowd.seen.values()) >= CALLS - CALLS % BURST
    assert known <= OPEN + WORKERS + OPEN
    # From the full pool on, memory grows by the noise of the allocator and not with the number of users.
    assert crowd.peak < crowd.full + 0.5 * (crowd.full - before) + 30


async def test_users_with_logins_of_their_own_call_with_their_own_tokens(proof: Proof) -> None:
    draw, crossed, failed = random.Random(proof.seed), list[str](), Counter[str]()
    async with Authorization() as server:
        auth = Auth(redirect_uri="https://app.example/callback")
        spec = ServerSpec("mail", Http(server.url), auth=auth, lazy=True)
        async with McpManager([spec], users=UserLimits(open=LOGINS // 4)) as mcp:

            async def log_in(name: str) -> None:
                user = mcp.as_user(name)
                address = await user.auth.begin("mail")
                await user.auth.complete(await server.where(f"{address}&person={name}"))

            async def call(name: str) -> None:
                result = await mcp.as_user(name).call("mcp_mail_read", timeout=300)
                if not result.success:
                    failed[str(result.error)] += 1
                elif result.text != f"done for {name}":
                    crossed.append(f"{name}: {result.text}")

            names = [f"u{number}" for number in range(LOGINS)]
            for start in range(0, LOGINS, 20):
                await asyncio.gather(*(log_in(name) for name in names[start : start + 20]))
            for _ in range(LOGIN_CALLS // 40):
                await asyncio.gather(*(call(draw.choice(names)) for _ in range(40)))
    stored = [path for name in names for path in user_data_folder(name).glob("logins/*.json")]
    proof.record(
        users=LOGINS,
        calls=LOGIN_CALLS,
        registrations=server.seen["/register"],
        stored_logins=len(stored),
        crossed=len(crossed),
        failed=sum(failed.values()),
    )
    assert crossed == []
    assert failed == {}
    assert len(stored) == LOGINS
