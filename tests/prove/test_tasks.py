"""Tasks: a thousand of them, collected by a program that is killed again and again, and those of other servers."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from aiohttp import web
from tests.real import servers

from dragoman import CallTimeoutError, Handlers, Http, McpManager, ServerSpec, Stdio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.prove.conftest import Proof


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1800)]

TASKS, KILLS = 1_000, 50
POLL = 0.2
ROOT = Path(__file__).resolve().parents[2]
CLIENT = Path(__file__).with_name("task_client.py")
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class TaskServer:
    """A server of 2026-07-28 over HTTP: each call is a task; every third one asks a question."""

    def __init__(self) -> None:
        self.tasks: dict[str, dict[str, Any]] = {}
        self.polls: dict[tuple[str, str], float] = {}
        """The last question for the state of a task, by run and task."""
        self.early: list[float] = []
        """The intervals that were too short."""
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/mcp", self._post)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/mcp"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _post(self, request: web.Request) -> web.Response:
        message = await request.json()
        if "id" not in message:
            return web.Response(status=202)
        params, run = message.get("params") or {}, request.headers.get("X-Run", "")
        result = self._answer(message["method"], params, run)
        body = {"result": result} if result else {"error": {"code": -32601, "message": "Method not found"}}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], **body})

    def _answer(self, method: str, params: dict[str, Any], run: str) -> dict[str, Any]:
        kept = {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "public"}
        match method:
            case "server/discover":
                extensions = {"io.modelcontextprotocol/tasks": {}}
                capabilities = {"tools": {}, "extensions": extensions}
                return {**kept, "supportedVersions": ["2026-07-28"], "capabilities": capabilities}
            case "tools/list":
                return {**kept, "tools": [{"name": "work", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                number = params["arguments"]["number"]
                task_id = f"task-{len(self.tasks)}"
                asks = number % 3 == 0
                self.tasks[task_id] = {"number": number, "left": 1 + number % 4, "asks": asks, "answers": []}
                return {**self._shown(task_id), "resultType": "task"}
            case "tasks/get":
                self._note_poll(run, params["taskId"])
                task = self.tasks[params["taskId"]]
                task["left"] -= 1
                return {"resultType": "complete", **self._shown(params["taskId"])}
            case "tasks/update":
                self.tasks[params["taskId"]]["answers"].append(params["inputResponses"])
                return {"resultType": "complete"}
            case _:
                return {}

    def _note_poll(self, run: str, task_id: str) -> None:
        now = time.monotonic()
        before = self.polls.get((run, task_id))
        if before is not None and now - before < POLL * 0.95:
            self.early.append(now - before)
        self.polls[run, task_id] = now

    def _shown(self, task_id: str) -> dict[str, Any]:
        task = self.tasks[task_id]
        state: dict[str, Any] = {
            "taskId": task_id,
            "status": "working",
            "createdAt": "2026-11-17T10:00:00Z",
            "lastUpdatedAt": "2026-11-17T10:00:00Z",
            "ttlMs": None,
            "pollIntervalMs": POLL * 1000,
        }
        if task["left"] > 0:
            return state
        if task["asks"] and not task["answers"]:
            asked = {"mode": "form", "message": f"name of {task_id}", "requestedSchema": FORM}
            wanted = {"name": {"method": "elicitation/create", "params": asked}}
            return {**state, "status": "input_required", "inputRequests": wanted}
        text = json.dumps({"number": task["number"]})
        result = {"content": [{"type": "text", "text": text}], "isError": False}
        return {**state, "status": "completed", "result": result}


async def test_tasks_survive_kills_of_the_client(proof: Proof, tmp_path: Path) -> None:
    chance = random.Random(proof.seed)
    journal = tmp_path / "journal"
    journal.touch()
    kills = runs = 0
    async with TaskServer() as server:
        ended = False
        while not ended:
            runs += 1
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, str(CLIENT), server.url, str(runs), str(journal), str(TASKS)),
                stderr=subprocess.PIPE,
            )
            # The moment is drawn by progress, not by time: a slow machine is killed as often.
            stop_at = len(lines(journal)) + chance.randrange(1, TASKS * 3 // KILLS)
            while child.returncode is None:
                if kills < KILLS and len(lines(journal)) >= stop_at:
                    child.kill()
                    kills += 1
                    break
                await asyncio.sleep(chance.uniform(0, 0.02))
            _, said = await child.communicate()
            ended = child.returncode == 0
            assert child.returncode in (0, -9), said.decode()
    events = [json.loads(line) for line in lines(journal)]
    got = {number for kind, number, *_ in events if kind == "got"}
    created = Counter(task["number"] for task in server.tasks.values())
    received, read = (
        {server.tasks[event[1]]["number"] for event in events if event[0] == kind}
        for kind in ("received", "read")
    )
    asked, answered = (
        Counter(event[1] for event in events if event[0] == kind) for kind in ("asked", "answered")
    )
    proof.record(
        calls=TASKS,
        tasks=len(server.tasks),
        kills=kills,
        results=len(got),
        id_never_reached_the_client=len(created.keys() - received),
        id_received_and_not_read=len(received - read - got),
        id_read_and_not_stored=len(read - got),
        questions=len(asked),
        killed_while_asking=sum((asked - answered).values()),
        asked_again_after_the_answer=sum(count > 1 for count in answered.values()),
        polls_too_early=len(server.early),
    )
    assert kills >= KILLS
    assert set(created.values()) == {1}, "no call was repeated"
    asks = [task for task in server.tasks.values() if task["number"] in got and task["asks"]]
    assert all(len(task["answers"]) == 1 for task in asks), "each answer was sent once"
    held = {event[1] for event in events if event[0] == "held"}
    assert len(got) == len(held), "every task whose id was stored gave its result"
    # The id is stored while its message is read, the answer when its handler returns. Between these and the
    # system call are microseconds, which one kill in a thousand can hit.
    assert len(read - got) <= 1
    assert sum(count - 1 for count in answered.values()) <= 1
    # A message that has come as bytes is read within a few turns of the event loop. A kill in between loses the
    # ids that came together: sixteen calls at once, of which it hits less than one on average.
    assert len(received - got) <= kills
    assert server.early == []


def lines(journal: Path) -> list[str]:
    return journal.read_text("utf-8").splitlines()


# ── Tasks of other implementations

COLOURS = {"size": "L", "colour": "red"}


@asynccontextmanager
async def fastmcp_server(log: Path) -> AsyncIterator[str]:
    """Run a server with the tasks of FastMCP; give its URL."""
    installed = await asyncio.to_thread(
        subprocess.run, [sys.executable, ROOT / "scripts/install_servers.py", "fastmcp-tasks"], check=False
    )
    assert installed.returncode == 0
    child = await asyncio.create_subprocess_exec(
        str(ROOT / ".cache/servers/fastmcp-tasks/bin/python"),
        str(ROOT / "tests/servers/foreign_tasks.py"),
        str(log),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdout is not None
    try:
        yield (await child.stdout.readline()).decode().strip()
    finally:
        child.kill()
        await child.wait()
        child._transport.close()  # type: ignore[attr-defined]


async def test_fastmcps_tasks_are_followed_answered_cancelled_and_found_after_a_kill(
    proof: Proof, tmp_path: Path
) -> None:
    log, asked = tmp_path / "log", list[str]()

    def answer(_server: str, request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request["message"])
        (key,) = request["requestedSchema"]["properties"]
        return {"action": "accept", "content": {key: COLOURS[key]}}

    async with fastmcp_server(log) as url:
        spec = ServerSpec("f", Http(url))
        async with McpManager([spec], cache=False, handlers=Handlers(elicitation=answer)) as mcp:
            assert await mcp.wait_ready(timeout=60)
            proof.record(server=f"fastmcp-tasks {mcp.status()['f'].server_version}")
            assert (await mcp.call("mcp_f_add", {"a": 1, "b": 2})).structured == {"result": 3}
            assert (await mcp.call("mcp_f_order")).text == "L red"
            assert asked == ["Which size?", "Which colour?"]
            assert "out of paper" in str((await mcp.call("mcp_f_fail")).error)
            never = {"path": str(tmp_path / "never")}
            cancelled = (await mcp.call("mcp_f_wait_for", never, detach=True)).task
            await mcp.tasks.cancel(cancelled)
            late = await mcp.call("mcp_f_wait_for", never, timeout=2)
            assert isinstance(late.exception, CallTimeoutError)
            assert await mcp.tasks.list() == []
            file = tmp_path / "file"
            await killed_while_waiting(url, file)
            (task,) = await mcp.tasks.list()
            file.touch()
            assert (await mcp.tasks.resume(task)).text == "found"
            assert await mcp.tasks.list() == []
    ran = Counter(log.read_text().split("\n"))
    # The task that was cancelled at once may not have begun.
    assert ran["wait_for"] - ran["cancelled"] == 1
    assert ran["ordered"] == ran["add 1 2"] == 1


async def killed_while_waiting(url: str, file: Path) -> None:
    """Run a program that waits for a task, and kill it then."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WAITING, url, str(file)), stderr=subprocess.PIPE
    )
    # It asks for a state: it has the id.
    assert child.stderr is not None
    await child.stderr.readuntil(b"tasks/get")
    child.kill()
    await child.communicate()
    assert child.returncode == -9


