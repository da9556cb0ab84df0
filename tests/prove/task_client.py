"""Starts tasks and collects their results until its parent kills it; started by `test_tasks.py`.

Usage: task_client.py URL RUN JOURNAL COUNT. Each line of the journal is one event.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from aiohttp.client_proto import ResponseHandler

from dragoman import Handlers, Http, McpManager, ServerSpec
from dragoman.server.protocol import dispatcher

URL, RUN, JOURNAL, COUNT = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
AT_ONCE = 16
OUT = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def journal(*event: object) -> None:
    os.write(OUT, (json.dumps(event) + "\n").encode())


def answer(_server: str, request: dict[str, Any]) -> dict[str, Any]:
    journal("asked", request["message"])
    answered = {"action": "accept", "content": {"name": request["message"]}}
    journal("answered", request["message"])
    return answered


def watch_arrivals() -> None:
    """Write down when the id of a new task reaches this process: as bytes, and as a message."""
    receive, resolve = ResponseHandler.data_received, dispatcher._resolve_or_task

    def data_received(self: ResponseHandler, data: bytes) -> None:
        if b'"resultType": "task"' in data:
            for found in re.findall(rb'"taskId": "([^"]+)"', data):
                journal("received", found.decode())
        receive(self, data)

    def resolve_or_task(on_task: Any, then: Any, outcome: Any) -> None:
        if isinstance(outcome, dict) and outcome.get("resultType") == "task":
            journal("read", outcome["taskId"])
        resolve(on_task, then, outcome)

    ResponseHandler.data_received, dispatcher._resolve_or_task = data_received, resolve_or_task


watch_arrivals()


async def main(events: list[Any]) -> None:
    begun = {event[1] for event in events if event[0] == "begun"}
    done = {event[2] for event in events if event[0] == "got"}
    held = {event[1] for event in events if event[0] == "held"} - done
    spec = ServerSpec("t", Http(URL, headers={"X-Run": RUN}))
    slots = asyncio.Semaphore(AT_ONCE)
    async with McpManager([spec], cache=False, handlers=Handlers(elicitation=answer)) as mcp:
        assert await mcp.wait_ready(timeout=60)
        # A task that was found may end before we are killed again, so its id is written down first.
        for task in await mcp.tasks.list():
            if task.id not in held:
                journal("held", task.id)
                held.add(task.id)

        async def collect(identifier: str) -> None:
            result = await mcp.tasks.resume(identifier)
            journal("got", json.loads(result.raise_for_error().text)["number"], identifier)

        async def resume(identifier: str) -> None:
            async with slots:
                await collect(identifier)

        async def start(number: int) -> None:
            async with slots:
                journal("begun", number)
                task = (await mcp.call("mcp_t_work", {"number": number}, detach=True)).raise_for_error().task
                assert task is not None
                journal("held", task.id)
                await collect(task.id)

        fresh = (start(number) for number in range(COUNT) if number not in begun)
        await asyncio.gather(*map(resume, sorted(held)), *fresh)
    journal("ended", RUN)


asyncio.run(main([json.loads(line) for line in JOURNAL.read_text("utf-8").splitlines()]))