WAITING = """
import asyncio, sys
from dragoman import Http, McpManager, ServerSpec
from dragoman.server.protocol.session import Session
get = Session.get_task
async def get_task(self, task_id):
    print("tasks/get", file=sys.stderr, flush=True)
    return await get(self, task_id)
Session.get_task = get_task
async def main():
    async with McpManager([ServerSpec("f", Http(sys.argv[1]))], cache=False) as mcp:
        await mcp.wait_ready()
        await mcp.call("mcp_f_wait_for", {"path": sys.argv[2]})
asyncio.run(main())
"""


async def test_a_tool_of_the_npm_server_that_needs_older_tasks_says_so(proof: Proof) -> None:
    """The reference server has the tasks of 2025-11-25, which SEP-2663 replaces; no npm package serves those."""
    spec = ServerSpec("e", Stdio(*servers.command("everything")[:1], ["stdio"]))
    async with McpManager([spec], cache=False) as mcp:
        assert await mcp.wait_ready(timeout=60)
        status = mcp.status()["e"]
        proof.record(server=f"everything {status.server_version}", protocol=status.protocol_version)
        result = await mcp.call("mcp_e_simulate-research-query", {"topic": "law"})
    assert status.protocol_version == "2025-11-25"
    assert "requires task augmentation" in str(result.error)
